from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.base.errors import ClusterForbidden
from cotenant.base.kube import connect
from cotenant.base.kube.discovery import RULES, Flavour, PrometheusService, Service, candidates, find_prometheus
from cotenant.base.settings.sections import KubeSettings

pytestmark = pytest.mark.server

NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"


def service(
    name: str, labels: dict[str, str] | None, ports: list[dict[str, Any]], namespace: str = "mon"
) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "uid": "x"} | ({"labels": labels} if labels else {})
    return {"metadata": meta, "spec": {"clusterIP": "10.0.0.1", "ports": ports}}


WEB = [{"name": "reloader-web", "port": 8080, "protocol": "TCP"}, {"name": "http-web", "port": 9090, "protocol": "TCP"}]


def test_services_are_found_in_the_order_of_preference(api: Any, kubeconfig: Any) -> None:
    thanos = [{"name": "grpc", "port": 10901}, {"name": "http", "port": 9090}]
    api.objects["/api/v1/services"] = [
        service("kubernetes", {"component": "apiserver"}, [{"name": "https", "port": 443}]),
        service("unlabelled", None, WEB),
        service("prom", {"app": "kube-prometheus-stack-prometheus"}, WEB),
        service("alertmanager", {"app": "kube-prometheus-stack-alertmanager"}, WEB),
        service("mimir", {NAME: "mimir", COMPONENT: "query-frontend"}, [{"name": "http-metrics", "port": 8080}]),
        service("thanos", {NAME: "thanos", COMPONENT: "query"}, thanos),
        service("vm", {NAME: "vmselect"}, [{"name": "http", "port": 8481}], "a"),
    ]
    services = find_prometheus(connect(KubeSettings(kubeconfig=kubeconfig(api.url))))
    assert [(c.flavour, c.proxy_path) for c in services] == [
        (Flavour.VICTORIA_METRICS, "/api/v1/namespaces/a/services/vm:8481/proxy/select/0/prometheus"),
        (Flavour.THANOS, "/api/v1/namespaces/mon/services/thanos:9090/proxy"),
        (Flavour.MIMIR, "/api/v1/namespaces/mon/services/mimir:8080/proxy/prometheus"),
        (Flavour.PROMETHEUS, "/api/v1/namespaces/mon/services/prom:9090/proxy"),
    ]
    assert services[-1].cluster_url == "http://prom.mon.svc:9090"


def test_a_found_service_answers_through_the_api_servers_proxy(api: Any, kubeconfig: Any) -> None:
    """The path that discovery gives is one that get() can ask."""
    api.objects["/api/v1/services"] = [service("prom", {"app": "prometheus"}, WEB)]
    api.objects["/api/v1/namespaces/mon/services/prom:9090/proxy/api/v1/status/buildinfo"] = {"status": "success"}
    client = connect(KubeSettings(kubeconfig=kubeconfig(api.url)))
    (candidate,) = find_prometheus(client)
    assert client.get(f"{candidate.proxy_path}/api/v1/status/buildinfo") == {"status": "success"}


def test_openshifts_thanos_is_reached_by_tls() -> None:
    assert (
        PrometheusService(Flavour.THANOS, "m", "q", 9091, "https").proxy_path
        == "/api/v1/namespaces/m/services/https:q:9091/proxy"
    )
    openshift = service(
        "thanos-querier", {NAME: "thanos-query", COMPONENT: "query-layer"}, [{"name": "web", "port": 9091}]
    )
    (prometheus_service,) = candidates(msgspec.convert([openshift], list[Service]))
    assert (prometheus_service.scheme, prometheus_service.cluster_url) == (
        "https",
        "https://thanos-querier.mon.svc:9091",
    )


def test_a_service_without_ports_or_outside_the_cluster_is_no_candidate() -> None:
    outside = service("prom", {"app": "prometheus"}, WEB)
    outside["spec"]["type"] = "ExternalName"
    nothing = service("prom", {"app": "prometheus"}, [])
    udp = service("prom", {"app": "prometheus"}, [{"port": 53, "protocol": "UDP"}])
    assert candidates(msgspec.convert([outside, nothing, udp], list[Service])) == ()


def test_the_rules_keep_the_order_of_flavours() -> None:
    order = list(Flavour)
    ranks = [order.index(rule.flavour) for rule in RULES]
    assert ranks == sorted(ranks)
    assert set(ranks) == set(range(len(order)))


def test_without_the_right_to_list_services_the_right_is_named(api: Any, kubeconfig: Any) -> None:
    api.forbidden = {"/api/v1/services"}
    with pytest.raises(ClusterForbidden) as caught:
        find_prometheus(connect(KubeSettings(kubeconfig=kubeconfig(api.url))))
    assert 'resources: ["services"], verbs: ["list"]' in caught.value.fix
