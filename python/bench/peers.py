"""The share of a network that one endpoint and many peers get: the total beside that of one peer, each peer's share, and what slow ones cost.

    PYTHONPATH=build/release/python python3 python/bench/peers.py --peers 16 --direction in
    PYTHONPATH=build/release/python python3 python/bench/peers.py --peers 64 --direction out --json peers.json

The endpoint (the hub) and every peer are processes of their own, and go over TCP. `in`: every peer writes to the hub, as fast as
it can, with two writes under way (an incast). `out`: the hub writes to every peer, two under way to each. A run takes so many
seconds, in which each peer's writes are counted. One peer and all of them take turns. After each run all that arrived is compared
with what its writer made. Exit code 1: wrong bytes, or an end that failed.

    --slow 2 --netns far

puts so many peers more into a network namespace; runs of the others with and without them show what slow ones cost. As root, one
that is reached at 100 Mbit/s with a delay of 5 ms:

    ip netns add far && ip link add near0 type veth peer name far0 netns far
    ip addr add 10.77.9.1/24 dev near0 && ip link set near0 up
    ip -n far addr add 10.77.9.2/24 dev far0 && ip -n far link set far0 up && ip -n far link set lo up
    tc qdisc add dev near0 root netem rate 100mbit delay 5ms && tc -n far qdisc add dev far0 root netem rate 100mbit delay 5ms
    export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=near0,far0
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import ctypes
import itertools
import json
import math
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tcpx

_AHEAD = 2  # writes under way between the hub and a peer
_PATIENCE = 60.0
_CLONE_NEWNET = 0x40000000


class Memory:
    """Of the messages between the hub and one peer, at one of the two: a place for each that is under way."""

    def __init__(self, endpoint: tcpx.Endpoint, peer: int, nbytes: int) -> None:
        self.peer, self.places = peer, [np.zeros(nbytes, np.uint8) for _ in range(_AHEAD)]
        self.slots = [bytes(endpoint.advertise(place)) for place in self.places]

    def content(self, run: int, place: int) -> np.ndarray:
        return np.random.default_rng([self.peer, run, place]).integers(0, 256, self.places[place].size, np.uint8)

    def fill(self, run: int) -> None:
        for place, memory in enumerate(self.places):
            memory[:] = self.content(run, place)

    def is_right(self, run: int) -> bool:
        return all(np.array_equal(memory, self.content(run, place)) for place, memory in enumerate(self.places))


class Writer:
    """Writes of one memory over one connection, from each place in turn."""

    def __init__(self, conn: tcpx.Connection, memory: Memory, slots: Sequence[bytes]) -> None:
        self.conn, self.places, self.slots = conn, memory.places, [tcpx.Slot.from_bytes(slot) for slot in slots]

    async def write_until(self, end: float) -> int:
        """At least once from every place. @return how many writes had ended in time"""
        under_way: collections.deque[tcpx.Operation] = collections.deque()
        places = itertools.cycle(zip(self.places, self.slots))
        started = in_time = 0
        while True:
            while len(under_way) < _AHEAD and (started < _AHEAD or time.monotonic() < end):
                under_way.append(self.conn.write_async(*next(places), timeout=_PATIENCE))
                started += 1
            if not under_way:
                return in_time
            await under_way.popleft()
            in_time += time.monotonic() < end


async def write_all(writers: Sequence[Writer], end: float) -> list[int]:
    return await asyncio.gather(*(writer.write_until(end) for writer in writers))


class End:
    """The hub or a peer, in a process of its own. `call` runs these for the parent."""

    def __init__(self, netns: str, nbytes: int) -> None:
        if netns and ctypes.CDLL(None, use_errno=True).setns(os.open(f"/run/netns/{netns}", os.O_RDONLY), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), netns)
        self.endpoint = tcpx.Endpoint()
        self.nbytes = nbytes
        self.memory: list[Memory] = []  # by peer; a peer has one
        self.writers: list[Writer] = []

    def metadata(self) -> bytes:
        return self.endpoint.metadata

    def connect(self, metadata: bytes, peer: int) -> None:
        self.conns = [self.endpoint.connect(metadata, timeout=_PATIENCE)]
        self.memory = [Memory(self.endpoint, peer, self.nbytes)]

    def accept(self, peer: int) -> None:
        if peer == 0:
            self.conns = []
        self.conns.append(self.endpoint.accept(timeout=_PATIENCE))
        self.memory.append(Memory(self.endpoint, peer, self.nbytes))

    def slots(self) -> list[list[bytes]]:
        return [memory.slots for memory in self.memory]

    def aim(self, slots: list[list[bytes]]) -> None:
        self.writers = [Writer(*each) for each in zip(self.conns, self.memory, slots)]

    def fill(self, run: int) -> None:
        for memory in self.memory:
            memory.fill(run)

    def write(self, peers: int, begin: float, seconds: float) -> list[int]:
        time.sleep(max(0.0, begin - time.monotonic()))
        return asyncio.run(write_all(self.writers[:peers], begin + seconds))

    def wrong(self, run: int, peers: int) -> list[int]:
        return [memory.peer for memory in self.memory[:peers] if not memory.is_right(run)]


def serve(pipe: Any, netns: str, nbytes: int) -> None:
    end = End(netns, nbytes)
    while (call := pipe.recv()) is not None:
        name, arguments = call
        pipe.send(getattr(end, name)(*arguments))


class Process:
    """An `End` elsewhere. A `start` has one `finish`, which returns what the call returned."""

    def __init__(self, context: Any, netns: str, nbytes: int) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, netns, nbytes), daemon=True)
        self.process.start()
        theirs.close()

    def start(self, name: str, *arguments: Any) -> None:
        self.pipe.send((name, arguments))

    def finish(self, seconds: float = 0.0) -> Any:
        """`seconds`: what the call takes by itself."""
        if not self.pipe.poll(seconds + 2 * _PATIENCE):
            raise TimeoutError("an end does not answer")
        return self.pipe.recv()  # EOFError: it has ended, and has said why

    def call(self, name: str, *arguments: Any) -> Any:
        self.start(name, *arguments)
        return self.finish()

    def end(self) -> None:
        self.pipe.send(None)
        self.process.join()


class Cluster:
    def __init__(self, peers: int, slow: int, netns: str, nbytes: int, inwards: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.nbytes, self.inwards, self.runs = nbytes, inwards, 0
        self.hub = Process(context, "", nbytes)
        self.peers = [Process(context, netns if i >= peers or not slow else "", nbytes) for i in range(peers + slow)]
        metadata = self.hub.call("metadata")
        for i, peer in enumerate(self.peers):
            peer.start("connect", metadata, i)
            self.hub.call("accept", i)
            peer.finish()
        theirs = [peer.call("slots")[0] for peer in self.peers]
        for peer, slots in zip(self.peers, self.hub.call("slots")):
            peer.call("aim", [slots])
        self.hub.call("aim", theirs)

    def run(self, peers: int, seconds: float) -> list[float]:
        """Each peer's GB/s. Raises ValueError: wrong bytes."""
        self.runs += 1
        group = self.peers[:peers]
        writers, readers = (group, [self.hub]) if self.inwards else ([self.hub], group)
        for writer in writers:
            writer.call("fill", self.runs)
        begin = time.monotonic() + 0.1
        for writer in writers:
            writer.start("write", peers, begin, seconds)
        counts = [count for writer in writers for count in writer.finish(seconds)]
        if wrong := [peer for reader in readers for peer in reader.call("wrong", self.runs, peers)]:
            raise ValueError(f"run {self.runs}: wrong bytes between the hub and the peers {wrong}")
        return [count * self.nbytes / seconds / 1e9 for count in counts]

    def end(self) -> None:
        for process in [*self.peers, self.hub]:
            process.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=16, metavar="N", help="(default %(default)s)")
    parser.add_argument("--direction", choices=("in", "out"), default="in", help="as seen by the hub (default %(default)s)")
    parser.add_argument("--mib", type=float, default=4, metavar="N", help="of a write (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=1, metavar="N", help="of a run (default %(default)s)")
    parser.add_argument("--samples", type=int, default=5, metavar="N", help="runs of each kind (default %(default)s)")
    parser.add_argument("--slow", type=int, default=0, metavar="N", help="peers in --netns, beside the others (default none)")
    parser.add_argument("--netns", default="", metavar="NAME", help="network namespace of the slow peers, or of all where none is slow")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all numbers")
    given = parser.parse_args()
    if min(given.peers, given.samples) < 1 or given.slow < 0 or given.seconds <= 0 or (given.slow > 0 and not given.netns):
        parser.error("at least one peer, one sample and some time; slow ones are in a --netns")
    os.environ |= {"UCCL_TCPX_LOCAL": "off", "UCCL_TCPX_LOG_LEVEL": os.environ.get("UCCL_TCPX_LOG_LEVEL", "off")}

    cluster = Cluster(given.peers, given.slow, given.netns, int(given.mib * 2**20), given.direction == "in")
    kinds = sorted({1, given.peers, given.peers + given.slow})
    rates: dict[int, list[list[float]]] = {peers: [] for peers in kinds}
    for sample in range(given.samples + 1):
        for peers in kinds:
            measured = cluster.run(peers, given.seconds)
            if sample > 0:  # the first warms up
                rates[peers].append(measured)
        if sys.stderr.isatty():
            print(f"\r{sample} of {given.samples} samples", end="", file=sys.stderr, flush=True)
    cluster.end()

    report = {"machine": platform.platform(), "cores": len(os.sched_getaffinity(0)), "tcpx": tcpx.__version__,
              "direction": given.direction, "bytes": int(given.mib * 2**20), "seconds": given.seconds, "rates": rates}  # fmt: skip
    one = statistics.median(run[0] for run in rates[1]) or math.inf  # no write ended in its time
    print(f"{'peers':>12} {'GB/s':>18} {'of one peer':>12} {'least, most of an equal share':>30}")
    for peers, runs in rates.items():
        fast = [run[: given.peers] for run in runs]
        totals = [sum(run) for run in fast]
        shares = [rate * len(run) / (sum(run) or math.inf) for run in fast for rate in run]
        name = f"{given.peers} + {peers - given.peers} slow" if peers > given.peers else str(peers)
        print(f"{name:>12} {statistics.median(totals):6.2f} [{min(totals):.2f} .. {max(totals):.2f}] "
              f"{statistics.median(totals) / one:12.2f} {min(shares):22.2f}, {max(shares):.2f}")  # fmt: skip
    if given.slow:
        print(f"each slow one: {statistics.median(rate for run in runs for rate in run[given.peers:]):.4f} GB/s")
    if given.json:
        given.json.write_text(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ValueError as error:
        sys.exit(str(error))
