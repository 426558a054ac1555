"""Beginnings and ends: what is in flight lives, what has ended is gone, and processes leave when they want to."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import tcpx
from conftest import Pair, connect_pair
from ranks import CONTEXT, LIMIT


def run(program: str, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    here = os.path.dirname(__file__)
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {here!r})\n{program}", *arguments],
        capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def test_a_buffer_in_flight_lives(pair: Pair) -> None:
    target = np.zeros(1000, np.uint8)
    death = weakref.ref(target)
    pair.back.recv_async(target)  # nobody keeps the operation
    del target
    gc.collect()
    assert death() is not None
    pair.there.send(b"x" * 1000)
    for _ in range(200):
        pair.back.recv_async(np.zeros(1, np.uint8))
        pair.there.send(b"x")
        gc.collect()
        if death() is None:
            break
    assert death() is None, "ended operations are forgotten in the end"


def test_a_buffer_is_registered_while_it_lives(pair: Pair) -> None:
    def regions() -> Any:
        return pair.near.stats()["registered_regions"]

    before = regions()
    slot = pair.far.advertise(np.zeros(1 << 16, np.uint8))
    owner = np.ones(1 << 16, np.uint8)
    for first in range(0, 1000, 100):
        pair.there.write(owner[first : first + 50], slot)
    assert regions() == before + 1, "one registration for all views of an array"
    del owner
    assert regions() == before
    pair.there.write(b"transient", slot)
    gc.collect()
    assert regions() == before
    with pair.near.register(bytearray(100)):
        assert regions() == before + 1
    assert regions() == before


def test_memory_that_is_registered_is_not_looked_at_again(pair: Pair) -> None:
    buffer = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with pair.near.register(buffer):
        assert protect(address, mmap.PAGESIZE, 0) == 0
        try:
            pair.near.register(buffer).release()
        finally:
            assert protect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_a_registration_keeps_its_buffer(pair: Pair) -> None:
    buffer = np.zeros(10)
    death = weakref.ref(buffer)
    registration = pair.near.register(buffer)
    del buffer
    assert death() is not None
    registration.release()
    registration.release()
    assert death() is None


def test_a_closed_endpoint_says_so(pair: Pair) -> None:
    pending = pair.there.recv_async(bytearray(5))
    waiting: list[BaseException] = []

    def wait() -> None:
        try:
            pair.there.recv(bytearray(5))
        except BaseException as error:
            waiting.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    pair.near.close()
    thread.join(10)
    assert [type(one) for one in waiting] == [tcpx.Cancelled]
    with pytest.raises(tcpx.Cancelled):
        pending.wait(1)
    for call in (lambda: pair.near.metadata, lambda: pair.there.send(b"x"), lambda: pair.near.accept(0.1), pair.near.stats):
        with pytest.raises(tcpx.Cancelled, match="closed"):
            call()
    pair.near.close()


def test_a_peer_that_ended(pair: Pair) -> None:
    pair.far.close()
    with pytest.raises((tcpx.PeerGone, tcpx.Cancelled)):
        pair.there.recv(bytearray(1), timeout=10)


def test_timeouts_that_are_none(pair: Pair) -> None:
    for timeout in (-1.0, float("nan")):
        with pytest.raises(tcpx.InvalidArgument, match="timeout"):
            pair.there.send(b"x", timeout=timeout)
        with pytest.raises(tcpx.InvalidArgument, match="timeout"):
            pair.near.accept(timeout)
    with pytest.raises(TypeError):
        pair.there.send(b"x", timeout="soon")  # type: ignore[arg-type]


def test_endpoints_come_and_go() -> None:
    """The number of descriptors and threads stays, and memory does not grow: 30 endpoints after 20 that warm up."""
    program = """
import gc, os, tcpx, numpy as np
kept = np.zeros(4096)
def rss(): return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
def state(): return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
def some(n):
    for i in range(n):
        ep = tcpx.Endpoint(listen="127.0.0.1")
        ep.advertise(kept)
        if i % 2: ep.close()
        del ep
    gc.collect()
some(20)
before, memory = state(), rss()
some(30)
assert state() == before, (state(), before)
print(rss() - memory)
"""
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 8 << 20, done.stdout


def test_operations_leave_nothing_behind() -> None:
    pair = connect_pair()
    source, slot = np.ones(8, np.uint8), pair.far.advertise(np.zeros(8, np.uint8))

    def some(count: int) -> None:
        for _ in range(count):
            pair.there.write(source, slot)
        for _ in range(count):
            pair.there.write_async(source, slot)
        for _ in range(count):
            pair.there.write_async(source, slot).wait()
        for operation in list(pair.near.session.pending):  # that nobody asked about
            operation.wait(None)
        pair.near.session.sweep()

    some(300)
    gc.collect()
    before = len(gc.get_objects())
    some(1000)
    gc.collect()
    assert not pair.near.session.pending and len(gc.get_objects()) - before < 100
    pair.near.close()
    pair.far.close()


PENDING = """
from conftest import connect_pair
import numpy as np, tcpx, sys
pair = connect_pair()
kept = [pair.there.recv_async(np.zeros(100)) for _ in range(10)]
pair.back.recv_async(bytearray(5))
slot = pair.far.advertise(np.zeros(32 << 20, np.uint8))
flying = pair.there.write_async(np.ones(32 << 20, np.uint8), slot)
print("ready", flush=True)
"""


@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "import threading; threading.Thread(target=lambda: None).start()"])
def test_an_interpreter_ends_with_operations_pending(ending: str) -> None:
    begin = time.monotonic()
    done = run(PENDING + ending)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert time.monotonic() - begin < 30


def test_an_object_that_outlives_its_endpoint_gets_errors_of_ours() -> None:
    """When nothing can be imported any more."""
    program = """
import os, tcpx
class Late:
    def __init__(self):
        self.endpoint = tcpx.Endpoint(listen="127.0.0.1")
        self.slot = self.endpoint.advertise(bytearray(8))
    def __del__(self):
        try:
            self.endpoint.stats()
        except tcpx.Cancelled as error:
            os.write(1, error.code.encode())
        self.slot.withdraw()
        self.endpoint.close()
late = Late()
"""
    done = run(f"import os; os.environ['UCCL_TCPX_LOG_LEVEL'] = 'error'\n{program}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "TCPX_E_CANCELLED", "")


def test_ctrl_c_ends_a_wait() -> None:
    program = PENDING + """
try:
    pair.there.recv(np.zeros(100))
except KeyboardInterrupt:
    print("interrupted", flush=True)
    pair.back.send(np.ones(100))  # the receives that were there before get it
    kept[0].wait(5)
"""
    here = os.path.dirname(__file__)
    with subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {here!r})\n{program}"], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "ready\n"
        time.sleep(0.3)
        other.send_signal(signal.SIGINT)
        assert other.stdout.readline() == "interrupted\n"
        assert other.wait(20) == 0


def test_a_forked_child_may_only_leave() -> None:
    program = """
import os, tcpx
ep = tcpx.Endpoint(listen="127.0.0.1")
child = os.fork()
if child == 0:
    try:
        ep.advertise(bytearray(10))
    except tcpx.Unsupported:
        ep.close()
        del ep
        try:
            tcpx.Endpoint(listen="127.0.0.1")
        except tcpx.Unsupported:
            os._exit(7)
    os._exit(8)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
ep.advertise(bytearray(10))  # the parent goes on
raise SystemExit(code)
"""
    done = run(program)
    assert done.returncode == 7, done.stderr


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_multiprocessing(method: str, tmp_path: Any) -> None:
    (tmp_path / "main.py").write_text(
        f"""
import multiprocessing, sys
import tcpx
def child(metadata, data, queue):
    with tcpx.Endpoint(listen="127.0.0.1") as ep:
        conn = ep.connect(metadata)
        conn.write(b"12345678", tcpx.Slot.from_bytes(data))
        conn.recv(bytearray(1), timeout=30)  # it was accepted
        queue.put("done")
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    target = bytearray(8)
    with tcpx.Endpoint(listen="127.0.0.1") as ep:
        slot = ep.advertise(target)
        queue = context.Queue()
        other = context.Process(target=child, args=(ep.metadata, bytes(slot), queue))
        other.start()
        ep.accept(30).send(b"x")
        assert queue.get(timeout=30) == "done"
        other.join(30)
        assert target == b"12345678" and other.exitcode == 0
"""
    )
    done = subprocess.run([sys.executable, str(tmp_path / "main.py")], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr


def _read_for_ever(metadata: bytes) -> None:
    endpoint = tcpx.Endpoint(listen="127.0.0.1", public_address="127.0.0.1")
    connection = endpoint.connect(metadata)
    slot = connection.recv_slot()
    under_way = [connection.read_async(bytearray(slot.nbytes), slot) for _ in range(4)]
    connection.send(b"1")
    while True:
        under_way.pop(0).wait()
        under_way.append(connection.read_async(bytearray(slot.nbytes), slot))


def test_a_release_waits_no_longer_than_it_is_told_for_a_reader_that_stands_still() -> None:
    with tcpx.Endpoint(listen="127.0.0.1", public_address="127.0.0.1", timeout=LIMIT) as endpoint:
        reader = CONTEXT.Process(target=_read_for_ever, args=(endpoint.metadata,), daemon=True)
        reader.start()
        connection = endpoint.accept(LIMIT)
        buffer = bytearray(32 << 20)
        registration = endpoint.register(buffer)
        connection.send_slot(connection.advertise(buffer))
        connection.recv(bytearray(1))
        os.kill(reader.pid or 0, signal.SIGSTOP)
        began = time.monotonic()
        registration.release(0.5)
        assert time.monotonic() - began < LIMIT / 4
        reader.kill()
        reader.join(LIMIT)
