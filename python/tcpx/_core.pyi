"""The extension module, for type checkers; python/src/module.cc defines it. Memory is an address and a number of bytes."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from typing_extensions import Self

class Operation:
    def done(self) -> bool: ...
    def wait(self, timeout: float | None) -> bool: ...
    def check(self) -> None: ...
    def error(self) -> Exception | None: ...
    def cancel(self) -> None: ...
    def completion_event(self) -> int: ...

class Hold:
    """Keeps memory registered while it lives."""

class Plan:
    """Ranges that were looked up once; keeps their memory registered while it lives."""

class SlotParts:
    """Below tcpx.Slot: `[]` makes a slot of the same class."""

    raw: bytes
    offset: int
    shape: tuple[int, ...]
    itemsize: int
    nbytes: int
    _origin: Any
    def __getitem__(self, index: int | slice) -> Self: ...

class Ranges:
    """Ranges of buffers, and of the slot of each: `len` of those that are not empty.

    parts: what keeps the memory, for each buffer itself, or its Extent. streams: of GPU buffers, with one of the buffers of each.
    readonly: one of the buffers is.
    """

    parts: Sequence[Any]
    streams: dict[int, Any]
    readonly: bool
    def __len__(self) -> int: ...

def ranges_of(buffers: Iterable[Any], slots: Any, extent_of: Callable[[Any], Any]) -> Ranges: ...
def ranges_of_pairs(local: Sequence[tuple[int, int]], remote: Sequence[tuple[bytes, int]], /) -> Ranges: ...

class Endpoint:
    def __init__(
        self,
        gpu: int,
        num_cpus: int,
        listen_address: str,
        port: int,
        public_address: str,
        plugin: str,
        timeout: float | None,
        inline_bytes: int | None,
        max_operations: int,
        max_peer_bytes: int | None,
        question: Callable[[str, int, str], tuple[Callable[[Any], object], Any] | None] | None,
    ) -> None: ...
    def close(self) -> None: ...
    def closed(self) -> bool: ...
    def metadata(self) -> bytes: ...
    def connect(self, ip: str, gpu: int, port: int, timeout: float, /) -> int: ...
    def connect_metadata(self, metadata: bytes, timeout: float, /) -> int: ...
    def accept(self, timeout: float, /) -> tuple[int, str, int, str] | None: ...
    def start_accepting(self) -> None: ...
    def remove(self, conn: int, /) -> None: ...
    def hold(self, data: int, bytes: int, /) -> Hold | None: ...
    def add_region(self, data: int, bytes: int, /) -> None: ...
    def drop_region(self, data: int, bytes: int, wait: bool, timeout: float | None, /) -> None: ...
    def advertise(
        self,
        conn: int | None,
        region: tuple[int, int],
        data: int,
        bytes: int,
        stream: int | None,
        access: int,
        ends_after: float | None,
        uses: int,
    ) -> bytes: ...
    def is_advertised(self, slot: bytes, /) -> bool: ...
    def withdraw(self, slot: bytes, /) -> None: ...
    def start(
        self,
        kind: int,
        conn: int,
        data: int,
        bytes: int,
        slot: bytes | None,
        offset: int,
        timeout: float | None,
        stream: int | None,
        notify: bytes | None,
        event: bool,
    ) -> Operation | None: ...
    def start_many(
        self,
        kind: int,
        conn: int,
        ranges: Ranges,
        timeout: float | None,
        stream: int | None,
        notify: bytes | None,
        event: bool,
    ) -> Operation | None: ...
    def prepare(self, ranges: Ranges, /) -> Plan | None: ...
    def start_plan(
        self,
        kind: int,
        conn: int,
        plan: Plan,
        numbers: Any,
        timeout: float | None,
        stream: int | None,
        notify: bytes | None,
        event: bool,
    ) -> Operation: ...
    def start_blocks(
        self,
        kind: int,
        conn: int,
        data: int,
        bytes: int,
        count: int,
        local: Any,
        slot: bytes,
        offset: int,
        remote_count: int,
        remote: Any,
        timeout: float | None,
        stream: int | None,
        notify: bytes | None,
        event: bool,
    ) -> Operation: ...
    def notify(self, conn: int, name: bytes, text: bytes, /) -> None: ...
    def notifications(self, timeout: float, /) -> list[tuple[int, bytes, bytes]]: ...
    def event_fd(self) -> int: ...
    def stats(self) -> dict[str, Any]: ...
    def flight_record(self) -> str: ...
    def metrics(self) -> str: ...


def extent_of(buffer: object, /) -> tuple[int, int, bool]: ...
def names_of_codes() -> list[str]: ...
def make_errors_with(maker: Callable[..., Exception], /) -> None: ...
def keep_log_lines() -> None: ...
def release_log_lines() -> None: ...
def take_log_lines(seconds: float, /) -> list[tuple[int, str]]: ...

version: str
