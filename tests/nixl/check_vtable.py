"""Compares the virtual table of our engine with that of the wheel's own UCX engine, slot by slot, both read from the files.

usage: check_vtable.py PLUGIN FAMILY    PLUGIN: libplugin_TCPX.so, not stripped. FAMILY: A, B or C, what the wheel should be
"""

import re
import subprocess
import sys

from agents import wheel

# Methods of NIXL's engine, and the names that they have in integrations/nixl/nixl_abi.h.
METHODS = {
    "supportsRemote": "supports_remote",
    "supportsLocal": "supports_local",
    "supportsNotif": "supports_notifications",
    "getSupportedMems": "memories",
    "registerMem": "register_memory",
    "deregisterMem": "deregister_memory",
    "connect": "connect",
    "disconnect": "disconnect",
    "unloadMD": "unload",
    "prepXfer": "prepare",
    "postXfer": "post",
    "checkXfer": "check",
    "releaseReqH": "release",
    "getPublicData": "public_data",
    "getConnInfo": "connection_info",
    "loadRemoteConnInfo": "load_connection_info",
    "loadRemoteMD": "load_remote",
    "loadLocalMD": "load_local",
    "getNotifs": "take_notifications",
    "genNotif": "notify",
    "queryMem": "query",
    "estimateXferCost": "estimate",
}


def readelf(option, file):
    return subprocess.run(["readelf", "-W", option, file], check=True, capture_output=True, text=True).stdout


def slots(file, table):
    """Slot -> mangled names of the function in it, of the virtual table with that mangled name. Equal functions may be one, so that it
    has several."""
    symbols = re.findall(r"^\s*\d+: ([0-9a-f]+)\s+(\d+|0x[0-9a-f]+) \w+\s+\w+\s+\w+\s+\S+ (\S+)", readelf("-s", file), re.M)
    at = {name: (int(value, 16), int(size, 0)) for value, size, name in symbols}
    first, size = at[table]
    names = {}
    for value, _, name in symbols:
        names.setdefault(int(value, 16), set()).add(name)
    found = {}
    for offset, kind, rest in re.findall(r"^([0-9a-f]{16})\s+[0-9a-f]+ (R_\w+)\s+(.*)$", readelf("-r", file), re.M):
        word = (int(offset, 16) - first) // 8 - 2  # past the offset to the top and the type
        if not 0 <= word < size // 8 - 2:
            continue
        words = rest.split()
        imported = kind.endswith("_64") and int(words[0], 16) == 0
        found[word] = {words[1].split("@")[0]} if imported else names.get(int(words[0], 16), set())
    return found


def method_slots(file, table):
    """Name of a method, without class and arguments -> its slots."""
    by_name = {}
    for slot, names in slots(file, table).items():
        for text in subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True).stdout.splitlines():
            name = text.replace("(anonymous namespace)", "").split("(")[0].strip().split("::")[-1]
            by_name.setdefault(name, set()).add(slot)
    return by_name


def main():
    plugin, family = sys.argv[1], sys.argv[2]
    theirs = method_slots(str(wheel.plugins() / "libplugin_UCX.so"), "_ZTV13nixlUcxEngine")
    ours = method_slots(plugin, f"_ZTVN4tcpx4nixl12_GLOBAL__N_112FamilyEngineINS0_3abi7Engine{family}EEE")
    wrong = [
        f"{name}: slot {theirs.get(name)}, ours {ours.get(mine)}"
        for name, mine in METHODS.items()
        if name not in theirs or not theirs[name] <= ours.get(mine, set())
    ]
    for line in wrong:
        print(line)
    print(f"{len(METHODS)} methods compared")
    sys.exit(1 if wrong else 0)


main()
