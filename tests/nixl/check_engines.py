"""What the engines do with NIXL, in the order in which they do it, without the engines: read from vLLM 0.33.0
(kv_connector/v1/nixl: pull and push) and SGLang 0.5.23 (disaggregation/nixl). Then many requests, for growth.

usage: check_engines.py [REQUESTS]    10000 unless told
"""

import resource
import sys
import unittest

import numpy

import agents
from agents import wheel

REQUESTS = int(sys.argv[1]) if len(sys.argv) > 1 else 10000
BLOCKS, BLOCK_BYTES = 256, 16384
BYTES = BLOCKS * BLOCK_BYTES


def block_descs(address, ids):
    """One row per block, as engines make them with numpy."""
    rows = numpy.zeros((len(ids), 3), dtype=numpy.uint64)
    rows[:, 0] = address + numpy.asarray(ids, dtype=numpy.uint64) * numpy.uint64(BLOCK_BYTES)
    rows[:, 1] = BLOCK_BYTES
    return rows


class Engines(unittest.TestCase):
    def setUp(self):
        self.api = wheel.load()
        self.peer = agents.start_peer("prefill", "TCPX", BYTES)
        self.far = self.peer.address()
        self.agent = self.make_agent()
        self.memory = numpy.zeros(BYTES, dtype=numpy.uint8)
        self.near = self.memory.ctypes.data
        self.registered = self.agent.register_memory([(self.near, BYTES, 0, "")], "DRAM")
        self.name = wheel.text(self.agent.add_remote_agent(bytes.fromhex(self.peer.metadata())))
        self.peer.load(self.agent.get_agent_metadata().hex())

    def tearDown(self):
        self.agent.remove_remote_agent(self.name)
        self.agent.deregister_memory(self.registered)
        self.assertEqual(self.peer.end(), 0)

    def make_agent(self, **config):
        agent = self.api.nixl_agent("decode", self.api.nixl_agent_config(backends=[], **config))
        agent.create_backend("TCPX", {})
        return agent

    def wait(self, handle):
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        self.assertEqual(state, "DONE")

    def compare(self, here, there):
        """Blocks of this memory with those of the peer, which `fill(9)` wrote."""
        whole = agents.random_bytes(9, BYTES).reshape(BLOCKS, BLOCK_BYTES)
        mine = self.memory.reshape(BLOCKS, BLOCK_BYTES)
        for near, far in zip(here, there):
            self.assertTrue(numpy.array_equal(mine[near], whole[far]), f"block {near} of here, {far} of there")

    def test_vllm_pulls_blocks(self):
        self.peer.fill(9)
        sides = [
            self.agent.prep_xfer_dlist(name, self.agent.get_xfer_descs(block_descs(address, range(BLOCKS)), "DRAM"), "DRAM")
            for name, address in (("NIXL_INIT_AGENT", self.near), (self.name, self.far))
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
        lists = [
            self.agent.get_xfer_descs(block_descs(address, ids), "DRAM")
            for address, ids in ((self.near, order), (self.far, range(BLOCKS)))
        ]
        handle = self.agent.initialize_xfer("WRITE", *lists, self.name, b"pushed")
        self.wait(handle)
        self.agent.release_xfer_handle(handle)
        self.assertEqual(self.peer.notifications(1, 10), [["decode", "pushed"]])
        pushed = self.memory.reshape(BLOCKS, BLOCK_BYTES)[order]
        self.assertEqual(self.peer.sum(), agents.crc(pushed))

    def test_sglang_writes_chunks_in_flight_side_by_side(self):
        self.memory[:] = agents.random_bytes(4, BYTES)
        handles = []
        for chunk in range(16):
            ids = range(chunk * 16, chunk * 16 + 16)
            lists = [self.agent.get_xfer_descs(block_descs(address, ids), "DRAM") for address in (self.near, self.far)]
            handle = self.agent.initialize_xfer("WRITE", *lists, self.name, f"room_0_kv_{chunk}_{int(chunk == 15)}".encode())
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
        lists = [self.agent.get_xfer_descs(block_descs(address, range(4)), "DRAM") for address in (self.near, self.far)]

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


unittest.main(argv=sys.argv[:1])
