#!/usr/bin/env python3
"""Compares NIXL over the plugin with Endpoint itself: what the plugin may cost.

usage: check_speed.py FILE...    reports of bench.py (--json), and of `bench_endpoint --only one --json` from the same machine and hour
"""

import json
import pathlib
import statistics
import sys

# Pattern of bench.py: what the name of bench_endpoint's column ends with, the bar for NIXL / Endpoint.
# For short ones it is as much more as Python's calls may take.
ROWS = {size: ("", "at most", 1.5) for size in ("8B", "4KiB", "64KiB", "1MiB")} | {"64MiB": ("", "at least", 0.95), "4096x32KiB": ("v", "at least", 0.95)}


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
    ours = [report for report in reports if report["benchmark"] == "bench_nixl"]
    turns = [endpoint_seconds(report) for report in reports if report["benchmark"] == "bench_endpoint"]
    if not turns or not ours:
        sys.exit("check_speed.py: reports of both programs are wanted")
    tables = [table for report in ours for table in report["tables"]]
    rows = [(table["title"], row) for table in tables for row in table["rows"]]
    compared = missed = 0
    for title, row in rows:
        if row["name"] not in ROWS:
            continue
        vector, bound, bar = ROWS[row["name"]]
        operation, lists = title.split()[:2]  # "WRITE, plain lists"
        operation = operation.strip(",")
        size = row["values"]["block"] * row["values"]["blocks"]
        nixl = 1e-6 * row["values"]["TCPX, time"]["median"]
        own = [turn[size, operation.lower() + vector] for turn in turns]
        middle = statistics.median(own)
        ratio = nixl / middle if bound == "at most" else middle / nixl
        compared += 1
        missed += ratio > bar if bound == "at most" else ratio < bar
        print(f"{operation:5} {row['name']:10} {lists:8} {ratio:5.2f}, wanted {bound} {bar}: {shown(size, nixl)}, Endpoint "
              f"{shown(size, middle)} (turns: {', '.join(shown(size, seconds) for seconds in own)})")
    wrong = sum(not row["verified"] for _, row in rows)
    print(f"{compared} compared, {missed} missed, {wrong} with wrong bytes")
    sys.exit(0 if compared and not missed and not wrong else 1)


main()
