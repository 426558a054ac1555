"""Times `tcpx.weights.broadcast` from one process to several of this host, beside one plain transfer and torch's own broadcast.

    PYTHONPATH=build/python python3 python/bench/broadcast.py --gigabytes 1 --receivers 4 --json broadcast.json
    PYTHONPATH=build/python python3 python/bench/broadcast.py --gigabytes 16 --receivers 1 --device cuda

Every sample runs the three, one after the other, with the same bytes, in the same processes:

    plain  one operation writes all tensors to the first receiver
    chain  `tcpx.weights.broadcast` to all receivers
    gloo   `torch.distributed.broadcast` of each tensor to all receivers; left out without torch
    nccl   the same between GPUs, where there is one for each process: over NCCL's sockets where UCCL_TCPX_LOCAL=off has us use TCP,
           else as it does by default

Seconds are from the source's start to the end at the last receiver; GB are 1e9 bytes of the state dict, counted once. Every
receiver compares every byte with what it makes itself. Core seconds are what all the processes took for a GB. On one host all
hops share its cores: a chain of N receivers moves N times the bytes of the plain transfer, takes N times its core seconds, and
cannot be faster than the cores divided by that.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tcpx
import tcpx.rendezvous
import tcpx.weights

_TENSORS = 16
_PATIENCE = 600.0


class DirectoryStore:
    """The processes are of one host: a file for each key."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def set(self, key: str, value: str) -> None:
        path = self._path / key.replace("/", "_")
        new = path.with_suffix(f".{os.getpid()}.new")
        new.write_text(value)
        new.rename(path)

    def get(self, key: str) -> bytes | None:
        path = self._path / key.replace("/", "_")
        return path.read_bytes() if path.exists() else None


def tensor_of(index: int, nbytes: int, device: str) -> Any:
    """Other bytes for each tensor, the same in each process."""
    if device == "host":
        return np.random.default_rng(index).integers(0, 2**63, nbytes // 8, np.int64)
    import torch

    chance = torch.Generator("cuda").manual_seed(index)
    return torch.randint(0, 2**62, (nbytes // 8,), generator=chance, dtype=torch.int64, device="cuda")


def has_bytes_of(tensor: Any, index: int, nbytes: int, device: str) -> bool:
    expected = tensor_of(index, nbytes, device)
    return bool((tensor == expected).all())


def torch_broadcast(device: str, rank: int, ranks: int, path: str, state: dict[str, Any]) -> tuple[str, Any]:
    """Name and call of torch's way: over sockets where ours goes over TCP, as between hosts without RDMA."""
    import torch
    import torch.distributed as distributed

    backend = "gloo" if device == "host" else "nccl"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    if os.environ.get("UCCL_TCPX_LOCAL") == "off":
        os.environ |= {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket"}
    distributed.init_process_group(backend, init_method=f"file://{path}/{backend}", rank=rank, world_size=ranks)
    tensors = [torch.from_numpy(one) if device == "host" else one for one in state.values()]

    def broadcast() -> None:
        for tensor in tensors:
            distributed.broadcast(tensor, 0)
        if device != "host":
            torch.cuda.synchronize()

    return backend, broadcast


class Run(NamedTuple):
    """What all processes do. gate: a barrier of them; results: a queue; path: a folder of theirs."""

    receivers: int
    nbytes: int
    samples: int
    settings: dict[str, int]
    device: str
    path: str
    gate: Any
    results: Any


def run_rank(rank: int, run: Run) -> None:
    """One process: the source is rank 0."""
    if run.device == "cuda":
        import torch

        torch.cuda.set_device(rank % torch.cuda.device_count())
    try:
        measure(rank, run)
    except BaseException:
        run.gate.abort()  # nobody waits for this one
        run.results.put((rank, []))
        raise


def measure(rank: int, run: Run) -> None:
    receivers, nbytes, samples, settings, device, path, gate, results = run
    gpu, has_own_gpu = 0, True
    if device == "cuda":
        import torch

        gpu, has_own_gpu = torch.cuda.current_device(), torch.cuda.device_count() > receivers
    group = tcpx.rendezvous.join(rank=rank, world_size=receivers + 1, store=DirectoryStore(path), gpu=gpu, timeout=_PATIENCE)
    state = {f"tensor.{i}": tensor_of(i, nbytes // _TENSORS, device) for i in range(_TENSORS)}
    ways: dict[str, Any] = {
        "plain": lambda: plain(group, state),
        "chain": lambda: tcpx.weights.broadcast(state, group=group, timeout=_PATIENCE, **settings),
    }
    try:
        if has_own_gpu:  # NCCL wants one for each process
            name, call = torch_broadcast(device, rank, receivers + 1, path, state)
            ways[name] = call
    except ImportError:
        pass
    times: list[tuple[str, int, float, float, float]] = []
    for sample in range(-1, samples):  # the first one warms up
        for way, move in ways.items():
            if rank != 0:
                for array in state.values():
                    array[:] = 0
            gate.wait(_PATIENCE)
            begin, worked = time.monotonic(), time.process_time()
            if way != "plain" or rank <= 1:
                move()
            end = time.monotonic()
            gate.wait(_PATIENCE)
            times.append((way, sample, begin, end, time.process_time() - worked))
            if rank != 0 and (way != "plain" or rank == 1):
                for index, array in enumerate(state.values()):
                    if not has_bytes_of(array, index, nbytes // _TENSORS, device):
                        raise SystemExit(f"{way}: rank {rank} has other bytes in tensor {index}")
    results.put((rank, times))
    gate.wait(_PATIENCE)
    group.close()


def plain(group: tcpx.rendezvous.Group, state: dict[str, Any]) -> None:
    """One write of everything from rank 0 to rank 1, and a byte that says that it is there."""
    connection = group.connection(1 - group.rank)
    if group.rank == 1:
        for array in state.values():
            connection.send_slot(connection.advertise(array))
        connection.recv(bytearray(1))
    else:
        slots = [connection.recv_slot() for _ in state]
        connection.write_async(list(state.values()), slots, timeout=_PATIENCE).wait()
        connection.send(b"1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="1e9 bytes, of each process")
    parser.add_argument("--receivers", type=int, default=4)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--device", choices=("host", "cuda"), default="host", help="whose memory; cuda: a GPU for each process, in turn")
    parser.add_argument("--piece", type=int, help="bytes of a piece; default: broadcast's")
    parser.add_argument("--window", type=int, help="pieces under way over each hop; default: broadcast's")
    parser.add_argument("--json", help="file to write the result to")
    options = parser.parse_args()
    nbytes = int(options.gigabytes * 1e9) // (8 * _TENSORS) * 8 * _TENSORS
    settings = {name: value for name, value in (("piece_bytes", options.piece), ("window", options.window)) if value}
    context = multiprocessing.get_context("spawn")
    gate, results = context.Barrier(options.receivers + 1), context.Queue()
    with tempfile.TemporaryDirectory() as path:
        run = Run(options.receivers, nbytes, options.samples, settings, options.device, path, gate, results)
        ranks = [context.Process(target=run_rank, args=(rank, run)) for rank in range(options.receivers + 1)]
        for process in ranks:
            process.start()
        of_ranks = dict(results.get(timeout=_PATIENCE) for _ in ranks)
        for process in ranks:
            process.join()
        if any(process.exitcode for process in ranks):
            raise SystemExit("a process failed")

    seconds: dict[str, list[float]] = {}
    worked: dict[str, list[float]] = {}
    for way, sample, begin, _, _ in of_ranks[0]:
        if sample >= 0:
            those = [one for times in of_ranks.values() for one in times if one[:2] == (way, sample)]
            seconds.setdefault(way, []).append(max(one[3] for one in those) - begin)
            worked.setdefault(way, []).append(sum(one[4] for one in those) / (nbytes / 1e9))
    rates = {way: [nbytes / 1e9 / one for one in some] for way, some in seconds.items()}
    result: dict[str, Any] = {
        "version": tcpx.__version__,
        "host": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "bytes": nbytes,
        "receivers": options.receivers,
        "device": options.device,
        "settings": settings,
        "verified": True,
        "gigabytes_per_second": {way: sorted(some) for way, some in rates.items()},
        "core_seconds_per_gigabyte": {way: statistics.median(some) for way, some in worked.items()},
        "median": {way: statistics.median(some) for way, some in rates.items()},
    }
    result["chain_to_plain"] = result["median"]["chain"] / result["median"]["plain"]
    print(f"{nbytes} bytes to {options.receivers} receivers, {result['cores']} cores; GB/s: median (minimum to maximum)")
    for way, some in rates.items():
        cost = result["core_seconds_per_gigabyte"][way]
        print(f"  {way:6}{statistics.median(some):7.2f}  ({min(some):.2f} to {max(some):.2f}), {cost:.2f} core seconds for a GB")
    print(f"  chain to plain: {result['chain_to_plain']:.2f}; every byte compared")
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
