"""Programs in the manner of those that come with UCCL's p2p engine: two processes, metadata over a pipe, `ok` asserted.

    python uccl_programs.py PROGRAM FORM

FORM is how they advertise: `wheel`, as in the wheel 0.1.1, with the connection; `newer`, as in later sources, without.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from tcpx import uccl as p2p

os.environ.setdefault("UCCL_TCPX_SOFT_IO_THREADS", "1")
LIMIT = 30.0
SIZES = [8, 4096, 100_000, 3 << 20]
IOVS = 5
form = "wheel"


def filled(nbytes: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def receive(pipe: Connection) -> Any:
    assert pipe.poll(LIMIT), "the other process says nothing"
    return pipe.recv()


def advertise(ep: p2p.Endpoint, conn_id: int, *what: Any) -> tuple[bool, bytes]:
    return ep.advertise(conn_id, *what) if form == "wheel" else ep.advertise(*what)


def advertisev(ep: p2p.Endpoint, conn_id: int, *what: Any) -> tuple[bool, list[bytes]]:
    return ep.advertisev(conn_id, *what) if form == "wheel" else ep.advertisev(*what)


def accept(pipe: Connection) -> tuple[p2p.Endpoint, int]:
    ep = p2p.Endpoint(local_gpu_idx=0)
    pipe.send(bytes(ep.get_metadata()))
    ok, address, gpu, conn_id = ep.accept()
    assert ok and address and gpu == 0
    return ep, conn_id


def connect(pipe: Connection) -> tuple[p2p.Endpoint, int]:
    ip, port, gpu = p2p.Endpoint.parse_metadata(receive(pipe))
    ep = p2p.Endpoint(local_gpu_idx=0)
    ok, conn_id = ep.connect(remote_ip_addr=ip, remote_gpu_bdf=gpu, remote_port=port)
    assert ok, p2p.last_error()
    return ep, conn_id


def wait(ep: p2p.Endpoint, started: tuple[bool, int]) -> None:
    ok, transfer_id = started
    assert ok, p2p.last_error()
    is_done = False
    while not is_done:
        ok, is_done = ep.poll_async(transfer_id)
        assert ok, p2p.last_error()


# ---- one-sided: the client moves bytes to and from what the server has advertised


def one_sided_server(pipe: Connection) -> None:
    ep, conn_id = accept(pipe)
    for size in SIZES:
        target = np.zeros(size, np.uint8)
        ok, mr_id = ep.reg(target.ctypes.data, size)
        assert ok
        ok, blob = advertise(ep, conn_id, mr_id, target.ctypes.data, size)
        assert ok and isinstance(blob, bytes) and len(blob) == 64
        pipe.send(blob)
        assert receive(pipe) == "moved"
        assert (target == filled(size, size)).all()
        assert ep.dereg(mr_id)


def one_sided_client(pipe: Connection) -> None:
    ep, conn_id = connect(pipe)
    for size in SIZES:
        source, back = filled(size, size), np.zeros(size, np.uint8)
        (ok, mr_id), (ok_back, mr_back) = ep.reg(source.ctypes.data, size), ep.reg(back.ctypes.data, size)
        assert ok and ok_back
        blob = receive(pipe)
        assert ep.write(conn_id, mr_id, source.ctypes.data, size, blob)
        assert ep.read(conn_id, mr_back, back.ctypes.data, size, blob)
        assert (back == source).all()
        back[:] = 0
        wait(ep, ep.write_async(conn_id, mr_id, source.ctypes.data, size, blob))
        wait(ep, ep.read_async(conn_id, mr_back, back.ctypes.data, size, blob))
        assert (back == source).all()
        pipe.send("moved")


# ---- the same with vectors, each range to its own


def blocks(ep: p2p.Endpoint, size: int, seed: int | None) -> tuple[list[Any], list[int], list[int], list[int]]:
    arrays = [np.zeros(size, np.uint8) if seed is None else filled(size, seed + i) for i in range(IOVS)]
    pointers = [one.ctypes.data for one in arrays]
    sizes = [size] * IOVS
    ok, mr_ids = ep.regv(pointers, sizes)
    assert ok and len(mr_ids) == IOVS
    return arrays, mr_ids, pointers, sizes


def vectors_server(pipe: Connection) -> None:
    ep, conn_id = accept(pipe)
    for size in SIZES:
        arrays, *vectors = blocks(ep, size, None)
        ok, blobs = advertisev(ep, conn_id, *vectors, IOVS)
        assert ok and [len(blob) for blob in blobs] == [64] * IOVS
        pipe.send(blobs)
        assert receive(pipe) == "moved"
        for i, one in enumerate(arrays):
            assert (one == filled(size, size + i)).all()


def vectors_client(pipe: Connection) -> None:
    ep, conn_id = connect(pipe)
    for size in SIZES:
        sources, *vectors = blocks(ep, size, size)
        targets, *back = blocks(ep, size, None)
        blobs = receive(pipe)
        assert ep.writev(conn_id, *vectors, blobs, IOVS)
        assert ep.readv(conn_id, *back, blobs, IOVS)
        assert all((one == other).all() for one, other in zip(sources, targets))
        for one in targets:
            one[:] = 0
        wait(ep, ep.writev_async(conn_id, *vectors, blobs, IOVS))
        wait(ep, ep.readv_async(conn_id, *back, blobs, IOVS))
        assert all((one == other).all() for one, other in zip(sources, targets))
        pipe.send("moved")


# ---- two-sided, as in the wheel: both directions, all four manners


def two_sided_server(pipe: Connection) -> None:
    ep, conn_id = accept(pipe)
    for size in SIZES:
        arrays, mr_ids, pointers, sizes = blocks(ep, size, None)
        assert ep.recv(conn_id, mr_ids[0], pointers[0], size=size)
        wait(ep, ep.recv_async(conn_id, mr_ids[1], pointers[1], size))
        assert (arrays[0] == filled(size, size)).all() and (arrays[1] == arrays[0]).all()
        assert ep.recvv(conn_id, mr_ids, pointers, sizes, IOVS)
        for i, one in enumerate(arrays):
            assert (one == filled(size, size + i)).all()
            one[:] = 0
        wait(ep, ep.recvv_async(conn_id, mr_ids, pointers, sizes, IOVS))
        assert ep.sendv(conn_id, mr_ids, pointers, sizes, IOVS)


def two_sided_client(pipe: Connection) -> None:
    ep, conn_id = connect(pipe)
    for size in SIZES:
        _, mr_ids, pointers, sizes = blocks(ep, size, size)
        targets, *back = blocks(ep, size, None)
        assert ep.send(conn_id, mr_ids[0], pointers[0], size)
        wait(ep, ep.send_async(conn_id, mr_ids[0], pointers[0], size))
        assert ep.sendv(conn_id, mr_ids, pointers, sizes, IOVS)
        wait(ep, ep.sendv_async(conn_id, mr_ids, pointers, sizes, IOVS))
        assert ep.recvv(conn_id, *back, IOVS)
        for i, one in enumerate(targets):
            assert (one == filled(size, size + i)).all()


# ---- descriptors: the client finds the server by its metadata, and names ranges by what was serialized there


def descriptors_server(pipe: Connection) -> None:
    ep = p2p.Endpoint(0)
    assert ep.start_passive_accept()
    pipe.send(ep.get_metadata())
    arrays = [np.zeros(size, np.uint8) for size in SIZES]
    descs = ep.register_memory(arrays)
    pipe.send(ep.get_serialized_descs(descs))
    assert receive(pipe) == "moved"
    for size, one in zip(SIZES, arrays):
        assert (one == filled(size, size)).all()
    ep.deregister_memory(descs)
    pipe.send("withdrawn")
    assert receive(pipe) == "gone"


def descriptors_client(pipe: Connection) -> None:
    ep = p2p.Endpoint(0)
    ok, conn_id = ep.add_remote_endpoint(receive(pipe))
    assert ok
    sources, targets = [filled(size, size) for size in SIZES], [np.zeros(size, np.uint8) for size in SIZES]
    local, back = ep.register_memory(sources), ep.register_memory(targets)
    remote = ep.deserialize_descs(receive(pipe))
    assert [desc.size for desc in remote] == SIZES
    wait(ep, ep.transfer(conn_id, "write", local, remote))
    wait(ep, ep.transfer(conn_id, "read", back, remote))
    assert all((one == other).all() for one, other in zip(sources, targets))
    targets[0][:] = 0
    wait(ep, ep.transfer(conn_id, "read", back[:1], remote[:1]))
    assert (targets[0] == sources[0]).all()
    pipe.send("moved")
    assert receive(pipe) == "withdrawn"
    ok, transfer_id = ep.transfer(conn_id, "write", local, remote)
    while ok:
        ok, is_done = ep.poll_async(transfer_id)
        assert not (ok and is_done), "written to memory that was deregistered"
    pipe.send("gone")


# ---- connections that are removed


def removal_server(pipe: Connection) -> None:
    ep = p2p.Endpoint(0)
    assert ep.start_passive_accept()
    pipe.send(ep.get_metadata())
    assert receive(pipe) == "gone"


def removal_client(pipe: Connection) -> None:
    ep = p2p.Endpoint(0)
    metadata = receive(pipe)
    ok, first = ep.add_remote_endpoint(metadata)
    assert ok
    assert ep.add_remote_endpoint(metadata) == (True, first)
    _, mr_ids, pointers, sizes = blocks(ep, 8, None)
    ok, transfer_id = ep.recvv_async(first, mr_ids, pointers, sizes, IOVS)
    assert ok and ep.poll_async(transfer_id) == (True, False)
    assert ep.remove_remote_endpoint(first) is True
    deadline, is_done = time.monotonic() + LIMIT / 2, False
    while not is_done:
        assert time.monotonic() < deadline, "a transfer goes on without its connection"
        ok, is_done = ep.poll_async(transfer_id)
    assert not ok
    assert ep.remove_remote_endpoint(first) is False
    ok, second = ep.add_remote_endpoint(metadata)
    assert ok and second != first
    descs = ep.register_memory([np.zeros(8, np.uint8)])
    try:
        ep.transfer(first, "write", descs, descs)
        raise AssertionError("a connection that was removed is of use")
    except RuntimeError as error:
        assert "Invalid conn_id" in str(error)
    pipe.send("gone")


PROGRAMS: dict[str, tuple[Callable[[Connection], None], Callable[[Connection], None]]] = {
    "one_sided": (one_sided_server, one_sided_client),
    "vectors": (vectors_server, vectors_client),
    "two_sided": (two_sided_server, two_sided_client),
    "descriptors": (descriptors_server, descriptors_client),
    "removal": (removal_server, removal_client),
}


def main() -> int:
    global form
    form = sys.argv[2]
    context = multiprocessing.get_context("fork")  # what they were written for
    here, there = context.Pipe()
    pipes = (here, there)
    ends = [context.Process(target=end, args=(pipe,)) for end, pipe in zip(PROGRAMS[sys.argv[1]], pipes)]
    for end in ends:
        end.start()
    deadline = time.monotonic() + 2 * LIMIT
    for end in ends:
        end.join(max(0.0, deadline - time.monotonic()))
    for end in ends:
        if end.is_alive():
            end.kill()
    return 0 if all(end.exitcode == 0 for end in ends) else 1


if __name__ == "__main__":
    sys.exit(main())
