"""Write bench/README.md and the README's numbers from bench/results/*.json: no number without its command.

python -m bench.report          # rewrite both
python -m bench.report --check  # exit 1 when they are not what the results say
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from bench.record import RESULTS, ROOT

BEGIN, END = "<!-- numbers: written by `make docs`, do not edit -->", "<!-- end of numbers -->"
SHOWN: Final = {"scan": 4, "dashboard": 3, "forecast_quick": 3, "node_neighbours": 2, "replay": 3}
"""How many rows of a benchmark the README shows; one of the others."""
MISSED: Final = "What missed its goal"
HEAD: Final = """# Benchmarks

`make bench` runs all of them and rewrites this page and the numbers in the README; one alone runs by the command
beside it. Timings come from a shared machine and vary; ratios were taken within one run. Benchmarks that need real
traces read them from the folder in `COTENANT_TRACES` and say so when it is missing. A goal that was not met stands
here as measured.
"""


def results() -> list[dict[str, Any]]:
    """All recorded benchmarks, by name."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def page(documents: list[dict[str, Any]]) -> str:
    """bench/README.md."""
    return "\n".join([HEAD, missed(documents), *(section(d) for d in documents)])


def missed(documents: list[dict[str, Any]]) -> str:
    """Every row of every benchmark that missed its goal."""
    lines = [f"## {MISSED}", "", "| benchmark | what | measured | goal |", "|---|---|---|---|"]
    for document in documents:
        link = f"[{document['name']}](#{document['name']})"
        lines += [
            f"| {link} | {r['metric']} | {number(r['value'])} {r['unit']} | {r['goal']} |"
            for r in document["rows"]
            if r["met"] is False
        ]
    return "\n".join([*lines, ""])


def section(document: dict[str, Any]) -> str:
    """One benchmark: command, date, rows."""
    lines = [f"## {document['name']}", ""]
    lines += [f"`{document['command']}` at {document['commit']} on {document['date']} ({document['machine']})", ""]
    lines += ["| what | measured | goal | met | note |", "|---|---|---|---|---|"]
    lines += [
        f"| {r['metric']} | {number(r['value'])} {r['unit']} | {r['goal']} | {verdict(r['met'])} | {r['note']} |"
        for r in document["rows"]
    ]
    return "\n".join([*lines, ""])


def number(value: float) -> str:
    """Three significant digits, thousands apart."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def verdict(met: bool | None) -> str:
    return "" if met is None else ("yes" if met else "**no**")


def readme_numbers(documents: list[dict[str, Any]]) -> str:
    """The README's table: some rows of each benchmark, those that missed their goal first, and how many were met."""
    goals = [row["met"] for document in documents for row in document["rows"] if row["goal"]]
    anchor = MISSED.lower().replace(" ", "-")
    told = f"{sum(goals)} of {len(goals)} goals were met; [what missed its goal](bench/README.md#{anchor}), row by row."
    lines = [told, "", "| measured | value | goal | met | of all its goals | command |", "|---|---|---|---|---|---|"]
    for document in documents:
        rows = [row for row in document["rows"] if row["goal"]]
        share = f"{sum(row['met'] for row in rows)} of {len(rows)}"
        for row in sorted(rows, key=lambda row: bool(row["met"]))[: SHOWN.get(document["name"], 1)]:
            value = f"{number(row['value'])} {row['unit']}"
            ends = f"{row['goal']} | {verdict(row['met'])} | {share} | `{document['command']}`"
            lines.append(f"| {row['metric']} | {value} | {ends} |")
    return "\n".join(lines)


def with_numbers(readme: str, table: str) -> str:
    """The README with the text between the markers replaced."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main() -> int:
    documents = results()
    targets = {
        ROOT / "bench" / "README.md": page(documents),
        ROOT / "README.md": with_numbers((ROOT / "README.md").read_text(), readme_numbers(documents)),
    }
    stale = [path for path, text in targets.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        print(*(f"not what bench/results says: {Path(p).name}" for p in stale), sep="\n")
        return int(bool(stale))
    for path in stale:
        path.write_text(targets[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
