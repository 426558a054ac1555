"""Weights: a state dict's tensors from one process to many.

    report = tcpx.weights.broadcast(model.state_dict(), src=0)      # under torchrun: every rank calls it

`broadcast` is a pipelined chain: each receiver reads from the rank before it, and relays what it has to the one behind it. A receiver
that is lost is left out, and the others get everything.

    publication = tcpx.weights.publish(model.state_dict())          # a trainer: whoever wants them reads them
    with publication.update():
        optimizer.step()
    version = tcpx.weights.fetch_into(mine, newer_than=version)     # a sampler: some names, whole tensors or `Shard`s

`publish` and `fetch_into` need no call at the same time: the tensors are read one-sidedly.

Each broadcast is a round of its source. Whoever fails tells all at once, with the true reason, and the n-th call of each rank
meets the round of the source's n-th call: one that fails is over for all, and the next one works at once. The newest process of a
rank is the rank: the one whose record the store holds, also while an older one lives on. It gets the next round.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence

from ._weights.chain import Progress, Report
from ._weights.manifest import SHORTEST_PIECE, Tensor, tensors_of
from ._weights.publication import Publication, parts_of, read_into
from ._weights.receiver import Receiver
from ._weights.shard import Shard
from ._weights.source import Source
from ._weights.station import Station
from .buffers import Buffer
from .errors import invalid
from .rendezvous import Group, join

__all__ = ["Publication", "Report", "Shard", "broadcast", "fetch_into", "publish"]

_stations: weakref.WeakKeyDictionary[Group, Station] = weakref.WeakKeyDictionary()
_published: weakref.WeakKeyDictionary[Station, dict[str, Publication]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
_default: Group | None = None


def broadcast(
    state_dict: Mapping[str, Buffer],
    src: int = 0,
    *,
    group: Group | None = None,
    progress: Progress | None = None,
    timeout: float = 60.0,
    piece_bytes: int | None = None,
    window: int = 4,
) -> Report:
    """Gives every rank of a group the bytes of the source's tensors. All of them call it; it returns when all have everything.

    state_dict: tensors by name, of the host or a GPU; those of a receiver are written to, and must have the same names, shapes
        and types: `tcpx.Mismatch` at every rank otherwise, before a byte moves.
    group: default: that of `torchrun`. progress: called with bytes and their total, on this thread: those in place here; at the
        source, those in place at the slowest receiver.
    timeout: seconds without progress after which a rank counts as lost; at the beginning, for which ranks are waited for.
    piece_bytes, window: bytes that are handed on as one (64 KiB at least; the source's count; default: 16 to 64 MiB, more for
        more bytes and fewer receivers), and how many of those are under way over each hop.

    A rank that raises before bytes move, be it while its tensors are looked at, ends the broadcast at every rank: the others raise
    an error of its code, or `tcpx.Cancelled`, which names the rank and its reason. A source that raises so waits for those that
    have not joined yet, to tell them.
    A receiver that is lost while bytes move is left out: the ranks behind it get them from the one before it. `Report.lost`
    names it; it raises `tcpx.PeerGone` if it lives. One that raises itself may take part in the next broadcast; one that is silent,
    or gone, is asked again when a new process has joined as its rank. Without the source, receivers that miss bytes raise
    `tcpx.PeerGone`, or `tcpx.Timeout`.
    What a source can make a receiver read about tensors is bounded by twice what those of the receiver take, and 64 KiB.
    Tensors of a rank that raises have any bytes.
    """
    station = station_of(group)
    own = station.group
    if not 0 <= src < own.world_size:
        raise invalid("broadcast", f"source {src} of {own.world_size} ranks")
    settings = (piece_bytes is None or piece_bytes >= SHORTEST_PIECE) and window >= 1 and timeout > 0

    def state() -> dict[str, Tensor]:  # what it raises is told to the others, who wait for this rank
        if not settings:
            raise invalid("broadcast", f"pieces of {piece_bytes} bytes, a window of {window}, a timeout of {timeout} s")
        return tensors_of(state_dict)

    limit = timeout if timeout > 0 else own.timeout
    with station.lock:
        if own.rank == src:
            return Source(station, limit, window, progress).run(state, piece_bytes)
        return Receiver(station, limit, window, progress).run(state, src)


def publish(
    state_dict: Mapping[str, Buffer | Shard], name: str = "weights", *, version: int = 0, group: Group | None = None
) -> Publication:
    """Lets the ranks of a group read tensors, under a name, without any further call here. Returns at once.

    The tensors must not be changed but in `Publication.update`: a reader that meets a change reads again, and never returns bytes
    of two versions. Another publication under the name, with other tensors, takes the place of this one and closes it; readers go
    over to it. Ranks that each have a `Shard` publish it under the same names, with the same versions.

    version: a number that readers get, less than 2**62. Nobody else can write to the tensors: their slots are read-only.
    """
    station = station_of(group)
    with station.lock:
        published = _published.setdefault(station, {})
        before = published.pop(name, None)
        published[name] = publication = Publication(station, name, state_dict, version)
        if before is not None:
            before.close()
    return publication


def fetch_into(
    state_dict: Mapping[str, Buffer | Shard],
    name: str = "weights",
    src: int | Sequence[int] = 0,
    *,
    group: Group | None = None,
    timeout: float = 60.0,
    newer_than: int = -1,
) -> int:
    """Reads published tensors into those of a state dict, and returns their version. Needs nothing of the publisher's threads.

    state_dict: any of the published names; a whole tensor, or a `Shard` of it. Rows of a tensor are read as one, other slices in
        as many ranges as they have. Raises `tcpx.Mismatch` before a byte moves when a name, type or shape is not as published.
    src: the rank that published, or ranks, whose shards together cover what is wanted.
    newer_than: waits for a higher version. timeout: seconds, for the publication, that version, and the bytes.

    Only the names that are wanted are looked into of what another process has published, which may take 64 MiB.
    Waits for a publication that is not there yet, and for one in the place of a closed one. Raises `tcpx.Timeout`, or the reason,
    for example `tcpx.PeerGone`, at the deadline. The tensors have any bytes then.
    """
    station = station_of(group)
    ranks = [src] if isinstance(src, int) else list(src)
    for rank in ranks:
        if not 0 <= rank < station.group.world_size or rank == station.group.rank:
            raise invalid("fetch", f"source {rank}, for rank {station.group.rank} of {station.group.world_size}")
    if not ranks or len(set(ranks)) != len(ranks) or not timeout > 0:
        raise invalid("fetch", f"sources {ranks}, a timeout of {timeout} s")
    return read_into(station, name, ranks, parts_of(state_dict), timeout, newer_than)


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
