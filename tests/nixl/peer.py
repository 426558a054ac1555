"""The other agent of a test, a process of its own that wheel.Process drives.

usage: peer.py NAME BACKEND BYTES    has an agent of that name, and registers so much memory
"""

import sys
import zlib

import numpy

import agents
from agents import wheel


class Peer:
    def __init__(self, name, backend, size):
        self.agent = wheel.agent(wheel.load(), name, backend)
        self.memory = numpy.zeros(size, dtype=numpy.uint8)
        self.registered = self.agent.register_memory([(self.memory.ctypes.data, size, 0, "")], "DRAM")

    def address(self):
        return self.memory.ctypes.data

    def metadata(self):
        return self.agent.get_agent_metadata().hex()

    def load(self, metadata):
        return wheel.text(self.agent.add_remote_agent(bytes.fromhex(metadata)))

    def fill(self, seed):
        self.memory[:] = agents.random_bytes(seed, self.memory.size)

    def sum(self, size=None):
        """Of the first so many bytes, or all."""
        return zlib.crc32(self.memory[:size])

    def notifications(self, count, seconds):
        """The next so many, fewer when they do not come in time: pairs of agent and text."""
        return agents.wait_for_notifications(self.agent, count, seconds)

    def notify(self, agent, text):
        self.agent.send_notif(agent, text.encode())

    def storm(self, agent, address, size):
        """Writes to and reads from that memory, and notifies, until somebody ends this."""
        state, rounds = "DONE", 0
        while state == "DONE":
            operation, rounds = ("WRITE", "READ")[rounds % 2], rounds + 1
            lists = [self.agent.get_xfer_descs([(at, size, 0)], "DRAM") for at in (self.memory.ctypes.data, address)]
            handle = self.agent.initialize_xfer(operation, *lists, agent, b"storm")
            state = self.agent.transfer(handle)
            while state == "PROC":
                state = self.agent.check_xfer_state(handle)
            self.agent.release_xfer_handle(handle)
        return state

    def deregister(self):
        self.agent.deregister_memory(self.registered)


wheel.serve(Peer(sys.argv[1], sys.argv[2], int(sys.argv[3])))
