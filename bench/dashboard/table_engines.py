"""Which engine is asked for pages of result tables: DuckDB, Polars or Arrow's own on one Parquet file.

    .venv/bin/python -m bench.dashboard.table_engines

100,000 and 1,000,000 recommendations as the store writes them. Each engine runs in a process of its own: pages of 100
rows under a filter, a search and a sort, then counts by two columns. Polars is no dependency: `pip install polars` into
an environment that runs this file adds its rows. Processor time of all threads, which other work does not stretch.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.record import ROOT, Row, record
from cotenant.base.store import tables
from cotenant.base.table import Kind, Table
from cotenant.recommender.model.views import RECOMMENDATIONS

SIZES: Final = (100_000, 1_000_000)
QUESTIONS: Final = 40
NAMES: Final = RECOMMENDATIONS.key
SORTS: Final = ("cpu_delta_total", "memory_delta_total", "workload", "severity", "namespace")
TEXTS: Final = {
    "namespace": [f"team-{k:03d}" for k in range(200)],
    "kind": ["Deployment", "StatefulSet", "Job", "DaemonSet"],
    "container": ["app", "sidecar", "proxy"],
    "severity": ["critical", "warning", "ok", "good", "unknown"],
}
Ask = Callable[[str, str, int], object]
"""A page: search text, column to sort by, first row."""
Count = Callable[[str, str], object]
"""Rows by a column under a search text."""


def main() -> None:
    """All engines on all sizes; with `--one ENGINE FILE` one of them, as JSON."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measured(sys.argv[2], sys.argv[3])))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            file = Path(folder) / f"{size}.parquet"
            file.write_bytes(tables.encode(recommendations(size)))
            for engine in ENGINES:
                command = [sys.executable, "-m", "bench.dashboard.table_engines", "--one", engine, str(file)]
                done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
                if done.returncode:
                    print(f"{engine}: {done.stderr.strip().splitlines()[-1]}")
                    continue
                for what, (value, unit) in json.loads(done.stdout).items():
                    rows.append(Row(f"{engine}, {size:,} rows: {what}", value, unit))
    record("table_engines", ".venv/bin/python -m bench.dashboard.table_engines", rows)


def recommendations(size: int, seed: int = 7) -> Table:
    """Rows of plausible texts and amounts, a tenth of which are missing."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    for column in RECOMMENDATIONS.columns:
        if column.kind is Kind.TEXT:
            texts = np.array(TEXTS.get(column.name, ["", "ok", "floor", "short-history"]), dtype=object)
            columns[column.name] = texts[rng.integers(len(texts), size=size)]
        else:
            amounts = np.round(rng.lognormal(5, 2, size))
            columns[column.name] = np.where(rng.random(size) < 0.1, np.nan, amounts)
    stems = rng.choice(["api", "worker", "checkout", "cache", "ledger"], size)
    columns["workload"] = np.array([f"{stem}-{k // 2}" for k, stem in enumerate(stems)], dtype=object)
    return Table(RECOMMENDATIONS, columns)


def measured(engine: str, file: str) -> dict[str, tuple[float, str]]:
    """Processor milliseconds of pages and counts, and the process' memory."""
    page, count = ENGINES[engine](file)
    rng = np.random.default_rng(1)
    questions = [
        (str(rng.choice(list("abcdefghijk"))), str(rng.choice(SORTS)), 100 * int(rng.integers(20)))
        for _ in range(QUESTIONS)
    ]
    pages = [spent(lambda question=question: page(*question)) for question in questions]  # type: ignore[misc]
    counts = [spent(lambda question=question: count(question[0], "severity")) for question in questions]  # type: ignore[misc]
    status = Path("/proc/self/status").read_text()
    memory = int(status.split("VmHWM:")[1].split()[0]) / 1024
    return {
        "page, p95": (float(np.percentile(pages, 95)), "ms"),
        "counts by a column, p95": (float(np.percentile(counts, 95)), "ms"),
        "memory, highest": (memory, "MiB"),
    }


def spent(act: Callable[[], object]) -> float:
    """Processor milliseconds of all threads."""
    start = time.process_time()
    act()
    return 1000 * (time.process_time() - start)


def duckdb_engine(file: str) -> tuple[Ask, Count]:
    from cotenant.base.store.relation import Relation
    from cotenant.base.tables import filters, queries

    relation = Relation.stored(Path(file).read_bytes(), RECOMMENDATIONS)

    def page(text: str, sort: str, first: int) -> object:
        query = filters.parse(f"severity=critical&q={text}&sort=-{sort}", RECOMMENDATIONS)
        return queries.page(relation, query, slice(first, first + 100))

    return page, lambda text, key: queries.facet(relation, filters.parse(f"q={text}", RECOMMENDATIONS), key)


def polars_engine(file: str) -> tuple[Ask, Count]:
    import polars as pl  # type: ignore[import-not-found,unused-ignore]  # of those who run this bench

    rows = pl.scan_parquet(file).with_row_index("_place")

    def named(text: str) -> Any:
        return pl.any_horizontal([pl.col(n).str.to_lowercase().str.contains(text, literal=True) for n in NAMES])

    def page(text: str, sort: str, first: int) -> object:
        chosen = rows.filter((pl.col("severity") == "critical") & named(text))
        ordered = chosen.sort([sort, "_place"], descending=[True, False], nulls_last=True)
        return ordered.slice(first, 100).collect(engine="streaming")

    return page, lambda text, key: rows.filter(named(text)).group_by(key).len().collect(engine="streaming")


def arrow_engine(file: str) -> tuple[Ask, Count]:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    data = ds.dataset(file)

    def named(text: str) -> Any:
        first, *others = (pc.match_substring(pc.utf8_lower(pc.field(name)), text) for name in NAMES)
        for other in others:
            first |= other
        return first

    def page(text: str, sort: str, first: int) -> object:
        chosen = (pc.field("severity") == "critical") & named(text)
        places = pc.sort_indices(data.to_table(columns=[sort], filter=chosen), sort_keys=[(sort, "descending")])
        return data.filter(chosen).take(places[first : first + 100])

    return page, lambda text, key: data.to_table(columns=[key], filter=named(text)).group_by(key).aggregate([])


ENGINES: Final[dict[str, Callable[[str], tuple[Ask, Count]]]] = {
    "DuckDB": duckdb_engine,
    "Polars": polars_engine,
    "Arrow": arrow_engine,
}


if __name__ == "__main__":
    main()
