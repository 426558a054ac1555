"""An agent under load: several threads in it at once, as its lock allows, and then thousands of requests, which must leave nothing behind.
Every byte is compared.

usage: check_load.py [REQUESTS]    10000 unless told
"""

import collections
import sys
import threading
import time
import unittest

import numpy

import agents
from agents import wheel

REQUESTS = int(sys.argv[1]) if len(sys.argv) > 1 else 10000
THREADS, ROUNDS = 4, 40
BLOCKS, BLOCK_BYTES = 8, 16384
PART = BLOCKS * BLOCK_BYTES  # of a thread: what it writes, or what it reads
BYTES = 2 * THREADS * PART


def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


class Load(unittest.TestCase):
    def start(self, sync_mode):
        self.agent = agents.make_agent("here", "TCPX", sync_mode)
        self.memory = numpy.zeros(BYTES, dtype=numpy.uint8)
        self.registered = self.agent.register_memory([(self.memory.ctypes.data, BYTES, 0, "")], "DRAM")
        self.peer = agents.start_peer("there", "TCPX", BYTES)
        self.bases = (self.memory.ctypes.data, self.peer.address())
        self.name = wheel.text(self.agent.add_remote_agent(bytes.fromhex(self.peer.metadata())))
        self.peer.load(self.agent.get_agent_metadata().hex())

    def stop(self):
        self.agent.remove_remote_agent(self.name)
        self.agent.deregister_memory(self.registered)
        self.assertEqual(self.peer.end(), 0)

    def move(self, operation, here, there, notification=b""):
        """Scattered blocks: the other side has them the other way round."""
        lists = []
        for base, at, order in zip(self.bases, (here, there), (range(BLOCKS), reversed(range(BLOCKS)))):
            rows = [(base + at + i * BLOCK_BYTES, BLOCK_BYTES, 0) for i in order]
            lists.append(self.agent.get_xfer_descs(rows, "DRAM"))
        handle = self.agent.initialize_xfer(operation, *lists, self.name, notification)
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        self.agent.release_xfer_handle(handle)
        return state

    def there_and_back(self, part, seed, notification=b""):
        """Whether random bytes come back from the other side as they went."""
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


unittest.main(argv=sys.argv[:1])
