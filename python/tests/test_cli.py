"""The command `tcpx`: it becomes the programs of the package."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tcpx
from tcpx import __main__ as cli
from tcpx import _help

TIMEOUT = 120
LOOPBACK = {**os.environ, "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "=lo"}


def run(*arguments: str, program: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the command, if the program that it becomes has been built."""
    if program and not (cli._HERE / "bin" / program).exists():
        pytest.skip(f"{program} was not built")
    command = [sys.executable, "-m", "tcpx", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=LOOPBACK)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package without programs, until a test puts some there; a program stands for this process, and is not become."""

    def become(file: str, arguments: list[str]) -> None:
        print(subprocess.run(arguments, capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout)
        raise SystemExit(0)

    (tmp_path / "bin").mkdir()
    (tmp_path / "lib" / "nixl").mkdir(parents=True)
    monkeypatch.setattr(cli, "_HERE", tmp_path)
    monkeypatch.setattr(os, "execv", become)
    before = {number: signal.getsignal(number) for number in (signal.SIGPIPE, signal.SIGXFSZ)}
    yield tmp_path
    for number, handler in before.items():
        signal.signal(number, handler)


def test_help_names_every_command() -> None:
    said = run("--help")
    assert said.returncode == 0
    assert said.stderr == ""
    for command in ("doctor", "perf", "path", "help NAME", "secret new PATH", "nixl install", "nixl verify", "nixl uninstall"):
        assert f"\n  {command} " in said.stdout


@pytest.mark.parametrize("name", ["TCPX_E_TIMEOUT", "timeout", "H_TAGS_IGNORED"])
def test_help_on_an_error_prints_its_entry_and_where_the_page_is(name: str) -> None:
    said = run("help", name)
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("### `TCPX_") and name.upper() in said.stdout.splitlines()[0]
    for part in ("Symptom", "Causes", "Check", "Cure"):
        assert said.stdout.count(f"**{part}") == 1
    page = Path(said.stdout.splitlines()[-1].removeprefix("All entries: "))
    assert page.is_file()


def test_every_error_has_help() -> None:
    for kind in tcpx.Error.__subclasses__():
        assert (entry := _help.entry_of(kind.code)) is not None
        assert entry.startswith(f"### `{kind.code}`")
        assert "\n## " not in entry
        assert "](" not in entry


def test_help_on_what_is_no_error_names_those_that_are() -> None:
    said = run("help", "TCPX_E_NONSENSE")
    assert said.returncode == 2
    assert said.stdout == ""
    assert "TCPX_E_TIMEOUT" in said.stderr


def test_the_help_of_an_exception_names_the_page_of_this_package() -> None:
    with tcpx.Endpoint(listen="127.0.0.1") as endpoint, pytest.raises(tcpx.Timeout) as caught:
        endpoint.accept(timeout=0.01)
    assert f"See {_help.PAGE}#TCPX_E_TIMEOUT" in caught.value.help


def test_version() -> None:
    assert run("--version").stdout == f"tcpx {tcpx.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["--nonsense"]])
def test_what_it_does_not_know_is_a_usage_error(arguments: list[str]) -> None:
    said = run(*arguments)
    assert said.returncode == 2
    assert said.stdout == ""
    assert said.stderr.startswith("usage: tcpx COMMAND")
    assert said.stderr.endswith(f"no command '{' '.join(arguments)}'\n") or not arguments


def test_arguments_and_exit_codes_are_passed_on() -> None:
    said = run("doctor", "--help", program="tcpx_doctor")
    assert said.returncode == 0
    assert "--fix-env" in said.stdout
    assert run("doctor", "--no-such-option", program="tcpx_doctor").returncode == 64
    assert run("perf", "--no-such-option", program="tcpx_perf").returncode == 2


def test_perf_measures() -> None:
    said = run("perf", "loopback", "-b", "64K", "-n", "2", "--port", "0", program="tcpx_perf")
    assert said.returncode == 0, said.stderr
    assert "65536" in said.stdout


def test_path_says_which_way_bytes_take() -> None:
    said = run("path", program="tcpx_doctor")
    assert said.returncode in (0, 1), said.stdout + said.stderr  # 1: a warning, as of a slow machine
    assert "every byte compared" in said.stdout
    assert "path      plugin " in said.stdout
    assert " one_host " in said.stdout


def test_an_interrupt_ends_the_program_and_shows_no_trace() -> None:
    if not (cli._HERE / "bin" / "tcpx_perf").exists():
        pytest.skip("tcpx_perf was not built")
    command = [sys.executable, "-m", "tcpx", "perf", "server", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=LOOPBACK) as server:
        try:
            assert server.stdout is not None
            lines = []
            for line in server.stdout:
                lines.append(line)
                if "waiting for a client" in line:
                    server.send_signal(signal.SIGINT)
            assert server.wait(TIMEOUT) in (130, -signal.SIGINT)
            assert "Traceback" not in "".join(lines)
        finally:
            server.kill()


def test_a_program_that_is_missing(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 1
    assert f"{package}/bin/tcpx_doctor is missing" in capsys.readouterr().err


def test_a_program_that_cannot_be_run(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(cli, "_HERE", package)
    (package / "bin" / "tcpx_doctor").write_text("not executable")
    with pytest.raises(SystemExit, match="tcpx_doctor cannot be run: Permission denied"):
        cli.main(["doctor"])


def test_signals_are_as_a_shell_leaves_them(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = package / "bin" / "tcpx_perf"
    program.write_text("#!/bin/sh\ngrep SigIgn /proc/$$/status\n")
    program.chmod(0o755)
    with pytest.raises(SystemExit):
        cli.main(["perf"])
    ignored = int(capsys.readouterr().out.split()[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1))
    assert not ignored & (1 << (signal.SIGXFSZ - 1))


@pytest.mark.parametrize(("action", "option"), [("install", []), ("verify", ["--check"]), ("uninstall", ["--remove"])])
def test_nixl_is_done_by_its_script(
    package: Path, capsys: pytest.CaptureFixture[str], action: str, option: list[str]
) -> None:
    nixl = package / "lib" / "nixl"
    (nixl / "install.py").write_text("import sys; print(sys.argv[1:])")
    with pytest.raises(SystemExit):
        cli.main(["nixl", action, "--more"])
    assert capsys.readouterr().out.strip() == str(["--plugin", str(nixl / "libplugin_TCPX.so"), *option, "--more"])


def test_a_new_secret_is_private_and_no_file_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a secret"
    made = run("secret", "new", str(path))
    assert made.returncode == 0, made.stderr
    assert f"UCCL_TCPX_SECRET_FILE='{path}'" in made.stdout
    text = path.read_text()
    assert len(bytes.fromhex(text)) == 32
    assert text.strip() not in made.stdout
    assert path.stat().st_mode & 0o777 == 0o600
    again = run("secret", "new", str(path))
    assert again.returncode == 1
    assert "is there already, and is never overwritten" in again.stderr
    assert path.read_text() == text
    other = run("secret", "new", str(tmp_path / "other"))
    assert other.returncode == 0
    assert (tmp_path / "other").read_text() != text


def test_an_endpoint_takes_a_new_secret(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    assert run("secret", "new", str(path)).returncode == 0
    make = "import tcpx; tcpx.Endpoint(listen='127.0.0.1').close()"
    environment = {**LOOPBACK, "UCCL_TCPX_SECRET_FILE": str(path)}
    subprocess.run([sys.executable, "-c", make], check=True, timeout=TIMEOUT, env=environment)


@pytest.mark.parametrize("arguments", [[], ["new"], ["new", "--help"], ["new", "a", "b"], ["old", "a"]])
def test_a_secret_has_one_path(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("secret", *arguments).returncode == 2
    assert not list(tmp_path.iterdir())


def test_a_secret_in_a_missing_folder_is_no_trace(tmp_path: Path) -> None:
    made = run("secret", "new", str(tmp_path / "none" / "secret"))
    assert made.returncode == 1
    assert "cannot be made: No such file or directory" in made.stderr
    assert "Traceback" not in made.stderr


def test_nixl_without_its_wheel() -> None:
    if importlib.util.find_spec("nixl_cu12") or importlib.util.find_spec("nixl_cu13"):
        pytest.skip("this Python has NIXL")
    said = run("nixl", "verify")
    assert said.returncode == 1
    assert "has no NIXL wheel: pip install nixl" in said.stderr

def test_help_on_nixl_names_what_there_is() -> None:
    said = run("nixl", "--help")
    assert (said.returncode, said.stderr) == (0, "") and all(word in said.stdout for word in ("install", "verify", "uninstall"))
    for arguments, why in ((["nixl"], "tcpx: nixl what?"), (["nixl", "nonsense"], "tcpx: no command 'nixl nonsense'")):
        said = run(*arguments)
        assert (said.returncode, said.stdout) == (2, "") and "usage: tcpx nixl" in said.stderr and why in said.stderr
