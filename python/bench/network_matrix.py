"""How the endpoints do over a network with distance, beside plain TCP sockets and other libraries, in milliseconds and in round trips.

scripts/network_matrix.sh makes the two hosts that it needs (namespaces) and runs it. For each setting of the network a link of
its own joins them. What is measured, by each peer in processes of its own:

    connect          one connection; "4 channels": over four devices, which are the same interface four times
    write, read      one at a time, after some that warm up
    there and back   half of it: a message that comes into a receive which was posted before, and is sent back
    weights step     tcpx.weights.broadcast of 16 tensors to one receiver, which waits for it, from the source's call to the receiver's end
    stream           writes, under way as the network holds four times; plain TCP: as many sockets as the connection has for data
    64 at once       connections of as many endpoints to one
    fairness         last: what slow peers cost fast ones, and the shares of connections over one link (network_fairness.py)

nixl-ucx is NIXL's own back-end, UCX, over TCP alone, where scripts/install_deps.sh --nixl has installed it, and mooncake is Mooncake's
transfer engine over TCP, where the same with --mooncake has. Neither says when it is connected: connect begins with the metadata (mooncake:
the address) of the other end and ends with the first write, of 8 bytes. They have no receives that are posted, and 64 of their agents
are not measured.

Round trips: (time - bytes / rate) / round trip, with the rate of the link for payload. "ours" says how many times as fast tcpx is.
Everything that arrives is compared, outside the timed part, with what is at each offset of its memory. Exit code: 0 every byte was
right, 1 a byte was wrong or an operation failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import re
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import network_fairness
from network_ends import PEERS
from network_hosts import PIECE, Failed, Link, Pair, Setting, sysctl
from network_places import PATIENCE

SIZES = (8, 16 << 10, 64 << 10, 1 << 20, 4 << 20)
QUICK_SIZES = (8, 64 << 10, 1 << 20)
POSTED = (32 << 10, 2 << 20)
STEPS = (1 << 20, 16 << 20)
AT_ONCE, FEW = 64, 8
BARS = {"connect": 4.0, "connect, 4 channels": 4.0, "write": 1.2, "read": 1.2, "write of a list": 1.2, "read of a list": 1.2,
        "there and back": 0.6, "weights step": 2.5}  # round trips, at most
STREAM_BAR, AT_ONCE_BAR = 0.95, 1.0  # of plain TCP, at least; of one connection's time, at most

FULL = [Setting(rtt, loss, mtu) for mtu in (1500, 9000) for loss in (0, 0.0001, 0.001, 0.01) for rtt in (0.2, 1, 10, 50, 100)]
FAULT_AFTER = 2.0  # seconds


def cut(seconds: float) -> Setting:
    return Setting(10, counts=False, options={"cut-after-ms": FAULT_AFTER * 1e3, "cut-ms": seconds * 1e3})


def rerouted(rtt_ms: float, then_ms: float) -> Setting:
    return Setting(rtt_ms, counts=False, options={"reroute-after-ms": FAULT_AFTER * 1e3, "reroute-delay-us": then_ms * 500})


FAULTS = [
    Setting(10, 0.05, counts=False, options={"reorder": 0.05, "duplicate": 0.02}),
    cut(1),
    Setting(10, counts=False, options={"mtu-hole": 1400}, probing=1),
]
LONG_FAULTS = [cut(5), cut(20), rerouted(50, 10), rerouted(10, 50)]
FULL += FAULTS + LONG_FAULTS
QUICK = [Setting(10), Setting(50), *FAULTS]


#: By options of a fault: which packets have met it.
MET = {"cut-ms": "cut", "mtu-hole": "vanished", "reorder": "late", "duplicate": "twice", "reroute-after-ms": "rerouted"}


class Measurement:
    """All of one setting: `seen[what][peer]`, seconds (of a stream: bytes in a second)."""

    def __init__(self, setting: Setting, given: argparse.Namespace) -> None:
        self.setting, self.given = setting, given
        self.rtt = setting.rtt_ms / 1e3
        self.payload = given.mbit / 8 * 1e6 * (setting.mtu - 52) / setting.mtu  # bytes in a second
        self.seen: dict[str, dict[str, float]] = {}

    def add(self, what: str, peer: str, values: list[float]) -> None:
        self.seen.setdefault(what, {})[peer] = statistics.median(values)
        if sys.stderr.isatty():
            print(f"\r\033[K{what}, {peer}", end="", file=sys.stderr, flush=True)

    def trips(self, what: str, seconds: float) -> float:
        size = re.search(r"(\d+) B$", what)
        return (seconds - (int(size[1]) / self.payload if size else 0.0)) / self.rtt

    def run(self) -> dict[str, int]:
        """@return what became of the packets. Raises Failed."""
        given, setting = self.given, self.setting
        sysctl("tcp_mtu_probing", setting.probing)
        link = Link(given.link, setting, given.mbit, given.seed)
        pairs: list[Pair] = []
        try:
            pairs += [Pair(peer, given.sockets) for peer in (given.peers if setting.counts else ["tcpx"])]
            pairs.append(Pair("tcpx", given.sockets, "=far0,far0,far0,far0"))
            for pair in pairs:
                pair.ready()
            self.measure(pairs[:-1], pairs[-1], link)
        finally:
            for pair in pairs:
                pair.end()
            counts = link.end()
        for option, count in MET.items():
            if option in setting.options and not counts.get(count):
                raise Failed(f"no packet met what {setting.name()} is about: {counts}")
        return counts

    def measure(self, peers: list[Pair], four: Pair, link: Link) -> None:
        given, counts = self.given, self.setting.counts
        for pair in self.turns([*peers, four]):
            self.connects("connect, 4 channels" if pair is four else "connect", pair, given.samples if counts else 1)
        if "cut-ms" in self.setting.options or "reroute-after-ms" in self.setting.options:
            self.through_the_fault(peers[0], link)
        sizes = QUICK_SIZES if given.quick else SIZES
        two_sided = [pair for pair in peers if not PEERS[pair.peer].one_sided]
        for what in ("write", "read"):
            for size in sizes if counts else [1 << 20]:
                for pair in self.turns(peers):
                    times = pair.one_at_a_time(what, size, given.warm_up, given.samples, given.part_seconds)
                    self.add(f"{what} {size} B", pair.peer, times)
        for what in ("write_list", "read_list") if counts else ():
            for pair in self.turns([pair for pair in peers if PEERS[pair.peer].has_lists]):
                times = pair.one_at_a_time(what, 1 << 20, given.warm_up, given.samples, given.part_seconds)
                self.add(f"{what.replace('_', ' of a ')} {1 << 20} B", pair.peer, times)
        for size in POSTED if counts else [32 << 10]:
            for pair in two_sided:
                self.add(f"there and back {size} B", pair.peer, pair.there_and_back(size, given.warm_up, given.samples, self.rtt))
        for size in STEPS if counts else ():
            self.add(f"weights step {size} B", "tcpx", peers[0].weights_steps(size, given.samples, self.rtt))
        four.one_at_a_time("write", 1 << 20, 0, 1, given.part_seconds)  # so that its bytes are compared, too
        if counts:
            self.streams(peers, sizes[-1])
        for pair in two_sided:
            pair.close()
            self.at_once(pair, AT_ONCE if counts else FEW)

    def turns(self, pairs: list[Pair]) -> Iterator[Pair]:
        """One after the other."""
        for pair in pairs:
            pair.wake()
            yield pair
            pair.rest()

    def connects(self, what: str, pair: Pair, samples: int) -> None:
        times = []
        for i in range(samples):
            if i > 0:
                pair.close()
            times.append(pair.connect(1))
        self.add(what, pair.peer, times)

    def streams(self, peers: list[Pair], largest: int) -> None:
        given = self.given
        rates: dict[str, list[float]] = {pair.peer: [] for pair in peers}
        buffers = given.sockets * int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])
        warm_up = max(given.stream_seconds / 2, min(20 * self.rtt, 1.0))
        for _ in range(given.streams):
            for pair in self.turns(peers):
                # Some times what the network holds, for writes end in order: one that lost a packet is waited for by those behind it. At
                # least what the kernel takes from plain sockets ahead of their turn, and no more than it takes in about a second.
                in_a_second = largest / self.seen[f"write {largest} B"][pair.peer]
                under_way = min(max(4 * self.rtt * self.payload, buffers), in_a_second)
                rates[pair.peer].append(pair.stream(max(given.sockets, int(under_way / PIECE)), warm_up, given.stream_seconds))
        for peer, values in rates.items():
            self.add("stream", peer, values)

    def at_once(self, pair: Pair, count: int) -> None:
        self.add(f"{count} at once", pair.peer, [pair.connect(count)])
        seed = pair.allocate(count, 1024)
        pair.client.call("fill", seed)
        pair.client.call("write_over_each")
        pair.expect(pair.server, f"a write over each of {count} connections", seed)

    def through_the_fault(self, pair: Pair, link: Link) -> None:
        """Writes one after the other until the network is back, or has been another one for a while."""
        slowest, lasts = 0.0, self.setting.options.get("cut-ms", 0) / 1e3
        while time.monotonic() < link.began + FAULT_AFTER + lasts + 0.5:
            slowest = max([slowest, *pair.one_at_a_time("write", 64 << 10, 0, 20, PATIENCE)])
        self.add("slowest write", pair.peer, [slowest])

    def table(self) -> str:
        if not self.setting.counts:
            return "\n".join(f"  {what:24}" + "".join(f"{seconds * 1e3:10.2f} ms" for seconds in by_peer.values())
                             for what, by_peer in self.seen.items())  # fmt: skip
        columns = self.given.peers
        heads = [f"{peer + ' (ms)':>14}{'trips':>7}" + (f"{'ours':>6}" if peer != "tcpx" else "") for peer in columns]
        lines = [" " * 26 + "".join(heads) + "   bar"]
        for what, by_peer in self.seen.items():
            line = f"  {what:24}"
            for peer in columns:
                value = by_peer.get(peer)
                if value is None:
                    line += f"{'-':>14}{'':>7}"
                elif what == "stream":
                    line += f"{value / 1e9:9.3f} GB/s{'':>7}"
                else:
                    line += f"{value * 1e3:14.2f}{self.trips(what, value):7.1f}"
                if peer != "tcpx":
                    line += f"{self.ours(what, value):6.2f}" if value else f"{'-':>6}"
            lines.append(f"{line}   {self.bar(what)}")
        return "\n".join(lines)

    def ours(self, what: str, theirs: float) -> float:
        """How many times as fast."""
        ours = self.seen[what]["tcpx"]
        return ours / theirs if what == "stream" else theirs / ours

    def bar(self, what: str) -> str:
        """What is aimed at, and whether it is met."""
        ours = self.seen[what]["tcpx"]
        if what == "stream":
            if "tcp" not in self.seen[what]:
                return "tcp is not measured"
            ratio = self.ours(what, self.seen[what]["tcp"])
            return f"{ratio:.2f} of tcp, at least {STREAM_BAR}" + ("" if ratio >= STREAM_BAR else " MISSED")
        if "at once" in what:
            ratio = ours / self.seen["connect"]["tcpx"]
            return f"{ratio:.1f} of one, at most {AT_ONCE_BAR:g}" + ("" if ratio <= AT_ONCE_BAR else " MISSED")
        most = BARS.get(what) or BARS[re.sub(r" \d+ B$", "", what)]
        return f"at most {most:g} round trips" + ("" if self.trips(what, ours) <= most else " MISSED")

    def summary(self, peer: str) -> list[str]:
        """A row of the table of all settings: round trips, ratios."""

        def trips(*whats: str) -> str:
            seen = [self.seen[what].get(peer) for what in whats]
            return " / ".join("-" if one is None else f"{self.trips(what, one):.1f}" for what, one in zip(whats, seen))

        singles = [trips(*(what for what in self.seen if what.startswith(kind))) for kind in ("write", "read", "there and back")]
        stream, at_once = self.seen["stream"], self.seen[f"{AT_ONCE} at once"].get(peer)
        of_tcp = f"{stream[peer] / stream['tcp']:.2f}" if "tcp" in stream else "-"
        return [self.setting.name(), peer, trips("connect", "connect, 4 channels"), *singles,
                f"{stream[peer] / 1e9:.3f}, {of_tcp}", f"{at_once / self.seen['connect'][peer]:.1f}" if at_once else "-"]  # fmt: skip


HEAD = ["network", "of", "connect / 4 channels", "write {} / list of 1M", "read", "posted 32K / 2M", "stream GB/s, of tcp",
        f"{AT_ONCE} at once, of one"]  # fmt: skip


def short(size: int) -> str:
    return f"{size >> 20}M" if size >= 1 << 20 else f"{size >> 10}K" if size >= 1 << 10 else str(size)


def print_summary(measured: list[Measurement], sizes: Sequence[int]) -> None:
    names = " / ".join(map(short, sizes))
    print("\nRound trips, unless the head says otherwise:\n")
    print("| " + " | ".join(HEAD).format(names) + " |\n|" + "---|" * len(HEAD))
    for measurement in measured:
        for peer in measurement.given.peers:
            print("| " + " | ".join(measurement.summary(peer)) + " |")


def chosen_peers(parser: argparse.ArgumentParser, given: argparse.Namespace) -> tuple[list[str], list[str]]:
    """What is measured, and what would be if it were here."""
    missing = [peer for peer in PEERS if not PEERS[peer].interpreter()]
    if given.peers is None and given.quick:
        return ["tcpx", "tcp"], []
    if given.peers is None:
        return [peer for peer in PEERS if peer not in missing], missing
    wanted = given.peers.split(",")
    if unknown := [peer for peer in wanted if peer not in PEERS]:
        parser.error(f"{', '.join(unknown)} is none of {', '.join(PEERS)}")
    for peer in missing:
        if peer in wanted:
            parser.error(f"{peer} is not here: {PEERS[peer].hint}")
    return [peer for peer in PEERS if peer == "tcpx" or peer in wanted], []


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="network_matrix.sh", description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="10 and 50 ms, and networks with faults, in less than a minute")
    parser.add_argument("--faults", action="store_true", help="only the networks with faults: cuts, routes that change, packets out of order")
    parser.add_argument("--fairness", action="store_true", help="only that")
    parser.add_argument("--rtt", type=float, action="append", metavar="MS", help="only these round trips")
    parser.add_argument("--loss", type=float, action="append", metavar="PERCENT", help="only these")
    parser.add_argument("--mtu", type=int, action="append", metavar="BYTES", help="only these")
    parser.add_argument("--mbit", type=float, default=1000, metavar="N", help="rate of the links (default %(default)g)")
    parser.add_argument("--sockets", type=int, default=4, metavar="N", help="for data, of a connection (default %(default)s)")
    parser.add_argument("--peers", metavar="LIST", help="beside tcpx, of tcp, nixl-ucx, mooncake (default: all that are here; quick: tcp)")
    parser.add_argument("--samples", type=int, metavar="N", help="of each time (default 5; quick: 2)")
    parser.add_argument("--streams", type=int, metavar="N", help="of each peer, in turns (default 3; quick: 1)")
    parser.add_argument("--stream-seconds", type=float, metavar="N", help="of a stream, after half as many (default 3; quick: 0.6)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the links' dice (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all numbers")
    parser.add_argument("--link", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.samples = given.samples or (2 if given.quick else 5)
    given.streams = given.streams or (1 if given.quick else 3)
    given.stream_seconds = given.stream_seconds or (0.6 if given.quick else 3.0)
    given.warm_up = 1 if given.quick else 5  # a socket that is used for the first time begins slowly
    given.part_seconds = 5.0
    wanted = [(lambda one: one.rtt_ms, given.rtt), (lambda one: one.mtu, given.mtu), (lambda one: round(one.loss * 100, 6), given.loss)]
    settings = FAULTS + LONG_FAULTS if given.faults else QUICK if given.quick else FULL
    if any(values for _, values in wanted):
        settings = [one for one in settings if one.counts and all(values is None or of(one) in values for of, values in wanted)]
    if given.fairness:
        settings = []
    elif not settings:
        parser.error("no setting has these; there are 0.2, 1, 10, 50, 100 ms, losses of 0, 0.01, 0.1, 1 %, MTU 1500, 9000")
    given.peers, left_out = chosen_peers(parser, given)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a script would ignore it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sysctl("tcp_no_metrics_save", 1)  # a network is not known from the one before
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    cores = len(os.sched_getaffinity(0))
    print(f"# {given.mbit:g} Mbit/s, {given.sockets} data sockets, {congestion}, {cores} cores, user-space link")
    for peer in left_out:
        print(f"# without {peer}: {PEERS[peer].hint}")
    print("# every byte is compared", flush=True)
    done: list[Measurement] = []
    report: list[dict[str, Any]] = []
    for i, setting in enumerate(settings):
        began = time.monotonic()
        measurement = Measurement(setting, given)
        try:
            counts = measurement.run()
        except Failed as failure:
            print(f"\nFAILED: {setting.name()}: {failure}")
            return 1
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        print(f"\n{setting.name()} ({i + 1} of {len(settings)}, {time.monotonic() - began:.0f} s)")
        print(measurement.table(), flush=True)
        if counts["dropped_by_hosts"]:
            print(f"  the hosts dropped {counts['dropped_by_hosts']} packets besides: a queue of the kernel's was full")
        report.append({**dataclasses.asdict(setting), "seen": measurement.seen, "packets": counts})
        if setting.counts:
            done.append(measurement)
    fairness: list[str] = []
    if given.fairness or settings == FULL:
        print(f"\nfairness, {given.streams} x {given.stream_seconds:g} s each way")
        try:
            for line in network_fairness.measure(given):
                print(line, flush=True)
                fairness.append(line.strip())
        except Failed as failure:
            print(f"\nFAILED: fairness: {failure}")
            return 1
    if done:
        print_summary(done, QUICK_SIZES if given.quick else SIZES)
    if given.json:
        given.json.write_text(json.dumps({"benchmark": "network_matrix", "machine": platform.platform(), "mbit": given.mbit,
                                          "sockets": given.sockets, "peers": given.peers, "settings": report, "fairness": fairness}, indent=1))  # fmt: skip
    print("PASSED: every byte is where it belongs")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
