"""A server of one event loop, and clients that write to it and read from it.

    python3 examples/python/asyncio_server.py                       # both here, in one loop
    python3 examples/python/asyncio_server.py --serve 7000          # or the server alone
    python3 examples/python/asyncio_server.py --connect HOST:7000   # and the clients elsewhere

The server gives every client a buffer of its own, doubles what the client writes there, and says so; the client reads it back and
compares. One coroutine for each client, no thread, and nobody waits for anybody else.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import struct

import numpy as np

import tcpx

_COUNT = 1 << 18
#: Before anything else, and over plain TCP: the length of the server's metadata.
_LENGTH = struct.Struct("<I")


async def serve(endpoint: tcpx.Endpoint, clients: int) -> None:
    """Serves so many clients, each in a task of its own."""
    tasks = []
    async for connection in endpoint.connections():
        tasks.append(asyncio.create_task(serve_client(connection)))
        if len(tasks) == clients:
            break
    await asyncio.gather(*tasks)


async def serve_client(connection: tcpx.Connection) -> None:
    numbers = np.zeros(_COUNT, np.int64)
    await connection.send_async(bytes(connection.advertise(numbers)))
    word = bytearray(1)
    await connection.recv_async(word)  # the client has written
    numbers *= 2
    await connection.send_async(b"2")
    await connection.recv_async(word)  # and has read
    print(f"server: connection {connection.id} is served")


async def be_client(endpoint: tcpx.Endpoint, metadata: bytes, number: int) -> None:
    with await endpoint.connect_async(metadata) as connection:
        slot_bytes = bytearray(len(bytes(tcpx.Slot(bytes(64), 0, (_COUNT,), 8))))
        await connection.recv_async(slot_bytes)
        slot = tcpx.Slot.from_bytes(slot_bytes)
        mine, back = np.arange(_COUNT) + number, np.zeros(_COUNT, np.int64)
        await connection.write_async(mine, slot)
        await connection.send_async(b"1")
        await connection.recv_async(bytearray(1))
        await connection.read_async(back, slot)
        await connection.send_async(b"3")
    if not np.array_equal(back, 2 * (np.arange(_COUNT) + number)):
        raise SystemExit(f"client {number}: other numbers than the doubled ones")
    print(f"client {number}: {back.nbytes} bytes written, doubled, read back and compared")


async def hand_out(endpoint: tcpx.Endpoint, port: int) -> asyncio.Server:
    """Gives the metadata to whoever asks at a TCP port."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_LENGTH.pack(len(endpoint.metadata)) + endpoint.metadata)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "0.0.0.0", port)


def ask_for_metadata(address: str) -> bytes:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection, connection.makefile("rb") as stream:
        (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
        return stream.read(min(length, 4096))


async def run(options: argparse.Namespace) -> None:
    if options.connect:
        metadata = ask_for_metadata(options.connect)
        # An endpoint for each: they stand for as many processes.
        endpoints = [tcpx.Endpoint() for _ in range(options.clients)]
        await asyncio.gather(*(be_client(endpoint, metadata, i) for i, endpoint in enumerate(endpoints)))
        for endpoint in endpoints:
            endpoint.close()
        return
    with tcpx.Endpoint() as endpoint:
        if options.serve is not None:
            async with await hand_out(endpoint, options.serve) as asked:
                print(f"server: ask at TCP port {asked.sockets[0].getsockname()[1]}")
                await serve(endpoint, options.clients)
            return
        endpoints = [tcpx.Endpoint() for _ in range(options.clients)]
        clients = [be_client(one, endpoint.metadata, i) for i, one in enumerate(endpoints)]
        await asyncio.gather(serve(endpoint, options.clients), *clients)
        for one in endpoints:
            one.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=3)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--serve", type=int, metavar="PORT", help="be the server, and tell clients how to connect at this TCP port")
    where.add_argument("--connect", metavar="HOST:PORT", help="be the clients of that server")
    asyncio.run(asyncio.wait_for(run(parser.parse_args()), 120))


if __name__ == "__main__":
    main()
