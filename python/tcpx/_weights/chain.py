"""A broadcast as a pipelined chain: each receiver reads pieces from the rank before it, and relays what it has to the one behind it.

Every rank advertises its tensors for reading, and tells those who follow it how many pieces are there: the source has all when all
are ready, a receiver those that it has read. A receiver whose rank before it is lost follows the one before that, up to the source.
So the source needs to know only how far everybody is. Messages, all through `Station`:

    offer     source -> all         its manifest, which they compare with their tensors, and which ranks are between it and each. The
                                    one behind it reads without asking, and a single receiver as soon as its own tensors agree
    tick      source -> receiver    the round has begun, and goes on without those that are lost: `dropped` are those of them that are
                                    silent or gone, `lost` all. `over`: everybody else has everything. A single
                                    receiver does not wait for that
    abort     source -> receiver    nobody will have everything, or this one was taken out: which rank says so, and why
    follow    receiver -> a rank    it reads from that one, whose answer is `here`. Sent as soon as it is ready, maybe too early
    here      receiver -> source    so many pieces are in place, none as soon as its tensors are as the manifest says
              rank -> followers     the same. The first one has the table of its slots
    failed    receiver -> source    this one gives up, and why: before all are ready that ends the round, then it is left out

Manifest and table are in the message where they are short, else it says where they are read from (`Parcel`).
Each names its round: a number of the source's, which grows. Every rank is in one state, and in one round at most:

    source:    preparing -> meeting -> waiting for all to be ready -> moving -> over
    receiver:  waiting for an offer -> agreeing -> moving -> over        any -> over when it fails, or the source tells so

Whoever fails tells at once: a receiver its source, a source all, with the reason of the rank that began it. A rank is in a round
with one process, the newest of its rank: a process that joins anew under that rank gets the next round. A receiver that hears of
a newer round of its source leaves the old one. What was told to it while it was not waiting is kept, so that each of its calls
meets the round that its source's call began: a round that is over already ends that call at once, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .. import errors
from ..errors import Cancelled, Error, InvalidArgument, PeerGone, Timeout
from .manifest import Manifest, Tensor
from .relay import Relay
from .station import Mail, Station

__all__ = ["BRIEF", "LOOK", "TICK", "Member", "Progress", "Report", "cancelled", "peer_gone", "reason_of", "said_in", "timed_out"]

Progress = Callable[[int, int], None]
#: Seconds between looks at deadlines, and between messages that say how far a rank is.
LOOK, TICK = 0.1, 0.25
#: Seconds for ranks that have not met this one to be told that it has failed; and for what has gone wrong elsewhere to be heard of: all
#: ranks are to know within a second.
BRIEF = 0.5


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
    """The part that the source and a receiver have in common: they relay what they have."""

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
        self.relay: Relay | None = None
        self._piece_bytes = 0
        self._said = -1

    def describe(self, manifest: Manifest, tensors: dict[str, Tensor]) -> Relay:
        """Lays out the bytes as the manifest, with which the tensors agree, says. Of the relay nothing is there yet."""
        self.tensors = [tensors[entry.name] for entry in manifest.entries]
        self.pieces = manifest.pieces()
        self.nbytes = sum(entry.nbytes for entry in manifest.entries)
        self._piece_bytes = manifest.piece_bytes
        for tensor in self.tensors:
            tensor.finish_work()
        self.relay = Relay(self.station, self.round, self.tensors)
        return self.relay

    def bytes_in(self, place: int) -> int:
        """Bytes of the first pieces: all but the last one are as long as the manifest says."""
        return min(place * self._piece_bytes, self.nbytes)

    def say_progress(self, place: int) -> None:
        if self.progress is not None and place != self._said:
            self._said = place
            self.progress(self.bytes_in(place), self.nbytes)

    def end(self) -> None:
        """Nothing touches the tensors any more when it returns."""
        if self.relay is not None:
            self.relay.end(self.timeout)
