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
from tcpx._weights.manifest import Manifest, tensors_of
from tcpx._weights.relay import Pull, Relay
from tcpx._weights.station import Mail, Station
from tcpx.connection import Connection
from tcpx.rendezvous import Group

np = pytest.importorskip("numpy")


def _relay(group: Group, state: dict[str, Any]) -> Relay:
    return Relay(weights.station_of(group), 1, list(tensors_of(state).values()))


def test_a_rank_whose_connection_has_ended_here_does_not_end_the_round(tmp_path: Path) -> None:
    """A thread that lets in a new process of a rank ends the connection of the one before at any moment."""
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        relay = _relay(first, state_of(1))
        second.part("weights").connection(0, LIMIT)
        ended = first.part("weights").connection(1, LIMIT)
        first.part("weights").drop(1, ended)
        relay.follow(Mail(1, ended, 1, "follow", {}))
        relay.reach(1)
        with pytest.raises(tcpx.PeerGone):
            weights.station_of(first).tell(ended, 1, "follow")
        relay.end(LIMIT)


def _next(station: Station) -> Mail:
    while not (mails := list(station.mail(LIMIT))):
        pass
    return mails[0]


def test_who_follows_may_only_read(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        state = {"w": np.arange(9, dtype=np.uint8)}
        relay, station = _relay(first, state), weights.station_of(second)
        connection = second.part("weights").connection(0, LIMIT)
        relay.follow(Mail(1, first.part("weights").connection(1, LIMIT), 1, "follow", {}))
        told = _next(station)
        pull = Pull(0, connection, told.body["table"], list(tensors_of(state).values()), [], 0, LIMIT, 1)
        pull.advance()
        ((_, slot),) = pull._slots
        assert slot is not None
        with pytest.raises(tcpx.InvalidArgument, match="for reading only"):
            connection.write(bytes(9), slot)
        got = bytearray(9)
        connection.read(got, slot)
        assert got == bytes(state["w"])
        relay.end(LIMIT)
        with pytest.raises(tcpx.NotFound):
            connection.read(got, slot)


def test_a_place_is_bounded_by_the_pieces_that_there_are(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        state = {"w": np.arange(9, dtype=np.uint8)}
        mine = tensors_of({"w": np.zeros(9, np.uint8)})
        relay = _relay(first, state)
        station = weights.station_of(second)
        relay.follow(Mail(1, first.part("weights").connection(1, LIMIT), 1, "follow", {}))
        told = _next(station)
        connection, pieces = second.part("weights").connection(0, LIMIT), Manifest.of(mine, 1 << 16).pieces()
        pull = Pull(0, connection, told.body["table"], list(mine.values()), pieces, 0, LIMIT, 4)
        pull.hear(2**62)
        while pull.advance() < 1:
            time.sleep(0.001)
        assert pull.advance() == 1 and bytes(mine["w"].bytes()) == bytes(state["w"])  # type: ignore[arg-type]
        source = _source.Source(weights.station_of(first), LIMIT, 1, None)
        source.pieces, source.counts = pieces, {1: 0}
        source._count(1, 2)
        assert source.counts == {1: 0}
        relay.end(LIMIT)


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


MALFORMED = (
    b'{"round": Infinity, "kind": "follow"}',
    b'{"round": 1, "kind": "here", "place": Infinity, "table": null}',
    b'{"round": 1, "kind": "here", "place": 1e400, "table": null}',
    b'{"round": 1, "kind": "here"}',
    b'{"round": 1, "kind": "here", "place": -1, "table": null}',
    b'{"round": 1, "kind": "here", "place": 1, "table": {}}',
    b'{"round": 1, "kind": "here", "place": 1, "table": 7}',
    b'{"round": 1, "kind": "here", "place": 1, "table": "A"}',
    b'{"round": 1, "kind": "here", "place": 1, "table": ["AAAA"]}',
    b'{"round": 1, "kind": "here", "place": 1, "table": []}',
    b'{"round": 1, "kind": "offer", "manifest": "", "before": [7]}',
    b'{"round": 1, "kind": "offer", "manifest": "", "before": 0}',
    b'{"round": 1, "kind": "offer", "manifest": "", "before": []}',
    b'{"round": 1, "kind": "offer", "manifest": "", "before": [], "place": 0}',
    b'{"round": 1, "kind": "offer", "manifest": "", "before": [], "place": -1, "table": null}',
    b'{"round": 1, "kind": "offer", "manifest": "", "before": [], "place": 0, "table": 7}',
    b'{"round": 1, "kind": "offer", "manifest": ""}',
    b'{"round": 1, "kind": "tick", "lost": {"1": 2}, "dropped": [], "over": true}',
    b'{"round": 1, "kind": "tick", "lost": [1e999], "dropped": [], "over": true}',
    b'{"round": 1, "kind": "tick", "lost": [], "dropped": [true], "over": true}',
    b'{"round": 1, "kind": []}',
    b'{"round": 1, "kind": "more"}',
    b"[]",
    b"[" * 100000,
    b"\xff",
)


def test_malformed_messages_are_our_errors(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        station = weights.station_of(first)
        to = second.part("weights").connection(0, LIMIT)
        for data in MALFORMED:
            to.notify(data, "tcpx.weights")
            to.notify(b'{"round": 1, "kind": "follow"}', "tcpx.weights")
            found: list[str] = []
            with pytest.raises(tcpx.Protocol, match="a message of rank 1"):
                while True:
                    found += [one.kind for one in station.mail(1.0)]
                    assert found == [], data
            while not found:
                found += [one.kind for one in station.mail(1.0)]
            assert found == ["follow"], data  # those behind it are not lost


def _followed_early(group: Group) -> bool:
    """Rank 1 calls when rank 2 has told that it follows it."""
    state = state_of(group.rank)
    if group.rank == 1:
        station = weights.station_of(group)
        while "follow" not in [mail.kind for mail in _peek(station)]:
            time.sleep(0.01)
    weights.broadcast(state, 0, group=group, timeout=LIMIT)
    return is_of(state, 0)


def _peek(station: Any) -> list[Mail]:
    """What has come to a station, which gets it nevertheless."""
    station._inbox.extend(station.group.endpoint.notifications())
    return [mail for note in station._inbox if (mail := station._read(note)) is not None]


def test_a_rank_that_is_followed_before_it_has_called_answers_later(tmp_path: Path) -> None:
    assert Ranks(tmp_path, 3, _followed_early).values() == [True, True, True]


def _kinds_heard(group: Group) -> Counter[str]:
    """Messages that come to this rank from now on, by kind."""
    station = weights.station_of(group)
    kinds: Counter[str] = Counter()
    read = station._read

    def counting(note: Any) -> Mail | None:
        mail = read(note)
        kinds[mail.kind if mail else ""] += 1
        return mail

    station._read = counting  # type: ignore[method-assign]
    return kinds


def _counted(group: Group, count: int) -> tuple[Counter[str], int]:
    """Messages that come to this rank in a broadcast of that many tensors, and what it reads."""
    kinds = _kinds_heard(group)
    reads = []
    for name in ("read", "read_async"):
        setattr(Connection, name, lambda *arguments, of=getattr(Connection, name), **more: reads.append(1) or of(*arguments, **more))
    state = {f"layer.{i:064}": np.full(3, i if group.rank == 0 else -1) for i in range(count)}
    weights.broadcast(state, 0, group=group, timeout=LIMIT)
    assert all((array == i).all() for i, array in enumerate(state.values()))
    return kinds, len(reads)


@pytest.mark.parametrize(("count", "reads"), [(8, [0, 1, 1]), (5000, [0, 3, 3])])
def test_a_chain_that_loses_nobody_is_told_once(tmp_path: Path, count: int, reads: list[int]) -> None:
    """Each receiver hears of the ranks before it in the offer, and follows one at once; the one behind the source need not. Manifest and
    table come with the messages, but each receiver reads long ones, and the one piece that there is."""
    said = Ranks(tmp_path, 3, _counted, count).values()
    for rank, (kinds, _) in enumerate(said):
        assert kinds["follow"] == (1 if rank == 1 else 0), (rank, kinds)
    assert [read for _, read in said] == reads


def _left_at_once(group: Group) -> tuple[bool, tuple[int, ...], Counter[str]]:
    state = state_of(group.rank)
    kinds = _kinds_heard(group)
    report = weights.broadcast(state, 0, group=group, timeout=LIMIT)
    group.close()
    return is_of(state, 0), report.lost, kinds


def test_a_single_receiver_needs_the_offer_alone_and_leaves_when_it_has_all(tmp_path: Path) -> None:
    source, receiver = Ranks(tmp_path, 2, _left_at_once).values()
    assert source[:2] == receiver[:2] == (True, ()), (source, receiver)
    assert source[2]["follow"] == receiver[2]["here"] == 0 and receiver[2]["offer"] == 1, (source, receiver)


NO_MANIFESTS: tuple[tuple[Any, str], ...] = (
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
)


def test_a_manifest_that_is_none_ends_the_round(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        station = weights.station_of(first)
        weights.station_of(second)
        for manifest, error in NO_MANIFESTS:
            number = station.begin_round()
            to = station.reach(1, number, "offer", LIMIT, manifest=manifest, before=[], place=0, table=None)
            assert to is not None
            took, why = call(second, {"w": np.zeros(1, np.uint8)})
            assert why.startswith(error) and took < AT_ONCE, (manifest, why)


def test_a_table_that_is_none_is_our_error(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        second.part("weights")
        connection = first.part("weights").connection(1, LIMIT)
        tensors = tensors_of({"w": np.zeros(1, np.uint8)})
        for table in (b"", b"x", bytes(64), bytes(66), bytes(65), b"\1" * 65):
            with pytest.raises(tcpx.Protocol, match="rank 1"):
                Pull(1, connection, memoryview(table), list(tensors.values()), [], 0, LIMIT, 1).advance()


@pytest.mark.parametrize("anew", [False, True])
def test_a_rank_that_goes_before_all_are_ready_is_followed_no_more(tmp_path: Path, anew: bool) -> None:
    """The one behind it has followed it, and follows the rank before then, also when a new process has joined in its place."""
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
        while "follow" not in [mail.kind for mail in _peek(station)]:
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
