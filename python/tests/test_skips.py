"""Skipped tests are counted, each with its reason, from pytest by way of ctest to the summary."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOME = """
import pytest
def test_a(): pass
@pytest.mark.parametrize("n", [1, 2])
def test_b(n): pytest.skip("no <GPU>")
@pytest.mark.skip(reason="no reason")
def test_c(): pass
"""
ALL = """
import pytest
pytest.importorskip("no_such_module_anywhere")
def test_a(): pass
"""
FAILED = SOME + "\ndef test_d(): assert False\n"


def run_file(folder: Path, content: str) -> subprocess.CompletedProcess[str]:
    for name in ("conftest.py", "resource_counts.py"):
        shutil.copy(Path(__file__).with_name(name), folder)
    (folder / "test_it.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def summary(folder: Path, run: subprocess.CompletedProcess[str]) -> str:
    """What scripts/test_summary.awk makes of a ctest entry with this result."""
    status = {0: "run", 77: "notrun"}.get(run.returncode, "fail")
    message = "<skipped message='SKIP_RETURN_CODE=77'/>" if run.returncode == 77 else ""
    (folder / "labels").write_text("Labels: python\n  Test #1: python.it\n")
    (folder / "results").write_text(
        f'\t<testcase name="python.it" classname="python.it" time="1" status="{status}">\n{message.replace(chr(39), chr(34))}\n'
        f"\t\t<system-out>{escape(run.stdout)}\n</system-out>\n\t</testcase>\n"
    )
    command = ["awk", "-f", str(ROOT / "scripts" / "test_summary.awk"), str(folder / "labels"), str(folder / "results")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_a_file_of_which_a_part_is_skipped(tmp_path: Path) -> None:
    run = run_file(tmp_path, SOME)
    assert run.returncode == 0, run.stdout
    said = summary(tmp_path, run)
    assert "  2: no <GPU> (python.it)" in said
    assert "  1: no reason (python.it)" in said
    assert said.endswith("\n1 passed, 0 failed, 3 skipped\n")


def test_a_file_of_googletest_counts_its_cases(tmp_path: Path) -> None:
    reasons = ("no GPU", "no GPU", "no peer")
    skipped = "".join(f"/it.cc:7: Skipped\n{reason}\n[  SKIPPED ] It.IsThere (0 ms)\n" for reason in reasons)
    end = "[==========] 10 tests from 2 test suites ran.\n[  PASSED  ] 7 tests.\n[  SKIPPED ] 3 tests, listed below:\n"
    said = summary(tmp_path, subprocess.CompletedProcess([], 0, skipped + end))
    assert "  2: no GPU (python.it)" in said
    assert "  1: no peer (python.it)" in said
    assert said.endswith("\n7 passed, 0 failed, 3 skipped\n")


def test_a_file_that_tests_nothing_is_skipped(tmp_path: Path) -> None:
    run = run_file(tmp_path, ALL)
    assert run.returncode == 77, run.stdout
    said = summary(tmp_path, run)
    assert "  1: could not import 'no_such_module_anywhere'" in said
    assert said.endswith("\n0 passed, 0 failed, 1 skipped\n")


@pytest.mark.parametrize("content", [FAILED, "def test_a(: pass\n"])
def test_a_failure_stays_one(tmp_path: Path, content: str) -> None:
    run = run_file(tmp_path, content)
    assert run.returncode not in (0, 77), run.stdout
    assert "1 failed" in summary(tmp_path, run)
