"""Weights: a broadcast over several processes, with ranks that are lost, differ, or are silent."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from ranks import LIMIT, Ranks, join_here

import tcpx
from tcpx import weights
from tcpx._weights.manifest import Entry, Manifest, piece_of, tensors_of
from tcpx.rendezvous import Group

np = pytest.importorskip("numpy")

Tensors = dict[str, Any]


def state_of(seed: int, rows: int = 700) -> Tensors:
    """Tensors of several types and shapes, some shorter and some longer than a piece; the same for the same seed."""
    random = np.random.default_rng(seed)
    state: Tensors = {f"layer.{i}.weight": random.standard_normal((rows + i, 129), np.float32) for i in range(8)}
    state |= {f"layer.{i}.bias": random.standard_normal(129 + i, np.float32).astype(np.float16) for i in range(8)}
    state |= {"steps": np.array(seed), "nothing": np.zeros((0, 7), np.float32), "mask": random.random(33) < 0.5}
    return state


def digests_of(state: Tensors) -> dict[str, str]:
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in state.items()}


def test_pieces_are_longer_for_more_bytes_and_fewer_receivers() -> None:
    mib = 1 << 20
    assert [piece_of(gib << 30, 1) // mib for gib in (0, 1, 2, 4, 16)] == [16, 16, 32, 64, 64]
    assert [piece_of(16 << 30, receivers) // mib for receivers in (0, 1, 4, 8, 16, 100)] == [64, 64, 64, 32, 16, 16]


def _broadcast(group: Group, sources: list[int], **settings: Any) -> list[tuple[dict[str, str], weights.Report]]:
    got = []
    for seed, source in enumerate(sources):
        state = state_of(seed if group.rank == source else 1000 + group.rank)
        report = weights.broadcast(state, source, group=group, timeout=LIMIT, **settings)
        got.append((digests_of(state), report))
    return got


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_broadcast(tmp_path: Path, world_size: int) -> None:
    sources = [0, 0, world_size - 1]
    for outcomes in Ranks(tmp_path, world_size, _broadcast, sources).values():
        for seed, (digests, report) in enumerate(outcomes):
            assert digests == digests_of(state_of(seed))
            assert report == (sum(array.nbytes for array in state_of(seed).values()), ())


def _with_progress(group: Group, late: float) -> list[tuple[int, int]]:
    """late: seconds after which the source hears what has come."""
    said: list[tuple[int, int]] = []
    station = weights.station_of(group)
    if group.rank == 0 and late > 0:
        mail = station.mail

        def hears_late(timeout: float) -> Any:
            time.sleep(late)
            return mail(timeout)

        station.mail = hears_late  # type: ignore[method-assign]
    weights.broadcast(
        state_of(0), 0, group=group, timeout=LIMIT, piece_bytes=1 << 16, window=2, progress=lambda *place: said.append(place)
    )
    return said


@pytest.mark.parametrize(("world_size", "late"), [(3, 0.0), (2, 0.5)])
def test_progress_rises_to_the_total(tmp_path: Path, world_size: int, late: float) -> None:
    """Also at a source that hears nothing before its single receiver has everything, and has left."""
    total = sum(array.nbytes for array in state_of(0).values())
    for said in Ranks(tmp_path, world_size, _with_progress, late).values():
        assert said == sorted(set(said)) and said[-1] == (total, total)
        assert all(of == total for _, of in said)


def _from_read_only(group: Group) -> bool:
    state = state_of(0 if group.rank == 0 else 9)
    for array in state.values():
        array.flags.writeable = group.rank != 0
    weights.broadcast(state, 0, group=group, timeout=LIMIT)
    return digests_of(state) == digests_of(state_of(0))


def test_the_sources_tensors_may_be_read_only(tmp_path: Path) -> None:
    assert Ranks(tmp_path, 2, _from_read_only).values() == [True, True]


def _of_torch(group: Group) -> bool:
    import torch

    random = torch.Generator().manual_seed(5)
    want = {
        "bf16": torch.randn(300, 77, generator=random).to(torch.bfloat16),
        "view": torch.randn(10, 64, generator=random)[3:9],
        "scalar": torch.tensor(3.5),
    }
    state = want if group.rank == 0 else {name: torch.zeros_like(tensor) for name, tensor in want.items()}
    weights.broadcast(state, group=group, timeout=LIMIT)
    return all(torch.equal(state[name], want[name]) for name in want)


def test_tensors_of_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert Ranks(tmp_path, 2, _of_torch).values() == [True, True]


def _of_gpus(group: Group) -> bool:
    import torch

    def filled(device: str) -> Tensors:
        random = torch.Generator().manual_seed(6)
        return {
            "gpu": torch.randn(3000, 777, generator=random).to(device),
            "host": torch.randn(900, 33, generator=random),
            "either": torch.randn(1000, 100, generator=random).to("cpu" if group.rank == 1 else device),
            "bias": torch.randn(5, generator=random).to(torch.bfloat16).to(device),
        }

    want = filled("cuda")
    state = filled("cuda") if group.rank == 0 else {name: torch.zeros_like(tensor) for name, tensor in want.items()}
    if group.rank == 0:
        state["gpu"].zero_()
        torch.cuda._sleep(200_000_000)
        state["gpu"].copy_(want["gpu"])  # a kernel that has not run yet
    weights.broadcast(state, group=group, timeout=LIMIT, piece_bytes=1 << 20)
    same = all(torch.equal(state[name], want[name]) for name in want)
    if group.rank == 0:
        weights.publish(state, group=group)
        for rank in range(1, group.world_size):
            group.connection(rank).recv(bytearray(1))
        return same
    rows = torch.zeros(7, 777, device="cuda")
    shard = weights.Shard(rows, (slice(10, 17),), (3000, 777))
    host = torch.zeros(1000, 100)
    weights.fetch_into({"gpu": shard, "either": host}, group=group, timeout=LIMIT)
    group.connection(0).send(b"1")
    return same and torch.equal(rows, want["gpu"][10:17]) and torch.equal(host, want["either"].cpu())


def test_memory_of_gpus_and_of_the_host(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU here, or a torch that does not use it")
    assert Ranks(tmp_path, 3, _of_gpus).values() == [True, True, True]


def _differing(group: Group, change: str) -> Any:
    state = state_of(0 if group.rank == 0 else 9)
    if group.rank == 2:
        if change == "shape":
            state["layer.3.weight"] = np.zeros((5, 7), np.float32)
        elif change == "type":
            state["layer.3.bias"] = state["layer.3.bias"].astype(np.int16)
        elif change == "missing":
            del state["mask"]
        elif change == "more":
            state["head"] = np.zeros(3)
        elif change == "read-only":
            state["mask"].flags.writeable = False
        elif change == "no tensor":
            state["mask"] = 7
    before = digests_of({name: one for name, one in state.items() if name != "mask"})
    try:
        weights.broadcast(state, 0, group=group, timeout=LIMIT)
    except (tcpx.Error, TypeError) as error:
        assert digests_of({name: one for name, one in state.items() if name != "mask"}) == before, "bytes have moved"
        said = type(error).__name__, str(error)
    else:
        raise AssertionError("no error")
    # The group goes on.
    state = state_of(1 if group.rank == 0 else 9)
    weights.broadcast(state, 0, group=group, timeout=LIMIT)
    assert digests_of(state) == digests_of(state_of(1))
    return said


DIFFERENCES = {
    "shape": "tensor 'layer.3.weight' is float32 of shape [703, 129] at rank 0 and float32 of shape [5, 7] at rank 2",
    "type": "tensor 'layer.3.bias' is float16 of shape [132] at rank 0 and int16 of shape [132] at rank 2",
    "missing": "tensor 'mask' is missing at rank 2",
    "more": "tensor 'head' is missing at rank 0",
    "read-only": "'mask' of rank 2 is read-only",
    "no tensor": "'mask'",
}


def _differing_in_turn(group: Group) -> list[Any]:
    return [_differing(group, change) for change in DIFFERENCES]


def test_differences_are_named_at_every_rank_before_a_byte_moves(tmp_path: Path) -> None:
    for rounds in Ranks(tmp_path, 3, _differing_in_turn).values():
        for (change, text), (kind, said) in zip(DIFFERENCES.items(), rounds, strict=True):
            assert text in said, (change, said)
            assert kind in (("InvalidArgument", "TypeError") if change in ("read-only", "no tensor") else ("Mismatch",)), change


def _until_killed(group: Group, path: str, victim: int, signal_number: int, timeout: float) -> Any:
    """The victim ends, or stops, in the middle of a broadcast: when it has some pieces."""
    weights.broadcast(state_of(0), 0, group=group, timeout=LIMIT)  # so that all have met
    state = state_of(0 if group.rank == 0 else 9, rows=4000)

    def die(done: int, total: int) -> None:
        if group.rank == victim and done * 3 > total:
            Path(path, "died").touch()
            os.kill(os.getpid(), signal_number)

    report = weights.broadcast(state, 0, group=group, timeout=timeout, piece_bytes=1 << 16, window=2, progress=die)
    first = digests_of(state), report
    state = state_of(1 if group.rank == 0 else 9)
    # A rank that was written to by the silent one takes some seconds to be rid of it.
    report = weights.broadcast(state, 0, group=group, timeout=LIMIT)
    return first, (digests_of(state), report)


@pytest.mark.parametrize("victim", [1, 3])  # rank 2 is silent below
def test_the_chain_closes_over_a_receiver_that_is_killed(tmp_path: Path, victim: int) -> None:
    ranks = Ranks(tmp_path, 4, _until_killed, str(tmp_path), victim, signal.SIGKILL, LIMIT)
    outcomes = ranks.outcomes({0, 1, 2, 3} - {victim})
    assert Path(tmp_path, "died").exists()
    for outcome in outcomes.values():
        (digests, report), (later, later_report) = outcome
        assert digests == digests_of(state_of(0, rows=4000)) and report.lost == (victim,)
        assert later == digests_of(state_of(1)) and later_report.lost == (victim,)
    ranks.join()


def test_the_chain_closes_over_a_receiver_that_is_silent(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 4, _until_killed, str(tmp_path), 2, signal.SIGSTOP, 3.0)
    outcomes = ranks.outcomes({0, 1, 3})
    os.kill(ranks.processes[2].pid or 0, signal.SIGCONT)
    for outcome in outcomes.values():
        assert not isinstance(outcome, Exception), outcome
        assert outcome[0] == (digests_of(state_of(0, rows=4000)), (outcome[0][1].nbytes, (2,)))
    late = ranks.outcomes({2})[2]
    assert isinstance(late, (tcpx.PeerGone, tcpx.Timeout)), late
    ranks.join()


def test_without_its_source_a_broadcast_fails_at_every_rank(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3, _until_killed, str(tmp_path), 0, signal.SIGKILL, LIMIT)
    for outcome in ranks.outcomes({1, 2}).values():
        assert isinstance(outcome, tcpx.PeerGone) and "rank 0, the source, is gone" in str(outcome), outcome
    ranks.join()


def _gives_up(group: Group) -> Any:
    class Enough(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if group.rank == 1 and 0 < done < total:
            raise Enough

    state = state_of(0 if group.rank == 0 else 9, rows=4000)
    try:
        report = weights.broadcast(state, 0, group=group, timeout=LIMIT, piece_bytes=1 << 16, window=2, progress=stop)
    except Enough:
        return "gave up"
    return digests_of(state) == digests_of(state_of(0, rows=4000)), report.lost


def test_a_receiver_that_raises_is_left_out(tmp_path: Path) -> None:
    assert Ranks(tmp_path, 3, _gives_up).values() == [(True, (1,)), "gave up", (True, (1,))]


def test_ranks_that_do_not_begin_are_named(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        with pytest.raises(tcpx.Timeout, match="rank 1 has not set the key tcpx/weights/1"):
            weights.broadcast(state_of(0), group=first, timeout=0.1)
        second.part("weights")
        with pytest.raises(tcpx.Timeout, match=r"ranks \[1\] did not begin within"):
            weights.broadcast(state_of(0), group=first, timeout=1.0)  # a first connection opens the driver, where there is one
        with pytest.raises(tcpx.Timeout, match="rank 0, the source, did not begin"):
            weights.broadcast(state_of(0), 0, group=join_alone(tmp_path), timeout=0.1)


def join_alone(path: Path) -> Group:
    (alone := path / "alone").mkdir()
    return join_here(str(alone), 1, 2)


def test_settings_out_of_range(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 0, 1) as group:
        for wrong in ({"src": 1}, {"src": -1}, {"piece_bytes": 1}, {"window": 0}, {"timeout": 0.0}):
            with pytest.raises(tcpx.InvalidArgument):
                weights.broadcast({}, group=group, **wrong)
        with pytest.raises(tcpx.InvalidArgument, match="tensor 'w'.*not contiguous"):
            weights.broadcast({"w": np.zeros((4, 4)).T[1:]}, group=group)
        with pytest.raises(TypeError, match="names are text"):
            weights.broadcast({1: np.zeros(4)}, group=group)  # type: ignore[dict-item]


def test_manifests_of_strangers() -> None:
    state = tensors_of(state_of(0))
    manifest = Manifest.of(state, 1 << 16)
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest
    manifest.compare(state, "there", "here")
    for wrong in (
        *(b"", b"[]", b"[1, []]", b"[65536, [[]]]", b'[65536, [["a", "b", [1], -1]]]', b"{}", b"\xff", b"[" * 100000),
        *(b'[65536, [["a", "b", [1], Infinity]]]', b'[65536, [["a", "b", [1e999], 1]]]', b"[Infinity, []]", b"[NaN, []]"),
        *(b'[65536, {"abcd": 1}]', b'[65536, ["abcd"]]', b'[65536, [["a", "b", {"1": 2}, 1]]]', b'[65536, [[1, "b", [1], 1]]]'),
        *(b'{"a": 1, "b": 2}', b'[65536.0, []]', b'[65536, [["a", "b", [1], true]]]', b"[65536, null]"),
    ):
        with pytest.raises(tcpx.Protocol):
            Manifest.from_bytes(wrong)


def test_pieces_cover_every_byte_once() -> None:
    sizes = [1, 0, 65536, 70000, 3, 200000, 65536]
    manifest = Manifest(tuple(Entry(str(i), "uint8", (size,), size) for i, size in enumerate(sizes)), 1 << 16)
    pieces = manifest.pieces()
    assert all(sum(part for _, _, part in piece) == 1 << 16 for piece in pieces[:-1])
    covered = [bytearray(size) for size in sizes]
    for piece in pieces:
        for index, first, part in piece:
            for at in range(first, first + part):
                covered[index][at] += 1
    assert all(set(one) <= {1} for one in covered)
