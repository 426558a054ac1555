"""A broadcast as a pipelined chain: the source writes pieces to the first receiver, each receiver hands on what it has.

The source says who follows whom, and is told how far everybody is; it moves bytes to its successor only. A rank that is lost is
taken out: the one behind it asks the one before it for the pieces that are missing. Messages, all through `Station`:

    offer     source -> all         where its manifest is; they read and compare it
    ready     receiver -> source    it is the same; `refuse`: it is not, and why
    after     source -> receiver    the rank that is before it now, and the number of that link
    feed      receiver -> that one  where its slots are, and which pieces it has, with that number; the latest counts
    piece     with the bytes
    count     receiver -> source    bytes in place; `tick` source -> receiver: it goes on
    gone      receiver -> source    the rank behind cannot be written to; `failed`: this one gives up
    end       source -> all         everybody has everything; `abort`: nobody will
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import NamedTuple

from . import errors
from ._feed import Feed, register
from ._manifest import Manifest, Tensor
from ._station import Mail, Station
from .endpoint import Registration
from .errors import Cancelled, Error, NotFound, PeerGone, Protocol, Timeout
from .slot import Slot

__all__ = ["LOOK", "TICK", "Member", "Progress", "Report", "peer_gone", "said_in", "timed_out"]

Progress = Callable[[int, int], None]
#: Seconds between looks at deadlines, and between messages that say how far a rank is.
LOOK, TICK = 0.1, 0.25
_BRIEF = 1.0
#: What a write ends with when the rank behind is at fault.
_OF_THE_OTHER = (PeerGone, Timeout, Cancelled, NotFound, Protocol)


class Report(NamedTuple):
    """A broadcast that has ended. nbytes: of the state dict; lost: ranks that did not get all of it."""

    nbytes: int
    lost: tuple[int, ...]


def timed_out(text: str) -> Timeout:
    return Timeout(f"{Timeout.code}: broadcast: {text}", "", "broadcast", text)


def peer_gone(text: str) -> PeerGone:
    return PeerGone(f"{PeerGone.code}: broadcast: {text}", "", "broadcast", text)


def said_in(mail: Mail) -> Error:
    """The error that another rank tells of."""
    text = str(mail.body.get("text"))
    return errors.error_of(str(mail.body.get("code")), text, "", "broadcast", text, 0)


class Member:
    """The part that the source and a receiver have in common: they feed the rank behind."""

    def __init__(self, station: Station, timeout: float, window: int, progress: Progress | None) -> None:
        self.station = station
        self.rank = station.group.rank
        self.timeout = timeout
        self.window = window
        self.progress = progress
        self.broadcast = 0
        self.tensors: list[Tensor] = []
        self.pieces: list[list[tuple[int, int, int]]] = []
        self.nbytes = 0
        self.have: list[int] = []
        self.feed: Feed | None = None
        self.link = 0
        self.registrations: list[Registration] = []
        self._said = -1

    def describe(self, manifest: Manifest, tensors: dict[str, Tensor]) -> None:
        """Lays out the bytes as the manifest, with which the tensors agree, says."""
        self.tensors = [tensors[entry.name] for entry in manifest.entries]
        self.pieces = manifest.pieces()
        self.nbytes = sum(entry.nbytes for entry in manifest.entries)
        for tensor in self.tensors:
            tensor.finish_work()
        self.registrations = register(self.station.group.endpoint, self.tensors)

    def say_progress(self, nbytes: int) -> None:
        if self.progress is not None and nbytes != self._said:
            self._said = nbytes
            self.progress(nbytes, self.nbytes)

    def begin_feed(self, mail: Mail) -> None:
        """Feeds the rank that asks for it, from now on instead of the one before."""
        link = int(mail.body["link"])
        if link <= self.link:
            return  # of a rank that was taken out meanwhile
        try:
            connection = self.station.group.connection(mail.rank, _BRIEF)  # there, unless it was dropped meanwhile
        except Error:
            return
        self.link = link
        if self.feed is not None:
            self.drop_feed()
        table = Slot.from_bytes(base64.b64decode(mail.body["table"]))
        has = [piece for piece, there in enumerate(base64.b64decode(mail.body["has"])) if there]
        arguments = self.tensors, self.pieces, self.timeout, self.window
        self.feed = Feed(self.broadcast, mail.rank, connection, table, has, *arguments)
        self.feed.add(self.have)

    def advance_feed(self) -> int | None:
        """Returns the rank behind when it is lost."""
        if self.feed is None:
            return None
        try:
            self.feed.advance()
            return None
        except _OF_THE_OTHER:
            return self.drop_feed()

    def drop_feed(self) -> int:
        """Gives up the rank behind, and returns it."""
        assert self.feed is not None
        feed, self.feed = self.feed, None
        self.station.lose(feed.rank)  # first: what is under way to it ends with its connection
        feed.abandon()
        return feed.rank

    def end(self) -> None:
        """Nothing touches the tensors any more when it returns."""
        if self.feed is not None:
            self.feed.abandon()
        for registration in self.registrations:
            registration.release()
