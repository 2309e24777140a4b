"""A strategy that is only tried on the stored history leaves what the dashboard shows as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cotenant.recommender.model.views import FINDINGS, RECOMMENDATIONS, Overview
from tests.support import dashboard as support
from tests.support.command_line import LEAN, cotenant


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["vpa", "krr-simple"])
def test_an_offline_scan_by_another_strategy_shows_its_rows_and_keeps_the_stored_results(
    tmp_path: Path, strategy: str
) -> None:
    results = support.results(tmp_path, spec=support.WEEK)
    before, document = results.store.read_table(RECOMMENDATIONS), results.store.read_document("overview", Overview)
    findings = len(results.store.read_table(FINDINGS))
    done = cotenant("scan", "--offline", "--store", results.store.url, "-s", strategy, "-o", "json", variables=LEAN)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["strategy"] for row in rows} == {strategy} and len(rows) == len(before)
    assert f"of strategy {strategy} are not stored" in done.stderr and f"Strategy {strategy}." in done.stderr
    # What page, REST and command line read afterwards is what was there, to the cell.
    after = results.store.read_table(RECOMMENDATIONS)
    assert list(after.rows()) == list(before.rows())
    assert results.store.read_document("overview", Overview) == document
    assert len(results.store.read_table(FINDINGS)) == findings
