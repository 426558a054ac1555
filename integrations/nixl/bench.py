#!/usr/bin/env python3
"""Measures back-ends of NIXL side by side, through the Python interface of the installed wheel: two agents per back-end, each in a
process of its own, all back-ends in turn for every sample. What arrives is compared. scripts/plot.py draws the JSON.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import threading
import time
import zlib

import numpy

import memory
import result
import wheel

EXAMPLE = """examples:
  bench.py --backends UCX,TCPX --memory vram --gpus 0,1 --json nixl.json
  bench.py --patterns 8192x16KiB --layers 4 --lists plain,prepared      a request for each layer, all of them in flight at once

Both use TCP, as between hosts (UCX_TLS=tcp,cuda_copy and UCCL_TCPX_LOCAL=off), or with --local what each has within one (UCX_TLS=all and
UCCL_TCPX_LOCAL=auto), unless those variables are set. What the columns say: median [least .. most] of the
samples; a rate in GB/s (10^9 bytes per second) for patterns of many bytes, microseconds for one message; `submit` is the time that the
call took which started it."""

# Name: blocks of a request, bytes of each. They lie in another order at the other side.
PATTERNS = {
    "8B": (1, 8),
    "4KiB": (1, 4 << 10),
    "64KiB": (1, 64 << 10),
    "1MiB": (1, 1 << 20),
    "8MiB": (1, 8 << 20),
    "64MiB": (1, 64 << 20),
    "4096x32KiB": (4096, 32 << 10),
    "1024x32KiB": (1024, 32 << 10),
    "4096x16KiB": (4096, 16 << 10),
    "8192x16KiB": (8192, 16 << 10),
    "16384x4KiB": (16384, 4 << 10),
}

# Parameters with which a back-end is at its fastest within one host: without this one NIXL has UCX take TCP there.
LOCAL = {"UCX": {"ucx_error_handling_mode": "none"}}

# Of the ends, by --local.
PATHS = {
    False: {"UCX_TLS": "tcp,cuda_copy", "UCCL_TCPX_LOCAL": "off"},
    True: {"UCX_TLS": "all", "UCCL_TCPX_LOCAL": "auto"},
}


class End:
    """One agent with its memory. Runs in a process of its own, driven by lines of JSON."""

    def __init__(self, name, backend, kind, gpu, size, progress_thread, parameters, huge):
        self.memory = memory.allocate(kind, gpu, size, huge)
        self.api = wheel.load()
        self.agent = wheel.agent(self.api, name, backend, parameters, self.memory.gpu, progress_thread)
        self.agent.register_memory([(self.memory.address, size, self.memory.gpu, "")], kind)
        self.watcher = None

    def metadata(self):
        return [self.agent.get_agent_metadata().hex(), self.memory.address, self.memory.gpu]

    def load(self, metadata, address, gpu):
        self.other = wheel.text(self.agent.add_remote_agent(bytes.fromhex(metadata)))
        self.far, self.far_gpu = address, gpu
        for _ in range(600):  # engines connect in the background
            try:
                self.agent.make_connection(self.other)
                return
            except self.api.nixlBind.nixlNotFoundError:
                time.sleep(0.05)

    def fill(self, seed):
        self.memory[:] = numpy.random.default_rng(seed).integers(0, 256, self.memory.size, dtype=numpy.uint8)

    def sums(self, offsets, size):
        data = self.memory[:]
        return [zlib.crc32(data[at : at + size]) for at in offsets]

    def descs(self, address, gpu, offsets, size):
        rows = numpy.empty((len(offsets), 3), dtype=numpy.uint64)
        rows[:, 0] = numpy.uint64(address) + numpy.array(offsets, dtype=numpy.uint64)
        rows[:, 1] = size
        rows[:, 2] = gpu
        return rows

    def prepare(self, operation, near, far, size, lists, notifies):
        """Requests, each of as many blocks as the items of `near` and `far`: their offsets here and there."""
        self.handles = [self.request(operation, *sides, size, lists, notifies) for sides in zip(near, far)]

    def request(self, operation, near, far, size, lists, notifies):
        kind = self.memory.kind
        here = self.descs(self.memory.address, self.memory.gpu, near, size)
        there = self.descs(self.far, self.far_gpu, far, size)
        notification = b"." if notifies else b""
        if lists == "prepared":
            sides = [self.agent.prep_xfer_dlist(name, rows, kind) for name, rows in (("", here), (self.other, there))]
            indices = numpy.arange(len(near), dtype=numpy.int32)
            return self.agent.make_prepped_xfer(operation, sides[0], indices, sides[1], indices, notification)
        descs = [self.agent.get_xfer_descs(rows, kind) for rows in (here, there)]
        return self.agent.initialize_xfer(operation, *descs, self.other, notification)

    def run(self, seconds, pause=0):
        """Posts the requests again and again for so long, with a pause of so many seconds before each look at one: seconds they all took,
        seconds of the calls that posted them."""
        took, calls, end = [], [], time.perf_counter() + seconds
        while not took or time.perf_counter() < end:
            begin = time.perf_counter()
            states = [self.agent.transfer(handle) for handle in self.handles]
            calls.append(time.perf_counter() - begin)
            for i, handle in enumerate(self.handles):
                while states[i] == "PROC":
                    if pause:
                        time.sleep(pause)
                    states[i] = self.agent.check_xfer_state(handle)
            took.append(time.perf_counter() - begin)
            if set(states) != {"DONE"}:
                raise RuntimeError(f"transfers ended with {', '.join(set(states))}")
        return [statistics.median(took), statistics.median(calls)]

    def release(self):
        for handle in self.handles:
            self.agent.release_xfer_handle(handle)
        self.handles = []

    def place(self):
        """The place of the memory, for people."""
        return self.memory.place

    def drain(self):
        return sum(len(messages) for messages in self.agent.get_new_notifs().values())

    def watch(self, on):
        """Looks for notifications again and again, on a thread, as the target of nixlbench does."""
        if self.watcher:
            self.watching = False
            self.watcher.join()
            self.watcher = None
        if on:
            self.watching = True
            self.watcher = threading.Thread(target=self.look, daemon=True)
            self.watcher.start()

    def look(self):
        while self.watching:
            self.agent.get_new_notifs()


def start_end(*arguments):
    """End in a process of its own."""
    environment = {"NIXL_LOG_LEVEL": "warn", "UCCL_TCPX_LOG_LEVEL": "warning"} | os.environ
    return wheel.Process([__file__, "--end", *map(str, arguments)], environment)


class Pair:
    """A back-end: the agent that starts transfers, and the other."""

    def __init__(self, backend, kind, gpus, size, *how):
        self.backend = backend
        self.near, self.far = (start_end(f"{name}-{backend}", backend, kind, gpu, size, *how) for name, gpu in zip(("near", "far"), gpus))
        metadata = [end.metadata() for end in (self.near, self.far)]
        self.near.load(*metadata[1])
        self.far.load(*metadata[0])

    def verify(self, operation, near, far, size):
        """Fills both sides differently, moves once, and compares block by block. @return blocks that differ"""
        near, far = sum(near, []), sum(far, [])
        self.near.fill(1)
        self.far.fill(2)
        wanted = (self.near if operation == "WRITE" else self.far).sums(near if operation == "WRITE" else far, size)
        self.far.watch(True)  # without a progress thread, nothing moves at an end that nobody looks at
        self.near.run(0)
        self.far.watch(False)
        got = (self.far if operation == "WRITE" else self.near).sums(far if operation == "WRITE" else near, size)
        return sum(a != b for a, b in zip(wanted, got))


@contextlib.contextmanager
def alone(pair, pairs):
    """The processes of the others stand still meanwhile, so that no core is taken by threads of theirs that poll."""
    others = [end.process for other in pairs if other is not pair for end in (other.near, other.far)]
    try:
        for process in others:
            process.send_signal(signal.SIGSTOP)
        yield
    finally:
        for process in others:
            process.send_signal(signal.SIGCONT)


def measure(pairs, operation, pattern, lists, options):
    """A row of the report, and whether any block was wrong."""
    blocks, block = PATTERNS[pattern]
    order = numpy.random.default_rng(5).permutation(blocks)
    layers = [layer * blocks * block for layer in range(options.layers)]
    near, far = ([[first + int(i) * block for i in ids] for first in layers] for ids in (order, order[::-1]))
    samples, verified = {pair.backend: [] for pair in pairs}, True
    for pair in pairs:
        pair.near.prepare(operation, near, far, block, lists, blocks == 1)
        if differ := pair.verify(operation, near, far, block):
            print(f"{pair.backend}: {differ} of {blocks * options.layers} blocks differ", file=sys.stderr)
            verified = False
    for _ in range(options.samples):
        for pair in pairs:
            with alone(pair, pairs):
                pair.far.watch(options.target == "polls")
                samples[pair.backend].append(pair.near.run(options.seconds, options.pause * 1e-6))
                pair.far.watch(False)
                pair.far.drain()
    for pair in pairs:
        pair.near.release()
    size = block * blocks * options.layers
    values = {"block": block, "blocks": blocks * options.layers}
    for name, pairs_of_times in samples.items():
        took, calls = zip(*pairs_of_times)
        values[name] = result.cell([size / seconds / 1e9 for seconds in took]) if size >= 4096 else None
        values[f"{name}, time"] = result.cell([1e6 * seconds for seconds in took])
        values[f"{name}, submit"] = result.cell([1e6 * seconds for seconds in calls])
    return {"name": pattern, "verified": verified, "values": values}


def shown(values, name):
    """Text for one back-end."""
    if values[name] is None:
        return "{median:7.1f} us [{min:.1f} .. {max:.1f}]".format(**values[f"{name}, time"])
    submit = values[f"{name}, submit"]["median"]
    return "{median:6.2f} GB/s [{min:.2f} .. {max:.2f}]".format(**values[name]) + f", submit {submit:.0f} us"


def report(tables, backends, devices, options):
    columns = [("block", "B"), ("blocks", "")]
    for name in backends:
        columns += [(name, "GB/s"), (f"{name}, time", "us"), (f"{name}, submit", "us")]
    names = ("memory", "pages", "gpus", "layers", "samples", "pause", "target", "progress_thread")
    return result.report(options, names, tables, columns, benchmark="bench_nixl", about=__doc__, version=wheel.version(), abi="NIXL",
                         devices=devices)  # fmt: skip


def with_stock_plugins(ours):
    """A folder with links to the wheel's plugins and to ours: NIXL looks into one only. It goes when the value does."""
    folder = tempfile.TemporaryDirectory()
    for plugin in [*wheel.plugins().glob("libplugin_*.so"), pathlib.Path(ours).resolve() / "libplugin_TCPX.so"]:
        link = pathlib.Path(folder.name) / plugin.name
        link.unlink(missing_ok=True)
        link.symlink_to(plugin)
    os.environ["NIXL_PLUGIN_DIR"] = folder.name
    # Libraries of their own they find by the place of the link.
    os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, [*map(str, wheel.libraries()), os.environ.get("LD_LIBRARY_PATH")]))
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="UCX,TCPX", help="the first is what the others are compared with (default %(default)s)")
    parser.add_argument("--memory", choices=("dram", "vram"), default="dram", help="(default %(default)s)")
    parser.add_argument("--pages", choices=("huge", "small"), default="huge", help="of the host's memory (default %(default)s)")
    parser.add_argument("--gpus", default="0,0", help="of the two ends (default %(default)s)")
    parser.add_argument("--patterns", default="8B,64MiB,4096x32KiB", help="of " + ", ".join(PATTERNS) + " (default %(default)s)")
    parser.add_argument("--operations", default="WRITE,READ", help="(default %(default)s)")
    parser.add_argument("--lists", default="plain", help="of plain, prepared: made for each request, or taken by index (default %(default)s)")
    parser.add_argument("--layers", type=int, default=1, help="as many requests at once, each of a pattern (default %(default)s)")
    parser.add_argument("--local", action="store_true", help="as between agents of one host; default: over TCP, as between hosts")
    parser.add_argument("--samples", type=int, default=5, help="(default %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a sample (default %(default)s)")
    parser.add_argument("--pause", type=float, default=0, metavar="US",
                        help="microseconds between two looks at a transfer: engines look once a step (default: none)")
    parser.add_argument("--target", choices=("polls", "sleeps"), default="polls",
                        help="polls: looks for notifications all the time, as that of nixlbench (default %(default)s)")
    parser.add_argument("--progress-thread", action="store_true",
                        help="agents with NIXL's progress thread, as its Python interface makes them by default (default: none, as nixlbench)")
    parser.add_argument("--plugins", help="folder with libplugin_TCPX.so (default: where the wheel or NIXL_PLUGIN_DIR has it)")
    parser.add_argument("--json", metavar="FILE", help="write all numbers to this file")
    parser.add_argument("--end", nargs=8, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.end:
        name, backend, kind, gpu, size, *how = options.end
        return wheel.serve(End(name, backend, kind, int(gpu), int(size), *map(json.loads, how)))
    patterns, backends = options.patterns.split(","), options.backends.split(",")
    operations, kinds = options.operations.split(","), options.lists.split(",")
    for chosen, known in ((patterns, PATTERNS), (operations, ("WRITE", "READ")), (kinds, ("plain", "prepared"))):
        if unknown := [name for name in chosen if name not in known]:
            parser.error(f"{', '.join(unknown)} is none of {', '.join(known)}")
    if len(set(backends)) != len(backends) or options.layers < 1 or options.samples < 1:
        parser.error("each of --backends once, and at least one layer and sample")
    if options.target == "sleeps" and not options.progress_thread:
        parser.error("a target that sleeps needs --progress-thread")
    for name, value in PATHS[options.local].items():
        os.environ.setdefault(name, value)
    folder = with_stock_plugins(options.plugins) if options.plugins else None
    size = options.layers * max(blocks * block for blocks, block in map(PATTERNS.get, patterns))
    gpus, threads = [int(gpu) for gpu in options.gpus.split(",")], json.dumps(options.progress_thread)
    parameters, huge = LOCAL if options.local else {}, json.dumps(options.pages == "huge")
    pairs = [Pair(name, options.memory.upper(), gpus, size, threads, json.dumps(parameters.get(name, {})), huge) for name in backends]
    path = "one host" if options.local else "TCP"
    pages = f", {options.pages} pages" if options.memory == "dram" else ""
    print(f"{options.memory.upper()}{pages}, {path}, NIXL {wheel.version()}, {options.samples} samples of {options.seconds} s")
    tables = {}
    for lists in kinds:
        for operation in operations:
            rows = tables.setdefault(f"{operation}, {lists} lists", [])
            for pattern in patterns:
                rows.append(measure(pairs, operation, pattern, lists, options))
                values = rows[-1]["values"]
                for name in backends:
                    first = values[f"{backends[0]}, time"]["median"]
                    ratio = f"  {first / values[f'{name}, time']['median']:5.2f} x {backends[0]}" if name != backends[0] else ""
                    print(f"{operation:5} {lists:8} {pattern:11} {name:8} {shown(values, name)}{ratio}", flush=True)
    devices = [f"{pair.near.place()} to {pair.far.place()}" for pair in pairs[:1]]
    for pair in pairs:
        pair.near.end()
        pair.far.end()
    if folder:
        folder.cleanup()
    made = report(tables, backends, devices, options)
    return result.finish(made, options.json, "all blocks that were compared are right")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"bench.py: {error}")
