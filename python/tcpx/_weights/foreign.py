"""What other processes have written: whatever it is, it ends as a value of the kind that is meant, or as `tcpx.Protocol`."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import Protocol
from ..slot import Slot

__all__ = ["data_of", "integer", "items", "json_of", "reading", "slot_of", "text", "text_of"]


@contextmanager
def reading(what: str) -> Iterator[None]:
    """What Python raises when foreign bytes are not as they should be is `tcpx.Protocol` outside; it names what was read."""
    try:
        yield
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        text = f"{type(error).__name__}: {error}"[:500]
        raise Protocol(f"{Protocol.code}: read {what}: {text}", "", f"read {what}", text) from None


def json_of(data: bytes | bytearray | memoryview | str) -> Any:
    """JSON as its standard has it: without Infinity and NaN."""
    return json.loads(bytes(data) if isinstance(data, memoryview) else data, parse_constant=_refuse)


def integer(value: Any, least: int = 0, most: int = 2**63 - 1) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r:.50} is no integer of {least} to {most}")
    return value


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.50} is no text")
    return value


def items(value: Any, count: int | None = None) -> list[Any]:
    """A list; of that many."""
    if not isinstance(value, list) or count not in (None, len(value)):
        raise TypeError(f"{value!r:.50} is no list{'' if count is None else f' of {count}'}")
    return value


def data_of(value: Any) -> bytes:
    """Bytes that travelled as text."""
    return base64.b64decode(text(value), validate=True)


def text_of(data: bytes) -> str:
    """Bytes as the text that `data_of` reads."""
    return base64.b64encode(data).decode()


def slot_of(value: Any) -> Slot:
    return Slot.from_bytes(data_of(value))


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number")
