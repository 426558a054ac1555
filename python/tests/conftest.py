"""Two connected endpoints of this process, for tests that need no more."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest

import tcpx

os.environ.setdefault("UCCL_TCPX_SOFT_IO_THREADS", "1")


class Pair(NamedTuple):
    """near is connected to far: `there` is near's connection, `back` is far's."""

    near: tcpx.Endpoint
    far: tcpx.Endpoint
    there: tcpx.Connection
    back: tcpx.Connection


def connect_pair(**settings: object) -> Pair:
    near = tcpx.Endpoint(listen="127.0.0.1", **settings)  # type: ignore[arg-type]
    far = tcpx.Endpoint(listen="127.0.0.1", **settings)  # type: ignore[arg-type]
    accepted: list[tcpx.Connection] = []
    accepting = threading.Thread(target=lambda: accepted.append(far.accept(20)))
    accepting.start()
    there = near.connect(far.metadata)
    accepting.join()
    return Pair(near, far, there, accepted[0])


@pytest.fixture
def pair() -> Iterator[Pair]:
    ends = connect_pair(timeout=20.0)
    yield ends
    ends.near.close()
    ends.far.close()
