"""A trainer's weights to samplers, under torchrun: rank 0 trains, the others get its weights, in two ways.

    torchrun --nproc-per-node 2 examples/python/torchrun_weights.py

All ranks call `broadcast`, which is for everybody at once. `publish` lets samplers fetch when they like: a version, some names,
or a slice. Every rank makes the trainer's weights itself, too, and compares all of them.
"""

from __future__ import annotations

import argparse
import os

import torch

import tcpx.rendezvous
import tcpx.weights


def model_of(seed: int, width: int) -> torch.nn.Module:
    """The same weights for the same seed."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))


def check(got: dict[str, torch.Tensor], seed: int, width: int) -> None:
    for name, tensor in model_of(seed, width).state_dict().items():
        if not torch.equal(got[name].cpu(), tensor):
            raise SystemExit(f"tensor {name} has other bytes than the trainer's")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=512, help="of the layers; parameters grow with its square")
    width = parser.parse_args().width
    rank, world_size = int(os.environ.get("RANK", "-1")), int(os.environ.get("WORLD_SIZE", "0"))
    if world_size < 2:
        raise SystemExit("start it with torchrun, two processes at least: torchrun --nproc-per-node 2 " + __file__)
    device = f"cuda:{os.environ['LOCAL_RANK']}" if torch.cuda.is_available() else "cpu"

    with tcpx.rendezvous.join() as group:
        weights = model_of(1 if rank == 0 else 100 + rank, width).to(device).state_dict()
        report = tcpx.weights.broadcast(weights, src=0, group=group)
        check(weights, 1, width)
        print(f"rank {rank}: broadcast, {report.nbytes} bytes compared", flush=True)

        if rank == 0:
            publication = tcpx.weights.publish(weights, "policy", version=1, group=group)
            with publication.update():  # a training step: in place, while samplers may be reading
                for name, tensor in model_of(2, width).state_dict().items():
                    weights[name].copy_(tensor)
            for sampler in range(1, world_size):
                group.connection(sampler).recv(bytearray(1))  # it has what it wants
        else:
            version = tcpx.weights.fetch_into(weights, "policy", group=group, newer_than=1)
            check(weights, version, width)
            rows = torch.empty(8, width, device=device)
            shard = tcpx.weights.Shard(rows, (slice(0, 8),), (4 * width, width))
            tcpx.weights.fetch_into({"0.weight": shard}, "policy", group=group)
            check({**weights, "0.weight": torch.cat([rows, weights["0.weight"][8:]])}, version, width)
            group.connection(0).send(b"1")
            print(f"rank {rank}: fetched version {version}, and 8 rows of it, compared", flush=True)


if __name__ == "__main__":
    main()
