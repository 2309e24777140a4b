"""EDGE: find the Prometheus-compatible server that already runs in the cluster, by the labels of its Service.

One list of Services is matched against a table of the labels that charts set, in the order VictoriaMetrics, Thanos,
Mimir, Prometheus: the first of these usually has the longest history. A scan reads the best match and tries no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from cotenant.base.kube.client import KubeClient
from cotenant.base.kubernetes.models.metadata import ObjectLabels


class Flavour(StrEnum):
    """The kind of metrics server; the order is the order of preference."""

    VICTORIA_METRICS = "VictoriaMetrics"
    THANOS = "Thanos"
    MIMIR = "Mimir"
    PROMETHEUS = "Prometheus"


@dataclass(frozen=True, slots=True)
class DiscoveryRule:
    """The labels that identify a Service (all must match), and the path at which it serves the Prometheus API."""

    flavour: Flavour
    labels: Mapping[str, str]
    api_path: str = ""


_NAME, _COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"
_V, _T, _M, _P = Flavour

RULES: Final[tuple[DiscoveryRule, ...]] = (
    DiscoveryRule(_V, {_NAME: "vmsingle"}),
    DiscoveryRule(_V, {_NAME: "victoria-metrics-single"}),
    DiscoveryRule(_V, {"app": "victoria-metrics-single"}),
    DiscoveryRule(_V, {_NAME: "vmselect"}, "/select/0/prometheus"),
    DiscoveryRule(_V, {"app": "vmselect"}, "/select/0/prometheus"),
    DiscoveryRule(_T, {_NAME: "thanos", _COMPONENT: "query-frontend"}),
    DiscoveryRule(_T, {_NAME: "thanos-query-frontend"}),
    DiscoveryRule(_T, {_NAME: "thanos", _COMPONENT: "query"}),
    DiscoveryRule(_T, {_NAME: "thanos-query"}),
    DiscoveryRule(_T, {_NAME: "thanos-querier"}),
    DiscoveryRule(_T, {"app": "thanos-query"}),
    DiscoveryRule(_T, {"app": "thanos-querier"}),
    DiscoveryRule(_M, {_NAME: "mimir", _COMPONENT: "query-frontend"}, "/prometheus"),
    DiscoveryRule(_M, {_NAME: "mimir", _COMPONENT: "gateway"}, "/prometheus"),
    DiscoveryRule(_P, {_NAME: "prometheus", _COMPONENT: "server"}),
    DiscoveryRule(_P, {_NAME: "prometheus", _COMPONENT: "prometheus"}),
    DiscoveryRule(_P, {_NAME: "kube-prometheus-stack-prometheus"}),
    DiscoveryRule(_P, {"app": "kube-prometheus-stack-prometheus"}),
    DiscoveryRule(_P, {"app": "prometheus-operator-prometheus"}),
    DiscoveryRule(_P, {"app": "rancher-monitoring-prometheus"}),
    DiscoveryRule(_P, {"app": "prometheus", "component": "server"}),
    DiscoveryRule(_P, {"app": "prometheus-server"}),
    DiscoveryRule(_P, {"app": "prometheus-prometheus"}),
    DiscoveryRule(_P, {"app": "prometheus"}),
    DiscoveryRule(_P, {_NAME: "prometheus"}),
    DiscoveryRule(_P, {"operated-prometheus": "true"}),
)
"""Labels of the servers' charts and operators, and those by which Robusta's KRR finds them."""

SERVICES: Final = "/api/v1/services"
"""Where discovery looks in the whole cluster."""

_PORT_NAMES: Final = ("http", "http-web", "web", "http-query", "http-metrics", "prometheus", "https")
"""Names that charts give the query port, best first; grpc, reloader and other ports of the Service lose to them."""


@dataclass(frozen=True, slots=True)
class PrometheusService:
    """A Service that probably serves the Prometheus API, with its addresses in the cluster and through the proxy."""

    flavour: Flavour
    namespace: str
    service: str
    port: int
    scheme: str
    api_path: str = ""

    @property
    def proxy_path(self) -> str:
        """Path of the Service below the API server's URL; reading it needs the right `get` on services/proxy."""
        name = f"{self.scheme}:{self.service}" if self.scheme == "https" else self.service
        return f"/api/v1/namespaces/{self.namespace}/services/{name}:{self.port}/proxy{self.api_path}"

    @property
    def cluster_url(self) -> str:
        """URL of the Service for clients inside the cluster."""
        return f"{self.scheme}://{self.service}.{self.namespace}.svc:{self.port}{self.api_path}"


class _ServicePort(msgspec.Struct):
    port: int
    name: str = ""
    protocol: str = "TCP"


class _ServiceSpec(msgspec.Struct):
    ports: list[_ServicePort] | None = None
    type: str = "ClusterIP"


class Service(msgspec.Struct):
    """The fields of a Service that discovery reads."""

    metadata: ObjectLabels
    spec: _ServiceSpec = msgspec.field(default_factory=_ServiceSpec)


def find_prometheus(client: KubeClient) -> tuple[PrometheusService, ...]:
    """Return the probable Prometheus servers of all namespaces, best first; raise ClusterForbidden if denied."""
    return candidates(client.list(SERVICES, Service))


def candidates(services: Sequence[Service]) -> tuple[PrometheusService, ...]:
    """Return the Services that match a rule, in the order of the rules, then by namespace and name. Pure."""
    ranked = []
    for service in services:
        labels = (service.metadata.labels or {}).items()
        rank = next((i for i, rule in enumerate(RULES) if rule.labels.items() <= labels), None)
        # The port with the best known name, else the only or first TCP port.
        tcp = [port for port in service.spec.ports or [] if port.protocol == "TCP"]
        named_ports = [port for port in tcp if port.name in _PORT_NAMES]
        port = next(iter([*sorted(named_ports, key=lambda port: _PORT_NAMES.index(port.name)), *tcp]), None)
        if rank is not None and port is not None and service.spec.type != "ExternalName":
            # OpenShift's Thanos serves TLS on its port "web" 9091; elsewhere https is in the port's name or number.
            rule = RULES[rank]
            secure = port.name == "https" or port.port in (443, 8443, 9091)
            meta = service.metadata
            candidate = PrometheusService(
                rule.flavour, meta.namespace, meta.name, port.port, "https" if secure else "http", rule.api_path
            )
            ranked.append((rank, candidate))
    return tuple(c for _, c in sorted(ranked, key=lambda pair: (pair[0], pair[1].namespace, pair[1].service)))
