"""What the engines do with NIXL, in the order in which they do it, without the engines: read from vLLM 0.33.0
(kv_connector/v1/nixl: pull and push) and SGLang 0.5.23 (disaggregation/nixl). Then many requests, for growth.

usage: check_engines.py [REQUESTS] [--memory vram [--gpus HERE,THERE]]    10000, and memory of the host, unless told
"""

import resource
import unittest

import numpy

import agents
from agents import memory, wheel

GIVEN, ARGUMENTS = agents.options("requests", 10000, "of the test for growth")
REQUESTS, KIND, GPUS = GIVEN.requests, GIVEN.memory, GIVEN.gpus
BLOCKS, BLOCK_BYTES = 256, 16384
BYTES = BLOCKS * BLOCK_BYTES


def block_descs(address, gpu, ids):
    """One row per block, as engines make them with numpy."""
    rows = numpy.zeros((len(ids), 3), dtype=numpy.uint64)
    rows[:, 0] = address + numpy.asarray(ids, dtype=numpy.uint64) * numpy.uint64(BLOCK_BYTES)
    rows[:, 1] = BLOCK_BYTES
    rows[:, 2] = gpu
    return rows


class Engines(unittest.TestCase):
    def setUp(self):
        self.api = wheel.load()
        self.peer = agents.start_peer("prefill", "TCPX", BYTES, GIVEN)
        self.far = self.peer.address()
        self.memory = memory.allocate(KIND, GPUS[0], BYTES)
        self.near = self.memory.address
        self.agent = wheel.agent(self.api, "decode", "TCPX", gpu=GPUS[0])
        self.registered = self.agent.register_memory([(self.near, BYTES, GPUS[0], "")], KIND)
        self.name = wheel.text(self.agent.add_remote_agent(bytes.fromhex(self.peer.metadata())))
        self.peer.load(self.agent.get_agent_metadata().hex())

    def tearDown(self):
        self.agent.remove_remote_agent(self.name)
        self.agent.deregister_memory(self.registered)
        self.assertEqual(self.peer.end(), 0)

    def lists(self, here, there):
        """Descriptors of these blocks of this memory, and of those of the peer's."""
        return [
            self.agent.get_xfer_descs(block_descs(address, gpu, ids), KIND)
            for address, gpu, ids in zip((self.near, self.far), GPUS, (here, there))
        ]

    def wait(self, handle):
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        self.assertEqual(state, "DONE")

    def compare(self, here, there):
        """Blocks of this memory with those of the peer, which `fill(9)` wrote."""
        whole = agents.random_bytes(9, BYTES).reshape(BLOCKS, BLOCK_BYTES)
        mine = self.memory[:].reshape(BLOCKS, BLOCK_BYTES)
        for near, far in zip(here, there):
            self.assertTrue(numpy.array_equal(mine[near], whole[far]), f"block {near} of here, {far} of there")

    def test_vllm_pulls_blocks(self):
        self.peer.fill(9)
        sides = [
            self.agent.prep_xfer_dlist(name, descs, KIND)
            for name, descs in zip(("NIXL_INIT_AGENT", self.name), self.lists(range(BLOCKS), range(BLOCKS)))
        ]
        random = numpy.random.default_rng(1)
        for request in range(20):
            count = int(random.integers(1, 64))
            here, there = (random.choice(BLOCKS, count, replace=False).astype(numpy.int32) for _ in range(2))
            handle = self.agent.make_prepped_xfer("READ", sides[0], here, sides[1], there, f"request-{request}:1".encode())
            self.wait(handle)
            self.agent.release_xfer_handle(handle)
            self.compare(here, there)
            self.assertEqual(self.peer.notifications(1, 10), [["decode", f"request-{request}:1"]])
        heartbeat = "HB:" + ",".join(f"request-{i}" for i in range(200))
        self.agent.send_notif(self.name, heartbeat.encode())
        self.assertEqual(self.peer.notifications(1, 10), [["decode", heartbeat]])

    def test_vllm_pushes_blocks(self):
        self.memory[:] = agents.random_bytes(3, BYTES)
        order = [int(i) for i in numpy.random.default_rng(2).permutation(BLOCKS)]
        handle = self.agent.initialize_xfer("WRITE", *self.lists(order, range(BLOCKS)), self.name, b"pushed")
        self.wait(handle)
        self.agent.release_xfer_handle(handle)
        self.assertEqual(self.peer.notifications(1, 10), [["decode", "pushed"]])
        pushed = self.memory[:].reshape(BLOCKS, BLOCK_BYTES)[order]
        self.assertEqual(self.peer.sum(), agents.crc(pushed))

    def test_sglang_writes_chunks_in_flight_side_by_side(self):
        self.memory[:] = agents.random_bytes(4, BYTES)
        handles = []
        for chunk in range(16):
            ids = range(chunk * 16, chunk * 16 + 16)
            handle = self.agent.initialize_xfer("WRITE", *self.lists(ids, ids), self.name, f"room_0_kv_{chunk}_{int(chunk == 15)}".encode())
            self.assertIn(self.agent.transfer(handle), ("PROC", "DONE"))
            handles.append(handle)
        while any(self.agent.check_xfer_state(handle) == "PROC" for handle in handles):
            pass
        self.assertTrue(all(self.agent.check_xfer_state(handle) == "DONE" for handle in handles))
        for handle in handles:
            self.agent.release_xfer_handle(handle)
        tags = sorted(text for _, text in self.peer.notifications(16, 10))
        self.assertEqual(tags, sorted(f"room_0_kv_{chunk}_{int(chunk == 15)}" for chunk in range(16)))
        self.assertEqual(self.peer.sum(), agents.crc(self.memory))

    def test_many_requests_leave_nothing_behind(self):
        lists = self.lists(range(4), range(4))

        def run(count):
            for i in range(count):
                handle = self.agent.initialize_xfer(("WRITE", "READ")[i % 2], *lists, self.name)
                self.wait(handle)
                self.agent.release_xfer_handle(handle)

        run(REQUESTS // 10)  # whatever is taken once
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run(REQUESTS)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        self.assertLess(grown, 4096, "KiB, after as many requests")


unittest.main(argv=ARGUMENTS)
