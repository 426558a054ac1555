"""Agents of a test: one here, another in a process of its own. The tests go through the Python interface of the installed wheel alone."""

import json
import pathlib
import subprocess
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


class Process:
    """peer.py in a process of its own: each of its methods is one here."""

    def __init__(self, name, backend, size):
        script = pathlib.Path(__file__).with_name("peer.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), name, backend, str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __getattr__(self, word):
        return lambda *arguments: self.ask(word, *arguments)

    def ask(self, *line):
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        for answer in self.process.stdout:
            if answer.startswith("> "):
                return json.loads(answer[2:])
        raise RuntimeError(f"the other agent has ended: {self.process.wait()}")

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(20)
        self.process.stdout.close()
        return code
