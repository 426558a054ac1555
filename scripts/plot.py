#!/usr/bin/env python3
"""Draws a report that one of our programs wrote with --json: curves by size, or the heat map of a mesh, as SVG or PNG.

What is drawn follows from the report: its field "benchmark" says which program made it, its tables are found by their titles.
"""

import argparse
import json
import math
import pathlib
import sys
import textwrap
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field

try:
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Rectangle
    from matplotlib.ticker import LogLocator
except ImportError:
    matplotlib = None  # help and wrong input come first

EXAMPLES = """examples:
  test_tcpx_perf loopback -b 64K -e 1G -f 4 --json run.json
  scripts/plot.py run.json -o run.svg
  scripts/plot.py run.json --beside earlier.json bench_soft_plugin.json -o run.png

Reports of test_tcpx_perf, bench_soft_plugin, bench_endpoint, bench_unpack and NIXL's bench.py become curves, those of p2p_fullmesh a
heat map.
In a browser, pointing at a mark of an SVG shows its values. Exit code: 0 drawn, 1 cannot be drawn, 2 usage."""

# Colours after Okabe and Ito, whose yellow cannot be seen on white and is replaced. Lines also differ in dash and marker, so that
# they can be told apart without colours.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#aa4499", "#e69f00", "#56b4e9", "#333333", "#8c6d1f"]
DASHES = ["-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2))]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "p"]
INK, FAINT, GRID, FAILED, DIAGONAL = "#1a1a1a", "#595959", "#e3e3e3", "#b3261e", "#d9d9d9"
LONGEST_NAME = 52


def fail(message):
    sys.exit(f"plot.py: {message}")


@dataclass(frozen=True)
class Panel:
    """Curves of one unit, from every table of these titles; x is the first column of a table. test_tcpx_perf has many columns of a
    unit, of which the one named like the axis is the curve; in other tables each is."""

    title: str
    tables: tuple
    x: str
    y: str
    unit: str
    y_scale: str = "linear"
    x_in_bytes: bool = True
    ceiling: bool = False  # with the contiguous copy of bench_unpack as a reference line


THROUGHPUT = Panel("Throughput by size", ("One way", "Both ways", "One way, the best of each", "Bulk"), "size", "rate", "GB/s")
LATENCY = Panel("Latency by size (half a round trip)", ("Half a round trip", "Half a round trip, the best of each"), "size", "time",
                "us", y_scale="log")
SOCKETS = Panel("Throughput by data sockets", ("One way by data sockets",), "data sockets", "rate", "GB/s", x_in_bytes=False)
UNPACKERS = Panel("Throughput by unpacker", ("Pipeline by unpacker, one way",), "size", "rate", "GB/s")
FRAGMENTS = Panel("By fragment size", ("By fragment size",), "fragment", "gathered", "GB/s", ceiling=True)
BLOCKS = Panel("By thread blocks", ("By thread blocks",), "most blocks", "gathered", "GB/s", "log", x_in_bytes=False, ceiling=True)
NIXL = tuple(Panel(title, (title,), "block", "rate", "GB/s")
             for title in (f"{operation}, {lists} lists" for lists in ("plain", "prepared") for operation in ("WRITE", "READ")))
MESH = "p2p_fullmesh"
CHARTS = {
    "test_tcpx_perf": ("Transfers between two processes", (THROUGHPUT, LATENCY)),
    "bench_soft_plugin": ("Software plugin over loopback TCP", (THROUGHPUT, LATENCY, SOCKETS, UNPACKERS)),
    "bench_endpoint": ("Operations of an endpoint", (THROUGHPUT, LATENCY)),
    "bench_unpack": ("Gathering received fragments", (FRAGMENTS, BLOCKS)),
    "bench_nixl": ("Back-ends of NIXL, by the size of a block", NIXL),
    MESH: ("Full mesh: throughput of every pair", ()),
}


@dataclass
class Report:
    path: pathlib.Path
    content: dict
    is_drawn: bool = False  # some point of it is in a drawing

    @property
    def name(self):
        return self.path.stem.lstrip("_") or self.path.stem  # matplotlib hides names that begin with _

    @property
    def kind(self):
        return self.content["benchmark"]

    def table(self, title):
        return next((table for table in self.content["tables"] if table["title"] == title), None)

    def about(self):
        """Which run it is: the machine, the program, and what its numbers depend on."""
        devices = [] if self.kind == MESH else self.content["devices"]  # of a mesh: the ranks, which are its rows
        parameters = ", ".join(f"{name} {value}" for name, value in self.content["parameters"].items())
        return "; ".join(devices), f"{self.kind} {self.content['version']}: {parameters}"


@dataclass
class Drawing:
    """A panel with its lines."""

    panel: Panel
    lines: dict = field(default_factory=dict)  # points by name
    reference: tuple = None  # value and label, or None


def load(path):
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except ValueError as error:
        fail(f"{path}: not JSON: {error}")
    if not isinstance(content, dict) or content.get("format") != "tcpx-report-1":
        fail(f"{path}: not a report that --json wrote (its format is not tcpx-report-1)")
    if content.get("benchmark") not in CHARTS:
        fail(f"{path}: no chart is known for a report of '{content.get('benchmark')}'; known are {', '.join(CHARTS)}")
    try:
        report = Report(path, content)
        report.about()
        for table in content["tables"]:
            names = [(column["name"], column["unit"])[0] for column in table["columns"]]
            names[0], table["title"], [(row["name"], row["verified"], row["values"][name]) for row in table["rows"] for name in names]
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        fail(f"{path}: not a complete report: {type(error).__name__} {error}")
    return report


def number(cell):
    """A number or the median of samples; None for words and empty cells."""
    value = cell.get("median") if isinstance(cell, dict) else cell
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def points(report, table, x, y, panel):
    """(x, y) for each row that has both, and whether all these rows were verified."""
    found, verified = [], True
    for row in table["rows"]:
        at, value = number(row["values"][x]), number(row["values"][y])
        if at is None or value is None:
            continue
        if at <= 0 or (value <= 0 and panel.y_scale == "log"):
            print(f"plot.py: note: {report.path}: '{y}' at {x} {at:g} has no place on a logarithmic axis", file=sys.stderr)
        else:
            found.append((at, value))
            verified = verified and row["verified"]
    return sorted(found), verified


def collect(panel, reports):
    drawing = Drawing(panel)
    for report in reports:
        for table in filter(None, map(report.table, panel.tables)):
            x, *columns = table["columns"]
            columns = [column["name"] for column in columns if column["unit"] == panel.unit]
            for column in [panel.y] if panel.y in columns else columns:
                if column == panel.y:
                    name = report.name + (", both ways" if table["title"] == "Both ways" else "")
                else:
                    name = column if len(reports) == 1 else f"{column}, {report.name}"
                name = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "..."
                found, verified = points(report, table, x["name"], column, panel)
                report.is_drawn |= bool(found)
                name += "" if verified else " (unverified)"
                same = [other for other in drawing.lines if other == name or other.startswith(name + " #")]
                drawing.lines[f"{name} #{len(same) + 1}" if same else name] = found
    if panel.ceiling and (table := reports[0].table("By method")) and table["rows"]:
        first = table["rows"][0]
        value = number(first["values"][table["columns"][0]["name"]])
        drawing.reference = (value, f"{first['name']}, {measured(value)} {panel.unit}") if value and value > 0 else None
    return drawing


def matrix(report):
    """Names of the ranks, and a row of cells for each: a number, a word where it failed, None where nothing was measured."""
    table = (report.content["tables"] or [{"rows": [], "columns": []}])[0]
    columns = [column["name"] for column in table["columns"]]
    cells = [[row["values"][name] for name in columns] for row in table["rows"]]
    if len(cells) != len(columns) or not any(number(cell) is not None for row in cells for cell in row):
        fail(f"{report.path}: no numbers in it that can be drawn")
    return [row["name"] for row in table["rows"]], cells


def bytes_text(value):
    """64 B, 1448 B, 1.5 KiB, 1 MiB: the largest unit that needs no more than two digits behind the point."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        part = value / 1024**power
        if part >= 1 and part * 100 == math.floor(part * 100):
            return f"{part:.12g} {unit}"
    return f"{value:.12g} B"


def measured(value):
    """Three digits at least, and all before the point: 0.350, 1.04, 35.1, 1545."""
    size = abs(value)
    digits = 0 if size == 0 or size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:.2e}" if 0 < size < 0.001 else f"{value:.{digits}f}"


# Drawing: the only part that knows matplotlib


def new_figure(width, height):
    """Inches; what stands outside is part of the picture, too. Text stays text, and a $ a dollar. The same report gives the same file."""
    if matplotlib is None:
        fail("needs matplotlib: pip install matplotlib, or apt install python3-matplotlib")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tcpx", "text.parse_math": False, "font.size": 9,
                                "text.color": INK, "axes.edgecolor": FAINT, "axes.labelcolor": FAINT})
    return Figure(figsize=(width, height))


def draw_titles(figure, title, report, left, bottom, width):
    """Above the figure, beginning `bottom` inches above it, from the lowest line up."""
    about = [line for text in report.about() for line in textwrap.wrap(text, int(width * 14), max_lines=3, placeholder=" ...")]
    x, height = left / figure.get_figwidth(), figure.get_figheight()
    for i, line in enumerate(reversed(about)):
        figure.text(x, 1 + (bottom + 0.18 * i) / height, line, color=FAINT)
    figure.text(x, 1 + (bottom + 0.18 * len(about) + 0.06) / height, title, size=13.5, weight="bold")


def style(place):
    """Of the line at `place`: the second round pairs every colour with another dash and marker."""
    turn, colour = divmod(place, len(COLOURS))
    return {"color": COLOURS[colour], "linestyle": DASHES[(place + turn) % len(DASHES)],
            "marker": MARKERS[(place + 3 * turn) % len(MARKERS)], "markeredgecolor": "white", "markeredgewidth": 0.6}


def powers_of_two(values):
    """Both ends of an axis that shows `values` with a little room, and at most eight ticks on it, evenly spaced."""
    low, high = math.log2(min(values, default=1)), math.log2(max(values, default=1))
    if math.floor(high) - math.ceil(low) < 1:  # one tick is no scale
        low, high = math.ceil(low) - 1, math.floor(high) + 1
    room, first, last = 0.03 * (high - low), math.ceil(low), math.floor(high)
    ticks = [2.0**power for power in range(first, last + 1, max(1, math.ceil((last - first) / 7)))]
    return (2 ** (low - room), 2 ** (high + room)), ticks


def draw_panel(axes, drawing, places, hints, key):
    panel = drawing.panel
    axes.set_title(panel.title, loc="left", size=10.5, weight="bold", pad=22)
    axes.set(xlabel=panel.x, yscale=panel.y_scale, axisbelow=True)
    axes.text(0, 1.03, f"{panel.y} ({panel.unit})", transform=axes.transAxes, color=FAINT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0, labelcolor=INK)
    axes.grid(color=GRID)
    axes.set_xscale("log", base=2)
    x_text = bytes_text if panel.x_in_bytes else "{:g}".format
    for i, (name, line) in enumerate(drawing.lines.items()):
        gid = f"{key}-series-{i}"
        if line:
            axes.plot(*zip(*line), gid=gid, clip_on=False, zorder=3, **style(places[name]))
        hints[gid] = [f"{name}: {x_text(x)}, {measured(y)} {panel.unit}" for x, y in line]
    values = [y for line in drawing.lines.values() for _, y in line]
    if drawing.reference and values:
        value, label = drawing.reference
        values.append(value)
        axes.axhline(value, color=FAINT, linestyle=(0, (5, 4)), linewidth=1.2, gid=f"{key}-reference")
        # Beside the axis' name, where no line can cross it.
        axes.text(1, 1.03, f"- - -  {label}", transform=axes.transAxes, color=FAINT, ha="right")
    limits, ticks = powers_of_two([x for line in drawing.lines.values() for x, _ in line])
    axes.set_xlim(limits)
    axes.set_xticks(ticks, map(x_text, ticks))
    if not values:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, color=FAINT, ha="center")
    elif panel.y_scale == "linear":
        axes.set_ylim(0, 1.06 * max(values) or 1)
    else:
        # A short axis shows 1, 2, 5 of each decade.
        short = max(values) / min(values) < 30
        axes.set_ylim(min(values) / 1.2, max(values) * 1.2)
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5) if short else (1,)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()


def draw_chart(title, report, drawings, hints):
    """Panels in rows, one legend below them all, so that it never covers a point; a line looks alike in every panel."""
    columns = len(drawings) if len(drawings) <= 3 else 2
    plot_width, plot_height, gap_x, gap_y = 4.4, 2.9, 0.7, 1.15
    width, height = columns * (plot_width + gap_x), math.ceil(len(drawings) / columns) * (plot_height + gap_y)
    figure = new_figure(width, height)
    places = {name: place for place, name in enumerate(dict.fromkeys(name for drawing in drawings for name in drawing.lines))}
    for i, drawing in enumerate(drawings):
        left, down = i % columns * (plot_width + gap_x) + 0.4, (i // columns + 1) * (plot_height + gap_y) - 0.5
        axes = figure.add_axes([left / width, 1 - down / height, plot_width / width, plot_height / height], gid=f"panel-{i}")
        draw_panel(axes, drawing, places, hints, f"panel-{i}")
    labels = [name if any(drawing.lines.get(name) for drawing in drawings) else f"{name} (no data)" for name in places]
    figure.legend([Line2D([], [], **style(place)) for place in places.values()], labels, loc="upper left", bbox_to_anchor=(0, 0),
                  ncol=max(1, int(width / (0.075 * max(map(len, labels)) + 0.7))), frameon=False, handlelength=3.5, borderaxespad=0)
    draw_titles(figure, title, report, 0, 0.1, width)
    return figure


def draw_mesh(title, report, names, cells, hints):
    """Rows are senders, columns receivers. Colours go from light at zero to dark at the largest value, so that a slow pair stands
    out by as much as it is slower."""
    count, largest = len(names), max(number(cell) or 0 for row in cells for cell in row) or 1
    size = 8 if count <= 16 else 6.5 if count <= 32 else 5.5
    cell_width, cell_height = size * 0.058, size * 0.032
    width, height = count * cell_width, count * cell_height
    figure = new_figure(width, height)
    shade = ScalarMappable(Normalize(0, largest), matplotlib.colormaps["GnBu"])
    axes = figure.add_axes([0, 0, 1, 1], gid="mesh", xlim=(0, count), ylim=(count, 0))
    axes.xaxis.set(ticks_position="top", label_position="top")
    axes.set_xlabel("receiver", weight="bold", color=INK)
    axes.set_ylabel("sender", weight="bold", color=INK)
    middles = [i + 0.5 for i in range(count)]
    axes.set_xticks(middles, map(str, range(count)), size=size)
    axes.set_yticks(middles, names, size=size)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            value, gid = number(cell), f"cell-{i}-{j}"
            colour = DIAGONAL if i == j else "white" if value is None else shade.to_rgba(value)
            axes.add_patch(Rectangle((j, i), 1, 1, facecolor=colour, edgecolor=GRID, linewidth=0.8, gid=gid))
            if i == j:
                continue
            hints[gid] = [f"{names[i]} to {names[j]}: " + (cell or "not measured" if value is None else f"{measured(value)} GB/s")]
            if value is not None and count <= 64:  # of more, numbers would be too small to read
                axes.text(j + 0.5, i + 0.5, measured(value), size=size, ha="center", va="center",
                          color="white" if value >= 0.79 * largest else INK)
            elif isinstance(cell, str):
                axes.plot(j + 0.5, i + 0.5, "x", color=FAILED, markersize=size)
    # Beside the cells, at any height of them: the scale, and the meaning of cells without a value.
    bar = figure.add_axes([1 + 0.3 / width, 1 - 1.6 / height, 0.18 / width, 1.6 / height])
    figure.colorbar(shade, cax=bar).outline.set_visible(False)
    bar.set_title("GB/s", size=9, loc="left")
    figure.legend([Patch(facecolor=DIAGONAL, edgecolor=GRID), Patch(facecolor="white", edgecolor=GRID),
                   Line2D([], [], marker="x", linestyle="", color=FAILED)], ["the same rank", "not measured", "failed"],
                  loc="upper left", bbox_to_anchor=(1 + 0.3 / width, 1 - 1.75 / height), frameon=False, borderaxespad=0,
                  borderpad=0, handlelength=1.2)
    left = max(map(len, names)) * size * 0.0085 + 0.3
    draw_titles(figure, title, report, -left, 0.6, max(left + width + 1.3, 4.5))
    return figure


def save(figure, path, title, hints):
    """A browser shows the title for an SVG, and the hints when one points at a mark."""
    svg, is_svg = "{http://www.w3.org/2000/svg}", path.suffix == ".svg"
    try:
        figure.savefig(path, dpi=150, bbox_inches="tight", pad_inches=0.2, facecolor="white",
                       metadata={"Date": None} if is_svg else None)
        if not is_svg:
            return
        ET.register_namespace("", svg[1:-1])
        ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")
        tree = ET.parse(path)
        top = ET.Element(svg + "title")
        top.text = title
        tree.getroot().insert(0, top)
        for group in tree.iter(svg + "g"):
            marks = list(group.iter(svg + "use")) or group.findall(svg + "path")
            for mark, text in zip(marks, hints.get(group.get("id"), [])):
                ET.SubElement(mark, svg + "title").text = text
        tree.write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        fail(f"{path}: {error.strerror}")


def main():
    parser = argparse.ArgumentParser(prog="plot.py", description=__doc__.split("\n\n")[0], epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN.json", type=pathlib.Path, help="the report to draw")
    parser.add_argument("--beside", metavar="OTHER.json", type=pathlib.Path, nargs="+", default=[],
                        help="reports whose curves are drawn beside it, each named after its file")
    parser.add_argument("-o", "--output", metavar="FILE", type=pathlib.Path,
                        help="where the picture goes, .svg or .png (default: RUN.svg)")
    options = parser.parse_args()
    output = options.output or options.run.with_suffix(".svg")
    if output.suffix not in (".svg", ".png"):
        parser.error(f"-o {output}: the name must end in .svg or .png")

    reports = [load(path) for path in (options.run, *options.beside)]
    run, hints = reports[0], {}
    title, panels = CHARTS[run.kind]
    if run.kind == MESH:
        if options.beside:
            fail("a heat map is drawn alone, without --beside")
        figure = draw_mesh(title, run, *matrix(run), hints)
    else:
        drawings = [drawing for drawing in (collect(panel, reports) for panel in panels) if drawing.lines]
        for report in reports:
            if not report.is_drawn:
                fail(f"{report.path}: no numbers in it that can be drawn" + (f" beside {run.path}" if report is not run else ""))
        figure = draw_chart(title, run, drawings, hints)
    save(figure, output, title, hints)


if __name__ == "__main__":
    main()
