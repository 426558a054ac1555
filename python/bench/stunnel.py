"""What encryption takes of a processor: writes with UCCL_TCPX_SECURITY=encrypt, and the same bytes over as many TCP sockets through
`stunnel` (Debian's stunnel4) with TLS 1.3, a pre-shared key and the same cipher, in turns.

    PYTHONPATH=build/release/python python3 python/bench/stunnel.py
    PYTHONPATH=build/release/python python3 python/bench/stunnel.py --sockets 8 --json stunnel.json

Both ends are on this host and go over loopback; each is a process, and has a `stunnel` of its own. Processor time is that of all
threads of these processes, the kernel's part included. All that arrives is compared. Exit code 1: wrong bytes, or an end that
failed; 77: no stunnel.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import os
import platform
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from network_ends import serve
from network_places import PATIENCE, wait_while

CIPHER = "TLS_AES_128_GCM_SHA256"  # that of secure/record_cipher.h, too
PLACE = 64 << 20                   # bytes of a write


def processor_seconds(pid: int) -> float:
    clock = ctypes.c_int()
    if error := ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise OSError(error, os.strerror(error), str(pid))
    return time.clock_gettime(clock.value)


def free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in taken]
    for sock in taken:
        sock.close()
    return ports


class Stunnel:
    """One of the two, from a port of this host to another."""

    def __init__(self, program: str, folder: Path, name: str, accept: int, connect: int) -> None:
        self.log = folder / f"{name}.log"
        config = folder / f"{name}.conf"
        config.write_text(
            f"foreground = yes\npid =\ndebug = info\nsslVersion = TLSv1.3\nciphersuites = {CIPHER}\n"
            "socket = l:TCP_NODELAY=1\nsocket = r:TCP_NODELAY=1\n"
            f"[{name}]\nclient = {'yes' if name == 'sender' else 'no'}\naccept = 127.0.0.1:{accept}\nconnect = 127.0.0.1:{connect}\n"
            f"ciphers = PSK\nPSKsecrets = {folder / 'secret.psk'}\n")  # fmt: skip
        with self.log.open("w") as log:
            self.process = subprocess.Popen([program, config], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.pid = self.process.pid
        wait_while(lambda: "Configuration successful" not in self.log.read_text() and self.process.poll() is None, PATIENCE,
                   "stunnel does not start", 0.01)  # fmt: skip
        if self.process.poll() is not None:
            raise ValueError(f"stunnel has ended:\n{self.log.read_text()}")

    def encrypts(self, sockets: int) -> bool:
        """With the same cipher as the others, on every socket."""
        return sum("ciphersuite: " + CIPHER in line for line in self.log.read_text().splitlines()) == sockets

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)


class Process:
    """An end (network_ends.py). A `start` has one `finish`, which returns what the call returned."""

    def __init__(self, peer: str, sockets: int) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, peer), daemon=True)
        self.process.start()
        theirs.close()
        self.pid = self.process.pid or 0
        self.call("begin", sockets)

    def start(self, name: str, *arguments: Any) -> None:
        self.pipe.send((name, arguments))

    def finish(self) -> Any:
        if not self.pipe.poll(4 * PATIENCE):
            raise TimeoutError("an end does not answer")
        well, answer = self.pipe.recv()  # EOFError: it has ended, and has said why
        if not well:
            raise ValueError(answer)
        return answer

    def call(self, name: str, *arguments: Any) -> Any:
        self.start(name, *arguments)
        return self.finish()


class Way:
    """From one end to the other: `processes` are those of the sender, and those of the receiver."""

    def __init__(self, peer: str, sockets: int, places: int, program: str = "", folder: Path = Path()) -> None:
        self.sender, self.receiver = Process(peer, sockets), Process(peer, sockets)
        self.stunnels: list[Stunnel] = []
        self.places, self.seed = places, 0
        address = self.receiver.call("address")
        if program:
            between, ours = free_ports(2)
            self.stunnels += [Stunnel(program, folder, "receiver", between, address[1]), Stunnel(program, folder, "sender", ours, between)]
            address = ("127.0.0.1", ours)
        self.receiver.start("accept", 1)
        self.sender.call("connect", address, 1)
        self.receiver.finish()
        self.sender.call("aim", self.receiver.call("allocate", places, PLACE))
        self.sender.call("allocate", places, PLACE)

    def pids(self) -> list[int]:
        """Sender, receiver, and where there are any the stunnels of both."""
        return [self.sender.pid, self.receiver.pid, *(stunnel.pid for stunnel in reversed(self.stunnels))]

    def sample(self) -> list[float]:
        """Seconds, and processor seconds of each of the `pids`, for a write of every place. Raises ValueError: wrong bytes."""
        self.seed += self.places
        self.sender.call("fill", self.seed)
        began, before = time.monotonic(), [processor_seconds(pid) for pid in self.pids()]
        self.sender.call("write", PATIENCE)
        after, ended = [processor_seconds(pid) for pid in self.pids()], time.monotonic()
        if wrong := self.receiver.call("wrong", self.seed):
            raise ValueError(f"wrong bytes in the places {wrong}{' behind stunnel' if self.stunnels else ''}")
        return [ended - began, *(b - a for a, b in zip(before, after))]

    def end(self) -> None:
        for each in (self.sender, self.receiver):
            each.process.kill()
            each.process.join(PATIENCE)
            each.pipe.close()
        for stunnel in self.stunnels:
            stunnel.end()


def rates(nbytes: int, ours: list[list[float]], theirs: list[list[float]]) -> dict[str, list[list[float]]]:
    """By row of the table: GB/s, and GB for a core-second at the sender and at the receiver, of each sample."""
    times = {
        "encrypt": ours,
        "stunnel": [[seconds, sender, receiver] for seconds, _, _, sender, receiver in theirs],
        "stunnel and its end": [[seconds, a + sender, b + receiver] for seconds, a, b, sender, receiver in theirs],
    }
    return {name: [[nbytes / value / 1e9 for value in sample] for sample in samples] for name, samples in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sockets", type=int, default=4, choices=range(1, 9), metavar="N", help="1 to 8 (default %(default)s)")
    parser.add_argument("--places", type=int, default=8, metavar="N", help="writes of 64 MiB in a sample (default %(default)s)")
    parser.add_argument("--samples", type=int, default=7, metavar="N", help="of each, after one that warms up (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all numbers")
    given = parser.parse_args()
    if min(given.places, given.samples) < 1:
        parser.error("at least one place and one sample")
    program = shutil.which("stunnel") or shutil.which("stunnel4")
    if not program:
        print("skipped: no stunnel here: Debian's package is stunnel4", file=sys.stderr)
        return 77

    ways: list[Way] = []
    seen: list[list[list[float]]] = [[], []]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "secret").write_text(secrets.token_hex(32))
        (folder / "secret.psk").write_text(f"end:{secrets.token_hex(32)}\n")
        for file in folder.iterdir():
            file.chmod(0o600)
        os.environ |= {"UCCL_TCPX_SECURITY": "encrypt", "UCCL_TCPX_SECRET_FILE": str(folder / "secret"), "UCCL_TCPX_LOCAL": "off",
                       "UCCL_TCPX_PLUGIN_PATH": "embedded", "NCCL_NSOCKS_PERTHREAD": str(given.sockets), "NCCL_SOCKET_NTHREADS": "1",
                       "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "lo", "UCCL_TCPX_LOG_LEVEL": os.environ.get("UCCL_TCPX_LOG_LEVEL", "off")}  # fmt: skip
        try:
            ways.append(Way("tcpx", given.sockets, given.places))
            ways.append(Way("tcp", given.sockets, given.places, program, folder))
            for turn in range(given.samples + 1):
                for way, samples in zip(ways, seen):
                    measured = way.sample()
                    if turn > 0:
                        samples.append(measured)
            if not all(stunnel.encrypts(given.sockets) for stunnel in ways[1].stunnels):
                raise ValueError(f"stunnel has not encrypted with {CIPHER}:\n{ways[1].stunnels[0].log.read_text()}")
        finally:
            for way in ways:
                way.end()

    table = rates(given.places * PLACE, *seen)
    medians = {name: [statistics.median(values) for values in zip(*samples)] for name, samples in table.items()}
    print(f"{given.places * PLACE >> 20} MiB over {given.sockets} sockets, {given.samples} samples; all bytes compared\n"
          f"{'':<20}{'GB/s':>20}  {'GB a core-second: sender':>26}{'receiver':>20}")  # fmt: skip
    for row, samples in table.items():
        cells = [f"{median:.2f} [{min(values):.2f} .. {max(values):.2f}]" for median, values in zip(medians[row], zip(*samples))]
        print(f"{row:<20}{cells[0]:>20}  {cells[1]:>26}{cells[2]:>20}")
    for row in list(table)[1:]:
        print(f"encrypt beside {row}: {', '.join(f'{ours / theirs:.2f}' for ours, theirs in zip(medians['encrypt'], medians[row]))}")
    if given.json:
        report = {"machine": platform.platform(), "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg(),
                  "bytes": given.places * PLACE, "sockets": given.sockets, "rates": table}  # fmt: skip
        given.json.write_text(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ValueError, EOFError) as error:
        sys.exit(str(error) or "an end has ended")
