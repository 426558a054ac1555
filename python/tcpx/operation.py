"""Operations: what an asynchronous call has started."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Generator
from typing import Any

from ._session import Session, Started
from .errors import Timeout
from .streams import Stream, handle_of, make_wait

__all__ = ["Operation"]

#: For which an awaited operation is asked about again and again, unless there is one core only. Measured on two: 8 B take 45 us
#: instead of 106, and a hundred at once, or operations that take longer, are no slower.
SPIN_SECONDS = 50e-6 if len(os.sched_getaffinity(0)) >= 2 else 0.0


class Operation:
    """A send, receive, write or read under way. ``await`` it, `wait` for it, or ask whether it is `done`.

    Its buffers live at least until it has ended, also when nobody keeps the operation. Any thread, any event loop.
    """

    __slots__ = ("_session", "_core", "__weakref__")

    def __init__(self, session: Session, started: Started) -> None:
        self._session = session
        self._core = session.keep(started)

    def done(self) -> bool:
        """Whether it has ended, well or not. Does not wait."""
        if not self._core.done():
            return False
        self._release()
        return True

    def wait(self, timeout: float | None = None) -> None:
        """Waits for the end. Raises what went wrong; `tcpx.Timeout` after `timeout` seconds, and it goes on then.

        Ctrl-C cancels it, and is raised when nothing touches the memory any more.
        """
        if not self._core.wait(timeout):
            raise Timeout(f"{Timeout.code}: wait: still pending after {timeout} s", "", "wait", "still pending")
        self._release()
        self._core.check()

    def error(self) -> Exception | None:
        """Why it failed; None while it is pending and after success."""
        return self._core.error()

    def cancel(self) -> None:
        """Ends it early: it fails with `tcpx.Cancelled`, when nothing touches the memory any more. `wait` says when."""
        self._core.cancel()

    def wait_on(self, stream: Stream) -> None:
        """Makes a CUDA stream wait for the end, without waiting here. What the stream was given before is not held up.

        The stream goes on after a failure, too: ask `error` before the bytes are believed. Needs `event=True` at the start.
        """
        handle = handle_of(stream)
        if handle is None:
            raise TypeError("wait_on needs a stream")
        if not self.done():
            make_wait(handle, self._core.completion_event())

    def _release(self) -> None:
        self._session.pending.pop(self._core, None)

    def __await__(self) -> Generator[Any, None, None]:
        ended = self.done()
        try:
            if not ended and SPIN_SECONDS:
                # A short one is over before the descriptor could wake anybody. Other tasks go on in between.
                until = time.perf_counter() + SPIN_SECONDS
                while not ended and time.perf_counter() < until:
                    yield
                    ended = self.done()
            if not ended:
                yield from self._session.watchers.of_this_loop().add(self._core)
        except asyncio.CancelledError:
            self._core.cancel()
            raise
        self._release()
        self._core.check()

    def __repr__(self) -> str:
        state = "pending" if not self._core.done() else "failed" if self._core.error() else "done"
        return f"<tcpx.Operation {state}>"
