"""Exceptions: one class a code, and log lines in Python's logging."""

from __future__ import annotations

import pickle
import os
import subprocess
import sys

import pytest

import tcpx
from tcpx import _core, errors


def test_every_code_has_its_class() -> None:
    classes = {kind.code: kind for kind in tcpx.Error.__subclasses__()}
    assert sorted(classes) == sorted(_core.names_of_codes())
    for code, kind in classes.items():
        assert getattr(tcpx, kind.__name__) is kind and kind.__name__ in tcpx.__all__
        error = errors.error_of(code, f"{code}: a: b", "help: x", "a", "b", 5)
        assert type(error) is kind and isinstance(error, tcpx.Error)
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.help, copy.operation, copy.native) == (kind, str(error), "help: x", "a", 5)


def test_an_error_of_the_library() -> None:
    with pytest.raises(tcpx.NotFound) as raised:
        tcpx.Endpoint(listen="no-such-host.invalid")
    assert "no-such-host.invalid" in str(raised.value)
    assert raised.value.help.startswith("help: ") and raised.value.operation and raised.value.detail


def test_settings_out_of_range() -> None:
    for settings in ({"inline_bytes": 1 << 20}, {"max_operations": 0}, {"max_peer_bytes": 1 << 20}, {"timeout": 0.0}):
        with pytest.raises((tcpx.InvalidArgument, tcpx.BadConfig)):
            tcpx.Endpoint(listen="127.0.0.1", **settings)  # type: ignore[arg-type]
    with pytest.raises(tcpx.InvalidArgument, match="timeout"):
        tcpx.Endpoint(listen="127.0.0.1", timeout=-1.0)
    for wrong in ({"gpu": "first"}, {"port": 70000}, {"port": -1}, {"num_cpus": -1}):
        with pytest.raises((TypeError, OverflowError, tcpx.InvalidArgument)):
            tcpx.Endpoint(listen="127.0.0.1", **wrong)  # type: ignore[arg-type]


LOGGING = """
import logging, sys, tcpx
if "handler" in sys.argv:
    logging.basicConfig(stream=sys.stdout, level=logging.DEBUG, format="%(name)s|%(levelname)s|%(message)s")
tcpx.Endpoint(listen="127.0.0.1").close()
"""


def test_log_lines_are_records() -> None:
    done = subprocess.run([sys.executable, "-c", LOGGING, "handler"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert any(line.startswith("tcpx|INFO|net plugin ") for line in done.stdout.splitlines()), done.stdout


def test_log_lines_go_to_stderr_without_a_handler() -> None:
    done = subprocess.run([sys.executable, "-c", LOGGING], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "" and done.stderr.startswith("tcpx: net plugin "), done.stderr


CONNECTING = """
import sys, threading, tcpx
ends = [tcpx.Endpoint(listen="127.0.0.1") for _ in range(3)]
for server in ends[1:]:
    accepting = threading.Thread(target=server.accept, args=(20,))
    accepting.start()
    ends[0].connect(server.metadata)
    accepting.join()
for end in ends:
    end.close()
"""


def test_connections_that_work_are_told_of_at_info_only() -> None:
    lines = {}
    for level in ("info", "warning", "error"):
        settings = {**os.environ, "UCCL_TCPX_LOG_LEVEL": level}
        done = subprocess.run([sys.executable, "-c", CONNECTING], env=settings, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        lines[level] = done.stderr.splitlines()
    made = [line for line in lines["info"] if line.startswith("tcpx: info: connection ") and " has ended: " not in line]
    assert len(made) == 4, lines["info"]
    assert [line.partition(" tcpx-soft")[0] for line in lines["warning"]] == ["tcpx: net plugin"]
    assert lines["error"] == []


LISTENING = """
import sys, tcpx
ends = [tcpx.Endpoint(listen=listen) for listen in sys.argv[1:]]
for end in ends:
    end.close()
"""


@pytest.mark.parametrize(
    ("listens", "security", "told"),
    [
        (["0.0.0.0", "0.0.0.0"], "", 1),
        (["127.0.0.1", "::1"], "", 0),
        (["0.0.0.0"], "off", 0),
    ],
)
def test_that_anybody_may_connect_is_told_once(listens: list[str], security: str, told: int) -> None:
    """Where others than this host can, and nobody has chosen it."""
    settings = {**os.environ, "UCCL_TCPX_SECURITY": security}
    done = subprocess.run([sys.executable, "-c", LISTENING, *listens], env=settings, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    begins = "tcpx: warning: connections are not authenticated: anybody who reaches 0.0.0.0 can use endpoints. Set UCCL_TCPX_SECRET_FILE"
    assert [line.startswith(begins) for line in done.stderr.splitlines() if "authenticated" in line] == [True] * told, done.stderr
