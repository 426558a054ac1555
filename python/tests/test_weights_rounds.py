"""Rounds of broadcasts: who fails tells all at once, the next round works at once, the newest process of a rank is the rank."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ranks import CONTEXT, LIMIT, Ranks, join_here

from tcpx import weights
from tcpx._weights import source as _source
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


def call(group: Group, state: Mapping[str, Any], src: int = 0, **settings: Any) -> tuple[float, str]:
    """How long a broadcast takes, and what it raises."""
    begin = time.monotonic()
    try:
        weights.broadcast(state, src, group=group, **({"timeout": LIMIT} | settings))
    except Exception as error:
        return time.monotonic() - begin, f"{type(error).__name__}: {error}"
    return time.monotonic() - begin, ""


def _fails(group: Group, at: int, kind: str) -> list[tuple[float, str]]:
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
    said.append(call(group, state, **settings))
    state = state_of(group.rank)
    said.append(call(group, state))
    assert is_of(state, 0)
    return said


#: Which rank fails, how, and what is said.
FAILURES = [(at, kind, reason) for at in range(3) for kind, reason in (("tensors", "KeyError"), ("settings", "pieces of 1 bytes"))]


def _fail_in_turn(group: Group) -> list[list[tuple[float, str]]]:
    return [_fails(group, at, kind) for at, kind, _ in FAILURES]


def test_a_rank_that_fails_while_it_prepares_ends_the_others_at_once(tmp_path: Path) -> None:
    for rank, rounds in enumerate(Ranks(tmp_path, 3, _fail_in_turn).values()):
        for (at, _, reason), said in zip(FAILURES, rounds, strict=True):
            (took, why), (next_took, next_why) = said
            assert took < AT_ONCE and reason in why, (rank, said)
            assert rank == at or f"rank {at}: " in why, why
            assert next_took < AT_ONCE and next_why == "", (rank, said)


def test_a_receiver_that_gives_up_may_take_part_in_the_next_round(tmp_path: Path) -> None:
    for rank, said in enumerate(Ranks(tmp_path, 3, _fails, 1, "progress").values()):
        (took, why), (next_took, next_why) = said
        assert took < AT_ONCE and next_took < AT_ONCE and next_why == "", (rank, said)
        assert "no such layer" in why if rank == 1 else why == "" or "rank 1: " in why, why


def _late(group: Group, path: str) -> list[str]:
    """The first round fails before rank 2 calls it: its first call meets that one, its second the next."""
    if group.rank == 2:
        group.part("weights")
        while not Path(path, "over").exists():
            time.sleep(0.01)
    said = [call(group, state_of(0), 0, timeout=2.0 if group.rank == 0 else LIMIT)[1]]
    if group.rank == 0:
        Path(path, "over").touch()
    state = state_of(group.rank)
    took, why = call(group, state)
    assert why == "" and took < AT_ONCE and is_of(state, 0)
    return said


def _called_later(group: Group, path: str) -> str:
    """The source calls when most of the receiver's time is over, and both wait for a rank that does not call."""
    group.part("weights")
    if group.rank == 2:
        while not Path(path, "over").exists():
            time.sleep(0.01)
        return ""
    if group.rank == 1:
        Path(path, "called").touch()
    else:
        while not Path(path, "called").exists():
            time.sleep(0.01)
        time.sleep(1.5)
    why = call(group, state_of(0), 0, timeout=3.0)[1]
    Path(path, "over").touch()
    return why


def test_a_receiver_that_has_heard_of_the_round_is_told_for_whom_the_source_waited(tmp_path: Path) -> None:
    (path := tmp_path / "signals").mkdir()
    source, receiver, _ = Ranks(tmp_path, 3, _called_later, str(path)).values()
    assert "ranks [2] did not begin within 3 s" in source, source
    assert "rank 0: " in receiver and "ranks [2] did not begin within 3 s" in receiver, receiver


def test_each_call_meets_the_round_of_the_sources_call(tmp_path: Path) -> None:
    (path := tmp_path / "signals").mkdir()
    for (why,) in Ranks(tmp_path, 3, _late, str(path)).values():
        assert "Timeout" in why and "ranks [2] did not begin within 2 s" in why


def _receive(path: str, rank: int, seed: int, results: Any) -> None:
    group = join_here(path, rank, 2)
    state = state_of(100)
    why = call(group, state)[1]
    results.put((why, is_of(state, seed)))


def _send(path: str, seed: int, results: Any, alone: bool) -> None:
    group = join_here(path, 0, 2)
    if alone:
        results.put(call(group, state_of(seed))[1])
        time.sleep(LIMIT)  # until it is killed
    results.put(call(group, state_of(seed))[1])
    group.close()


def _start(target: Callable[..., None], path: Path, *arguments: Any) -> Any:
    process = CONTEXT.Process(target=target, args=(str(path), *arguments), daemon=True)
    process.start()
    return process


@pytest.mark.parametrize("kill", [True, False])
def test_a_source_that_is_started_anew_is_followed_at_the_firstcall(tmp_path: Path, kill: bool) -> None:
    """When the one before was killed, and when it lives on."""
    first, results = CONTEXT.Queue(), CONTEXT.Queue()  # one each: whoever is killed may hold its queue's lock
    with join_here(str(tmp_path), 1, 2) as receiver:
        state = state_of(100)
        old = _start(_send, tmp_path, 1, first, True)
        assert call(receiver, state)[1] == "" and is_of(state, 1) and first.get(timeout=LIMIT) == ""
        if kill:
            os.kill(old.pid, signal.SIGKILL)
            old.join(LIMIT)
        before = Path(tmp_path, "tcpx_weights_0").read_text()
        new = _start(_send, tmp_path, 2, results, False)
        while Path(tmp_path, "tcpx_weights_0").read_text() == before:
            time.sleep(0.01)
        took, why = call(receiver, state)
        assert why == "" and took < AT_ONCE and is_of(state, 2)
        assert results.get(timeout=LIMIT) == ""
        new.join(LIMIT)
        old.kill()
        old.join(LIMIT)


@pytest.mark.parametrize("kill", [True, False])
def test_a_receiver_that_has_joined_again_gets_the_next_broadcast(tmp_path: Path, kill: bool) -> None:
    first, results = CONTEXT.Queue(), CONTEXT.Queue()  # one each: whoever is killed may hold its queue's lock
    with join_here(str(tmp_path), 0, 2) as source:
        old = _start(_linger, tmp_path, first)
        assert call(source, state_of(1))[1] == "" and first.get(timeout=LIMIT) == ""
        if kill:
            os.kill(old.pid, signal.SIGKILL)
            old.join(LIMIT)
        before = Path(tmp_path, "tcpx_weights_1").read_text()
        new = _start(_receive, tmp_path, 1, 2, results)
        while Path(tmp_path, "tcpx_weights_1").read_text() == before:
            time.sleep(0.01)
        took, why = call(source, state_of(2))
        assert (why, results.get(timeout=LIMIT)) == ("", ("", True)) and took < AT_ONCE
        new.join(LIMIT)
        old.kill()
        old.join(LIMIT)


def _linger(path: str, results: Any) -> None:
    group = join_here(path, 1, 2)
    results.put(call(group, state_of(100))[1])
    time.sleep(LIMIT)  # until it is killed


def test_a_process_that_joins_anew_while_the_source_waits_takes_part(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 0, 2) as source, join_here(str(tmp_path), 1, 2) as old:
        old.part("weights")
        said: list[tuple[float, str]] = []
        sending = threading.Thread(target=lambda: said.append(call(source, state_of(1))))
        sending.start()
        old.part("weights").connection(0, LIMIT)  # it is waited for now, and never calls
        with join_here(str(tmp_path), 1, 2) as new:
            new.part("weights").connection(0, LIMIT)
            state = state_of(100)
            assert call(new, state)[1] == "" and is_of(state, 1)
            sending.join(LIMIT)
        assert said[0][1] == ""


def test_a_broadcast_longer_than_its_timeout_keeps_receivers_that_get_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress is news: the source does not lose the silent by the time since the beginning."""
    with join_here(str(tmp_path), 0, 2) as group:
        source = _source.Source(weights.station_of(group), 1.0, 1, None)
        source.chain, source.pieces = [1], [[]] * 100
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


def test_who_has_waited_for_a_silent_rank_has_time_again(tmp_path: Path) -> None:
    """Else the rank behind the next one is lost as soon as that one has everything."""
    with join_here(str(tmp_path), 0, 4) as group, join_here(str(tmp_path), 1, 4) as silent:
        silent.part("weights")
        source = _source.Source(weights.station_of(group), 1.0, 1, None)
        source.others, source.chain, source.pieces = [1, 2, 3], [1, 2, 3], [[]] * 9
        source.to = {1: group.part("weights").connection(1, LIMIT)}
        source.counts, source.news = dict.fromkeys(source.chain, 0), dict.fromkeys(source.chain, 0.0)
        source._dropped = set()
        source._lose_the_silent()
        assert source.chain == [2, 3]
        source._count(2, 9)
        source._lose_the_silent()
        assert source.chain == [2, 3]
