"""Messages between the ranks of a group that move weights, over an endpoint that is used for nothing else."""

from __future__ import annotations

import json
import select
import struct
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import Error, PeerGone
from .rendezvous import Group
from .slot import Slot

if TYPE_CHECKING:
    from ._publication import Publication

__all__ = ["Mail", "Station", "piece_note"]

_NAME = "tcpx.weights"
#: Comes with the bytes of a piece: magic, broadcast, piece, and by how many writes the piece comes.
_PIECE = struct.Struct("<4sQII")
_PIECE_MAGIC = b"TXWP"
#: Messages for later broadcasts that are kept; a rank is ahead of another by one or two.
_MOST_KEPT = 1024


def piece_note(broadcast: int, piece: int, parts: int) -> bytes:
    """The notification of one write of a piece."""
    return _PIECE.pack(_PIECE_MAGIC, broadcast, piece, parts)


class Mail(NamedTuple):
    """A message: the rank that sent it, the broadcast that it is about, and the rest by name."""

    rank: int
    broadcast: int
    kind: str
    body: dict[str, Any]


class Station:
    """One for each group: sends and receives messages. Used by whoever holds `lock`.

    lost: ranks that were given up; joins of new processes under their numbers bring them back. published: by name.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self.lock = threading.Lock()
        self.lost: set[int] = set()
        self.published: dict[str, Publication] = {}
        #: Manifests of the last broadcasts: a rank may still be reading that of one which another rank has made fail.
        self.offered: deque[Slot] = deque(maxlen=2)
        self._early: deque[Mail] = deque(maxlen=_MOST_KEPT)
        # A set of its own, whose events nobody else takes: see Endpoint::event_fd in include/tcpx/endpoint.h.
        self._events = select.epoll()
        self._events.register(group.endpoint._core.event_fd(), select.EPOLLIN | select.EPOLLET)

    def tell(self, rank: int, broadcast: int, kind: str, timeout: float | None = None, /, **body: Any) -> None:
        """Sends a message. Raises `tcpx.PeerGone` or `tcpx.Timeout`, as `Group.connection`."""
        text = json.dumps({"broadcast": broadcast, "kind": kind, **body}).encode()
        self.group.connection(rank, timeout).notify(text, _NAME)

    def try_tell(self, rank: int, broadcast: int, kind: str, /, **body: Any) -> bool:
        """`tell` to a rank that may be gone: False then."""
        try:
            self.tell(rank, broadcast, kind, 1.0, **body)
            return True
        except Error:
            return False

    def reach(self, rank: int, broadcast: int, kind: str, timeout: float, /, **body: Any) -> bool:
        """`tell` to a rank that may have been lost, and may have joined anew. False: it is lost."""
        for _ in range(2):
            if rank in self.lost:
                if not self.group.joined_anew(rank):
                    return False
                self.lost.discard(rank)
            try:
                self.tell(rank, broadcast, kind, timeout, **body)
                return True
            except PeerGone:
                self.lose(rank)
        return False

    def lose(self, rank: int) -> None:
        """Gives a rank up: what it writes here ends, and what is written to it."""
        self.lost.add(rank)
        self.group.drop(rank)

    def mail(self, timeout: float) -> list[Mail]:
        """Messages; waits up to `timeout` seconds for one, or for the end of an operation."""
        found = self._take()
        if not found:
            self._events.poll(timeout)
            found = self._take()
        return found

    def keep(self, mail: Mail) -> None:
        """Puts aside a message about a broadcast that this rank does not take part in yet."""
        self._early.append(mail)

    def kept(self) -> list[Mail]:
        """Takes what was put aside."""
        found = list(self._early)
        self._early.clear()
        return found

    def gone(self) -> set[int]:
        """Ranks whose connection has ended."""
        alive = {one["id"] for one in self.group.endpoint.stats()["connections"] if one["alive"]}
        return {rank for rank, connection in self.group.connected().items() if connection.id not in alive}

    def _take(self) -> list[Mail]:
        found = []
        for note in self.group.endpoint.notifications():
            rank = self.group.rank_of(note.connection)
            mail = None if rank is None else _read(rank, note.name, note.data)
            if mail is not None:
                found.append(mail)
        return found


def _read(rank: int, name: str, data: bytes) -> Mail | None:
    """None for what is no message of ours: ranks are believed to be of this version, but nothing here may break."""
    if name == "" and len(data) == _PIECE.size:
        magic, broadcast, piece, parts = _PIECE.unpack(data)
        return Mail(rank, broadcast, "piece", {"piece": piece, "parts": parts}) if magic == _PIECE_MAGIC else None
    if name != _NAME:
        return None
    try:
        body = json.loads(data)
        return Mail(rank, int(body.pop("broadcast")), str(body.pop("kind")), body)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return None
