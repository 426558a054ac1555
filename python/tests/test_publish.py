"""Published weights: read by name and slice, from one rank and from shards of several, while they change."""

from __future__ import annotations

import itertools
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ranks import LIMIT, Ranks, join_here

import tcpx
from tcpx import weights
from tcpx._weights import publication as _publication
from tcpx._weights.shard import Box, common_runs
from tcpx._weights.station import SHORT, Parcel
from tcpx.endpoint import Connection
from tcpx.rendezvous import Group
from tcpx.weights import Shard

np = pytest.importorskip("numpy")


def state_of(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        "embed": random.standard_normal((96, 64), np.float32),
        "cube": random.integers(0, 1000, (6, 10, 8)),
        "scale": np.array(1.5),
        "nothing": np.zeros((0, 3)),
    }


def _publish_and_fetch(group: Group) -> bool:
    want = state_of(1)
    if group.rank == 0:
        publication = weights.publish(want, group=group)
        group.connection(1).recv(bytearray(1))  # until the reader is done
        publication.close()
        return True
    mine = {name: np.empty_like(array) for name, array in want.items()}
    assert weights.fetch_into(mine, group=group, timeout=LIMIT) == 0
    same = all((mine[name] == want[name]).all() for name in want)
    rows, columns = np.empty((10, 64), np.float32), np.empty((96, 5), np.float32)
    inner = np.empty((2, 3, 4), want["cube"].dtype)
    weights.fetch_into({"embed": Shard(rows, (slice(20, 30),), (96, 64))}, group=group, timeout=LIMIT)
    some = {
        "embed": Shard(columns, (slice(None), slice(-5, None)), (96, 64)),
        "cube": Shard(inner, (slice(2, 4), slice(7, 10), slice(1, 5)), (6, 10, 8)),
    }
    weights.fetch_into(some, group=group, timeout=LIMIT)
    group.connection(0).send(b"x")
    same_rows = (rows == want["embed"][20:30]).all() and (columns == want["embed"][:, -5:]).all()
    return bool(same and same_rows and (inner == want["cube"][2:4, 7:10, 1:5]).all())


def test_whole_tensors_and_slices(tmp_path: Path) -> None:
    assert Ranks(tmp_path, 2, _publish_and_fetch).values() == [True, True]


def test_shards_of_several_ranks(tmp_path: Path) -> None:
    want = state_of(2)
    groups = [join_here(str(tmp_path), rank, 3) for rank in range(3)]
    whole = want["embed"].shape
    cuts = [(slice(0, 40),), (slice(40, 96),)]
    for group, cut in zip(groups, cuts):
        shard = Shard(np.ascontiguousarray(want["embed"][cut]), cut, whole)
        weights.publish({"embed": shard, "scale": want["scale"]}, group=group)
    reader = groups[2]
    middle = np.empty((30, 20), np.float32)
    scale = np.empty(())
    target = {"embed": Shard(middle, (slice(25, 55), slice(8, 28)), whole), "scale": scale}
    weights.fetch_into(target, src=[0, 1], group=reader, timeout=LIMIT)
    assert (middle == want["embed"][25:55, 8:28]).all() and scale == want["scale"]
    with pytest.raises(tcpx.Mismatch, match=r"ranks \[0\] have 1200 of its 2400 bytes"):
        weights.fetch_into(target, src=0, group=reader, timeout=LIMIT)
    for group in groups:
        group.close()


@pytest.fixture
def two(tmp_path: Path) -> Any:
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        yield first, second
    for group in (first, second):
        group.endpoint.close()


def test_what_is_not_as_published(two: tuple[Group, Group]) -> None:
    first, second = two
    weights.publish(state_of(0), group=first)
    shape, columns = np.zeros((96, 63), np.float32), np.zeros((96, 2), np.float32)
    for wrong, text in (
        ({"embed": shape}, r"'embed' is float32 of shape \[96, 64\] at rank 0 and float32 of shape \[96, 63\] here"),
        ({"cube": np.zeros((6, 10, 8), np.float32)}, "'cube' is int64 of"),
        ({"head": np.zeros(3)}, r"'head' is published by none of the ranks \[0\]"),
    ):
        with pytest.raises(tcpx.Mismatch, match=text):
            weights.fetch_into(wrong, group=second, timeout=LIMIT)
    with pytest.raises(tcpx.InvalidArgument, match="its buffer has the shape"):
        weights.fetch_into({"embed": Shard(columns, (slice(None), slice(3)), (96, 64))}, group=second)
    readonly = np.zeros(())
    readonly.flags.writeable = False
    with pytest.raises(tcpx.InvalidArgument, match="'scale' is read-only"):
        weights.fetch_into({"scale": readonly}, group=second)
    for source in (1, 2, [], [0, 0]):
        with pytest.raises(tcpx.InvalidArgument):
            weights.fetch_into({}, src=source, group=second)  # type: ignore[arg-type]
    with pytest.raises(tcpx.Timeout, match="rank 0 has not set the key tcpx/weights/published/other/0"):
        weights.fetch_into({}, "other", group=second, timeout=0.05)


def test_an_update_is_never_seen_in_part(two: tuple[Group, Group]) -> None:
    first, second = two
    shared = np.zeros(1 << 20, np.uint8)
    publication = weights.publish({"w": shared}, group=first)
    mine = np.empty_like(shared)
    versions = [weights.fetch_into({"w": mine}, group=second, timeout=LIMIT)]
    ended = threading.Event()

    def train() -> None:
        # Short pauses, within which hardly a reader gets through, and long ones, within which one does on a busy machine, too.
        for pause in itertools.cycle([0.001, 0.002, 0.004, 0.016, 0.064, 0.256, 1.0]):
            if ended.wait(pause):
                return
            with publication.update():
                shared[:] = (publication.version + 1) % 256

    trainer = threading.Thread(target=train)
    trainer.start()
    try:
        for _ in range(8):
            versions.append(weights.fetch_into({"w": mine}, group=second, timeout=LIMIT, newer_than=versions[-1]))
            assert (mine == versions[-1] % 256).all()
    finally:
        ended.set()
        trainer.join()
    assert versions == sorted(set(versions))


def test_during_an_update_readers_wait(two: tuple[Group, Group]) -> None:
    first, second = two
    shared, mine = np.zeros(8), np.empty(8)
    publication = weights.publish({"w": shared}, group=first, version=4)
    with publication.update(version=9):
        with pytest.raises(tcpx.Timeout, match="have no one version"):
            weights.fetch_into({"w": mine}, group=second, timeout=1.0)  # a first connection opens the driver, where there is one
    assert weights.fetch_into({"w": mine}, group=second, timeout=LIMIT) == 9
    with pytest.raises(tcpx.InvalidArgument, match="version 9 after 9"):
        with publication.update(version=9):
            pass


def test_a_look_that_runs_into_the_deadline_says_what_was_seen_before(
    two: tuple[Group, Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two
    publication = weights.publish({"w": np.zeros(8)}, group=first, version=4)
    read, looks = _publication._read_slots, itertools.count()

    def late(slots: Any) -> list[bytearray]:
        if next(looks) > 0:
            raise tcpx.Timeout("TCPX_E_TIMEOUT: read: deadline passed", "")
        return read(slots)

    monkeypatch.setattr(_publication, "_read_slots", late)
    with publication.update(version=9), pytest.raises(tcpx.Timeout, match="have no one version"):
        weights.fetch_into({"w": np.empty(8)}, group=second, timeout=LIMIT)


def test_who_waits_for_a_version_reads_the_state_alone(two: tuple[Group, Group], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two
    publication = weights.publish({"w": np.zeros(8)}, group=first)
    sizes = []
    read = Connection.read_async

    def counting(connection: Connection, into: Any, *arguments: Any, **more: Any) -> Any:
        sizes.append(len(into))
        return read(connection, into, *arguments, **more)

    monkeypatch.setattr(Connection, "read_async", counting)
    with pytest.raises(tcpx.Timeout):
        weights.fetch_into({"w": np.empty(8)}, group=second, timeout=0.3, newer_than=0)
    states = [size for size in sizes if size == 8]
    assert len(states) > 2 and len(sizes) == len(states) + 1, sizes  # and the table, once
    del publication


def test_another_publication_takes_its_place(two: tuple[Group, Group]) -> None:
    first, second = two
    old = weights.publish({"w": np.full(8, 1.0)}, group=first)
    mine = np.empty(16)
    with pytest.raises(tcpx.Mismatch):
        weights.fetch_into({"w": mine}, group=second, timeout=LIMIT)
    new = weights.publish({"w": np.full(16, 2.0)}, group=first, version=1)
    assert weights.fetch_into({"w": mine}, group=second, timeout=LIMIT) == 1 and (mine == 2).all()
    with pytest.raises(tcpx.Cancelled, match="closed"):
        with old.update():
            pass
    new.close()
    with pytest.raises((tcpx.Timeout, tcpx.NotFound)):
        weights.fetch_into({"w": mine}, group=second, timeout=1.0)  # a first connection opens the driver, where there is one


def test_a_publisher_that_is_started_anew(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 1, 2) as reader:
        mine = np.empty(8)
        for version in (1, 2):
            with join_here(str(tmp_path), 0, 2) as group:
                publication = weights.publish({"w": np.full(8, version)}, group=group, version=version)
                target = {"w": np.empty(8, int)}
                assert weights.fetch_into(target, group=reader, timeout=LIMIT, newer_than=version - 1) == version
                assert (target["w"] == version).all()
                del publication
        with pytest.raises((tcpx.PeerGone, tcpx.Timeout)):
            weights.fetch_into({"w": mine}, group=reader, timeout=0.5)


def test_a_publication_that_is_closed_is_not_read_any_more(two: tuple[Group, Group]) -> None:
    """Not even by one that has its slots: the memory may be another's then."""
    first, second = two
    publication = weights.publish({"w": np.full(8, 3.0)}, group=first)
    mine = np.empty(8)
    assert weights.fetch_into({"w": mine}, group=second, timeout=LIMIT) == 0 and (mine == 3).all()
    station = weights.station_of(second)
    known: dict[int, _publication._Original] = {}
    assert _publication._try_read(station, "weights", [0], _publication.parts_of({"w": mine}), time.monotonic() + LIMIT, -1, known) == 0
    slot = known[0].rows["w"].slot
    assert slot is not None
    held = list(publication._registrations)  # a release, and not that nobody holds them any more
    publication.close()
    with pytest.raises(tcpx.NotFound):
        station.group.connection(0).read(mine, slot, timeout=LIMIT)
    del held


def test_a_reader_cannot_write_to_what_is_published(two: tuple[Group, Group]) -> None:
    """Neither to the tensors nor to what says where they are and whether they may be read, although it knows their slots."""
    first, second = two
    shared, mine = np.full(8, 3.0), np.empty(8)
    publication = weights.publish({"w": shared}, group=first)
    known: dict[int, _publication._Original] = {}
    station, parts = weights.station_of(second), _publication.parts_of({"w": mine})
    assert _publication._try_read(station, "weights", [0], parts, time.monotonic() + LIMIT, -1, known) == 0
    published = known[0]
    tensor = published.rows["w"].slot
    assert tensor is not None
    slots = {"state": published.state, "table": published.table, "tensor": tensor}
    before = _publication._read_slots([(published, slot) for slot in slots.values()])
    for name, slot in slots.items():
        with pytest.raises(tcpx.InvalidArgument, match="only"):
            published.connection.write(bytearray(slot.nbytes), slot, timeout=LIMIT)
            pytest.fail(f"the {name} was overwritten")
    assert _publication._read_slots([(published, slot) for slot in slots.values()]) == before and (shared == 3).all()
    assert weights.fetch_into({"w": mine}, group=second, timeout=LIMIT) == 0
    publication.close()


def test_a_reader_cannot_write_to_a_long_message(two: tuple[Group, Group]) -> None:
    """Such as the manifest of many tensors, which is read from where it lies."""
    first, second = (weights.station_of(group).group for group in two)
    nbytes = SHORT + 1
    parcel = Parcel(bytes(nbytes), first.endpoint)
    slot = Parcel.read(parcel.said)
    assert isinstance(slot, tcpx.Slot)
    connection = second.connection(0)
    with pytest.raises(tcpx.InvalidArgument, match="only"):
        connection.write(b"\1" * nbytes, slot, timeout=LIMIT)
    got = bytearray(nbytes)
    connection.read(got, slot, timeout=LIMIT)
    assert got == bytes(nbytes)


def test_a_publisher_that_is_started_anew_while_the_one_before_lives(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 1, 2) as reader, join_here(str(tmp_path), 0, 2) as old:
        kept = [weights.publish({"w": np.full(8, 1.0)}, group=old, version=1)]
        mine = np.empty(8)
        assert weights.fetch_into({"w": mine}, group=reader, timeout=LIMIT) == 1
        with join_here(str(tmp_path), 0, 2) as new:
            kept.append(weights.publish({"w": np.full(8, 2.0)}, group=new, version=2))
            assert weights.fetch_into({"w": mine}, group=reader, timeout=LIMIT) == 2 and (mine == 2).all()


_ROW = '["uint8", 1, [8], [0], [8], false, "AAAA"]'


@pytest.mark.parametrize(
    "table",
    [
        '"w"\t[]\n',
        "[]\n",
        '"w"\t' + _ROW + "\n",
        '"w"\t' + _ROW.replace("[8]", "[Infinity]") + "\n",
        '"w"\t' + _ROW.replace("[8]", "[1e999]") + "\n",
        '"w"\t' + _ROW.replace("[0]", "{}") + "\n",
        '"w"\t' + _ROW.replace("[8]", "[-8]") + "\n",
        '"w"\t' + "[" * 7000 + "\n",
        '"w"\t' + " " * 10000 + "\n",
    ],
)
def test_malformed_tables_are_our_errors(two: tuple[Group, Group], table: str) -> None:
    first, second = two
    endpoint = first.part("weights").endpoint
    data, state = bytearray(table.encode()), bytearray(8)
    keep = [endpoint.advertise(data), endpoint.advertise(state)]
    record = json.dumps({"table": _publication._text(keep[0]), "state": _publication._text(keep[1])})
    first.part("weights").store.set("published/weights/0", record)
    with pytest.raises(tcpx.Protocol, match="the table of 'weights' of rank 0"):
        weights.fetch_into({"w": np.empty(8, np.uint8)}, group=second, timeout=LIMIT)


@pytest.mark.parametrize("record", ["", "{}", "[]", '{"table": {}, "state": Infinity}', '{"table": "AAAA", "state": "AAAA"}', "7"])
def test_malformed_records_are_our_errors(two: tuple[Group, Group], record: str) -> None:
    first, second = two
    first.part("weights").store.set("published/weights/0", record)
    with pytest.raises(tcpx.Protocol, match="the record of 'weights' of rank 0"):
        weights.fetch_into({"w": np.empty(8)}, group=second, timeout=LIMIT)


def test_of_a_table_only_the_names_that_are_wanted_are_looked_into() -> None:
    """A table of foreign names costs a look at each line, and nothing else."""
    table = '"wanted \\t"\t["uint8", 1, [0], [0], [0], false, null]\n'.encode() + b'"other"\tno JSON at all\n' * 100000
    assert list(_publication._rows_in(table, ["wanted \t", "absent"])) == ["wanted \t"]


def test_common_runs_of_boxes() -> None:
    random = np.random.default_rng(3)
    for _ in range(200):
        shape = tuple(int(n) for n in random.integers(1, 6, random.integers(0, 4)))
        whole = np.arange(int(np.prod(shape))).reshape(shape)

        def cut() -> tuple[Box, Any]:
            at = tuple(int(random.integers(0, n)) for n in shape)
            lengths = tuple(int(random.integers(1, n - first + 1)) for first, n in zip(at, shape))
            return Box(at, lengths), whole[tuple(slice(a, a + n) for a, n in zip(at, lengths))].ravel()

        (one, of_one), (other, of_other) = cut(), cut()
        found = []
        for first, second, count in common_runs(one, other):
            assert (of_one[first : first + count] == of_other[second : second + count]).all()
            found += of_one[first : first + count].tolist()
        assert sorted(found) == sorted(set(of_one.tolist()) & set(of_other.tolist()))


def test_shards_out_of_range() -> None:
    for index, shape in (((slice(0, 4, 2),), (4,)), ((3,), (4,)), ((slice(None), slice(None)), (4,)), ((), (-1,))):
        with pytest.raises(tcpx.InvalidArgument):
            Shard(np.zeros(4), index, shape)  # type: ignore[arg-type]
