#!/usr/bin/env python3
"""Draws the reports beside this file with scripts/plot.py and compares what stands in the SVG.   check_plot.py PLOT.PY

Exit code: 0 as expected, 1 not, 77 no matplotlib here (wrong input has been tried all the same)."""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"
HERE = pathlib.Path(__file__).parent
PLOT = sys.argv[1]
RATES, TIMES, SOCKETS = "Throughput by size", "Latency by size (half a round trip)", "Throughput by data sockets"

# Per run: the rest of the command line, words that stand in the picture, words that do not, the points of every line in the
# order of the panels, and the number of reference lines.
CHARTS = {
    "perf.json": ([], ["Transfers between two processes", RATES, "size", "rate (GB/s)", "perf", "tcpx-soft over eth1; GPU 0: a GPU & more",
                       "test_tcpx_perf 0.1.0: channels 4, iterations 20, price $5 to $6", "64 KiB", "256 KiB", "16 MiB"],
                  [TIMES, "rate of eth1"], [3], 0),
    "latency.json": (["--beside", "perf.json", "perf.json", "both_ways.json", "soft.json"],
                     [RATES, TIMES, "time (us)", "latency", "perf", "perf #2", "both_ways, both ways (unverified)", "host, soft", "NCCL, soft"],
                     [SOCKETS, "p99", "gpu / NCCL, soft"], [3, 3, 2, 3, 3, 2, 2, 2, 2, 1], 0),
    "soft.json": ([], ["Software plugin over loopback TCP", RATES, TIMES, SOCKETS, "Throughput by unpacker", "data sockets", "host", "gpu",
                       "NCCL", "raw TCP", "raw TCP, in cache", "kernel (unverified)", "d2d (unverified)", "20", "50"],
                  ["gpu / NCCL", "1 socket"], [3, 3, 2, 2, 2, 1, 2, 2, 2, 2], 0),
    "unpack.json": ([], ["Gathering received fragments", "By fragment size", "By thread blocks", "fragment", "most blocks", "gathered (GB/s)",
                         "- - -  contiguous copy, 1830 GB/s", "tcpx, aligned", "100", "1000"], ["By method"], [2, 2, 3], 2),
    "endpoint.json": ([], ["Operations of an endpoint", RATES, TIMES, "pipeline", "write", "host, inline", "NCCL"], [], [1, 1, 1, 1], 0),
    "nixl.json": ([], ["Back-ends of NIXL, by the size of a block", "WRITE, plain lists", "READ, prepared lists", "block", "UCX", "TCPX",
                       "UCX (unverified)", "bench_nixl 1.5.1: memory dram, layers 2"],
                  ["READ, plain lists", "WRITE, prepared lists", "UCX, time"], [2, 2, 1, 1], 0),
    "mesh.json": ([], ["Full mesh: throughput of every pair", "p2p_fullmesh 0.1.0: mode pairs, together, size 16 MiB", "sender", "receiver",
                       "0 a GPU 0", "2 b GPU 0", "GB/s", "19.6", "18.4", "7.25", "20.5", "failed", "not measured"],
                  ["rank 0: a GPU 0"], [], 0),
}
HINTS = {"latency.json": "latency: 4 KiB, 19.0 us", "unpack.json": "4096 B aligned: 16, 703 GB/s",
         "mesh.json": "2 b GPU 0 to 0 a GPU 0: failed"}
MEDIAN = '"verified": true, "values": {"bytes": 8, "rate": 1}'
REPORT = ('{"format": "tcpx-report-1", "benchmark": "test_tcpx_perf", "version": "1", "devices": [], "parameters": {}, "tables": ['
          '{"title": "One way", "columns": [{"name": "bytes", "unit": "B"}, {"name": "rate", "unit": "GB/s"}], "rows": [{"name": "8 B", '
          + MEDIAN + '}]}]}')
# Content of the run, the exit code, and what is said.
WRONG = [
    ("no report", 1, "wrong.json: not JSON"),
    ("[1, 2]", 1, "wrong.json: not a report that --json wrote"),
    (REPORT.replace("tcpx_perf", "speed"), 1, "no chart is known for a report of 'test_speed'"),
    (REPORT.replace('"unit": "GB/s"', '"units": 1'), 1, "not a complete report: KeyError 'unit'"),
    (REPORT.replace(MEDIAN, MEDIAN.replace("1}", "null}")), 1, "no numbers in it that can be drawn"),
    (REPORT.replace("One way", "Another"), 1, "no numbers in it that can be drawn"),
    (REPORT.replace("test_tcpx_perf", "p2p_fullmesh"), 1, "no numbers in it that can be drawn"),
    (None, 1, "wrong.json: No such file"),
]

failures = 0


def expect(condition, what):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {what}")


def plot(*arguments, python=(sys.executable,)):
    return subprocess.run([*python, PLOT, *map(str, arguments)], cwd=HERE, capture_output=True, text=True)


def expect_refused(arguments, code, said, python=(sys.executable, "-I", "-S")):
    """By a Python without matplotlib, as long as no other is wanted: what is wrong is known before."""
    done = plot(*arguments, python=python)
    expect(done.returncode == code, f"{arguments}: exit code {done.returncode}, expected {code}")
    expect(said in done.stderr and "Traceback" not in done.stderr, f"{arguments}: '{said}' expected, said was\n{done.stderr}")
    if code == 1:
        expect(done.stderr.count("\n") == 1, f"{arguments}: one line expected, said was\n{done.stderr}")


def check_chart(name, svg):
    arguments, words, others, points, references = CHARTS[name]
    done = plot(name, *arguments, "-o", svg)
    expect(done.returncode == 0, f"{name}: exit code {done.returncode}\n{done.stderr}")
    if done.returncode != 0:
        return
    root = ET.parse(svg).getroot()
    texts = {text.text for text in root.iter(SVG + "text")}
    for word in words:
        expect(word in texts, f"{name}: no '{word}' in {sorted(texts)}")
    for word in others:
        expect(word not in texts, f"{name}: '{word}' should not be drawn")
    groups = {group.get("id"): group for group in root.iter(SVG + "g")}
    drawn = [len(list(group.iter(SVG + "use"))) for key, group in groups.items() if key and "-series-" in key]
    expect(drawn == points, f"{name}: points of the lines are {drawn}, expected {points}")
    found = sum(1 for key in groups if key and key.endswith("-reference"))
    expect(found == references, f"{name}: {found} reference lines, expected {references}")
    titles = {title.text for title in root.iter(SVG + "title")}
    expect(HINTS.get(name, words[0]) in titles, f"{name}: no hint '{HINTS.get(name)}' in {sorted(titles)}")


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    wrong = folder / "wrong.json"
    for content, code, said in WRONG:
        wrong.unlink(missing_ok=True)
        if content is not None:
            wrong.write_text(content, encoding="utf-8")
        expect_refused([wrong, "-o", folder / "x.svg"], code, said)
    expect_refused(["perf.json", "--beside", wrong, "-o", folder / "x.svg"], 1, "wrong.json: No such file")
    expect_refused(["perf.json", "--beside", "mesh.json", "-o", folder / "x.svg"], 1, "mesh.json: no numbers in it that can be drawn beside")
    expect_refused(["mesh.json", "--beside", "perf.json", "-o", folder / "x.svg"], 1, "a heat map is drawn alone")
    expect_refused(["perf.json", "-o", folder / "x.jpg"], 2, "the name must end in .svg or .png")
    expect_refused([], 2, "RUN.json")
    expect("scripts/plot.py run.json --beside" in plot("--help").stdout, "--help")
    expect_refused(["perf.json", "-o", folder / "x.svg"], 1, "pip install matplotlib, or apt install python3-matplotlib")
    if importlib.util.find_spec("matplotlib") is None:
        if failures == 0:
            print("SKIPPED: no matplotlib here (apt install python3-matplotlib); wrong input is refused as it should be")
            sys.exit(77)
    else:
        expect_refused(["perf.json", "-o", folder / "none" / "x.svg"], 1, "x.svg: No such file", python=(sys.executable,))
        for name in CHARTS:
            check_chart(name, folder / "chart.svg")
        expect(plot("mesh.json", "-o", folder / "mesh.png").returncode == 0, "a PNG")
        expect((folder / "mesh.png").read_bytes().startswith(b"\x89PNG"), "a PNG is one")

print("FAILED" if failures else "PASSED: every chart is as expected")
sys.exit(1 if failures else 0)
