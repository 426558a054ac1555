"""What this process holds, compared before and after a test: descriptors, threads, mapped shared memory, files in /dev/shm."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import Counter
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

#: Seconds for which things may take to end that end on threads of their own: reached only by what stays.
LIMIT = 10.0


def _add_descriptors(held: Counter[str]) -> None:
    # Python starts these processes with the first semaphore and with the first process that is forked by a server, and keeps them.
    kept = {getattr(resource_tracker, "_resource_tracker")._fd, getattr(forkserver, "_forkserver")._forkserver_alive_fd}
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # that of the directory, which is closed by now
        if int(number) not in kept:
            held[f"descriptor {number} ({target})"] = 1


def _add_threads(held: Counter[str]) -> None:
    ours = {one.native_id: one.name for one in threading.enumerate()}
    unnamed = Path("/proc/self/comm").read_text().strip()
    for number in os.listdir("/proc/self/task"):
        try:
            name = Path(f"/proc/self/task/{number}/comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended in this moment
        of_openmp = int(number) not in ours and name == unnamed  # our own threads have names
        name = ours.get(int(number), name)
        # OpenMP keeps its threads, and so do a GPU's driver, JAX and the one that hands on our log.
        if not of_openmp and not name.startswith(("cuda", "tf_", "py_xla", "tcpx-log")):
            held[f"thread {number} ({name})"] = 1


def _add_mappings(held: Counter[str]) -> None:
    """By bytes, because a part of a mapping can stay. Source: proc(5), /proc/pid/maps."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        extent, *_, name = line.split(maxsplit=5)
        if name.startswith(("/memfd:", "/dev/shm/")):
            begin, end = (int(address, 16) for address in extent.split("-"))
            held[f"mapped bytes of {name}"] += end - begin


def _add_shared_files(held: Counter[str]) -> None:
    """Other processes make files there at the same time: ours have our number in their names."""
    for name in os.listdir("/dev/shm"):
        if str(os.getpid()) in name:
            held[f"/dev/shm/{name}"] = 1


def held_now() -> Counter[str]:
    """How much of each thing this process holds, by name."""
    held: Counter[str] = Counter()
    _add_descriptors(held)
    _add_threads(held)
    _add_mappings(held)
    _add_shared_files(held)
    return held


def left_since(before: Counter[str]) -> list[str]:
    """What is held now and was not then. Waits for it to end."""
    deadline = time.monotonic() + LIMIT
    while True:
        gc.collect()
        left = held_now() - before
        if any("(/dev/nvidia" in name for name in left):
            return []  # the driver of a GPU has begun, or on another one, and keeps what it makes then: nobody can tell it from ours
        if not left or time.monotonic() > deadline:
            return [name if count == 1 else f"{count} {name}" for name, count in sorted(left.items())]
        time.sleep(0.01)
