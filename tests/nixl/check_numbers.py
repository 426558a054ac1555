"""The numbers that an agent gives about transfers: how long one will take (estimate_xfer_cost), how long it took (get_xfer_telemetry), and
the events that NIXL exports to a file (NIXL_TELEMETRY_DIR), compared with what was moved.

usage: check_numbers.py [BACKEND] [--memory vram [--gpus HERE,THERE]]    TCPX, and memory of the host, unless told
"""

import os
import pathlib
import struct
import sys
import tempfile
import time
import unittest

import agents
from agents import memory, wheel

GIVEN, ARGUMENTS = agents.options(backend="TCPX")
BACKEND, KIND, GPUS = GIVEN.backend, GIVEN.memory, GIVEN.gpus
BYTES = 8 << 20
EVENT_KINDS = ["agent_tx_bytes", "agent_rx_bytes", "agent_tx_requests_num", "agent_rx_requests_num"]  # by number, since 1.2


def events_of(file):
    """Names and values in the ring that NIXL's exporter fills: src/utils/common/cyclic_buffer.h, src/core/telemetry/telemetry_event.h. Its
    head and the size of an event tell the layout."""
    data = file.read_bytes()
    written, _, version, _, capacity, _ = struct.unpack_from("<QQIIQQ", data)
    assert written < capacity, "the ring has been round"
    size = (len(data) - 40) // capacity
    for at in range(40, 40 + written * size, size):
        if size > 16:  # with a name: until 1.1 of the wheels, until 1.0 behind a time
            _, name, value = struct.unpack_from("<i32s4xQ", data, at + size - 48)
            yield name.split(b"\0")[0].decode(), value
        else:
            (kind,) = struct.unpack_from("<I", data, at + (4 if version == 2 else 0))  # behind a category, which 3 has no more
            (value,) = struct.unpack_from("<Q", data, at + 8)
            if kind < len(EVENT_KINDS):
                yield EVENT_KINDS[kind], value


class Numbers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.api = wheel.load()
        cls.peer = agents.start_peer("there", BACKEND, BYTES, GIVEN)
        cls.far = cls.peer.address()
        cls.memory = memory.allocate(KIND, GPUS[0], BYTES)
        cls.memory[:] = agents.random_bytes(1, BYTES)
        cls.agent = agents.make_agent("here", BACKEND, "NONE", gpu=GPUS[0], capture_telemetry=True)
        cls.registered = cls.agent.register_memory([(cls.memory.address, BYTES, GPUS[0], "")], KIND)
        cls.name = wheel.text(cls.agent.add_remote_agent(bytes.fromhex(cls.peer.metadata())))
        cls.peer.load(cls.agent.get_agent_metadata().hex())
        cls.moved = {"WRITE": [], "READ": []}  # bytes
        cls.took = {"WRITE": [], "READ": []}  # microseconds

    @classmethod
    def tearDownClass(cls):
        cls.agent.remove_remote_agent(cls.name)
        cls.agent.deregister_memory(cls.registered)
        assert cls.peer.end() == 0

    def request(self, operation, size, notification=b""):
        lists = [self.agent.get_xfer_descs([(at, size, gpu)], KIND) for at, gpu in zip((self.memory.address, self.far), GPUS)]
        return self.agent.initialize_xfer(operation, *lists, self.name, notification)

    def run_to_end(self, handle):
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        self.assertEqual(state, "DONE")

    def move(self, operation, size):
        begin = time.perf_counter()
        handle = self.request(operation, size)
        self.run_to_end(handle)
        self.took[operation].append(1e6 * (time.perf_counter() - begin))
        self.moved[operation].append(size)
        return handle

    def test_1_an_estimate_needs_a_transfer_like_it(self):
        for operation in ("WRITE", "READ"):
            for size in (8, BYTES):
                handle = self.request(operation, size)
                with self.subTest(operation=operation, size=size), self.assertRaises(self.api.nixlBind.nixlNotSupportedError):
                    self.agent.estimate_xfer_cost(handle)
                self.agent.release_xfer_handle(handle)
                self.agent.release_xfer_handle(self.move(operation, size))

    def test_2_an_estimate_follows_what_was_measured(self):
        # A number, for Python's interface calls every method UNKNOWN: it compares the number with a value of an enumeration.
        analytical = int(self.api.nixlBind.NIXL_COST_ANALYTICAL_BACKEND)
        for operation in ("WRITE", "READ"):
            for size in [8, 1 << 20, BYTES] * 20:
                self.agent.release_xfer_handle(self.move(operation, size))
            measured = list(zip(self.moved[operation], self.took[operation]))
            latency = max(took for size, took in measured if size == 8)
            per_byte = max(took / size for size, took in measured if size > 8)
            estimates = {}
            for size in (8, 1 << 20, BYTES):
                handle = self.request(operation, size)
                estimates[size], error, method = self.agent.agent.estimateXferCost(handle._handle)
                self.assertEqual(self.agent.estimate_xfer_cost(handle)[:2], (estimates[size], error))
                self.agent.release_xfer_handle(handle)
                self.assertEqual(method, analytical)
                self.assertGreater(estimates[size], 0)
                self.assertLessEqual(estimates[size], 1 + latency + (size * per_byte if size > 8 else 0))
                self.assertGreater(error, 0)
            self.assertLess(estimates[1 << 20], estimates[BYTES])

    def test_3_each_request_tells_its_bytes(self):
        handle = self.move("WRITE", BYTES)
        told = self.agent.get_xfer_telemetry(handle)
        self.assertEqual((told.totalBytes, told.descCount), (BYTES, 1))
        self.agent.release_xfer_handle(handle)

    def test_4_exported_events_are_what_was_moved(self):
        self.peer.notify("here", "hello")
        self.assertEqual(agents.wait_for_notifications(self.agent, 1, 10), [("there", "hello")])
        wanted = {"agent_tx_bytes": self.moved["WRITE"], "agent_rx_bytes": self.moved["READ"]}
        if EXPORTS_BACKENDS and BACKEND == "TCPX":
            wanted |= {"tcpx_tx_bytes": self.moved["WRITE"], "tcpx_rx_bytes": self.moved["READ"], "tcpx_rx_notifications": [1]}
        end = time.monotonic() + 10
        while True:  # the exporter comes by every few milliseconds
            found = {}
            for name, value in events_of(pathlib.Path(os.environ["NIXL_TELEMETRY_DIR"]) / "here"):
                found.setdefault(name, []).append(value)
            if all(found.get(name) == values for name, values in wanted.items()) or time.monotonic() > end:
                break
            time.sleep(0.02)
        for name, values in wanted.items():
            self.assertEqual(found.get(name), values, name)
        self.assertEqual({name for name in found if name.startswith("tcpx_")}, {name for name in wanted if name.startswith("tcpx_")})


with tempfile.TemporaryDirectory() as folder:
    os.environ |= {"NIXL_TELEMETRY_DIR": folder, "NIXL_TELEMETRY_RUN_INTERVAL": "20", "NIXL_TELEMETRY_ENABLE": "y"}
    # NIXL exports the events of back-ends until 0.10.1, the last that has methods for requests started by the GPU.
    EXPORTS_BACKENDS = any(b"createGpuXferReq" in file.read_bytes() for file in wheel.libraries()[0].glob("libnixl.so"))
    passed = unittest.main(argv=ARGUMENTS, exit=False).result.wasSuccessful()
sys.exit(not passed)
