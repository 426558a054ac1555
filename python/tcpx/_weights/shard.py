"""Parts of tensors: which bytes two parts of the same tensor have in common."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..buffers import Buffer
from ..errors import invalid

__all__ = ["Box", "Shard", "common_runs"]


class Box(NamedTuple):
    """A part of a tensor: the indices of its first element, and its lengths."""

    at: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many."""
        return math.prod(self.shape)

    def common(self, other: Box) -> Box | None:
        """What lies in both; None for nothing."""
        at = tuple(map(max, self.at, other.at))
        ends = [min(a + n, b + m) for a, n, b, m in zip(self.at, self.shape, other.at, other.shape)]
        shape = tuple(end - first for first, end in zip(at, ends))
        return Box(at, shape) if min(shape, default=1) > 0 else None


class Shard:
    """A buffer that holds a part of a larger tensor, for `publish` and `fetch_into`.

        Shard(buffer, (slice(0, 512),), (4096, 1024))           # the first 512 rows
        Shard(buffer, (slice(None), slice(-256, None)), (4096, 1024))  # the last 256 columns

    index: a slice of step 1 for each dimension; those at the end may be left out. shape: of the whole tensor.
    """

    def __init__(self, buffer: Buffer, index: Sequence[slice], shape: Sequence[int]) -> None:
        if len(index) > len(shape) or min(shape, default=1) < 0:
            raise invalid("make a shard", f"{len(index)} slices of a tensor of shape {list(shape)}")
        at, lengths = [], []
        for one, length in itertools.zip_longest(index, shape, fillvalue=slice(None)):
            assert isinstance(length, int)
            if not isinstance(one, slice) or one.step not in (None, 1):
                raise invalid("make a shard", f"{one!r} is no slice of step 1")
            first, last, _ = one.indices(length)
            at.append(first)
            lengths.append(max(last - first, 0))
        self.buffer = buffer
        self.box = Box(tuple(at), tuple(lengths))
        self.shape = tuple(shape)


def common_runs(one: Box, other: Box) -> Iterator[tuple[int, int, int]]:
    """The elements in both parts, by what lies together in both: the first in one, the first in the other, how many."""
    both = one.common(other)
    if both is None:
        return
    # Dimensions behind this one are whole in both parts, so that its rows are neighbours.
    inner = len(both.shape)
    while inner > 0 and one.shape[inner - 1] == both.shape[inner - 1] == other.shape[inner - 1]:
        inner -= 1
    inner = max(inner - 1, 0)
    count = math.prod(both.shape[inner:])
    for place in itertools.product(*(range(first, first + n) for first, n in zip(both.at[:inner], both.shape[:inner]))):
        index = (*place, *both.at[inner:])
        yield _offset(one, index), _offset(other, index), count


def _offset(box: Box, index: Sequence[int]) -> int:
    offset = 0
    for i, first, length in zip(index, box.at, box.shape):
        offset = offset * length + i - first
    return offset
