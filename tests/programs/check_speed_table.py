#!/usr/bin/env python3
"""Lets scripts/speed_table.py make a table of made-up reports.   check_speed_table.py SPEED_TABLE.PY"""

import json
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree


def median(value):
    return {"count": 5, "min": value / 2, "median": value, "max": 2 * value}


def table(title, *rows, verified=True):
    return {"title": title, "columns": [], "rows": [{"name": "4 MiB", "verified": verified, "values": values} for values in rows]}


ENDPOINT = [
    table("One short operation at a time", {"bytes": 8, "write": median(50)}, {"bytes": 1 << 20, "write": median(4)}),
    table("One operation at a time, vectors of ranges of 32 KiB", {"bytes": 64 << 20, "write": median(25), "writev": median(1)},
          {"bytes": 128 << 20, "write": median(2), "writev": median(21)}),
    table("Half a round trip", {"bytes": 8, "gpu, inline": median(19), "raw TCP": median(4.5), "NCCL": median(50), "raw TCP / NCCL": 0.09,
                                "raw TCP, 8 streams": median(30)},
          {"bytes": 1 << 20, "raw TCP": median(300), "raw TCP, 8 streams": median(1030), "NCCL": median(200)}),
    table("Bulk", {"bytes": 64 << 20, "pipeline": median(30), "raw TCP, 8 streams": median(35), "NCCL": median(33)}),
    table("Bulk, per core-second", {"bytes": 64 << 20, "pipeline": 2.0, "raw TCP, 8 streams": 2.5}),
]
NIXL = [table("WRITE, plain lists", {"block": 4096, "blocks": 1, "UCX": median(1), "UCX, time": median(60), "TCPX": median(2), "TCPX, time": median(30)},
              {"block": 32768, "blocks": 4096, "UCX": median(0.5), "UCX, time": median(9), "TCPX": median(12), "TCPX, time": median(9)})]
MOONCAKE = [table("WRITE", {"block": 8, "blocks": 1, "Mooncake": median(1e-4), "Mooncake, time": median(80)},
                  {"block": 64 << 20, "blocks": 1, "Mooncake": median(1.5), "Mooncake, time": median(4e4)},
                  {"block": 32768, "blocks": 4096, "Mooncake": median(0.75), "Mooncake, time": median(2e5)})]
PEERS = [table("Writes to peers, all together",
               {"bytes": 4 << 20, "1 peer": median(20), "64 peers": median(18), "64 peers / 1 peer": 0.9})]
EXPECTED = [
    "| `Endpoint`, write | 20 us |  |  | 250 us | 25 GB/s |  | 21 GB/s |",
    "| raw TCP, half a round trip; a stream | 4.5 us |  |  | 1030 us, 8 streams |  | 35 GB/s (0.4) |  |",
    "| NCCL, half a round trip; a stream | 50 us |  |  | 200 us |  | 33 GB/s |  |",
    "| the pipeline alone |  |  |  |  |  | 30 GB/s (0.5) |  |",
    "| NIXL, its own back-end, write |  | 60 us (best 30) |  |  |  |  | 0.5 GB/s |",
    "| NIXL over ours, write |  | 30 us (best 15) |  |  |  |  | 12 GB/s |",
    "| Mooncake, write, host memory | 80 us (best 40) |  |  |  | 1.5 GB/s |  | 0.75 GB/s |",
]


def made_of(*reports, options=()):
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, (benchmark, tables, *parameters) in enumerate(reports):
            paths.append(pathlib.Path(folder) / f"{i}.json")
            paths[-1].write_text(json.dumps({"benchmark": benchmark, "tables": tables, "parameters": dict(parameters)}))
        return subprocess.run([sys.executable, sys.argv[1], *options, *paths], capture_output=True, text=True, check=False)


run = made_of(("bench_endpoint", ENDPOINT), ("bench_endpoint", PEERS), ("bench_nixl", NIXL),
              ("bench_mooncake", MOONCAKE, ("memory", "host")))
lines = run.stdout.splitlines()
assert run.returncode == 0, run.stderr
assert lines[0].endswith("| 8 B | 4 KiB | 64 KiB | 1 MiB | 64 MiB | 64 MiB streamed | 4096 x 32 KiB |"), lines[0]
assert sorted(lines[2:-2]) == sorted(EXPECTED), run.stdout
assert lines[-2:] == ["", "64 peers together: 18 GB/s, 0.90 of 1 peer (4 MiB a message)"], run.stdout
with tempfile.TemporaryDirectory() as pictures:
    path = pathlib.Path(pictures) / "bars.svg"
    made_of(("bench_endpoint", ENDPOINT), ("bench_mooncake", MOONCAKE, ("memory", "host")), options=("--picture", path))
    tree = xml.etree.ElementTree.parse(path).getroot()
    words = [element.text for element in tree if element.tag.endswith("}text")]
    assert words[1:6] == ["64 MiB, one write at a time", "tcpx-p2p", "25", "Mooncake", "1.5"], words
    assert words[-5:] == ["64 MiB, a stream of transfers", "NCCL's sockets", "33", "plain sockets", "35"], words
    widths = [float(element.get("width")) for element in tree if element.tag.endswith("}rect")][1:]
    assert widths[-1] == max(widths) == 420 and widths[0] == 300, widths
gpu = made_of(("bench_mooncake", MOONCAKE, ("memory", "vram")))
assert "| Mooncake, write, GPU memory | 80 us" in gpu.stdout, gpu
wrong = made_of(("bench_mooncake", [table("WRITE", {"block": 8, "blocks": 1}, verified=False)], ("memory", "host")))
assert wrong.returncode == 1 and "wrong bytes" in wrong.stderr, wrong
wrong = made_of(("bench_endpoint", [table("Bulk", {"bytes": 8, "pipeline": median(1)}, verified=False)]))
assert wrong.returncode == 1 and "wrong bytes" in wrong.stderr, wrong
other = made_of(("bench_unpack", []))
assert other.returncode == 1 and "are wanted" in other.stderr, other
assert subprocess.run([sys.executable, sys.argv[1], "/no/such"], capture_output=True, check=False).returncode == 1
