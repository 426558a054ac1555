"""Exceptions: one class for each code of the library, all below `tcpx.Error`.

`except tcpx.PeerGone:` names what happened; `.help` says what to do about it, and where the documents have more.
"""

from __future__ import annotations

from . import _core
from ._help import locate

__all__ = [
    "BadConfig",
    "Cancelled",
    "Cuda",
    "Error",
    "Exhausted",
    "Internal",
    "InvalidArgument",
    "Mismatch",
    "NotFound",
    "PeerGone",
    "Plugin",
    "Protocol",
    "System",
    "Timeout",
    "Unsupported",
]


class Error(Exception):
    """A call failed. Its text names the code, what was being done, and what went wrong.

    code: name of the code, for example ``TCPX_E_PEER_GONE``: the anchor in docs/troubleshooting.md, too.
    help: sentences on what it means and what to do, one line for each code and hint in the text. It ends with the place of the
        entry in the page that the package has inside, which ``tcpx help CODE`` prints.
    operation, detail: the two parts of the text.
    native: number of the system that failed below (errno, plugin code, cudaError_t); 0 without one.
    """

    code: str = ""

    def __init__(
        self, text: str, help: str = "", operation: str = "", detail: str = "", native: int = 0
    ) -> None:
        super().__init__(text)
        self.help = help or (f"help: {self.__doc__} See {locate(self.anchor)}" if self.code else "")
        self.operation = operation
        self.detail = detail
        self.native = native

    @property
    def anchor(self) -> str:
        """Place of the code in the documents."""
        return f"docs/troubleshooting.md#{self.code}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.help, self.operation, self.detail, self.native)


class InvalidArgument(Error, ValueError):
    """The caller passed something no call of this kind accepts."""

    code = "TCPX_E_INVALID_ARGUMENT"


class NotFound(Error, LookupError):
    """A file, device, connection or registration that was named does not exist."""

    code = "TCPX_E_NOT_FOUND"


class Unsupported(Error):
    """This machine, build, plugin or process cannot do what was asked for."""

    code = "TCPX_E_UNSUPPORTED"


class BadConfig(Error):
    """An environment variable is set to something malformed or out of range."""

    code = "TCPX_E_BAD_CONFIG"


class Timeout(Error, TimeoutError):
    """A deadline passed."""

    code = "TCPX_E_TIMEOUT"


class PeerGone(Error, ConnectionError):
    """The other end closed, died or cannot be reached."""

    code = "TCPX_E_PEER_GONE"


class Protocol(Error):
    """The other end, the plugin or the kernel broke the agreed format."""

    code = "TCPX_E_PROTOCOL"


class Plugin(Error):
    """The net plugin refused a call."""

    code = "TCPX_E_PLUGIN"


class Cuda(Error):
    """A CUDA call failed; `native` is its cudaError_t."""

    code = "TCPX_E_CUDA"


class System(Error):
    """A system call failed; `native` is its errno."""

    code = "TCPX_E_SYSTEM"


class Exhausted(Error):
    """A queue or a pool is full, or this machine is out of descriptors, memory or ports."""

    code = "TCPX_E_EXHAUSTED"


class Mismatch(Error):
    """Sizes, settings or bytes that must be equal differ."""

    code = "TCPX_E_MISMATCH"


class Internal(Error):
    """A defect of the library."""

    code = "TCPX_E_INTERNAL"


class Cancelled(Error):
    """Given up by a caller, here or at the other end, or by closing the endpoint."""

    code = "TCPX_E_CANCELLED"


class Corrupt(Error):
    """Bytes arrived other than they were sent, as their checksum says: what was written to is not to be used."""

    code = "TCPX_E_CORRUPT"


_CLASSES: dict[str, type[Error]] = {kind.code: kind for kind in Error.__subclasses__()}


def error_of(code: str, text: str, help: str, operation: str, detail: str, native: int) -> Error:
    """The exception for what the library said: called by it."""
    return _CLASSES.get(code, Error)(text, locate(help), operation, detail, native)


_core.make_errors_with(error_of)


def invalid(operation: str, detail: str) -> InvalidArgument:
    """What a check of these Python files raises, worded as the library words its own."""
    code = InvalidArgument.code
    return InvalidArgument(f"{code}: {operation}: {detail}", "", operation, detail)
