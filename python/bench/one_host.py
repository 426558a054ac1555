"""Writes between PyTorch tensors of two processes of one host: with PyTorch's own allocator and with its expandable segments, where
both processes see all GPUs, and where each sees one, as Ray and vLLM start workers.

    PYTHONPATH=build/release/python python3 python/bench/one_host.py
    PYTHONPATH=build/release/python python3 python/bench/one_host.py --only-first
    PYTHONPATH=build/release/python python3 python/bench/one_host.py --gigabytes 20 --json one_host.json

From the first GPU to the last; without a GPU, from host memory to host memory. `first` is the first write of the connection, from
memory that was registered after the connection was made and to memory that was advertised before, and `again` the same once more.
`new` is a write from memory that nobody has registered, registering and mapping included. `read` is the first read of memory that
was advertised before the connection was made, and `reread` the same once more. `first/again`, `new/again` and `read/reread` are
ratios of these rates. Both ends rest for a second before `first`, `new` and `read`. `--only-first` measures these alone. The
others are medians of one write at a time, begun when the one before it is done. All that arrives is compared. Exit code 1: wrong
bytes, or an end that failed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import time
from typing import Any

_PATIENCE = 60.0
_PAUSE = 1.0
_SIZES = {"8 B": 8, "4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
_RANGE, _RANGES = 32 << 10, 4096
_RATIOS = {"first/again": ("first", "again"), "new/again": ("new", "again"), "read/reread": ("read", "reread")}
_ALLOCATORS = {"default": "", "expandable": "expandable_segments:True"}
_VISIBLE = ("all", "one each")


def pattern(nbytes: int, run: int, device: Any) -> Any:
    import torch

    return (torch.arange(nbytes // 8, device=device) * 2654435761 + run).view(torch.uint8)


def ranges_of(memory: Any) -> list[Any]:
    """Every second _RANGE bytes of a tensor or slot, the last ones first: no two are neighbours."""
    count = min(_RANGES, len(memory) // (2 * _RANGE))
    return [memory[2 * i * _RANGE : (2 * i + 1) * _RANGE] for i in reversed(range(count))]


def expected(nbytes: int, run: int, device: Any) -> Any:
    """What the target holds after the first whole write (run 1), and after the parts of it that are written then (run 2).

    Run 4: after the whole write from new memory."""
    whole = pattern(nbytes, 4 if run == 4 else 1, device)
    if run == 2:
        newer = pattern(nbytes, 2, device)
        for there, here in [(whole[: _SIZES["64 MiB"]], newer[: _SIZES["64 MiB"]]), *zip(ranges_of(whole), ranges_of(newer))]:
            there.copy_(here)
    return whole


def serve(pipe: Any, environment: dict[str, str], device: str, nbytes: int) -> None:
    """The end whose memory is written. It answers the number of a run with whether its memory holds what it should then."""
    os.environ.update(environment)
    import torch

    import tcpx

    with tcpx.Endpoint(gpu=int(device[5:] or 0)) as endpoint:
        target, other = torch.empty(nbytes, dtype=torch.uint8, device=device), pattern(nbytes, 3, device)
        if device != "cpu":
            torch.cuda.synchronize()
        pipe.send((endpoint.metadata, bytes(endpoint.advertise(target)), bytes(endpoint.advertise(other))))
        endpoint.accept(timeout=_PATIENCE)
        while (run := pipe.recv()) is not None:
            pipe.send(bool(torch.equal(target, expected(nbytes, run, device))))


def timed(call: Any) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def write(pipe: Any, environment: dict[str, str], device: str, nbytes: int, seconds: float, only_first: bool) -> None:
    """The end that writes; sends the row's numbers."""
    os.environ.update(environment)
    import torch

    import tcpx

    metadata, slot_bytes, other_bytes = pipe.recv()
    row: dict[str, float] = {}
    with tcpx.Endpoint(gpu=int(device[5:] or 0)) as endpoint:
        conn, slot = endpoint.connect(metadata, timeout=_PATIENCE), tcpx.Slot.from_bytes(slot_bytes)
        source = pattern(nbytes, 1, device)
        registration = endpoint.register(source)
        if device != "cpu":
            torch.cuda.synchronize()
        time.sleep(_PAUSE)
        for name in ("first", "again"):
            row[name] = nbytes / timed(lambda: conn.write(source, slot)) / 1e9
        pipe.send(1)
        if not pipe.recv():
            raise ValueError("wrong bytes in the whole write")
        new = pattern(nbytes, 4, device)
        if device != "cpu":
            torch.cuda.synchronize()
        time.sleep(_PAUSE)
        row["new"] = nbytes / timed(lambda: conn.write(new, slot)) / 1e9
        pipe.send(4)
        if not pipe.recv():
            raise ValueError("wrong bytes in the whole write from new memory")
        del new
        conn.write(source, slot)
        other, into = tcpx.Slot.from_bytes(other_bytes), torch.zeros(nbytes, dtype=torch.uint8, device=device)
        if device != "cpu":
            torch.cuda.synchronize()
        time.sleep(_PAUSE)
        for name in ("read", "reread"):
            row[name] = nbytes / timed(lambda: conn.read(into, other)) / 1e9
        if not torch.equal(into, pattern(nbytes, 3, device)):
            raise ValueError("wrong bytes in the whole read")
        row |= {name: row[rate] / row[later] for name, (rate, later) in _RATIOS.items()}
        if only_first:
            pipe.send(row)
            return
        source.copy_(pattern(nbytes, 2, device))
        if device != "cpu":
            torch.cuda.synchronize()
        for name, size in _SIZES.items():
            part, there = source[:size], slot[:size]
            times = [timed(lambda: conn.write(part, there)) for _ in range(3)]
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                times.append(timed(lambda: conn.write(part, there)))
            value = statistics.median(times[3:] or times)
            row[name] = size / value / 1e9 if size > 1 << 20 else value * 1e6
        ranges = ranges_of(source)
        plan = conn.prepare(ranges, ranges_of(slot))
        times = [timed(plan.write) for _ in range(20)]
        row["scattered"] = len(ranges) * _RANGE / statistics.median(times) / 1e9
        pipe.send(2)
        if not pipe.recv():
            raise ValueError("wrong bytes in the writes of parts")
        registration.release()
    pipe.send(row)


def answer_of(pipe: Any, seconds: float) -> Any:
    if not pipe.poll(seconds + _PATIENCE):
        raise TimeoutError("an end does not answer")
    return pipe.recv()  # EOFError: it has ended, and has said why


def measure(
    allocator: str, visible: str, devices: list[int], nbytes: int, seconds: float, only_first: bool
) -> dict[str, float]:
    """One row, by two fresh processes."""
    setting = _ALLOCATORS[allocator]
    context, pipes, processes = multiprocessing.get_context("spawn"), [], []
    for target, gpu in ((serve, devices[-1:]), (write, devices[:1])):
        environment = {"PYTORCH_ALLOC_CONF": setting, "PYTORCH_CUDA_ALLOC_CONF": setting} if setting else {}
        if visible == "one each":
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpu))
        device = "cpu" if not gpu else f"cuda:{0 if visible == 'one each' else gpu[0]}"
        here, there = context.Pipe()
        arguments = (there, environment, device, nbytes) + ((seconds, only_first) if target is write else ())
        processes.append(context.Process(target=target, args=arguments, daemon=True))
        processes[-1].start()
        there.close()
        pipes.append(here)
    server, writer = pipes
    writer.send(answer_of(server, 0))
    for _ in range(2 if only_first else 3):
        server.send(answer_of(writer, 20 * seconds))
        writer.send(answer_of(server, 0))
    row: dict[str, float] = answer_of(writer, 0)
    server.send(None)
    for process in processes:
        process.join(_PATIENCE)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2, help="of the tensor (default 2)")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each size (default 0.3)")
    parser.add_argument("--only-first", action="store_true", help="only the first touches, and the same once more")
    parser.add_argument("--json", help="write the rows to this file")
    arguments = parser.parse_args()
    import torch

    nbytes = max(int(arguments.gigabytes * 1e9) // (2 * _RANGE), 1024) * 2 * _RANGE
    devices = sorted({0, torch.cuda.device_count() - 1}) if torch.cuda.is_available() else []
    names = ["first", "again", "new", "read", "reread", *_RATIOS, *([] if arguments.only_first else [*_SIZES, "scattered"])]
    units = {name: "" if name in _RATIOS else "us" if _SIZES.get(name, 1 << 30) <= 1 << 20 else "GB/s" for name in names}
    print("  ".join(["allocator   GPUs seen", *(f"{', '.join(filter(None, (name, units[name]))):>15}" for name in names)]))
    rows = []
    settings = list(itertools.product(_ALLOCATORS, _VISIBLE)) if devices else [("default", "all")]
    for allocator, visible in settings:
        row = measure(allocator, visible, devices, nbytes, arguments.seconds, arguments.only_first)
        rows.append({"allocator": allocator, "visible": visible, **row})
        print("  ".join([f"{allocator:<12}{visible:<9}", *(f"{row[name]:>15.{1 if units[name] else 2}f}" for name in names)]), flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"bytes": nbytes, "units": units, "rows": rows}, file, indent=1)
    print("PASSED: all bytes that were compared are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
