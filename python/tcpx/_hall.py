"""Where the connections of a group come in, and the two ends of each pair agree which one is theirs."""

from __future__ import annotations

import hashlib
import struct
import threading
import time

from .connection import Connection
from .endpoint import Endpoint
from .errors import Cancelled, Error, Mismatch, Timeout

__all__ = ["Hall", "digest_of"]

#: The first bytes on a connection: the rank that makes it, among how many, a checksum of the group's name, and a digest of the
#: metadata of that rank's endpoint, which tells a process from a later one under its rank.
_HELLO = struct.Struct("<8sIII16s")
_MAGIC = b"TCPXJOIN"
_ADOPTED, _MAKING_MINE, _REFUSED = range(3)
#: Seconds: for how long one look for clients takes, and how long one may take to say who it is.
_SLICE, _HELLO_TIMEOUT = 0.2, 10.0


def digest_of(metadata: bytes) -> bytes:
    """Tells a process from a later one under its rank."""
    return hashlib.sha256(metadata).digest()[:16]


class Hall:
    """The connections of a group, by rank. Its threads do not know the group, so that can be dropped without `close`.

    Below `lock`: of, the connections; ranks, by `Connection.id`; making, those that a thread of this process is connecting to;
    met, digests of those that were connected last; dropped, of those that were given up.
    """

    def __init__(self, endpoint: Endpoint, rank: int, world_size: int, checksum: int) -> None:
        self.lock = threading.Condition()
        self.of: dict[int, Connection] = {}
        self.ranks: dict[int, int] = {}
        self.making: set[int] = set()
        self.met: dict[int, bytes] = {}  # digests, of those that a rank's connection was made with last
        self.dropped: dict[int, bytes] = {}
        self._endpoint = endpoint
        self._rank = rank
        self._world_size = world_size
        self._checksum = checksum
        self._closing = False
        self._greeting: dict[threading.Thread, Connection] = {}
        self._thread = threading.Thread(target=self._accept, name="tcpx-rendezvous", daemon=True)
        self._thread.start()

    def introduce(self, connection: Connection, rank: int, digest: bytes, deadline: float) -> Connection:
        """Says who connects. The connection of the pair is this one, or that which the other end is making already."""
        hello = _HELLO.pack(_MAGIC, self._rank, self._world_size, self._checksum, digest_of(self._endpoint.metadata))
        left = max(deadline - time.monotonic(), 0.001)
        connection.send(hello, timeout=left)
        answer = bytearray(1)
        connection.recv(answer, timeout=left)
        if answer[0] == _REFUSED:
            connection.close()
            text = f"rank {rank} belongs to another group, or has dropped this one"
            raise Mismatch(f"{Mismatch.code}: rendezvous: {text}", "", "rendezvous", text)
        if answer[0] == _ADOPTED:
            self._adopt(connection, rank, digest)
            return connection
        with self.lock:
            if not self.lock.wait_for(lambda: rank in self.of, max(0.0, deadline - time.monotonic())):
                raise Timeout(f"{Timeout.code}: rendezvous: rank {rank} did not connect", "", "rendezvous")
            chosen = self.of[rank]
        connection.close()
        return chosen

    def _adopt(self, connection: Connection, rank: int, digest: bytes) -> None:
        with self.lock:
            self.met[rank] = digest
            self.of[rank] = connection
            self.ranks[connection.id] = rank
            self.lock.notify_all()

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection = self._endpoint.accept(_SLICE)
            except Timeout:
                continue
            except Cancelled:
                return
            guest = threading.Thread(target=self._greet, args=(connection,), name="tcpx-greet", daemon=True)
            with self.lock:
                self._greeting = {one: its for one, its in self._greeting.items() if one.is_alive()}
                self._greeting[guest] = connection
                guest.start()

    def _greet(self, connection: Connection) -> None:
        hello = bytearray(_HELLO.size)
        try:
            connection.recv(hello, timeout=_HELLO_TIMEOUT)
            magic, rank, world_size, checksum, digest = _HELLO.unpack(hello)
            ours = (_MAGIC, self._world_size, self._checksum)
            with self.lock:
                mine = rank in self.making or (rank in self.of and self.met[rank] == digest)
                if (magic, world_size, checksum) != ours or not self._rank != rank < world_size:
                    answer = _REFUSED
                elif self.dropped.get(rank) == digest:
                    answer = _REFUSED
                elif mine and self._rank < rank:
                    answer = _MAKING_MINE  # both connect at the same time: the lower rank's is taken
                else:
                    answer = _ADOPTED
                said = connection.send_async(bytes([answer]))  # before anybody else here can use the connection
                if answer == _ADOPTED:
                    self._adopt(connection, rank, digest)
            said.wait()
        except Error:
            pass  # whoever came has gone, or is none of us; the endpoint has logged it

    def close(self) -> None:
        """Ends the threads: they must not outlive the interpreter."""
        self._closing = True
        self._thread.join()
        with self.lock:
            guests = list(self._greeting)
            connections = [*self.of.values(), *(its for one, its in self._greeting.items() if one.is_alive())]
            self.of.clear()
        for connection in connections:
            try:
                connection.close()
            except Error:
                pass  # the endpoint is closed
        for guest in guests:
            guest.join()
