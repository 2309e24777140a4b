"""The Forecast page leads to the report of the last back-test, and the API serves it as it was kept."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cotenant.base.store import Store
from cotenant.base.usage.backtest import BACKTEST, BacktestReport
from cotenant.dashboard.pages import forecast
from cotenant.dashboard.sources.source import StoreSource
from cotenant_lab.simulation.demo import CLUSTER
from tests.dashboard.test_states import text_of, view_on
from tests.support import dashboard as support


def test_the_report_is_linked_and_served_once_it_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), CLUSTER)
    source = StoreSource(store, support.QUICK)
    with support.served(support.app_on(source)) as address:
        assert "Back-test report" not in text_of(forecast.render(view_on(source, 0), ""))
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/api/v1/backtest", timeout=120)
        assert refused.value.code == 404
        assert "never back-tested" in refused.value.read().decode()
        store.write_document(BACKTEST, BacktestReport("cpu", 0, "12 workloads, 2 origins", "<!doctype html><p>x</p>"))
        assert "Back-test report" in text_of(forecast.render(view_on(source, 0), ""))
        with urllib.request.urlopen(f"{address}/api/v1/backtest", timeout=120) as response:
            assert response.headers["Content-Type"].startswith("text/html")
            assert response.read() == b"<!doctype html><p>x</p>"
