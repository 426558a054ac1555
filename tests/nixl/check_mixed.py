"""Agents with two back-ends, UCX and TCPX, or with one of them: which one moves the bytes, and that they are right.

usage: check_mixed.py
"""

import os
import subprocess
import sys
import unittest

import numpy

import agents
from agents import wheel

import bench

BYTES = 1 << 20


class Mixed(unittest.TestCase):
    def setUp(self):
        self.api = wheel.load()
        self.memory = {}

    def make(self, name, backends):
        agent = self.api.nixl_agent(name, self.api.nixl_agent_config(backends=[]))
        for backend in backends:
            agent.create_backend(backend, {})
        self.memory[name] = agents.random_bytes(len(name), BYTES)
        if backends:
            agent.register_memory([(self.memory[name].ctypes.data, BYTES, 0, "")], "DRAM")
        return agent

    def moved_by(self, here, there, named=()):
        """The back-end that a request from `here` to `there` goes over."""
        near, far = ([(self.memory[name].ctypes.data, BYTES, 0)] for name in ("here", "there"))
        handle = here.initialize_xfer(
            "WRITE", here.get_xfer_descs(near, "DRAM"), here.get_xfer_descs(far, "DRAM"), "there", b"moved", backends=list(named)
        )
        backend, state = here.query_xfer_backend(handle), here.transfer(handle)
        heard = []
        while state == "PROC":
            state = here.check_xfer_state(handle)
            heard += agents.wait_for_notifications(there, 1, 0.001)  # lets it make progress
        self.assertEqual(state, "DONE")
        heard += agents.wait_for_notifications(there, 1 - len(heard), 10)
        self.assertEqual(heard, [("here", "moved")])
        here.release_xfer_handle(handle)
        self.assertTrue(numpy.array_equal(self.memory["here"], self.memory["there"]))
        self.memory["there"][:] = 0
        return backend

    def test_any_that_both_have_unless_one_is_named(self):
        both = ["UCX", "TCPX"]
        if "UCX" not in self.make("anybody", []).get_plugin_list():
            self.skipTest("the UCX of this wheel does not load here")
        for mine, theirs in ((both, both), (both[::-1], both), (both, ["TCPX"]), (both, ["UCX"])):
            with self.subTest(mine=mine, theirs=theirs):
                here, there = self.make("here", mine), self.make("there", theirs)
                here.add_remote_agent(there.get_agent_metadata())
                there.add_remote_agent(here.get_agent_metadata())
                self.assertIn(self.moved_by(here, there), theirs)  # NIXL keeps them in a set, ordered by address
                for backend in both:
                    if backend in theirs:
                        self.assertEqual(self.moved_by(here, there, [backend]), backend)
                    else:
                        with self.assertRaises(self.api.nixlBind.nixlNotFoundError):
                            self.moved_by(here, there, [backend])


if "--inside" in sys.argv:
    passed = unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful()
    sys.stdout.flush()
    os._exit(not passed)  # UCX of 0.10 and 1.0 crashes when a process with two agents ends, also without us
else:
    folder = bench.with_stock_plugins(os.environ["NIXL_PLUGIN_DIR"])  # UCX loads its libraries by a variable of the process
    code = subprocess.run([sys.executable, __file__, "--inside"], env={"UCX_TLS": "tcp"} | os.environ, check=False).returncode
    folder.cleanup()
    sys.exit(code)
