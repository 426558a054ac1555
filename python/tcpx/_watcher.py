"""Operations awaited in event loops: the endpoint's descriptor wakes the loop, which then asks for the ended ones."""

from __future__ import annotations

import asyncio
import select
import threading
import weakref

from . import _core


class LoopWatcher:
    """The operations that one event loop awaits. Used by that loop's thread only."""

    def __init__(self, core: _core.Endpoint, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # A set of its own, and nobody reads the descriptor: so each event of it wakes every loop that watches it.
        self._events = select.epoll()
        self._events.register(core.event_fd(), select.EPOLLIN | select.EPOLLET)
        self._awaited: dict[asyncio.Future[None], _core.Operation] = {}
        self._idle: list[asyncio.Future[None]] = []
        loop.add_reader(self._events.fileno(), self._look)

    def add(self, operation: _core.Operation) -> asyncio.Future[None]:
        """A future that is done when the operation has ended."""
        future = self._loop.create_future()
        self._awaited[future] = operation
        return future

    def next_event(self) -> asyncio.Future[None]:
        """A future that is done when something has ended or come."""
        future = self._loop.create_future()
        self._idle.append(future)
        return future

    def _look(self) -> None:
        self._events.poll(0)
        ended = [future for future, one in self._awaited.items() if future.done() or one.done()]
        for future in ended:
            del self._awaited[future]
        for future in (*ended, *self._idle):
            if not future.done():
                future.set_result(None)
        self._idle.clear()

    def close(self) -> None:
        """From the loop's thread, or after its end."""
        if self._events.closed:
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._events.fileno())
            self._look()
        self._events.close()


class Watchers:
    """One for each event loop that awaits operations of an endpoint. Any thread."""

    def __init__(self, core: _core.Endpoint) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._of: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatcher] = weakref.WeakKeyDictionary()

    def of_this_loop(self) -> LoopWatcher:
        """The watcher of the running loop."""
        loop = asyncio.get_running_loop()
        watcher = self._of.get(loop)
        if watcher is None:
            watcher = LoopWatcher(self._core, loop)
            with self._lock:
                for other in [one for one in self._of if one.is_closed()]:
                    self._of.pop(other).close()
                self._of[loop] = watcher
        return watcher

    def close(self) -> None:
        """Tells the loops that every operation has ended: once the endpoint is closed."""
        with self._lock:
            watchers = list(self._of.items())
            self._of.clear()
        for loop, watcher in watchers:
            try:
                here = asyncio.get_running_loop() is loop
            except RuntimeError:
                here = False
            if here or loop.is_closed() or not loop.is_running():
                watcher.close()
            else:
                loop.call_soon_threadsafe(watcher.close)
