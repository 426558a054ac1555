"""The examples of examples/python, as people run them; each compares all bytes itself and says so."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import LIMIT, has_libuv

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
SLOWEST = 4 * LIMIT


def run(*command: str, **environment: str) -> list[str]:
    """Lines that a program prints. It must end well."""
    settings = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=SLOWEST, env=settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_all_have_a_test() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {"asyncio_server", "ray_weights", "torchrun_weights"}


@pytest.mark.parametrize("name", ["asyncio_server", "ray_weights", "torchrun_weights"])
def test_help(name: str) -> None:
    for module in ("numpy", *(("torch",) if "torch" in name else ()), *(("ray",) if "ray" in name else ())):
        pytest.importorskip(module)
    assert run(str(EXAMPLES / f"{name}.py"), "--help")[0].startswith("usage: ")


def test_asyncio_server() -> None:
    pytest.importorskip("numpy")
    lines = run(str(EXAMPLES / "asyncio_server.py"), "--clients", "3")
    assert sum("doubled, read back and compared" in line for line in lines) == 3
    assert sum("is served" in line for line in lines) == 3


def test_asyncio_server_of_another_process() -> None:
    pytest.importorskip("numpy")
    example = str(EXAMPLES / "asyncio_server.py")
    command = [sys.executable, "-u", example, "--serve", "0", "--clients", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = server.stdout.readline().split()[-1]
            lines = run(example, "--connect", f"127.0.0.1:{port}", "--clients", "2")
            assert sum("compared" in line for line in lines) == 2
            assert server.stdout.read().count("is served") == 2
            assert server.wait(LIMIT) == 0
        finally:
            server.kill()


def test_torchrun_weights() -> None:
    torch = pytest.importorskip("torch")
    if not has_libuv():
        pytest.skip(f"torchrun of torch {torch.__version__} does not start: it was built without libuv")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    if sys.version_info >= (3, 11) and int(torch.__version__.split(".")[0]) < 2:
        torchrun += ["-r", "1", "-t", "1"]  # its default takes an enumeration of Python 3.10 for granted
    lines = run(*torchrun, str(EXAMPLES / "torchrun_weights.py"), "--width", "64")
    for text in ("rank 0: broadcast,", "rank 1: broadcast,", "rank 1: fetched version 2, and 8 rows of it, compared"):
        assert any(text in line for line in lines), lines


def test_ray_weights() -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip(f"no ray for {sys.executable} (pip install ray)")
    lines = run(str(EXAMPLES / "ray_weights.py"), "--samplers", "2", "--megabytes", "2")
    assert [line for line in lines if line.startswith("step ")] == [
        f"step {step}: 2097152 bytes at 2 samplers, compared" for step in (100, 101)
    ]
