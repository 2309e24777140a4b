"""`cotenant doctor` about a Kubernetes API: rights, definitions, profiles, and the Prometheus that it leads to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.base.controllers.audit import Audit
from cotenant.base.controllers.feature import ControllerCondition, FeatureState
from cotenant.base.kubernetes.intent import Apply, Outcome
from cotenant.base.logs.metrics import Metrics
from cotenant.base.settings.sections import KubeSettings
from cotenant.cli.analysis.metric_source import found_prometheus
from cotenant.cli.cluster.probes import cluster, reclaimed
from cotenant.cli.cluster.probes.outcome import ProbeState
from cotenant.manager.feature_status import Board
from cotenant.profiler.prometheus.client import Client
from cotenant.settings import Settings
from tests.cli.test_doctor import invoke
from tests.support.api_server import ApiServer, Tunnel, make_certificate

STATUS = "/api/v1/namespaces/koordinator-system/configmaps/cotenant-status"
CONFIGURATION = "/api/v1/namespaces/koordinator-system/configmaps/slo-controller-config"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    make_certificate(tmp_path, "authority")
    make_certificate(tmp_path, "server", "authority")
    server = ApiServer(tmp_path / "server.pem", tmp_path / "authority.pem")
    server.objects["/version"] = {"gitVersion": "v1.33.1"}
    for path in cluster.scan_resource_paths().values():
        server.objects[path] = []
    yield server
    server.stop()


@pytest.fixture
def settings(api: ApiServer, tmp_path: Path) -> KubeSettings:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "shop",
        "clusters": [
            {"name": "c", "cluster": {"server": api.url, "certificate-authority": str(tmp_path / "authority.pem")}}
        ],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "shop", "context": {"cluster": "c", "user": "u"}}],
    }
    path = tmp_path / "kubeconfig.yaml"
    path.write_text(yaml.safe_dump(document))
    return KubeSettings(kubeconfig=str(path), timeout_seconds=2.0, retries=0)


@pytest.mark.slow
@pytest.mark.server
def test_a_good_cluster_is_four_good_findings(api: ApiServer, settings: KubeSettings) -> None:
    api.objects["/api/v1/services"] = [
        {
            "metadata": {"name": "prom", "namespace": "mon", "labels": {"app.kubernetes.io/name": "prometheus"}},
            "spec": {"ports": [{"name": "web", "port": 9090}]},
        }
    ]
    findings = list(cluster.probes(settings))
    assert [f.state for f in findings] == [ProbeState.OK] * 4
    assert findings[0].found == f"shop at {api.url}"
    assert findings[1].found == "answers, version v1.33.1"
    assert findings[3].found == "Prometheus mon/prom:9090"
    # Rights are tried with one object of each kind, never with a whole list.
    texts = [path for path, *_ in api.requests if not path.startswith("/openapi/v3/")]
    assert texts == [
        "/version",
        *(f"{path}?limit=1" for path in cluster.scan_resource_paths().values()),
        CONFIGURATION,
        STATUS,
        "/api/v1/services?limit=500",
        "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles?limit=500",
    ]


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize(
    ("data", "faults"),
    [
        (None, []),
        ({"colocation-config": '{"enable": true}'}, []),
        ({"colocation-config": '{"enable": "yes"}'}, ["'yes' is not true or false"]),
        ({"colocation-config": '{"enabel": true}'}, ["do you mean enable?"]),
        ({"colocation-config": '{"enable": true, "enable": false}'}, ["is the last of several values of this member"]),
        ({"colocation_config": "{}"}, ["do you mean colocation-config?"]),
        (
            {"colocation-config": "enable: true", "resource-threshold-config": '{"clusterStrategy": {"enabel": 1}}'},
            ["is not JSON", "do you mean enable?"],
        ),
    ],
)
def test_what_is_wrong_in_the_configuration_of_colocation_is_named(
    api: ApiServer, settings: KubeSettings, data: dict[str, str] | None, faults: list[str]
) -> None:
    api.objects[CONFIGURATION] = {"metadata": {"name": "slo-controller-config"}, "data": data}
    warnings = [finding for finding in cluster.probes(settings) if finding.probe == "colocation configuration"]
    assert [finding.state for finding in warnings] == ([ProbeState.WARNING] if faults else [])
    for finding in warnings:
        assert all(word in finding.found for word in faults)
        assert "cotenant config check slo-config" in finding.fix


@pytest.mark.slow
@pytest.mark.server
def test_objects_that_the_manager_leaves_out_are_named_with_their_reasons(
    api: ApiServer, settings: KubeSettings
) -> None:
    board = Board("koordinator-system", Audit(Metrics("test", "3")), None)
    board.report(FeatureState("queues", ControllerCondition.UP))
    for objects in ({"pods/shop/web-0": "the program stood still"}, {}):
        board.leave_out("queues", objects)
        (intent,) = board.decide({}, 1_700_000_000.0).intents
        assert isinstance(intent, Apply)
        api.objects[STATUS] = {"metadata": {"name": "cotenant-status"}, "data": intent.body["data"]}
        board.sent([Outcome(intent)])
        left_out = [finding for finding in cluster.probes(settings) if finding.probe == "objects left out"]
        assert [finding.state for finding in left_out] == ([ProbeState.WARNING] if objects else [])
        assert all("1 object is left out: pods/shop/web-0: the program stood still" in f.found for f in left_out)


@pytest.mark.server
def test_namespaces_that_refuse_the_pods_of_a_profile_are_named_with_the_bound(
    api: ApiServer, settings: KubeSettings
) -> None:
    batch = {"qosClass": "BE", "priorityClassName": "koord-batch", "selector": {"matchLabels": {"role": "executor"}}}
    here = {"namespaceSelector": {"matchLabels": {"colocated": "yes"}}}
    api.objects[reclaimed.PROFILES] = [{"metadata": {"name": "spark"}, "spec": {**batch, **here}}]
    api.objects[reclaimed.PRIORITY_CLASSES] = [{"metadata": {"name": "koord-batch"}, "value": 5000}]
    api.objects[reclaimed.NAMESPACES] = [
        {"metadata": {"name": name, "labels": {"colocated": "yes"} if name != "other" else {}}}
        for name in ("ranged", "counted", "scoped", "defaults", "other")
    ]
    api.objects["/api/v1/limitranges"] = [
        _bound("ranged", {"limits": [{"type": "Pod", "max": {"cpu": "8"}}]}),
        _bound("defaults", {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}),
        _bound("other", {"limits": [{"type": "Pod", "max": {"cpu": "8"}}]}),
    ]
    api.objects["/api/v1/resourcequotas"] = [
        _bound("counted", {"hard": {"requests.cpu": "100"}}),
        _bound("scoped", {"hard": {"requests.cpu": "100"}, "scopes": ["NotBestEffort"]}),
    ]
    *_, finding, _ = cluster.probes(settings)
    assert (finding.probe, finding.state) == ("reclaimed pods", ProbeState.WARNING)
    # of five namespaces two refuse: one by a bound on pods, one by a quota that counts pods without requests, too
    assert finding.found.count("namespace ") == 2
    assert "ranged, profile spark" in finding.found and "LimitRange team has a max of cpu for pods" in finding.found
    assert "counted, profile spark: quota team requires requests.cpu" in finding.found
    assert "NotBestEffort" in finding.fix


@pytest.mark.slow
@pytest.mark.server
def test_pods_that_were_created_without_the_profile_that_selects_them_are_named(
    api: ApiServer, settings: KubeSettings
) -> None:
    def created(name: str, at: str = "2026-11-20T12:00:00Z", namespace: str = "jobs", **more: Any) -> dict[str, Any]:
        meta = {"name": name, "namespace": namespace, "creationTimestamp": at, "labels": {"role": "executor"}}
        return {"metadata": meta | more, "spec": {"schedulerName": "default-scheduler"}}

    batch = {"qosClass": "BE", "selector": {"matchLabels": {"role": "executor"}}}
    edited = [{"manager": "kubectl", "operation": "Update", "time": "2026-11-20T10:00:00Z"}]
    meta = {"name": "spark", "creationTimestamp": "2026-11-01T00:00:00Z", "managedFields": edited}
    half = {"qosClass": "BE", "probability": "50%", "selector": {"matchLabels": {"role": "maybe"}}}
    api.objects[reclaimed.PROFILES] = [
        {"metadata": meta, "spec": batch},
        {"metadata": {**meta, "name": "half"}, "spec": half},
    ]
    api.objects[reclaimed.PRIORITY_CLASSES] = []
    for path in ("/api/v1/limitranges", "/api/v1/resourcequotas"):
        api.objects[path] = []
    api.objects[reclaimed.NAMESPACES] = [{"metadata": {"name": name}} for name in ("jobs", "kube-system")]
    api.objects[reclaimed.PODS] = [
        created("missed"),
        created("translated", labels={"role": "executor", "koordinator.sh/qosClass": "BE"}),
        created("changed later by hand", labels={"role": "executor", "koordinator.sh/qosClass": "LS"}),
        created("before the profile was edited", at="2026-11-20T09:00:00Z"),
        created("of nobody's choice", labels={"role": "web"}),
        created("of a share", labels={"role": "maybe"}),
        created("of the system", namespace="kube-system"),
        created("static", annotations={"kubernetes.io/config.mirror": "digest"}),
    ]
    *_, finding = cluster.probes(settings)
    assert (finding.probe, finding.state) == ("pods without their profile", ProbeState.WARNING)
    assert "not called for jobs/missed (profile spark): these pods" in finding.found
    assert "rollout restart" in finding.fix
    pods: Any = api.objects[reclaimed.PODS]
    api.objects[reclaimed.PODS] = pods[1:]
    *_, finding = cluster.probes(settings)
    assert finding.state is ProbeState.OK


def _bound(namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "team", "namespace": namespace}, "spec": spec}


@pytest.mark.server
def test_the_prometheus_that_a_scan_would_find_is_tried(api: ApiServer, settings: KubeSettings, tmp_path: Path) -> None:
    labels = {"app.kubernetes.io/name": "prometheus"}
    metadata = {"name": "prom", "namespace": "mon", "labels": labels}
    api.objects["/api/v1/services"] = [{"metadata": metadata, "spec": {"ports": [{"name": "web", "port": 9090}]}}]
    api.forbidden = {"/api/v1/namespaces/mon/services/prom:9090/proxy/api/v1/label/__name__/values"}
    result = invoke("--kubeconfig", settings.kubeconfig, "-o", "json", home=tmp_path)
    finding = next(f for f in json.loads(result.stdout) if f["probe"] == "prometheus")
    assert (result.exit_code, finding["state"]) == (1, "failed")
    assert "answered 403" in finding["found"]
    assert "services/proxy" in finding["fix"]


@pytest.mark.slow
@pytest.mark.server
def test_rights_are_tried_also_where_the_certificate_is_not_verified(api: ApiServer, settings: KubeSettings) -> None:
    path = Path(settings.kubeconfig)
    document = yaml.safe_load(path.read_text())
    document["clusters"][0]["cluster"] = {"server": api.url, "insecure-skip-tls-verify": True}
    path.write_text(yaml.safe_dump(document))
    first, *others = cluster.probes(settings)
    assert first.state is ProbeState.WARNING
    assert "not verified" in first.found
    assert [f.probe for f in others] == ["kubernetes api", "kubernetes rights", "kubernetes prometheus"]


@pytest.mark.server
def test_a_missing_right_is_named_with_the_rule_that_grants_it(api: ApiServer, settings: KubeSettings) -> None:
    api.forbidden = {"/api/v1/pods", "/apis/autoscaling/v2/horizontalpodautoscalers", "/api/v1/resourcequotas"}
    findings = {f.probe: f for f in cluster.probes(settings)}
    rights = findings["kubernetes rights"]
    assert rights.state is ProbeState.WARNING
    assert rights.found == "may not list pods, horizontalpodautoscalers.autoscaling, resourcequotas"
    assert 'verbs ["list"] on pods, horizontalpodautoscalers.autoscaling, resourcequotas' in rights.fix


@pytest.mark.server
def test_a_refused_token_ends_the_examination_without_failing_the_doctor(
    api: ApiServer, settings: KubeSettings
) -> None:
    api.tokens = {"Bearer other"}
    *_, last = cluster.probes(settings)
    assert (last.probe, last.state, last.fatal) == ("kubernetes api", ProbeState.WARNING, False)
    assert "401" in last.found
    assert last.fix


def test_no_kubeconfig_is_a_warning_that_says_where_one_is_looked_for(tmp_path: Path) -> None:
    (finding,) = cluster.probes(KubeSettings(kubeconfig=str(tmp_path / "none.yaml")))
    assert (finding.probe, finding.state) == ("kubeconfig", ProbeState.WARNING)
    assert "--kubeconfig" in finding.fix


@pytest.mark.server
def test_a_prometheus_behind_the_api_server_is_asked_as_the_kubeconfig_reaches_that(
    settings: KubeSettings, tmp_path: Path
) -> None:
    # the certificate is of another name (tls-server-name), and the way leads through a proxy with a password
    make_certificate(tmp_path, "named", "authority", host="kubernetes.example")
    server, tunnel = ApiServer(tmp_path / "named.pem", None), Tunnel("ann:secret")
    threading.Thread(target=tunnel.serve_forever, args=(0.02,), daemon=True).start()
    metadata = {"name": "prom", "namespace": "mon", "labels": {"app.kubernetes.io/name": "prometheus"}}
    server.objects["/api/v1/services"] = [{"metadata": metadata, "spec": {"ports": [{"name": "web", "port": 9090}]}}]
    names = "/api/v1/namespaces/mon/services/prom:9090/proxy/api/v1/label/__name__/values"
    server.objects[names] = {"status": "success", "data": ["up"]}
    document = yaml.safe_load(Path(settings.kubeconfig).read_text())
    document["clusters"][0]["cluster"] |= {
        "server": server.url,
        "tls-server-name": "kubernetes.example",
        "proxy-url": f"http://ann:secret@127.0.0.1:{tunnel.server_address[1]}",
    }
    Path(settings.kubeconfig).write_text(yaml.safe_dump(document))
    try:
        prometheus = found_prometheus(Settings(kube=settings), {})
        assert prometheus is not None
        client = Client(prometheus)
        assert client.names(0, 1) == {"up"}
        client.close()
        assert tunnel.targets == [server.url.removeprefix("https://")] * 2  # for the list of Services, and for this
    finally:
        for running in (tunnel, server):
            running.shutdown()
            running.server_close()
