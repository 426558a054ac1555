"""Where the connections of a group come in, and the two ends of each pair agree which one is theirs.

The newest record of the store is the rank. Whoever connects proves that it is the process which that record names: its hello is a
digest of its own record and of the one that it has connected to, which only those know who can read the store. A hello that proves
another record, or none, is refused, and the connection that the rank has stays as it is.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import struct
import threading
import time

from ._store import KeyValue
from .endpoint import Connection, Endpoint
from .errors import Cancelled, Error, Mismatch, PeerGone, Timeout

__all__ = ["Hall"]

#: The first bytes on a connection: the rank that makes it, among how many, a checksum of the group's name, and the proof.
_HELLO = struct.Struct("<8sIII16s")
_MAGIC = b"TCPXJOIN"
_ADOPTED, _MAKING_MINE, _REFUSED, _UNKNOWN = range(4)
#: Seconds: for how long one look for clients takes, for how long one may take to say who it is, or to answer that, and for how
#: long the connection that the other end is making is waited for before this end tries again.
_SLICE, _HELLO_TIMEOUT, _OTHERS_TIMEOUT = 0.2, 10.0, 2.0


def _proof(record: str, other: str) -> bytes:
    return hashlib.sha256(f"{record}\n{other}".encode()).digest()[:16]


class Hall:
    """The connections of a group, by rank. Its threads do not know the group, so that can be dropped without `close`.

    record: what the store holds of this process. Below `lock`: of, the connections; ranks, of those by `Connection.id`; making,
    the records that a thread of this process is connecting to; met, the record of the process that each rank was here last: when
    such a rank has no connection, that process was dropped, and is not let in again.
    """

    def __init__(self, endpoint: Endpoint, store: KeyValue, record: str, rank: int, world_size: int, checksum: int) -> None:
        self.lock = threading.Condition()
        self.of: dict[int, Connection] = {}
        self.ranks: dict[int, int] = {}
        self.making: dict[int, str] = {}
        self.met: dict[int, str] = {}
        self.record = record
        self._endpoint = endpoint
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._checksum = checksum
        self._closing = False
        self._greeting: dict[threading.Thread, Connection] = {}
        self._thread = threading.Thread(target=self._accept, name="tcpx-rendezvous", daemon=True)
        self._thread.start()

    def introduce(self, connection: Connection, rank: int, record: str, deadline: float) -> Connection:
        """Says who connects. The connection of the pair is this one, or that which the other end is making already."""
        chosen: Connection | None = None
        try:
            chosen = self._introduce(connection, rank, record, deadline)
            return chosen
        finally:
            if chosen is not connection:
                connection.close()

    def _introduce(self, connection: Connection, rank: int, record: str, deadline: float) -> Connection:
        hello = _HELLO.pack(_MAGIC, self._rank, self._world_size, self._checksum, _proof(self.record, record))
        left = min(max(deadline - time.monotonic(), 0.001), _HELLO_TIMEOUT)
        connection.send(hello, timeout=left)
        answer = bytearray(1)
        connection.recv(answer, timeout=left)
        if answer[0] == _ADOPTED:
            with self.lock:
                if rank not in self.of:
                    self._adopt(connection, rank, record)
                return self.of[rank]
        if answer[0] == _MAKING_MINE:
            with self.lock:
                left = min(max(deadline - time.monotonic(), 0.0), _OTHERS_TIMEOUT)
                if self.lock.wait_for(lambda: rank in self.of, left):
                    return self.of[rank]
            raise Timeout(f"{Timeout.code}: rendezvous: rank {rank} did not connect", "", "rendezvous")
        if answer[0] == _UNKNOWN:
            text = f"rank {rank} is another process now, or has not seen this one's record in the store"
            raise PeerGone(f"{PeerGone.code}: rendezvous: {text}", "", "rendezvous", text)
        text = f"rank {rank} belongs to another group, or has dropped this one"
        raise Mismatch(f"{Mismatch.code}: rendezvous: {text}", "", "rendezvous", text)

    def take(self, rank: int) -> Connection | None:
        """Takes out the connection of a rank. Below `lock`."""
        connection = self.of.pop(rank, None)
        if connection is not None:
            del self.ranks[connection.id]
        return connection

    def _adopt(self, connection: Connection, rank: int, record: str) -> Connection | None:
        """Returns the connection in whose place this one is, for its end. Below `lock`."""
        before = self.take(rank)
        self.met[rank] = record
        self.of[rank] = connection
        self.ranks[connection.id] = rank
        self.lock.notify_all()
        return before

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
        deadline = time.monotonic() + _HELLO_TIMEOUT
        adopted = False
        try:
            while not adopted:  # who is refused may try again: `Endpoint.connect` uses a connection that was closed again
                connection.recv(hello, timeout=max(deadline - time.monotonic(), 0.001))
                adopted = self._answer(connection, hello)
        except Error:
            pass  # whoever came has gone, or is none of us; the endpoint has logged it
        except Exception as error:  # of the store
            if not self._closing:
                logging.getLogger("tcpx").warning("rendezvous: a connection is refused: %r", error)
        finally:
            if not adopted:
                _close(connection)

    def _answer(self, connection: Connection, hello: bytearray) -> bool:
        """Returns whether the connection is that of its rank now."""
        magic, rank, world_size, checksum, proof = _HELLO.unpack(hello)
        if (magic, world_size, checksum) != (_MAGIC, self._world_size, self._checksum) or not self._rank != rank < world_size:
            connection.send(bytes([_REFUSED]), timeout=_HELLO_TIMEOUT)
            return False
        before: Connection | None = None
        while True:
            with self.lock:
                met = self.met.get(rank)
            record = self._store.look(str(rank))
            if record is None or not hmac.compare_digest(_proof(record, self.record), proof):
                connection.send(bytes([_UNKNOWN]), timeout=_HELLO_TIMEOUT)
                return False
            with self.lock:
                if self.met.get(rank) != met:
                    continue  # another process has come meanwhile, and may be newer than that record
                if met == record and rank not in self.of:
                    answer = _REFUSED
                elif self._rank < rank and (self.making.get(rank) == record or (met == record and rank in self.of)):
                    answer = _MAKING_MINE  # both connect at the same time: the lower rank's is taken
                else:
                    answer = _ADOPTED
                said = connection.send_async(bytes([answer]))  # before anybody else here can use the connection
                if answer == _ADOPTED:
                    before = self._adopt(connection, rank, record)
                break
        if before is not None:
            _close(before)
        said.wait()
        return answer == _ADOPTED

    def close(self) -> None:
        """Ends the threads: they must not outlive the interpreter."""
        self._closing = True
        self._thread.join()
        with self.lock:
            guests = list(self._greeting)
            connections = [*self.of.values(), *(its for one, its in self._greeting.items() if one.is_alive())]
            self.of.clear()
            self.ranks.clear()
        for connection in connections:
            _close(connection)
        for guest in guests:
            guest.join()


def _close(connection: Connection) -> None:
    try:
        connection.close()
    except Error:
        pass  # the endpoint is closed
