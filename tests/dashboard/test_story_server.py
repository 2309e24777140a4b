"""Over a real socket: a workload's story and a forecast with its paths, under the addresses that OpenAPI documents."""

from __future__ import annotations

import csv
import io
import json

import pytest

from cotenant.recommender.model.views import FORECASTS, portraits_of
from tests.dashboard.test_server import Answer
from tests.support.dashboard import Results

pytestmark = [pytest.mark.slow, pytest.mark.server]
CHECKOUT = "pay/Deployment/checkout"


def test_a_workload_s_story_is_served_whole(address: str, demo_results: Results) -> None:
    body = Answer(f"{address}/api/v1/workloads/{CHECKOUT}").json
    stored = {
        r["resource"]: r
        for r in demo_results.store.read_table(portraits_of("pay")).rows()
        if r["workload"] == "checkout"
    }
    assert body["portraits"] == json.loads(json.dumps(stored))
    assert body["workload"]["workload"] == "checkout" and body["events"] and body["log"]
    assert all(r["backtest"]["days"] > 0 for r in body["recommendations"])
    missing = Answer(f"{address}/api/v1/workloads/pay/Deployment/gone")
    assert (missing.status, missing.json["message"]) == (404, "no workload pay/Deployment/gone")


def test_forecasts_are_listed_filtered_and_exported_alike(address: str, demo_results: Results) -> None:
    query = "scope=workload&resource=memory&sort=-relative_wql"
    document = Answer(f"{address}/api/v1/forecasts?{query}").json
    exported = list(csv.DictReader(io.StringIO(Answer(f"{address}/api/v1/forecasts?{query}&format=csv").text)))
    assert [row["name"] for row in exported] == [row["name"] for row in document["rows"]] != []
    expected = [
        r
        for r in demo_results.store.read_table(FORECASTS).rows()
        if (r["scope"], r["resource"]) == ("workload", "memory")
    ]
    assert document["total"] == len(expected) and "q95" not in document["rows"][0]
    assert Answer(f"{address}/api/v1/forecasts?scoop=node").json["fix"] == "Did you mean scope?"


@pytest.mark.parametrize("scope", ["cluster", "node", "workload"])
def test_one_forecast_has_its_paths_and_the_usage_before_it(address: str, demo_results: Results, scope: str) -> None:
    row = next(r for r in demo_results.store.read_table(FORECASTS).rows() if r["scope"] == scope)
    query = "&".join(f"{key}={row[key]}" for key in FORECASTS.key)
    body = Answer(f"{address}/api/v1/forecast?{query}").json
    assert body["forecast"] == json.loads(json.dumps(row)) and len(body["forecast"]["q95"]) == 48
    before = body["before"]
    assert len(before["times"]) == len(before["mean"]) > 24 and before["times"][-1] < row["start"]
    assert Answer(f"{address}/api/v1/forecast?scope={scope}&name=nobody&resource=cpu").status == 404
    assert Answer(f"{address}/api/v1/forecast?scope=planet&name=x&resource=cpu").status == 422


def test_openapi_documents_them(address: str) -> None:
    paths = Answer(f"{address}/openapi.json").json["paths"]
    assert {"/api/v1/forecasts", "/api/v1/forecast", "/api/v1/workloads/{namespace}/{kind}/{name}"} <= set(paths)
    names = {p["name"] for p in paths["/api/v1/forecast"]["get"]["parameters"]}
    assert names == set(FORECASTS.key)


@pytest.mark.parametrize("path", ["/forecast", f"/workload/{CHECKOUT}", "/workload/a/b/%3Cimg%20src=x%3E%2F"])
def test_pages_have_addresses(address: str, path: str) -> None:
    response = Answer(address + path)
    assert response.status == 200 and "_dash-config" in response.text
