"""One agent is killed, again and again, while both move bytes and notify: every request of the other ends, and with the metadata of the next
agent of that name all goes on.

usage: check_kills.py [ROUNDS [SECONDS]] [--memory vram [--gpus HERE,THERE]]    20 rounds, an end within 20 seconds, memory of the host
"""

import time
import unittest

import numpy

import agents
from agents import memory, state_of, wheel

GIVEN, ARGUMENTS = agents.options(rounds=20, seconds=20.0)
ROUNDS, SECONDS, KIND, GPUS = GIVEN.rounds, GIVEN.seconds, GIVEN.memory, GIVEN.gpus
HALF = 8 << 20  # of each memory: the first is what this agent moves, the second what the other one moves
BLOCK_BYTES = 16 << 10


class Kills(unittest.TestCase):
    def setUp(self):
        self.memory = memory.allocate(KIND, GPUS[0], 2 * HALF)
        self.near = self.memory.address
        self.agent = wheel.agent(wheel.load(), "here", "TCPX", gpu=GPUS[0])
        self.registered = self.agent.register_memory([(self.near, 2 * HALF, GPUS[0], "")], KIND)

    def start_peer(self):
        peer = agents.start_peer("there", "TCPX", 2 * HALF, GIVEN)
        self.addCleanup(peer.kill)
        self.far = peer.address()
        self.agent.add_remote_agent(bytes.fromhex(peer.metadata()))
        peer.load(self.agent.get_agent_metadata().hex())
        return peer

    def request(self, operation, rows, notification=b""):
        """Of (offset here, offset there, bytes)."""
        lists = [[(base + row[i], row[2], GPUS[i]) for row in rows] for i, base in enumerate((self.near, self.far))]
        descs = [self.agent.get_xfer_descs(side, KIND) for side in lists]
        return self.agent.initialize_xfer(operation, *descs, "there", notification)

    def finish(self, handle, state):
        end = time.monotonic() + 60
        while state == "PROC" and time.monotonic() < end:
            state = state_of(self.agent.check_xfer_state, handle)
        return state

    def move(self, operation, rows):
        handle = self.request(operation, rows)
        self.assertEqual(self.finish(handle, state_of(self.agent.transfer, handle)), "DONE")
        self.agent.release_xfer_handle(handle)

    def expect_right_bytes(self, peer, round_):
        """There and back again."""
        self.memory[:HALF] = agents.random_bytes(round_, HALF)
        self.move("WRITE", [(0, 0, HALF)])
        self.assertEqual(peer.sum(HALF), agents.crc(self.memory[:HALF]))
        self.memory[:HALF] = 0
        self.move("READ", [(0, 0, HALF)])
        self.assertTrue(numpy.array_equal(self.memory[:HALF], agents.random_bytes(round_, HALF)))

    def requests(self, random):
        blocks = HALF // 2 // BLOCK_BYTES
        mixed = [(int(i) * BLOCK_BYTES, int(j) * BLOCK_BYTES, BLOCK_BYTES) for i, j in zip(*(random.permutation(blocks) for _ in "ab"))]
        return [
            self.request("WRITE", [(0, 0, HALF // 2)], b"written"),
            self.request("READ", [(HALF // 2, HALF // 2, HALF // 2)], b"read"),
            self.request("WRITE", mixed),
            self.request("WRITE", [(3, 5, 8)], b"short"),
            self.request("READ", [(HALF // 2, HALF // 2, 8)], b"short"),
        ]

    def post_until(self, handles, end):
        """Posts each again when it is done. @return their states"""
        states = [state_of(self.agent.transfer, handle) for handle in handles]
        while time.monotonic() < end:
            for i, handle in enumerate(handles):
                if states[i] == "PROC":
                    states[i] = state_of(self.agent.check_xfer_state, handle)
                elif states[i] == "DONE":
                    states[i] = state_of(self.agent.transfer, handle)
            if failed := states.count("ERR"):
                self.fail(f"{failed} requests failed while both lived")
            self.agent.send_notif("there", b"HB:here")
            self.agent.get_new_notifs()
        return states

    def resources(self, most):
        """Once the connections that the last peer had made are wound up, which may be after the last request has ended."""
        end = time.monotonic() + SECONDS
        while True:
            now = agents.resources()
            if all(a <= b for a, b in zip(now, most)) or time.monotonic() > end:
                return now
            time.sleep(0.01)

    def test_every_request_ends_and_the_next_agent_goes_on(self):
        random = numpy.random.default_rng(7)
        slowest, ends = 0, {}
        for round_ in range(ROUNDS):
            peer = self.start_peer()
            self.expect_right_bytes(peer, round_)
            handles = self.requests(random)
            if round_ % 4:  # else only this one moves something
                peer.tell("storm", "here", self.near + HALF, GPUS[0], HALF // 2)
            states = self.post_until(handles, time.monotonic() + 0.1 * random.random())
            peer.process.kill()
            killed = time.monotonic()
            for i, handle in enumerate(handles):
                states[i] = self.finish(handle, states[i])
                self.assertNotEqual(states[i], "PROC", f"round {round_}, request {i}")
                slowest = max(slowest, time.monotonic() - killed)
            self.assertLess(slowest, SECONDS, f"round {round_}")
            peer.process.wait(SECONDS)  # until then its memory is there, and may be written
            # No request gets through any more. Those that end with an error say so once, and NIXL itself knows the agent no more.
            for handle in handles:
                again = self.finish(handle, state_of(self.agent.transfer, handle))
                self.assertNotIn(again, ("DONE", "PROC"), f"round {round_}")
                ends[again] = ends.get(again, 0) + 1
                self.agent.release_xfer_handle(handle)
            state_of(self.agent.remove_remote_agent, "there")  # often NIXL has done that
            peer.kill()  # its pipes
            if round_ == 4:
                before = agents.resources()
        if ROUNDS > 5:
            after = self.resources([count + 4 for count in before])
            print(f"descriptors and threads after 5 rounds: {before}, after {ROUNDS}: {after}")
            self.assertTrue(all(a <= b + 4 for a, b in zip(after, before)))
        print(f"{ROUNDS} kills: the slowest request ended after {1e3 * slowest:.1f} ms; posts after that: {ends}")
        self.agent.deregister_memory(self.registered)


unittest.main(argv=ARGUMENTS)
