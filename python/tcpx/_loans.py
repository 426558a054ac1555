"""What an endpoint has advertised: each slot is usable for as long as the memory that it names, or until it is withdrawn.

A loan is the memory of one owner (`tcpx.buffers.owner_of`), registered for it alone: another owner's end, of the same memory or of
memory around it, takes nothing from its slots. It ends when its owner dies or its last slot is withdrawn.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from . import _core
from .buffers import Extent, owner_of
from .slot import Terms

__all__ = ["Loans"]

#: Identity of the owner, or None when nobody can see its end, and its memory: address and length.
_Key = tuple["int | None", int, int]
#: Slots that may end before their memory that are kept before the ended ones among them are looked for.
_FIRST_SWEEP = 64


class _Loan:
    def __init__(self, pin: Any) -> None:
        self.pin = pin  # see `tcpx.buffers.Owner`
        self.slots: set[bytes] = set()
        self.end: weakref.finalize[Any, Any] | None = None


class Loans:
    """One for each endpoint. Any thread; owners may die, and be collected, at any time."""

    def __init__(self, core: _core.Endpoint) -> None:
        self._core = core
        self._lock = threading.RLock()  # a finalizer may run while its own thread holds it
        self._of: dict[_Key, _Loan] = {}
        self._keys: dict[bytes, set[_Key]] = {}  # of the loans that a slot is one of: views share their slots
        self._ranges: dict[bytes, tuple[int, int]] = {}  # address and length of each slot
        #: The connection that each slot is for which may end before its memory, or None: it is for all.
        self._passing: dict[bytes, int | None] = {}
        self._next_sweep = _FIRST_SWEEP

    def advertise(self, conn: int | None, extent: Extent, stream: int | None, terms: Terms) -> bytes:
        """The slot of the memory, which the caller keeps alive until this returns."""
        owner, address, nbytes, pin = owner_of(extent)
        key = (None if owner is None else id(owner), address, nbytes)
        with self._lock:
            loan = self._of.get(key)
            if loan is None:
                self._core.add_region(address, nbytes)
                loan = self._of[key] = _Loan(pin)
                if owner is not None:
                    loan.end = weakref.finalize(owner, _end_with_owner, weakref.ref(self), key)
                    loan.end.atexit = False
            try:
                raw = self._core.advertise(conn, key[1:], extent.address, extent.nbytes, stream, *terms)
                loan.slots.add(raw)
                self._keys.setdefault(raw, set()).add(key)
                self._ranges[raw] = extent.address, extent.nbytes
                if conn is not None or terms.passes:
                    self._passing[raw] = conn
            finally:
                unused = None if loan.slots else self._take(key)
            sweeps = len(self._passing) >= self._next_sweep
        if unused is not None:
            self._drop(key, unused, False)
        if sweeps:
            self.sweep()
            self._next_sweep = max(_FIRST_SWEEP, 2 * len(self._passing))
        return raw

    def withdraw(self, raw: bytes, wait: bool = True) -> None:
        """Ends a slot, for everybody who has it. `wait`: for operations that use memory of which nothing else is in use."""
        ended = []
        with self._lock:
            for key in self._forget(raw):
                loan = self._of[key]
                loan.slots.discard(raw)
                if not loan.slots:
                    ended.append((key, self._take(key)))
        for key, loan in ended:
            self._drop(key, loan, wait)

    def withdraw_within(self, address: int, nbytes: int) -> None:
        """Ends every slot of memory that lies in a range."""
        with self._lock:
            ranges = list(self._ranges.items())
        for raw in [raw for raw, (first, size) in ranges if address <= first and first + size <= address + nbytes]:
            self.withdraw(raw)

    def sweep(self) -> None:
        """Forgets the slots that have ended by themselves, or whose connection has: nobody can use them any more."""
        if not self._passing:
            return
        alive = {one["id"] for one in self._core.stats()["connections"] if one["alive"]}
        for raw, conn in list(self._passing.items()):
            if (conn is not None and conn not in alive) or not self._core.is_advertised(raw):
                self.withdraw(raw, wait=False)

    def close(self) -> None:
        """Once the endpoint is closed: nobody touches the memory any more."""
        with self._lock:
            loans = list(self._of.values())
            self._of.clear()
            self._keys.clear()
            self._ranges.clear()
            self._passing.clear()
        for loan in loans:
            if loan.end is not None:
                loan.end.detach()

    def end(self, key: _Key) -> None:
        """Ends a loan, and with it the slots that are of no other one."""
        with self._lock:
            if key not in self._of:
                return
            loan = self._take(key)
            for raw in loan.slots:
                keys = self._keys[raw]
                keys.discard(key)
                if not keys:
                    self._forget(raw)
        self._drop(key, loan, False)

    def _forget(self, raw: bytes) -> set[_Key]:
        """Withdraws a slot, unless that was done before. The loans that it is one of."""
        keys = self._keys.pop(raw, None)
        if keys is None:
            return set()
        del self._ranges[raw]
        self._passing.pop(raw, None)
        self._core.withdraw(raw)
        return keys

    def _take(self, key: _Key) -> _Loan:
        loan = self._of.pop(key)
        if loan.end is not None:
            loan.end.detach()
        return loan

    def _drop(self, key: _Key, loan: _Loan, wait: bool) -> None:
        self._core.drop_region(*key[1:], wait, None)
        loan.pin = None


def _end_with_owner(loans: weakref.ref[Loans], key: _Key) -> None:
    living = loans()
    if living is not None:
        living.end(key)
