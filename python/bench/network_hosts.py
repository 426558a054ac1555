"""What network_matrix.py measures over: two hosts (tests/netns/cluster.sh), a link between them for each setting of the network,
and on each host an end (network_ends.py) in a process of its own.
"""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from network_ends import PEERS
from network_places import PATIENCE

PIECE = 256 << 10  # bytes of a write of a stream
CLUSTER = Path(__file__).resolve().parents[2] / "tests/netns/cluster.sh"


@dataclasses.dataclass
class Setting:
    """A network. Times of it count where `counts`; else only right bytes do."""

    rtt_ms: float
    loss: float = 0.0
    mtu: int = 1500
    counts: bool = True
    options: dict[str, float] = dataclasses.field(default_factory=dict)  # of netns_link
    probing: int = 0  # net.ipv4.tcp_mtu_probing

    def name(self) -> str:
        more = "".join(f", {option} {value:g}" for option, value in self.options.items())
        return f"{self.rtt_ms:g} ms, loss {self.loss * 100:g} %, MTU {self.mtu}{more}"


class Failed(Exception):
    """Wrong bytes, or an end that failed."""


def cluster(*arguments: str) -> None:
    subprocess.run([CLUSTER, *arguments], check=True, stdin=subprocess.DEVNULL)


def sysctl(name: str, value: int) -> None:
    for host in "ab":
        cluster("exec", host, "sh", "-c", f"echo {value} >/proc/sys/net/ipv4/{name}")


def dropped(host: str) -> int:
    """Packets of the link that the host's kernel has thrown away: 0, unless its queues were full."""
    counters = (f"/sys/class/net/far0/statistics/{way}_dropped" for way in ("rx", "tx"))
    said = subprocess.run([CLUSTER, "exec", host, "cat", *counters], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return sum(map(int, said.stdout.split()))  # nothing where the link has not begun


class Link:
    """A network between the hosts, until `end`."""

    def __init__(self, program: str, setting: Setting, mbit: float, seed: int) -> None:
        devices = [f"far{side}{os.getpid()}" for side in "ab"]
        options = {"delay-us": setting.rtt_ms * 500, "mbit": mbit, "loss": setting.loss, "seed": seed, **setting.options}
        words = [f"--{name}={value:.10g}" for name, value in options.items()]
        self.process = subprocess.Popen([program, *devices, *words], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        assert self.process.stdout
        try:
            if self.process.stdout.readline() != "ready\n":
                sys.exit(self.process.wait())  # it has said why
            self.began = time.monotonic()
            cluster("far", *devices, str(setting.mtu))
        except BaseException:
            self.end()
            raise

    def end(self) -> dict[str, int]:
        """What became of the packets of both hosts. dropped_by_hosts: they are lost besides what was asked for."""
        by_hosts = sum(map(dropped, "ab"))
        self.process.terminate()
        said, _ = self.process.communicate(timeout=10)
        counts: dict[str, int] = {}
        for name, value in re.findall(r"(\w+)=(\d+)", said):
            counts[name] = counts.get(name, 0) + int(value)
        return {**counts, "dropped_by_hosts": by_hosts}


class Process:
    """An end on a host. A `start` has one `finish`, which returns what the call returned."""

    def __init__(self, peer: str, host: str, sockets: int, interfaces: str) -> None:
        ours, theirs = socket.socketpair()
        # UCX takes no other path than the others, and no other interface.
        environment = {**os.environ, "UCX_TLS": "tcp", "UCX_NET_DEVICES": interfaces.lstrip("="), "NIXL_LOG_LEVEL": "warn",
                       "MC_LOG_LEVEL": "ERROR", "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": interfaces, "NCCL_NSOCKS_PERTHREAD": str(sockets),
                       "NCCL_SOCKET_NTHREADS": "1", "UCCL_TCPX_LOCAL": "off",
                       "UCCL_TCPX_LOG_LEVEL": os.environ.get("UCCL_TCPX_LOG_LEVEL", "off")}  # fmt: skip
        program = [PEERS[peer].interpreter() or sys.executable, str(Path(__file__).with_name("network_ends.py")), peer, str(theirs.fileno())]
        self.name = f"{peer} on host {host}"
        self.process = subprocess.Popen([CLUSTER, "exec", host, *program], env=environment, pass_fds=[theirs.fileno()],
                                        stdin=subprocess.DEVNULL)  # fmt: skip
        theirs.close()
        self.pipe = Connection(ours.detach())
        self.start("begin", sockets)

    def start(self, call: str, *arguments: Any) -> None:
        self.pipe.send((call, arguments))

    def finish(self, seconds: float = 4 * PATIENCE) -> Any:
        try:
            if not self.pipe.poll(seconds):
                raise Failed(f"{self.name} does not answer")
            well, answer = self.pipe.recv()
        except (EOFError, ConnectionError):
            raise Failed(f"{self.name} has ended") from None
        if not well:
            raise Failed(f"{self.name}: {answer}")
        return answer

    def call(self, call: str, *arguments: Any) -> Any:
        self.start(call, *arguments)
        return self.finish()

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.pipe.close()  # which ends it
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Pair:
    """Server and client of a peer, and what is measured between them."""

    seed = 0

    def __init__(self, peer: str, sockets: int, interfaces: str = "=far0") -> None:
        self.peer = peer
        self.server, self.client = (Process(peer, host, sockets, interfaces) for host in "ba")

    def ready(self) -> None:
        for end in (self.server, self.client):
            end.finish()
        self.address = self.server.call("address")
        self.rest()

    def wake(self) -> None:
        for process in (self.client, self.server):
            process.process.send_signal(signal.SIGCONT)

    def rest(self) -> None:
        """It takes no core from the others while they are measured."""
        if PEERS[self.peer].polls:
            for process in (self.client, self.server):
                process.process.send_signal(signal.SIGSTOP)

    def connect(self, count: int) -> float:
        self.server.start("accept", count)
        self.client.start("connect", self.address, count)
        seconds = self.client.finish()
        self.server.finish()
        return seconds

    def close(self) -> None:
        self.client.call("close")

    def allocate(self, count: int, nbytes: int) -> int:
        """Empty places at both ends. @return a seed for what is to be in them"""
        self.client.call("aim", self.server.call("allocate", count, nbytes))
        self.client.call("allocate", count, nbytes)
        Pair.seed += count
        return Pair.seed

    def expect(self, end: Process, what: str, seed: int, count: int | None = None) -> None:
        if wrong := end.call("wrong", seed, count):
            raise Failed(f"{what}, {self.peer}: wrong bytes in the places {wrong}")

    def one_at_a_time(self, what: str, nbytes: int, warm_up: int, samples: int, seconds: float) -> list[float]:
        """what: write or read, write_list or read_list"""
        seed = self.allocate(warm_up + samples, nbytes)
        source, target = (self.client, self.server) if what.startswith("write") else (self.server, self.client)
        source.call("fill", seed)
        times = self.client.call(what, seconds)
        self.expect(target, f"{what} of {nbytes} bytes", seed, len(times))
        return times[min(warm_up, len(times) - 1) :]

    def there_and_back(self, nbytes: int, warm_up: int, samples: int, rtt: float) -> list[float]:
        count = warm_up + samples
        seed = self.allocate(count, nbytes)
        for end in (self.server, self.client):
            end.call("post")
        time.sleep(2 * rtt + 0.01)  # the news of the receives are there
        self.server.start("answer", count)
        times = self.client.call("there_and_back", seed, count)
        self.server.finish()
        for end in (self.server, self.client):
            self.expect(end, f"there and back of {nbytes} bytes", seed)
        return [seconds / 2 for seconds in times[warm_up:]]

    def weights_steps(self, nbytes: int, samples: int, rtt: float) -> list[float]:
        """From the source's begin, on the client, to the receiver's end. A step before warms up."""
        seed = self.allocate(1 + samples, nbytes)
        self.client.call("fill", seed)
        with tempfile.TemporaryDirectory() as path:
            self.server.start("weights_steps", path, 1, 0.0)
            sent = self.client.call("weights_steps", path, 0, 2 * rtt + 0.01)
            received = self.server.finish()
        self.expect(self.server, f"a weights step of {nbytes} bytes", seed)
        return [end - begin for (begin, _), (_, end) in zip(sent, received)][1:]

    def stream(self, places: int, warm_up: float, seconds: float) -> float:
        """Bytes in a second, which the client tells where the server does not count them as they come."""
        seed = self.allocate(places, PIECE)
        self.client.call("fill", seed)
        self.client.start("stream", warm_up, seconds)
        time.sleep(warm_up)
        before = self.server.call("received_so_far")
        time.sleep(seconds)
        after = self.server.call("received_so_far")
        rate = self.client.finish()
        self.expect(self.server, "stream", seed, self.server.call("streamed"))
        return (after[1] - before[1]) / (after[0] - before[0]) if before else rate

    def end(self) -> None:
        for process in (self.client, self.server):
            process.end()
