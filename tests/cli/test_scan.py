"""`cotenant scan` as a user runs it: a real Prometheus, one real process, the clock of the machine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.base.store import Store
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, NodeSource, RecorderStatus
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec, generate
from tests.support.api_server import ApiServer, make_certificate
from tests.support.command_line import LEAN, cotenant
from tests.support.extent import full_rows
from tests.support.faultproxy import FaultProxy
from tests.support.openmetrics import Dress, create_blocks
from tests.support.prometheus import Server

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]
DAYS = 2


@dataclass(frozen=True)
class Shop:
    """A small cluster whose history ends now, and the server that holds it."""

    cluster: SyntheticCluster
    url: str


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    spec = SyntheticSpec(nodes=3, workloads=15, days=DAYS, seed=11, end_seconds=int(time.time()))
    cluster = generate(spec)
    data = tmp_path_factory.mktemp("prometheus") / "data"
    create_blocks(cluster.inventory, cluster.usage, data, Dress(interval_seconds=60))
    # The history ends at the last whole hour, up to 59 minutes ago: the inventory has to be read where it ends.
    with Server(data) as server:
        yield Shop(cluster, server.url)


def scan(shop: Shop, store: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return cotenant(*command(shop, store, *arguments), variables={**LEAN, "HOME": str(store)})


def command(shop: Shop, store: Path, *arguments: str) -> tuple[str, ...]:
    address = ("--prometheus", shop.url, "--store", store.as_uri())
    return ("scan", *address, "--window-days", str(DAYS), *arguments)


def recommended(done: subprocess.CompletedProcess[str]) -> dict[tuple[str, ...], dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return {(r["namespace"], r["kind"], r["workload"], r["container"]): r for r in json.loads(done.stdout)}


def test_a_scan_whose_questions_for_counters_fail_is_partial_and_lowers_no_memory(shop: Shop, tmp_path: Path) -> None:
    with FaultProxy(shop.url) as proxy:
        proxy.fault = lambda _, query: "503-html" if "status_restarts_total" in query and "last_over" in query else None
        broken = Shop(shop.cluster, proxy.url)
        done = scan(broken, tmp_path, "-o", "json", "--set", "profiler.prometheus.outage_seconds=0")
    assert done.returncode == 4, done.stderr
    assert "incomplete: parts of the history were not read: oom_kills" in done.stderr
    assert "answered 503" in done.stderr
    rows = json.loads(done.stdout)
    assert any(row["memory_reason"] == "history-incomplete" for row in rows)
    assert all(row["cpu_reason"] != "history-incomplete" for row in rows)


@pytest.mark.parametrize(
    ("fault", "phrase", "fix"),
    [
        ("401", "answered 401", "Give credentials"),
        *full_rows(
            ("500", "answered 500", "Read the server's log"),
            ("503-html", "answered 503", "Read the server's log"),
            ("429", "answered 429", "in_flight at 1"),
            ("422-too-large", "answered 422", "fix:"),
            ("hang", "did not answer 5 times in a row", "fix:"),
        ),
    ],
)
def test_a_scan_whose_usage_questions_all_fail_ends_with_the_servers_own_error(
    shop: Shop, tmp_path: Path, fault: str, phrase: str, fix: str
) -> None:
    impatient = ("profiler.prometheus.outage_seconds=0", "profiler.prometheus.timeout_seconds=2")
    with FaultProxy(shop.url) as proxy:
        proxy.fault = lambda _, query: fault if "rate(" in query else None
        done = scan(Shop(shop.cluster, proxy.url), tmp_path, *(word for text in impatient for word in ("--set", text)))
    assert done.returncode == 1, done.stderr
    assert phrase in done.stderr
    assert "has no usage" not in done.stderr
    assert fix in done.stderr


def test_a_scan_recommends_for_every_container_that_runs(shop: Shop, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("cotenant")
    environment = {**LEAN, "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    arguments = command(shop, tmp_path, "-o", "json")
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=300, env=environment, check=False
    )
    by_container = recommended(done)
    running = {
        (w.ref.namespace, w.ref.kind, w.ref.name, c.name)
        for w in shop.cluster.inventory.workloads
        for c in w.containers
        if w.replicas
    }
    assert running <= set(by_container)
    assert f"asking prometheus {shop.url}" in done.stderr
    assert any(r["cpu_request"] for r in by_container.values())


@pytest.mark.soak
def test_a_second_scan_says_the_same(shop: Shop, tmp_path: Path) -> None:
    first, second = (recommended(scan(shop, tmp_path, "-o", "json")) for _ in range(2))
    assert set(first) == set(second)
    # The second runs some seconds later, so at most the newest slot of the history differs.
    same = sum(first[k]["memory_request"] == second[k]["memory_request"] for k in first)
    assert same >= 0.95 * len(first)


def test_a_percentile_strategy_asks_the_server_at_its_own_resolution(shop: Shop, tmp_path: Path) -> None:
    by_container = recommended(scan(shop, tmp_path, "--strategy", "krr-simple", "-o", "json"))
    row = next(r for r in by_container.values() if r["cpu_action"] == "set")
    name = f"{row['namespace']}/{row['kind']}/{row['workload']}"
    done = cotenant("explain", name, "--container", row["container"], "--store", tmp_path.as_uri(), "-o", "json")
    explained = json.loads(done.stdout)[0]
    assert explained["strategy"] == "krr-simple"
    assert "75" in json.dumps([v["inputs"] for v in explained["values"]])


def test_an_address_where_nobody_listens_is_an_error_with_a_fix(tmp_path: Path) -> None:
    done = scan(Shop(None, "http://127.0.0.1:9"), tmp_path)  # type: ignore[arg-type]
    assert done.returncode == 1
    assert "no connection to 127.0.0.1:9: Failed to establish a new connection" in done.stderr
    assert "HTTPConnectionPool" not in done.stderr
    assert "fix:" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_without_usage_is_named_and_not_recommended_once_more(tmp_path: Path) -> None:
    with Server(tmp_path / "empty", ()) as server:
        done = scan(Shop(None, server.url), tmp_path / "store")  # type: ignore[arg-type]
    assert done.returncode == 1
    assert f"{server.url} answers, but has no usage of containers in the last {DAYS} days" in done.stderr
    assert "Run cotenant scan" not in done.stderr


def test_a_scan_of_the_wrong_server_leaves_no_cluster_and_the_next_scan_reads_the_whole_window(
    shop: Shop, tmp_path: Path
) -> None:
    with Server(tmp_path / "empty", ()) as server:
        wrong = Shop(shop.cluster, server.url)
        assert scan(wrong, tmp_path / "store").returncode == 1
        assert Store.clusters((tmp_path / "store").as_uri()) == ()
        assert len(recommended(scan(shop, tmp_path / "store", "-o", "json"))) > 10
        refused = scan(wrong, tmp_path / "store")
        assert refused.returncode == 1 and "has no CPU usage of any container" in refused.stderr
    assert len(recommended(scan(shop, tmp_path / "store", "--offline", "-o", "json"))) > 10, "what is stored stays"


@contextmanager
def api_with_prometheus(shop: Shop, folder: Path) -> Iterator[tuple[ApiServer, Path]]:
    """An API server of cluster `shop` with a Service of its Prometheus, and a kubeconfig of jane."""
    for name, signer in (("authority", None), ("server", "authority"), ("jane", "authority")):
        make_certificate(folder, name, signer)
    api = ApiServer(folder / "server.pem", folder / "authority.pem")
    labels = {"app.kubernetes.io/name": "prometheus", "app.kubernetes.io/component": "server"}
    metadata = {"name": "prometheus", "namespace": "monitoring", "labels": labels}
    api.objects["/api/v1/services"] = [{"metadata": metadata, "spec": {"ports": [{"name": "http", "port": 9090}]}}]
    api.objects["/api/v1/pods"] = []
    api.proxies["/api/v1/namespaces/monitoring/services/prometheus:9090/proxy"] = shop.url
    user = {"client-certificate": str(folder / "jane.pem"), "client-key": str(folder / "jane.key")}
    try:
        yield api, kubeconfig(folder, api.url, user)
    finally:
        api.stop()


def scan_without_address(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    arguments = ("scan", "--kubeconfig", str(config), "--store", (folder / "store").as_uri())
    variables = {**LEAN, "HOME": str(folder)}
    return cotenant(*arguments, "--window-days", str(DAYS), "-o", "json", variables=variables)


def test_without_an_address_the_clusters_own_prometheus_is_found_and_asked(shop: Shop, tmp_path: Path) -> None:
    with api_with_prometheus(shop, tmp_path) as (api, config):
        done = scan_without_address(config, tmp_path)
    assert len(recommended(done)) > 10
    assert "found by its Service's labels, through the API server" in done.stderr
    # every request, those to Prometheus too, was made with the kubeconfig's client certificate
    assert {name for _, _, name in api.requests} == {"jane"}
    # and with the right `get` alone: a POST would need `create` on services/proxy
    assert api.methods == {"GET"}
    assert (tmp_path / "store" / "shop").is_dir()


@pytest.mark.parametrize(
    ("cluster", "recorded_days", "is_asked"),
    [("shop", 0.01, True), ("shop", DAYS + 1, False), ("another", 0.01, False)],
    ids=["shorter than the window", "the whole window", "of another cluster than the kubeconfig"],
)
def test_what_was_before_a_recording_comes_from_the_clusters_own_prometheus(
    shop: Shop, tmp_path: Path, cluster: str, recorded_days: float, is_asked: bool
) -> None:
    store, now = Store((tmp_path / "store").as_uri(), cluster), time.time()
    status = RecorderStatus(now - recorded_days * 86_400, now, int(now), nodes={NodeSource.KUBELET: 3})
    store.write_document(STATUS_DOCUMENT, status)
    with api_with_prometheus(shop, tmp_path) as (api, config):
        target = ("--cluster", cluster)
        arguments = ("scan", "--kubeconfig", str(config), "--store", store.url, *target, "--window-days", str(DAYS))
        done = cotenant(*arguments, "-o", "json", variables={**LEAN, "HOME": str(tmp_path)})

    assert "reading the recorder (3 nodes from kubelet): recording since" in done.stderr
    assert ("found by its Service's labels" in done.stderr) is is_asked
    assert any(path.startswith("/api/v1/services") for path, _, _ in api.requests) is is_asked
    if is_asked:
        assert len(recommended(done)) > 10
    else:  # the recording itself has no usage here
        assert done.returncode == 1 and "has no usage yet" in done.stderr


def test_a_clusters_own_prometheus_that_does_not_answer_leaves_the_recording_as_it_is(
    shop: Shop, tmp_path: Path
) -> None:
    with api_with_prometheus(shop, tmp_path) as (api, config):
        first = scan_without_address(config, tmp_path)
        store, now = Store((tmp_path / "store").as_uri(), "shop"), time.time()
        status = RecorderStatus(now - 3600, now, int(now), nodes={NodeSource.KUBELET: 3})
        store.write_document(STATUS_DOCUMENT, status)
        api.proxies.clear()
        again = scan_without_address(config, tmp_path)

    assert recommended(again).keys() == recommended(first).keys()
    assert "has no data from before the recorder started" in again.stderr


def test_who_may_not_look_for_prometheus_is_told_to_name_it(tmp_path: Path) -> None:
    make_certificate(tmp_path, "authority")
    api = ApiServer(None, None)
    api.forbidden = {"/api/v1/services"}
    config = kubeconfig(tmp_path, api.url, {"token": "jane"})
    done = cotenant("scan", "--kubeconfig", str(config), variables={**LEAN, "HOME": str(tmp_path)})
    api.stop()
    assert done.returncode == 1
    assert "cannot list services" in done.stderr
    assert "Give --prometheus URL" in done.stderr
    assert 'resources: ["services"], verbs: ["list"]' in done.stderr


def kubeconfig(folder: Path, server: str, user: dict[str, str]) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "shop",
        "clusters": [
            {"name": "c", "cluster": {"server": server, "certificate-authority": str(folder / "authority.pem")}}
        ],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "shop", "context": {"cluster": "c", "user": "u"}}],
    }
    path = folder / "kubeconfig.yaml"
    path.write_text(yaml.safe_dump(document))
    return path
