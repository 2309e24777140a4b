"""Numbers in the pages come from recorded benchmarks, each with its command."""

from __future__ import annotations

from bench.record import ROOT
from bench.report import END, page, readme_numbers, results, with_numbers


def test_the_benchmark_page_is_what_the_results_say() -> None:
    assert (ROOT / "bench" / "README.md").read_text() == page(results())


def test_the_numbers_in_the_readme_are_what_the_results_say() -> None:
    readme = (ROOT / "README.md").read_text()
    assert END in readme
    assert with_numbers(readme, readme_numbers(results())) == readme


def test_every_result_names_its_command_commit_and_date() -> None:
    for document in results():
        assert document["command"].startswith((".venv/bin/python -m bench.", "make "))
        assert document["commit"] and document["date"]


def test_a_benchmark_with_a_missed_goal_shows_it_in_the_readme() -> None:
    table = readme_numbers(results())
    for document in results():
        missed = [row["metric"] for row in document["rows"] if row["met"] is False]
        assert not missed or f"| {missed[0]} |" in table, document["name"]
