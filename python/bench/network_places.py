"""What the ends of a measured connection have in common: places of memory whose content says where it belongs, and times of single
operations on them.
"""

from __future__ import annotations

import collections
import itertools
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

LIST_PIECE = 4096  # bytes
PATIENCE = 60.0  # seconds of one operation or connection, the longest of which cross a network that loses much


def content(nbytes: int, seed: int) -> np.ndarray:
    """What is at each offset of the memory with this number."""
    mixed = (np.arange(nbytes, dtype=np.uint32) + np.uint32(seed * 7919 % 2**32)) * np.uint32(2654435761)
    return (mixed >> np.uint32(15)).astype(np.uint8)


def pieces(nbytes: int) -> list[slice]:
    """Of a place, for an operation on a list: no two that are neighbours in memory follow each other."""
    cuts = [slice(at, min(at + LIST_PIECE, nbytes)) for at in range(0, nbytes, LIST_PIECE)]
    return cuts[::2] + cuts[1::2]


def wait_while(condition: Callable[[], bool], seconds: float, what: str, pause: float = 50e-6) -> None:
    """Looks at it again and again. The pause leaves the core to the threads of what is waited for."""
    end = time.monotonic() + seconds
    while condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(pause)


def newest_interpreter(folder: Path) -> str | None:
    """Of the environments in this folder, which are named by the releases they have."""
    found = folder.glob("*/bin/python3")
    newest = max(found, key=lambda python: [int(digits) for digits in re.findall(r"\d+", python.parents[1].name)], default=None)
    return str(newest) if newest else None


class End:
    """Places of memory, which is numbered by seed: the place `i` of a set has `seed + i`."""

    one_sided = False  # writes and reads over one connection, and nothing else
    has_lists = False  # one operation for many ranges
    polls = False      # takes a core while nothing happens: the process stands still while others are measured
    hint = ""          # how to get it

    @staticmethod
    def interpreter() -> str | None:
        """Of its processes. None: it is not on this machine."""
        return sys.executable

    def __init__(self) -> None:
        self.places: list[np.ndarray] = []

    def allocate(self, count: int, nbytes: int) -> Any:
        """Places where nothing is yet. What it returns is for the `aim` of the other end."""
        self.places = [np.zeros(nbytes, np.uint8) for _ in range(count)]

    def aim(self, there: Any) -> None:
        """Where the other end's places are."""
        self.there = there

    def fill(self, seed: int) -> None:
        for i, place in enumerate(self.places):
            place[:] = content(place.size, seed + i)

    def wrong(self, seed: int, count: int | None = None) -> list[int]:
        """Which of the first places are not filled from `seed` on."""
        places = self.places[:count]
        return [i for i, place in enumerate(places) if not np.array_equal(place, content(place.size, seed + i))]

    def received_so_far(self) -> tuple[float, int] | None:
        """Now, and the bytes of streams that have come until now; None: nobody here counts them."""
        return None

    def streamed(self) -> int:
        """How many of the places a stream fills, from the first on."""
        return len(self.places)

    def timed(self, call: Any, seconds: float) -> list[float]:
        """Times of `call(place)`, each place once; none after the first three begins when `seconds` are over."""
        times: list[float] = []
        began = time.monotonic()
        for i in range(len(self.places)):
            if i >= 3 and time.monotonic() - began > seconds:
                break
            before = time.perf_counter()
            call(i)
            times.append(time.perf_counter() - before)
        return times

    def write_one(self, i: int) -> None:
        """This place to the other end's."""
        raise NotImplementedError

    def read_one(self, i: int) -> None:
        raise NotImplementedError

    def begin_write(self, i: int) -> Any:
        """The write of this place, under way. It has `wait(seconds)`."""
        raise NotImplementedError

    def write_list_one(self, i: int) -> None:
        """This place to the other end's, as one list of its pieces (`pieces`)."""
        raise NotImplementedError

    def read_list_one(self, i: int) -> None:
        raise NotImplementedError

    def write(self, seconds: float) -> list[float]:
        return self.timed(self.write_one, seconds)

    def write_list(self, seconds: float) -> list[float]:
        return self.timed(self.write_list_one, seconds)

    def read_list(self, seconds: float) -> list[float]:
        return self.timed(self.read_list_one, seconds)

    def read(self, seconds: float) -> list[float]:
        return self.timed(self.read_one, seconds)

    def stream(self, warm_up: float, seconds: float) -> float | None:
        """Bytes in a second, of writes that end after `warm_up`, from all places in turn; each at least once. None: the
        other end counts them."""
        begin = time.perf_counter() + warm_up
        turns = itertools.cycle(range(len(self.places)))
        under_way = collections.deque(self.begin_write(next(turns)) for _ in self.places)
        ends: list[float] = []
        while under_way:
            under_way.popleft().wait(PATIENCE)
            ends.append(time.perf_counter())
            if ends[-1] < begin + seconds:
                under_way.append(self.begin_write(next(turns)))
        counted = [at for at in ends if begin <= at < begin + seconds]
        if len(counted) < 2:
            counted = ends
        return (len(counted) - 1) * self.places[0].size / (counted[-1] - counted[0])


def at_once(count: int, call: Any) -> float:
    """Seconds until `call(i)` has ended for all."""
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(lambda _: None, range(count)))
        before = time.perf_counter()
        list(threads.map(call, range(count)))
        return time.perf_counter() - before


class RemoteEnd(End):
    """Of a library that writes and reads memory which was registered, and tells the other end of nothing, not even of a connection."""

    one_sided = True
    greeting_content = content(8, 2**31)  # what the first write of a connection brings

    def __init__(self) -> None:
        super().__init__()
        self.greeting = np.zeros(self.greeting_content.size, np.uint8)
        self.arena = np.zeros(32 << 20, np.uint8)
        self.outgrown: list[np.ndarray] = []

    def register(self, memory: np.ndarray) -> None:
        """It stays so for good: the other end keeps what it knows of an address."""
        raise NotImplementedError

    def accept(self, count: int) -> None:
        """Until the first write of a connection is here, and right."""
        wait_while(lambda: not np.array_equal(self.greeting, self.greeting_content), PATIENCE,
                   "the first write of a connection is not here, or wrong", 1e-3)  # fmt: skip
        self.greeting[:] = 0

    def allocate(self, count: int, nbytes: int) -> list[int]:
        if count * nbytes > self.arena.size:
            self.outgrown.append(self.arena)
            self.arena = np.zeros(count * nbytes, np.uint8)
            self.register(self.arena)
        self.places = [self.arena[i * nbytes : (i + 1) * nbytes] for i in range(count)]
        for place in self.places:
            place[:] = 0
        return [place.ctypes.data for place in self.places]
