"""One-sided reads of tensors: from what another rank has advertised into those of this process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..buffers import extent_of
from ..endpoint import Connection, Endpoint, Registration
from ..errors import Error
from ..operation import Operation
from ..slot import Slot
from .manifest import Tensor

__all__ = ["abandon", "register", "start_reads"]


def register(endpoint: Endpoint, tensors: Iterable[Tensor]) -> list[Registration]:
    """Registers tensors until the registrations are released."""
    return [Registration(endpoint.session, extent_of(one.bytes())) for one in tensors if one.nbytes]


def start_reads(
    connection: Connection, ranges: Iterable[tuple[Tensor, int, bool, Slot]], timeout: float
) -> list[Operation]:
    """Starts to read (into a tensor, from its byte, whether a GPU has the memory at the other end, the slot of just those bytes)."""
    kinds: dict[tuple[bool, bool], tuple[list[Any], list[Slot]]] = {}  # an operation moves memory of one kind at each end
    for tensor, first, gpu, slot in ranges:
        buffers, slots = kinds.setdefault((tensor.gpu, gpu), ([], []))
        buffers.append(tensor.bytes(first, slot.nbytes))
        slots.append(slot)
    return [connection.read_async(buffers, slots, timeout=timeout, stream=None) for buffers, slots in kinds.values()]


def abandon(operations: Sequence[Operation]) -> None:
    """Returns when none of them touches this process's memory any more."""
    for operation in operations:
        operation.cancel()
    for operation in operations:
        try:
            operation.wait()
        except Error:
            pass  # cancelled, or failed before
