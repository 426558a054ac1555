#!/usr/bin/env python3
"""Puts libplugin_TCPX.so beside the plugins of the NIXL wheel that this Python has, where every engine finds it without any variable.
Installing the wheel again removes it. With --remove it takes it away; with --check it only says whether an agent finds it.
"""

import argparse
import filecmp
import os
import pathlib
import shutil
import subprocess
import sys

import wheel

NAME = "libplugin_TCPX.so"
PROCESSORS = {62: "x86-64", 183: "AArch64"}


def fail(message):
    sys.exit(f"install.py: {message}")


def find_plugin(named):
    """The file to install: the one that is named, else that of a build of this tree, the newest first."""
    if named:
        plugin = pathlib.Path(named)
        if not plugin.is_file():
            fail(f"{plugin} is no file")
        return plugin
    here = pathlib.Path(__file__).resolve()
    builds = [here.with_name(NAME), *here.parents[2].glob(f"build/*/lib/nixl/{NAME}")]
    built = sorted((plugin for plugin in builds if plugin.is_file()), key=lambda plugin: -plugin.stat().st_mtime)
    if not built:
        fail(f"there is no {NAME}: `make` builds it (build/release/lib/nixl), or name it with --plugin")
    return built[0]


def machine(library):
    """Number of the processor that a shared library is for: e_machine of its ELF header. None: it is no such library."""
    with library.open("rb") as file:
        head = file.read(20)
    return int.from_bytes(head[18:20], "little") if len(head) == 20 and head.startswith(b"\x7fELF") else None


def expect_fits(plugin):
    wanted = machine(next(wheel.libraries()[0].glob("libnixl.so*")))
    if (found := machine(plugin)) != wanted:
        kind = "no shared library" if found is None else f"for {PROCESSORS.get(found, f'ELF machine {found}')}"
        fail(f"{plugin} is {kind}, the wheel is for {PROCESSORS.get(wanted, f'ELF machine {wanted}')}")


def copy(plugin, target):
    """By way of another name, so that a process that starts meanwhile sees a whole file."""
    part = target.with_suffix(".part")
    try:
        shutil.copyfile(plugin, part)
        part.replace(target)
    except OSError as error:
        if part.is_file():
            part.unlink()
        fail(f"{target} cannot be written: {error.strerror}")
    print(f"Copied {plugin} to {target}")


def remove(target):
    if not target.exists():
        return print(f"{target} is not there")
    try:
        target.unlink()
    except OSError as error:
        fail(f"{target} cannot be removed: {error.strerror}")
    print(f"Removed {target}")


def agent_lists(environment):
    """Back-ends that an agent of the wheel lists once it has made TCPX, or None after its words. Asks a new process, for a library once
    loaded stays."""
    program = (
        "import wheel\n"
        "agent = wheel.agent(wheel.load(), 'check', 'TCPX')\n"
        "print('>', ' '.join(sorted(agent.get_plugin_list())))\n"
    )
    command, folder = [sys.executable, "-c", program], pathlib.Path(__file__).parent
    try:
        run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return print("no answer in 60 s", file=sys.stderr)
    found = [line[2:] for line in run.stdout.splitlines() if line.startswith("> ")]
    if run.returncode == 0 and found and "TCPX" in found[0].split():
        return found[0]
    return print(run.stderr, file=sys.stderr, end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plugin", metavar="FILE", help="file to install (default: the newest of this tree's builds)")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--remove", action="store_true", help="take it away again")
    action.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args()
    if wheel.package() is None:
        fail(f"{sys.executable} has no NIXL wheel: pip install nixl, or call this with the Python of the engine")
    folder = wheel.plugins()
    if not folder.is_dir():
        fail(f"the wheel has no folder {folder}: a layout that this script does not know")
    target, environment, was_there = folder / NAME, dict(os.environ), True
    if options.remove:
        return remove(target)
    if not options.check:
        environment.pop("NIXL_PLUGIN_DIR", None)  # it would lead elsewhere
        plugin = find_plugin(options.plugin)
        expect_fits(plugin)
        was_there = target.exists()
        if was_there and filecmp.cmp(plugin, target, shallow=False):
            print(f"{target} is there already")
        else:
            copy(plugin, target)
    found = agent_lists(environment)
    if found is None:
        if not was_there:
            remove(target)
        fail(f"an agent of the wheel cannot make the back-end TCPX from {environment.get('NIXL_PLUGIN_DIR', folder)}")
    print(f"An agent of the wheel made the back-end TCPX. It lists: {found}")
    if not options.check and os.environ.get("NIXL_PLUGIN_DIR"):
        print(f"NIXL_PLUGIN_DIR is set: while it is, NIXL looks into {os.environ['NIXL_PLUGIN_DIR']} instead")


main()
