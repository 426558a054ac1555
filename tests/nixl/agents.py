"""Agents of a test: one here, another in a process of its own. The tests go through the Python interface of the installed wheel alone."""

import pathlib
import sys
import time
import zlib

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "integrations" / "nixl"))
import wheel  # noqa: E402


def random_bytes(seed, size):
    return numpy.random.default_rng(seed).integers(0, 256, size, dtype=numpy.uint8)


def crc(memory):
    return zlib.crc32(numpy.ascontiguousarray(memory))


def wait_for_notifications(of, count, seconds):
    """The next so many, fewer when they do not come in time: pairs of agent and text."""
    found, end = [], time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        for sender, messages in of.get_new_notifs().items():
            found += [(wheel.text(sender), wheel.text(message)) for message in messages]
        time.sleep(0.0002)
    return found


def start_peer(name, backend, size):
    """peer.py in a process of its own."""
    return wheel.Process([str(pathlib.Path(__file__).with_name("peer.py")), name, backend, str(size)])
