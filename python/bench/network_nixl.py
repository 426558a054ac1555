"""NIXL's own back-end for networks, UCX, over TCP alone: an end for network_ends.py. It runs in a process of the interpreter that has
the wheel, with one agent as NIXL makes it by default, so a thread of it polls all the time.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from network_places import PATIENCE, RemoteEnd, newest_interpreter, pieces, wait_while

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "integrations/nixl"))
import wheel  # noqa: E402


class Transfer:
    """A request that has been posted."""

    def __init__(self, agent: Any, handle: Any) -> None:
        self.agent, self.handle = agent, handle
        self.state = agent.transfer(handle)

    def pending(self) -> bool:
        if self.state == "PROC":
            self.state = self.agent.check_xfer_state(self.handle)
        return bool(self.state == "PROC")

    def wait(self, seconds: float) -> None:
        wait_while(self.pending, seconds, "a transfer of NIXL does not end")
        self.agent.release_xfer_handle(self.handle)
        if self.state != "DONE":
            raise RuntimeError(f"a transfer of NIXL ended with {self.state}")


class NixlEnd(RemoteEnd):
    polls = has_lists = True
    hint = "scripts/install_deps.sh --nixl installs it"

    @staticmethod
    def interpreter() -> str | None:
        return sys.executable if wheel.package() else newest_interpreter(ROOT / "build/nixl")

    def __init__(self, sockets: int) -> None:
        super().__init__()
        os.environ.pop("NIXL_PLUGIN_DIR", None)  # UCX is among the wheel's own plugins
        self.api = wheel.load()
        self.agent: Any = None

    def start(self) -> None:
        """An agent that is connected to none."""
        self.agent = wheel.agent(self.api, uuid.uuid4().hex, "UCX")
        for memory in (self.greeting, self.arena):
            self.register(memory)

    def register(self, memory: np.ndarray) -> None:
        self.agent.register_memory([(memory.ctypes.data, memory.size, 0, "")], "DRAM")

    def address(self) -> tuple[bytes, int]:
        self.start()
        return self.agent.get_agent_metadata(), self.greeting.ctypes.data

    def connect(self, address: tuple[bytes, int], count: int) -> float:
        """From the other's metadata to the end of the first write, because UCX connects behind make_connection's back."""
        self.start()
        self.greeting[:] = self.greeting_content
        metadata, there = address
        before = time.perf_counter()
        self.other = wheel.text(self.agent.add_remote_agent(metadata))
        self.agent.make_connection(self.other)
        self.begin("WRITE", self.greeting, there).wait(PATIENCE)
        return time.perf_counter() - before

    def close(self) -> None:
        """Of the client."""
        self.agent = None

    def allocate(self, count: int, nbytes: int) -> Any:
        there = super().allocate(count, nbytes)
        return self.agent.get_agent_metadata(), there

    def aim(self, there: tuple[bytes, list[int]]) -> None:
        metadata, self.there = there
        self.agent.add_remote_agent(metadata)

    def begin(self, operation: str, place: np.ndarray, there: int, cuts: Sequence[slice] = ()) -> Transfer:
        """cuts: as a list of these pieces"""
        cuts = cuts or [slice(0, place.size)]
        near, far = (self.agent.get_xfer_descs([(at + cut.start, cut.stop - cut.start, 0) for cut in cuts], "DRAM")
                     for at in (place.ctypes.data, there))  # fmt: skip
        return Transfer(self.agent, self.agent.initialize_xfer(operation, near, far, self.other, b""))

    def begin_write(self, i: int) -> Transfer:
        return self.begin("WRITE", self.places[i], self.there[i])

    def write_one(self, i: int) -> None:
        self.begin_write(i).wait(PATIENCE)

    def read_one(self, i: int) -> None:
        self.begin("READ", self.places[i], self.there[i]).wait(PATIENCE)

    def write_list_one(self, i: int) -> None:
        self.begin("WRITE", self.places[i], self.there[i], pieces(self.places[i].size)).wait(PATIENCE)

    def read_list_one(self, i: int) -> None:
        self.begin("READ", self.places[i], self.there[i], pieces(self.places[i].size)).wait(PATIENCE)
