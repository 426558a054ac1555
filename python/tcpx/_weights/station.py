"""Messages between the ranks of a group that move weights, over an endpoint that is used for nothing else."""

from __future__ import annotations

import ctypes
import json
import random
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ..endpoint import Connection, Endpoint, Notification
from ..errors import Error, NotFound, PeerGone
from ..rendezvous import Group
from ..slot import Slot
from .foreign import data_of, integer, items, json_of, reading, slot_of, text, text_of

__all__ = ["SHORT", "Mail", "Parcel", "Station"]

_NAME = "tcpx.weights"
#: Messages for other rounds that are kept; a rank is ahead of another by one or two.
_MOST_KEPT = 1024
#: Bytes that travel in a message: a third more as its text, for which a notification has room (NotifyMsg in include/tcpx/endpoint.h).
SHORT = 256 << 10


class Parcel:
    """Bytes that a message gives to another rank: itself where they are short, else as a slot, for as long as somebody keeps this.

    owner: advertises the slot. said: what the message has.
    """

    def __init__(self, data: bytes, owner: Endpoint) -> None:
        self.slot = None if len(data) <= SHORT else owner.advertise(ctypes.create_string_buffer(data, len(data)), access="read")
        self.said = text_of(data) if self.slot is None else [text_of(bytes(self.slot))]

    @staticmethod
    def read(said: Any) -> memoryview | Slot:
        """The bytes, or where they are to be read from."""
        return slot_of(*items(said, 1)) if isinstance(said, list) else memoryview(data_of(said))


def _ranks(value: Any) -> tuple[int, ...]:
    return tuple(map(integer, items(value)))


def _table(value: Any) -> memoryview | Slot | None:
    return None if value is None else Parcel.read(value)


#: What messages say, by their kind; see `tcpx._weights.chain`.
_REASON: dict[str, Callable[[Any], Any]] = {"code": text, "text": text, "rank": integer}
_KINDS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "tick": {"lost": _ranks, "dropped": _ranks, "over": bool},
    "offer": {"manifest": Parcel.read, "before": _ranks, "place": integer, "table": _table},
    "abort": _REASON,
    "follow": {},
    "here": {"place": integer, "table": _table},
    "failed": _REASON,
}
#: Kinds that only the source of a round sends: the numbers of different sources are not compared.
_OF_A_SOURCE = ("tick", "offer", "abort")


class Mail(NamedTuple):
    """A message: the rank that sent it, its connection, the round that it is about, and the rest by name."""

    rank: int
    connection: Connection
    round: int
    kind: str
    body: dict[str, Any]


class Station:
    """One for each group: sends and receives messages. Used by whoever holds `lock`."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.lock = threading.Lock()
        #: Manifests of the last rounds: a rank may still be reading that of one which another rank has made fail.
        self.offered: deque[Parcel] = deque(maxlen=2)
        self._rounds = 0
        self._ended: dict[int, int] = {}
        self._inbox: deque[Notification] = deque()
        self._kept: deque[Mail] = deque(maxlen=_MOST_KEPT)
        self._asked: dict[int, Mail] = {}
        # A set of its own, whose events nobody else takes: see Endpoint::event_fd in include/tcpx/endpoint.h.
        self._events = select.epoll()
        self._events.register(group.endpoint.session.core.event_fd(), select.EPOLLIN | select.EPOLLET)

    def begin_round(self) -> int:
        """The number of a round of this source: more than those before, and no other source's."""
        self._rounds += 1
        return self._rounds << 32 | random.getrandbits(32)

    def end_round(self, source: Connection, number: int) -> None:
        """Nothing about that round, or earlier ones of that source, is listened to any more."""
        self._ended = {one.id: self._ended.get(one.id, 0) for one in (*self.group.connected().values(), source)}
        self._ended[source.id] = max(self._ended[source.id], number)

    def tell(self, connection: Connection, number: int, kind: str, /, **body: Any) -> None:
        """Sends a message about a round. Raises `tcpx.PeerGone`, also when another thread has ended the connection."""
        try:
            connection.notify(json.dumps({"round": number, "kind": kind, **body}).encode(), _NAME)
        except NotFound as error:
            raise PeerGone(f"{PeerGone.code}: notify: {error.detail}", "", "notify", error.detail) from None

    def try_tell(self, connection: Connection, number: int, kind: str, /, **body: Any) -> bool:
        """`tell` to a rank that may be gone: False then."""
        try:
            self.tell(connection, number, kind, **body)
            return True
        except Error:
            return False

    def reach(self, rank: int, number: int, kind: str, timeout: float, /, **body: Any) -> Connection | None:
        """`tell` to the newest process of a rank, whose connection is returned. None: it is lost, and no other has joined."""
        deadline = time.monotonic() + timeout
        for _ in range(2):
            if not self.group.renew(rank):
                return None
            connection = None
            try:
                connection = self.group.connection(rank, max(deadline - time.monotonic(), 0.0))
                self.tell(connection, number, kind, **body)
                return connection
            except PeerGone:
                self.group.drop(rank, connection)
        return None

    def mail(self, timeout: float) -> Iterator[Mail]:
        """Messages; waits up to `timeout` seconds for one, or for the end of an operation. Whoever stops to iterate leaves the
        others for the next call. Raises `tcpx.Protocol` for a message that is none of ours."""
        self._inbox.extend(self.group.endpoint.notifications())
        if not self._inbox:
            self._events.poll(timeout)
            self._inbox.extend(self.group.endpoint.notifications())
        while self._inbox:
            mail = self._read(self._inbox.popleft())
            if mail is not None and not self._is_over(mail):
                yield mail

    def keep(self, mail: Mail) -> None:
        """Puts aside a message about a round that this rank does not take part in yet, if it says how that one begins or ends, or
        who is behind this rank then."""
        if mail.kind in ("offer", "abort"):
            self._kept.append(mail)
        elif mail.kind == "follow":
            self._asked[mail.rank] = mail  # each rank is in one round at most, so it wants nothing more of an earlier one

    def kept(self) -> list[Mail]:
        """Takes what was put aside, of processes that still are their ranks."""
        kept, self._kept = self._kept, deque(maxlen=_MOST_KEPT)
        now = self.group.connected()
        return [one for one in kept if now.get(one.rank) is one.connection and not self._is_over(one)]

    def asked(self, number: int) -> list[Mail]:
        """The mail that `keep` has put aside of the ranks that follow this one in a round; the next call gets it, too."""
        return [one for one in self._asked.values() if one.round == number]

    def gone(self, connections: Mapping[int, Connection]) -> set[int]:
        """The ranks among these whose process is gone: its connection has ended, or another process is the rank."""
        alive = {one["id"] for one in self.group.endpoint.stats()["connections"] if one["alive"]}
        now = self.group.connected()
        return {rank for rank, one in connections.items() if one.id not in alive or now.get(rank) is not one}

    def _is_over(self, mail: Mail) -> bool:
        return mail.kind in _OF_A_SOURCE and mail.round <= self._ended.get(mail.connection.id, 0)

    def _read(self, note: Notification) -> Mail | None:
        """None for what is no message of a rank's."""
        rank = self.group.rank_of(note.connection)
        connection = None if rank is None else self.group.connected().get(rank)
        if rank is None or connection is None or connection.id != note.connection:
            return None
        if note.name != _NAME:
            return None
        with reading(f"a message of rank {rank}"):
            said = json_of(note.data)
            if not isinstance(said, dict):
                raise TypeError("it is no object")
            kind = text(said["kind"])
            body = {name: read(said[name]) for name, read in _KINDS[kind].items()}
            if (named := max([body.get("rank", 0), *body.get("before", ())])) >= self.group.world_size:
                raise ValueError(f"there is no rank {named}")
            return Mail(rank, connection, integer(said["round"]), kind, body)
