"""Other people's Prometheus servers, each read by a pull: the same numbers, or a refusal with its name and its fix.

One small cluster is written as 24 servers would hold it: scraped every 15 s to 15 min, relabelled as elsewhere,
late, short, twice, without kube-state-metrics. Every variant is held against the truth, and the table of
docs/prometheus.md is written from what came out. The same series are then asked of a VictoriaMetrics and through a
Thanos, and a server is taken away at each question in turn (bench.prometheus_outages).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

from bench import prometheus_outages
from bench.record import ROOT, Row, below, record
from cotenant.base.store.store import Store
from tests.cluster import binaries
from tests.support import victoria_metrics
from tests.support.prometheus import MISSING, installed
from tests.support.prometheus_matrix import (
    VARIANTS,
    Outcome,
    Scene,
    Variant,
    served,
    served_by_thanos,
    served_by_victoria_metrics,
)

PAGE = ROOT / "docs" / "prometheus.md"
HEAD = ["| server | a scan |", "|---|---|"]
Pairs = list[tuple[Variant, Outcome]]
Serve = Callable[[Path, Sequence[Variant]], AbstractContextManager[Scene]]


OTHERS: Final[tuple[tuple[str, Callable[[], bool], Serve], ...]] = (
    ("VictoriaMetrics", victoria_metrics.installed, served_by_victoria_metrics),
    ("Thanos (sidecar and querier)", partial(binaries.installed, ["thanos"]), served_by_thanos),
)
"""Servers that are no Prometheus: name, whether it is on this machine, how it holds the variants."""


def outcomes(serve: Serve) -> Pairs:
    """Every variant's outcome, from an empty store each."""
    with tempfile.TemporaryDirectory() as name, serve(Path(name), VARIANTS) as scene:
        stores = ((v, Store(f"file://{name}/stores", f"c{i}")) for i, v in enumerate(VARIANTS))
        return [(variant, scene.outcome(variant, store)) for variant, store in stores]


def with_table(page: str, rows: list[str]) -> str:
    """The page with its table replaced."""
    lines = page.splitlines()
    start = lines.index(HEAD[0])
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    return "\n".join([*lines[:start], *HEAD, *rows, *lines[end:]]) + "\n"


def same_answers(pairs: Pairs, others: Pairs) -> list[tuple[Variant, Outcome]]:
    """Those of `others` that were read as the truth or refused, in the very words of the table."""
    expected = {variant.name: outcome.row(variant) for variant, outcome in pairs}
    return [(v, o) for v, o in others if v.is_met(o) and o.row(v) == expected[v.name]]


def rows(pairs: Pairs) -> list[Row]:
    """How many servers were read as the truth or refused, and the worst errors of those that were read."""
    read = [(variant, outcome) for variant, outcome in pairs if variant.same]
    right = sum(variant.is_met(outcome) for variant, outcome in pairs)
    worst = [
        below(
            f"worst error of the CPU total, scraped every {'5 minutes or faster' if fine else '10 or 15 minutes'}",
            round(100 * max(o.errors["cpu_usage_mean"] for v, o in read if (v.tolerance < 0.05) is fine), 2),
            "%",
            2 if fine else 6,
        )
        for fine in (True, False)
    ]
    return [
        Row("servers read as the truth or refused by name", right, "", f"= {len(pairs)}", right == len(pairs)),
        *worst,
    ]


def main() -> int:
    if not installed():
        print(MISSING, file=sys.stderr)
        return 0
    pairs = outcomes(served)
    measured, table = rows(pairs), [outcome.row(variant) for variant, outcome in pairs]
    for name, is_installed, serve in OTHERS:
        if is_installed():
            same = len(same_answers(pairs, outcomes(serve)))
            measured.append(Row(f"the same, held by {name}", same, "", f"= {len(pairs)}", same == len(pairs)))
            table.append(f"| {name} with the series of each row above | the same answers: {same} of {len(pairs)} |")
    with tempfile.TemporaryDirectory() as name:
        outages = list(prometheus_outages.rows(Path(name)))
    measured += outages
    table += map(prometheus_outages.table_row, outages)
    PAGE.write_text(with_table(PAGE.read_text(), table))
    record("prometheus_matrix", ".venv/bin/python -m bench.prometheus_matrix", measured)
    return int(not all(row.met for row in measured))


if __name__ == "__main__":
    sys.exit(main())
