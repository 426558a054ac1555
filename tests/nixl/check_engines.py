"""Calls that engines make of NIXL, in their order, without the engines: read from vLLM 0.33.0 (kv_connector/v1/nixl: pull
and push), SGLang 0.5.23 (disaggregation/nixl) and LMCache 0.5.6 (transfer_channel). Every byte is compared.

usage: check_engines.py [--memory vram [--gpus HERE,THERE]]    memory of the host unless told
"""

import time
import unittest

import numpy

import agents
from agents import memory, state_of, wheel

GIVEN, ARGUMENTS = agents.options()
KIND, GPUS = GIVEN.memory, GIVEN.gpus
LAYERS, BLOCKS, BLOCK_BYTES = 4, 64, 16384
LAYER_BYTES = BLOCKS * BLOCK_BYTES
BYTES = LAYERS * LAYER_BYTES
HEARTBEAT_BYTES = 100_000  # vLLM's grow with the number of requests
NOTIFICATION_BYTES = 1 << 20  # the longest that the back-end takes


class Engine(unittest.TestCase):
    sync_mode, config, parameters = "NONE", {}, {}

    def setUp(self):
        self.memory = memory.allocate(KIND, GPUS[0], BYTES)
        self.near = self.memory.address
        self.agent = agents.make_agent("decode", "TCPX", self.sync_mode, self.parameters, GPUS[0], **self.config)
        layers = [(self.near + layer * LAYER_BYTES, LAYER_BYTES, GPUS[0], "") for layer in range(LAYERS)]
        self.registered = self.agent.register_memory(layers, KIND)  # a tensor for each layer
        self.start_peer()

    def tearDown(self):
        self.agent.remove_remote_agent(self.name)
        self.agent.deregister_memory(self.registered)
        self.assertEqual(self.peer.end(), 0)

    def start_peer(self):
        self.peer = agents.start_peer("prefill", "TCPX", BYTES, GIVEN)
        self.far = self.peer.address()
        self.name = wheel.text(self.agent.add_remote_agent(bytes.fromhex(self.peer.metadata())))
        self.peer.load(self.agent.get_agent_metadata().hex())

    def sides(self):
        """(address, GPU) of the memory here and of the peer's."""
        return zip((self.near, self.far), GPUS)

    def descs(self, address, gpu, ids):
        """One row per block, as engines make them with numpy. Blocks of a layer follow each other, then come those of the next."""
        rows = numpy.zeros((len(ids), 3), dtype=numpy.uint64)
        rows[:, 0] = address + numpy.asarray(ids, dtype=numpy.uint64) * numpy.uint64(BLOCK_BYTES)
        rows[:, 1] = BLOCK_BYTES
        rows[:, 2] = gpu
        return self.agent.get_xfer_descs(rows, KIND)

    def prepared(self):
        """All blocks of both sides, to be taken by number."""
        ids = range(LAYERS * BLOCKS)
        return [
            self.agent.prep_xfer_dlist(name, self.descs(*side, ids), KIND)
            for name, side in zip(("NIXL_INIT_AGENT", self.name), self.sides())
        ]

    def finish(self, *handles):
        states = ["PROC"]
        while "PROC" in states:
            states = [self.agent.check_xfer_state(handle) for handle in handles]
        self.assertEqual(set(states), {"DONE"})
        for handle in handles:
            self.agent.release_xfer_handle(handle)

    def blocks(self):
        return self.memory[:].reshape(LAYERS * BLOCKS, BLOCK_BYTES)

    @staticmethod
    def of_all_layers(ids):
        return numpy.concatenate([layer * BLOCKS + ids for layer in range(LAYERS)]).astype(numpy.int32)


class VllmTest(Engine):
    config = {"capture_telemetry": True}

    def test_pull(self):
        """Decode reads what prefill has computed; the notification tells the owner that the blocks are free."""
        self.peer.fill(9)
        theirs = agents.random_bytes(9, BYTES).reshape(-1, BLOCK_BYTES)
        sides = self.prepared()
        random = numpy.random.default_rng(1)
        for request in range(20):
            count = int(random.integers(1, BLOCKS))
            here, there = (self.of_all_layers(random.choice(BLOCKS, count, replace=False)) for _ in range(2))
            wanted = self.blocks().copy()
            wanted[here] = theirs[there]
            message = f"request-{request}:1"
            handle = self.agent.make_prepped_xfer("READ", sides[0], here, sides[1], there, message.encode())
            self.assertIn(self.agent.transfer(handle), ("PROC", "DONE"))
            self.finish_as_vllm_does(handle)
            self.assertTrue(numpy.array_equal(self.blocks(), wanted), f"request {request}")
            self.assertEqual(self.peer.notifications(1, 10), [["decode", message]])

    def finish_as_vllm_does(self, handle):
        while self.agent.check_xfer_state(handle) == "PROC":
            time.sleep(0.0005)  # a step of the model
        self.assertEqual(self.agent.get_xfer_telemetry(handle).totalBytes % BLOCK_BYTES, 0)
        self.agent.release_xfer_handle(handle)

    def test_heartbeats(self):
        for length in (4, 100, HEARTBEAT_BYTES - 1, HEARTBEAT_BYTES):
            text = self.heartbeat(length)
            self.agent.send_notif(self.name, text.encode())
            self.assertTrue(self.peer.notifications(1, 10) == [["decode", text]], length)

    @staticmethod
    def heartbeat(length):
        return ("HB:" + ",".join(f"cmpl-{i:032x}" for i in range(1 + length // 32)))[:length]

    def test_the_longest_notification_and_one_that_is_too_long(self):
        """The refused ones take nothing with them: neither those around them nor the connection."""
        longest, too_long = self.heartbeat(NOTIFICATION_BYTES), bytes(NOTIFICATION_BYTES + 1)
        lists = [self.descs(*side, range(BLOCKS)) for side in self.sides()]
        self.memory[:] = agents.random_bytes(5, BYTES)
        self.agent.send_notif(self.name, b"before")
        with self.assertRaises(Exception):
            self.agent.send_notif(self.name, too_long)
        state = state_of(self.agent.transfer, self.agent.initialize_xfer("WRITE", *lists, self.name, too_long))
        self.assertNotIn(state, ("DONE", "PROC"))
        self.agent.send_notif(self.name, longest.encode())
        handle = self.agent.initialize_xfer("WRITE", *lists, self.name, longest[::-1].encode())
        self.assertIn(self.agent.transfer(handle), ("PROC", "DONE"))
        self.finish(handle)  # first, for while there is no connection a request begins when it is looked at
        heard = [text for _, text in self.peer.notifications(3, 10)]
        self.assertTrue(sorted(heard) == sorted(["before", longest, longest[::-1]]), [len(text) for text in heard])
        self.assertEqual(self.peer.sum(BLOCKS * BLOCK_BYTES), agents.crc(self.blocks()[:BLOCKS]))

    def test_push_layer_by_layer(self):
        """Each layer is written as soon as it is computed, the notification comes with the last."""
        self.memory[:] = agents.random_bytes(3, BYTES)
        sides = self.prepared()
        order = numpy.random.default_rng(2).permutation(BLOCKS)
        handles = []
        for layer in range(LAYERS):
            here, there = ((layer * BLOCKS + ids).astype(numpy.int32) for ids in (order, numpy.arange(BLOCKS)))
            message = b"pushed" if layer == LAYERS - 1 else b""
            if message:
                self.finish(*handles)
                handles = []
            handles.append(self.agent.make_prepped_xfer("WRITE", sides[0], here, sides[1], there, message))
            self.assertIn(self.agent.transfer(handles[-1]), ("PROC", "DONE"))
        self.assertEqual(self.peer.notifications(1, 10), [["decode", "pushed"]])
        self.assertEqual(self.peer.sum(), agents.crc(self.blocks()[self.of_all_layers(order)]))
        self.finish(*handles)


class SglangTest(Engine):
    sync_mode = "STRICT"
    parameters = {"op_timeout_ms": "30000", "inline_bytes": "8192"}  # SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS

    def write_chunks(self, room):
        """Chunks of a request's blocks, in flight side by side, each with a tag that says whether it is the last."""
        self.memory[:] = agents.random_bytes(room, BYTES)
        tags, handles, chunk = [], [], LAYERS * BLOCKS // 16
        for i in range(16):
            lists = [self.descs(*side, range(i * chunk, (i + 1) * chunk)) for side in self.sides()]
            tags.append(f"{room}_kv_{i}_{int(i == 15)}_0")
            handles.append(self.agent.initialize_xfer("WRITE", *lists, self.name, tags[-1].encode()))
            self.assertIn(self.agent.transfer(handles[-1]), ("PROC", "DONE"))
        self.finish(*handles)
        self.assertEqual(sorted(text for _, text in self.peer.notifications(16, 10)), sorted(tags))
        self.assertEqual(self.peer.sum(), agents.crc(self.memory))

    def test_chunks_with_tags(self):
        for room in range(5):
            self.write_chunks(room)

    def test_a_peer_that_was_restarted(self):
        self.write_chunks(1)
        self.peer.kill()
        self.agent.remove_remote_agent(self.name)
        self.start_peer()
        self.write_chunks(2)

    def test_strided_lists(self):
        """Rows of five, (address, bytes, device, stride, count), which the agent makes blocks of; since 1.5."""
        if "Nx5" not in (self.agent.prep_xfer_dlist.__doc__ or ""):
            self.skipTest("this release knows no strided lists")
        self.memory[:] = agents.random_bytes(6, BYTES)
        sides = []
        for name, (address, gpu) in zip(("", self.name), self.sides()):
            rows = numpy.array([[address, BLOCK_BYTES // 2, gpu, BLOCK_BYTES, BLOCKS]], dtype=numpy.uint64)
            sides.append(self.agent.prep_xfer_dlist(name, rows, KIND))
        ids = numpy.arange(BLOCKS, dtype=numpy.int32)
        handle = self.agent.make_prepped_xfer("WRITE", sides[0], ids, sides[1], ids, b"strided")
        self.assertIn(self.agent.transfer(handle), ("PROC", "DONE"))
        self.finish(handle)
        wanted = numpy.zeros_like(self.blocks())
        wanted[:BLOCKS, : BLOCK_BYTES // 2] = self.blocks()[:BLOCKS, : BLOCK_BYTES // 2]
        self.assertEqual(self.peer.sum(), agents.crc(wanted))


class LmcacheTest(Engine):
    def test_pages_both_ways(self):
        """One buffer on each side, whose pages are taken by number: written, and read back to others."""
        sides = self.prepared()
        random = numpy.random.default_rng(8)
        for round_ in range(10):
            pages = BLOCKS * LAYERS
            mine, theirs, back = (random.permutation(pages)[: pages // 2].astype(numpy.int32) for _ in range(3))
            self.memory[:] = agents.random_bytes(round_, BYTES)
            sent = self.blocks()[mine].copy()
            for operation, here in (("WRITE", mine), ("READ", back)):
                handle = self.agent.make_prepped_xfer(operation, sides[0], here, sides[1], theirs)
                self.assertIn(self.agent.transfer(handle), ("PROC", "DONE"))
                self.finish(handle)
            self.assertTrue(numpy.array_equal(self.blocks()[back], sent), f"round {round_}")


unittest.main(argv=ARGUMENTS)
