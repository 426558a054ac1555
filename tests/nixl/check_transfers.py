"""Two agents of the installed wheel, each in a process of its own, move bytes through the plugin: whole, scattered, joined, in both
directions, with and without notifications, again and again with one request. Every byte is compared.

usage: check_transfers.py [BACKEND] [--memory vram [--gpus HERE,THERE]]    TCPX, and memory of the host, unless told
"""

import unittest

import numpy

import agents
from agents import memory, wheel

GIVEN, ARGUMENTS = agents.options(backend="TCPX")
BACKEND, KIND, GPUS = GIVEN.backend, GIVEN.memory, GIVEN.gpus
BYTES = 4 << 20


class Transfers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.peer = agents.start_peer("there", BACKEND, BYTES, GIVEN)
        cls.far = cls.peer.address()
        cls.memory = memory.allocate(KIND, GPUS[0], BYTES)
        cls.near = cls.memory.address
        cls.agent = wheel.agent(wheel.load(), "here", BACKEND, gpu=GPUS[0])
        cls.registered = cls.agent.register_memory([(cls.near, BYTES, GPUS[0], "")], KIND)
        cls.name = wheel.text(cls.agent.add_remote_agent(bytes.fromhex(cls.peer.metadata())))
        assert cls.peer.load(cls.agent.get_agent_metadata().hex()) == "here"

    @classmethod
    def tearDownClass(cls):
        cls.agent.remove_remote_agent(cls.name)
        cls.agent.deregister_memory(cls.registered)
        cls.peer.deregister()
        assert cls.peer.end() == 0

    def request(self, operation, blocks, notification=b""):
        """Of (offset here, offset there, bytes)."""
        near = [(self.near + here, size, GPUS[0]) for here, _, size in blocks]
        far = [(self.far + there, size, GPUS[1]) for _, there, size in blocks]
        return self.agent.initialize_xfer(
            operation, self.agent.get_xfer_descs(near, KIND), self.agent.get_xfer_descs(far, KIND), self.name, notification
        )

    def run_to_end(self, handle):
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        self.assertEqual(state, "DONE")

    def move(self, operation, blocks, notification=b""):
        handle = self.request(operation, blocks, notification)
        self.run_to_end(handle)
        self.agent.release_xfer_handle(handle)

    def expect_moved(self, operation, blocks):
        """Moves random bytes, and compares all of the memory that they went to with what it had and what they are."""
        self.peer.fill(1)
        there = agents.random_bytes(1, BYTES)
        self.memory[:] = agents.random_bytes(2, BYTES)
        here = self.memory[:].copy()
        self.move(operation, blocks)
        for near, far, size in blocks:
            if operation == "WRITE":
                there[far : far + size] = here[near : near + size]
            else:
                here[near : near + size] = there[far : far + size]
        self.assertTrue(numpy.array_equal(self.memory[:], here), "what is here")
        self.assertEqual(self.peer.sum(), agents.crc(there), "what is there")

    def test_blocks_of_all_kinds(self):
        shuffled = numpy.random.default_rng(3).permutation(128)
        kinds = {
            "whole": [(0, 0, BYTES)],
            "one byte": [(17, 4711, 1)],
            "neighbours": [(i * 4096, i * 4096, 4096) for i in range(64)],
            "scattered": [(int(i) * 32768, int(j) * 32768, 32768) for i, j in zip(shuffled, reversed(shuffled))],
            "odd": [(i * 20011 + 3, i * 30011 + 1, 1 + i * 97) for i in range(100)],
        }
        for operation in ("WRITE", "READ"):
            for kind, blocks in kinds.items():
                with self.subTest(operation=operation, blocks=kind):
                    self.expect_moved(operation, blocks)

    def test_a_write_notifies_when_its_bytes_are_there(self):
        self.memory[:] = agents.random_bytes(4, BYTES)
        self.move("WRITE", [(0, 0, BYTES)], b"all of it")
        self.assertEqual(self.peer.notifications(1, 10), [["here", "all of it"]])
        self.assertEqual(self.peer.sum(), agents.crc(self.memory))

    def test_a_read_notifies_the_owner(self):
        self.peer.fill(6)
        for size in (8, BYTES):  # in a frame, and through the pipeline
            self.move("READ", [(0, 0, size)], b"taken")
            self.assertEqual(self.peer.notifications(1, 10), [["here", "taken"]])
            self.assertTrue(numpy.array_equal(self.memory[:size], agents.random_bytes(6, BYTES)[:size]))

    def test_one_request_is_posted_many_times(self):
        handle = self.request("WRITE", [(0, 8192, 65536)], b"again")
        for round_ in range(20):
            self.memory[:65536] = agents.random_bytes(round_, 65536)
            self.run_to_end(handle)
            self.assertEqual(self.peer.notifications(1, 10), [["here", "again"]])
        self.agent.release_xfer_handle(handle)

    def test_notifications_of_their_own(self):
        self.agent.send_notif(self.name, b"hello")
        self.assertEqual(self.peer.notifications(1, 10), [["here", "hello"]])
        self.peer.notify("here", "hello back")
        self.assertEqual(agents.wait_for_notifications(self.agent, 1, 10), [("there", "hello back")])

    def test_parameters(self):
        api = wheel.load()
        defaults = self.agent.get_plugin_params(BACKEND)
        self.assertEqual(defaults["op_timeout_ms"], "30000")
        self.assertEqual(defaults["gpu"], "", "the one that is current")
        wheel.agent(api, "with defaults", BACKEND, defaults)
        for name, value in (("no_such_thing", "1"), ("op_timeout_ms", "soon"), ("gpu", "-1"), ("gpu", "one"), ("", "")):
            with self.subTest(name=name), self.assertRaises(api.nixlBind.nixlBackendError):
                wheel.agent(api, "refused", BACKEND, {name: value})
        for part, name in (("channels", "num_channels"), ("ifname", "socket_ifname")):
            with agents.Log() as log, self.assertRaises(api.nixlBind.nixlBackendError):
                wheel.agent(api, "refused", BACKEND, {part: "1"})
            self.assertIn(name, log.lines[0])
        wanted = {"port_range": "", "timeout_ms": "30000", "inline_bytes": "65536", "unpack_blocks": ""}  # as they are
        wheel.agent(api, "with some", BACKEND, wanted)

    def test_within_one_agent(self):
        self.memory[:] = agents.random_bytes(5, BYTES)
        half = BYTES // 2
        descs = [self.agent.get_xfer_descs([(self.near + at, half, GPUS[0])], KIND) for at in (0, half)]
        handle = self.agent.initialize_xfer("WRITE", *descs, "here")
        self.run_to_end(handle)
        self.agent.release_xfer_handle(handle)
        self.assertTrue(numpy.array_equal(self.memory[:half], self.memory[half:]))


unittest.main(argv=ARGUMENTS)
