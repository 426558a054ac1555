"""Weights: a state dict's tensors from one process to many.

    report = tcpx.weights.broadcast(model.state_dict(), src=0)      # under torchrun: every rank calls it

`broadcast` is a pipelined chain: the source writes to the first receiver, each receiver hands on what it has. A receiver that is
lost is left out, and the others get everything.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping

from ._chain import Progress, Report
from ._manifest import SHORTEST_PIECE, tensors_of
from ._receiver import Receiver
from ._source import Source
from ._station import Station
from .buffers import Buffer
from .errors import invalid
from .rendezvous import Group, join

__all__ = ["Report", "broadcast"]

_stations: weakref.WeakKeyDictionary[Group, Station] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
_default: Group | None = None


def broadcast(
    state_dict: Mapping[str, Buffer],
    src: int = 0,
    *,
    group: Group | None = None,
    progress: Progress | None = None,
    timeout: float = 60.0,
    piece_bytes: int = 16 << 20,
    window: int = 4,
) -> Report:
    """Gives every rank of a group the bytes of the source's tensors. All of them call it, and it returns when all have everything.

    state_dict: tensors by name, of the host or a GPU; those of a receiver are written to, and must have the same names, shapes and
        types (`tcpx.Mismatch` at every rank that differs and at the source, before a byte moves).
    group: default: that of `torchrun`. progress: called with bytes and their total, on this thread: those in place here; at the
        source, those in place at the slowest receiver.
    timeout: seconds without progress after which a rank counts as lost; at the beginning, for which ranks are waited for.
    piece_bytes, window: bytes that are handed on as one (64 KiB at least), and how many of those are under way over each hop. Those of
        the source and of each rank count.

    A receiver that is lost while bytes move is left out: the ranks behind it get them from the one before it. `Report.lost` names it;
    it raises `tcpx.PeerGone` if it lives. Without the source, receivers that miss bytes raise `tcpx.PeerGone`, or `tcpx.Timeout`.
    Tensors of a rank that raises have any bytes.
    """
    station = station_of(group)
    own = station.group
    if not 0 <= src < own.world_size:
        raise invalid("broadcast", f"source {src} of {own.world_size} ranks")
    if piece_bytes < SHORTEST_PIECE or window < 1 or not timeout > 0:
        raise invalid("broadcast", f"pieces of {piece_bytes} bytes, a window of {window}, a timeout of {timeout} s")
    with station.lock:
        if own.rank == src:
            return Source(station, timeout, window, progress).run(tensors_of(state_dict), piece_bytes)
        return Receiver(station, timeout, window, progress).run(lambda: tensors_of(state_dict), src)


def station_of(group: Group | None) -> Station:
    """The station of a group, made at the first call. The default group is joined then."""
    global _default
    with _lock:
        if group is None:
            if _default is None:
                _default = join()
            group = _default
        if group not in _stations:
            _stations[group] = Station(group.part("weights"))
        return _stations[group]
