"""Messages of a broadcast: what they carry, what comes early, and what nobody should send."""

from __future__ import annotations

import base64
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ranks import LIMIT, Ranks, join_here
from test_weights_rounds import AT_ONCE, call, is_of, state_of

import tcpx
from tcpx import weights
from tcpx._weights import source as _source
from tcpx._weights.feed import Feed, Table
from tcpx._weights.manifest import Manifest, tensors_of
from tcpx._weights.station import SHORT, Mail, Parcel
from tcpx.connection import Connection
from tcpx.rendezvous import Group

np = pytest.importorskip("numpy")


@pytest.mark.parametrize("short", [0, SHORT])
def test_a_rank_whose_connection_has_ended_here_does_not_end_the_round(tmp_path: Path, short: int) -> None:
    """A thread that lets in a new process of a rank ends the connection of the one before at any moment, as well before its table
    is read as when it came with the message."""
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        source, before = _source.Source(weights.station_of(first), LIMIT, 1, None), second.part("weights").connection(0, LIMIT)
        tensors = tensors_of(state_of(1))
        source.describe(Manifest.of(tensors, 1 << 20), tensors)
        source.have = list(range(len(source.pieces)))
        table = Table(before, list(tensors.values()), short)
        ended = first.part("weights").connection(1, LIMIT)
        first.part("weights").drop(1, ended)
        body = {"table": Parcel.read(table.parcel.said), "has": bytes(len(source.pieces)), "link": 1}
        source.begin_feed(Mail(1, ended, 1, "feed", body))
        assert source.advance_feed() is None and source.feed is None
        with pytest.raises(tcpx.PeerGone):
            source.station.tell(ended, 1, "tick")
        source.end()


def test_a_manifest_is_bounded_by_what_it_can_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver does not even read one that is longer than twice its own and 64 KiB."""
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        said: list[str] = []
        many = {f"layer.{i}": np.zeros(1, np.uint8) for i in range(4000)}
        sending = threading.Thread(target=lambda: said.append(call(first, many)[1]))
        sending.start()
        monkeypatch.setattr(Manifest, "from_bytes", lambda data: pytest.fail("it was read"))
        said.append(call(second, {"layer.0": np.zeros(1, np.uint8)})[1])
        sending.join(LIMIT)
        assert len(said) == 2
        for why in said:
            assert why.startswith("Mismatch") and "rank 0 describes its tensors in" in why, why


@pytest.mark.parametrize(
    "data",
    [
        b'{"round": Infinity, "kind": "count", "nbytes": 1}',
        b'{"round": 1, "kind": "count", "nbytes": Infinity}',
        b'{"round": 1, "kind": "count", "nbytes": 1e400}',
        b'{"round": 1, "kind": "count"}',
        b'{"round": 1, "kind": "count", "nbytes": -1}',
        b'{"round": 1, "kind": "after", "rank": 7, "link": 1, "dropped": false}',
        b'{"round": 1, "kind": "feed", "table": {}, "has": "", "link": 1}',
        b'{"round": 1, "kind": "feed", "table": 7, "has": "", "link": 1}',
        b'{"round": 1, "kind": "feed", "table": "A", "has": "", "link": 1}',
        b'{"round": 1, "kind": "feed", "table": ["AAAA"], "has": "", "link": 1}',
        b'{"round": 1, "kind": "feed", "table": [], "has": "", "link": 1}',
        b'{"round": 1, "kind": "offer", "manifest": "", "rank": 7, "link": 1}',
        b'{"round": 1, "kind": "offer", "manifest": ""}',
        b'{"round": 1, "kind": "end", "lost": {"1": 2}}',
        b'{"round": 1, "kind": "end", "lost": [1e999]}',
        b'{"round": 1, "kind": []}',
        b'{"round": 1, "kind": "more"}',
        b"[]",
        b"[" * 100000,
        b"\xff",
    ],
)
def test_malformed_messages_are_our_errors(tmp_path: Path, data: bytes) -> None:
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        station = weights.station_of(first)
        to = second.part("weights").connection(0, LIMIT)
        to.notify(data, "tcpx.weights")
        to.notify(b'{"round": 1, "kind": "ready"}', "tcpx.weights")
        found: list[str] = []
        with pytest.raises(tcpx.Protocol, match="a message of rank 1"):
            while True:
                found += [one.kind for one in station.mail(1.0)]
                assert found == []
        while not found:
            found += [one.kind for one in station.mail(1.0)]
        assert found == ["ready"]  # those behind it are not lost


def _asked_early(group: Group) -> bool:
    """Rank 1 calls when rank 2, which follows it, has asked it to be fed."""
    state = state_of(group.rank)
    if group.rank == 1:
        station = weights.station_of(group)
        while "feed" not in [mail.kind for mail in _peek(station)]:
            time.sleep(0.01)
    weights.broadcast(state, 0, group=group, timeout=LIMIT)
    return is_of(state, 0)


def _peek(station: Any) -> list[Mail]:
    """What has come to a station, which gets it nevertheless."""
    station._inbox.extend(station.group.endpoint.notifications())
    return [mail for note in station._inbox if (mail := station._read(note)) is not None]


def test_a_rank_that_is_asked_before_it_has_called_feeds_later(tmp_path: Path) -> None:
    assert Ranks(tmp_path, 3, _asked_early).values() == [True, True, True]


def _counted(group: Group, count: int) -> tuple[Counter[str], int]:
    """Messages that come to this rank in a broadcast of that many tensors, by kind, and what it reads."""
    station = weights.station_of(group)
    kinds: Counter[str] = Counter()
    read = station._read

    def counting(note: Any) -> Mail | None:
        mail = read(note)
        kinds[mail.kind if mail else ""] += 1
        return mail

    station._read = counting  # type: ignore[method-assign]
    reads = []
    for name in ("read", "read_async"):
        setattr(Connection, name, lambda *arguments, of=getattr(Connection, name), **more: reads.append(1) or of(*arguments, **more))
    state = {f"layer.{i:064}": np.full(3, i if group.rank == 0 else -1) for i in range(count)}
    weights.broadcast(state, 0, group=group, timeout=LIMIT)
    assert all((array == i).all() for i, array in enumerate(state.values()))
    return kinds, len(reads)


@pytest.mark.parametrize(("count", "reads"), [(8, [0, 0, 0]), (5000, [1, 2, 1])])
def test_a_chain_that_loses_nobody_is_told_once(tmp_path: Path, count: int, reads: list[int]) -> None:
    """Each receiver hears of the rank before it in the offer, and asks it at once. Manifest and table come with the messages, but long
    ones are read: the manifest by each receiver, the table by the rank before each."""
    said = Ranks(tmp_path, 3, _counted, count).values()
    for rank, (kinds, _) in enumerate(said):
        assert kinds["after"] == 0 and kinds["feed"] == (1 if rank < 2 else 0), (rank, kinds)
    assert [read for _, read in said] == reads


@pytest.mark.parametrize(
    ("manifest", "error"),
    [
        (7, "Protocol"),
        ("[]", "Protocol"),  # no base64
        ([], "Protocol"),
        (["AAAA"], "Protocol"),
        ([["AAAA"]], "Protocol"),
        ({"AAAA": 1}, "Protocol"),
        (base64.b64encode(b"[1, []]").decode(), "Protocol"),
        (base64.b64encode(b"[" * 1000).decode(), "Protocol"),
        (base64.b64encode(b"\xff").decode(), "Protocol"),
        (base64.b64encode(b" " * (70 << 10)).decode(), "Mismatch"),
    ],
)
def test_a_manifest_that_is_none_ends_the_round(tmp_path: Path, manifest: Any, error: str) -> None:
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        station = weights.station_of(first)
        weights.station_of(second)
        number = station.begin_round()
        to = station.reach(1, number, "offer", LIMIT, manifest=manifest, rank=0, link=1)
        assert to is not None
        took, why = call(second, {"w": np.zeros(1, np.uint8)})
        assert why.startswith(error) and took < AT_ONCE, why


def test_a_rank_that_asks_again_keeps_its_connection(tmp_path: Path) -> None:
    """The source names a link anew when the process before a rank is another, which that rank may have asked already."""
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        second.part("weights")
        source = _source.Source(weights.station_of(first), LIMIT, 1, None)
        tensors = tensors_of(state_of(1))
        source.describe(Manifest.of(tensors, 1 << 20), tensors)
        connection = first.part("weights").connection(1, LIMIT)
        for link in (1, 2):
            body = {"table": memoryview(bytes(65 * len(tensors))), "has": bytes(len(source.pieces)), "link": link}
            source.begin_feed(Mail(1, connection, 1, "feed", body))
        assert first.part("weights").connected()[1] is connection and source.link == 2
        source.end()


@pytest.mark.parametrize("table", [b"", b"x", bytes(64), bytes(66), bytes(65), b"\1" * 65])
def test_a_table_that_is_none_is_our_error(tmp_path: Path, table: bytes) -> None:
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        second.part("weights")
        source = _source.Source(weights.station_of(first), LIMIT, 1, None)
        tensors = tensors_of({"w": np.zeros(1, np.uint8)})
        source.describe(Manifest.of(tensors, 1 << 20), tensors)
        connection = first.part("weights").connection(1, LIMIT)
        with pytest.raises(tcpx.Protocol, match="rank 1"):
            Feed(1, 1, connection, memoryview(table), [], list(tensors.values()), source.pieces, LIMIT, 1).advance()
        source.end()


@pytest.mark.parametrize("anew", [False, True])
def test_a_rank_that_goes_before_all_are_ready_is_followed_no_more(tmp_path: Path, anew: bool) -> None:
    """The one behind it has asked it, and asks who is in its place then: the rank before, or its new process."""
    reports: dict[int, weights.Report] = {}
    states = {rank: state_of(rank) for rank in range(3)}

    def take_part(group: Group) -> None:
        reports[group.rank] = weights.broadcast(states[group.rank], 0, group=group, timeout=LIMIT)

    with join_here(str(tmp_path), 0, 3) as source, join_here(str(tmp_path), 2, 3) as last:
        old = join_here(str(tmp_path), 1, 3)
        station = weights.station_of(old)
        calls = [threading.Thread(target=take_part, args=(group,)) for group in (source, last)]
        for one in calls:
            one.start()
        while "feed" not in [mail.kind for mail in _peek(station)]:
            time.sleep(0.01)
        new = join_here(str(tmp_path), 1, 3) if anew else None
        if new is None:
            old.close()
        else:
            new.part("weights").connection(0, LIMIT)
            take_part(new)
        for one in calls:
            one.join(LIMIT)
        for group in [old, new]:
            if group is not None:
                group.close()
    assert {rank: report.lost for rank, report in reports.items()} == ({0: (), 1: (), 2: ()} if anew else {0: (1,), 2: (1,)})
    assert all(is_of(states[rank], 0) for rank in reports)
