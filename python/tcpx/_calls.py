"""The calls of a connection that move memory."""

from __future__ import annotations

from collections.abc import Sequence

from ._session import READ, RECV, SEND, WRITE, Session, finish
from .buffers import Buffer
from .errors import Protocol
from .operation import Operation
from .plan import Plan
from .slot import Access, Slot, Terms
from .streams import CURRENT, Stream

__all__ = ["Calls"]

_LONGEST_SLOT = 1024


class Calls:
    """Those of `tcpx.Connection`, which tells about their arguments. id: the connection's number at its endpoint."""

    def __init__(self, session: Session, conn: int) -> None:
        self.session = session
        self.id = conn

    def send(
        self, buffer: Buffer, *, timeout: float | None = None, notify: bytes | None = None, stream: Stream = CURRENT
    ) -> None:
        """Sends a buffer. Returns when it may be changed again; the other end may not have it yet."""
        finish(self.session.start(SEND, self.id, buffer, None, timeout, stream, notify, False))

    def recv(self, buffer: Buffer, *, timeout: float | None = None, stream: Stream = CURRENT) -> None:
        """Receives into a buffer what the other end sends, which must be as many bytes (`tcpx.Mismatch`)."""
        finish(self.session.start(RECV, self.id, buffer, None, timeout, stream, None, False))

    def write(
        self,
        buffer: Buffer,
        slot: Slot | Sequence[Slot],
        *,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
    ) -> None:
        """Writes a buffer to the beginning of a slot of the other end. Returns when the bytes are in place there."""
        finish(self.session.start(WRITE, self.id, buffer, slot, timeout, stream, notify, False))

    def read(
        self,
        buffer: Buffer,
        slot: Slot | Sequence[Slot],
        *,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
    ) -> None:
        """Reads the beginning of a slot of the other end into a buffer. `notify` tells the other end that it was read."""
        finish(self.session.start(READ, self.id, buffer, slot, timeout, stream, notify, False))

    def send_async(
        self,
        buffer: Buffer,
        *,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
        event: bool = False,
    ) -> Operation:
        """`send` as an `Operation`."""
        return Operation(self.session, self.session.start(SEND, self.id, buffer, None, timeout, stream, notify, event))

    def recv_async(
        self, buffer: Buffer, *, timeout: float | None = None, stream: Stream = CURRENT, event: bool = False
    ) -> Operation:
        """`recv` as an `Operation`."""
        return Operation(self.session, self.session.start(RECV, self.id, buffer, None, timeout, stream, None, event))

    def write_async(
        self,
        buffer: Buffer,
        slot: Slot | Sequence[Slot],
        *,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
        event: bool = False,
    ) -> Operation:
        """`write` as an `Operation`."""
        return Operation(self.session, self.session.start(WRITE, self.id, buffer, slot, timeout, stream, notify, event))

    def read_async(
        self,
        buffer: Buffer,
        slot: Slot | Sequence[Slot],
        *,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
        event: bool = False,
    ) -> Operation:
        """`read` as an `Operation`."""
        return Operation(self.session, self.session.start(READ, self.id, buffer, slot, timeout, stream, notify, event))

    def advertise(
        self,
        buffer: Buffer,
        *,
        access: Access = "read-write",
        ends_after: float | None = None,
        uses: int | None = None,
        stream: Stream = CURRENT,
    ) -> Slot:
        """As `Endpoint.advertise`, for the other end of this connection only, and at most until it ends."""
        return self.session.advertise(self.id, Terms.of(access, ends_after, uses), buffer, stream)

    def prepare(self, buffers: Sequence[Buffer], slots: Sequence[Slot]) -> Plan:
        """Looks up buffers and slots for writes and reads that are started many times: `Plan.write`, `Plan.read`."""
        return Plan(self.session, self.id, buffers, slots)

    def notify(self, data: bytes, name: str = "") -> None:
        """Says something to the other end's application: up to 1 MiB of data, and 256 bytes of name."""
        self.session.core.notify(self.id, name.encode(), bytes(memoryview(data)))

    def send_slot(self, slot: Slot, timeout: float | None = None) -> None:
        """Ships a slot over the connection, in order with its sends.

        What others do with GPU memory that was advertised here waits for what its framework's current stream holds now.
        """
        slot.advertise_again()
        data = bytes(slot)
        self.send(len(data).to_bytes(8, "little"), timeout=timeout)
        self.send(data, timeout=timeout)

    def recv_slot(self, timeout: float | None = None) -> Slot:
        """The slot that the other end ships with `send_slot`."""
        length = bytearray(8)
        self.recv(length, timeout=timeout)
        size = int.from_bytes(length, "little")
        if size > _LONGEST_SLOT:
            raise Protocol(f"{Protocol.code}: receive slot: it has {size} bytes", "", "receive slot")
        data = bytearray(size)
        self.recv(data, timeout=timeout)
        return Slot.from_bytes(data)

    def close(self) -> None:
        """Ends the use of the connection: pending operations fail with `tcpx.Cancelled`."""
        self.session.core.remove(self.id)
        self.session.loans.sweep()
