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

    def sum(self):
        return zlib.crc32(self.memory)

    def notifications(self, count, seconds):
        """The next so many, fewer when they do not come in time: pairs of agent and text."""
        return agents.wait_for_notifications(self.agent, count, seconds)

    def notify(self, agent, text):
        self.agent.send_notif(agent, text.encode())

    def deregister(self):
        self.agent.deregister_memory(self.registered)


wheel.serve(Peer(sys.argv[1], sys.argv[2], int(sys.argv[3])))
