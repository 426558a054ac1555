"""Rendezvous: connections by rank, between processes that share a key-value store.

    group = tcpx.rendezvous.join()                                  # under torchrun: nothing needs to be given
    group = tcpx.rendezvous.join(rank=0, world_size=2, store=redis.Redis())
    group.connection(1).write(x, slot)

Any store with `set` and `get` will do: torch's TCPStore and FileStore, a redis or etcd client. It holds one key for each rank,
with the metadata of its endpoint and a random number, and nothing else travels through it.

The newest process of a rank is the rank: that whose record the store holds. A connection is a rank's when it has named that record,
which a stranger who cannot read the store cannot do; one that is in use is ended only by such a one. An older process that lives on
is not let in, and is told so.
"""

from __future__ import annotations

import base64
import secrets
import threading
import time
import weakref
import zlib
from typing import Any

from ._hall import Hall
from ._store import KeyValue, of_environment, of_torchrun
from .endpoint import Connection, Endpoint
from .errors import Cancelled, Error, PeerGone, Protocol, Timeout, invalid

__all__ = ["Group", "join"]

#: Seconds for which the first attempt to connect to a rank may take, each later one twice as long, and between attempts.
_FIRST_ATTEMPT = 1.0
_PAUSE = 0.05


def join(
    endpoint: Endpoint | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    store: Any = None,
    name: str = "tcpx",
    gpu: int | None = None,
    timeout: float = 60.0,
) -> Group:
    """Joins the processes of a job. Does not wait for the others: `Group.connection` does, for the one it needs.

    endpoint: default: a new one, which `Group.close` closes. The group accepts all connections to it.
    rank, world_size: this process's number, and how many there are. Default: RANK and WORLD_SIZE of torchrun.
    store: anything with `set` and `get`. Default: torchrun's. It is used by the threads that make and accept connections, too.
    name: the keys begin with it. Jobs, and groups of a job, that share a store need different ones; what an earlier run has left
        under the same name is noticed, because its endpoints are gone, and waited over.
    gpu: of a new endpoint. Default: LOCAL_RANK where torch has CUDA, else 0.
    timeout: seconds, for everything that is waited for.
    """
    rank = of_environment("RANK") if rank is None else rank
    world_size = of_environment("WORLD_SIZE") if world_size is None else world_size
    if not 0 <= rank < world_size:
        raise invalid("join", f"rank {rank} of {world_size}")
    prefix = name
    if store is None:
        store, job = of_torchrun(timeout)
        prefix = f"{name}/{job}"
    gpu = _gpu_of_rank() if gpu is None else gpu
    own = endpoint is None
    return Group(endpoint or Endpoint(gpu), own, gpu, rank, world_size, KeyValue(store, prefix), timeout)


def _gpu_of_rank() -> int:
    try:
        local_rank = of_environment("LOCAL_RANK")  # first: where it is not set, a second for torch would be spent for nothing
        import torch

        return local_rank % torch.cuda.device_count() if torch.cuda.is_available() else 0
    except (ImportError, Error):
        return 0


class Group:
    """The processes of a job, by rank. Made by `join`. Any thread.

    rank, world_size: this process's number, and how many there are. endpoint: the one whose connections these are.
    """

    def __init__(
        self, endpoint: Endpoint, own: bool, gpu: int, rank: int, world_size: int, store: KeyValue, timeout: float
    ) -> None:
        self.endpoint = endpoint
        self.gpu = gpu
        self.rank = rank
        self.world_size = world_size
        self.store = store
        self.timeout = timeout
        self._own = own
        self._parts: dict[str, Group] = {}
        self._parts_lock = threading.Lock()
        record = f"{base64.b64encode(endpoint.metadata).decode()}.{secrets.token_hex(16)}"
        self._hall = Hall(endpoint, store, record, rank, world_size, zlib.crc32(store.prefix.encode()))
        self._end = weakref.finalize(self, self._hall.close)  # at the interpreter's end before the endpoint's
        store.set(str(rank), record)

    def connection(self, rank: int, timeout: float | None = None) -> Connection:
        """The connection to a rank: one for each pair, whichever end asked first; made at the first call.

        Waits until that rank has joined. Raises `tcpx.Timeout`, which names the rank or its key, or `tcpx.PeerGone`.
        """
        if not 0 <= rank < self.world_size or rank == self.rank:
            raise invalid("connection", f"rank {rank} for rank {self.rank} of {self.world_size}")
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        with self._hall.lock:
            while True:
                if rank in self._hall.of:
                    return self._hall.of[rank]
                if rank not in self._hall.making:
                    self._hall.making[rank] = ""  # no record yet
                    break
                if not self._hall.lock.wait(max(0.0, deadline - time.monotonic())):
                    raise Timeout(f"{Timeout.code}: rendezvous: rank {rank}: another thread is connecting", "", "rendezvous")
        try:
            return self._make(rank, deadline)
        finally:
            with self._hall.lock:
                del self._hall.making[rank]
                self._hall.lock.notify_all()

    def _make(self, rank: int, deadline: float) -> Connection:
        attempt = _FIRST_ATTEMPT
        why: PeerGone | Timeout | None = None  # says more than that the last attempt came too late
        while True:
            left = max(0.0, deadline - time.monotonic())
            record = self.store.wait(str(rank), left, f"rank {rank}", lambda one: not self._is_dropped(rank, one))
            with self._hall.lock:
                if rank in self._hall.of:  # it has connected meanwhile
                    return self._hall.of[rank]
                self._hall.making[rank] = record
            try:
                connection = self.endpoint.connect(_metadata_of(rank, record), min(max(left, 0.001), attempt))
                return self._hall.introduce(connection, rank, record, deadline)
            except (PeerGone, Timeout) as error:
                # Metadata of an earlier run may lie there until that rank has joined this one: so it is looked for again.
                if self.is_replaced():
                    text = f"another process has joined as rank {self.rank}, in the place of this one"
                    raise Cancelled(f"{Cancelled.code}: rendezvous: {text}", "", "rendezvous", text) from error
                if why is None or isinstance(error, PeerGone):
                    why = error
                if time.monotonic() >= deadline:
                    text = f"{why.code}: rendezvous: rank {rank}: {why}"
                    raise type(why)(text, why.help, "rendezvous", f"rank {rank}: {why.detail}") from error
            attempt *= 2
            time.sleep(_PAUSE)

    def _is_dropped(self, rank: int, record: str) -> bool:
        with self._hall.lock:
            return self._hall.met.get(rank) == record and rank not in self._hall.of

    def rank_of(self, connection: int) -> int | None:
        """The rank at the other end of a connection with that `Connection.id`; None for others, also for what was a rank's once."""
        with self._hall.lock:
            return self._hall.ranks.get(connection)

    def connected(self) -> dict[int, Connection]:
        """The connections that ranks have now, by rank; their other ends may be gone."""
        with self._hall.lock:
            return dict(self._hall.of)

    def drop(self, rank: int, connection: Connection | None = None) -> None:
        """Ends the connection to a rank, for good: only a process that joins anew as that rank can be connected to.

        connection: only if it is still the rank's, and not that of a process which has joined anew.
        """
        record = self.store.look(str(rank)) if connection is None else None
        with self._hall.lock:
            if connection is not None and self._hall.of.get(rank) is not connection:
                return
            if record is not None:
                self._hall.met.setdefault(rank, record)
            dropped = self._hall.take(rank)
        if dropped is not None:
            dropped.close()

    def joined_anew(self, rank: int) -> bool:
        """Whether another process has joined as a rank that was dropped, or is connected. Does not wait."""
        record = self.store.look(str(rank))
        with self._hall.lock:
            return record is not None and record != self._hall.met.get(rank)

    def renew(self, rank: int) -> bool:
        """Drops the process that is connected as a rank if another has joined in its place. False: nobody is to be connected to,
        because the process that was dropped is still the newest. Does not wait."""
        while True:
            with self._hall.lock:
                met = self._hall.met.get(rank)
            record = self.store.look(str(rank))
            with self._hall.lock:
                if self._hall.met.get(rank) != met:
                    continue  # it has connected meanwhile
                if met is None or record is None or record == met:
                    return met is None or rank in self._hall.of
                dropped = self._hall.take(rank)
            if dropped is not None:
                dropped.close()
            return True

    def is_replaced(self) -> bool:
        """Whether another process has joined under this one's rank: that one is the rank now."""
        return self.store.look(str(self.rank)) not in (None, self._hall.record)

    def part(self, name: str) -> Group:
        """A group of the same ranks for a purpose of its own: with its own endpoint, so that notifications do not mix.

        Made at the first call, and closed with this one.
        """
        with self._parts_lock:
            if name not in self._parts:
                below = self.store.below(name)
                self._parts[name] = Group(
                    Endpoint(self.gpu), True, self.gpu, self.rank, self.world_size, below, self.timeout
                )
            return self._parts[name]

    def close(self) -> None:
        """Ends the group, and its endpoint unless that was given to `join`."""
        for part in self._parts.values():
            part.close()
        self._end()
        if self._own:
            self.endpoint.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tcpx.rendezvous.Group rank {self.rank} of {self.world_size}>"


def _metadata_of(rank: int, record: str) -> bytes:
    try:
        return base64.b64decode(record.partition(".")[0], validate=True)
    except ValueError as error:
        text = f"the record of rank {rank} in the store: {error}"
        raise Protocol(f"{Protocol.code}: rendezvous: {text}", "", "rendezvous", text) from None
