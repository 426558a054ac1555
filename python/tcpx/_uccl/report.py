"""How the calls of `tcpx.uccl` say what went wrong: `ok` is False, and the reason is kept and logged."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..errors import Error, InvalidArgument

__all__ = ["Refused", "last_error", "reports"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_logger = logging.getLogger("tcpx.uccl")
_of_thread = threading.local()


class Refused(InvalidArgument, RuntimeError):
    """Raised by calls that have no `ok`, and by `transfer`: the RuntimeError that programs written for UCCL expect there."""

    def __init__(self, operation: str, detail: str) -> None:
        super().__init__(f"{self.code}: {operation}: {detail}", "", operation, detail)

    def __reduce__(self) -> tuple[object, ...]:
        return Refused, (self.operation, self.detail)


def last_error() -> Exception | None:
    """Why this thread's last call that failed did so; None before the first one. Text and help as of `tcpx.Error`."""
    error: Exception | None = getattr(_of_thread, "error", None)
    return error


def _report(call: str, error: Exception) -> None:
    _of_thread.error = error
    _logger.warning("%s: %s", call, error)


def reports(failure: _R, name: str = "") -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Makes a call return `failure` where it would raise an error. Missing and unknown arguments are a TypeError all the same.

    name: of the call, for the log; default: its own.
    """

    def decorate(call: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(call)
        def reporting(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                return call(*args, **kwargs)
            except Refused:
                raise
            except TypeError as error:
                inspect.signature(call).bind(*args, **kwargs)
                _report(name or call.__name__, error)
            except (Error, ValueError, OverflowError, AttributeError, BufferError) as error:
                _report(name or call.__name__, error)
            return copy.deepcopy(failure)

        return reporting

    return decorate
