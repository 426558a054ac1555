"""Tests of other files once more, in a process of its own each, with nothing but the variables that protect connections."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 120.0

TESTS = [
    "test_rendezvous.py::test_connections_by_rank",
    "test_weights.py::test_broadcast[2]",
    "test_publish.py::test_whole_tensors_and_slices",
    "test_uccl.py::test_programs_of_two_processes[one_sided-wheel]",
]


def run(test: str, secret: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "UCCL_TCPX_SECRET_FILE": str(secret), **settings}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(Path(__file__).with_name(test))]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.touch(0o600)
    path.write_text("a secret that all ranks of the job have\n")
    return path


@pytest.mark.parametrize("settings", [{}, {"UCCL_TCPX_SECURITY": "encrypt"}], ids=["auth", "encrypt"])
@pytest.mark.parametrize("test", TESTS)
def test_nothing_but_a_secret_is_needed(secret: Path, test: str, settings: dict[str, str]) -> None:
    ended = run(test, secret, **settings)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_secret_is_used(secret: Path) -> None:
    """Of one that others can read there is no endpoint."""
    secret.chmod(0o644)
    ended = run("test_publish.py::test_shards_of_several_ranks", secret)
    assert ended.returncode == 1 and "group or others" in ended.stdout, ended.stdout + ended.stderr
