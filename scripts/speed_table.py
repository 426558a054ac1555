#!/usr/bin/env python3
"""Prints what a run has measured over TCP as one table of Markdown: ours, plain sockets, NCCL, NIXL's back-ends,
Mooncake; below it, what many peers have together.
"""

import argparse
import json
import pathlib
import sys

SHORT = {8: "8 B", 4096: "4 KiB", 65536: "64 KiB", 1 << 20: "1 MiB"}
LONG, LIST = 64 << 20, 4096 * 32768
COLUMNS = [*SHORT.values(), "64 MiB", "64 MiB streamed", "4096 x 32 KiB"]
# The picture's groups: heading, column, and the bars' names with the beginnings of their rows'.
BARS = [
    ("64 MiB, one write at a time", "64 MiB", ["tcpx-p2p", "NIXL with tcpx-p2p", "Mooncake", "NIXL with UCX"]),
    ("4096 blocks of 32 KiB, scattered at both ends, one write at a time", COLUMNS[-1], ["tcpx-p2p", "NIXL with tcpx-p2p", "Mooncake", "NIXL with UCX"]),
    ("64 MiB, a stream of transfers", COLUMNS[-2], ["tcpx-p2p", "NCCL's sockets", "plain sockets"]),
]
ROW_OF = {"tcpx-p2p": "`Endpoint`, write", "NIXL with tcpx-p2p": "NIXL over ours, write", "Mooncake": "Mooncake, write",
          "NIXL with UCX": "NIXL, its own back-end, write", "NCCL's sockets": "NCCL, ", "plain sockets": "raw TCP, "}
NAMES = {"UCX": "NIXL, its own back-end", "TCPX": "NIXL over ours", "Mooncake": "Mooncake"}
MEMORY = {"host": ", host memory", "vram": ", GPU memory"}


def time(us):
    return f"{us['median']:.{3 if us['median'] < 1000 else 4}g} us"


def rate(gigabytes, per_core_second=None):
    cost = f" ({1 / per_core_second:.2g})" if per_core_second else ""
    return f"{gigabytes['median']:.3g} GB/s{cost}"


class Rows(dict):
    """Cells by the name of the row, then of the column."""

    def put(self, row, column, cell):
        self.setdefault(row, {})[column] = cell

    def add_endpoint(self, table, costs):
        title = table["title"]
        for row in table["rows"]:
            values = row["values"]
            size = int(values["bytes"])
            for name, value in values.items():
                if not isinstance(value, dict) or " / " in name:
                    continue
                if title == "One short operation at a time":
                    us = {"median": 1e3 / value["median"]}
                    self.put(f"`Endpoint`, {name}", SHORT[size], time(us))
                elif title.startswith("One operation at a time") and size == LONG and not name.endswith("v"):
                    self.put(f"`Endpoint`, {name}", "64 MiB", rate(value))
                elif title.startswith("One operation at a time") and size == LIST and name.endswith("v"):
                    self.put(f"`Endpoint`, {name[:-1]}", COLUMNS[-1], rate(value))
                elif title == "Half a round trip" and size in SHORT and (name == "NCCL" or name.startswith("raw TCP")):
                    label, _, streams = name.partition(", ")
                    if not streams or size == 1 << 20:  # a long message is many streams' work
                        self.put(f"{label}, half a round trip; a stream", SHORT[size], time(value) + (f", {streams}" if streams else ""))
                elif title == "Bulk" and size == LONG:
                    other = name.split(",")[0] if name.startswith(("raw TCP", "NCCL")) else None
                    label = f"{other}, half a round trip; a stream" if other else f"`Endpoint`, {name}"
                    if name == "pipeline":
                        label = "the pipeline alone"
                    self.put(label, COLUMNS[-2], rate(value, costs.get(name)))

    def add_others(self, table, memory):
        """Of NIXL's back-ends, and of Mooncake, whose memory is named: not every wheel of it can move that of GPUs."""
        operation = table["title"].split(",")[0].lower()
        for row in table["rows"]:
            values = row["values"]
            size = int(values["block"])
            for back_end, name in NAMES.items():
                us = values.get(f"{back_end}, time")
                if not us:
                    continue
                label = f"{name}, {operation}{memory}"
                if values["blocks"] == 1 and size in SHORT:
                    self.put(label, SHORT[size], f"{us['median']:.3g} us (best {us['min']:.3g})")
                elif values["blocks"] == 1 and size == LONG:
                    self.put(label, "64 MiB", rate(values[back_end]))
                elif size * values["blocks"] == LIST:
                    self.put(label, COLUMNS[-1], rate(values[back_end]))


def of_peers(table):
    """What many have together, beside one."""
    for row in table["rows"]:
        for name, ratio in row["values"].items():
            many, _, one = name.partition(" / ")
            if one:
                yield f"{many} together: {rate(row['values'][many])}, {ratio:.2f} of {one} ({row['name']} a message)"


def picture(rows):
    """Bars as an SVG: what a group has no figure of is left out, and so is a group without any."""
    groups = []
    for heading, column, names in BARS:
        cells = [(name, cells[column]) for name in names for row, cells in rows.items() if row.startswith(ROW_OF[name]) and column in cells]
        if cells:
            groups.append((heading, [(name, float(cell.split()[0])) for name, cell in cells]))
    longest = max((value for _, bars in groups for _, value in bars), default=1)
    lines, y = [], 36
    for heading, bars in groups:
        y += 30
        lines.append(f'<text x="24" y="{y}" font-size="12" fill="#595959" font-style="italic">{heading}</text>')
        for name, value in bars:
            y += 26
            width, color = max(1, 420 * value / longest), "#1a6fb5" if "tcpx" in name else "#9a9a9a"
            lines.append(f'<text x="200" y="{y}" font-size="13" text-anchor="end" fill="#1a1a1a">{name}</text>')
            lines.append(f'<rect x="208" y="{y - 13}" width="{width:.1f}" height="18" fill="{color}"/>')
            lines.append(f'<text x="{214 + width:.1f}" y="{y}" font-size="13" fill="#1a1a1a">{value:g}</text>')
    title = "From GPU to GPU over TCP, GB/s"
    told = "; ".join(f"{heading}: " + ", ".join(f"{name} {value:g}" for name, value in bars) for heading, bars in groups)
    fonts = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{y + 20}" viewBox="0 0 720 {y + 20}" font-family="{fonts}" role="img">',
        f"<title>{title}. {told}</title>", f'<rect width="720" height="{y + 20}" fill="#ffffff"/>',
        f'<text x="24" y="32" font-size="16" font-weight="bold" fill="#1a1a1a">{title}</text>', *lines, "</svg>", ""])  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="*", metavar="FILE", help="--json of `bench_endpoint --only one,bulk,latency,peers`, of "
                        "integrations/nixl/bench.py or of python/bench/network_mooncake.py, all of one machine and hour")
    parser.add_argument("--picture", type=pathlib.Path, metavar="SVG", help="file to draw the rates of long messages into")
    given = parser.parse_args()
    try:
        reports = [json.loads(pathlib.Path(name).read_text()) for name in given.reports]
    except (OSError, ValueError) as error:
        sys.exit(f"speed_table.py: {error}")
    rows, below = Rows(), []
    for report in reports:
        tables = {table["title"]: table for table in report["tables"]}
        wrong = [table["title"] for table in report["tables"] for row in table["rows"] if not row["verified"]]
        if wrong:
            sys.exit(f"speed_table.py: wrong bytes, or none compared: {', '.join(wrong)}")
        long_rows = [row for row in tables.get("Bulk, per core-second", {"rows": []})["rows"] if row["values"]["bytes"] == LONG]
        costs = long_rows[0]["values"] if long_rows else {}
        for table in report["tables"]:
            if report["benchmark"] == "bench_endpoint":
                rows.add_endpoint(table, costs)
                if table["title"] == "Writes to peers, all together":
                    below += of_peers(table)
            elif report["benchmark"] == "bench_nixl":
                rows.add_others(table, "")
            elif report["benchmark"] == "bench_mooncake":
                rows.add_others(table, MEMORY[report["parameters"]["memory"]])
    if not rows:
        sys.exit("speed_table.py: reports of bench_endpoint, integrations/nixl/bench.py or network_mooncake.py are wanted")
    print("| one operation at a time, medians (core-seconds for a GB) | " + " | ".join(COLUMNS) + " |")
    print("|---" * (1 + len(COLUMNS)) + "|")
    for name, cells in rows.items():
        print(f"| {name} | " + " | ".join(cells.get(column, "") for column in COLUMNS) + " |")
    for line in below:
        print(f"\n{line}")
    if given.picture:
        given.picture.write_text(picture(rows))


if __name__ == "__main__":
    main()
