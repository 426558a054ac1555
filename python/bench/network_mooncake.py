"""Mooncake's transfer engine over TCP: an end for network_ends.py. It runs in a process of the interpreter that has the wheel.

As a program, run by that interpreter, it measures the engine between two processes of this machine, over 127.0.0.1:

    build/mooncake/RELEASE/bin/python3 python/bench/network_mooncake.py --json mooncake.json

One write at a time, and ranges that lie in another order at the target, all in one call. After each row the target compares every
byte with a pattern that it makes itself. scripts/speed_table.py shows the JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import importlib.util
import os
import socket
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from network_places import RemoteEnd, newest_interpreter, wait_while

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "integrations/nixl"))
import memory as memories  # noqa: E402
import result  # noqa: E402
import wheel  # noqa: E402

FOLDER = ROOT / "build/mooncake"
#: Rows of the program: ranges of a write, bytes of each.
PATTERNS = {"8B": (1, 8), "4KiB": (1, 4 << 10), "64KiB": (1, 64 << 10), "1MiB": (1, 1 << 20), "64MiB": (1, 64 << 20),
            "4096x32KiB": (4096, 32 << 10)}  # fmt: skip


def own_address() -> str:
    """Of the interface that leads to the hosts of the network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("10.77.9.3", 9))  # nothing is sent
        return str(sock.getsockname()[0])


def engine_at(address: str) -> Any:
    """An engine that is connected to none."""
    from mooncake.engine import TransferEngine

    engine = TransferEngine()
    if engine.initialize(address, "P2PHANDSHAKE", "tcp", "") != 0:
        raise RuntimeError("Mooncake does not start")
    return engine


def register(engine: Any, address: int, nbytes: int) -> None:
    if engine.register_memory(address, nbytes) != 0:
        raise RuntimeError("Mooncake does not register memory")


def check(state: int) -> None:
    """What a call that waits for a transfer returned."""
    if state != 0:
        raise RuntimeError(f"a transfer of Mooncake ended with {state}")


class Transfer:
    """One that has been submitted."""

    def __init__(self, engine: Any, batch: int) -> None:
        self.engine, self.batch = engine, batch

    def pending(self) -> bool:
        self.state = self.engine.transfer_check_status(self.batch)
        return bool(self.state == 0)

    def wait(self, seconds: float) -> None:
        wait_while(self.pending, seconds, "a transfer of Mooncake does not end")
        if self.state < 0:
            raise RuntimeError(f"a transfer of Mooncake ended with {self.state}")


class MooncakeEnd(RemoteEnd):
    hint = "scripts/install_deps.sh --mooncake installs it"

    @staticmethod
    def interpreter() -> str | None:
        return sys.executable if importlib.util.find_spec("mooncake") else newest_interpreter(FOLDER)

    def __init__(self, sockets: int) -> None:
        super().__init__()
        self.engine: Any = None

    def start(self) -> None:
        self.engine = engine_at(own_address())
        for memory in (self.greeting, self.arena):
            self.register(memory)

    def register(self, memory: np.ndarray) -> None:
        register(self.engine, memory.ctypes.data, memory.size)

    def address(self) -> tuple[str, int]:
        self.start()
        return f"{own_address()}:{self.engine.get_rpc_port()}", self.greeting.ctypes.data

    def connect(self, address: tuple[str, int], count: int) -> float:
        """From the other's address to the end of the first write, in which Mooncake asks for the other's metadata."""
        self.start()
        self.greeting[:] = self.greeting_content
        self.other, there = address
        before = time.perf_counter()
        self.move(self.engine.transfer_sync_write, self.greeting, there)
        return time.perf_counter() - before

    def close(self) -> None:
        """Of the client."""
        self.engine = None

    def move(self, call: Any, place: np.ndarray, there: int) -> None:
        check(call(self.other, place.ctypes.data, there, place.size))

    def write_one(self, i: int) -> None:
        self.move(self.engine.transfer_sync_write, self.places[i], self.there[i])

    def read_one(self, i: int) -> None:
        self.move(self.engine.transfer_sync_read, self.places[i], self.there[i])

    def begin_write(self, i: int) -> Transfer:
        place = self.places[i]
        batch = self.engine.transfer_submit_write(self.other, place.ctypes.data, self.there[i], place.size)
        if batch <= 0:
            raise RuntimeError(f"Mooncake takes no transfer: {batch}")
        return Transfer(self.engine, batch)


def pattern(seed: int, nbytes: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def orders(ranges: int) -> tuple[np.ndarray, np.ndarray]:
    """Which range of the initiator's memory, in the order of the call, goes to which of the target's."""
    order = np.random.default_rng(5).permutation(ranges)
    return order, order[::-1]


#: Of the ends. A call with many more ranges than the queue to a peer holds fails; by default 0.3.13 holds 1024.
SETTINGS = {"MC_LOG_LEVEL": "ERROR", "MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER": "8192"}


class LocalEnd:
    """Memory and an engine that knows it, in a process of its own, driven by lines of JSON."""

    def __init__(self, kind: str, gpu: int, nbytes: int) -> None:
        self.memory: Any = memories.allocate(kind, gpu, nbytes)
        self.engine = engine_at("127.0.0.1")
        register(self.engine, self.memory.address, nbytes)

    def where(self) -> list[Any]:
        return [f"127.0.0.1:{self.engine.get_rpc_port()}", self.memory.address, self.memory.place]

    def fill(self, seed: int, nbytes: int) -> None:
        self.memory[:nbytes] = pattern(seed, nbytes)

    def clear(self, nbytes: int) -> None:
        self.memory[:nbytes] = 0

    def wrong(self, seed: int, ranges: int, nbytes: int) -> int:
        """Ranges of the target that are not what the initiator was filled with."""
        near, far = orders(ranges)
        expected, found = pattern(seed, ranges * nbytes), self.memory[: ranges * nbytes]
        return int((expected.reshape(ranges, nbytes)[near] != found.reshape(ranges, nbytes)[far]).any(axis=1).sum())

    def write(self, other: str, there: int, ranges: int, nbytes: int, samples: int, seconds: float) -> list[float]:
        """One at a time. @return the median time of a write in each sample, which lasts so long"""
        near, far = ([base + int(i) * nbytes for i in ids] for base, ids in zip((self.memory.address, there), orders(ranges)))
        sizes = [nbytes] * ranges

        def once() -> float:
            before = time.perf_counter()
            if ranges == 1:
                check(self.engine.transfer_sync_write(other, near[0], far[0], nbytes))
            else:
                check(self.engine.batch_transfer_sync_write(other, near, far, sizes))
            return time.perf_counter() - before

        once()  # in the first, Mooncake asks for the other's metadata
        medians = []
        for _ in range(samples):
            end, times = time.perf_counter() + seconds, [once()]
            while time.perf_counter() < end:
                times.append(once())
            medians.append(statistics.median(times))
        return medians


def release() -> tuple[str, bool]:
    """Of the wheel, and whether it knows of CUDA."""
    names = [name for name in importlib.metadata.packages_distributions().get("mooncake", []) if "mooncake" in name]
    return (importlib.metadata.version(names[0]), "non-cuda" not in names[0]) if names else ("unknown", False)


def with_gpus() -> bool:
    """Whether the wheel can move GPU memory, and there is a driver for it."""
    try:
        return release()[1] and bool(ctypes.CDLL("libcuda.so.1"))
    except OSError:
        return False


def measure(target: Any, initiator: Any, name: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """A row of the report."""
    ranges, nbytes = PATTERNS[name]
    total = ranges * nbytes
    other, there, _ = target.where()
    initiator.fill(seed, total)
    target.clear(total)
    times = initiator.write(other, there, ranges, nbytes, given.samples, given.seconds)
    if wrong := target.wrong(seed, ranges, nbytes):
        print(f"{name}: {wrong} of {ranges} ranges are wrong", file=sys.stderr)
    us, rate = result.cell([1e6 * one for one in times]), result.cell([total / one / 1e9 for one in times])
    print(f"{name:11} {us['median']:9.1f} us, best {us['min']:.1f}; {rate['median']:.3g} GB/s", flush=True)
    values = {"block": nbytes, "blocks": ranges, "Mooncake": rate, "Mooncake, time": us}
    return {"name": name, "verified": not wrong, "values": values}


def report(rows: list[dict[str, Any]], places: list[str], given: argparse.Namespace) -> Any:
    columns = [("block", "B"), ("blocks", ""), ("Mooncake", "GB/s"), ("Mooncake, time", "us")]
    names = ("memory", "gpus", "samples", "seconds")
    return result.report(given, names, {"WRITE": rows}, columns, benchmark="bench_mooncake", about=__doc__, version=release()[0],
                         abi="Mooncake", devices=[" to ".join(places)])  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", choices=("host", "vram"), help="(default: vram where the wheel and the machine have CUDA)")
    parser.add_argument("--gpus", default="0,0", help="of the two ends (default %(default)s)")
    parser.add_argument("--samples", type=int, default=5, help="(default %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.2, help="of a sample (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers to this file")
    parser.add_argument("--end", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.end:
        kind, gpu, nbytes = given.end
        wheel.serve(LocalEnd(kind, int(gpu), int(nbytes)))
        return 0
    if not importlib.util.find_spec("mooncake"):
        sys.exit(f"network_mooncake.py: this python3 has no Mooncake: {MooncakeEnd.hint}")
    if given.memory == "vram" and not with_gpus():
        parser.error("vram wants CUDA, of the machine and of the wheel (mooncake-transfer-engine)")
    given.memory = given.memory or ("vram" if with_gpus() else "host")
    largest = max(ranges * nbytes for ranges, nbytes in PATTERNS.values())
    kind = "VRAM" if given.memory == "vram" else "DRAM"
    ends = [wheel.Process([__file__, "--end", kind, gpu, str(largest)], SETTINGS | os.environ)
            for gpu in reversed(given.gpus.split(","))]  # fmt: skip
    target, initiator = ends
    places = [end.where()[2] for end in (initiator, target)]
    print(f"Mooncake {release()[0]}, TCP, writes, {' to '.join(places)}, {given.samples} samples of {given.seconds} s")
    rows = [measure(target, initiator, name, seed, given) for seed, name in enumerate(PATTERNS, 1)]
    for end in ends:
        end.end()
    return int(result.finish(report(rows, places, given), given.json, "every byte is right"))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"network_mooncake.py: {error}")
