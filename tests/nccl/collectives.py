"""One rank of a PyTorch job that checks what NCCL computes over the plugin under test.

Runs send/recv, all_reduce, all_gather, reduce_scatter, all_to_all and broadcast on bytes that every rank can compute for itself, and
compares every one of them on the GPU. Started by run_nccl.sh with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set.
Exit status: 0 all right, 1 wrong bytes or an error.
"""

import argparse
import os
import random
import sys
import time

import torch
import torch.distributed as dist


def parse_size(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--sizes", default="1,2,3,255,4095,4096,4097,65536,524289,1M,4194301,16M,64M,256M",
                    help="bytes per rank, each with every operation")
parser.add_argument("--iterations", type=int, default=1000, help="further operations of random kind and size")
parser.add_argument("--largest", default="2M", help="largest of the random sizes")
options = parser.parse_args()

rank = int(os.environ["RANK"])
world = int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)


def content(owner, n, salt):
    """What `owner` contributes: bytes that depend on owner, position and salt. The period is a prime, so that shifts show."""
    base = torch.arange(251, device=device, dtype=torch.int32) * (owner * 2 + 3) + owner * 17 + salt * 29
    period = (base & 0xFF).to(torch.uint8)
    return period.repeat((n + 250) // 251)[:n]


def sum_of_all(n, salt):
    total = torch.zeros(n, device=device, dtype=torch.uint8)
    for owner in range(world):
        total += content(owner, n, salt)
    return total


def check(what, n, salt, found, expected):
    if torch.equal(found, expected):
        return
    wrong = torch.nonzero(found != expected)
    first = int(wrong[0])
    print(f"rank {rank}: {what} of {n} bytes (salt {salt}): {wrong.numel()} wrong bytes, the first at {first}: "
          f"{int(found[first])}, not {int(expected[first])}", flush=True)
    sys.exit(1)


def send_recv(n, salt):
    # A ring, so that every rank sends and receives at the same time.
    received = torch.empty(n, device=device, dtype=torch.uint8)
    to, source = (rank + 1) % world, (rank - 1) % world
    for request in dist.batch_isend_irecv([dist.P2POp(dist.isend, content(rank, n, salt), to),
                                           dist.P2POp(dist.irecv, received, source)]):
        request.wait()
    check("send/recv", n, salt, received, content(source, n, salt))


def one_way(n, salt):
    if rank == 0:
        dist.send(content(0, n, salt), 1)
    elif rank == 1:
        received = torch.empty(n, device=device, dtype=torch.uint8)
        dist.recv(received, 0)
        check("send", n, salt, received, content(0, n, salt))


def all_reduce(n, salt):
    tensor = content(rank, n, salt).clone()
    dist.all_reduce(tensor)
    check("all_reduce", n, salt, tensor, sum_of_all(n, salt))


def all_gather(n, salt):
    gathered = torch.empty(world * n, device=device, dtype=torch.uint8)
    dist.all_gather_into_tensor(gathered, content(rank, n, salt).contiguous())
    check("all_gather", n, salt, gathered, torch.cat([content(owner, n, salt) for owner in range(world)]))


def reduce_scatter(n, salt):
    part = torch.empty(n, device=device, dtype=torch.uint8)
    dist.reduce_scatter_tensor(part, content(rank, n * world, salt).contiguous())
    check("reduce_scatter", n, salt, part, sum_of_all(n * world, salt)[rank * n:(rank + 1) * n])


def all_to_all(n, salt):
    received = torch.empty(world * n, device=device, dtype=torch.uint8)
    dist.all_to_all_single(received, content(rank, n * world, salt).contiguous())
    expected = torch.cat([content(owner, n * world, salt)[rank * n:(rank + 1) * n] for owner in range(world)])
    check("all_to_all", n, salt, received, expected)


def broadcast(n, salt):
    root = salt % world
    tensor = content(root, n, salt).clone() if rank == root else torch.zeros(n, device=device, dtype=torch.uint8)
    dist.broadcast(tensor, root)
    check("broadcast", n, salt, tensor, content(root, n, salt))


operations = [send_recv, one_way, all_reduce, all_gather, reduce_scatter, all_to_all, broadcast]
begin = time.monotonic()
count = 0
for size in options.sizes.split(","):
    for operation in operations:
        operation(parse_size(size), count)
        count += 1
dice = random.Random(4711)  # the same on every rank
for _ in range(options.iterations):
    size = min(parse_size(options.largest), max(1, int(2 ** dice.uniform(0, 22))))
    dice.choice(operations)(size, count)
    count += 1
torch.cuda.synchronize()
dist.barrier()
print(f"rank {rank}: {count} operations right, {time.monotonic() - begin:.1f} s", flush=True)
dist.destroy_process_group()
