"""Bytes that move by every call and in every manner, compared with numpy's."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest

import tcpx
from conftest import Pair

LENGTHS = [1, 8, 4096, 16385, 3 << 20]


def some_bytes(nbytes: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


@pytest.mark.parametrize("nbytes", LENGTHS)
def test_write_and_read(pair: Pair, nbytes: int) -> None:
    source, target = some_bytes(nbytes), np.zeros(nbytes, np.uint8)
    slot = pair.far.advertise(target)
    pair.there.write(source, slot, notify=b"written")
    assert (target == source).all()
    assert [(n.data, n.connection) for n in pair.far.notifications(5)] == [(b"written", pair.back.id)]
    again = np.zeros(nbytes, np.uint8)
    pair.there.read(again, slot, notify=b"read")
    assert (again == source).all()
    assert [n.data for n in pair.far.notifications(5)] == [b"read"]


@pytest.mark.parametrize("nbytes", LENGTHS)
def test_send_and_recv(pair: Pair, nbytes: int) -> None:
    source, target = some_bytes(nbytes), np.zeros(nbytes, np.uint8)
    receiving = pair.back.recv_async(target)
    pair.there.send(source)
    receiving.wait(10)
    assert receiving.done() and receiving.error() is None
    assert (target == source).all()


def test_lists_are_moved_as_one(pair: Pair) -> None:
    sources = [some_bytes(n, n) for n in (5, 0, 70000, 3)]
    targets = [np.zeros(n, np.uint8) for n in (5, 0, 70000, 3)]
    pair.there.write(sources, [pair.far.advertise(one) if one.nbytes else one_byte_slot(pair) for one in targets])
    for source, target in zip(sources, targets):
        assert (source == target).all()
    joined = np.zeros(70008, np.uint8)
    receiving = pair.back.recv_async([joined[:10], joined[10:]])
    pair.there.send(sources)
    receiving.wait(10)
    assert (joined == np.concatenate(sources)).all()


def one_byte_slot(pair: Pair) -> tcpx.Slot:
    return pair.far.advertise(bytearray(1))


def test_nothing_is_moved_as_well(pair: Pair) -> None:
    receiving = pair.back.recv_async(np.zeros(0))
    pair.there.send(b"")
    receiving.wait(10)


def test_rows_and_bytes_of_a_slot(pair: Pair) -> None:
    target = np.zeros((8, 3, 5), np.float32)
    slot = pair.far.advertise(target)
    rows = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
    pair.there.write(rows, slot[2:4])
    pair.there.write(rows[1][1], slot[-1][2])
    pair.there.write(b"\x7f", slot.bytes(3, 4))
    expected = np.zeros((8, 3, 5), np.float32)
    expected[2:4] = rows
    expected[7][2] = rows[1][1]
    expected.view(np.uint8).reshape(-1)[3] = 0x7F
    assert (target == expected).all()


def test_awaited(pair: Pair) -> None:
    source, target = some_bytes(1 << 20), np.zeros(1 << 20, np.uint8)
    slot = pair.far.advertise(target)

    async def work() -> None:
        await pair.there.write_async(source, slot)
        assert (target == source).all()
        pieces = [np.zeros(1000, np.uint8) for _ in range(200)]
        receiving = [pair.back.recv_async(piece) for piece in pieces]
        sending = [pair.there.send_async(source[i * 1000 : i * 1000 + 1000]) for i in range(200)]
        await asyncio.gather(*receiving, *sending)
        for i, piece in enumerate(pieces):
            assert (piece == source[i * 1000 : i * 1000 + 1000]).all()

    asyncio.run(asyncio.wait_for(work(), 30))
    asyncio.run(asyncio.wait_for(work(), 30))  # in another loop


def test_loops_of_several_threads(pair: Pair) -> None:
    failures: list[BaseException] = []

    def one(number: int) -> None:
        source, target = some_bytes(5000, number), np.zeros(5000, np.uint8)
        slot = pair.far.advertise(target)

        async def work() -> None:
            for _ in range(50):
                target[:] = 0
                await pair.there.write_async(source, slot)
                assert (target == source).all()

        try:
            asyncio.run(asyncio.wait_for(work(), 30))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_several_threads_wait_for_one_operation(pair: Pair) -> None:
    target = np.zeros(8, np.uint8)
    receiving = pair.back.recv_async(target)
    answers: list[object] = []
    threads = [threading.Thread(target=lambda: answers.append(receiving.wait(10))) for _ in range(4)]
    for thread in threads:
        thread.start()
    pair.there.send(b"12345678")
    for thread in threads:
        thread.join()
    assert answers == [None] * 4 and bytes(target) == b"12345678"


def test_a_cancelled_task_cancels_its_operation(pair: Pair) -> None:
    async def work() -> tcpx.Operation:
        operation = pair.back.recv_async(bytearray(10))
        task = asyncio.ensure_future(wait_for(operation))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return operation

    async def wait_for(operation: tcpx.Operation) -> None:
        await operation

    operation = asyncio.run(work())
    with pytest.raises(tcpx.Cancelled):
        operation.wait(10)


def test_connections_come_to_an_asynchronous_server() -> None:
    async def work() -> None:
        with tcpx.Endpoint(listen="127.0.0.1") as server:
            greeted: list[bytes] = []

            async def serve() -> None:
                async for connection in server.connections():
                    data = bytearray(5)
                    await connection.recv_async(data)
                    greeted.append(bytes(data))
                    if len(greeted) == 3:
                        return

            serving = asyncio.ensure_future(serve())
            clients = [tcpx.Endpoint(listen="127.0.0.1") for _ in range(3)]
            for i, client in enumerate(clients):
                connection = await client.connect_async(server.metadata)
                await connection.send_async(b"call%d" % i)
            await asyncio.wait_for(serving, 20)
            assert sorted(greeted) == [b"call0", b"call1", b"call2"]
            for client in clients:
                client.close()

    asyncio.run(work())


def test_notifications_are_awaited(pair: Pair) -> None:
    async def work() -> list[tcpx.Notification]:
        waiting = asyncio.ensure_future(pair.far.notifications_async())
        await asyncio.sleep(0.02)
        pair.there.notify(b"x" * (1 << 20), name="big")
        return await asyncio.wait_for(waiting, 20)

    (found,) = asyncio.run(work())
    assert (found.name, found.data) == ("big", b"x" * (1 << 20))


def test_slots_travel_over_a_connection(pair: Pair) -> None:
    target = np.zeros((4, 4), np.float32)
    shipping = threading.Thread(target=lambda: pair.back.send_slot(pair.far.advertise(target)[1:3]))
    kept = pair.far.advertise(target)
    shipping.start()
    slot = pair.there.recv_slot(10)
    shipping.join()
    assert slot.shape == (2, 4) and kept.shape == (4, 4)
    pair.there.write(np.ones((2, 4), np.float32), slot)
    assert target.sum() == 8 and (target[1:3] == 1).all()


def test_a_timeout_is_kept(pair: Pair) -> None:
    begin = time.monotonic()
    with pytest.raises(tcpx.Timeout) as raised:
        pair.there.recv(bytearray(1), timeout=0.2)
    assert time.monotonic() - begin >= 0.2
    assert raised.value.code == "TCPX_E_TIMEOUT" and raised.value.anchor == "docs/troubleshooting.md#TCPX_E_TIMEOUT"
    assert isinstance(raised.value, TimeoutError) and "/troubleshooting.md#TCPX_E_TIMEOUT" in raised.value.help
    pending = pair.there.recv_async(bytearray(1))
    with pytest.raises(tcpx.Timeout):
        pending.wait(0.05)
    assert not pending.done()
    pending.cancel()
    with pytest.raises(tcpx.Cancelled):
        pending.wait(10)


def test_stats_and_records_tell_what_moved(pair: Pair) -> None:
    slot = pair.far.advertise(np.zeros(1 << 20, np.uint8))
    pair.there.write(np.ones(1 << 20, np.uint8), slot)
    (connection,) = tcpx.stats(pair.near)["connections"]  # type: ignore[misc]
    assert connection["bytes_sent"] == 1 << 20 and connection["operations_done"] == 1
    over_nics = sum(nic["bytes_sent"] for nic in connection["nics"])
    assert over_nics == 0 if "; same process" in connection["path"] else over_nics >= 1 << 20
    assert "connection" in pair.near.flight_record()


def test_ends_that_name_other_sizes(pair: Pair) -> None:
    receiving = pair.back.recv_async(np.zeros(5, np.float64))
    with pytest.raises(tcpx.Mismatch):
        pair.there.send(np.zeros(100_000, np.float32))
    with pytest.raises(tcpx.Mismatch):
        receiving.wait(10)
