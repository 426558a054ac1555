"""Whether anything grows: many endpoints that come and go, and many operations, with the process's memory, descriptors and threads
before and after. The first tenth warms up. Exit code 1: something grew.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

import tcpx

MOST_GROWTH = 16 << 20  # bytes: what the allocator's moods make, and no more after ten times as many


def state() -> tuple[int, int, int]:
    """Resident bytes, descriptors, threads."""
    gc.collect()
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    return resident, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def soak(name: str, count: int, work: Callable[[int], None]) -> bool:
    work(count // 10)
    before, begin = state(), time.monotonic()
    work(count)
    after, seconds = state(), time.monotonic() - begin
    grew = after[0] - before[0] > MOST_GROWTH or after[1:] != before[1:]
    print(f"{name}: {count} in {seconds:.0f} s; resident {before[0] >> 10} -> {after[0] >> 10} KiB, descriptors {before[1]} -> "
          f"{after[1]}, threads {before[2]} -> {after[2]}{'  GREW' if grew else ''}", flush=True)  # fmt: skip
    return grew


def endpoints(count: int) -> None:
    kept = np.zeros(4096, np.uint8)
    for i in range(count):
        one = tcpx.Endpoint(listen="127.0.0.1")
        one.advertise(kept)
        if i % 2:
            one.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoints", type=int, default=10_000)
    parser.add_argument("--operations", type=int, default=1_000_000)
    arguments = parser.parse_args()
    grew = soak("endpoints", arguments.endpoints, endpoints) if arguments.endpoints else False
    if not arguments.operations:
        return int(grew)
    with tcpx.Endpoint(listen="127.0.0.1") as near, tcpx.Endpoint(listen="127.0.0.1") as far:
        accepting = threading.Thread(target=far.accept)
        accepting.start()
        conn = near.connect(far.metadata)
        accepting.join()
        source, slot = np.ones(64, np.uint8), far.advertise(np.zeros(64, np.uint8))

        def blocking(count: int) -> None:
            for _ in range(count):
                conn.write(source, slot)

        def dropped(count: int) -> None:
            for i in range(count):
                conn.write_async(np.ones(64, np.uint8), slot)
                if i % 1000 == 0:
                    conn.write(source, slot)

        async def many(count: int) -> None:
            for _ in range(count // 100):
                await asyncio.gather(*(conn.write_async(source, slot) for _ in range(100)))

        third = arguments.operations // 3
        grew |= soak("operations, blocking", third, blocking)
        grew |= soak("operations that nobody asks about", third, dropped)
        grew |= soak("operations, awaited", third, lambda count: asyncio.run(many(count)))
    return int(grew)


if __name__ == "__main__":
    sys.exit(main())
