"""`tcpx.uccl`: programs of the kind that UCCL has, every call, and what malformed arguments do."""

from __future__ import annotations

import ctypes
import logging
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tcpx
from tcpx import uccl as p2p
from uccl_programs import PROGRAMS, filled, wait

LIMIT = 120.0
NBYTES = 70_000

IPC_CALLS = [
    *("connect_local", "accept_local", "send_ipc", "send_ipc_async", "recv_ipc", "recv_ipc_async", "advertise_ipc"),
    *("advertisev_ipc", "write_ipc", "write_ipc_async", "writev_ipc", "writev_ipc_async", "read_ipc", "read_ipc_async"),
    *("readv_ipc", "readv_ipc_async"),
]


@pytest.mark.parametrize("form", ["wheel", "newer"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_of_two_processes(program: str, form: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name("uccl_programs.py")), program, form]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert ended.returncode == 0, ended.stderr


class Memory:
    """An array that an endpoint has registered."""

    def __init__(self, ep: p2p.Endpoint, array: Any) -> None:
        self.array = array
        self.ptr: int = array.ctypes.data
        self.size: int = array.nbytes
        ok, self.mr_id = ep.reg(self.ptr, self.size)
        assert ok, p2p.last_error()

    @property
    def vectors(self) -> tuple[list[int], list[int], list[int]]:
        """The array as two ranges."""
        first = self.size // 3
        return [self.mr_id] * 2, [self.ptr, self.ptr + first], [first, self.size - first]


class Pair(NamedTuple):
    near: p2p.Endpoint
    far: p2p.Endpoint
    there: int  # near's connection
    back: int  # far's
    source: Memory  # of near
    target: Memory  # of far, of the same length

    @property
    def here(self) -> tuple[int, int, int, int]:
        """What near's calls begin with."""
        return self.there, self.source.mr_id, self.source.ptr, self.source.size


def connect_pair(kind: type[p2p.Endpoint] = p2p.Endpoint) -> Pair:
    near, far = kind(0), kind()
    accepted: list[tuple[bool, str, int, int]] = []
    accepting = threading.Thread(target=lambda: accepted.append(far.accept()))
    accepting.start()
    address, port, gpu = far.parse_metadata(far.get_metadata())
    ok, there = near.connect(address, gpu, port)
    assert ok, p2p.last_error()
    accepting.join()
    source, target = Memory(near, filled(NBYTES, 1)), Memory(far, np.zeros(NBYTES, np.uint8))
    return Pair(near, far, there, accepted[0][3], source, target)


@pytest.fixture
def pair() -> Iterator[Pair]:
    ends = connect_pair()
    yield ends
    ends.near.typed().close()
    ends.far.typed().close()


def in_thread(call: Callable[[], Any]) -> Callable[[], Any]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()

    def result() -> Any:
        thread.join(LIMIT)
        return results[0]

    return result


def test_every_call_of_the_module() -> None:
    used: set[str] = set()

    class Watched(p2p.Endpoint):
        def __getattribute__(self, name: str) -> Any:
            used.add(name)
            return super().__getattribute__(name)

    near, far, there, back, source, target = connect_pair(Watched)
    bytes_of = source.array.copy()
    here, opposite = (there, source.mr_id, source.ptr, NBYTES), (back, target.mr_id, target.ptr, NBYTES)

    def arrived() -> bool:
        same = bool((target.array == bytes_of).all())
        target.array[:] = 0
        return same

    receiving = in_thread(lambda: far.recv(*opposite))
    assert near.send(*here) and receiving() and arrived()
    started = far.recv_async(*opposite)
    wait(near, near.send_async(*here))
    wait(far, started)
    assert arrived()
    receiving = in_thread(lambda: far.recvv(back, *target.vectors, 2))
    assert near.sendv(there, *source.vectors, 2) and receiving() and arrived()
    started = far.recvv_async(back, *target.vectors, 2)
    wait(near, near.sendv_async(there, *source.vectors, num_iovs=2))
    wait(far, started)
    assert arrived()

    ok, blob = far.advertise(back, *opposite[1:])
    ok_all, for_all = far.advertise(mr_id=target.mr_id, ptr=target.ptr, size=NBYTES)
    ok_some, blobs = far.advertisev(back, *target.vectors, 2)
    assert ok and ok_all and ok_some and len({blob, for_all, *blobs}) == 4
    assert near.write(*here, blob) and arrived()
    assert near.write(*here, for_all) and near.read(*here, meta=for_all) and arrived()
    wait(near, near.write_async(*here, blob))
    wait(near, near.read_async(*here, blob))
    assert arrived() and (source.array == bytes_of).all()
    assert near.writev(there, *source.vectors, blobs, 2) and near.readv(there, *source.vectors, blobs, 2) and arrived()
    wait(near, near.writev_async(there, *source.vectors, blobs, 2))
    wait(near, near.readv_async(there, *source.vectors, meta_blob_v=blobs, num_iovs=2))
    assert arrived() and (source.array == bytes_of).all()

    local, remote = near.register_memory([source.array]), far.register_memory([target.array])
    shipped = near.deserialize_descs(far.get_serialized_descs(remote))
    wait(near, near.transfer(there, "write", local, shipped))
    assert arrived()
    near.deregister_memory(local)
    far.deregister_memory(remote)

    assert near.send_notif(there, b"text", "name")
    notifications: list[tcpx.Notification] = []
    deadline = time.monotonic() + LIMIT
    while not notifications and time.monotonic() < deadline:
        notifications = far.get_notifs()
    assert notifications == [tcpx.Notification(back, "name", b"text")]

    ok, mr_ids = near.regv(source.vectors[1], source.vectors[2])
    assert ok and len(set(mr_ids)) == 2 and all(near.dereg(mr_id) for mr_id in mr_ids)
    assert near.conn_id_of_rank(0) == 2**64 - 1
    assert far.start_passive_accept()
    ok, conn_id = near.add_remote_endpoint(far.get_metadata())
    assert ok and near.remove_remote_endpoint(conn_id)
    for name in IPC_CALLS:
        with pytest.raises(tcpx.Unsupported, match=f"{name}: no call of its own"):
            getattr(near, name)(there, 0, 0, b"")
    near.typed().close()
    far.typed().close()

    assert {name for name in dir(p2p.Endpoint) if not name.startswith("_")} - used == set()
    assert p2p.get_oob_ip().count(".") == 3
    assert p2p.kFloat16 is p2p.FloatType.kFloat16 and len(p2p.FloatType) == 6
    assert p2p.XferHandle(1, "write", 2).transfer_id == 2


def test_what_cannot_be_done_says_why(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    near, here, size = pair.near, pair.here, pair.source.size
    _, blob = pair.far.advertise(pair.target.mr_id, pair.target.ptr, size)
    _, short = pair.far.advertise(pair.target.mr_id, pair.target.ptr, size - 1)
    unknown: Any = 10**6
    wrong: Any = "text"
    vectors = [pair.source.mr_id], [pair.source.ptr], [size], [blob]
    cases: list[tuple[Any, Any, type[Exception]]] = [
        (near.write(*here, b"short"), False, tcpx.InvalidArgument),
        (near.write(*here, bytes(64)), False, tcpx.InvalidArgument),
        (near.write(*here, wrong), False, TypeError),
        (near.write(*here, 10**12), False, TypeError),  # type: ignore[arg-type]
        (near.write(*here, blob[:16] + bytes([blob[16] ^ 1]) + blob[17:]), False, tcpx.NotFound),
        (near.write(*here, short), False, tcpx.InvalidArgument),
        (near.write(unknown, *here[1:], blob), False, tcpx.NotFound),
        (near.write(here[0], unknown, *here[2:], blob), False, tcpx.NotFound),
        (near.write(*here[:2], here[2] + 1, size, blob), False, tcpx.InvalidArgument),
        (near.write(*here[:3], -1, blob), False, tcpx.InvalidArgument),
        (near.write(wrong, wrong, wrong, wrong, blob), False, Exception),
        (near.write_async([], *here[1:], blob), (False, 0), TypeError),  # type: ignore[arg-type]
        (near.read_async(*here[:3], 2**70, blob), (False, 0), tcpx.InvalidArgument),
        (near.send_async(unknown, *here[1:]), (False, 0), tcpx.NotFound),
        (near.recv(*here[:2], 8, 8), False, tcpx.InvalidArgument),
        (near.writev(pair.there, *vectors, 2), False, tcpx.InvalidArgument),
        (near.writev(pair.there, *vectors, -1), False, tcpx.InvalidArgument),
        (near.readv_async(pair.there, *vectors[:3], [], 1), (False, 0), tcpx.InvalidArgument),
        (near.sendv(pair.there, wrong, wrong, wrong, 1), False, Exception),
        (near.poll_async(unknown), (False, True), tcpx.NotFound),
        (near.poll_async(wrong), (False, True), tcpx.NotFound),
        (near.reg(wrong, 8), (False, 0), TypeError),
        (near.reg(-1, 8), (False, 0), tcpx.InvalidArgument),
        (near.reg(2**64 - 8, 64), (False, 0), tcpx.InvalidArgument),
        (near.regv([here[2], -1], [8, 8]), (False, []), tcpx.InvalidArgument),
        (near.regv([here[2]], []), (False, []), tcpx.InvalidArgument),
        (near.dereg(unknown), False, tcpx.NotFound),
        (near.advertise(unknown, *here[1:]), (False, b""), tcpx.NotFound),
        (near.advertise(unknown, *here[2:]), (False, b""), tcpx.NotFound),
        (near.advertisev([], [], [], 1), (False, []), tcpx.InvalidArgument),
        (near.connect("127.0.0.1", "0"), (False, 0), tcpx.InvalidArgument),
        (near.connect("127.0.0.1", "0000:3b:00.0", 1), (False, 0), tcpx.InvalidArgument),
        (near.add_remote_endpoint(b"junk"), (False, 0), tcpx.InvalidArgument),
        (near.add_remote_endpoint(wrong), (False, 0), TypeError),
        (near.parse_metadata(b"junk"), ("", 0, ""), tcpx.InvalidArgument),
        (near.parse_metadata(near.get_metadata()[:-1]), ("", 0, ""), tcpx.InvalidArgument),
        (near.remove_remote_endpoint(unknown), False, tcpx.NotFound),
        (near.send_notif(unknown, b""), False, tcpx.NotFound),
        (near.send_notif(pair.there, b"", "n" * 300), False, tcpx.InvalidArgument),
    ]
    records = [record for record in caplog.records if record.name == "tcpx.uccl"]
    assert len(records) == len(cases)
    for number, (result, expected, kind) in enumerate(cases):
        assert result == expected, number
        error = records[number].args[1]  # type: ignore[index]
        assert isinstance(error, kind), (number, error)
    assert records[-1].levelno == logging.WARNING and p2p.last_error() is records[-1].args[1]  # type: ignore[index]
    assert in_thread(p2p.last_error)() is None
    assert near.write(*here, blob) and (pair.target.array == pair.source.array).all()


def test_failures_leave_nothing_behind(pair: Pair) -> None:
    regions = pair.near.typed().stats()["registered_regions"]
    assert pair.near.regv([pair.source.ptr, pair.source.ptr + 8, -1], [8, 8, 8])[0] is False
    with pytest.raises(p2p.Refused):
        pair.near.register_memory([np.zeros(8, np.uint8), 123])
    assert pair.near.typed().stats()["registered_regions"] == regions


def test_calls_with_missing_arguments_are_type_errors(pair: Pair) -> None:
    near: Any = pair.near
    with pytest.raises(TypeError):
        near.write(1, 2)
    with pytest.raises(TypeError):
        near.reg(ptr=1, length=2)
    for arguments in ((1, 2), (1, 2, 3, 4, 5)):
        with pytest.raises(TypeError, match="conn_id before them"):
            near.advertise(*arguments)
    with pytest.raises(TypeError, match="mr_id_v, ptr_v, size_v, num_iovs"):
        near.advertisev([], [], [], num=0)


def test_descriptors_are_refused_with_a_runtime_error(pair: Pair) -> None:
    near: Any = pair.near
    desc = near.register_memory([pair.source.array])[0]
    (remote,) = pair.far.register_memory([pair.target.array])
    packed = pair.far.get_serialized_descs([remote])
    for data in (b"x", packed[:-1], packed + b"x", b"TXUD\xff\xff\xff\xff", bytes(96)):
        with pytest.raises(RuntimeError, match="deserialize descriptors"):
            near.deserialize_descs(data)
    assert near.deserialize_descs(b"") == [] and near.deserialize_descs(near.get_serialized_descs([])) == []
    for what in ([1], [p2p.XferDesc()], [p2p.XferDesc(-1, 0, 0, [], [1] * 18)]):
        with pytest.raises(RuntimeError, match="serialize descriptors"):
            near.get_serialized_descs(what)
    for op, conn, local in (("put", pair.there, [desc]), ("write", 999, [desc]), ("write", pair.there, [])):
        with pytest.raises(RuntimeError, match="transfer"):
            near.transfer(conn, op, local, [remote])
    read_only = np.zeros(8, np.uint8)
    read_only.flags.writeable = False
    for buffer in (123, "text", read_only, np.zeros((8, 8), np.uint8)[:, 1]):
        with pytest.raises(RuntimeError, match="register memory"):
            near.register_memory([buffer])
    near.deregister_memory([desc])
    assert near.transfer(pair.there, "write", [desc], [remote]) == (False, 0)
    assert isinstance(p2p.last_error(), tcpx.NotFound)
    near.deregister_memory([desc, 5])  # says why in the log
    refused = pickle.loads(pickle.dumps(p2p.Refused("transfer", "why")))
    assert isinstance(refused, tcpx.InvalidArgument) and "why" in str(refused)


def test_a_descriptor_may_be_cut(pair: Pair) -> None:
    (desc,) = pair.near.register_memory([pair.source.array])
    (shipped,) = pair.near.deserialize_descs(pair.far.get_serialized_descs(pair.far.register_memory([pair.target.array])))
    assert len(shipped.lkeys) == len(shipped.rkeys) > 0
    part = p2p.XferDesc(desc.addr + 100, 50, desc.mr_id, desc.lkeys, desc.rkeys)
    there = p2p.XferDesc(shipped.addr + 7, 50, rkeys=shipped.rkeys)
    wait(pair.near, pair.near.transfer(pair.there, "write", [part], [there]))
    assert (pair.target.array[7:57] == pair.source.array[100:150]).all()
    assert not pair.target.array[:7].any() and not pair.target.array[57:].any()
    there.addr = shipped.addr + NBYTES - 49
    with pytest.raises(RuntimeError):
        p2p.XferDesc(0, 8, 0, [], [1]).place()
    assert pair.near.transfer(pair.there, "write", [part], [there]) == (False, 0)
    there.addr = shipped.addr - 1
    assert pair.near.transfer(pair.there, "write", [part], [there]) == (False, 0)
    assert "begins 1 bytes before" in str(p2p.last_error())
    there.addr, there.size = shipped.addr, 49
    assert pair.near.transfer(pair.there, "write", [part], [there]) == (False, 0)
    assert "a local descriptor is longer" in str(p2p.last_error())


def test_registrations_of_one_range_and_of_parts_share_keys(pair: Pair) -> None:
    array = np.arange(4096, dtype=np.float32)
    (first,) = pair.far.register_memory([array])
    (second,) = pair.far.register_memory([array])
    (part,) = pair.far.register_memory([array[256:1280]])
    (other,) = pair.far.register_memory([np.zeros(4096, np.float32)])
    assert len({first.mr_id, second.mr_id, part.mr_id}) == 3
    assert first.rkeys == second.rkeys == part.rkeys != other.rkeys
    pair.far.deregister_memory([first, second])
    (again,) = pair.far.register_memory([array[300:310]])
    assert again.rkeys == part.rkeys
    local = pair.near.register_memory([np.full(1024, 7, np.float32)])
    wait(pair.near, pair.near.transfer(pair.there, "write", local, [part]))
    assert (array[256:1280] == 7).all() and array[255] == 255
    pair.far.deregister_memory([part, again])
    (new,) = pair.far.register_memory([array])
    assert new.rkeys != part.rkeys


def test_what_is_advertised_of_a_registration_ends_with_that_one(pair: Pair) -> None:
    far, ptr = pair.far, pair.target.ptr
    _, part = far.reg(ptr, 8)
    _, blob = far.advertise(part, ptr, 8)
    assert far.dereg(pair.target.mr_id)
    assert pair.near.write(pair.there, pair.source.mr_id, pair.source.ptr, 8, blob), p2p.last_error()
    assert (pair.target.array[:8] == pair.source.array[:8]).all()
    assert far.dereg(part)
    assert not pair.near.write(pair.there, pair.source.mr_id, pair.source.ptr, 8, blob)


def test_another_registration_of_the_range_takes_no_slot_along(pair: Pair) -> None:
    far, ptr = pair.far, pair.target.ptr
    _, shorter = far.reg(ptr, 16)
    _, blob = far.advertise(pair.target.mr_id, ptr, 8)
    assert far.dereg(shorter)
    assert pair.near.write(pair.there, pair.source.mr_id, pair.source.ptr, 8, blob), p2p.last_error()
    assert (pair.target.array[:8] == pair.source.array[:8]).all()


def test_memory_that_may_only_be_read_is_not_advertised(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    constant = ctypes.cast(ctypes.pythonapi.Py_GetVersion, ctypes.c_void_p).value  # code, which nobody may write
    ok, region = pair.near.reg(constant, 64)
    assert ok
    assert not pair.near.advertise(pair.there, region, constant, 64)[0] and "may only be read" in caplog.text
    assert not pair.near.recv(pair.there, region, constant, 64)
    assert pair.near.dereg(region)


def test_registered_tensors_stay_alive(pair: Pair) -> None:
    torch = pytest.importorskip("torch")
    descs = pair.near.register_memory([torch.full((1000,), 3, dtype=torch.uint8), torch.zeros(0)])
    target = torch.zeros(1000, dtype=torch.uint8)
    there = pair.far.register_memory([target, torch.zeros(0)])
    shipped = pair.near.deserialize_descs(pair.far.get_serialized_descs(there))
    wait(pair.near, pair.near.transfer(pair.there, "write", descs, shipped))
    assert bool((target == 3).all()) and descs[1].size == 0


def test_numbers_of_other_types_are_addresses(pair: Pair) -> None:
    _, blob = pair.far.advertise(pair.target.mr_id, np.uint64(pair.target.ptr), np.int64(NBYTES))  # type: ignore[arg-type]
    pointer = ctypes.c_void_p(pair.source.ptr).value
    assert pointer is not None
    assert pair.near.write(pair.there, pair.source.mr_id, pointer, np.int32(NBYTES), bytearray(blob))  # type: ignore[arg-type]
    assert (pair.target.array == pair.source.array).all()


def test_ranges_of_no_bytes_move_nothing(pair: Pair) -> None:
    near, (mr_id, ptr) = pair.near, (pair.source.mr_id, pair.source.ptr)
    _, blob = pair.far.advertise(pair.target.mr_id, pair.target.ptr, 8)
    assert near.write(pair.there, mr_id, ptr, 0, blob) and near.writev(pair.there, [], [], [], [], 0)
    assert near.writev(pair.there, [mr_id] * 3, [ptr, ptr + 1, ptr + 2], [0, 3, 0], [bytes(64), blob, bytes(64)], 3)
    assert (pair.target.array[:3] == pair.source.array[1:4]).all() and not pair.target.array[3:].any()


def test_transfers_end_when_their_connection_is_removed(pair: Pair) -> None:
    ok, transfer_id = pair.far.recv_async(pair.back, pair.target.mr_id, pair.target.ptr, NBYTES)
    assert ok and pair.far.poll_async(transfer_id) == (True, False)
    assert pair.far.remove_remote_endpoint(pair.back)
    done = False
    while not done:
        ok, done = pair.far.poll_async(transfer_id)
    assert not ok and isinstance(p2p.last_error(), tcpx.Cancelled)
