"""The two ends of a measured connection, for network_matrix.py, which starts each in a process and a network of its own:

    network_ends.py PEER DESCRIPTOR

PEER is a name in PEERS; calls come, and answers go, over the socket with that number, which is not of the measured network. An
answer is (True, what the call returned) or (False, why it failed).
"""

from __future__ import annotations

import collections
import os
import signal
import socket
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from network_mooncake import MooncakeEnd
from network_nixl import NixlEnd
from network_places import PATIENCE, End, at_once, content, pieces


_TENSORS = 16  # of a step of weights


class TcpxEnd(End):
    has_lists = True

    def __init__(self, sockets: int) -> None:
        super().__init__()
        import tcpx

        self.tcpx = tcpx
        self.endpoint = tcpx.Endpoint(timeout=PATIENCE)
        self.conns: list[Any] = []
        self.endpoints = [self.endpoint]  # of the client: one for each connection

    def address(self) -> bytes:
        return self.endpoint.metadata

    def accept(self, count: int) -> None:
        self.conns = [self.endpoint.accept(timeout=PATIENCE) for _ in range(count)]

    def connect(self, address: bytes, count: int) -> float:
        """From an endpoint each, for one endpoint has but one connection to another, which it keeps."""
        self.endpoints += [self.tcpx.Endpoint(timeout=PATIENCE) for _ in range(count - len(self.endpoints))]
        self.endpoint = self.endpoints[0]
        self.conns = [None] * count

        def one(i: int) -> None:
            self.conns[i] = self.endpoints[i].connect(address, timeout=PATIENCE)

        return at_once(count, one)

    def close(self) -> None:
        """Of the client; the server is told."""
        for endpoint in self.endpoints:
            endpoint.close()
        self.endpoints = []

    def allocate(self, count: int, nbytes: int) -> list[bytes]:
        super().allocate(count, nbytes)
        return [bytes(self.endpoint.advertise(place)) for place in self.places]

    def aim(self, there: list[bytes]) -> None:
        self.there = [self.tcpx.Slot.from_bytes(slot) for slot in there]

    def write_one(self, i: int) -> None:
        self.conns[0].write(self.places[i], self.there[i])

    def read_one(self, i: int) -> None:
        self.conns[0].read(self.places[i], self.there[i])

    def write_list_one(self, i: int) -> None:
        self.conns[0].write(*self.list_of(i))

    def read_list_one(self, i: int) -> None:
        self.conns[0].read(*self.list_of(i))

    def list_of(self, i: int) -> tuple[list[np.ndarray], list[Any]]:
        cuts = pieces(self.places[i].size)
        return [self.places[i][cut] for cut in cuts], [self.there[i].bytes(cut.start, cut.stop) for cut in cuts]

    def begin_write(self, i: int) -> Any:
        return self.conns[0].write_async(self.places[i], self.there[i])

    def write_over_each(self) -> None:
        """Every connection writes the place of its number."""
        for operation in [conn.write_async(*pair) for conn, *pair in zip(self.conns, self.places, self.there)]:
            operation.wait(PATIENCE)

    def read_over_each(self, pieces: int, warm_up: float, seconds: float) -> list[float]:
        """Every connection reads the first `pieces` places of the other end over and over, all at once, each into a place of its
        own. @return bytes in a second of each, after `warm_up`"""
        begin = time.perf_counter() + warm_up

        def one(i: int) -> float:
            conn, mine, nbytes = self.conns[i], self.places[i * pieces : (i + 1) * pieces], 0
            under_way = collections.deque((k, conn.read_async(mine[k], self.there[k])) for k in range(pieces))
            while under_way:
                k, operation = under_way.popleft()
                operation.wait(PATIENCE)
                now = time.perf_counter()
                if begin <= now < begin + seconds:
                    nbytes += mine[k].size
                if now < begin + seconds:
                    under_way.append((k, conn.read_async(mine[k], self.there[k])))
            return nbytes / seconds

        with ThreadPoolExecutor(len(self.conns)) as threads:
            return list(threads.map(one, range(len(self.conns))))

    def wrong_copies(self, seed: int, pieces: int) -> list[int]:
        """Which places are not what `read_over_each` brings."""
        return [i for i, place in enumerate(self.places) if not np.array_equal(place, content(place.size, seed + i % pieces))]

    def resident(self) -> int:
        """Bytes of this process in memory."""
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def post(self) -> None:
        """Receives for all places."""
        self.posted = [self.conns[0].recv_async(place) for place in self.places]

    def answer(self, count: int) -> None:
        """Sends back what has come into the posted receives, one after the other."""
        for place, operation in list(zip(self.places, self.posted))[:count]:
            operation.wait(PATIENCE)
            self.conns[0].send(place)

    def there_and_back(self, seed: int, count: int) -> list[float]:
        sources = [content(place.size, seed + i) for i, place in enumerate(self.places[:count])]
        times = []
        for source, operation in zip(sources, self.posted):
            before = time.perf_counter()
            sent = self.conns[0].send_async(source)
            operation.wait(PATIENCE)
            times.append(time.perf_counter() - before)
            sent.wait(PATIENCE)
        return times

    def weights_steps(self, path: str, rank: int, pause: float) -> list[tuple[float, float]]:
        """Broadcasts every place, cut into tensors, from rank 0 to rank 1, which meet in that folder. The receiver calls before the
        source does, which pauses between steps. @return when each step began and ended, by the clock of both ends"""
        import tcpx.rendezvous
        import tcpx.weights
        from broadcast import DirectoryStore

        times = []
        with tcpx.rendezvous.join(rank=rank, world_size=2, store=DirectoryStore(path), timeout=PATIENCE) as group:
            for place in self.places:
                state = {f"tensor.{i}": tensor for i, tensor in enumerate(np.array_split(place, _TENSORS))}
                before = time.monotonic()
                tcpx.weights.broadcast(state, group=group, timeout=PATIENCE)
                times.append((before, time.monotonic()))
                if rank == 0:
                    time.sleep(pause)
        return times


_HEAD = struct.Struct("<cIQ")  # what to do; place; bytes of this socket's share
_SMALL = 64 * 1024             # what a single socket carries: cutting it gains nothing


def receive(sock: socket.socket, into: memoryview) -> None:
    while into:
        n = sock.recv_into(into)
        if n == 0:
            raise ConnectionError("the other end has closed")
        into = into[n:]


class PlainEnd(End):
    """As many TCP sockets as the connection of the others has for data. Long memory is cut into a share for each."""

    def __init__(self, sockets: int) -> None:
        super().__init__()
        self.count = sockets
        self.listener = socket.create_server(("0.0.0.0", 0), backlog=256)
        self.sockets: list[socket.socket] = []
        self.received = 0  # by streams, of all sockets
        self.lock = threading.Lock()

    def address(self) -> tuple[str, int]:
        return "10.77.9.2", self.listener.getsockname()[1]

    def accept(self, count: int) -> None:
        self.sockets = [self.listener.accept()[0] for _ in range(self.count * count)]
        for i, sock in enumerate(self.sockets):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(sock, i % self.count), daemon=True).start()

    def connect(self, address: tuple[str, int], count: int) -> float:
        self.sockets = [socket.socket() for _ in range(self.count * count)]

        def one(i: int) -> None:
            self.sockets[i].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets[i].settimeout(PATIENCE)
            self.sockets[i].connect(address)

        seconds = at_once(len(self.sockets), one)
        # The number of a socket is told, for accept gives them in any order.
        for i, sock in enumerate(self.sockets):
            sock.sendall(bytes([i % self.count]))
        self.threads = ThreadPoolExecutor(self.count)
        return seconds

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()
        self.sockets = []

    def shares(self, place: int) -> list[memoryview]:
        memory = memoryview(self.places[place])
        if len(memory) <= _SMALL:
            return [memory]
        cuts = [len(memory) * i // self.count for i in range(self.count + 1)]
        return [memory[a:b] for a, b in zip(cuts, cuts[1:])]

    def serve(self, sock: socket.socket, idx: int) -> None:
        try:
            idx = sock.recv(1)[0]
            head = bytearray(_HEAD.size)
            while True:
                receive(sock, memoryview(head))
                what, place, nbytes = _HEAD.unpack(head)
                if what == b"S":
                    self.serve_stream(sock, self.places[place])
                    continue
                share = self.shares(place)[idx]
                assert len(share) == nbytes
                if what != b"R":
                    receive(sock, share)
                sock.sendall(b"k" if what == b"W" else share)
        except (OSError, IndexError):
            pass  # closed

    def serve_stream(self, sock: socket.socket, place: np.ndarray) -> None:
        """Pieces, each behind a byte that says that there is one."""
        piece, more = memoryview(place), bytearray(1)
        while True:
            receive(sock, memoryview(more))
            if not more[0]:
                break
            at = 0
            while at < len(piece):
                n = sock.recv_into(piece[at:])
                if n == 0:
                    return
                at += n
                with self.lock:
                    self.received += n
        sock.sendall(b"k")

    def received_so_far(self) -> tuple[float, int]:
        with self.lock:
            return time.monotonic(), self.received

    def streamed(self) -> int:
        return self.count

    def on_shares(self, what: bytes, place: int, send: bool, back: int) -> None:
        """One message on each socket. back: 0 for a byte, 1 for the share."""

        def one(i: int) -> None:
            sock, share = self.sockets[i], shares[i]
            head = _HEAD.pack(what, place, len(share))
            if send:
                sock.sendmsg([head, share[:_SMALL]])
                sock.sendall(share[_SMALL:])
            else:
                sock.sendall(head)
            receive(sock, share if back else memoryview(bytearray(1)))

        shares = self.shares(place)
        if len(shares) == 1:
            one(0)
        else:
            list(self.threads.map(one, range(len(shares))))

    def write_one(self, i: int) -> None:
        self.on_shares(b"W", i, True, 0)

    def read_one(self, i: int) -> None:
        self.on_shares(b"R", i, False, 1)

    def write_over_each(self) -> None:
        """The first socket of every connection writes the place of its number."""
        for i, place in enumerate(self.places):
            first = self.sockets[i * self.count]
            first.sendmsg([_HEAD.pack(b"W", i, place.size), place])
            receive(first, memoryview(bytearray(1)))

    def post(self) -> None:
        pass

    def answer(self, count: int) -> None:
        pass

    def there_and_back(self, seed: int, count: int) -> list[float]:
        times = []
        for i in range(count):
            self.places[i][:] = content(self.places[i].size, seed + i)
            before = time.perf_counter()
            self.on_shares(b"E", i, True, 1)
            times.append(time.perf_counter() - before)
        return times

    def stream(self, warm_up: float, seconds: float) -> None:
        """Every socket sends its place, over and over. The other end counts: here, the kernel takes more than has gone."""
        end = time.monotonic() + warm_up + seconds

        def one(i: int) -> None:
            sock, piece = self.sockets[i], memoryview(self.places[i])
            sock.sendall(_HEAD.pack(b"S", i, 0))
            while time.monotonic() < end:
                sock.sendall(b"\1")
                sock.sendall(piece)
            sock.sendall(b"\0")
            receive(sock, memoryview(bytearray(1)))

        list(self.threads.map(one, range(self.count)))


#: Ends by name, each a class that is made with the number of data sockets.
PEERS: dict[str, type[End]] = {"tcpx": TcpxEnd, "tcp": PlainEnd, "nixl-ucx": NixlEnd, "mooncake": MooncakeEnd}


def serve(pipe: Connection, peer: str) -> None:
    end: Any = None
    while True:
        name, arguments = pipe.recv()
        try:
            if name == "begin":
                end, answer = PEERS[peer](*arguments), None
            else:
                answer = getattr(end, name)(*arguments)
        except Exception as error:  # noqa: BLE001  (the parent decides)
            pipe.send((False, f"{type(error).__name__}: {error}"))
        else:
            pipe.send((True, answer))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, whose end closes the pipe
    try:
        serve(Connection(int(sys.argv[2])), sys.argv[1])
    except (EOFError, ConnectionError):
        os._exit(0)  # whatever still goes on


if __name__ == "__main__":
    main()
