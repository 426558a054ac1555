"""A broadcast as a pipelined chain: the source writes pieces to the first receiver, each receiver hands on what it has.

The source says who follows whom, and is told how far everybody is; it moves bytes to its successor only. A rank that is lost is
taken out: the one behind it asks the one before it for the pieces that are missing. Messages, all through `Station`:

    tick      source -> receiver    the round has begun, and goes on
    offer     source -> all         its manifest, which they compare with their tensors. The rank before each, the number of that link
    ready     receiver -> source    it is the same
    feed      receiver -> the rank  the table of its slots, and which pieces it has, with that number; the latest counts. Sent with
              before it             `ready`: who is asked early feeds when all are ready, for only then the source begins
    after     source -> receiver    another rank is before it now: that one, the link's number, whether the one before that is lost
    piece     with the bytes
    count     receiver -> source    bytes in place
    gone      receiver -> source    the rank behind cannot be written to: the number of that link
    failed    receiver -> source    this one gives up, and why: before all are ready that ends the round, then it is left out
    end       source -> all         everybody has everything; `abort`: nobody will, and which rank says so, and why

Manifest and table are in the message where they are short, else it says where they are read from (`Parcel`).
Each names its round: a number of the source's, which grows. Every rank is in one state, and in one round at most:

    source:    preparing -> meeting -> waiting for all to be ready -> moving -> over
    receiver:  waiting for an offer -> agreeing -> ready -> moving -> over        any -> over when it fails, or the source tells so

Whoever fails tells at once: a receiver its source, a source all, with the reason of the rank that began it. A rank is in a round
with one process, the newest of its rank: a process that joins anew under that rank gets the next round. A receiver that hears of
a newer round of its source leaves the old one. What was told to it while it was not waiting is kept, so that each of its calls
meets the round that its source's call began: a round that is over already ends that call at once, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .. import errors
from ..endpoint import Connection, Registration
from ..errors import Cancelled, Error, InvalidArgument, NotFound, PeerGone, Protocol, Timeout
from .feed import Feed, register
from .manifest import Manifest, Tensor
from .station import Mail, Station

__all__ = ["BRIEF", "LOOK", "TICK", "Member", "Progress", "Report", "cancelled", "peer_gone", "reason_of", "said_in", "timed_out"]

Progress = Callable[[int, int], None]
#: Seconds between looks at deadlines, and between messages that say how far a rank is.
LOOK, TICK = 0.1, 0.25
#: Seconds for ranks that have not met this one to be told that it has failed; and for what has gone wrong elsewhere to be heard of: all
#: ranks are to know within a second.
BRIEF = 0.5
#: What a write ends with when the rank behind does not want it, and lives; when it is silent, or gone.
_UNWANTED = (Cancelled, NotFound, Protocol)
_UNHEARD = (PeerGone, Timeout)


class Report(NamedTuple):
    """A broadcast that has ended. nbytes: of the state dict; lost: ranks that did not get all of it."""

    nbytes: int
    lost: tuple[int, ...]


def timed_out(text: str) -> Timeout:
    return Timeout(f"{Timeout.code}: broadcast: {text}", "", "broadcast", text)


def peer_gone(text: str) -> PeerGone:
    return PeerGone(f"{PeerGone.code}: broadcast: {text}", "", "broadcast", text)


def cancelled(text: str) -> Cancelled:
    return Cancelled(f"{Cancelled.code}: broadcast: {text}", "", "broadcast", text)


class _Told(Exception):
    """Why another rank has ended the round: the cause of the error that is raised here, and told to others as it came."""

    def __init__(self, reason: dict[str, Any]) -> None:
        super().__init__(reason["text"])
        self.reason = reason


def said_in(mail: Mail) -> Error:
    """The error that another rank tells of."""
    body = mail.body
    text = f"rank {body['rank']}: {body['text']}"
    error = errors.error_of(body["code"], f"{body['code']}: broadcast: {text}", "", "broadcast", text, 0)
    error.__cause__ = _Told(body)
    return error


def reason_of(error: BaseException, rank: int) -> dict[str, Any]:
    """What others are told of an error of this rank, or of the one that has told this rank."""
    if isinstance(error.__cause__, _Told):
        return error.__cause__.reason
    if isinstance(error, Error):
        code, text = error.code, error.detail or str(error)
    else:
        code = InvalidArgument.code if isinstance(error, (TypeError, ValueError)) else Cancelled.code
        text = f"{type(error).__name__}: {error}"
    return {"code": code, "text": text[:2000], "rank": rank}


class Member:
    """The part that the source and a receiver have in common: they feed the rank behind."""

    def __init__(self, station: Station, timeout: float, window: int, progress: Progress | None) -> None:
        self.station = station
        self.rank = station.group.rank
        self.timeout = timeout
        self.window = window
        self.progress = progress
        self.round = 0
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
        link = mail.body["link"]
        if link <= self.link:
            return  # of a rank that was taken out meanwhile
        self.link = link
        if self.feed is not None:
            self.drop_feed(lost=self.feed.connection is not mail.connection)
        has = mail.body["has"]
        if len(has) != len(self.pieces):
            raise Protocol(f"{Protocol.code}: rank {mail.rank} tells of {len(has)} pieces, there are {len(self.pieces)}", "")
        pieces = [piece for piece, there in enumerate(has) if there]
        arguments = self.tensors, self.pieces, self.timeout, self.window
        self.feed = Feed(self.round, mail.rank, mail.connection, mail.body["table"], pieces, *arguments)
        self.feed.add(self.have)

    def advance_feed(self) -> int | None:
        """Returns the rank behind when it is lost. One that lives, and wants nothing more, tells the source itself."""
        if self.feed is None:
            return None
        try:
            self.feed.advance()
            return None
        except _UNWANTED:
            self.drop_feed(lost=False)
            return None
        except _UNHEARD:
            return self.drop_feed()

    def drop_feed(self, lost: bool = True) -> int:
        """Writes to the rank behind no more, and returns it. lost: gives it up, so that what is under way to it ends, too."""
        assert self.feed is not None
        feed, self.feed = self.feed, None
        if lost:
            self.station.group.drop(feed.rank, feed.connection)  # first: what is under way to it ends with its connection
        feed.abandon()
        return feed.rank

    def end(self) -> None:
        """Nothing touches the tensors any more when it returns."""
        if self.feed is not None:
            self.feed.abandon()
        for registration in self.registrations:
            registration.release()
