"""The command `tcpx`, also as ``python -m tcpx``: the programs that the package has inside, in bin/ and lib/."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from . import __version__, _core, _help

__all__ = ["doctor", "main"]

_USAGE = """\
usage: tcpx COMMAND [ARGUMENTS]

  doctor           look at this machine, and say what keeps transfers from being fast or from working
  perf             measure transfers by size, between two machines or on one: tcpx perf loopback -b 8 -e 64M
  path             the way that bytes take on this machine: net plugin, interfaces, unpacker, and shared memory on one host;
                   moves 64 MiB each way and compares them
  help NAME        print what an error means and what cures it: tcpx help TCPX_E_TIMEOUT
  secret new PATH  write a new secret into a new file, for UCCL_TCPX_SECRET_FILE; copy it to the other hosts by a safe way
  nixl install     put the back-end TCPX beside the plugins of the NIXL wheel that this Python has
  nixl verify      say whether a NIXL agent finds it
  nixl uninstall   take it away again

  --help, --version

`tcpx doctor --help`, `tcpx perf --help` and `tcpx nixl --help` show their arguments. The exit code is the program's; 2: no such command.
"""
_NIXL_USAGE = """\
usage: tcpx nixl {install|verify|uninstall} [ARGUMENTS]

  install     put the back-end TCPX beside the plugins of the NIXL wheel that this Python has
  verify      say whether a NIXL agent finds it
  uninstall   take it away again

`tcpx nixl install --help` shows their arguments.
"""
#: They lie beside the extension module, also after `pip install --editable`, which leaves these files where they are.
_HERE = Path(_core.__file__).parent
_PROGRAMS = {
    "doctor": ("tcpx_doctor",),
    "perf": ("tcpx_perf",),
    "path": ("tcpx_doctor", "--only", "selftest", "--verbose"),
}
_NIXL_OPTIONS = {"install": (), "verify": ("--check",), "uninstall": ("--remove",)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Becomes the program that the arguments name. Returns only where there is none to become."""
    command, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    if command in ("-h", "--help", "help"):
        return _help_on(rest[0]) if command == "help" and rest else _print_usage()
    if command == "--version":
        print(f"tcpx {__version__}")
        return 0
    if command in _PROGRAMS:
        program, *options = _PROGRAMS[command]
        return _become(_HERE / "bin" / program, [*options, *rest])
    if command == "nixl" and rest[:1] in (["-h"], ["--help"], ["help"]):
        print(_NIXL_USAGE, end="")
        return 0
    if command == "nixl" and rest and rest[0] in _NIXL_OPTIONS:
        nixl = _HERE / "lib" / "nixl"
        options = ["--plugin", str(nixl / "libplugin_TCPX.so"), *_NIXL_OPTIONS[rest[0]], *rest[1:]]
        return _become(nixl / "install.py", options)
    if command == "secret" and rest[:1] == ["new"] and len(rest) == 2 and not rest[1].startswith("-"):
        return _new_secret(rest[1])
    print(_NIXL_USAGE if command == "nixl" else _USAGE, end="", file=sys.stderr)
    if command == "nixl" and not rest:
        print("tcpx: nixl what? install, verify or uninstall", file=sys.stderr)
    elif command:
        print(f"tcpx: no command '{' '.join([command, *rest[:1]])}'", file=sys.stderr)
    return 2


def _print_usage() -> int:
    print(_USAGE, end="")
    return 0


def _help_on(name: str) -> int:
    """Prints the entry of an error."""
    if not _help.PAGE.is_file():
        print(f"tcpx: {_help.PAGE} is missing: install the package again", file=sys.stderr)
        return 1
    entry = _help.entry_of(name)
    if entry is None:
        print(f"tcpx: no error is named '{name}'. There are: {', '.join(_help.names())}", file=sys.stderr)
        return 2
    print(f"{entry}\n\nAll entries: {_help.PAGE}")
    return 0


def _new_secret(path: str) -> int:
    """Writes 32 random bytes in hexadecimal. A file that is there may be the secret of running endpoints, and stays as it is."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        print(f"tcpx: {path} is there already, and is never overwritten", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"tcpx: {path} cannot be made: {error.strerror}", file=sys.stderr)
        return 1
    try:
        with os.fdopen(file, "w") as out:
            out.write(f"{secrets.token_hex(32)}\n")
    except OSError as error:
        os.unlink(path)
        print(f"tcpx: {path} cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    print(f"{path}: a new secret; export UCCL_TCPX_SECRET_FILE={shlex.quote(os.path.abspath(path))}")
    return 0


def doctor() -> int:
    """The command `tcpx_doctor`, by which the doctor calls itself in the cures that it prints."""
    return main(["doctor", *sys.argv[1:]])


def _become(program: Path, arguments: list[str]) -> int:
    if not program.is_file():
        print(f"tcpx: {program} is missing: install the package again, or build all of the tree (make)", file=sys.stderr)
        return 1
    # The interpreter ignores them, and a program would inherit that: its output into a pipe that was closed would not end it.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    sys.stdout.flush()
    if program.suffix == ".py":
        _execute(sys.executable, [str(program), *arguments])
    _execute(str(program), arguments)


def _execute(file: str, arguments: list[str]) -> NoReturn:
    try:
        os.execv(file, [file, *arguments])
    except OSError as error:
        sys.exit(f"tcpx: {file} cannot be run: {error.strerror}")


if __name__ == "__main__":
    sys.exit(main())
