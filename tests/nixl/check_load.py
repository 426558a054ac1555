"""An agent under load: several threads in it at once, as its lock allows, and then thousands of requests, which must leave nothing behind,
and one of very many blocks. Every byte is compared.

usage: check_load.py [REQUESTS] [--memory vram [--gpus HERE,THERE]]    10000, and memory of the host, unless told
"""

import collections
import pathlib
import threading
import time
import unittest

import numpy

import agents
from agents import memory, wheel

GIVEN, ARGUMENTS = agents.options(requests=10000)
REQUESTS, KIND, GPUS = GIVEN.requests, GIVEN.memory, GIVEN.gpus
THREADS, ROUNDS = 4, 40
BLOCKS, BLOCK_BYTES = 8, 16384
PART = BLOCKS * BLOCK_BYTES  # of a thread: what it writes, or what it reads
BYTES = 2 * THREADS * PART
MANY_BYTES = 64 << 20  # of memory for requests of very many blocks
MANY_BLOCKS = 655_360
META_DESC_BYTES = 32  # nixlMetaDesc: address, bytes, device, a pointer
WORKING_BYTES = 100 << 20  # what such a request may take while it runs


def resident_kib(name="VmRSS"):
    """`name`: or VmHWM, the most since reset_peak()."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))


def reset_peak():
    pathlib.Path("/proc/self/clear_refs").write_text("5")


class Load(unittest.TestCase):
    def start(self, sync_mode, size=BYTES):
        self.memory = memory.allocate(KIND, GPUS[0], size)
        self.agent = agents.make_agent("here", "TCPX", sync_mode, gpu=GPUS[0])
        self.registered = self.agent.register_memory([(self.memory.address, size, GPUS[0], "")], KIND)
        self.peer = agents.start_peer("there", "TCPX", size, GIVEN)
        self.bases = (self.memory.address, self.peer.address())
        self.name = wheel.text(self.agent.add_remote_agent(bytes.fromhex(self.peer.metadata())))
        self.peer.load(self.agent.get_agent_metadata().hex())

    def stop(self):
        self.agent.remove_remote_agent(self.name)
        self.agent.deregister_memory(self.registered)
        self.assertEqual(self.peer.end(), 0)

    def move(self, operation, here, there, notification=b""):
        """Scattered blocks: the other side has them the other way round."""
        lists = []
        for base, gpu, at, order in zip(self.bases, GPUS, (here, there), (range(BLOCKS), reversed(range(BLOCKS)))):
            rows = [(base + at + i * BLOCK_BYTES, BLOCK_BYTES, gpu) for i in order]
            lists.append(self.agent.get_xfer_descs(rows, KIND))
        handle = self.agent.initialize_xfer(operation, *lists, self.name, notification)
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        self.agent.release_xfer_handle(handle)
        return state

    def there_and_back(self, part, seed, notification=b""):
        """True when random bytes come back from the other side as they went."""
        out, back = part * PART, (part + THREADS) * PART
        self.memory[out : out + PART] = agents.random_bytes(seed, PART)
        self.memory[back : back + PART] = 0
        states = [self.move("WRITE", out, out, notification), self.move("READ", back, out)]
        same = numpy.array_equal(self.memory[back : back + PART], self.memory[out : out + PART])
        return states == ["DONE", "DONE"] and same

    def work(self, part, wrong):
        try:
            for i in range(ROUNDS):
                if not self.there_and_back(part, part * ROUNDS + i, f"write {part} {i}".encode()):
                    wrong.append(f"thread {part}, round {i}")
                self.agent.send_notif(self.name, f"alone {part} {i}".encode())
        except Exception as error:  # noqa: BLE001: of a thread
            wrong.append(repr(error))

    def test_threads(self):
        for sync_mode in ("STRICT", "RW"):
            with self.subTest(sync_mode=sync_mode):
                if sync_mode not in agents.sync_modes():
                    self.skipTest(f"this release's Python knows no {sync_mode}")
                self.start(sync_mode)
                wrong = []
                threads = [threading.Thread(target=self.work, args=(part, wrong)) for part in range(THREADS)]
                for thread in threads:
                    thread.start()
                while any(thread.is_alive() for thread in threads):  # a writer, for the lock of readers and writers
                    self.assertEqual(self.agent.get_new_notifs(), {})
                    time.sleep(0.001)
                self.assertEqual(wrong, [])
                texts = collections.Counter(text for _, text in self.peer.notifications(2 * THREADS * ROUNDS, 20))
                self.assertEqual(
                    texts, {f"{kind} {part} {i}": 1 for kind in ("write", "alone") for part in range(THREADS) for i in range(ROUNDS)}
                )
                self.stop()

    def test_many_requests_leave_nothing_behind(self):
        self.start("NONE")

        def run(count):
            for i in range(count // 2):
                self.assertTrue(self.there_and_back(i % THREADS, i, b"one of many" if i % 8 == 0 else b""), f"request {i}")
                if i % 800 == 0:
                    self.peer.notifications(100, 1 if i == 0 else 10)

        run(max(REQUESTS // 10, 400))  # whatever is taken once
        before = resident_kib(), *agents.resources()
        run(REQUESTS)
        after = resident_kib(), *agents.resources()
        print(f"KiB, descriptors, threads after {REQUESTS // 10} requests: {before}, after {REQUESTS} more: {after}")
        self.assertLess(after[0] - before[0], 4096, "KiB")
        self.assertEqual(after[1:], before[1:])
        self.stop()

    def many(self, ids):
        """Descriptors of these blocks here, and of where each of them has its place at the other side."""
        lists = []
        for base, gpu, of_side in zip(self.bases, GPUS, (ids, MANY_BYTES // BLOCK_BYTES - 1 - ids)):
            rows = numpy.empty((len(ids), 3), dtype=numpy.uint64)
            rows[:, 0] = base + of_side * BLOCK_BYTES
            rows[:, 1:] = BLOCK_BYTES, gpu
            lists.append(self.agent.get_xfer_descs(rows, KIND))
        return lists

    def write_many(self, lists, notification):
        """@return the request, when all has been told: its notification comes once, behind the last byte"""
        handle = self.agent.initialize_xfer("WRITE", *lists, self.name, notification.encode())
        state = self.agent.transfer(handle)
        told, late = [], time.monotonic() + 120
        while not told and time.monotonic() < late:
            told = self.peer.notifications(1, 0.001)
            if not told and state == "PROC":  # one that was posted before there was a connection starts when it is looked at
                state = self.agent.check_xfer_state(handle)
        self.assertEqual(told, [["here", notification]])
        there = self.peer.sum()
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        self.assertEqual(state, "DONE")
        self.agent.send_notif(self.name, b"next")
        self.assertEqual(self.peer.notifications(1, 10), [["here", "next"]])
        return handle, there

    def test_a_request_of_very_many_blocks(self):
        self.start("NONE", MANY_BYTES)
        self.memory[:] = agents.random_bytes(1, MANY_BYTES)
        random = numpy.random.default_rng(2)
        count = MANY_BYTES // BLOCK_BYTES
        self.agent.release_xfer_handle(self.write_many(self.many(numpy.arange(count)), "once")[0])  # whatever is taken once
        self.peer.fill(3)
        ids = random.integers(0, count, MANY_BLOCKS)
        there, taken = agents.random_bytes(3, MANY_BYTES).reshape(count, BLOCK_BYTES), numpy.unique(ids)
        there[count - 1 - taken] = self.memory[:].reshape(count, BLOCK_BYTES)[taken]
        wanted = agents.crc(there)
        lists = self.many(ids)
        reset_peak()
        before = resident_kib()
        handle, there = self.write_many(lists, "all of them")
        took = 1024 * (resident_kib("VmHWM") - before)
        self.assertEqual(there, wanted)
        own = 2 * MANY_BLOCKS * META_DESC_BYTES  # NIXL's own lists in a request
        print(f"{MANY_BLOCKS} blocks took {took / 1e6:.1f} MB, of which NIXL's lists are {own / 1e6:.1f}")
        self.assertLess(took - own, WORKING_BYTES)
        self.agent.release_xfer_handle(handle)
        self.stop()


unittest.main(argv=ARGUMENTS)
