"""Numbers in the pages come from recorded benchmarks, each with its command."""

from __future__ import annotations

from bench.profiler import prometheus_matrix, prometheus_outages
from bench.record import ROOT, Row
from bench.report import (
    BESIDE_PEERS,
    COMPARE,
    COST_PAGE,
    COSTS,
    END,
    IN_README,
    MISSED,
    README,
    chosen_rows,
    page,
    readme_numbers,
    results,
    with_numbers,
)


def test_the_benchmark_page_is_what_the_results_say() -> None:
    assert (ROOT / "bench" / "README.md").read_text() == page(results())


def test_numbers_in_pages_are_what_the_results_say() -> None:
    tables = {README: readme_numbers(results()), COMPARE: chosen_rows(results(), BESIDE_PEERS)}
    tables[COST_PAGE] = chosen_rows(results(), COSTS)
    for path, table in tables.items():
        text = path.read_text()
        assert END in text
        assert with_numbers(text, table) == text


def test_every_outage_that_was_measured_is_a_row_of_the_table_of_servers() -> None:
    (measured,) = (document["rows"] for document in results() if document["name"] == "prometheus_matrix")
    outages = [Row(**row) for row in measured if "at each question" in row["metric"]]
    assert len(outages) == len(prometheus_outages.FAULTS) * len(prometheus_outages.LENGTHS_SECONDS)
    lines = prometheus_matrix.PAGE.read_text().splitlines()
    assert [row for row in map(prometheus_outages.table_row, outages) if row not in lines] == []


def test_every_result_names_its_command_commit_and_date() -> None:
    for document in results():
        assert document["command"].startswith((".venv/bin/python -m bench.", "make "))
        assert document["commit"] and document["date"]


def test_every_missed_goal_is_listed_and_counted_and_one_is_shown() -> None:
    rows = [row for document in results() for row in document["rows"] if row["goal"]]
    missed = [row for row in rows if not row["met"]]
    listed = page(results()).partition(f"## {MISSED}")[2].partition("\n## ")[0]
    assert [row["metric"] for row in missed if f"| {row['metric']} |" not in listed] == []
    table = readme_numbers(results())
    assert f"{len(rows) - len(missed)} of {len(rows)} goals were met" in table
    shown = {metric for _, metric, _ in IN_README}
    assert not missed or shown & {row["metric"] for row in missed}, "the README shows only what went well"
