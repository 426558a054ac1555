"""What all tests share: the exit code and the reasons of skipped tests, as scripts/test_summary.awk reads them."""

from __future__ import annotations

from collections import Counter
from typing import Any

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
