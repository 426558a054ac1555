"""Agents of a test: one here, another in a process of its own. The tests go through the Python interface of the installed wheel alone."""

import argparse
import os
import pathlib
import sys
import tempfile
import time
import zlib

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "integrations" / "nixl"))
import memory  # noqa: E402, F401: for the tests
import wheel  # noqa: E402


def options(**positional):
    """The command line of a test: what is named here, each with its default and of the same type, in this order, --memory, --gpus, and what
    unittest takes, for instance -kNAME. @return what was given, and what unittest gets"""
    parser = argparse.ArgumentParser()
    for name, default in positional.items():
        parser.add_argument(name, nargs="?", type=type(default), default=default, help="(default %(default)s)")
    parser.add_argument("--memory", choices=("dram", "vram"), default="dram", help="(default %(default)s)")
    parser.add_argument("--gpus", default="0,0", help="of the agent here and of its peer (default %(default)s)")
    given, rest = parser.parse_known_args()
    given.memory = given.memory.upper()
    given.gpus = [int(gpu) if given.memory == "VRAM" else 0 for gpu in given.gpus.split(",")]
    return given, [sys.argv[0], *rest]


def random_bytes(seed, size):
    return numpy.random.default_rng(seed).integers(0, 256, size, dtype=numpy.uint8)


def crc(data):
    return zlib.crc32(numpy.ascontiguousarray(data[:]))


def wait_for_notifications(of, count, seconds):
    """The next so many, fewer when they do not come in time: pairs of agent and text."""
    found, end = [], time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        for sender, messages in of.get_new_notifs().items():
            found += [(wheel.text(sender), wheel.text(message)) for message in messages]
        time.sleep(0.0002)
    return found


def sync_modes():
    """Locks of an agent that this release's Python interface can choose."""
    return [mode for mode in ("NONE", "STRICT", "RW") if hasattr(wheel.load().nixlBind, f"NIXL_THREAD_SYNC_{mode}")]


def make_agent(name, backend, sync_mode, parameters=None, gpu=0, **config):
    """An agent with this lock, for this GPU. Before 1.5 Python's interface chooses NONE by itself, so that another is put in its place."""
    api = wheel.load()
    if hasattr(api, "nixl_thread_sync_t"):
        modes = api.nixl_thread_sync_t
        config["sync_mode"] = getattr(modes, f"NIXL_THREAD_SYNC_{sync_mode}")
    none = api.nixlBind.NIXL_THREAD_SYNC_NONE
    api.nixlBind.NIXL_THREAD_SYNC_NONE = getattr(api.nixlBind, f"NIXL_THREAD_SYNC_{sync_mode}")
    try:
        made = api.nixl_agent(name, api.nixl_agent_config(backends=[], **config))
    finally:
        api.nixlBind.NIXL_THREAD_SYNC_NONE = none
    wheel.add_backend(made, backend, parameters, gpu)
    return made


def start_peer(name, backend, size, given, python=sys.executable):
    """peer.py in a process of its own, with memory as `options` gave it. `python`: of another release of NIXL."""
    arguments = [name, backend, str(size), given.memory, str(given.gpus[1])]
    return wheel.Process([str(pathlib.Path(__file__).with_name("peer.py")), *arguments], python=python)


def state_of(call, handle):
    """The answer of `call`, or the words of the error that it raises: the classes differ between releases."""
    try:
        return call(handle)
    except Exception as error:  # noqa: BLE001
        return str(error)


class Log:
    """Lines that this process, our library included, writes to the standard error inside a `with`."""

    def __enter__(self):
        self.file = tempfile.TemporaryFile()
        self.kept = os.dup(2)
        os.dup2(self.file.fileno(), 2)
        return self

    def __exit__(self, *_):
        os.dup2(self.kept, 2)
        os.close(self.kept)
        self.file.seek(0)
        text = self.file.read().decode(errors="replace")
        self.file.close()
        sys.stderr.write(text)
        self.lines = [line for line in text.splitlines() if "NIXL back-end" in line]


def resources():
    """Descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
