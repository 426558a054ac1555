#!/usr/bin/env python3
"""Compares NIXL over the plugin with Endpoint itself: what the plugin may cost.

usage: check_speed.py FILE...    reports of bench.py (--json), and of `bench_endpoint --only one --json` from the same machine and hour
"""

import json
import pathlib
import statistics
import sys

# Pattern of bench.py: bytes of an operation, the row of bench_endpoint; appended to its column; the bar for NIXL / Endpoint.
ROWS = {
    "8B": (8, "", "at most", 1.5),
    "64MiB": (64 << 20, "", "at least", 0.95),
    "4096x32KiB": (128 << 20, "v", "at least", 0.95),
}


def endpoint_seconds(report):
    """(bytes, column) -> seconds of an operation, the median of its samples."""
    found = {}
    for table in report["tables"]:
        units = {column["name"]: column["unit"] for column in table["columns"]}
        for row in table["rows"]:
            size = row["values"]["bytes"]
            for column, value in row["values"].items():
                if units[column] == "GB/s":
                    found[size, column] = size / value["median"] / 1e9
                elif units[column] == "1000/s":
                    found[size, column] = 1e-3 / value["median"]
    return found


def shown(size, seconds):
    return f"{size / seconds / 1e9:.2f} GB/s" if size >= 4096 else f"{1e6 * seconds:.1f} us"


def main():
    try:
        reports = [json.loads(pathlib.Path(name).read_text()) for name in sys.argv[1:]]
    except (OSError, ValueError) as error:
        sys.exit(f"check_speed.py: {error}")
    turns = [endpoint_seconds(report) for report in reports if "tables" in report]
    ours = [report for report in reports if "rows" in report]
    if not turns or not ours:
        sys.exit("check_speed.py: reports of both programs are wanted")
    compared = missed = 0
    for report in ours:
        for row in report["rows"]:
            if row["pattern"] not in ROWS:
                continue
            size, vector, bound, bar = ROWS[row["pattern"]]
            nixl = statistics.median(sample[0] for sample in row["samples"]["TCPX"])
            own = [turn[size, row["operation"].lower() + vector] for turn in turns]
            middle = statistics.median(own)
            ratio = nixl / middle if bound == "at most" else middle / nixl
            compared += 1
            missed += ratio > bar if bound == "at most" else ratio < bar
            lists = "prepared" if report["prepared"] else "plain"
            print(f"{row['operation']:5} {row['pattern']:10} {lists:8} {ratio:5.2f}, wanted {bound} {bar}: {shown(size, nixl)}, Endpoint "
                  f"{shown(size, middle)} (turns: {', '.join(shown(size, seconds) for seconds in own)})")
    wrong = sum(report["wrong_blocks"] for report in ours)
    print(f"{compared} compared, {missed} missed, {wrong} blocks wrong")
    sys.exit(0 if compared and not missed and not wrong else 1)


main()
