"""Ranks of a job as processes of this host, with a store that they share, for tests of more than one process."""

from __future__ import annotations

import multiprocessing
import os
import queue
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tcpx
from tcpx import _hall
from tcpx.rendezvous import Group, join

#: Seconds for which anything is waited for: reached only by what has failed.
LIMIT = 60.0
#: Processes are forked by a server that has imported what they need, which takes longer than what most of them do.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["numpy", "pytest", "tcpx.weights"])

_hall._SLICE = 0.02  # closing a group waits that long for its thread, and tests close many


def has_libuv() -> bool:
    """Whether torch's stores and torchrun work as they come. Those of Debian 13 want a library without which they were built."""
    import torch.distributed

    try:
        torch.distributed.TCPStore("127.0.0.1", 0, 1, True)
    except RuntimeError as error:
        return "libuv" not in str(error)
    return True


class DirectoryStore:
    """A store in a directory: a file for each key."""

    def __init__(self, path: str) -> None:
        self.path = path

    def set(self, key: str, value: str) -> None:
        path = Path(self.path, key.replace("/", "_"))
        new = path.with_suffix(f".{os.getpid()}.new")
        new.write_text(value)
        new.rename(path)

    def get(self, key: str) -> bytes | None:
        try:
            return Path(self.path, key.replace("/", "_")).read_bytes()
        except FileNotFoundError:
            return None


def join_here(path: str, rank: int, world_size: int, timeout: float = LIMIT) -> Group:
    """The group of a rank of `Ranks`."""
    endpoint = tcpx.Endpoint(listen="127.0.0.1", public_address="127.0.0.1")
    return join(endpoint, rank=rank, world_size=world_size, store=DirectoryStore(path), timeout=timeout)


def _main(function: Callable[..., Any], path: str, rank: int, world_size: int, results: Any, arguments: tuple[Any, ...]) -> None:
    os.environ.setdefault("UCCL_TCPX_SOFT_IO_THREADS", "1")
    group = join_here(path, rank, world_size)
    try:
        results.put((rank, "value", function(group, *arguments)))
    except Exception as error:
        results.put((rank, "error", error, traceback.format_exc()))
    group.close()
    group.endpoint.close()


class Ranks:
    """Runs ``function(group, *arguments)`` in a process for each rank; ``function`` is one of a module."""

    def __init__(self, path: Path, world_size: int, function: Callable[..., Any], *arguments: Any) -> None:
        self.results: Any = CONTEXT.Queue()
        self.processes = [
            CONTEXT.Process(
                target=_main, args=(function, str(path), rank, world_size, self.results, arguments), daemon=True
            )
            for rank in range(world_size)
        ]
        for process in self.processes:
            process.start()

    def outcomes(self, ranks: set[int] | None = None) -> dict[int, Any]:
        """What each of the ranks (default: all) has returned, or the exception that it has raised."""
        missing = set(range(len(self.processes))) if ranks is None else set(ranks)
        outcomes: dict[int, Any] = {}
        while missing:
            try:
                rank, kind, value, *trace = self.results.get(timeout=LIMIT)
            except queue.Empty:
                raise AssertionError(f"ranks {sorted(missing)} have not ended; got {outcomes}") from None
            if trace and not isinstance(value, tcpx.Error):
                raise AssertionError(f"rank {rank}: {trace[0]}")
            outcomes[rank] = value
            missing.discard(rank)
        return outcomes

    def values(self) -> list[Any]:
        """What the ranks have returned; fails when one has raised."""
        outcomes = self.outcomes()
        for rank, outcome in outcomes.items():
            assert not isinstance(outcome, Exception), f"rank {rank}: {outcome}"
        self.join()
        return [outcomes[rank] for rank in range(len(self.processes))]

    def join(self) -> None:
        for process in self.processes:
            process.join(LIMIT)
            assert process.exitcode is not None, "a rank does not end"
