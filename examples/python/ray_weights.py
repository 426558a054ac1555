"""A trainer's weights to samplers, as Ray actors.

    python3 examples/python/ray_weights.py --samplers 2

Ray starts the actors and calls them; the bytes of the weights go from process to process, not through Ray's object store. The
actors find each other through a store that is an actor as well: anything with `set` and `get` will do. Samplers make the trainer's
weights themselves, too, and compare all of them.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import ray

import tcpx.rendezvous
import tcpx.weights


class Store:
    """The actor that holds the keys."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def get(self, key: str) -> str | None:
        return self.values.get(key)


class StoreOfActor:
    """It, with calls that wait."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def set(self, key: str, value: str) -> None:
        ray.get(self.actor.set.remote(key, value))

    def get(self, key: str) -> Any:
        return ray.get(self.actor.get.remote(key))


def weights_of(step: int, megabytes: int) -> dict[str, Any]:
    """The same for the same step."""
    random = np.random.default_rng(step)
    return {f"layer.{i}": random.standard_normal((megabytes, 1 << 16), np.float32) for i in range(4)}


class Worker:
    """Rank 0 is the trainer."""

    def __init__(self, rank: int, world_size: int, store: Any, megabytes: int) -> None:
        self.group = tcpx.rendezvous.join(rank=rank, world_size=world_size, store=StoreOfActor(store))
        self.megabytes = megabytes
        self.weights = weights_of(rank, megabytes)

    def train(self, step: int) -> None:
        """In place of training: other weights, of the same shapes."""
        for name, array in weights_of(step, self.megabytes).items():
            self.weights[name][:] = array

    def sync(self) -> int:
        """Every actor is called; returns the bytes that all have now."""
        return tcpx.weights.broadcast(self.weights, src=0, group=self.group).nbytes

    def same_as(self, step: int) -> bool:
        """Whether the weights are those of the step."""
        return all(np.array_equal(self.weights[name], array) for name, array in weights_of(step, self.megabytes).items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samplers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--megabytes", type=int, default=8, help="MiB of the weights")
    options = parser.parse_args()
    ray.init(include_dashboard=False, log_to_driver=False)
    actor: Any = ray.remote(num_cpus=0)
    store = actor(Store).remote()
    ranks = range(1 + options.samplers)
    workers = [actor(Worker).remote(rank, len(ranks), store, options.megabytes) for rank in ranks]
    trainer, samplers = workers[0], workers[1:]
    for step in range(100, 100 + options.steps):
        ray.get(trainer.train.remote(step))
        nbytes = ray.get([worker.sync.remote() for worker in workers])
        if not all(ray.get([sampler.same_as.remote(step) for sampler in samplers])):
            raise SystemExit(f"step {step}: a sampler has other bytes than the trainer's")
        print(f"step {step}: {nbytes[0]} bytes at {len(samplers)} samplers, compared")
    ray.shutdown()


if __name__ == "__main__":
    main()
