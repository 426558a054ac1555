"""What nobody should do and somebody does: bad moments to close, to end and to fork; buffers and handlers that misbehave."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tcpx
from conftest import Pair, connect_pair
from tcpx._session import RECV
from test_lifetime import run


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_loop_hears_of_the_close_in_it(pair: Pair) -> None:
    async def work() -> None:
        awaiting = asyncio.ensure_future(wait_for(pair.there.recv_async(bytearray(4))))
        await asyncio.sleep(0.02)
        pair.near.close()
        with pytest.raises(tcpx.Cancelled):
            await asyncio.wait_for(awaiting, 20)

    asyncio.run(work())


async def wait_for(operation: tcpx.Operation) -> None:
    await operation


def test_loops_that_ended_leave_no_descriptors(pair: Pair) -> None:
    async def work() -> None:
        receiving = pair.back.recv_async(bytearray(4))
        await pair.there.send_async(b"1234")
        await receiving

    def some(count: int) -> None:
        for _ in range(count):
            asyncio.run(asyncio.wait_for(work(), 20))
        gc.collect()

    some(3)
    before = descriptors()
    some(20)
    assert descriptors() <= before + 4  # those of the loop that was the last


def test_endpoints_that_nobody_closed_leave_a_loop() -> None:
    async def work() -> None:
        async def some(count: int) -> int:
            for _ in range(count):
                pair = connect_pair(timeout=20.0)
                receiving = pair.back.recv_async(bytearray(4))
                await pair.there.send_async(b"1234")
                await receiving
                del pair, receiving
                gc.collect()
            return descriptors()

        before = await some(3)
        assert await some(10) <= before

    asyncio.run(work())


def test_a_loop_and_threads_wait_for_one_operation(pair: Pair) -> None:
    async def work() -> None:
        for _ in range(20):
            receiving = pair.back.recv_async(bytearray(4))
            threads = [threading.Thread(target=insist, args=(receiving,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            awaiting = asyncio.ensure_future(wait_for(receiving))
            await asyncio.sleep(0.005)
            pair.there.send(b"1234")
            await asyncio.wait_for(awaiting, 20)
            for thread in threads:
                thread.join()

    def insist(operation: tcpx.Operation) -> None:
        while True:
            try:
                return operation.wait(0.002)
            except tcpx.Timeout:
                pass

    asyncio.run(work())


def test_an_operation_does_not_wait_for_another_on_the_same_memory(pair: Pair) -> None:
    data = bytes(200_000)  # longer than what is sent inline
    first, second = pair.there.send_async(data), pair.there.send_async(data)
    pair.back.recv(bytearray(200_000))
    first.wait()
    del first
    assert not second.done()
    pair.back.recv(bytearray(200_000))
    second.wait()
    assert pair.near.stats()["registered_regions"] == 0


def test_a_slot_outlives_the_operation_that_registered_its_memory(pair: Pair) -> None:
    target = bytearray(8)
    receiving = pair.there.recv_async(target)
    slot = pair.near.advertise(target)
    pair.back.send(b"12345678")
    receiving.wait()
    pair.back.write(b"abcdefgh", slot)
    assert target == b"abcdefgh"
    slot.withdraw()
    assert pair.near.stats()["registered_regions"] == 0


def test_a_released_registration_has_no_slots(pair: Pair) -> None:
    target = bytearray(8)
    registration = pair.near.register(target)
    slot = pair.near.advertise(target)
    registration.release()
    with pytest.raises(tcpx.NotFound):
        pair.back.write(b"12345678", slot)


def test_an_operation_that_an_exception_gave_up_is_cancelled(pair: Pair) -> None:
    started: Any = pair.near.session.start(RECV, pair.there.id, bytearray(4), None, None, None, None, False)
    assert pair.near.stats()["operations_outstanding"] == 1
    del started  # as Ctrl-C does between the start and the wait
    assert pair.near.stats()["operations_outstanding"] == 0


def test_what_ended_well_stays_so(pair: Pair) -> None:
    receiving = pair.back.recv_async(bytearray(4))
    sending = pair.there.send_async(b"1234")
    for endpoint in pair[:2]:
        while endpoint.stats()["connections"][0]["operations_done"] == 0:
            pass
    pair.near.close()
    pair.far.close()
    sending.wait()
    receiving.wait()


def test_every_close_returns_at_the_end() -> None:
    """Threads of the library run until nothing touches the application's memory any more."""

    def tasks() -> int:
        return len(os.listdir("/proc/self/task"))

    before = tasks()
    pair = connect_pair(timeout=20.0)
    pair.there.recv_async(bytearray(4))
    for endpoint in pair[:2]:
        closing = threading.Thread(target=endpoint.close)
        closing.start()
        while not endpoint.session.core.closed():
            pass
        endpoint.close()
        if endpoint is pair.far:
            assert tasks() <= before + 1  # the thread that closes
        closing.join()


@pytest.mark.parametrize("logged", ["", "import logging; logging.basicConfig()"])
def test_an_interpreter_ends_under_its_daemon_threads(logged: str) -> None:
    program = """
import threading, time, tcpx
from conftest import connect_pair
pair = connect_pair(timeout=20.0)
def repeat(call):
    while True:
        try: call()
        except tcpx.Error: pass
for call in [lambda: pair.there.recv_async(bytearray(5)).wait(0.01), pair.near.metrics, lambda: pair.near.accept(0.01)] * 3:
    threading.Thread(target=repeat, args=(call,), daemon=True).start()
time.sleep(0.2)
"""
    for _ in range(3):
        done = run(logged + program)
        assert done.returncode == 0 and "leaked" not in done.stderr, done.stderr


def test_an_interpreter_ends_while_an_error_is_made() -> None:
    """Its threads are unwound inside our call into Python, without the lock that it takes to let go of an object."""
    program = """
import threading, time, tcpx
inside = threading.Event()
def slowly(*arguments):
    inside.set()
    while True: time.sleep(0.001)  # gives the lock up, and wants it back
tcpx._core.make_errors_with(slowly)
threading.Thread(target=tcpx.Endpoint, kwargs={"plugin": "/there/is/none.so"}, daemon=True).start()
assert inside.wait(20)
"""
    for _ in range(3):
        done = run(program)
        assert done.returncode == 0 and "leaked" not in done.stderr, done.stderr


def test_a_forked_child_does_not_wait_for_threads_of_its_parent() -> None:
    program = """
import os, sys, threading, time, tcpx
from conftest import connect_pair
pair = connect_pair(timeout=20.0)
threading.Thread(target=pair.near.accept, daemon=True).start()
pending = pair.there.recv_async(bytearray(5))
threading.Thread(target=pending.wait, daemon=True).start()
time.sleep(0.2)
child = os.fork()
if child == 0:
    pair.near.close()
    pair.far.close()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""
    # Several at once, whose threads are held up at any place, with a mutex locked, too.
    with ThreadPoolExecutor(10) as pool:
        for done in pool.map(run, [program] * 10):
            assert done.stdout == "7\n", done.stderr


def test_a_forked_child_tells_no_lines_of_its_parent() -> None:
    program = """
import logging, os, threading, warnings, tcpx
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads, which is what this is about
begun, go = threading.Event(), threading.Event()
class Slow(logging.Handler):
    def emit(self, record):
        begun.set()
        go.wait(20)
logging.getLogger("tcpx").addHandler(Slow())
logging.getLogger("tcpx").setLevel(logging.INFO)
one = tcpx.Endpoint(listen="127.0.0.1")
assert begun.wait(20)
two = tcpx.Endpoint(listen="127.0.0.1")
one.connect(two.metadata) if two.accept_all() is None else None
child = os.fork()
if child == 0: os._exit(0)
os.waitpid(child, 0)
go.set()
"""
    done = run(program)
    assert done.returncode == 0 and done.stderr == ""


def test_a_handler_that_raises_gets_the_next_line() -> None:
    program = """
import logging, os, threading
os.environ["UCCL_TCPX_LOG_LEVEL"] = "info"
import tcpx
from conftest import connect_pair
lines, enough = [], threading.Event()
class Bad(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())
        if len(lines) > 1: enough.set()
        raise RuntimeError("no")
logging.getLogger("tcpx").addHandler(Bad())
logging.getLogger("tcpx").setLevel(logging.INFO)
pair = connect_pair()
assert enough.wait(20)
"""
    done = run(program)
    assert done.returncode == 0 and "RuntimeError: no" in done.stderr


def test_python_objects_are_no_bytes(pair: Pair) -> None:
    things = np.array([object(), None])
    pointers = (ctypes.py_object * 2)()
    for thing in (things, memoryview(things), np.zeros(2, [("a", "O"), ("b", "i4")]), pointers):
        for call in (pair.there.send, pair.there.recv, pair.near.advertise):
            with pytest.raises(tcpx.InvalidArgument, match="Python objects"):
                call(thing)
    assert tcpx.buffers.extent_of(memoryview(np.zeros(2, [("O", "i4")]))).nbytes == 8


def test_a_number_is_no_message(pair: Pair) -> None:
    for thing in (3, 1 << 40, "text", None):
        with pytest.raises(TypeError):
            pair.there.notify(thing)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            pair.near.connect(thing)  # type: ignore[arg-type]


def test_times_beyond_all_numbers(pair: Pair) -> None:
    for endless in (1e300, float("inf")):
        tcpx.Endpoint(listen="127.0.0.1", timeout=endless).close()
        pair.there.send(b"x", timeout=endless)
        pair.back.recv(bytearray(1), timeout=endless)
    for bad in (-1.0, float("nan")):
        with pytest.raises(tcpx.InvalidArgument, match="timeout"):
            tcpx.Endpoint(listen="127.0.0.1", timeout=bad)


def test_ctrl_c_ends_a_connect() -> None:
    program = """
import socket, time, tcpx
from concurrent.futures import ThreadPoolExecutor
ep = tcpx.Endpoint(listen="127.0.0.1")
other = tcpx.Endpoint(listen="127.0.0.1")
metadata = other.metadata
other.close()  # nobody listens there any more: connecting is tried again and again
print("ready", flush=True)
begin = time.monotonic()
try:
    ep.connect(metadata, timeout=60)
except KeyboardInterrupt:
    ep.close()
    print("interrupted" if time.monotonic() - begin < 20 else "late", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "ready\n"
        time.sleep(0.3)
        other.send_signal(signal.SIGINT)
        assert other.stdout.readline() == "interrupted\n"
        assert other.wait(20) == 0


def test_a_short_operation_is_awaited_without_the_descriptor(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is how machines with cores to spare do it."""
    from tcpx import operation

    monkeypatch.setattr(operation, "SPIN_SECONDS", 10.0)
    source, target = np.ones(1000, np.uint8), np.zeros(1000, np.uint8)
    slot = pair.far.advertise(target)

    async def work() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        await asyncio.gather(*(pair.there.write_async(source, slot) for _ in range(20)))
        given_up = asyncio.ensure_future(asyncio.wait_for(pair.back.recv_async(bytearray(1)), 0.05))
        with pytest.raises(asyncio.TimeoutError):
            await given_up
        counting.cancel()
        return turns

    assert asyncio.run(work()) > 1, "other tasks go on"
    assert (target == source).all()


def test_a_close_ends_a_connect_of_another_thread() -> None:
    endpoint, other = tcpx.Endpoint(listen="127.0.0.1"), tcpx.Endpoint(listen="127.0.0.1")
    metadata = other.metadata
    other.close()  # connecting is tried again and again
    answers: list[BaseException] = []

    def connect() -> None:
        try:
            endpoint.connect(metadata, timeout=60)
        except BaseException as error:
            answers.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    time.sleep(0.2)
    endpoint.close()
    thread.join(20)
    assert [type(one) for one in answers] == [tcpx.Cancelled]
