"""The library's log lines as records of the logger `tcpx`."""

from __future__ import annotations

import atexit
import logging
import threading
import traceback

from . import _core

_SLICE = 0.5
_logger = logging.getLogger("tcpx")
_lock = threading.Lock()
_thread: threading.Thread | None = None
_stop = threading.Event()


def start() -> None:
    """Begins to hand lines on, once in a process that has a handler for them; else they go to stderr, as in C++."""
    global _thread
    if _thread is not None or not (_logger.hasHandlers() or logging.getLogger().hasHandlers()):
        return
    with _lock:
        if _thread is None:
            _core.keep_log_lines()
            _thread = threading.Thread(target=_hand_on, name="tcpx-log", daemon=True)
            _thread.start()
            atexit.register(_end)


def _hand_on() -> None:
    while True:
        ending = _stop.is_set()
        for level, text in _core.take_log_lines(0.0 if ending else _SLICE):
            try:
                _logger.log(level, "%s", text)
            except Exception:  # of a handler: the next lines are for it, too
                if logging.raiseExceptions:
                    traceback.print_exc()
        if ending:
            return


def _end() -> None:
    _stop.set()
    if _thread is not None:
        _thread.join(2 * _SLICE)
    _core.release_log_lines()
