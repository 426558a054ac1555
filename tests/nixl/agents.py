"""Agents of a test: one here, another in a process of its own. The tests go through the Python interface of the installed wheel alone."""

import argparse
import pathlib
import sys
import time
import zlib

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "integrations" / "nixl"))
import memory  # noqa: E402
import wheel  # noqa: E402


def options(what=None, default=None, meaning=None):
    """The command line of a test: `what`, with its default of the same type, --memory, --gpus, and what unittest takes, for instance
    -kNAME. @return what was given, and what unittest gets"""
    parser = argparse.ArgumentParser()
    if what:
        parser.add_argument(what, nargs="?", type=type(default), default=default, help=meaning)
    parser.add_argument("--memory", choices=("dram", "vram"), default="dram")
    parser.add_argument("--gpus", default="0,0", help="of the agent here and of its peer (default %(default)s)")
    given, rest = parser.parse_known_args()
    given.memory = given.memory.upper()
    given.gpus = [int(gpu) if given.memory == "VRAM" else 0 for gpu in given.gpus.split(",")]
    return given, [sys.argv[0], *rest]


def random_bytes(seed, size):
    return numpy.random.default_rng(seed).integers(0, 256, size, dtype=numpy.uint8)


def crc(memory):
    return zlib.crc32(numpy.ascontiguousarray(memory[:]))


def wait_for_notifications(of, count, seconds):
    """The next so many, fewer when they do not come in time: pairs of agent and text."""
    found, end = [], time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        for sender, messages in of.get_new_notifs().items():
            found += [(wheel.text(sender), wheel.text(message)) for message in messages]
        time.sleep(0.0002)
    return found


def start_peer(name, backend, size, given):
    """peer.py in a process of its own."""
    arguments = [name, backend, str(size), given.memory, str(given.gpus[1])]
    return wheel.Process([str(pathlib.Path(__file__).with_name("peer.py")), *arguments])
