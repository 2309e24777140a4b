"""Write bench/README.md, numbers of README.md and docs/compare.md, the figure of docs/simulate.md, from bench/results.

No number without its command:

python -m bench.report          # rewrite them
python -m bench.report --check  # exit 1 when they are not what the results say
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from bench.closed_loop.closed_loop_figure import LABEL, drawn
from bench.record import RESULTS, ROOT

README: Final = ROOT / "README.md"
SIMULATE: Final = ROOT / "docs" / "simulate.md"
COST_PAGE: Final = ROOT / "docs" / "costs.md"
COMPARE: Final = ROOT / "docs" / "compare.md"
FIGURE: Final = ROOT / "docs" / "images" / "closed-loop.svg"
CURVES: Final = "closed_loop_curves_"
"""How the names of the files begin that the figure is drawn from, one a family: `bench closed_loop` writes them."""
BEGIN, END = "<!-- numbers: written by `make docs`, do not edit -->", "<!-- end of numbers -->"
BEGIN_FIGURE, END_FIGURE = "<!-- figure: written by `make docs`, do not edit -->", "<!-- end of figure -->"
CAPTION: Final = (
    "Batch work done against how often nodes were short, in simulated time, for each way to share nodes and each "
    "family of pods; a ring is what an install has (`.venv/bin/python -m bench.closed_loop.closed_loop`; what it "
    "assumes is below)."
)
IN_README: Final = (
    ("replay", "synthetic: OOM kills caused by us", "OOM kills by proposals in weeks held out, on a synthetic cluster"),
    (
        "plans_replay",
        "all workloads: idle core-hours / same-time-last-week cron of equal coverage",
        "core-hours that reservations leave idle, by those of a cron schedule that covers the peaks as well",
    ),
    (
        "peak_populations",
        "cpu, 11 populations: passed at risk 1.0%, mean",
        "decisions about a node's peak that the next 24 hours passed, at a risk of 1 %, on nodes of three data centres",
    ),
    (
        "scale",
        "a scan an hour later, 100,000 containers x 7 d x 5 min, 2 local workers",
        "seconds of a scan an hour after another, 100,000 containers",
    ),
)
"""(benchmark, row, what it says): recommendations, reservations, lending. One missed its goal, as some do."""
_WORLDS: Final = ("synthetic", "bitbrains_rnd", "azure_v1")
BESIDE_PEERS: Final = (
    *(("replay", f"{world}: OOM kills caused by us", "") for world in _WORLDS[:2]),
    *(("replay", f"{world}: freed cores", "") for world in _WORLDS),
    *(("replay", f"{world}: container-days short of CPU", "") for world in _WORLDS),
    *(("replay", f"{world}: throttled minutes per container-day", "") for world in _WORLDS),
    ("replay", "synthetic: at the 50.6 % of comparable cores that vpa frees, CPU demand above the request", ""),
    ("replay", "azure_v1: at the 84.0 % of comparable cores that vpa frees, minutes above the CPU request", ""),
    ("vpa_exact", "largest difference to VPA's recommender, relative", ""),
    (
        "decisions_policy",
        "bitbrains_rnd CPU, groups of 10: batch-cpu by forecast / by usage at 7.37% violation",
        "bitbrains_rnd: batch-cpu by forecast / by Koordinator's policy `usage`, at its 7.37 % of decisions exceeded",
    ),
    (
        "decisions_policy",
        "azure_v1, 39 VMs of 29 days, groups of 20: batch-cpu by forecast / by usage at 1.00% violation",
        "azure_v1: the same, at 1 % of decisions exceeded",
    ),
)
"""The same for docs/compare.md; a row without words of its own keeps its name."""
COSTS: Final = (
    ("scan", "whole cold scan, 300 s scrape", "first scan, 1,000 workloads of 14 days: time"),
    ("scan", "whole cold scan, CPU, 300 s scrape", "the same: processor time"),
    ("scan", "whole cold scan, peak memory, 300 s scrape", "the same: memory"),
    ("scan", "cold pull, queries, 300 s scrape", "the same: queries of Prometheus"),
    ("scan", "server peak memory, 300 s scrape", "the same: memory of Prometheus meanwhile"),
    ("scan", "whole warm scan, 300 s scrape", "the scan an hour later: time"),
    ("scan", "warm pull, queries, 300 s scrape", "the same: queries of Prometheus"),
    ("scale", "its memory, all processes", "analysis of 100,000 containers: memory"),
    ("scale_million", "its memory, all processes", "analysis of 1,000,000 containers: memory"),
    ("dashboard", "server memory, highest", "dashboard, 100,000 containers: memory"),
    ("recorder_process", "memory at its most, 100,000 pods", "recorder, 100,000 pods: memory"),
    (
        "recorder_process",
        "API server, each ten minutes: requests",
        "the same: requests to the API server, each ten minutes",
    ),
    (
        "manager_scale",
        "peak RSS of the manager (5,000 nodes, 50,000 pods)",
        "manager, 5,000 nodes, 50,000 pods: memory",
    ),
    ("manager_scale", "writes in 75 s in which nothing changed (5,000 nodes, 50,000 pods)", ""),
    ("manager_scale", "UsageForecast writes per node and hour on a normal day", ""),
    ("manager_scale", "Recommendation writes per workload and day on a normal day", ""),
    ("webhook_latency", "added to a create, p99", "webhook: time added to a create, p99"),
    ("webhook_latency", "webhook process, most memory", "webhook: memory"),
    ("extender_latency", "filter, p99", "extender, 5,000 nodes: time of a filter call, p99"),
    ("node_footprint", "CPU of the agent", "node agent, 200 containers: CPU"),
    ("node_footprint", "resident memory of the agent", "the same: memory"),
    ("autopilot_scale", "requests to the API server, mean", "autopilot, 1,000 workloads: requests to the API server"),
)
"""The same for docs/costs.md: memory, processor time, queries and writes of every part."""
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


def curves() -> dict[str, list[dict[str, Any]]]:
    """Recorded points of the closed loop by family of pods, by name."""
    files = sorted((ROOT / "bench" / "closed_loop").glob(f"{CURVES}*.json"))
    return {path.stem.removeprefix(CURVES): json.loads(path.read_text()) for path in files}


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


def chosen_rows(documents: list[dict[str, Any]], chosen: Iterable[tuple[str, str, str]]) -> str:
    """A table of single rows, each with its command."""
    lines = ["| measured | value | goal | met | note | command |", "|---|---|---|---|---|---|"]
    for name, metric, meaning in chosen:
        document = next(d for d in documents if d["name"] == name)
        row = next(row for row in document["rows"] if row["metric"] == metric)
        value = f"{number(row['value'])} {row['unit']} | {row['goal']} | {verdict(row['met'])} | {row['note']}"
        lines.append(f"| {meaning or metric} | {value} | `{document['command']}` |")
    return "\n".join(lines)


def readme_numbers(documents: list[dict[str, Any]]) -> str:
    """The rows of the README, and how many goals of all were met."""
    goals = [row["met"] for document in documents for row in document["rows"] if row["goal"]]
    anchor = MISSED.lower().replace(" ", "-")
    every = "[bench/README.md](bench/README.md) has every measured number with its command"
    share = (
        f"{sum(goals)} of {len(goals)} goals were met; [what missed its goal](bench/README.md#{anchor}), row by row."
    )
    return f"{chosen_rows(documents, IN_README)}\n\n{every}. {share}"


def with_numbers(readme: str, table: str) -> str:
    """The README with the text between the markers replaced."""
    return between(readme, BEGIN, table, END)


def with_figure(page: str) -> str:
    """The page on simulations with the closed loop's figure where it has been recorded."""
    name = FIGURE.relative_to(SIMULATE.parent)
    picture = f"![{LABEL}]({name})\n\n{CAPTION}" if curves() else ""
    return between(page, BEGIN_FIGURE, picture, END_FIGURE)


def between(page: str, begin: str, text: str, end: str) -> str:
    """The page with what stands between two markers replaced."""
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n{end}{after}" if text else f"{before}{begin}\n{end}{after}"


def main() -> int:
    documents = results()
    targets = {
        **({FIGURE: drawn(recorded)} if (recorded := curves()) else {}),
        ROOT / "bench" / "README.md": page(documents),
        README: with_numbers(README.read_text(), readme_numbers(documents)),
        SIMULATE: with_figure(SIMULATE.read_text()),
        COST_PAGE: with_numbers(COST_PAGE.read_text(), chosen_rows(documents, COSTS)),
        COMPARE: with_numbers(COMPARE.read_text(), chosen_rows(documents, BESIDE_PEERS)),
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
