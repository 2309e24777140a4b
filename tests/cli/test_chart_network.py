"""What the chart adds for networks and monitoring: files of deploy/ for the parts that run, with values over them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cotenant.cli.cluster.installation.manifests import bodies, texts
from tests.cli.charts import EVERYTHING, Json, object_of, rendered, values_of
from tests.cluster import needing
from tools.build_chart import DEPLOY

pytestmark = pytest.mark.cluster

ON = {"enabled": True}
MONITORING: Json = {"podMonitor": ON, "prometheusRule": ON, "grafana": ON}
KINDS = ("PodMonitor", "PrometheusRule")


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    needing.helm()


@pytest.fixture(scope="module")
def everything(_helm: None) -> list[Json]:
    """All parts and all monitoring, with a dashboard that Prometheus reaches."""
    return rendered(values_of(EVERYTHING, monitoring=MONITORING, settings={"dashboard": {"host": "0.0.0.0"}}))


@pytest.fixture(scope="module")
def webhooks_alone(_helm: None) -> list[Json]:
    return rendered(values_of(frozenset({"webhooks"}), monitoring=MONITORING))


@pytest.fixture(scope="module")
def with_values(_helm: None) -> list[Json]:
    """All parts with values of somebody's own; the dashboard is on its loopback."""
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}
    network = {"prometheusNamespace": "mon", "prometheusPorts": [9999], "serverPorts": [8443], "dashboardFrom": [peer]}
    rule = {"enabled": True, "labels": {"release": "prometheus"}, "runbookUrl": "https://docs.example/"}
    return rendered(values_of(EVERYTHING, networkPolicy=network, monitoring={"podMonitor": ON, "prometheusRule": rule}))


def of_kinds(objects: list[Json], *kinds: str) -> list[Json]:
    """Objects of these kinds, without those of hooks."""
    hooks = ("cotenant-test", "cotenant-uninstall")
    return [body for body in objects if body["kind"] in kinds and body["metadata"]["name"] not in hooks]


def parts(objects: list[Json]) -> set[str]:
    return {body["metadata"]["labels"]["app.kubernetes.io/component"] for body in objects}


def specs(objects: list[Json]) -> dict[tuple[str, str], Any]:
    return {(o["kind"], o["metadata"]["name"]): o.get("spec", o.get("data")) for o in objects}


def test_policies_are_those_of_install_for_the_parts_that_run(
    everything: list[Json], webhooks_alone: list[Json]
) -> None:
    shipped = [body for _, text in texts(["network-policies"]) for body in bodies(text)]
    without_scan = [b for b in shipped if b["metadata"]["name"] != "cotenant-scan"]  # the manager takes its place
    assert specs(of_kinds(everything, "NetworkPolicy")) == specs(without_scan)
    assert parts(of_kinds(webhooks_alone, "NetworkPolicy")) == {"webhook"}


def test_by_default_policies_are_on_and_monitoring_is_off() -> None:
    objects = rendered({})
    assert parts(of_kinds(objects, "NetworkPolicy")) == {"dashboard", "recorder", "scan"}
    assert of_kinds(objects, *KINDS) == []
    assert of_kinds(rendered({"networkPolicy": {"enabled": False}}), "NetworkPolicy") == []


def test_every_pod_has_exactly_one_policy_that_names_its_ports(everything: list[Json]) -> None:
    policies = {
        o["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/name"]: o["spec"]
        for o in of_kinds(everything, "NetworkPolicy")
    }
    workloads = of_kinds(everything, "Deployment", "DaemonSet")
    assert {o["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] for o in workloads} == set(policies)
    for workload in workloads:
        policy = policies[workload["metadata"]["name"]]
        served = {p["name"] for c in workload["spec"]["template"]["spec"]["containers"] for p in c.get("ports", ())}
        opened = {p["port"] for rule in policy["ingress"] for p in rule["ports"]}
        assert opened == served or (workload["metadata"]["name"], opened) == ("cotenant-dashboard", set())
        assert policy["policyTypes"] == ["Ingress", "Egress"]


def test_monitoring_is_that_of_the_parts_that_run_and_that_prometheus_reaches(
    everything: list[Json], webhooks_alone: list[Json], with_values: list[Json]
) -> None:
    files = ("monitors.yaml", "rules.yaml", "grafana.yaml")
    shipped = [b for f in files for b in yaml.safe_load_all((DEPLOY / "monitoring" / f).read_text())]
    assert {key: spec for key, spec in specs(everything).items() if key in specs(shipped)} == specs(shipped)
    assert parts(of_kinds(webhooks_alone, *KINDS)) == {"all", "webhook"}
    assert parts(of_kinds(with_values, *KINDS)) == parts(of_kinds(everything, *KINDS)) - {"dashboard"}


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("https://thanos-querier.openshift-monitoring.svc:9091", 9091),
        ("http://prometheus.example/prometheus?tenant=a:1", 80),
        ("https://[fd00::1]/api", 443),
        ("https://u:p@prometheus.example:30090/", 30090),
    ],
)
def test_the_port_of_the_prometheus_that_is_named_is_open_to_who_asks_it(url: str, port: int) -> None:
    objects = rendered(values_of(EVERYTHING, settings={"profiler": {"prometheus": {"url": url}}}))
    by_default = [9090, 8428, 8481, 9009, 10902]
    # The dashboard compares what was used before a change and after it, and looks for measures that could guard one.
    for name in ("cotenant-manager", "cotenant-dashboard"):
        egress = object_of(objects, "NetworkPolicy", name)["spec"]["egress"]
        assert [p["port"] for p in egress[1]["ports"]] == [*by_default, port]


def test_values_say_where_prometheus_is_and_who_sees_the_dashboard(with_values: list[Json]) -> None:
    manager = object_of(with_values, "NetworkPolicy", "cotenant-manager")["spec"]
    (scraped,) = manager["ingress"]
    assert scraped["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "mon"}}}]
    assert [[p["port"] for p in rule["ports"]] for rule in manager["egress"]] == [[8443], [9999], [53, 53, 5353, 5353]]
    scraping, opened = object_of(with_values, "NetworkPolicy", "cotenant-dashboard")["spec"]["ingress"]
    assert scraping["from"] == scraped["from"]
    assert opened["ports"] == [{"port": "http", "protocol": "TCP"}]
    assert "ingress-nginx" in str(opened["from"])


def test_labels_and_the_place_of_the_runbooks_are_values(with_values: list[Json]) -> None:
    body = object_of(with_values, "PrometheusRule", "cotenant-webhook")
    assert body["metadata"]["labels"]["release"] == "prometheus"
    (first, *_) = body["spec"]["groups"][0]["rules"]
    assert first["annotations"]["runbook_url"] == f"https://docs.example/runbooks/{first['alert']}/"
