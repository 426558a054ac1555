"""Runs the first Python block of docs/nixl.md, which moves bytes between two agents and compares them.

usage: check_first_bytes.py
"""

import pathlib
import re
import sys
import types

import agents

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "nixl.md"

# `pip install nixl` brings a package that hands on the one of a CUDA version, which is installed alone here.
sys.modules["nixl"] = types.ModuleType("nixl")
sys.modules["nixl._api"] = agents.wheel.load()
block = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
exec(compile(block[1], str(PAGE), "exec"), {"__name__": "__main__"})
print("the block has run")
