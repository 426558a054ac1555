"""What slow peers cost fast ones, and how connections share a link, for network_matrix.py.

One end on host b; others, on host a, read from it all at once, each over a connection of its own:

    fast and slow    16 over a rail of 1 Gbit/s, alone and then beside two over a link with 50 ms, or of 10 Mbit/s
    one slow link    8 over a link of 100 Mbit/s with 20 ms

Every byte is compared with what is at its offset of the source.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from network_hosts import Failed, Link, Process, Setting, cluster

FAST, SLOW, SHARING = 16, 2, 8
SEED = 1  # of what the source has
PIECE, PIECES = 256 << 10, 8  # of a read; under way on each connection
MOST_LOST, MOST_APART, MOST_HELD = 0.10, 0.25, 64 << 20
RAIL, RAIL_MBIT = 1, 1000  # limited, so that not the processor, which all share here, is what the peers share


class Readers:
    """Ends in one process on host a, which reach the source over one interface only."""

    def __init__(self, source: Process, there: Any, address: bytes, interface: str, count: int) -> None:
        self.count = count
        self.process = Process("tcpx", "a", 4, f"={interface}")
        self.process.finish()
        source.start("accept", count)
        self.process.call("connect", address, count)
        source.finish()
        self.process.call("aim", there)
        self.process.call("allocate", count * PIECES, PIECE)

    def start(self, warm_up: float, seconds: float) -> None:
        self.process.start("read_over_each", PIECES, warm_up, seconds)

    def finish(self) -> list[float]:
        """@return bytes in a second over each connection"""
        rates: list[float] = self.process.finish()
        if wrong := self.process.call("wrong_copies", SEED, PIECES):
            raise Failed(f"readers: wrong bytes in the places {wrong}")
        return rates

    def end(self) -> None:
        self.process.end()


@contextmanager
def source_on_b() -> Iterator[tuple[Process, Any, bytes]]:
    source = Process("tcpx", "b", 4, f"=eth{RAIL},far0")
    try:
        source.finish()
        there = source.call("allocate", PIECES, PIECE)
        source.call("fill", SEED)
        yield source, there, source.call("address")
    finally:
        source.end()


def fast_beside_slow(given: argparse.Namespace, setting: Setting, mbit: float) -> str:
    """Of `setting` and `mbit` is the link of the slow ones."""
    link = Link(given.link, setting, mbit, given.seed)
    readers: list[Readers] = []
    try:
        cluster("limit", str(RAIL), f"{RAIL_MBIT}mbit")
        with source_on_b() as (source, there, address):
            readers.append(Readers(source, there, address, f"eth{RAIL}", FAST))
            alone, beside, slow = [], [], []
            held = 0
            for turn in range(2 * given.streams):
                if turn == 1:
                    readers.append(Readers(source, there, address, "far0", SLOW))
                with_slow = turn % 2 == 1
                before = source.call("resident")
                if with_slow:
                    readers[1].start(given.stream_seconds / 2, given.stream_seconds)
                    time.sleep(0.5)  # they have begun
                readers[0].start(given.stream_seconds / 4, given.stream_seconds)
                (beside if with_slow else alone).append(sum(readers[0].finish()))
                if with_slow:
                    slow.append(sum(readers[1].finish()))
                    held = max(held, source.call("resident") - before)
    finally:
        for one in readers:
            one.end()
        link.end()
        cluster("limit", str(RAIL), "none")
    without, beside_them, of_slow = map(statistics.median, (alone, beside, slow))
    lost = 1 - beside_them / without
    verdict = "" if lost <= MOST_LOST and held <= MOST_HELD else " MISSED"
    return (f"  {FAST} fast, beside {SLOW} over {setting.rtt_ms:g} ms, {mbit:g} Mbit/s: {without / 1e9:.2f} GB/s alone, "
            f"{beside_them / 1e9:.2f} beside; slow {of_slow / 1e6:.1f} MB/s; lost {lost * 100:.0f} %, at most {MOST_LOST * 100:.0f}; "
            f"source holds {held >> 20} MiB more{verdict}")  # fmt: skip


def shares_of_a_link(given: argparse.Namespace, setting: Setting, mbit: float) -> str:
    link = Link(given.link, setting, mbit, given.seed)
    readers = None
    try:
        with source_on_b() as (source, there, address):
            readers = Readers(source, there, address, "far0", SHARING)
            readers.start(given.stream_seconds, 10 * given.stream_seconds)  # long: congestion control shares evenly in the mean
            rates = readers.finish()
    finally:
        if readers:
            readers.end()
        link.end()
    mean = sum(rates) / len(rates)
    apart = max(max(rates) / mean - 1, 1 - min(rates) / mean)
    return (f"  {SHARING} over one link, {setting.rtt_ms:g} ms, {mbit:g} Mbit/s: {min(rates) / mean:.2f} to {max(rates) / mean:.2f} of the mean, "
            f"{mean * 8 / 1e6:.1f} Mbit/s; at most {MOST_APART * 100:.0f} % apart{'' if apart <= MOST_APART else ' MISSED'}")  # fmt: skip


def measure(given: argparse.Namespace) -> Iterator[str]:
    """A line of each. Raises Failed."""
    yield fast_beside_slow(given, Setting(50), 100)
    yield fast_beside_slow(given, Setting(1), 10)
    yield shares_of_a_link(given, Setting(20), 100)
