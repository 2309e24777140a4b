"""The metric names by which meshes, proxies and libraries publish a service's latency and errors. Pure.

A convention names a histogram of durations, a counter of requests, and the labels that tell whose a series is. Only
server-side series are read, without probes, so that a query measures what callers wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.changes.decide.regression_check import Measure
from cotenant.profiler.prometheus.promql import literal, quote

PODS: Final = (
    'namespace="$namespace",pod=~"$pods"',
    'exported_namespace="$namespace",exported_pod=~"$pods"',
    'kubernetes_namespace="$namespace",kubernetes_pod_name=~"$pods"',
)
"""Labels with the scraped pod: of Prometheus' discovery, of a target scraped through another one, of older charts."""
OTEL_PODS: Final = ('k8s_namespace_name="$namespace",k8s_pod_name=~"$pods"', *PODS)
"""Labels with the pod, from OpenTelemetry's resource attributes."""
_PROBES: Final = (
    "/actuator(/.*)?|/(q/)?(health(/.*)?|healthz|live|livez|liveness|ready|readyz|readiness|startup|startupz|metrics|"
    "prometheus|ping)"
)
"""URL paths of probes and scrapes, including those of Spring Boot and Quarkus."""
_GRPC_FAULTS: Final = "Unknown|DeadlineExceeded|Unimplemented|Internal|Unavailable|DataLoss"
"""gRPC codes that are the server's fault, not its caller's."""
MILLISECOND: Final = 0.001


@dataclass(frozen=True, slots=True)
class Convention:
    """The metric names of one kind of proxy or library.

    `histogram` (of durations) is a name without `_bucket`, in units of `unit_seconds`. `requests` is a counter with a
    label for each request's outcome; the matchers `failed` select requests that failed by the service's fault, `served`
    those that callers wait for. `owners` are matchers by which series name their workload; `by_service` are the labels
    of namespace and name of a Service, if series have them.
    """

    source: str
    histogram: str
    requests: str
    failed: str
    served: str = ""
    unit_seconds: float = 1.0
    owners: tuple[str, ...] = PODS
    by_service: tuple[tuple[str, str], ...] = ()


CONVENTIONS: Final = (
    Convention(
        "Istio",
        "istio_request_duration_milliseconds",
        "istio_requests_total",
        'response_code=~"5.."',
        'reporter=~"destination|waypoint"',
        MILLISECOND,
        ('destination_workload_namespace="$namespace",destination_workload="$workload"',),
    ),
    Convention(
        "Linkerd",
        "response_latency_ms",
        "response_total",
        'classification="failure"',
        'direction="inbound",route_name!="probe"',
        MILLISECOND,
    ),
    Convention(
        "OpenTelemetry",
        "http_server_request_duration_seconds",
        "http_server_request_duration_seconds_count",
        'http_response_status_code=~"5.."',
        f'http_route!~"{_PROBES}"',
        owners=OTEL_PODS,
    ),
    Convention(
        "gRPC",
        "grpc_server_handling_seconds",
        "grpc_server_handled_total",
        f'grpc_code=~"{_GRPC_FAULTS}"',
        'grpc_type="unary",grpc_service!~"grpc.health.*"',
    ),
    Convention(
        "JVM (Micrometer)",
        "http_server_requests_seconds",
        "http_server_requests_seconds_count",
        'status=~"5.."',
        f'uri!~"{_PROBES}"',
    ),
    Convention(
        "Envoy",
        "envoy_http_downstream_rq_time",
        "envoy_http_downstream_rq_xx",
        'envoy_response_code_class="5"',
        'envoy_http_conn_manager_prefix=~"(ingress|inbound).*"',
        MILLISECOND,
    ),
    Convention(
        "ingress-nginx",
        "nginx_ingress_controller_request_duration_seconds",
        "nginx_ingress_controller_requests",
        'status=~"5.."',
        owners=(),
        by_service=(("exported_namespace", "exported_service"), ("namespace", "service")),
    ),
)
"""Conventions, the preferred first: a mesh sees each request, an ingress only those from outside."""


@dataclass(frozen=True, slots=True)
class ServiceQueries:
    """PromQL on the metrics of one proxy or library (`source`) for one workload, with variables such as $window.

    `guards` query the measures that can verify a change, `requests` the number served in $window, `buckets` the latency
    histogram's bounds, one series each with the label `le`. If `by_name`, series name the workload without its kind.
    """

    source: str
    guards: dict[Measure, str]
    requests: str
    buckets: str
    unit_seconds: float
    by_name: bool = False


def queries_for(services: Sequence[str], labels: str = "") -> Iterator[list[ServiceQueries]]:
    """Yield, for each kind of proxy or library, its alternative queries, of which the first with an answer is used.

    `services` are the Services that lead to this workload alone; `labels` are further matchers for every series, for a
    metric source with several clusters.
    """
    for convention in CONVENTIONS:
        owners = list(convention.owners)
        if services:
            # `literal` escapes what a regular expression would read; a name of Kubernetes has but dashes and dots.
            names = quote("|".join(map(literal, services)))
            owners += [f'{namespace}="$namespace",{label}=~{names}' for namespace, label in convention.by_service]
        queries = []
        for owner in owners:
            where = ",".join(filter(None, (owner, convention.served, labels)))
            bucket = f"{convention.histogram}_bucket{{{where}}}"
            p99 = f"histogram_quantile(0.99, sum by (le) (rate({bucket}[$window])))"
            unit = "" if convention.unit_seconds == 1 else f" * {convention.unit_seconds:g}"
            served = f"sum(rate({convention.requests}{{{where}}}[$window]))"
            failed = f"sum(rate({convention.requests}{{{where},{convention.failed}}}[$window]))"
            # Without any failure there is no series of them; that the others exist is seen by the quotient.
            guards = {Measure.LATENCY: f"{p99}{unit}", Measure.ERRORS: f"({failed} or vector(0)) / {served}"}
            requests = f"sum(increase({convention.requests}{{{where}}}[$window]))"
            buckets, by_name = f"group by (le) ({bucket})", "$workload" in where
            source, unit_seconds = convention.source, convention.unit_seconds
            queries.append(ServiceQueries(source, guards, requests, buckets, unit_seconds, by_name))
        yield queries


def own_services(
    selectors: Mapping[str, Mapping[str, str] | None], pods: Iterable[Mapping[str, str]], own: Mapping[str, str]
) -> list[str]:
    """Return the names of the Services whose pods all belong to one workload; other Services mix workloads.

    `selectors` are those of each Service, None or empty if it selects no pods. `pods` are the labels of all pods of the
    namespace, `own` those of the workload's pods.
    """
    workload = LabelSelector.parse({"matchLabels": own})
    others = [labels for labels in pods if not workload.matches(labels)]
    chosen = {name: LabelSelector.parse({"matchLabels": labels}) for name, labels in selectors.items() if labels}
    return [name for name, service in chosen.items() if service.matches(own) and not any(map(service.matches, others))]
