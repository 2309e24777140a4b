"""One filter, three surfaces: the rows of the command line, of the API and of the page's CSV are the same."""

from __future__ import annotations

import csv
import io
import json
import shutil
import urllib.request
from pathlib import Path
from urllib.parse import quote

import pytest

from cotenant.base.store import Store
from cotenant.dashboard.pages import recommendations, workloads
from cotenant.recommender.model.views import PODS, RECOMMENDATIONS
from cotenant_lab.simulation.demo import CLUSTER
from tests.support import dashboard as support
from tests.support.command_line import LEAN, cotenant
from tests.support.dashboard import WEEK, Results
from tests.support.extent import full

pytestmark = pytest.mark.server
FILTERS = (
    "severity=critical,warning&kind!=Job",
    "kind in (Deployment, StatefulSet)&workload=*a*&sort=-memory_delta_total",
    "reason=observed-maximum&ns!=pay&q=a&sort=namespace&sort=-cpu_delta_total",
)


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A store whose results the command line makes anew: both surfaces must read that run."""
    return support.results(tmp_path_factory.mktemp("store"), spec=WEEK)


@pytest.mark.parametrize("query", [FILTERS[0], *full(*FILTERS[1:])])
def test_one_filter_gives_the_same_rows_everywhere(scanned: Results, tmp_path: Path, query: str) -> None:
    shutil.copytree(scanned.store.url.removeprefix("file://"), tmp_path / "store")
    command = ("scan", "--offline", "--store", (tmp_path / "store").as_uri(), "-q", "-o", "json")
    ran = cotenant(*command, "--filter", query, variables={**LEAN, "HOME": str(tmp_path)})
    assert ran.returncode == 0, ran.stderr
    command_line = json.loads(ran.stdout)
    results = Results(Store((tmp_path / "store").as_uri(), CLUSTER), scanned.end_seconds)
    columns = recommendations.LIST.shown
    with support.served(support.app_of(results)) as address:
        base = f"{address}/api/v1/recommendations?{quote(query, safe='=&!')}"
        api = json.loads(urllib.request.urlopen(base, timeout=30).read())["rows"]
        page = urllib.request.urlopen(f"{base}&columns={','.join(columns)}&format=csv", timeout=30).read().decode()
    assert 0 < len(api) < len(results.store.read_table(RECOMMENDATIONS))
    assert command_line == api
    exported = list(csv.DictReader(io.StringIO(page)))
    assert [list(row) for row in exported] == [list(columns)] * len(api)
    assert exported == [{name: "" if row[name] is None else str(row[name]) for name in columns} for row in api]


@pytest.mark.parametrize(
    "query", ["qos!=none&kind in (Deployment,DaemonSet)&sort=-cpu_usage", *full("node=node-003", "q=a")]
)
def test_pods_are_the_same_on_the_command_line_in_the_api_and_in_the_export(scanned: Results, query: str) -> None:
    command = ("get", "pods", "--store", scanned.store.url, "--filter", query, "-o")
    shown, as_csv = (cotenant(*command, form).stdout for form in ("json", "csv"))
    columns = workloads.POD_LIST.shown
    with support.served(support.app_of(scanned)) as address:
        base = f"{address}/api/v1/pods?{quote(query, safe='=&!')}"
        api = json.loads(urllib.request.urlopen(base, timeout=30).read())
        whole_csv = urllib.request.urlopen(f"{base}&format=csv", timeout=30).read().decode()
        page = urllib.request.urlopen(f"{base}&columns={','.join(columns)}&format=csv", timeout=30).read().decode()
    assert 0 < api["total"] < api["of"]
    assert json.loads(shown) == api["rows"]
    assert as_csv == whole_csv
    assert list(csv.DictReader(io.StringIO(page))) == [
        {name: "" if row[name] is None else str(row[name]) for name in columns} for row in api["rows"]
    ]


def test_pods_of_a_node_are_chosen_by_its_name(scanned: Results) -> None:
    rows = json.loads(cotenant("get", "pods", "--store", scanned.store.url, "--node", "node-003", "-o", "json").stdout)
    assert rows == list(scanned.store.read_table(PODS, {"node": "node-003"}).rows())
