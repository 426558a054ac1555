"""The blocks of docs/python.md and README.md run as they stand, in their order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", ["docs/python.md", "README.md", "README.zh.md"])
def test_the_blocks_of(document: str) -> None:
    pytest.importorskip("prometheus_client")
    text = (ROOT / document).read_text()
    blocks = BLOCK.findall(text)
    assert blocks
    # Empty lines, so that a failure names the line of the document.
    program = [""] * (text.count("\n") + 1)
    for found in BLOCK.finditer(text):
        first = text.count("\n", 0, found.start(1))
        for number, line in enumerate(found.group(1).splitlines()):
            program[first + number] = line
    done = subprocess.run([sys.executable, "-c", "\n".join(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
