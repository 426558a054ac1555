#!/usr/bin/env python3
"""Measures back-ends of NIXL side by side, through the Python interface of the installed wheel: two agents per back-end, each in a
process of its own, all back-ends in turn for every sample. What arrives is compared.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
import zlib

import numpy

import memory
import wheel

EXAMPLE = """example:
  bench.py --backends UCX,TCPX --memory vram --gpus 0,1 --json nixl.json

UCX is told to use TCP alone (UCX_TLS=tcp,cuda_copy), unless that variable is set. What the columns say: median [least .. most] of the
samples; a rate in GB/s (10^9 bytes per second) for patterns of many bytes, microseconds for one message; `submit` is the time that the
call took which started it."""

# Name: blocks, bytes of each. Scattered blocks lie in another order at the other side.
PATTERNS = {
    "8B": (1, 8),
    "64MiB": (1, 64 << 20),
    "4096x32KiB": (4096, 32 << 10),
    "1024x32KiB": (1024, 32 << 10),
    "4096x16KiB": (4096, 16 << 10),
    "8192x16KiB": (8192, 16 << 10),
}


class End:
    """One agent with its memory. Runs in a process of its own, driven by lines of JSON."""

    def __init__(self, name, backend, kind, gpu, size):
        self.memory = memory.allocate(kind, gpu, size)
        self.api = wheel.load()
        self.agent = wheel.agent(self.api, name, backend, gpu=self.memory.gpu)
        self.agent.register_memory([(self.memory.address, size, self.memory.gpu, "")], kind)

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

    def prepare(self, operation, near, far, size, prepared, notifies):
        kind = self.memory.kind
        here = self.descs(self.memory.address, self.memory.gpu, near, size)
        there = self.descs(self.far, self.far_gpu, far, size)
        notification = b"." if notifies else b""
        if prepared:
            sides = [self.agent.prep_xfer_dlist(name, rows, kind) for name, rows in (("", here), (self.other, there))]
            indices = numpy.arange(len(near), dtype=numpy.int32)
            self.start = lambda: self.agent.make_prepped_xfer(operation, sides[0], indices, sides[1], indices, notification)
        else:
            lists = [self.agent.get_xfer_descs(rows, kind) for rows in (here, there)]
            self.start = lambda: self.agent.initialize_xfer(operation, *lists, self.other, notification)
        self.handle = self.start()

    def run(self, seconds, pause=0):
        """Posts the request again and again for so long, with a pause before each look at it: seconds each took, seconds of the call that
        posted it."""
        took, calls, end = [], [], time.perf_counter() + seconds
        while not took or time.perf_counter() < end:
            begin = time.perf_counter()
            state = self.agent.transfer(self.handle)
            calls.append(time.perf_counter() - begin)
            while state == "PROC":
                if pause:
                    time.sleep(pause)
                state = self.agent.check_xfer_state(self.handle)
            took.append(time.perf_counter() - begin)
            if state != "DONE":
                raise RuntimeError(f"a transfer ended with {state}")
        return [statistics.median(took), statistics.median(calls)]

    def release(self):
        self.agent.release_xfer_handle(self.handle)
        self.handle = self.start = None

    def drain(self):
        return sum(len(messages) for messages in self.agent.get_new_notifs().values())


def start_end(*arguments):
    """End in a process of its own."""
    environment = {"UCX_TLS": "tcp,cuda_copy", "NIXL_LOG_LEVEL": "warn", "UCCL_TCPX_LOG_LEVEL": "warning"} | os.environ
    return wheel.Process([__file__, "--end", *map(str, arguments)], environment)


class Pair:
    """A back-end: the agent that starts transfers, and the other."""

    def __init__(self, backend, kind, gpus, size):
        self.backend = backend
        self.near, self.far = (start_end(f"{name}-{backend}", backend, kind, gpu, size) for name, gpu in zip(("near", "far"), gpus))
        metadata = [end.metadata() for end in (self.near, self.far)]
        self.near.load(*metadata[1])
        self.far.load(*metadata[0])

    def verify(self, operation, near, far, size):
        """Fills both sides differently, moves once, and compares block by block. @return blocks that differ"""
        self.near.fill(1)
        self.far.fill(2)
        wanted = (self.near if operation == "WRITE" else self.far).sums(near if operation == "WRITE" else far, size)
        self.near.run(0)
        got = (self.far if operation == "WRITE" else self.near).sums(far if operation == "WRITE" else near, size)
        return sum(a != b for a, b in zip(wanted, got))


def shown(row, samples):
    """Text of a cell."""
    blocks, size = PATTERNS[row["pattern"]]
    times = sorted(sample[0] for sample in samples)
    if blocks * size < 4096:
        middle, least, most = (1e6 * value for value in (statistics.median(times), times[0], times[-1]))
        return f"{middle:7.1f} us [{least:.1f} .. {most:.1f}]"
    middle, least, most = (blocks * size / value / 1e9 for value in (statistics.median(times), times[-1], times[0]))
    submit = 1e6 * statistics.median(sample[1] for sample in samples)
    return f"{middle:6.2f} GB/s [{least:.2f} .. {most:.2f}], submit {submit:.0f} us"


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
    parser.add_argument("--gpus", default="0,0", help="of the two ends (default %(default)s)")
    parser.add_argument("--patterns", default="8B,64MiB,4096x32KiB", help="of " + ", ".join(PATTERNS) + " (default %(default)s)")
    parser.add_argument("--operations", default="WRITE,READ", help="(default %(default)s)")
    parser.add_argument("--prepared", action="store_true", help="requests from prepared lists, by index")
    parser.add_argument("--samples", type=int, default=5, help="(default %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a sample (default %(default)s)")
    parser.add_argument("--pause", type=float, default=0, metavar="US",
                        help="microseconds between two looks at a transfer: engines look once a step (default: none)")
    parser.add_argument("--plugins", help="folder with libplugin_TCPX.so (default: where the wheel or NIXL_PLUGIN_DIR has it)")
    parser.add_argument("--json", metavar="FILE", help="write all numbers to this file")
    parser.add_argument("--end", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.end:
        name, backend, kind, gpu, size = options.end
        return wheel.serve(End(name, backend, kind, int(gpu), int(size)))
    patterns, backends = options.patterns.split(","), options.backends.split(",")
    if unknown := [name for name in patterns if name not in PATTERNS]:
        parser.error(f"no such pattern: {', '.join(unknown)}")
    folder = with_stock_plugins(options.plugins) if options.plugins else None
    size = max(blocks * block for blocks, block in map(PATTERNS.get, patterns))
    gpus = [int(gpu) for gpu in options.gpus.split(",")]
    pairs = [Pair(backend, options.memory.upper(), gpus, size) for backend in backends]
    rows, wrong = [], 0
    print(f"{options.memory.upper()}, NIXL {wheel.package().name}, {'prepared lists' if options.prepared else 'plain lists'}, "
          f"{options.samples} samples of {options.seconds} s")
    for operation in options.operations.split(","):
        for pattern in patterns:
            blocks, block = PATTERNS[pattern]
            order = numpy.random.default_rng(5).permutation(blocks)
            near, far = [int(i) * block for i in order], [int(i) * block for i in order[::-1]]
            row = {"operation": operation, "pattern": pattern, "blocks": blocks, "block_bytes": block, "samples": {}}
            for pair in pairs:
                pair.near.prepare(operation, near, far, block, options.prepared, pattern == "8B")
                differ = pair.verify(operation, near, far, block)
                if differ:
                    print(f"{pair.backend}: {differ} of {blocks} blocks differ", file=sys.stderr)
                wrong += differ
            for _ in range(options.samples):
                for pair in pairs:
                    row["samples"].setdefault(pair.backend, []).append(pair.near.run(options.seconds, options.pause * 1e-6))
                    pair.far.drain()
            for pair in pairs:
                pair.near.release()
            rows.append(row)
            medians = {name: statistics.median(sample[0] for sample in samples) for name, samples in row["samples"].items()}
            for name, samples in row["samples"].items():
                ratio = f"  {medians[backends[0]] / medians[name]:5.2f} x {backends[0]}" if name != backends[0] else ""
                print(f"{operation:5} {pattern:11} {name:8} {shown(row, samples)}{ratio}", flush=True)
    for pair in pairs:
        pair.near.end()
        pair.far.end()
    if folder:
        folder.cleanup()
    if options.json:
        report = {"memory": options.memory, "gpus": gpus, "prepared": options.prepared, "rows": rows, "wrong_blocks": wrong}
        pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    print("FAILED: wrong bytes" if wrong else "PASSED: all blocks that were compared are right")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"bench.py: {error}")
