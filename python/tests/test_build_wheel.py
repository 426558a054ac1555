"""scripts/build_wheel.sh: what it refuses before anything is built, and the wheels that it has made."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import tcpx

ROOT = Path(__file__).resolve().parents[2]
WHEELS = sorted((ROOT / "build" / "wheels").glob(f"tcpx-{tcpx.__version__}-*.whl"))


def refusal(*arguments: str, code: int) -> str:
    """The last line that it says."""
    command = [str(ROOT / "scripts" / "build_wheel.sh"), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == code, run.stdout + run.stderr
    assert run.stdout == ""
    return run.stderr.splitlines()[-1]


def interpreter(folder: Path, change: str) -> str:
    """This Python, changed by a line of Python before it runs the program on its standard input."""
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import sys, sysconfig; {change}; exec(sys.stdin.read())'\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--bad"], "no such option: --bad"), (["--python"], "--python needs a path"), (["a", "b"], "one OUT_DIR, not 'a' and 'b'")],
)
def test_wrong_arguments(arguments: list[str], said: str) -> None:
    assert refusal(*arguments, code=2) == f"build_wheel: {said}"


def test_what_is_no_interpreter() -> None:
    assert refusal("--python", "/no/such/python3", code=1) == "build_wheel: /no/such/python3 is no program"
    assert refusal("--python", "/bin/false", code=1) == "build_wheel: /bin/false is no Python"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("sys.version_info = (3, 9, 2)", "the package needs 3.10 or later"),
        ('sysconfig.get_config_vars()["Py_GIL_DISABLED"] = 1', "relies on the interpreter lock"),
        ('sysconfig.get_path = lambda name: "/nowhere"', "has no headers (python3-dev)"),
    ],
)
def test_interpreters_that_cannot_have_the_package(tmp_path: Path, change: str, said: str) -> None:
    python = interpreter(tmp_path, change)
    assert refusal("--python", python, code=1).endswith(said)


@pytest.mark.parametrize("wheel", WHEELS or [None], ids=lambda wheel: wheel.name if wheel else "none")
def test_a_wheel_has_everything(wheel: Path | None) -> None:
    if wheel is None:
        pytest.skip("no wheels in build/wheels (scripts/build_wheel.sh)")
    sources = [one for one in (ROOT / "python").glob("tcpx/**/*") if one.suffix in (".py", ".pyi", ".typed")]
    if wheel.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        pytest.skip("the wheels in build/wheels are older than the package")
    with zipfile.ZipFile(wheel) as content:
        modes = {entry.filename: entry.external_attr >> 16 for entry in content.infolist()}
    for source in sources:
        assert str(source.relative_to(ROOT / "python")) in modes
    for library in ("libnccl-net-tcpx-soft.so", "nixl/libplugin_TCPX.so", "nixl/install.py", "nixl/wheel.py"):
        assert f"tcpx/lib/{library}" in modes
    for program in ("tcpx_doctor", "tcpx_perf"):
        assert modes[f"tcpx/bin/{program}"] & 0o111
    assert any(name.startswith("tcpx/_core.") and name.endswith(".so") for name in modes)
