"""Other people's Prometheus servers, each read by a pull: the same numbers, or a refusal with its name and its fix.

One small cluster is written as 24 servers would hold it: scraped every 15 s to 15 min, relabelled as elsewhere,
late, short, twice, without kube-state-metrics. Every variant is held against the truth, and the table of
docs/prometheus.md is written from what came out.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.record import ROOT, Row, below, record
from cotenant.edges.store.store import Store
from tests.support.prometheus import MISSING, installed
from tests.support.prometheus_matrix import VARIANTS, Outcome, Variant, served

PAGE = ROOT / "docs" / "prometheus.md"
HEAD = ["| server | a scan |", "|---|---|"]
Pairs = list[tuple[Variant, Outcome]]


def outcomes() -> Pairs:
    """Every variant's outcome, from an empty store each."""
    with tempfile.TemporaryDirectory() as name, served(Path(name), VARIANTS) as scene:
        stores = ((v, Store(f"file://{name}/stores", f"c{i}")) for i, v in enumerate(VARIANTS))
        return [(variant, scene.outcome(variant, store)) for variant, store in stores]


def with_table(page: str, rows: list[str]) -> str:
    """The page with its table replaced."""
    lines = page.splitlines()
    start = lines.index(HEAD[0])
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    return "\n".join([*lines[:start], *HEAD, *rows, *lines[end:]]) + "\n"


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
    pairs = outcomes()
    PAGE.write_text(with_table(PAGE.read_text(), [outcome.row(variant) for variant, outcome in pairs]))
    measured = rows(pairs)
    record("prometheus_matrix", ".venv/bin/python -m bench.prometheus_matrix", measured)
    return int(not all(row.met for row in measured))


if __name__ == "__main__":
    sys.exit(main())
