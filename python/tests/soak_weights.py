"""A trainer and its receivers under trouble: one of them is killed or stopped every few seconds, strangers come to each port.

    PYTHONPATH=build/release/python python3 python/tests/soak_weights.py --seconds 3600

Each broadcast must be right, or refused in words, at all ranks that run, within a second of each other; and the processes that live
through it all must hold no descriptor, thread or mapped byte more at the end than at the beginning. Prints what it does, and at the
end what it has found; the exit code is 1 when that is not right. Ctrl-C ends it early, with the same report.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from ranks import join_here
from resource_counts import held_now

import tcpx
from tcpx import weights
from tcpx._weights import chain as _chain
from tcpx.rendezvous import Group

#: Ranks: the trainer, and receivers. The first receiver is only stopped, and so lives to the end as the trainer does.
WORLD = 5
#: Seconds: between troubles; of a broadcast without progress; and by how much the ranks may differ in when a round ends for them.
EVERY, TIMEOUT, APART = 5.0, 2.0, 1.0
#: Seconds after the last trouble in which what it has left ends: whoever has connected may take 10 to say who it is. And those
#: within which rounds are right then.
SETTLED, CALM = 15.0, 15.0
ROWS = 512


def state_of(seed: int) -> dict[str, Any]:
    """Tensors of one seed, 8 MiB: what the trainer sends, and with what receivers compare what they have got."""
    make = np.random.default_rng(seed)
    state = {f"layer.{i}": make.standard_normal((ROWS + i, 1024), np.float32) for i in range(4)}
    return state | {"seed": np.array([seed], np.int64)}


def _is_right(state: dict[str, Any]) -> bool:
    want = state_of(int(state["seed"][0]))
    return all((state[name] == want[name]).all() for name in want)


def _kinds(held: Counter[str]) -> dict[str, int]:
    """How many of each kind: the numbers of single things differ from one moment to the next."""
    kinds: Counter[str] = Counter()
    for name, count in held.items():
        if name.startswith("descriptor"):
            name = "descriptors"
        elif name.startswith("thread"):
            name = f"threads {name.split(maxsplit=2)[2]}"
        kinds[name] += count
    return dict(kinds)


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def meet_all(group: Group) -> None:
    """Who follows whom changes with those who are lost: each pair is connected, so that a count does not depend on that."""
    for rank in set(range(WORLD)) - {group.rank}:
        with suppress(tcpx.Error):  # it is in trouble
            if group.renew(rank):
                group.connection(rank, TIMEOUT / WORLD)


def run_rank(path: str, rank: int) -> None:
    """Calls broadcast for ever. A line of JSON for each call: when it ended, of which round, how."""
    last = [0]
    end = _chain.Member.end

    def end_of(self: _chain.Member) -> None:
        last[0] = self.round
        end(self)

    _chain.Member.end = end_of  # type: ignore[method-assign]
    group = join_here(path, rank, WORLD)
    seed = random.SystemRandom().getrandbits(32)
    state = state_of(seed)
    while True:
        last[0] = 0
        if rank == 0:
            seed += 1
            for name, tensor in state_of(seed).items():
                state[name][...] = tensor
        began = time.monotonic()
        why = ""
        lost: tuple[int, ...] = ()
        try:
            lost = weights.broadcast(state, 0, group=group, timeout=TIMEOUT).lost
        except tcpx.Error as error:
            why = f"{type(error).__name__}: {error}"
        ended = time.monotonic()
        right = why != "" or _is_right(state)
        said = {"rank": rank, "pid": os.getpid(), "round": last[0], "began": began, "ended": ended, "why": why, "right": right}
        print(json.dumps(said | {"lost": lost, "held": _kinds(held_now()) | {"resident bytes": _rss()}}), flush=True)
        if not why and not lost:
            meet_all(group.part("weights"))
        if rank == 0:
            time.sleep(0.5)
        elif why and not last[0]:  # it was taken out while it was stopped, and is asked again when it has joined anew
            group.close()
            group.endpoint.close()
            group = join_here(path, rank, WORLD)


def _listening(pid: int) -> set[int]:
    """The TCP ports at which a process listens. Source: proc(5), /proc/pid/net/tcp."""
    sockets = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            sockets.add(os.readlink(f"/proc/{pid}/fd/{number}"))
        except FileNotFoundError:
            continue
    ports = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *rest = line.split()
        if state == "0A" and f"socket:[{rest[5]}]" in sockets:
            ports.add(int(local.split(":")[1], 16))
    return ports


class Soak:
    """The processes, what they say, and the trouble that is made."""

    def __init__(self, path: str, seed: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.said: list[dict[str, Any]] = []
        self.wrong: list[str] = []
        #: Of each rank, when it was in trouble: from when it was stopped or killed until it ran again.
        self.trouble: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self.done: Counter[str] = Counter()
        self.began = time.monotonic()
        self.strangers = 0
        self.ranks = [self.start(rank) for rank in range(WORLD)]
        self.over = threading.Event()
        self.stranger = threading.Thread(target=self._visit, daemon=True)
        self.stranger.start()

    def start(self, rank: int) -> subprocess.Popen[str]:
        environment = os.environ | {"UCCL_TCPX_SOFT_IO_THREADS": "1", "UCCL_TCPX_LOG_LEVEL": "error"}
        if rank % 2:
            environment["UCCL_TCPX_LOCAL"] = "off"  # half of the ranks are reached by TCP
        command = [sys.executable, __file__, "--rank", str(rank), "--store", self.path]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        threading.Thread(target=self._listen, args=(rank, process, process.stdout), daemon=True).start()
        return process

    def _listen(self, rank: int, process: subprocess.Popen[str], lines: IO[str]) -> None:
        for line in lines:
            try:
                said = json.loads(line)
            except ValueError:
                continue  # it was killed within a line
            with self.lock:
                self.said.append(said)
                if not said["right"]:
                    self.wrong.append(f"wrong bytes at rank {rank} in round {said['round']:x}")
        if process.wait() != -signal.SIGKILL:
            with self.lock:
                self.wrong.append(f"rank {rank} ended by itself: {process.returncode}")

    def make_trouble(self) -> str:
        rank = self.random.randrange(1, WORLD)
        kind = "stop" if rank == 1 else self.random.choice(["stop", "kill", "stop and kill"])
        process = self.ranks[rank]
        begin = time.monotonic()
        if "stop" in kind:
            process.send_signal(signal.SIGSTOP)
            time.sleep(self.random.uniform(0.1, EVERY - 1))
        if "kill" in kind:
            process.kill()
            process.wait()
            self.ranks[rank] = self.start(rank)
        else:
            process.send_signal(signal.SIGCONT)
        with self.lock:
            self.trouble[rank].append((begin, time.monotonic()))
        self.done[kind] += 1
        return f"{kind} rank {rank}, for {time.monotonic() - begin:.1f} s"

    def _visit(self) -> None:
        """Strangers at each port: near-right beginnings, noise, silence."""
        kept: list[socket.socket] = []
        while not self.over.wait(0.05):
            for process in list(self.ranks):
                try:
                    ports = _listening(process.pid)
                except OSError:
                    continue  # it is being killed
                for port in sorted(ports):
                    try:
                        one = socket.create_connection(("127.0.0.1", port), 0.2)
                        one.setblocking(False)
                        begin = self.random.choice([b"", b"TCPX", b"TCPXJOIN", b"GET / HTTP/1.1\r\n\r\n"])
                        one.send(begin + self.random.randbytes(self.random.randrange(0, 400)))
                        kept.append(one)
                        self.strangers += 1
                    except OSError:
                        continue
            while len(kept) > 40:
                kept.pop(self.random.randrange(len(kept))).close()
        for one in kept:
            one.close()

    def calm(self, limit: float) -> list[dict[str, Any]]:
        """Waits until all is as it stays without troubles, and for rounds that are right at all ranks. Returns what those say."""
        time.sleep(SETTLED)
        begin = time.monotonic()
        while time.monotonic() < begin + limit:
            time.sleep(0.2)
            with self.lock:
                recent = [one for one in self.said if one["ended"] > begin]
            whole = [its for its in _by_round(recent) if len(its) == WORLD and not any(one["why"] or one["lost"] for one in its)]
            if len(whole) >= 5:
                return [one for its in whole for one in its]
        return []

    def close(self) -> None:
        self.over.set()
        self.stranger.join()
        for process in self.ranks:
            process.kill()

    def in_trouble(self, rank: int, begin: float, end: float) -> bool:
        return any(b <= end and begin <= e for b, e in self.trouble[rank])

    def judge(self) -> tuple[Counter[str], float]:
        """How rounds ended, and by how many seconds the ranks that ran were apart at most. Adds what is wrong to `wrong`."""
        ends: Counter[str] = Counter()
        worst = 0.0
        rounds = _by_round([one for one in self.said if one["round"]])
        last = max((one["ended"] for its in rounds for one in its if one["rank"] == 0), default=0.0)
        for its in rounds:
            source = next((one for one in its if one["rank"] == 0), None)
            if source is None:
                if not any(one["ended"] > last for one in its):
                    self.wrong.append(f"a round of nobody at ranks {[one['rank'] for one in its]}")
                continue
            ends["refused" if source["why"] else "without some" if source["lost"] else "right"] += 1
            for one in its:
                # A rank that was stopped hears of the end when it runs again.
                if self.in_trouble(one["rank"], source["began"] - TIMEOUT, max(source["ended"], one["ended"])):
                    continue
                if one["rank"] in source["lost"]:
                    continue  # it is told at once, while the others go on
                apart = abs(one["ended"] - source["ended"])
                worst = max(worst, apart)
                if apart > APART:
                    when = "behind" if one["ended"] > source["ended"] else "before"
                    troubled = [r for r in range(WORLD) if self.in_trouble(r, source["began"] - TIMEOUT, source["ended"] + TIMEOUT)]
                    self.wrong.append(
                        f"rank {one['rank']} ended {apart:.2f} s {when} the source in round {one['round']:x}: {one['why'] or 'right'}; at the "
                        f"source, {source['began'] - self.began:.1f} to {source['ended'] - self.began:.1f} s: {source['why'] or 'right'}, "
                        f"lost {source['lost']}; troubled: {troubled}"
                    )
                if bool(one["why"]) != bool(source["why"]):
                    self.wrong.append(f"round {one['round']:x}: {source['why'] or 'right'!r} at the source, {one['why']!r} at {one['rank']}")
        return ends, worst


def _by_round(said: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    rounds: dict[int, list[dict[str, Any]]] = {}
    for one in said:
        rounds.setdefault(one["round"], []).append(one)
    return list(rounds.values())


def _held_by(said: list[dict[str, Any]], pid: int) -> dict[str, list[int]]:
    held: dict[str, list[int]] = defaultdict(list)
    for one in said:
        if one["pid"] == pid:
            for kind, count in one["held"].items():
                held[kind].append(count)
    return held


def soak(seconds: float, seed: int) -> list[str]:
    """Returns what is wrong; prints what is done."""
    with tempfile.TemporaryDirectory() as path:
        run = Soak(path, seed)
        try:
            before = run.calm(CALM)
            begin = time.monotonic()
            try:
                while time.monotonic() < begin + seconds and before:
                    time.sleep(max(0.0, EVERY - (time.monotonic() - begin) % EVERY))
                    print(f"{time.monotonic() - begin:6.0f} s: {run.make_trouble()}", flush=True)
            except KeyboardInterrupt:
                print("stopped; waiting for calm", flush=True)
            after = run.calm(CALM)
        finally:
            run.close()
        if not before or not after:
            run.wrong.append(f"no calm {'before' if not before else 'after'} the troubles")
        for pid in sorted({one["pid"] for one in before} & {one["pid"] for one in after}):
            old, new = ({kind: min(counts) for kind, counts in _held_by(some, pid).items()} for some in (before, after))
            for kind, count in new.items():
                if count > old.get(kind, 0):
                    text = f"process {pid}: {kind}: {old.get(kind, 0)} -> {count}"
                    print(text)
                    if kind != "resident bytes":  # the allocator's choice: to be looked at
                        run.wrong.append(text)
        ends, worst = run.judge()
        print(f"troubles: {dict(run.done)}; strangers: {run.strangers}; rounds: {dict(ends)}; at most {worst:.2f} s apart")
        why = Counter(one["why"] for one in run.said if one["why"])
        for text, count in why.most_common(12):
            print(f"{count:6} {text}")
        return run.wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long trouble is made (3600)")
    parser.add_argument("--seed", type=int, default=1, help="of the troubles (1)")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        run_rank(arguments.store, arguments.rank)
    wrong = soak(arguments.seconds, arguments.seed)
    for text in wrong[:40]:
        print(f"WRONG: {text}")
    print(f"{len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
