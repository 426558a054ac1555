"""`tcpx.uccl` beside the module of UCCL's wheel: names and parameters."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys

import pytest

from tcpx import uccl as p2p
from test_uccl import IPC_CALLS, LIMIT

_WHEEL_NAMES = """
import json
from uccl import p2p
kinds = {name: one for name, one in vars(p2p).items() if not name.startswith("_")}
print(json.dumps({
    "module": sorted(kinds),
    **{name: {member: getattr(kind, member).__doc__ or "" for member in dir(kind) if not member.startswith("_")}
       for name, kind in kinds.items() if isinstance(kind, type)},
}))
"""


def test_the_names_of_the_wheel_are_here() -> None:
    """Needs a Python that has the wheel, this one or the one that TCPX_TEST_UCCL_PYTHON names."""
    python = os.environ.get("TCPX_TEST_UCCL_PYTHON", sys.executable)
    asked = subprocess.run([python, "-c", _WHEEL_NAMES], capture_output=True, text=True, timeout=LIMIT)
    if asked.returncode != 0:
        pytest.skip(f"{python} has no uccl.p2p: {asked.stderr.strip().splitlines()[-1]}")
    theirs = json.loads(asked.stdout.splitlines()[-1])
    assert set(theirs["module"]) - set(dir(p2p)) == set()
    assert set(theirs["FloatType"]) - set(dir(p2p.FloatType)) == set()
    assert set(theirs["XferDesc"]) - set(dir(p2p.XferDesc(0, 0))) == set()
    assert set(theirs["XferHandle"]) - set(dir(p2p.XferHandle)) == set()
    assert set(theirs["Endpoint"]) - set(dir(p2p.Endpoint)) == set()
    for name, text in theirs["Endpoint"].items():
        if name in IPC_CALLS or name in ("advertise", "advertisev"):  # these take both forms, as the tests of calls do
            continue
        parameters = re.findall(r"[(,] (\w+): ", text.splitlines()[0].replace("(self,", "(,").replace("(", "( "))
        ours = [one for one in inspect.signature(getattr(p2p.Endpoint, name)).parameters if one != "self"]
        assert ours[: len(parameters)] == parameters, name
