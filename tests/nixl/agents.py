"""Agents of a test: one here, another in a process of its own. The tests go through the Python interface of the installed wheel alone."""

import os
import pathlib
import sys
import tempfile
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


def sync_modes():
    """Locks of an agent that this release's Python interface can choose."""
    return [mode for mode in ("NONE", "STRICT", "RW") if hasattr(wheel.load().nixlBind, f"NIXL_THREAD_SYNC_{mode}")]


def make_agent(name, backend, sync_mode, parameters=None, **config):
    """An agent with this lock. Before 1.5 Python's interface chooses NONE by itself, so that another is put in its place."""
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
    made.create_backend(backend, parameters or {})
    return made


def start_peer(name, backend, size, python=sys.executable):
    """peer.py in a process of its own. `python`: of another release of NIXL."""
    return wheel.Process([str(pathlib.Path(__file__).with_name("peer.py")), name, backend, str(size)], python=python)


def state_of(call, handle):
    """What it answers, or the words of the error that it raises: the classes differ between releases."""
    try:
        return call(handle)
    except Exception as error:  # noqa: BLE001
        return str(error)


class Log:
    """What this process, our library included, writes to the standard error inside a `with`."""

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
