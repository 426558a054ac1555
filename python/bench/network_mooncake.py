"""Mooncake's transfer engine over TCP: an end for network_ends.py. It runs in a process of the interpreter that has the wheel."""

from __future__ import annotations

import importlib.util
import socket
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from network_places import RemoteEnd, newest_interpreter, wait_while

FOLDER = Path(__file__).resolve().parents[2] / "build/mooncake"


def own_address() -> str:
    """Of the interface that leads to the hosts of the network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("10.77.9.3", 9))  # nothing is sent
        return str(sock.getsockname()[0])


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
    hint = "python3 -m venv build/mooncake/0.3.13 && build/mooncake/0.3.13/bin/pip install numpy mooncake-transfer-engine-non-cuda"

    @staticmethod
    def interpreter() -> str | None:
        return sys.executable if importlib.util.find_spec("mooncake") else newest_interpreter(FOLDER)

    def __init__(self, sockets: int) -> None:
        super().__init__()
        self.engine: Any = None

    def start(self) -> None:
        """An engine that is connected to none."""
        from mooncake.engine import TransferEngine

        self.engine = TransferEngine()
        if self.engine.initialize(own_address(), "P2PHANDSHAKE", "tcp", "") != 0:
            raise RuntimeError("Mooncake does not start")
        for memory in (self.greeting, self.arena):
            self.register(memory)

    def register(self, memory: np.ndarray) -> None:
        if self.engine.register_memory(memory.ctypes.data, memory.size) != 0:
            raise RuntimeError("Mooncake does not register memory")

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
        if (state := call(self.other, place.ctypes.data, there, place.size)) != 0:
            raise RuntimeError(f"a transfer of Mooncake ended with {state}")

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
