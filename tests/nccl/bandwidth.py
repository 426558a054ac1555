"""One of two ranks that measure send/recv from GPU to GPU through NCCL: rates by size and half round trips.

Started by run_nccl.sh. Rank 1 prints one line of JSON: {"label": ..., "gbps": {bytes: [min, median, max]}, "half_round_trip_us":
{bytes: median}, "verified": true}. The bytes of every size are compared once, outside of the time.
"""

import json
import os
import statistics
import time

import torch
import torch.distributed as dist

SIZES = [1 << 20, 16 << 20, 64 << 20, 256 << 20]
SAMPLES = 7

rank = int(os.environ["RANK"])
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)


def transfer(tensor):
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


def samples(operation, repeats):
    for _ in range(3):
        operation()
    seconds = []
    for _ in range(SAMPLES):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(repeats):
            operation()
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - begin) / repeats)
    return sorted(seconds)


result = {"label": os.environ.get("LABEL", ""), "gbps": {}, "half_round_trip_us": {}, "verified": True}
for size in SIZES:
    expected = (torch.arange(size, device=device, dtype=torch.int32) * 7 % 253).to(torch.uint8)
    tensor = expected.clone() if rank == 0 else torch.zeros_like(expected)
    transfer(tensor)
    torch.cuda.synchronize()
    result["verified"] &= bool(torch.equal(tensor, expected))
    seconds = samples(lambda: transfer(tensor), max(2, (512 << 20) // size // 8))
    rates = sorted(size / s / 1e9 for s in seconds)
    result["gbps"][size] = [round(rates[0], 2), round(statistics.median(rates), 2), round(rates[-1], 2)]
for size in (8, 65536):
    tensor = torch.ones(size, device=device, dtype=torch.uint8)
    result["half_round_trip_us"][size] = round(statistics.median(samples(lambda: ping_pong(tensor), 100)) / 2 * 1e6, 1)
if rank == 1:
    print(json.dumps(result), flush=True)
dist.destroy_process_group()
