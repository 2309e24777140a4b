"""EDGE: selects the Prometheus of a scan: the one in the settings, or the one that runs in the kubeconfig's cluster.

With access to the Kubernetes API the QoS and priority labels of pods come from there; without it the scan continues and
prints a note. Options say how to reach a named Prometheus, and which labels its series carry.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from cotenant.base.commands.output import message
from cotenant.base.errors import ClusterError, ClusterForbidden, CotenantError, NoData, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cotenant.base.kube import KubeClient
    from cotenant.base.kube.auth import Access
    from cotenant.base.kube.live import LiveCluster
    from cotenant.profiler.prometheus import PrometheusSource
    from cotenant.profiler.settings import PrometheusSettings
    from cotenant.settings import Settings

DEFAULT_CLUSTER = "default"


@dataclass(frozen=True, slots=True)
class ScanTarget:
    """A metric source to query, the cluster name to store its data under, and how the source was found.

    `live` is the cluster's state as the Kubernetes API shows it; None if the API was not read.
    """

    source: PrometheusSource
    cluster: str
    how: str
    live: LiveCluster | None = None


def metric_source(settings: Settings, cluster: str | None, *, reaches_cluster: bool = True) -> ScanTarget:
    """Return the Prometheus of the settings, else one of the kubeconfig's cluster; raise UsageError without either.

    `reaches_cluster` is True if the kubeconfig is known to be of `cluster`; otherwise the API server is not queried.
    """
    from cotenant.profiler.prometheus import PrometheusSource

    with_api = reaches_cluster and has_kubeconfig(settings, os.environ)
    prometheus, how = settings.profiler.prometheus, "named"
    name = cluster or DEFAULT_CLUSTER
    live, renew = None, None
    if with_api:
        from cotenant.base.kube.live import observe

        try:
            client, access = _connect_cluster(settings)
            name = cluster or access.cluster
            if not prometheus.url:
                prometheus, how = _discover_prometheus(client, access, prometheus)
                renew = _renewal(settings)
            try:
                live = observe(client)
            except ClusterError as error:  # pods may not be listed
                message(f"note: QoS and priority labels were not read from the Kubernetes API: {error.message}")
        except ClusterError as error:
            if not prometheus.url:
                raise
            message(f"note: the Kubernetes API was not read: {error.message}")
    if not prometheus.url:
        fix = "Give --prometheus URL, or --kubeconfig FILE, or --offline for the stored history."
        raise UsageError("no Prometheus is configured, and there is no kubeconfig of a cluster to search", fix=fix)
    marks = {(p.namespace, p.name): (p.qos, p.priority) for p in live.pods} if live else None
    return ScanTarget(PrometheusSource(prometheus, name, marks, renew=renew), name, how, live)


def _renewal(settings: Settings) -> Callable[[], str] | None:
    """Return a function that reads the kubeconfig's credentials again, since tokens may expire during a long scan.

    It is None inside the cluster, where Prometheus is queried directly and must not see credentials of the API server.
    """
    from cotenant.base.kube.auth import load_access

    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    return lambda: load_access(settings.kube).authorization() or ""


def found_prometheus(settings: Settings, env: Mapping[str, str]) -> PrometheusSettings | None:
    """Return the Prometheus that a scan without an address would query; None if none is found."""
    if settings.profiler.prometheus.url or not has_kubeconfig(settings, env):
        return None
    try:
        return _discover_prometheus(*_connect_cluster(settings), settings.profiler.prometheus)[0]
    except CotenantError:
        return None


def has_kubeconfig(settings: Settings, env: Mapping[str, str]) -> bool:
    """Return whether the settings, the environment or the default kubeconfig path name a cluster."""
    usual = Path(env.get("HOME", "/nonexistent")) / ".kube" / "config"
    configured = settings.kube.kubeconfig or settings.kube.context or env.get("KUBECONFIG")
    return bool(configured) or usual.is_file() or bool(env.get("KUBERNETES_SERVICE_HOST"))


def _connect_cluster(settings: Settings) -> tuple[KubeClient, Access]:
    from cotenant.base.kube import connect
    from cotenant.base.kube.auth import load_access

    return connect(settings.kube), load_access(settings.kube)


def _discover_prometheus(
    client: KubeClient, access: Access, settings: PrometheusSettings
) -> tuple[PrometheusSettings, str]:
    """Return the best candidate of the cluster, through the API server's proxy (directly if run inside the cluster)."""
    from cotenant.base.kube.discovery import find_prometheus

    try:
        candidates = find_prometheus(client)
    except ClusterForbidden as error:
        raise ClusterForbidden(error.message, fix=f"Give --prometheus URL, or grant rights. {error.fix}") from error
    if not candidates:
        fix = "Give --prometheus URL; use kubectl port-forward if it is reachable only from inside the cluster."
        raise NoData(f"no Service of the cluster {access.cluster} looks like a Prometheus", fix=fix)
    best = candidates[0]
    how = f"{best.flavour} {best.namespace}/{best.service}, found by its Service's labels"
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return msgspec.structs.replace(settings, url=best.cluster_url), how
    authorization = access.authorization()
    return msgspec.structs.replace(
        settings,
        url=access.server.rstrip("/") + best.proxy_path,
        headers={**settings.headers, **({"Authorization": authorization} if authorization else {})},
        ca_file=settings.ca_file or access.ca_file,
        client_cert_file=access.cert_file,
        client_key_file=access.key_file,
        insecure=settings.insecure or not access.verify,
        server_name=access.server_name,
        proxy=access.proxy,
    ), f"{how}, through the API server"


TokenOption = Annotated[
    str | None, typer.Option("--bearer-token-file", metavar="FILE", help="File with a bearer token.")
]
HeaderOption = Annotated[list[str] | None, typer.Option("--header", "-H", metavar="NAME:VALUE", help="Further header.")]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--prometheus-label", "-l", metavar="NAME=VALUE", help="Label that selects this cluster's series."),
]


def prometheus_flags(
    url: str | None, bearer_token_file: str | None, headers: list[str] | None, labels: list[str] | None
) -> dict[str, str | dict[str, str] | None]:
    """Return the settings that these options override; raise UsageError for a malformed header or label."""
    return {
        "profiler.prometheus.url": url,
        "profiler.prometheus.bearer_token_file": bearer_token_file,
        "profiler.prometheus.headers": _pairs(headers, ":", "--header"),
        "profiler.prometheus.labels": _pairs(labels, "=", "--prometheus-label"),
    }


def _pairs(texts: list[str] | None, separator: str, option: str) -> dict[str, str] | None:
    """Parse texts such as ["A: b"] to {"A": "b"}; None if the option was not given."""
    if not texts:
        return None
    parts = [text.partition(separator) for text in texts]
    bad = next((text for text, part in zip(texts, parts, strict=True) if not part[1] or not part[0].strip()), None)
    if bad is not None:
        raise UsageError(f"{option} {bad!r} is not NAME{separator}VALUE")
    return {name.strip(): value.strip() for name, _, value in parts}
