"""What must not take an agent down: a peer that is killed in the middle, metadata that is foreign or damaged, ranges that are not there,
memory that is taken back under a request.

usage: check_faults.py [ROUNDS] [--memory vram [--gpus HERE,THERE]]    10 rounds of killing, and memory of the host, unless told
"""

import time
import unittest

import numpy

import agents
from agents import memory, wheel

GIVEN, ARGUMENTS = agents.options("rounds", 10, "of killing")
ROUNDS, KIND, GPUS = GIVEN.rounds, GIVEN.memory, GIVEN.gpus
BYTES = 16 << 20


class Faults(unittest.TestCase):
    def setUp(self):
        self.api = wheel.load()
        self.memory = memory.allocate(KIND, GPUS[0], BYTES)
        self.memory[:] = agents.random_bytes(1, BYTES)
        self.near = self.memory.address
        self.agent = wheel.agent(self.api, "here", "TCPX", gpu=GPUS[0])
        self.registered = self.agent.register_memory([(self.near, BYTES, GPUS[0], "")], KIND)
        self.peers = []

    def tearDown(self):
        for peer in self.peers:
            peer.process.kill()
            peer.process.wait()
            peer.process.stdin.close()
            peer.process.stdout.close()
        del self.agent

    def start_peer(self):
        peer = agents.start_peer("there", "TCPX", BYTES, GIVEN)
        self.peers.append(peer)
        self.far = peer.address()
        self.agent.add_remote_agent(bytes.fromhex(peer.metadata()))
        return peer

    def request(self, operation):
        """Of all of the memory."""
        lists = [self.agent.get_xfer_descs([(address, BYTES, gpu)], KIND) for address, gpu in zip((self.near, self.far), GPUS)]
        return self.agent.initialize_xfer(operation, *lists, "there")

    def state_of(self, call, handle):
        """What it answers, or the words of the error that it raises: the classes differ between releases."""
        try:
            return call(handle)
        except Exception as error:  # noqa: BLE001
            return str(error)

    def run_to_end(self, handle, seconds=20):
        end = time.monotonic() + seconds
        state = self.state_of(self.agent.transfer, handle)
        while state == "PROC" and time.monotonic() < end:
            state = self.state_of(self.agent.check_xfer_state, handle)
        return state

    def test_a_peer_that_is_killed_ends_requests_and_can_come_again(self):
        for round_ in range(ROUNDS):
            peer = self.start_peer()
            operation = ("WRITE", "READ")[round_ % 2]
            handle = self.request(operation)
            self.assertEqual(self.run_to_end(handle), "DONE")
            state = self.state_of(self.agent.transfer, handle)
            time.sleep(0.003 * (round_ % 5))
            peer.process.kill()
            killed = time.monotonic()
            while state in ("PROC", "DONE") and time.monotonic() < killed + 20:
                call = self.agent.transfer if state == "DONE" else self.agent.check_xfer_state
                state = self.state_of(call, handle)
            self.assertNotIn(state, ("PROC", "DONE"), f"round {round_}")
            self.agent.release_xfer_handle(handle)
            try:
                self.agent.remove_remote_agent("there")
            except self.api.nixlBind.nixlNotFoundError:
                pass  # NIXL has dropped it already

    def test_damaged_metadata(self):
        peer = agents.start_peer("there", "TCPX", BYTES, GIVEN)
        self.peers.append(peer)
        peer.address()
        good = bytes.fromhex(peer.metadata())
        random = numpy.random.default_rng(5)
        refused = 0
        for _ in range(200):
            bad = bytearray(good)
            if random.integers(2):
                bad = bad[: random.integers(len(bad))]
            else:
                for _ in range(1 + random.integers(4)):
                    bad[random.integers(len(bad))] ^= 1 << random.integers(8)
            try:
                name = self.agent.add_remote_agent(bytes(bad))
                self.agent.remove_remote_agent(wheel.text(name))
            except Exception:  # noqa: BLE001: NIXL's own errors, of many classes
                refused += 1
        self.assertGreater(refused, 100)
        self.agent.add_remote_agent(good)
        self.far = peer.address()
        self.assertEqual(self.run_to_end(self.request("WRITE")), "DONE")

    def test_memory_that_the_owner_took_back(self):
        peer = self.start_peer()
        handle = self.request("WRITE")
        self.assertEqual(self.run_to_end(handle), "DONE")
        peer.deregister()
        self.assertNotIn(self.run_to_end(handle), ("DONE", "PROC"))
        self.agent.release_xfer_handle(handle)

    def test_a_request_is_released_while_it_runs(self):
        self.start_peer()
        for _ in range(20):
            handle = self.request("WRITE")
            self.agent.transfer(handle)
            self.agent.release_xfer_handle(handle)
        self.assertEqual(self.run_to_end(self.request("WRITE")), "DONE")


unittest.main(argv=ARGUMENTS)
