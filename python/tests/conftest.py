"""What all tests share: two connected endpoints, a look at what each test leaves, the exit code, and the reasons of skipped tests,
as scripts/test_summary.awk reads them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import tcpx
from resource_counts import held_now, left_since

with contextlib.suppress(ImportError):
    import numpy  # noqa: F401  # here, because its threads stay: they would seem to be left by the test that first needs it

os.environ.setdefault("UCCL_TCPX_SOFT_IO_THREADS", "1")


@pytest.fixture(autouse=True)
def _leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test fails that leaves something open, running or mapped. What has failed already may: its traceback keeps things."""
    before, failed = held_now(), request.session.testsfailed
    yield
    request.node.funcargs.clear()  # pytest keeps what fixtures made until the test has been reported
    if request.session.testsfailed == failed and (left := left_since(before)):
        pytest.fail("left " + "; ".join(left), pytrace=False)


class Lent:
    """Host memory that is offered by DLPack only."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __dlpack__(self, **options: Any) -> Any:
        return self.owner.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.owner.__dlpack_device__()


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


_SKIPPED = 77


def _tested_nothing(reporter: Any) -> bool:
    return "skipped" in reporter.stats and not reporter.stats.keys() & {"passed", "failed", "error", "xfailed", "xpassed"}


def pytest_sessionfinish(session: Any) -> None:
    """A file that tested nothing is skipped, not passed."""
    if _tested_nothing(session.config.pluginmanager.get_plugin("terminalreporter")):
        session.exitstatus = _SKIPPED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many tests were skipped for which reason; the reason alone for a file that is skipped."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")] += 1
    for reason, count in reasons.items():
        terminalreporter.write_line(f"SKIPPED: {reason}" if _tested_nothing(terminalreporter) else f"SKIPPED {count}: {reason}")
