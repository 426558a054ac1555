"""What a benchmark beside our C++ programs has measured, written as they write it (scripts/plot.py, scripts/speed_table.py)."""

import json
import pathlib
import statistics


def cell(values):
    """Samples as a report has them."""
    return {"count": len(values), "min": min(values), "median": statistics.median(values), "max": max(values)}


def report(options, names, tables, columns, **about):
    """@param names of the options that are parameters. @param tables rows by title. @param columns name and unit of each"""
    columns = [{"name": name, "unit": unit} for name, unit in columns]
    return {
        "format": "tcpx-report-1", **about,
        "parameters": {name: str(getattr(options, name)) for name in names},
        "tables": [{"title": title, "row_heading": "pattern", "columns": columns, "rows": rows} for title, rows in tables.items()],
    }  # fmt: skip


def finish(made, path, right):
    """Writes the report to `path`, unless that is None, and says whether all is `right`. @return the program's exit code"""
    if path:
        pathlib.Path(path).write_text(json.dumps(made, indent=1) + "\n")
    wrong = not all(row["verified"] for table in made["tables"] for row in table["rows"])
    print("FAILED: wrong bytes" if wrong else f"PASSED: {right}")
    return 1 if wrong else 0
