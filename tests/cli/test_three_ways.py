"""One filter, three surfaces: the rows of the command line, of the API and of the page's CSV are the same."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.parse import quote

import pytest

from cotenant.edges.store import Store
from cotenant.model.views import RECOMMENDATIONS
from cotenant.sim.demo import CLUSTER
from dashboard.pages import recommendations
from tests.support import dashboard as support
from tests.support.dashboard import Results

pytestmark = pytest.mark.slow
COTENANT = str(Path(sys.executable).with_name("cotenant"))
FILTERS = (
    "severity=critical,warning&kind!=Job",
    "kind in (Deployment, StatefulSet)&workload=*a*&sort=-memory_delta_total",
    "reason=observed-maximum&ns!=pay&q=a&sort=namespace&sort=-cpu_delta_total",
)


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A store whose results the command line makes anew: both surfaces must read that run."""
    return support.results(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("query", FILTERS)
def test_one_filter_gives_the_same_rows_everywhere(scanned: Results, tmp_path: Path, query: str) -> None:
    shutil.copytree(scanned.store.url.removeprefix("file://"), tmp_path / "store")
    command = [COTENANT, "scan", "--offline", "--store", (tmp_path / "store").as_uri(), "-q", "-o", "json"]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(
        [*command, "--filter", query], capture_output=True, text=True, timeout=200, env=environment, check=False
    )
    assert ran.returncode == 0, ran.stderr
    command_line = json.loads(ran.stdout)
    made = Results(Store((tmp_path / "store").as_uri(), CLUSTER), scanned.end_seconds)
    columns = recommendations.LIST.shown
    with support.served(support.app_of(made)) as address:
        base = f"{address}/api/v1/recommendations?{quote(query, safe='=&!')}"
        api = json.loads(urllib.request.urlopen(base, timeout=30).read())["rows"]
        page = urllib.request.urlopen(f"{base}&columns={','.join(columns)}&format=csv", timeout=30).read().decode()
    assert 0 < len(api) < len(made.store.read_table(RECOMMENDATIONS))
    assert command_line == api
    exported = list(csv.DictReader(io.StringIO(page)))
    assert [list(row) for row in exported] == [list(columns)] * len(api)
    assert exported == [{name: "" if row[name] is None else str(row[name]) for name in columns} for row in api]
