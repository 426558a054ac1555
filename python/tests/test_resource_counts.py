"""A test that leaves something fails and is told what."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_skips import run_file

BEGIN = """
import mmap, os, threading
import resource_counts
import tcpx
kept = []
"""
LEAVES = {
    "descriptor": ('kept.append(open("/dev/null"))', r"left descriptor \d+ \(/dev/null\)"),
    "thread": (
        'threading.Thread(target=threading.Event().wait, name="waits", daemon=True).start()',
        r"left thread \d+ \(waits\)",
    ),
    "mapping": (
        'fd = os.memfd_create("ours"); os.ftruncate(fd, 8192); kept.append(mmap.mmap(fd, 8192)); os.close(fd)',
        r"8192 mapped bytes of /memfd:ours",
    ),
    "file": ('open(f"/dev/shm/tcpx-test-{os.getpid()}", "w").close()', r"left /dev/shm/tcpx-test-\d+"),
    "endpoint": ('kept.append(tcpx.Endpoint(listen="127.0.0.1"))', r"left descriptor .*; thread \d+ \(tcpx-"),
}


@pytest.mark.parametrize("kind", LEAVES)
def test_what_is_left_is_named(tmp_path: Path, kind: str) -> None:
    leave, said = LEAVES[kind]
    run = run_file(tmp_path, f"{BEGIN}resource_counts.LIMIT = 0.2\ndef test_a():\n    {leave}\ndef test_b(): pass\n")
    for name in Path("/dev/shm").glob("tcpx-test-*"):
        name.unlink()
    assert "2 passed, 1 error" in run.stdout, run.stdout
    assert re.search(said, run.stdout), run.stdout
