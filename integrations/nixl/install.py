#!/usr/bin/env python3
"""Puts libplugin_TCPX.so beside the plugins of the NIXL wheel that this Python has, where every engine finds it without any variable.
Installing the wheel again removes it. With --remove it takes it away; with --check it only says whether an agent finds it.
"""

import argparse
import filecmp
import pathlib
import shutil
import subprocess
import sys

import wheel

NAME = "libplugin_TCPX.so"


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


def check(folder):
    """Asks a new process, for a library once loaded stays."""
    program = (
        "import sys, wheel\n"
        "agent = wheel.agent(wheel.load(), 'check', 'TCPX')\n"
        "print('>', ' '.join(sorted(agent.get_plugin_list())))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=pathlib.Path(__file__).parent, capture_output=True, text=True, timeout=60, check=False
    )
    found = [line[2:] for line in run.stdout.splitlines() if line.startswith("> ")]
    if run.returncode != 0 or not found:
        print(run.stderr, file=sys.stderr, end="")
        fail(f"an agent of the wheel cannot make the back-end TCPX from {folder}")
    print(f"An agent of the wheel made the back-end TCPX. It lists: {found[0]}")


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
    target = folder / NAME
    if options.remove:
        if target.exists():
            target.unlink()
            print(f"Removed {target}")
        else:
            print(f"{target} is not there")
        return
    if not options.check:
        plugin = find_plugin(options.plugin)
        if target.exists() and filecmp.cmp(plugin, target, shallow=False):
            print(f"{target} is there already")
        else:
            # By way of another name, so that a process that starts meanwhile sees a whole file.
            part = target.with_suffix(".part")
            try:
                shutil.copyfile(plugin, part)
                part.replace(target)
            except OSError as error:
                fail(f"{target} cannot be written: {error.strerror}")
            print(f"Copied {plugin} to {target}")
    check(folder)


main()
