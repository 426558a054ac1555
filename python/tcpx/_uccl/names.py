"""What the module `tcpx.uccl` has beside its `Endpoint`, and how that one reads its arguments."""

from __future__ import annotations

import enum
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from ..errors import Unsupported, invalid

__all__ = ["FloatType", "XferHandle", "current_gpu", "get_oob_ip", "read_metadata", "refused_ipc", "without_conn"]

_METADATA = struct.Struct("<6sHHHiQ")  # magic, version, port, length of the hosts, GPU, instance (endpoint/metadata.h)
_NETWORK_BYTES = {1: 0, 2: 8}  # behind it, by version


class FloatType(enum.Enum):
    """Number formats that UCCL may compress. Bytes travel as they are here, so all of them mean the same."""

    kUndefined = 0
    kFloat16 = 1
    kBFloat16 = 2
    kFloat32 = 3
    kFloat8E4M3FN = 4
    kFloat8E5M2 = 5


class XferHandle(NamedTuple):
    """For annotations: `Endpoint.transfer` returns a tuple, as UCCL's does."""

    conn_id: int
    op_name: str
    transfer_id: int


def get_oob_ip() -> str:
    """This host's address on its default route; 127.0.0.1 without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # of RFC 5737's documentation range; nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def current_gpu() -> int:
    """The GPU of torch, where it is in use; else 0."""
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0


def read_metadata(data: bytes) -> tuple[str, int, int]:
    """Addresses, separated by commas, port and GPU. Raises `tcpx.InvalidArgument` for what is no metadata."""
    front = _METADATA.unpack_from(data) if len(data) >= _METADATA.size else (b"", 0, 0, 0, 0, 0)
    magic, version, port, length, gpu, _ = front
    host = data[_METADATA.size + _NETWORK_BYTES.get(version, 0) :]
    known = magic == b"TCPXEP" and version in _NETWORK_BYTES and port != 0 and gpu >= 0
    if not known or not host or length != len(host) or not host.isascii():
        raise invalid("read endpoint metadata", f"{len(data)} bytes that are none, or of another version")
    return host.decode(), port, gpu


def without_conn(call: str, args: tuple[Any, ...], named: dict[str, Any], names: tuple[str, ...]) -> list[Any]:
    """Arguments of a call that has a connection before them in the wheel 0.1.1 and none in later sources: None for none."""
    given = len(args) + len(named)
    expected = ("conn_id", *names) if given > len(names) else names
    values = dict(zip(expected, args)) | named
    if given != len(expected) or set(values) != set(expected):
        raise TypeError(f"{call}() takes ({', '.join(names)}), or conn_id before them")
    return [values.get("conn_id"), *(values[name] for name in names)]


def refused_ipc(name: str) -> Callable[..., NoReturn]:
    """The method for a call that only processes of one host have in UCCL."""

    def call(self: object, *args: object, **named: object) -> NoReturn:
        detail = "no call of its own for a process of this host: write, read and transfer share memory with it by themselves"
        raise Unsupported(f"{Unsupported.code}: {name}: {detail}", "", name, detail)

    call.__name__ = name
    call.__doc__ = "Raises `tcpx.Unsupported`."
    return call
