"""Moves memory between GPUs, and hosts, over TCP.

    import numpy as np, tcpx

    ep = tcpx.Endpoint()                      # here: advertise a buffer, and tell the other process about it
    ep.accept_all()
    slot = ep.advertise(np.zeros(1 << 20, np.uint8))
    send_somehow(ep.metadata, bytes(slot))

    conn = tcpx.Endpoint().connect(metadata)  # there: write to it
    conn.write(np.ones(1 << 20, np.uint8), tcpx.Slot.from_bytes(data), notify=b"there")

Buffers are tensors of torch, arrays of numpy, cupy and jax, DLPack, and the buffer protocol. `Endpoint` and `Connection` move them;
`tcpx.kv` moves blocks of a KV cache, `tcpx.weights` a model's weights, `tcpx.rendezvous` finds the other processes, `tcpx.uccl`
runs programs written for UCCL's p2p engine, `tcpx.prometheus` gives metrics. Errors are below `tcpx.Error`, one class a code.
Log lines go to the logger `tcpx` when it has a handler, else to stderr.
"""

from __future__ import annotations

from . import _core
from .connection import Connection
from .endpoint import Endpoint, Notification, PeerInfo, Registration
from .errors import (
    BadConfig,
    Cancelled,
    Corrupt,
    Cuda,
    Error,
    Exhausted,
    Internal,
    InvalidArgument,
    Mismatch,
    NotFound,
    PeerGone,
    Plugin,
    Protocol,
    System,
    Timeout,
    Unsupported,
)
from .operation import Operation
from .plan import Plan
from .slot import Slot
from .streams import CURRENT

__version__: str = _core.version

__all__ = [
    "BadConfig",
    "CURRENT",
    "Cancelled",
    "Corrupt",
    "Connection",
    "Cuda",
    "Endpoint",
    "Error",
    "Exhausted",
    "Internal",
    "InvalidArgument",
    "Mismatch",
    "NotFound",
    "Notification",
    "Operation",
    "PeerGone",
    "PeerInfo",
    "Plan",
    "Plugin",
    "Protocol",
    "Registration",
    "Slot",
    "System",
    "Timeout",
    "Unsupported",
    "stats",
]


def stats(endpoint: Endpoint) -> dict[str, object]:
    """`Endpoint.stats`."""
    return endpoint.stats()
