"""Rounds of broadcasts: who fails tells all at once, the next round works at once, the newest process of a rank is the rank."""

from __future__ import annotations

import base64
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ranks import LIMIT, Ranks, join_here

import tcpx
from tcpx import _source, weights
from tcpx._feed import Feed, Table
from tcpx._manifest import Manifest, tensors_of
from tcpx._station import SHORT, Mail, Parcel
from tcpx.connection import Connection
from tcpx.rendezvous import Group

np = pytest.importorskip("numpy")

#: Seconds within which all are told: much less than `LIMIT`, for which ranks are waited for, and much more than it takes.
AT_ONCE = 20.0


def state_of(seed: int, rows: int = 100) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {f"layer.{i}": random.standard_normal((rows + i, 129), np.float32) for i in range(4)}


def is_of(state: Mapping[str, Any], seed: int) -> bool:
    want = state_of(seed, len(state["layer.0"]))
    return all((state[name] == want[name]).all() for name in want)


class _Raises(Mapping[str, Any]):
    """A state dict whose tensors cannot be had."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getitem__(self, name: str) -> Any:
        raise self.error

    def __iter__(self) -> Iterator[str]:
        return iter(["layer.0"])

    def __len__(self) -> int:
        return 1


def _call(group: Group, state: Mapping[str, Any], src: int = 0, **settings: Any) -> tuple[float, str]:
    """How long a broadcast takes, and what it raises."""
    begin = time.monotonic()
    try:
        weights.broadcast(state, src, group=group, **({"timeout": LIMIT} | settings))
    except Exception as error:
        return time.monotonic() - begin, f"{type(error).__name__}: {error}"
    return time.monotonic() - begin, ""


def _fails(group: Group, at: int, src: int, kind: str) -> list[tuple[float, str]]:
    said = []
    state: Mapping[str, Any] = state_of(group.rank)
    settings: dict[str, Any] = {}
    if group.rank == at and kind == "tensors":
        state = _Raises(KeyError("no such layer"))
    elif group.rank == at and kind == "settings":
        settings = {"piece_bytes": 1}
    elif group.rank == at and kind == "progress":

        def stop(done: int, total: int) -> None:
            raise KeyError("no such layer")

        settings = {"progress": stop}
    said.append(_call(group, state, src, **settings))
    state = state_of(group.rank)
    said.append(_call(group, state, src))
    assert is_of(state, src)
    return said


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize(("kind", "reason"), [("tensors", "KeyError"), ("settings", "pieces of 1 bytes")])
def test_a_rank_that_fails_while_it_prepares_ends_the_others_at_once(tmp_path: Path, at: int, kind: str, reason: str) -> None:
    for rank, said in enumerate(Ranks(tmp_path, 3, _fails, at, 0, kind).values()):
        (took, why), (next_took, next_why) = said
        assert took < AT_ONCE and reason in why, (rank, said)
        assert rank == at or f"rank {at}: " in why, why
        assert next_took < AT_ONCE and next_why == "", (rank, said)


def test_a_receiver_that_gives_up_may_take_part_in_the_next_round(tmp_path: Path) -> None:
    for rank, said in enumerate(Ranks(tmp_path, 3, _fails, 1, 0, "progress").values()):
        (took, why), (next_took, next_why) = said
        assert took < AT_ONCE and next_took < AT_ONCE and next_why == "", (rank, said)
        assert "no such layer" in why if rank == 1 else why == "" or "rank 1: " in why, why


def _late(group: Group, path: str) -> list[str]:
    """The first round fails before rank 2 calls it: its first call meets that one, its second the next."""
    if group.rank == 2:
        group.part("weights")
        while not Path(path, "over").exists():
            time.sleep(0.01)
    said = [_call(group, state_of(0), 0, timeout=2.0 if group.rank == 0 else LIMIT)[1]]
    if group.rank == 0:
        Path(path, "over").touch()
    state = state_of(group.rank)
    took, why = _call(group, state)
    assert why == "" and took < AT_ONCE and is_of(state, 0)
    return said


def _called_later(group: Group, path: str) -> str:
    """The source calls when most of the receiver's time is over, and both wait for a rank that does not call."""
    group.part("weights")
    if group.rank == 2:
        while not Path(path, "over").exists():
            time.sleep(0.01)
        return ""
    if group.rank == 0:
        time.sleep(4.0)
    why = _call(group, state_of(0), 0, timeout=6.0)[1]
    Path(path, "over").touch()
    return why


def test_a_receiver_that_has_heard_of_the_round_is_told_for_whom_the_source_waited(tmp_path: Path) -> None:
    (path := tmp_path / "signals").mkdir()
    source, receiver, _ = Ranks(tmp_path, 3, _called_later, str(path)).values()
    assert "ranks [2] did not begin within 6 s" in source, source
    assert "rank 0: " in receiver and "ranks [2] did not begin within 6 s" in receiver, receiver


def test_each_call_meets_the_round_of_the_sources_call(tmp_path: Path) -> None:
    (path := tmp_path / "signals").mkdir()
    for (why,) in Ranks(tmp_path, 3, _late, str(path)).values():
        assert "Timeout" in why and "ranks [2] did not begin within 2 s" in why


def _receive(path: str, rank: int, seed: int, results: Any) -> None:
    group = join_here(path, rank, 2)
    state = state_of(100)
    why = _call(group, state)[1]
    results.put((why, is_of(state, seed)))


def _send(path: str, seed: int, results: Any, alone: bool) -> None:
    group = join_here(path, 0, 2)
    if alone:
        results.put(_call(group, state_of(seed))[1])
        time.sleep(LIMIT)  # until it is killed
    results.put(_call(group, state_of(seed))[1])
    group.close()


def _start(target: Callable[..., None], path: Path, *arguments: Any) -> Any:
    process = multiprocessing.get_context("spawn").Process(target=target, args=(str(path), *arguments), daemon=True)
    process.start()
    return process


@pytest.mark.parametrize("kill", [True, False])
def test_a_source_that_is_started_anew_is_followed_at_the_first_call(tmp_path: Path, kill: bool) -> None:
    """When the one before was killed, and when it lives on."""
    context = multiprocessing.get_context("spawn")
    first, results = context.Queue(), context.Queue()  # one each: whoever is killed may hold its queue's lock
    with join_here(str(tmp_path), 1, 2) as receiver:
        state = state_of(100)
        old = _start(_send, tmp_path, 1, first, True)
        assert _call(receiver, state)[1] == "" and is_of(state, 1) and first.get(timeout=LIMIT) == ""
        if kill:
            os.kill(old.pid, signal.SIGKILL)
            old.join(LIMIT)
        before = Path(tmp_path, "tcpx_weights_0").read_text()
        new = _start(_send, tmp_path, 2, results, False)
        while Path(tmp_path, "tcpx_weights_0").read_text() == before:
            time.sleep(0.01)
        took, why = _call(receiver, state)
        assert why == "" and took < AT_ONCE and is_of(state, 2)
        assert results.get(timeout=LIMIT) == ""
        new.join(LIMIT)
        old.kill()
        old.join(LIMIT)


@pytest.mark.parametrize("kill", [True, False])
def test_a_receiver_that_has_joined_again_gets_the_next_broadcast(tmp_path: Path, kill: bool) -> None:
    context = multiprocessing.get_context("spawn")
    first, results = context.Queue(), context.Queue()  # one each: whoever is killed may hold its queue's lock
    with join_here(str(tmp_path), 0, 2) as source:
        old = _start(_linger, tmp_path, first)
        assert _call(source, state_of(1))[1] == "" and first.get(timeout=LIMIT) == ""
        if kill:
            os.kill(old.pid, signal.SIGKILL)
            old.join(LIMIT)
        before = Path(tmp_path, "tcpx_weights_1").read_text()
        new = _start(_receive, tmp_path, 1, 2, results)
        while Path(tmp_path, "tcpx_weights_1").read_text() == before:
            time.sleep(0.01)
        took, why = _call(source, state_of(2))
        assert (why, results.get(timeout=LIMIT)) == ("", ("", True)) and took < AT_ONCE
        new.join(LIMIT)
        old.kill()
        old.join(LIMIT)


def _linger(path: str, results: Any) -> None:
    group = join_here(path, 1, 2)
    results.put(_call(group, state_of(100))[1])
    time.sleep(LIMIT)  # until it is killed


def test_a_process_that_joins_anew_while_the_source_waits_takes_part(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 0, 2) as source, join_here(str(tmp_path), 1, 2) as old:
        old.part("weights")
        said: list[tuple[float, str]] = []
        sending = threading.Thread(target=lambda: said.append(_call(source, state_of(1))))
        sending.start()
        old.part("weights").connection(0, LIMIT)  # it is waited for now, and never calls
        with join_here(str(tmp_path), 1, 2) as new:
            new.part("weights").connection(0, LIMIT)
            state = state_of(100)
            assert _call(new, state)[1] == "" and is_of(state, 1)
            sending.join(LIMIT)
        assert said[0][1] == ""


def test_a_broadcast_longer_than_its_timeout_keeps_receivers_that_get_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress is news: the source does not lose the silent by the time since the beginning."""
    with join_here(str(tmp_path), 0, 2) as group:
        source = _source.Source(weights.station_of(group), 1.0, 1, None)
        source.chain, source.nbytes = [1], 100
        source.counts, source.news = {1: 0}, {1: 0.0}
        lost: list[int] = []
        monkeypatch.setattr(source, "_lose", lost.append)
        clock = [0.0]
        monkeypatch.setattr(_source.time, "monotonic", lambda: clock[0])
        for step in range(1, 10):
            clock[0] = 0.9 * step
            source._count(1, step)
            source._lose_the_silent()
        assert lost == []
        clock[0] += 1.1
        source._count(1, 9)  # no more than before: no news
        source._lose_the_silent()
        assert lost == [1]
        monkeypatch.undo()


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
        sending = threading.Thread(target=lambda: said.append(_call(first, many)[1]))
        sending.start()
        monkeypatch.setattr(Manifest, "from_bytes", lambda data: pytest.fail("it was read"))
        said.append(_call(second, {"layer.0": np.zeros(1, np.uint8)})[1])
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
        took, why = _call(second, {"w": np.zeros(1, np.uint8)})
        assert why.startswith(error) and took < AT_ONCE, why


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

    def call(group: Group) -> None:
        reports[group.rank] = weights.broadcast(states[group.rank], 0, group=group, timeout=LIMIT)

    with join_here(str(tmp_path), 0, 3) as source, join_here(str(tmp_path), 2, 3) as last:
        old = join_here(str(tmp_path), 1, 3)
        station = weights.station_of(old)
        calls = [threading.Thread(target=call, args=(group,)) for group in (source, last)]
        for one in calls:
            one.start()
        while "feed" not in [mail.kind for mail in _peek(station)]:
            time.sleep(0.01)
        new = join_here(str(tmp_path), 1, 3) if anew else None
        if new is None:
            old.close()
        else:
            new.part("weights").connection(0, LIMIT)
            call(new)
        for one in calls:
            one.join(LIMIT)
        for group in [old, new]:
            if group is not None:
                group.close()
    assert {rank: report.lost for rank, report in reports.items()} == ({0: (), 1: (), 2: ()} if anew else {0: (1,), 2: (1,)})
    assert all(is_of(states[rank], 0) for rank in reports)
