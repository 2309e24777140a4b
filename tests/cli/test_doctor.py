"""`cotenant doctor`: every probe against the real thing: folders, a store, HTTP servers, Prometheus, an API server."""

from __future__ import annotations

import http.server
import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from cotenant.base.errors import StoreError
from cotenant.base.identity import PodContainerRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.store import Store
from cotenant.base.store.files import Folder
from cotenant.base.usage.quality import Defect, QualityRecord
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal, TimeGrid, Usage
from cotenant.cli.cluster.probes import machine, metrics, storage
from cotenant.cli.cluster.probes.outcome import Probe, ProbeOutcome, ProbeState
from cotenant.cli.main import root
from cotenant.profiler.prometheus.survey import NEEDED
from cotenant.profiler.settings import ProfilerSettings, PrometheusSettings
from tests.support.api_server import ApiServer
from tests.support.faultproxy import FaultProxy
from tests.support.overview import overview
from tests.support.prometheus_server import serve

NOON = 1_795_089_600  # a multiple of a day plus 12 hours


def invoke(*args: str, home: Path) -> Any:
    env = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": "",
        "XDG_DATA_HOME": "",
        "KUBECONFIG": "",
        "KUBERNETES_SERVICE_HOST": "",
    }
    return CliRunner().invoke(root, ["doctor", *args], env=env)


# ---- the command


def test_every_gap_of_a_fresh_machine_has_a_fix_and_what_is_required_and_was_not_tried_fails(tmp_path: Path) -> None:
    result = invoke("-o", "json", home=tmp_path)
    findings = {f["probe"]: f for f in json.loads(result.stdout)}
    assert result.exit_code == 1
    assert [p for p, f in findings.items() if f["required"] and f["state"] != "ok"] == ["prometheus"]
    assert [findings[p]["state"] for p in ("python", "settings", "store")] == ["ok", "ok", "ok"]
    assert findings["history"]["state"] == findings["prometheus"]["state"] == "skipped"
    assert all(f["tried"] and f["found"] and (f["fix"] or f["state"] == "ok") for f in findings.values())
    assert list(tmp_path.iterdir()) == [], "a doctor leaves nothing behind"


@pytest.mark.slow
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_prometheus_that_was_not_looked_for_is_told_last_with_why_and_what_to_give(
    tmp_path: Path, output: str
) -> None:
    result = invoke("-o", output, home=tmp_path)
    assert result.exit_code == 1
    (last,) = result.stderr.splitlines()
    assert last.startswith("prometheus: no Prometheus was checked: no address is set, and none was found in a cluster.")
    assert "cotenant doctor --prometheus URL" in last
    assert "nothing was checked" not in invoke("--prometheus", "http://127.0.0.1:9", home=tmp_path).output


def test_all_formats_tell_the_same_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The store's probe tells the free space, which others change between two calls
    space = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: space)
    as_json = json.loads(invoke("-o", "json", home=tmp_path).stdout)
    assert yaml.safe_load(invoke("-o", "yaml", home=tmp_path).stdout) == as_json
    lines = invoke(home=tmp_path).stdout.splitlines()
    heads = [line.split(":")[0] for line in lines if not line.startswith(" ")]
    assert heads == [f["probe"] for f in as_json]
    assert [line[9:] for line in lines if line.startswith("  found")] == [f["found"] for f in as_json]


def test_wrong_settings_end_the_examination_with_code_1(tmp_path: Path) -> None:
    result = invoke("--set", "dashboard.prt=1", "-o", "json", home=tmp_path)
    last = json.loads(result.stdout)[-1]
    assert result.exit_code == 1
    assert (last["probe"], last["state"], last["required"]) == ("settings", "failed", True)
    assert "did you mean 'dashboard.port'" in last["found"]


def test_a_store_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = invoke("--store", f"file://{tmp_path}/file/inside", "-o", "json", home=tmp_path)
    finding = next(f for f in json.loads(result.stdout) if f["probe"] == "store")
    assert result.exit_code == 1
    assert (finding["state"], finding["found"]) == ("failed", f"{tmp_path}/file cannot be written: Not a directory")


# ---- a probe


def test_an_error_of_ours_is_a_finding_with_its_fix() -> None:
    def fail() -> ProbeOutcome:
        raise StoreError("full", fix="Make room.")

    must, may = Probe("p", "t", required=True).run(fail), Probe("p", "t").run(fail)
    assert (must.state, must.found, must.fix, must.fatal) == (ProbeState.FAILED, "full", "Make room.", True)
    assert (may.state, may.fatal) == (ProbeState.WARNING, False)


def test_a_fault_of_a_probe_is_a_finding_too() -> None:
    finding = Probe("p", "t").run(lambda: ProbeOutcome(ProbeState.OK, str(1 // 0)))
    assert (finding.state, finding.fatal) == (ProbeState.FAILED, False)
    assert finding.found.startswith("unexpected ZeroDivisionError")


# ---- machine


def test_a_missing_package_takes_its_extra_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PACKAGES", {"base": ("numpy",), "scan": ("no-such-distribution-here",)})
    outcome = machine.packages()
    assert (outcome.state, outcome.found) == (ProbeState.WARNING, "scan lacks no-such-distribution-here")
    assert 'pip install "cotenant[scan]"' in outcome.fix
    monkeypatch.setattr(machine, "PACKAGES", {"base": ("no-such-distribution-here",)})
    assert machine.packages().state is ProbeState.FAILED


def test_an_extra_that_few_need_is_named_and_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PACKAGES", {"base": ("numpy",), "mcp": ("no-such-distribution-here",)})
    outcome = machine.packages()
    assert (outcome.state, outcome.found) == (ProbeState.OK, "complete: base; not installed, and seldom needed: mcp")


# ---- storage


@pytest.mark.parametrize(
    "url", ["file:///a%20b/c", "file:///a b/ü", "/plain", "rel/c", "~/x", "file:~/x", "file:/x", "file://x/y"]
)
def test_a_local_store_is_looked_for_where_a_scan_writes_it(url: str) -> None:
    assert str(storage.local_folder(url)) == Folder(url).path("").rstrip("/")


@pytest.mark.parametrize("url", ["s3://bucket/x", "memory://x"])
def test_a_remote_store_has_no_local_folder(url: str) -> None:
    assert storage.local_folder(url) is None


def test_writability_is_tried_where_the_store_will_be_without_making_it(tmp_path: Path) -> None:
    outcome = storage.writable(tmp_path / "a" / "b")
    assert outcome.state is ProbeState.OK
    assert outcome.found.startswith(f"{tmp_path}/a/b will be made and is writable")
    assert list(tmp_path.iterdir()) == []


def test_a_remote_store_is_listed_only() -> None:
    assert "has 0 clusters; writing was not tried" in storage.probe_remote_store("memory://doctor-nothing").found


def stored(folder: Path) -> Store:
    """Two days of one container's usage that end at NOON."""
    store = Store(folder.as_uri(), "shop")
    grid = TimeGrid.from_span(NOON - 2 * DAY_SECONDS, NOON, 300)
    values = np.full((1, grid.size), 100.0, dtype=np.float32)
    spec = Signal.CPU_USAGE_MEAN.spec
    store.append(
        Signal.CPU_USAGE_MEAN,
        Usage((PodContainerRef("n", "p", "c"),), grid, values, spec.resource, spec.statistic),
    )
    return store


def test_history_says_span_age_coverage_and_dirt(tmp_path: Path) -> None:
    store = stored(tmp_path)
    store.append_quality(
        QualityRecord(NOON, "prometheus http://p", 60.0, 9, 1000, defects={Defect.DUPLICATE_SERIES: 2})
    )
    line = "shop: 2.0 days of usage, newest sample 2.0 h ago, from prometheus http://p, 2 x duplicate-series"
    assert storage.history(store.url, NOON + 2 * HOUR_SECONDS) == ProbeOutcome(ProbeState.OK, line)
    # what the overview shows of the last analysis; it is never rounded up to the whole
    store.write_document("overview", replace(overview(), coverage=0.9996))
    present = line.replace("from", "99.9 % of samples present, from")
    assert storage.history(store.url, NOON + 2 * HOUR_SECONDS) == ProbeOutcome(ProbeState.OK, present)


def test_without_any_recorder_there_is_nothing_to_mend(tmp_path: Path) -> None:
    assert storage.recordings(stored(tmp_path).url, NOON).state is ProbeState.SKIPPED


def test_old_history_is_a_warning(tmp_path: Path) -> None:
    assert storage.history(stored(tmp_path).url, NOON + 3 * DAY_SECONDS).state is ProbeState.WARNING


def test_a_day_set_aside_is_a_warning(tmp_path: Path) -> None:
    store = stored(tmp_path)
    broken = sorted(tmp_path.rglob("*.parquet"))[0]
    broken.write_bytes(b"garbage")
    store.read(Signal.CPU_USAGE_MEAN, TimeGrid.from_span(NOON - 2 * DAY_SECONDS, NOON, 300))
    outcome = storage.history(store.url, NOON)
    assert outcome.state is ProbeState.WARNING
    assert "1 unreadable day set aside" in outcome.found


# ---- Prometheus


def profiler(url: str, **more: Any) -> ProfilerSettings:
    return ProfilerSettings(prometheus=PrometheusSettings(url=url, retries=0, connect_timeout_seconds=2.0, **more))


@pytest.fixture
def answering() -> Iterator[Callable[[int, bytes], str]]:
    """A server that gives every request the same answer."""
    servers = []

    def start(code: int, body: bytes) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815 - http.server's name

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.server
@pytest.mark.parametrize(
    ("data", "names", "phrase"),
    [
        ({"resultType": "matrix", "result": []}, ["up"], "CPU usage is unknown"),
        ({"resultType": "matrix", "result": []}, sorted(NEEDED), "no series of container_cpu_usage_seconds_total has"),
    ],
)
def test_a_source_on_which_a_scan_must_fail_is_a_fatal_finding(data: object, names: list[str], phrase: str) -> None:
    server = ApiServer(None, None)
    prometheus = "/api/v1/namespaces/mon/services/prom/proxy"  # where questions are GETs, which the server answers
    server.objects[f"{prometheus}/api/v1/label/__name__/values"] = {"status": "success", "data": names}
    server.objects[f"{prometheus}/api/v1/query_range"] = {"status": "success", "data": data}
    findings = list(metrics.probes(profiler(server.url + prometheus), FixedClock(NOON)))
    server.stop()
    assert [f.found for f in findings if f.fatal and phrase in f.found]
    assert [f.probe for f in findings if f.state is ProbeState.OK and f.required] in (
        ["prometheus"],
        ["prometheus", "prometheus metrics"],
    ), "an empty answer is not called well"


@pytest.mark.parametrize(
    ("code", "body", "phrase", "fix"),
    [
        (401, b"", "answered 401", "Give credentials"),
        (403, b"", "answered 403", "Give credentials"),
        (200, b"<html>Login</html>", "not JSON", "not Prometheus' API"),
        (
            200,
            b'{"status":"success","data":[]}',
            "has no metric of the last 14 days",
            "Check the address and the tenant",
        ),
    ],
)
def test_a_source_that_gives_nothing_is_the_last_finding(
    answering: Callable[[int, bytes], str], code: int, body: bytes, phrase: str, fix: str
) -> None:
    (finding,) = metrics.probes(profiler(answering(code, body)), FixedClock(NOON))
    assert finding.fatal
    assert phrase in finding.found
    assert fix in finding.fix


@pytest.mark.server
def test_a_doctor_asks_with_the_credentials_of_a_scan(tmp_path: Path) -> None:
    server = ApiServer(None, None)
    server.tokens = {"Bearer right"}
    token = tmp_path / "token"
    for word, text in (("wrong", "answered 401"), ("right", "answered 404")):
        token.write_text(word)
        for credentials in (("--bearer-token-file", str(token)), ("--header", f"Authorization: Bearer {word}")):
            result = invoke("--prometheus", server.url, *credentials, "-o", "json", home=tmp_path)
            finding = next(f for f in json.loads(result.stdout) if f["probe"] == "prometheus")
            assert (result.exit_code, text in finding["found"]) == (1, True), finding
    server.stop()


@pytest.mark.server
def test_nobody_there_is_a_fatal_finding() -> None:
    with socket.socket() as taken:  # bound, never listening: a connection is refused
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        (finding,) = metrics.probes(profiler(url), FixedClock(NOON))
    assert finding.fatal
    assert "no connection to 127.0.0.1" in finding.found


@pytest.mark.server
def test_a_password_in_an_address_is_not_shown(answering: Callable[[int, bytes], str]) -> None:
    url = answering(401, b"").replace("://", "://me:s3cret@")
    (finding,) = metrics.probes(profiler(url), FixedClock(NOON))
    assert "s3cret" not in finding.found + finding.fix + finding.tried


@pytest.mark.slow
@pytest.mark.prometheus
def test_a_real_prometheus_is_understood(tmp_path: Path) -> None:
    from cotenant_lab.synthetic import SyntheticSpec, generate
    from tests.support.openmetrics import Dress
    from tests.support.openmetrics.blocks import create_blocks

    cluster = generate(SyntheticSpec(nodes=2, workloads=8, days=2, seed=5, end_seconds=NOON))
    (tmp_path / "data").mkdir()
    create_blocks(cluster.inventory, cluster.usage, tmp_path / "data", Dress(interval_seconds=300))
    with serve(tmp_path / "data") as url:
        findings = list(metrics.probes(profiler(url), FixedClock(NOON - 300)))
        with FaultProxy(url) as proxy:
            proxy.fault = lambda _, query: "429" if "rate(" in query else None
            probe_findings = metrics.probes(profiler(proxy.url), FixedClock(NOON - 300))
            refused = next(f for f in probe_findings if f.probe == "prometheus usage")
        (elsewhere, *_) = metrics.probes(profiler(url), FixedClock(NOON + 15 * DAY_SECONDS))
    reached, present, interval, newest, clusters_finding, usage, span = findings
    assert reached.state is ProbeState.OK
    assert present.state is ProbeState.OK, present.found
    # Dressed at 300 s: slower than the 120 s from which short peaks are lost.
    assert (interval.state, interval.found.split(",")[0]) == (ProbeState.WARNING, "every 300 s")
    # Two days that end at noon hold 11:55 of today and of yesterday; 11:55 of the day before is 5 minutes too early.
    assert (span.state, span.found) == (ProbeState.WARNING, "containers are seen at 2 of 14 daily checks")
    assert (usage.state, refused.state, refused.required) == (ProbeState.OK, ProbeState.FAILED, True)
    assert "429" in refused.found
    assert "in_flight" in refused.fix
    assert newest.state is ProbeState.OK, newest.found
    assert clusters_finding.state is ProbeState.OK, clusters_finding.found
    assert elsewhere.fatal, "fifteen days later the window of a scan is empty"
