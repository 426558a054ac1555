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

    def sum(self, size=None):
        """Of the first so many bytes, or all."""
        return agents.crc(self.memory[:size])

    def notifications(self, count, seconds):
        """The next so many, fewer when they do not come in time: pairs of agent and text."""
        return agents.wait_for_notifications(self.agent, count, seconds)

    def notify(self, agent, text):
        self.agent.send_notif(agent, text.encode())

    def storm(self, agent, address, gpu, size):
        """Writes to and reads from that memory, and notifies, until somebody ends this."""
        state, rounds = "DONE", 0
        while state == "DONE":
            operation, rounds = ("WRITE", "READ")[rounds % 2], rounds + 1
            ranges = ((self.memory.address, size, self.memory.gpu), (address, size, gpu))
            lists = [self.agent.get_xfer_descs([row], self.memory.kind) for row in ranges]
            handle = self.agent.initialize_xfer(operation, *lists, agent, b"storm")
            state = self.agent.transfer(handle)
            while state == "PROC":
                state = self.agent.check_xfer_state(handle)
            self.agent.release_xfer_handle(handle)
        return state

    def deregister(self):
        self.agent.deregister_memory(self.registered)


wheel.serve(Peer(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])))
