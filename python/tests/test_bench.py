"""The programs of python/bench, as far as a busy machine can tell: that they end, and compare what they move."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tcpx

BENCH = Path(__file__).parents[1] / "bench"


@pytest.mark.parametrize("direction", ["in", "out"])
def test_peers(direction, tmp_path):
    report = tmp_path / "peers.json"
    small = ["--peers", "3", "--mib", "0.25", "--samples", "1", "--seconds", "0.5", "--direction", direction, "--json", report]
    run = subprocess.run([sys.executable, BENCH / "peers.py", *small], capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    rates = json.loads(report.read_text())["rates"]
    assert [len(rates[peers][0]) for peers in ("1", "3")] == [1, 3]
    assert "of one peer" in run.stdout


def test_peers_wants_a_place_for_slow_ones():
    run = subprocess.run([sys.executable, BENCH / "peers.py", "--slow", "1"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2 and "--netns" in run.stderr


def test_peers_sees_a_wrong_byte():
    spec = importlib.util.spec_from_file_location("peers", BENCH / "peers.py")
    peers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peers)
    with tcpx.Endpoint(listen="127.0.0.1") as endpoint:
        memory = peers.Memory(endpoint, 3, 4096)
        memory.fill(1)
        assert memory.is_right(1) and not memory.is_right(2)
        memory.places[1][7] ^= 1
        assert not memory.is_right(1)
