"""What all tests share: the exit code and the reasons of skipped tests, as scripts/test_summary.awk reads them."""

from __future__ import annotations

from collections import Counter
from typing import Any

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
