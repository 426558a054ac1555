"""The other agent of a test, a process of its own that wheel.Process drives.

usage: peer.py NAME BACKEND BYTES DRAM|VRAM GPU    has an agent of that name, and registers so much memory
"""

import sys

import agents
from agents import memory, wheel


class Peer:
    def __init__(self, name, backend, size, kind, gpu):
        self.memory = memory.allocate(kind, gpu, size)
        self.agent = wheel.agent(wheel.load(), name, backend, gpu=self.memory.gpu)
        self.registered = self.agent.register_memory([(self.memory.address, size, self.memory.gpu, "")], kind)

    def address(self):
        return self.memory.address

    def metadata(self):
        return self.agent.get_agent_metadata().hex()

    def load(self, metadata):
        return wheel.text(self.agent.add_remote_agent(bytes.fromhex(metadata)))

    def fill(self, seed):
        self.memory[:] = agents.random_bytes(seed, self.memory.size)

    def sum(self):
        return agents.crc(self.memory)

    def notifications(self, count, seconds):
        """The next so many, fewer when they do not come in time: pairs of agent and text."""
        return agents.wait_for_notifications(self.agent, count, seconds)

    def notify(self, agent, text):
        self.agent.send_notif(agent, text.encode())

    def deregister(self):
        self.agent.deregister_memory(self.registered)


wheel.serve(Peer(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])))
