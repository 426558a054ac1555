"""One of two ranks that measure send/recv from GPU to GPU through NCCL: rates by size, their processor time, half round trips.

Started by run_nccl.sh and by bench_soft_plugin, with RANK, WORLD_SIZE=2, MASTER_ADDR and MASTER_PORT set. Rank 1 prints one line of
JSON: {"label": ..., "samples": n, "gbps": {bytes: [min, median, max]}, "core_seconds_per_gb": {bytes: of both ranks together},
"half_round_trip_us": {bytes: [min, median, max]}, "verified": true}. The bytes of every size are compared before and after the time.
"""

import argparse
import json
import os
import resource
import statistics
import time

import torch
import torch.distributed as dist


def list_of_numbers(text):
    return [int(word) for word in text.split(",") if word]


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--gpus", type=list_of_numbers, default=[0, 1], help="of rank 0 and of rank 1")
parser.add_argument("--sizes", type=list_of_numbers, default=[1 << 20, 16 << 20, 64 << 20, 256 << 20], help="bytes, one way")
parser.add_argument("--ping-pong-sizes", type=list_of_numbers, default=[8, 65536], help="bytes, back and forth")
parser.add_argument("--samples", type=int, default=7)
parser.add_argument("--milliseconds", type=int, default=500, help="of all samples of a row together, about")
options = parser.parse_args()

rank = int(os.environ["RANK"])
device = torch.device("cuda", options.gpus[rank])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)


def one_way(tensor):
    if rank == 0:
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)


def ping_pong(tensor):
    for sender in (0, 1):
        if rank == sender:
            dist.send(tensor, 1 - rank)
        else:
            dist.recv(tensor, 1 - rank)


def over_ranks(value, how):
    """The sum or maximum of both ranks' values."""
    tensor = torch.tensor([value], device=device, dtype=torch.float64)
    dist.all_reduce(tensor, op=how)
    torch.cuda.synchronize()  # docs/nccl.md: not in a stream that waits for the collective
    return float(tensor)


def timed(operation, repeats):
    """Seconds of this rank, and its processor seconds. Both ranks begin together."""
    dist.barrier()
    torch.cuda.synchronize()
    cpu = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    for _ in range(repeats):
        operation()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    return seconds, after.ru_utime - cpu.ru_utime + after.ru_stime - cpu.ru_stime


def measure(operation):
    """Sorted seconds per operation, one per sample, and processor seconds per operation of both ranks."""
    timed(operation, 3)
    each = over_ranks(timed(operation, 3)[0] / 3, dist.ReduceOp.MAX)
    repeats = max(2, int(options.milliseconds / 1000 / options.samples / each))
    samples = [timed(operation, repeats) for _ in range(options.samples)]
    cpu = over_ranks(sum(cpu for _, cpu in samples), dist.ReduceOp.SUM)
    return sorted(seconds / repeats for seconds, _ in samples), cpu / repeats / options.samples


def spread(values):
    return [float(f"{value:.5g}") for value in (min(values), statistics.median(values), max(values))]


def content(size):
    """Bytes with a prime period, so that shifts show."""
    period = (torch.arange(251, device=device, dtype=torch.int32) * 7 + 3).to(torch.uint8)
    return period.repeat((size + 250) // 251)[:size].clone()


def arrives_right(operation, tensor, expected):
    """One more operation; rank 1, which has none of the bytes before, compares them."""
    if rank == 1:
        tensor.zero_()
    operation()
    torch.cuda.synchronize()
    return bool(torch.equal(tensor, expected))


result = {"label": os.environ.get("LABEL", ""), "samples": options.samples, "gbps": {}, "core_seconds_per_gb": {},
          "half_round_trip_us": {}}
verified = True
for size in options.sizes:
    expected = content(size)
    tensor = expected.clone()
    verified &= arrives_right(lambda: one_way(tensor), tensor, expected)
    seconds, cpu = measure(lambda: one_way(tensor))
    verified &= arrives_right(lambda: one_way(tensor), tensor, expected)
    result["gbps"][size] = spread([size / s / 1e9 for s in seconds])
    result["core_seconds_per_gb"][size] = cpu / (size / 1e9)
for size in options.ping_pong_sizes:
    expected = content(size)
    tensor = expected.clone()
    verified &= arrives_right(lambda: ping_pong(tensor), tensor, expected)
    seconds, _ = measure(lambda: ping_pong(tensor))
    verified &= arrives_right(lambda: ping_pong(tensor), tensor, expected)
    result["half_round_trip_us"][size] = spread([s / 2 * 1e6 for s in seconds])
result["verified"] = over_ranks(float(verified), dist.ReduceOp.SUM) == 2
if rank == 1:
    print(json.dumps(result), flush=True)
dist.destroy_process_group()
