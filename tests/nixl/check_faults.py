"""Faults that must not take an agent down, and must end with an error of NIXL and a line of log: metadata that is foreign or damaged, an agent that
has gone or does not answer, ranges that are not there, memory that is taken back under a request, an agent of another release.

usage: check_faults.py [--memory vram [--gpus HERE,THERE]]    memory of the host unless told
"""

import contextlib
import os
import pathlib
import signal
import sys
import time
import unittest

import numpy

import agents
from agents import memory, state_of, wheel

GIVEN, ARGUMENTS = agents.options()
KIND, GPUS = GIVEN.memory, GIVEN.gpus
BYTES = 16 << 20
TIMEOUT_MS = 500


def stop(process):
    """Returns when none of its threads runs any more."""
    process.send_signal(signal.SIGSTOP)
    tasks = pathlib.Path(f"/proc/{process.pid}/task")
    while any((task / "stat").read_text().rpartition(")")[2].split()[0] not in "Tt" for task in tasks.iterdir()):
        time.sleep(0.001)


class Faults(unittest.TestCase):
    def setUp(self):
        self.api = wheel.load()
        self.memory = memory.allocate(KIND, GPUS[0], BYTES)
        self.memory[:] = agents.random_bytes(1, BYTES)
        self.near = self.memory.address
        self.use_agent({"op_timeout_ms": "30000", "local": "auto"})  # a parameter holds for the process

    def use_agent(self, parameters):
        self.agent = wheel.agent(self.api, "here", "TCPX", parameters, GPUS[0])
        self.registered = self.agent.register_memory([(self.near, BYTES, GPUS[0], "")], KIND)

    def start_peer(self, load=True, **how):
        peer = agents.start_peer("there", "TCPX", BYTES, GIVEN, **how)
        self.addCleanup(peer.kill)
        self.far = peer.address()
        if load:
            self.agent.add_remote_agent(bytes.fromhex(peer.metadata()))
        return peer

    def lists(self, here, there):
        """Descriptors of these (address, bytes) of both sides."""
        return [self.agent.get_xfer_descs([(*row, gpu) for row in rows], KIND) for rows, gpu in zip((here, there), GPUS)]

    def request(self, operation="WRITE", size=BYTES, notification=b""):
        return self.agent.initialize_xfer(operation, *self.lists([(self.near, size)], [(self.far, size)]), "there", notification)

    def finish(self, handle, state):
        end = time.monotonic() + 60
        while state == "PROC" and time.monotonic() < end:
            state = state_of(self.agent.check_xfer_state, handle)
        return state

    def run_to_end(self, handle):
        return self.finish(handle, state_of(self.agent.transfer, handle))

    @contextlib.contextmanager
    def logs(self, *words):
        """Expects one line of our log with these words, or several of the same."""
        with agents.Log() as log:
            yield
        self.assertTrue(log.lines)
        for line in log.lines:
            self.assertTrue(all(word in line for word in words), f"{words} in {line}")

    def expect_works(self):
        handle = self.request()
        self.assertEqual(self.run_to_end(handle), "DONE")
        self.agent.release_xfer_handle(handle)

    def meet(self):
        """Waits for the connection, which may take longer to be made than a request is given."""
        states, end = [], time.monotonic() + 30
        while "DONE" not in states and time.monotonic() < end:
            handle = self.request()
            states.append(self.run_to_end(handle))
            state_of(self.agent.release_xfer_handle, handle)
        self.assertIn("DONE", states)

    def test_damaged_metadata(self):
        peer = self.start_peer(load=False)
        good = bytes.fromhex(peer.metadata())
        # Our parts of it: metadata of an endpoint, and a slot. NIXL takes damage of its own, a type of memory say, for good, and crashes.
        ours = [at + byte for at in (good.index(b"TCPXEP"), good.index(b"TXSL")) for byte in range(64)]
        random = numpy.random.default_rng(5)
        refused = 0
        for _ in range(200):
            bad = bytearray(good)
            if random.integers(2):
                bad = bad[: random.integers(len(bad))]
            else:
                for _ in range(1 + random.integers(4)):
                    bad[ours[random.integers(len(ours))]] ^= 1 << random.integers(8)
            try:
                name = self.agent.add_remote_agent(bytes(bad))
                self.agent.remove_remote_agent(wheel.text(name))
            except Exception:  # noqa: BLE001: NIXL's own errors, of many classes
                refused += 1
                state_of(self.agent.remove_remote_agent, "there")  # whose memory was damaged is known, by another address
        self.assertGreater(refused, 100)
        self.agent.add_remote_agent(good)
        self.expect_works()

    def test_metadata_of_a_region_that_is_none(self):
        good = bytes.fromhex(self.start_peer(load=False).metadata())
        slot = good.index(b"TXSL")  # RemoteSlot of include/tcpx/endpoint.h
        for at in [*range(slot, slot + 4), *range(slot + 16, slot + 24)]:  # that it is one, its id
            bad = bytearray(good)
            bad[at] ^= 0x40
            try:
                self.agent.add_remote_agent(bytes(bad))
                state = self.run_to_end(self.request())  # its owner does not know it
            except Exception as error:  # noqa: BLE001: refused at once, or when a request is made
                state = str(error)
            self.assertNotIn(state, ("DONE", "PROC"), f"byte {at - slot} of the slot")
            state_of(self.agent.remove_remote_agent, "there")
        self.agent.add_remote_agent(good)
        self.expect_works()

    def test_metadata_of_others(self):
        for text in (b"", b"nixl", bytes(1000), numpy.random.default_rng(3).bytes(1000)):
            with self.assertRaises(Exception):
                self.agent.add_remote_agent(text)
        stranger = self.api.nixl_agent("stranger", self.api.nixl_agent_config(backends=[]))  # with no back-end at all
        with self.assertRaises(Exception):
            self.agent.add_remote_agent(stranger.get_agent_metadata())

    def test_an_agent_that_has_gone(self):
        peer = self.start_peer(load=False)
        metadata = bytes.fromhex(peer.metadata())
        peer.kill()
        with self.logs("there", "TCPX_E_PEER_GONE"):
            begin = time.monotonic()
            self.agent.add_remote_agent(metadata)
            state = self.run_to_end(self.request())
        self.assertNotIn(state, ("DONE", "PROC"))
        print(f"an agent that has gone: {state} after {1e3 * (time.monotonic() - begin):.1f} ms")

    def test_a_late_request_of_an_agent_that_has_gone_does_not_forget_the_next_one(self):
        peer = self.start_peer()
        self.meet()
        stop(peer.process)
        handles = [self.request(operation) for operation in ("WRITE", "READ")]
        for handle in handles:
            self.assertEqual(self.agent.transfer(handle), "PROC")
        peer.kill()
        self.assertNotIn(self.finish(handles[1], "PROC"), ("DONE", "PROC"))  # so the other has ended, too; nobody has heard of it
        state_of(self.agent.remove_remote_agent, "there")
        self.start_peer()
        self.assertNotIn(self.finish(handles[0], "PROC"), ("DONE", "PROC"))
        self.meet()
        for handle in handles:
            state_of(self.agent.release_xfer_handle, handle)
        self.expect_works()

    def test_a_child_of_a_fork_while_a_connection_is_made_ends(self):
        peer = self.start_peer(load=False)
        metadata = bytes.fromhex(peer.metadata())
        stop(peer.process)
        self.agent.add_remote_agent(metadata)
        child = os.fork()
        if child == 0:
            signal.alarm(30)  # the end of a child that hangs
            refused = state_of(lambda agent: agent.get_new_notifs(), self.agent) != {}
            del self.agent
            os._exit(0 if refused else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        peer.process.send_signal(signal.SIGCONT)
        self.meet()

    def test_an_agent_that_does_not_answer(self):
        self.use_agent({"op_timeout_ms": str(TIMEOUT_MS), "local": "off"})  # on one host, memory that was used before needs no answer
        took = {}
        for name, size, meets_first in (("before it ever answered", BYTES, False), ("a short one", 8, True), ("a long one", BYTES, True)):
            for operation in ("WRITE", "READ"):
                peer = self.start_peer(load=meets_first)
                metadata = bytes.fromhex(peer.metadata())
                if meets_first:
                    self.meet()
                stop(peer.process)
                if not meets_first:
                    self.agent.add_remote_agent(metadata)
                handle = self.request(operation, size)
                with self.logs("there", "TCPX_E_TIMEOUT"):
                    begin = time.monotonic()
                    state = self.run_to_end(handle)
                    took[f"{operation} {name}"] = 1e3 * (time.monotonic() - begin)
                self.assertNotIn(state, ("DONE", "PROC"), name)
                self.assertGreaterEqual(took[f"{operation} {name}"], TIMEOUT_MS)
                self.assertLess(took[f"{operation} {name}"], TIMEOUT_MS + 4000)  # less than an operation's early end may take
                peer.kill()
                state_of(self.agent.remove_remote_agent, "there")
                state_of(self.agent.release_xfer_handle, handle)
        for name, value in took.items():
            print(f"{name}: ended {value - TIMEOUT_MS:.1f} ms after the {TIMEOUT_MS} ms that it has")

    def test_a_peer_that_goes_on_after_its_connection_was_given_up(self):
        self.use_agent({"op_timeout_ms": str(TIMEOUT_MS)})
        peer = self.start_peer()
        self.meet()
        stop(peer.process)
        handle = self.request("WRITE", BYTES)
        with self.logs("there", "TCPX_E_TIMEOUT"):
            self.assertNotIn(self.run_to_end(handle), ("DONE", "PROC"))
        state_of(self.agent.release_xfer_handle, handle)  # waits until nothing reads its memory, which ends the connection
        peer.process.send_signal(signal.SIGCONT)
        self.meet()

    def test_memory_that_the_owner_took_back(self):
        peer = self.start_peer()
        handle = self.request()
        self.assertEqual(self.run_to_end(handle), "DONE")
        peer.deregister()
        with self.logs("there", "TCPX_E_"):
            self.assertNotIn(self.run_to_end(handle), ("DONE", "PROC"))
        self.agent.release_xfer_handle(handle)

    def test_memory_that_its_owner_takes_back_under_a_request(self):
        for operation in ("WRITE", "READ"):
            peer = self.start_peer()
            handle = self.request(operation)
            state = state_of(self.agent.transfer, handle)
            peer.tell("deregister")
            while state in ("DONE", "PROC"):
                state = state_of(self.agent.transfer if state == "DONE" else self.agent.check_xfer_state, handle)
            self.agent.release_xfer_handle(handle)
            state_of(self.agent.remove_remote_agent, "there")
            peer.kill()

    def test_memory_that_is_taken_back_here_under_a_request(self):
        self.start_peer()
        handle = self.request("READ")
        self.assertIn(self.agent.transfer(handle), ("PROC", "DONE"))
        state_of(self.agent.deregister_memory, self.registered)  # waits for what uses it
        self.assertNotEqual(self.finish(handle, "PROC"), "PROC")
        self.agent.release_xfer_handle(handle)
        self.registered = self.agent.register_memory([(self.near, BYTES, GPUS[0], "")], KIND)
        self.expect_works()

    def test_memory_is_given_back_soon_though_its_users_have_stopped(self):
        """Less than half of the 30 s that a request has."""
        took = {}
        for user in ("a request of the peer", "a request to the peer", "requests to the peer"):
            peer = self.start_peer()
            self.meet()
            peer.load(self.agent.get_agent_metadata().hex())
            handles = []
            if user == "a request of the peer":
                peer.tell("storm", "here", self.near, GPUS[0], BYTES)
                self.assertTrue(agents.wait_for_notifications(self.agent, 1, 30))
            stop(peer.process)
            if user != "a request of the peer":
                handles = [self.request(operation) for operation in ("WRITE", "READ") * (1 if user[0] == "a" else 20)]
            for handle in handles:
                self.assertEqual(self.agent.transfer(handle), "PROC")
            begin = time.monotonic()
            state_of(self.agent.deregister_memory, self.registered)
            took[user] = time.monotonic() - begin
            self.assertLess(took[user], 15, user)
            peer.kill()
            for handle in handles:
                self.assertNotEqual(self.finish(handle, "PROC"), "PROC")
                self.agent.release_xfer_handle(handle)
            state_of(self.agent.remove_remote_agent, "there")
            self.registered = self.agent.register_memory([(self.near, BYTES, GPUS[0], "")], KIND)
        for user, seconds in took.items():
            print(f"memory that {user} uses was given back after {1e3 * seconds:.1f} ms")

    def test_a_request_is_released_while_it_runs(self):
        self.start_peer()
        for _ in range(20):
            handle = self.request()
            self.agent.transfer(handle)
            self.agent.release_xfer_handle(handle)
        self.expect_works()

    def test_lists_that_do_not_fit(self):
        self.start_peer()
        near, far = (self.near, 4096), (self.far, 4096)
        wrong = {
            "lengths": ([near], [(self.far, 8192)]),
            "counts": ([near, near], [far]),
            "behind the region": ([near], [(self.far + BYTES - 8, 4096)]),
            "before the region": ([near], [(self.far - 8, 4096)]),
            "behind ours": ([(self.near + BYTES - 8, 4096)], [far]),
            "nowhere": ([near], [(1 << 40, 4096)]),
        }
        for name, (here, there) in wrong.items():
            with self.subTest(name), self.assertRaises(Exception):
                self.agent.initialize_xfer("WRITE", *self.lists(here, there), "there")
        with self.assertRaises(Exception):
            self.agent.initialize_xfer("WRITE", *self.lists([near], [far]), "nobody")
        with self.assertRaises(Exception):
            self.agent.send_notif("nobody", b"hello")
        self.expect_works()

    def test_an_agent_of_another_release(self):
        mine = pathlib.Path(sys.prefix)
        wheels = mine.parent.glob("*/lib/python3*/site-packages/nixl_cu1?")
        others = [folder / "bin" / "python3" for folder in sorted({found.parents[3] for found in wheels} - {mine})]
        if not others:
            self.skipTest(f"no other release of NIXL beside {mine}")
        for other in others:
            with self.subTest(other=other.parents[1].name):
                peer = self.start_peer(load=False, python=str(other))
                try:
                    self.agent.add_remote_agent(bytes.fromhex(peer.metadata()))
                    peer.fill(8)
                    handle = self.request("READ", notification=b"taken")
                    self.assertEqual(self.run_to_end(handle), "DONE")
                    self.assertTrue(numpy.array_equal(self.memory[:], agents.random_bytes(8, BYTES)))
                    self.assertEqual(peer.notifications(1, 10), [["here", "taken"]])
                    self.agent.release_xfer_handle(handle)
                    self.agent.remove_remote_agent("there")
                except self.api.nixlBind.nixlMismatchError:
                    print(f"{other.parents[1].name}: NIXL refused the metadata")
                peer.kill()


unittest.main(argv=ARGUMENTS)
