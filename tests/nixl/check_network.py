"""NIXL's own UCX as a peer of scripts/network_matrix.sh: what its ends move is compared, and connections follow each other.

usage: check_network.py
"""

import os
import pathlib
import sys
import threading
import unittest

os.environ.update(UCX_TLS="tcp", UCX_NET_DEVICES="lo")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "bench"))
import network_nixl  # noqa: E402


class Ends(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server, cls.client = network_nixl.NixlEnd(4), network_nixl.NixlEnd(4)
        cls.address = cls.server.address()

    def setUp(self):
        accepting = threading.Thread(target=self.server.accept, args=(1,))
        accepting.start()
        self.assertGreater(self.client.connect(self.address, 1), 0)
        accepting.join()

    def tearDown(self):
        self.client.close()

    def fresh(self, count, nbytes):
        self.client.aim(self.server.allocate(count, nbytes))
        self.client.allocate(count, nbytes)

    def test_what_is_moved_is_compared(self):
        for nbytes in (8, 200_000, network_nixl.NixlEnd(4).arena.size // 2):  # the last want more memory than was registered
            with self.subTest(nbytes=nbytes):
                self.fresh(3, nbytes)
                self.client.fill(5)
                self.assertEqual(self.server.wrong(5), [0, 1, 2])
                self.assertEqual(len(self.client.write(60)), 3)
                self.assertEqual(self.server.wrong(5), [])
                self.fresh(3, nbytes)
                self.server.fill(9)
                self.assertEqual(self.client.wrong(9), [0, 1, 2])
                self.assertEqual(len(self.client.read(60)), 3)
                self.assertEqual(self.client.wrong(9), [])

    def test_a_stream_reaches_every_place(self):
        self.fresh(20, 4096)
        self.client.fill(30)
        self.assertGreater(self.client.stream(0, 0.05), 0)
        self.assertEqual(self.server.wrong(30), [])


passed = unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful()
sys.stdout.flush()
os._exit(not passed)  # UCX of 0.10 and 1.0 crashes when a process with two agents ends
