"""What Python adds to a write: medians beside a C++ program that does the same (write_times), in turns, both ends in one process.

    cmake --build build/release --target write_times
    PYTHONPATH=build/release/python python3 python/bench/overhead.py build/release/python/write_times

What it adds to each of 4096 ranges, in ns, the best of many calls: --ranges instead of the program's name. Every buffer and every slot
is a slice of a larger one, made outside the time, as lists are that are used again; `cut` is what making the slots costs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import subprocess
import sys
import threading
import time

import numpy as np

import tcpx
from tcpx.kv import KvPool

SMALL, LARGE, BLOCKS, BLOCK_BYTES = 8, 64 << 20, 8192, 512
RANGES, RANGE_BYTES = 4096, 64


def connected() -> tuple[tcpx.Endpoint, tcpx.Endpoint, tcpx.Connection]:
    near, far = tcpx.Endpoint(listen="127.0.0.1"), tcpx.Endpoint(listen="127.0.0.1")
    accepting = threading.Thread(target=far.accept)
    accepting.start()
    conn = near.connect(far.metadata)
    accepting.join()
    return near, far, conn


def median_us(count: int, call: object) -> float:
    times = []
    for i in range(count + count // 10):
        begin = time.perf_counter()
        call()  # type: ignore[operator]
        times.append(time.perf_counter() - begin)
    return statistics.median(times[count // 10 :]) * 1e6


async def awaited_us(count: int, conn: tcpx.Connection, source: object, slot: tcpx.Slot) -> float:
    times = []
    for i in range(count + count // 10):
        begin = time.perf_counter()
        await conn.write_async(source, slot)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[count // 10 :]) * 1e6


def python_times() -> dict[str, float]:
    near, far, conn = connected()
    with near, far:
        result = {}
        for name, nbytes, count in (("small", SMALL, 2000), ("large", LARGE, 20)):
            source, target = np.full(nbytes, 7, np.uint8), np.zeros(nbytes, np.uint8)
            slot = far.advertise(target)
            result[f"{name}_blocking"] = median_us(count, lambda: conn.write(source, slot))
            target[:] = 0
            result[f"{name}_awaited"] = asyncio.run(awaited_us(count, conn, source, slot))
            assert (source == target).all()
        here = KvPool(np.arange(BLOCKS * BLOCK_BYTES, dtype=np.uint64).view(np.uint8)[: BLOCKS * BLOCK_BYTES], BLOCK_BYTES)
        there = KvPool(np.zeros(BLOCKS * BLOCK_BYTES, np.uint8), BLOCK_BYTES)
        order = np.random.default_rng(1).permutation(BLOCKS)
        starts = []
        for i in range(30):
            begin = time.perf_counter()
            operation = conn.write_blocks_async(here, order, order[::-1].copy(), remote=there.advertise(far))
            starts.append(time.perf_counter() - begin)
            operation.wait()
        result["blocks_start"] = statistics.median(starts) * 1e6
        assert (there.tensor.reshape(BLOCKS, -1)[order[::-1]] == here.tensor.reshape(BLOCKS, -1)[order]).all()
        return result


def best_ns(call: object, runs: int = 40) -> float:
    """Of one range."""
    times = []
    for _ in range(runs):
        gc.collect()
        begin = time.perf_counter_ns()
        kept = call()  # type: ignore[operator]
        times.append(time.perf_counter_ns() - begin)
        if hasattr(kept, "wait"):
            kept.wait()
    return min(times) / RANGES


def range_times() -> dict[str, float]:
    near, far, conn = connected()
    with near, far:
        target = np.zeros(RANGES * RANGE_BYTES, np.uint8)
        slot = far.advertise(target)
        cuts = [slice(i * RANGE_BYTES, (i + 1) * RANGE_BYTES) for i in range(RANGES)]
        slots = [slot[cut] for cut in cuts]
        result = {
            "cut": best_ns(lambda: [slot[first : first + RANGE_BYTES] for first in range(0, RANGES * RANGE_BYTES, RANGE_BYTES)]),
            "row": best_ns(lambda: list(map(slot.view((RANGES, RANGE_BYTES)).__getitem__, range(RANGES)))),
        }
        sources = {"numpy": np.random.default_rng(1).integers(0, 256, target.size, np.uint8)}
        try:
            import torch

            sources["torch"] = torch.from_numpy(sources["numpy"].copy())
            if torch.cuda.is_available():
                sources["cuda"] = sources["torch"].cuda()
        except ImportError:
            pass
        for name, source in sources.items():
            parts = [source[cut] for cut in cuts]
            target[:] = 0
            result[f"{name}_write"] = best_ns(lambda: conn.write_async(parts, slots))
            assert (target == np.asarray(source.cpu() if name == "cuda" else source)).all()
            result[f"{name}_read"] = best_ns(lambda: conn.read_async(parts, slots))
            result[f"{name}_prepare"] = best_ns(lambda: conn.prepare(parts, slots))
        return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", help="write_times of the same build")
    parser.add_argument("--ranges", action="store_true", help="measure ranges instead")
    parser.add_argument("--runs", type=int, default=5, help="runs of each, in turns (default 5)")
    arguments = parser.parse_args()
    if arguments.ranges:
        print(json.dumps({name: round(value) for name, value in range_times().items()}, indent=1))
        return 0
    if arguments.program is None:
        parser.error("write_times, or --ranges")
    found: dict[str, list[float]] = {}
    for _ in range(arguments.runs):
        for name, nbytes, count in (("small", SMALL, 2000), ("large", LARGE, 20)):
            answer = subprocess.run([arguments.program, str(nbytes), str(count)], check=True, capture_output=True, text=True)
            found.setdefault(f"{name}_cpp", []).append(float(answer.stdout))
        for name, value in python_times().items():
            found.setdefault(name, []).append(value)
    print(json.dumps({name: round(statistics.median(values), 2) for name, values in found.items()}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
