#!/usr/bin/env python3
"""Compares examples/devmemd with the program: options, paths, groups. As root also starts it with the rights that the DaemonSet gives.

check_examples.py TCPX_DEVMEMD PROJECT     exit code: 0 they agree, 1 not, 77 without PyYAML"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

try:
    import yaml
except ImportError:
    print("SKIPPED: Python has no yaml (python3-yaml)")
    sys.exit(77)

PROGRAM, PROJECT = sys.argv[1], pathlib.Path(sys.argv[2])
SOCKET = pathlib.Path(re.search(r"^## `UCCL_TCPX_DEVMEM_SOCKET`.*?Default: (\S+)\.$", (PROJECT / "docs/env.md").read_text(),
                                re.DOTALL | re.MULTILINE)[1])
DIRECTORY = str(SOCKET.parent)
wrong = []


def expect(what, seen, wanted):
    if seen != wanted:
        wrong.append(f"{what}: {seen!r}, and should be {wanted!r}")


def check_options(where, words):
    known = set(re.findall(r"^ +(?:-\w,)?(--[\w-]+)", subprocess.check_output([PROGRAM, "--help"], text=True, timeout=30), re.MULTILINE))
    given = {word.split("=")[0] for word in words if word.startswith("--")}
    if not given or given - known:
        wrong.append(f"{where} gives {sorted(given)}, and the program has {sorted(known)}")


def mounts_directory(pod):
    """What a pod's only container mounts is the node's directory, under the path that the program looks at."""
    (volume,) = pod["volumes"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    expect("volume", (mount["name"], volume["hostPath"]["path"], mount["mountPath"]), (volume["name"], DIRECTORY, DIRECTORY))
    expect("hostNetwork", pod["hostNetwork"], True)
    return mount


def start(arguments, group):
    """Starts it as uid 0 with CAP_NET_ADMIN alone, in a network and with a /run of its own."""
    rights = ["setpriv", "--regid", str(group), "--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all,+net_admin"]
    daemon = subprocess.Popen(["unshare", "--net", "--mount", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh", *rights, PROGRAM, *arguments],
                              stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
    try:
        seen = pathlib.Path(f"/proc/{daemon.pid}/root{SOCKET}")
        deadline = time.monotonic() + 20
        while daemon.poll() is None and not (seen.exists() and seen.stat().st_mode & 0o777 == 0o660) and time.monotonic() < deadline:
            time.sleep(0.02)
        if seen.exists():
            told = seen.stat()
            expect("socket's mode, user and group", (oct(told.st_mode & 0o777), told.st_uid, told.st_gid), ("0o660", 0, group))
        else:
            wrong.append(f"it makes no {SOCKET}")
        daemon.send_signal(signal.SIGTERM)
        said = daemon.communicate(timeout=10)[0]
        expect("exit code", daemon.returncode, 0)
        if "ready" not in said:
            wrong.append(f"it did not start: {said}")
    finally:
        daemon.kill()


unit = (PROJECT / "examples/devmemd/tcpx-devmemd.service").read_text()
check_options("the unit", re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1].split())
expect("RuntimeDirectory of the unit", "/run/" + re.search(r"^RuntimeDirectory=(.*)$", unit, re.MULTILINE)[1], DIRECTORY)

daemon_set, client = yaml.safe_load_all((PROJECT / "examples/devmemd/tcpx-devmemd.yaml").read_text())
expect("kinds", (daemon_set["kind"], client["kind"]), ("DaemonSet", "Pod"))
expect("labels", daemon_set["spec"]["template"]["metadata"]["labels"], daemon_set["spec"]["selector"]["matchLabels"])
pod = daemon_set["spec"]["template"]["spec"]
(container,) = pod["containers"]
program, *arguments = container["command"]
expect("program", program, "tcpx_devmemd")
check_options("the DaemonSet", arguments)
group = int(arguments[arguments.index("--group") + 1])
rights = container["securityContext"]
expect("capabilities", rights["capabilities"], {"drop": ["ALL"], "add": ["NET_ADMIN"]})
expect("rights", {name: value for name, value in rights.items() if name != "capabilities"},
       {"runAsUser": 0, "runAsGroup": group, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True})
expect("daemon's mount is read-only", mounts_directory(pod).get("readOnly", False), False)
expect("client's mount is read-only", mounts_directory(client["spec"]).get("readOnly", False), True)
expect("client's groups", client["spec"]["securityContext"]["supplementalGroups"], [group])

makes_networks = subprocess.run(["unshare", "--net", "--mount", "true"], stderr=subprocess.DEVNULL, timeout=30).returncode == 0
if os.getuid() == 0 and shutil.which("setpriv") and makes_networks:
    start(arguments, rights["runAsGroup"])
else:
    print("it was not started, which takes root, unshare and setpriv")
print("\n".join(wrong) or "examples/devmemd and the program agree")
sys.exit(1 if wrong else 0)
