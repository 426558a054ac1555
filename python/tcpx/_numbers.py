"""Numbers of blocks, and of ranges of a plan."""

from __future__ import annotations

from typing import Any

from .errors import invalid

__all__ = ["numbers_of"]


def numbers_of(what: str, ids: Any) -> Any:
    """Numbers as the library takes them: a contiguous numpy array of int64. Raises TypeError for no integers. what: for errors."""
    import numpy

    array = numpy.asarray(ids)
    if array.dtype.kind not in "iu" and array.size != 0:
        raise TypeError(f"{what} are integers, not {array.dtype}")
    if array.ndim != 1:
        raise invalid(what, f"{array.ndim} dimensions; they are a list")
    return numpy.ascontiguousarray(array, dtype=numpy.int64)
