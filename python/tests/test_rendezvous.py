"""Rendezvous: stores of several kinds, connections by rank, metadata that an earlier run has left."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import types
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ranks import LIMIT, DirectoryStore, Ranks, has_libuv, join_here

import tcpx
from tcpx._store import KeyValue, of_torchrun
from tcpx.rendezvous import Group, join


class Redis:
    """As a redis client: bytes, None for a key that is absent."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def get(self, key: str) -> Any:
        return self.values.get(key)


class Etcd3(Redis):
    """As a client of etcd 3: `put`, and pairs of value and metadata."""

    set = None  # type: ignore[assignment]

    def put(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def get(self, key: str) -> Any:
        return (self.values[key], "metadata") if key in self.values else (None, None)


class Etcd2(Redis):
    """As a client of etcd 2: a result with a value, an exception for a key that is absent."""

    def get(self, key: str) -> Any:
        if key not in self.values:
            raise type("EtcdKeyNotFound", (Exception,), {})(key)
        return type("EtcdResult", (), {"value": self.values[key].decode()})()


class Mapped(Redis):
    """As a store above a dict, whose keys must be there."""

    def get(self, key: str) -> Any:
        return self.values[key]


def _check_store(store: Any) -> None:
    values = KeyValue(store, "job")
    assert values.look("0") is None
    with pytest.raises(tcpx.Timeout, match=r"rank 0 has not set the key job/0 within 0\.01 s"):
        values.wait("0", 0.01, "rank 0")
    values.set("0", "one")
    assert values.look("0") == "one" and values.wait("0", LIMIT, "rank 0") == "one"
    assert values.look("1") is None and values.below("part").look("0") is None
    threading.Timer(0.05, values.set, ("0", "two")).start()
    assert values.wait("0", LIMIT, "rank 0", lambda value: value != "one") == "two"
    with pytest.raises(tcpx.Timeout, match="has not renewed"):
        values.wait("0", 0.01, "rank 0", lambda value: False)


@pytest.mark.parametrize("kind", [Redis, Etcd3, Etcd2, Mapped])
def test_stores(kind: type) -> None:
    _check_store(kind())


def test_stores_of_torch(tmp_path: Path) -> None:
    distributed = pytest.importorskip("torch.distributed")
    _check_store(distributed.FileStore(str(tmp_path / "store"), 1))
    _check_store(distributed.HashStore())
    build = {} if has_libuv() else {"use_libuv": False}
    server = distributed.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=LIMIT), False, **build)
    _check_store(distributed.PrefixStore("below", server))
    _check_store(distributed.TCPStore("127.0.0.1", server.port, None, False, timedelta(seconds=LIMIT), False, **build))


class StoreWithoutLibuv:
    """What torch's store does in a build without libuv, unless it is told not to want that."""

    def __init__(self, host: str, port: int, use_libuv: bool = True, **_: Any) -> None:
        if use_libuv:
            raise RuntimeError("use_libuv was requested but PyTorch was build without libuv support")
        self.place = (host, port)


def test_a_torch_without_libuv(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = types.SimpleNamespace(is_available=lambda: False, TCPStore=StoreWithoutLibuv)
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    for name, value in {"MASTER_ADDR": "there", "MASTER_PORT": "7", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert of_torchrun(1)[0].place == ("there", 7)


def test_what_is_no_store() -> None:
    with pytest.raises(TypeError, match="dict is no store"):
        KeyValue({}, "job")
    with pytest.raises(tcpx.InvalidArgument, match="of ASCII"):
        KeyValue(Redis(), "job").set("0", "ä")
    store = Redis()
    store.values = {"job/long": bytes(1 << 20), "job/other": b"\xff\x00"}
    for key in ("long", "other"):
        with pytest.raises(tcpx.Protocol, match=f"job/{key}"):
            KeyValue(store, "job").look(key)


def _exchange(group: Group) -> list[int]:
    """Each rank sends its number to all others, over the connections of the pairs, in both directions at once."""
    got = []
    for rank in range(group.world_size):
        if rank != group.rank:
            connection = group.connection(rank)
            number = bytearray(1)
            sent = connection.send_async(bytes([group.rank]))
            connection.recv(number)
            sent.wait()
            assert group.rank_of(connection.id) == rank and group.connection(rank) is connection
            got.append(number[0])
    return got


def test_connections_by_rank(tmp_path: Path) -> None:
    assert Ranks(tmp_path, 4, _exchange).values() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]


def test_both_ends_connect_at_once(tmp_path: Path) -> None:
    for attempt in range(10):
        (path := tmp_path / str(attempt)).mkdir()
        with join_here(str(path), 0, 2) as first, join_here(str(path), 1, 2) as second:
            both = threading.Barrier(2)
            ends: dict[int, list[int]] = {}

            def meet(group: Group) -> None:
                both.wait(LIMIT)
                ends[group.rank] = _exchange(group)

            threads = [threading.Thread(target=meet, args=(group,)) for group in (first, second)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(LIMIT)
            assert ends == {0: [1], 1: [0]}


def test_a_rank_that_has_not_joined_is_named(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 0, 3) as group:
        with pytest.raises(tcpx.Timeout, match=r"rank 2 has not set the key tcpx/2 within"):
            group.connection(2, 0.05)
        for wrong in (0, 3, -1):
            with pytest.raises(tcpx.InvalidArgument, match=f"rank {wrong} for rank 0 of 3"):
                group.connection(wrong)


def test_ranks_out_of_range_and_an_environment_without_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(tcpx.InvalidArgument, match="rank 2 of 2"):
        join(rank=2, world_size=2, store=Redis())
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(tcpx.BadConfig, match="RANK is not set"):
        join(store=Redis())
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(tcpx.BadConfig, match="RANK is 'first'"):
        join(store=Redis())


def test_without_torch_a_store_must_be_given() -> None:
    program = (
        "import sys; sys.modules['torch'] = None; import tcpx, tcpx.rendezvous\n"
        "try: tcpx.rendezvous.join(rank=0, world_size=1)\n"
        "except tcpx.Unsupported as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT)
    assert "torch is not installed, and no store was given" in done.stdout, done


def test_torch_is_not_imported_for_nothing(tmp_path: Path) -> None:
    """Without LOCAL_RANK there is nothing to ask it for, and its import takes longer than to join."""
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from ranks import join_here\n"
        f"with join_here({str(tmp_path)!r}, 0, 1) as group: print(group.gpu, 'torch' in sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "LOCAL_RANK"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, env=environment)
    assert done.stdout == "0 False\n", done


OF_THE_ENVIRONMENT = """
import tcpx.rendezvous
with tcpx.rendezvous.join(timeout=60) as group:
    number = bytearray(1)
    other = group.connection(1 - group.rank)
    sent = other.send_async(bytes([group.rank]))
    other.recv(number)
    sent.wait()
    print("rank", group.rank, "met", number[0])
"""


def test_the_environment_without_an_agent() -> None:
    """Rank 0 hosts the store then."""
    pytest.importorskip("torch")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    there = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", OF_THE_ENVIRONMENT],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | there | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=2 * LIMIT)[0] for rank in ranks]
    assert said == ["rank 0 met 1\n", "rank 1 met 0\n"]


def test_metadata_of_an_earlier_run_is_waited_over(tmp_path: Path) -> None:
    earlier = join_here(str(tmp_path), 1, 2)
    left_behind = DirectoryStore(str(tmp_path)).get("tcpx/1")
    earlier.close()
    earlier.endpoint.close()
    with join_here(str(tmp_path), 0, 2) as first:
        connecting: list[Any] = []
        thread = threading.Thread(target=lambda: connecting.append(first.connection(1)))
        thread.start()
        with join_here(str(tmp_path), 1, 2) as second:
            assert DirectoryStore(str(tmp_path)).get("tcpx/1") != left_behind
            thread.join(LIMIT)
            assert len(connecting) == 1
            second.connection(0).notify(b"here", "test")
            assert first.endpoint.notifications(LIMIT)[0].data == b"here"


def test_a_dropped_rank_comes_back_as_another_process(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 0, 2) as first:
        second = join_here(str(tmp_path), 1, 2)
        first.connection(1)
        first.drop(1)
        assert not first.joined_anew(1)
        with pytest.raises(tcpx.Timeout, match="rank 1 has not renewed the key"):
            first.connection(1, 0.05)
        with join_here(str(tmp_path), 1, 2) as third:
            assert first.joined_anew(1)
            connection = first.connection(1)
            assert first.rank_of(connection.id) == 1 and third.connection(0)
        second.close()


def test_the_newest_process_of_a_rank_is_the_rank_while_an_older_one_lives(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as old:
        before = first.connection(1)
        assert first.renew(1) and first.connection(1) is before  # nobody has joined anew
        with join_here(str(tmp_path), 1, 2) as new:
            assert old.is_replaced() and not new.is_replaced() and first.joined_anew(1)
            new.connection(0).notify(b"new", "test")
            assert first.endpoint.notifications(LIMIT)[0].data == b"new"
            after = first.connection(1)
            assert after is not before and first.rank_of(before.id) is None and first.rank_of(after.id) == 1
        with join_here(str(tmp_path), 1, 2) as newer:
            assert first.renew(1)  # the end that was connected looks, too, whom it has
            first.connection(1).notify(b"newer", "test")
            assert newer.endpoint.notifications(LIMIT)[0].data == b"newer"


@pytest.mark.parametrize("rank", [0, 1])
def test_an_older_process_of_a_rank_does_not_take_its_place(tmp_path: Path, rank: int) -> None:
    path = str(tmp_path)
    with join_here(path, 1 - rank, 2) as first, join_here(path, rank, 2) as old, join_here(path, rank, 2):
        good = first.connection(rank)
        with pytest.raises(tcpx.Cancelled, match=f"another process has joined as rank {rank}"):
            old.connection(1 - rank, LIMIT)
        assert first.connection(rank) is good and first.rank_of(good.id) == rank


def test_a_stranger_who_cannot_read_the_store_does_not_take_the_place_of_a_rank(tmp_path: Path) -> None:
    """Not even one that knows all that the record holds but its random number."""
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        good = first.connection(1)
        own = Redis()
        own.set("tcpx/0", str(KeyValue(DirectoryStore(str(tmp_path)), "tcpx").look("0")).partition(".")[0])
        with join(tcpx.Endpoint(listen="127.0.0.1"), rank=1, world_size=2, store=own) as stranger:
            with pytest.raises(tcpx.PeerGone, match="rank 0 is another process now"):
                stranger.connection(0, 1.0)
        assert first.connection(1) is good
        second.connection(0).notify(b"here", "test")
        assert first.endpoint.notifications(LIMIT)[0] == tcpx.Notification(good.id, "test", b"here")


def test_a_process_that_was_dropped_is_not_let_in(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        first.drop(1)
        with pytest.raises(tcpx.Mismatch, match="has dropped this one"):
            second.connection(0, LIMIT)
        assert first.connected() == {} and not first.renew(1)


def test_what_was_dropped_is_no_rank_s_connection(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        old = first.connection(1)
        first.drop(1)
        assert first.rank_of(old.id) is None and first.connected() == {}
        with join_here(str(tmp_path), 1, 2):
            new = first.connection(1)
            first.drop(1, old)  # of the process before: this one stays
            assert first.connected() == {1: new} and first.rank_of(old.id) is None
        assert second.rank == 1


def test_records_that_are_none(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path))
    with join_here(str(tmp_path), 0, 2) as first:
        store.set("tcpx/1", "no base64!")
        with pytest.raises(tcpx.Protocol, match="the record of rank 1 in the store"):
            first.connection(1, LIMIT)


def test_groups_of_different_names_do_not_mix(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path))
    with join(rank=0, world_size=2, store=store, name="a") as one, join(rank=1, world_size=2, store=store, name="b") as other:
        store.set("b/0", str(KeyValue(store, "a").look("0")))
        with pytest.raises(tcpx.Mismatch, match="rank 0 belongs to another group"):
            other.connection(0, LIMIT)
        assert one.endpoint is not other.endpoint


def test_a_program_may_end_without_close(tmp_path: Path) -> None:
    program = (
        "import sys; from ranks import join_here\n"
        "groups = [join_here(sys.argv[1], rank, 2) for rank in range(2)]\n"
        "groups[0].connection(1); groups[0].part('x'); print('end')"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_a_part_has_an_endpoint_of_its_own(tmp_path: Path) -> None:
    with join_here(str(tmp_path), 0, 2) as first, join_here(str(tmp_path), 1, 2) as second:
        part = first.part("weights")
        assert part is first.part("weights") and part.endpoint is not first.endpoint
        second.part("weights").connection(0).notify(b"x", "n")
        assert part.endpoint.notifications(LIMIT)[0].data == b"x" and first.endpoint.notifications() == []
