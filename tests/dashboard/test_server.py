"""The web process over a real socket: API, exports, probes, metrics, addresses, failures, and how it ends."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.errors import CotenantError, StoreError
from cotenant.base.store import Store
from cotenant.base.tables import filters
from cotenant.dashboard.app import serve
from cotenant.dashboard.server import packed
from cotenant.dashboard.settings import DashboardSettings
from cotenant.dashboard.sources.source import Snapshot, StoreSource
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.views import RECOMMENDATIONS, WORKLOADS
from tests.support import dashboard as support
from tests.support.dashboard import Results

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.server


class Answer:
    """Status, headers and body of a request, whatever the status."""

    def __init__(self, url: str, **headers: str) -> None:
        request = urllib.request.Request(url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                self.status, self.headers, self.body = response.status, response.headers, response.read()
        except urllib.error.HTTPError as error:
            self.status, self.headers, self.body = error.code, error.headers, error.read()

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def test_the_rows_of_the_api_are_the_rows_of_the_table(address: str, demo_results: Results) -> None:
    document = Answer(f"{address}/api/v1/workloads?limit=1000").json
    expected = list(demo_results.store.read_table(WORKLOADS).rows())
    assert document["total"] == document["of"] == len(expected)
    assert document["rows"] == json.loads(json.dumps(expected))


def test_csv_and_json_hold_the_same_rows_under_the_same_filter(address: str) -> None:
    query = "severity=critical&kind!=Job&sort=cpu_delta_total"
    rows = Answer(f"{address}/api/v1/recommendations?{query}").json["rows"]
    exported = Answer(f"{address}/api/v1/recommendations?{query}&format=csv")
    table = list(csv.DictReader(io.StringIO(exported.text)))
    assert rows and {r["severity"] for r in rows} == {"critical"} and "Job" not in {r["kind"] for r in rows}
    assert [list(r) for r in table] == [list(r) for r in rows]
    assert table == [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
    deltas = [r["cpu_delta_total"] for r in rows if r["cpu_delta_total"] is not None]
    assert deltas == sorted(deltas)
    cluster = Answer(f"{address}/api/v1/recommendations?limit=0").json["cluster"]
    assert cluster
    assert exported.headers["content-disposition"] == f'attachment; filename="{cluster}-recommendations.csv"'


def test_csv_equals_that_of_the_command_line(address: str, demo_results: Results) -> None:
    from cotenant.base.commands.output import Format, render

    expected = "".join(render(demo_results.store.read_table(RECOMMENDATIONS), Format.CSV))
    assert Answer(f"{address}/api/v1/recommendations?format=csv").text == expected


def test_pages_of_rows_join_to_the_whole(address: str) -> None:
    base = f"{address}/api/v1/recommendations?sort=-memory_delta_total"
    rows = Answer(base).json["rows"]
    pages = [Answer(f"{base}&offset={k}&limit=30").json["rows"] for k in range(0, len(rows), 30)]
    assert [row for page in pages for row in page] == rows


def test_a_row_that_no_table_can_have_is_refused_in_words(address: str) -> None:
    response = Answer(f"{address}/api/v1/recommendations?offset={2**63}")
    assert response.status == 422
    assert "query.offset" in response.json["message"] and "docs" in response.json["fix"]


def test_an_unknown_filter_is_refused_in_words(address: str) -> None:
    response = Answer(f"{address}/api/v1/workloads?patern=daily")
    assert response.status == 400
    assert response.json["message"] == "workloads: unknown filter 'patern'."
    assert response.json["fix"] == "Did you mean pattern?"


def test_the_overview_document_and_an_explanation_are_served(address: str, demo_results: Results) -> None:
    overview = Answer(f"{address}/api/v1/overview").json
    assert (overview["cluster"], overview["nodes"]) == ("demo", support.SPEC.nodes)
    row = next(iter(demo_results.store.read_table(RECOMMENDATIONS).rows()))
    query = "&".join(f"{key}={row[key]}" for key in ("namespace", "kind", "workload", "container"))
    assert Answer(f"{address}/api/v1/explain?{query}").json["replicas"] == row["replicas"]
    assert Answer(f"{address}/api/v1/explain?{query}x").status == 404


def test_openapi_documents_every_filter(address: str) -> None:
    paths = Answer(f"{address}/openapi.json").json["paths"]
    names = {p["name"] for p in paths["/api/v1/recommendations"]["get"]["parameters"]}
    assert {*filters.keys_of(RECOMMENDATIONS), "q", "sort", "format", "offset", "limit"} <= names
    assert Answer(f"{address}/docs").status == 200


@pytest.mark.parametrize("path", ["/", "/workloads", "/recommendations", "/workloads?ns=pay"])
def test_every_page_has_an_address(address: str, path: str) -> None:
    response = Answer(address + path)
    assert response.status == 200 and 'lang="en"' in response.text and "_dash-config" in response.text


@pytest.mark.parametrize("path", ["/nowhere", "/api/v1/nowhere", "/workloads/x"])
def test_an_address_nobody_serves_is_not_found(address: str, path: str) -> None:
    assert Answer(address + path).status == 404


def test_the_answer_for_a_page_that_is_not_there_leads_home(address: str) -> None:
    response = Answer(f"{address}/nowhere")
    assert (response.status, '<a href="/">To Home</a>' in response.text) == (404, True)
    assert f"Request {response.headers['X-Request-Id']}." in response.text
    endpoint = Answer(f"{address}/api/v1/nowhere")
    assert endpoint.json["request"] == endpoint.headers["X-Request-Id"]


def test_large_answers_are_compressed(address: str) -> None:
    response = Answer(f"{address}/api/v1/workloads", **{"Accept-Encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"


@pytest.mark.parametrize("name", ["dash_renderer", "assets/grid"])
def test_a_compressed_script_is_the_same_for_everybody(address: str, name: str) -> None:
    (script,) = re.findall(rf'src="(/[^"]*{name}[^"]*)"', Answer(address).text)
    plain = Answer(f"{address}{script}")
    # The second is what was kept of the first.
    first, second = (Answer(f"{address}{script}", **{"Accept-Encoding": "gzip"}) for _ in range(2))
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(first.body) == plain.body
    assert second.body == first.body
    own = {"date", "x-request-id"}  # of each answer
    assert second.headers["x-request-id"] != first.headers["x-request-id"]
    shared = [{key: text for key, text in response.headers.items() if key not in own} for response in (first, second)]
    assert shared[0] == shared[1]
    assert "content-security-policy" in shared[1]


def test_a_script_that_a_browser_has_is_not_sent_again(address: str) -> None:
    (script,) = re.findall(r'src="(/assets/grid[^"]*)"', Answer(address).text)
    etags = [Answer(f"{address}{script}", **{"Accept-Encoding": "gzip"}).headers["etag"] for _ in range(2)]
    assert etags[0] == etags[1]
    not_modified = Answer(f"{address}{script}", **{"Accept-Encoding": "gzip", "If-None-Match": etags[1]})
    assert (not_modified.status, not_modified.body) == (304, b"")


def test_addresses_that_somebody_makes_up_fill_no_memory_and_take_no_scripts_place(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "kept", {})
    (script,) = re.findall(r'src="(/assets/grid[^"]*)"', Answer(address).text)
    for number in range(packed.MOST_KEPT + 10):
        assert Answer(f"{address}{script}{number}", **{"Accept-Encoding": "gzip"}).status == 200
    assert len(packed.kept) == packed.MOST_KEPT
    # A page whose address only ends like a script's is a page, and stays out of the script's place.
    inside = Answer(f"{address}/nodes{script}", **{"Accept-Encoding": "gzip"})
    assert f"/nodes{script.partition('?')[0]}" not in {path for path, _ in packed.kept}
    assert inside.body != Answer(f"{address}{script}", **{"Accept-Encoding": "gzip"}).body


def test_no_more_bytes_of_scripts_are_kept_than_have_room(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "kept", {})
    (script,) = re.findall(r'src="(/assets/grid[^"]*)"', Answer(address).text)
    gzipped = {"Accept-Encoding": "gzip"}
    monkeypatch.setattr(packed, "MOST_BYTES", 2 * len(Answer(f"{address}{script}", **gzipped).body))
    for number in range(3):
        assert Answer(f"{address}{script}{number}", **gzipped).status == 200
    assert len(packed.kept) == 2  # the script, and one of the three that are as large


def test_probes_and_metrics(address: str, demo_results: Results) -> None:
    assert (Answer(f"{address}/livez").text, Answer(f"{address}/readyz").text) == ("ok", "ok")
    Answer(f"{address}/api/v1/workloads?limit=1")
    metrics = Answer(f"{address}/metrics").text
    assert 'cotenant_dashboard_request_duration_seconds_count{code="200",route="/api/v1/workloads"}' in metrics
    assert "cotenant_dashboard_data_age_seconds" in metrics


def test_requests_for_anything_share_few_labels(address: str) -> None:
    for k in range(20):
        Answer(f"{address}/no/such/{k}")
    routes = {
        line.split('route="')[1].split('"')[0]
        for line in Answer(f"{address}/metrics").text.splitlines()
        if "route=" in line
    }
    assert not any("/no/such" in route for route in routes)


def test_a_base_path_moves_everything_but_the_probes(demo_results: Results) -> None:
    settings = DashboardSettings(port=0, base_path="/co/tenant/")
    with support.served(support.app_of(demo_results, settings)) as address:
        page = Answer(f"{address}/co/tenant/workloads").text
        assert 'src="/co/tenant/_dash-component-suites/' in page and 'dataset.base = "/co/tenant/"' in page
        assert Answer(f"{address}/co/tenant/api/v1/overview").status == 200
        assert Answer(f"{address}/livez").status == Answer(f"{address}/co/tenant/livez").status == 200
        assert Answer(f"{address}/workloads").status == 404


def test_an_empty_store_serves_pages_and_says_so(tmp_path: Path) -> None:
    source = StoreSource(Store(tmp_path.as_uri(), "c"), support.QUICK)
    with support.served(support.app_on(source)) as address:
        assert Answer(address).status == 200
        assert Answer(f"{address}/readyz").status == 200
        missing = Answer(f"{address}/api/v1/overview")
        assert missing.status == 404 and "cotenant scan" in missing.json["fix"]


class Broken:
    """A source that cannot be read."""

    def snapshot(self) -> Snapshot:
        raise StoreError("the disk is gone", fix="Mount it.")

    def explain(self, *_name: str) -> Recommendation | None:
        raise StoreError("the disk is gone", fix="Mount it.")


def test_a_broken_source_is_told_and_the_process_lives(tmp_path: Path) -> None:
    broken: Any = Broken()
    with support.served(support.app_on(broken)) as address:
        assert Answer(f"{address}/livez").status == 200
        ready = Answer(f"{address}/readyz")
        assert (ready.status, ready.text) == (503, "source: the disk is gone")
        response = Answer(f"{address}/api/v1/workloads")
        assert (response.status, response.json["fix"]) == (503, "Mount it.")


def test_a_taken_port_is_an_error_with_a_way_out(demo_results: Results) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(CotenantError) as refused:
        serve(support.app_of(demo_results), "127.0.0.1", taken.getsockname()[1])
    assert "--port" in refused.value.fix


def test_the_command_waits_for_the_first_files_of_a_store_and_says_so(demo_results: Results, tmp_path: Path) -> None:
    place = tmp_path / "store"
    command = [str(Path(sys.executable).parent / "cotenant"), "dashboard", "--store", place.as_uri(), "--port", "0"]
    env = {"HOME": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        text = next(line for line in process.stderr if line.startswith("waiting: "))
        assert f"nothing is stored at {place.as_uri()} yet" in text.strip()
        # what a recorder does first: files appear below the name of its cluster
        shutil.copytree(Path(demo_results.store.url.removeprefix("file://")), place)
        address = next(line.split()[1] for line in process.stderr if line.startswith("open http://127.0.0.1:"))
        assert Answer(f"{address.split('/?token=')[0]}/livez").text == "ok"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def test_the_command_prints_an_address_with_its_token_and_ctrl_c_ends_it_cleanly(
    demo_results: Results, tmp_path: Path
) -> None:
    place = ["--store", demo_results.store.url, "--cluster", demo_results.store.cluster, "--port", "0"]
    command, env = [str(Path(sys.executable).parent / "cotenant"), "dashboard", *place], {"HOME": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        address = next(line.split()[1] for line in process.stderr if line.startswith("open http://127.0.0.1:"))
        base, token = address.split("/?token=")
        assert Answer(f"{base}/livez").text == "ok"
        assert Answer(f"{base}/api/v1/overview").status == 401
        assert Answer(f"{base}/api/v1/overview", Authorization=f"Bearer {token}").status == 200
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
