"""What all tests share: two connected endpoints, the exit code, and the reasons of skipped tests, as scripts/test_summary.awk reads
them."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

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


_SKIPPED = 77


def _reasons(reporter: Any) -> Counter[str]:
    """How many tests were skipped for which reason."""
    reasons: Counter[str] = Counter()
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")] += 1
    return reasons


def pytest_sessionfinish(session: Any, exitstatus: int) -> None:
    """A file that tested nothing is skipped, not passed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus in (0, 5) and reporter.stats.get("skipped") and not reporter.stats.get("passed"):
        session.exitstatus = _SKIPPED


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int) -> None:
    for reason, count in _reasons(terminalreporter).items():
        terminalreporter.write_line(f"SKIPPED: {reason}" if exitstatus == _SKIPPED else f"SKIPPED {count}: {reason}")
