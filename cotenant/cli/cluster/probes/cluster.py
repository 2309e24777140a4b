"""EDGE: checks of the Kubernetes API: connection, version and rights. All are optional: a scan works without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cotenant.base.controllers.feature import LEFT_OUT_STATE, STATUS_CONFIG_MAP
from cotenant.base.errors import ClusterForbidden
from cotenant.base.kubernetes.protocol import SLO_CONFIG_MAP, SYSTEM_NAMESPACE
from cotenant.base.settings.sections import KubeSettings
from cotenant.cli.cluster.probes import reclaimed
from cotenant.cli.cluster.probes.outcome import Probe, ProbeFinding, ProbeOutcome, ProbeState

if TYPE_CHECKING:
    from cotenant.base.kube import KubeClient

RIGHTS: Final = "kubernetes rights"
"""Name of the probe that finds out whether a scan may list what it reads."""

LEFT_OUT_FIX: Final = "Correct or delete each of these objects; a changed object is read again at once."


def probes(settings: KubeSettings, namespace: str = SYSTEM_NAMESPACE) -> Iterator[ProbeFinding]:
    """Yield findings about the kubeconfig, the API and, if it answers, rights, CRDs, ConfigMaps and Prometheus.

    `namespace` is that of slo-controller-config.
    """
    from cotenant.base.kube import connect

    clients: list[KubeClient] = []
    finding = Probe("kubeconfig", "the kubeconfig or the pod's service account").run(
        lambda: probe_connection(clients, connect(settings))
    )
    yield finding
    if not clients:
        return
    try:
        answer = Probe("kubernetes api", f"GET /version at {clients[0].access.server}").run(lambda: version(clients[0]))
        yield answer
        if answer.state is ProbeState.OK:
            yield Probe(RIGHTS, "list one object of each kind that a scan reads").run(lambda: rights(clients[0]))
            served = Probe("kubernetes definitions", "the API server's CRDs compared with those of this version").run(
                lambda: definitions(clients[0])
            )
            if served.state is not ProbeState.OK:  # a cluster without any is none the worse
                yield served
            tried = f"ConfigMap {namespace}/{SLO_CONFIG_MAP} as the manager reads it"
            strategies = Probe("colocation configuration", tried).run(lambda: configuration(clients[0], namespace))
            if strategies.state is not ProbeState.OK:
                yield strategies
            probe = Probe("objects left out", f"ConfigMap {namespace}/{STATUS_CONFIG_MAP} of the manager").run(
                lambda: left_out(clients[0], namespace)
            )
            if probe.state is not ProbeState.OK:
                yield probe
            yield Probe("kubernetes prometheus", "labels of the cluster's Services").run(
                lambda: probe_prometheus(clients[0])
            )
            yield from reclaimed.probes(clients[0])
    finally:
        clients[0].close()


def probe_connection(clients: list[KubeClient], client: KubeClient) -> ProbeOutcome:
    """Name the cluster that would be queried; append the client to `clients` for the next probes."""
    clients.append(client)
    access = client.access
    description = f"{access.cluster} at {access.server}"
    if not access.verify:
        fix = "Give certificate-authority-data."
        return ProbeOutcome(ProbeState.WARNING, f"{description}, its certificate is not verified", fix)
    return ProbeOutcome(ProbeState.OK, description)


def version(client: KubeClient) -> ProbeOutcome:
    """Check that the API server answers, and name its version."""
    answer = client.get("/version") or {}
    return ProbeOutcome(ProbeState.OK, f"answers, version {answer.get('gitVersion', 'unknown')}")


def rights(client: KubeClient) -> ProbeOutcome:
    """Check which kinds that a scan reads may be listed in all namespaces, by requesting one object of each kind."""
    read = scan_resource_paths()
    refused = []
    for kind, path in read.items():
        try:
            client.get(f"{path}?limit=1")
        except ClusterForbidden:
            refused.append(kind)
    if not refused:
        return ProbeOutcome(ProbeState.OK, f"may list {', '.join(read)}")
    fix = f'Apply deploy/rbac/reader.yaml, or grant verbs ["list"] on {", ".join(refused)} in a ClusterRole.'
    return ProbeOutcome(ProbeState.WARNING, f"may not list {', '.join(refused)}", fix)


def definitions(client: KubeClient) -> ProbeOutcome:
    """Check whether the served definitions of cotenant's kinds accept everything that this version writes."""
    from cotenant.base.kube.client import OLD_DEFINITION
    from cotenant.base.kube.definitions import older_definitions

    problems = older_definitions(client)
    if problems:
        return ProbeOutcome(ProbeState.WARNING, "; ".join(problems), OLD_DEFINITION)
    return ProbeOutcome(ProbeState.OK, "no CRD in the cluster is older than this version of cotenant")


def configuration(client: KubeClient, namespace: str) -> ProbeOutcome:
    """Name the parts of slo-controller-config that cannot be used or have no effect; OK if it does not exist."""
    from cotenant.base.kubernetes.models.metadata import ConfigMapObject
    from cotenant.recommender.colocation.model.slo_config import SloConfig

    try:
        body = client.get(f"/api/v1/namespaces/{namespace}/configmaps/{SLO_CONFIG_MAP}", ConfigMapObject)
    except ClusterForbidden:
        return ProbeOutcome(ProbeState.SKIPPED, "not checked: the right to read the ConfigMap is missing")
    findings = SloConfig().updated(body.data if body else None).findings
    if not findings:
        return ProbeOutcome(ProbeState.OK, "all values of the ConfigMap are in effect")
    fix = f"Correct {SLO_CONFIG_MAP}; `cotenant config check slo-config FILE` checks it before it is applied."
    return ProbeOutcome(ProbeState.WARNING, "; ".join(finding.advice for finding in findings), fix)


def left_out(client: KubeClient, namespace: str) -> ProbeOutcome:
    """Name each object that the manager ignores because it cannot be read or a feature fails on it, and why."""
    import msgspec

    from cotenant.base.kubernetes.models.metadata import ConfigMapObject

    try:
        body = client.get(f"/api/v1/namespaces/{namespace}/configmaps/{STATUS_CONFIG_MAP}", ConfigMapObject)
    except ClusterForbidden:
        return ProbeOutcome(ProbeState.SKIPPED, "not checked: the right to read the ConfigMap is missing")
    text = ((body.data if body else None) or {}).get(LEFT_OUT_STATE)
    if not text:
        return ProbeOutcome(ProbeState.OK, "none")
    return ProbeOutcome(ProbeState.WARNING, msgspec.json.decode(text, type=dict[str, str])["message"], LEFT_OUT_FIX)


def scan_resource_paths() -> dict[str, str]:
    """Return the API path of each kind that a scan lists if permitted, by `kubectl`'s name of the kind."""
    from cotenant.base.kube.discovery import SERVICES
    from cotenant.base.kube.live import LISTED
    from cotenant.enforcer.model.agents import EVENTS

    return {kind_of(path): path for path in (*LISTED, SERVICES, EVENTS)}


def kind_of(path: str) -> str:
    """Return `kubectl`'s name of a kind from its API path: /apis/apps/v1/deployments -> "deployments.apps"."""
    *_, group, _, resource = path.split("/")
    return resource if path.startswith("/api/") else f"{resource}.{group}"


def probe_prometheus(client: KubeClient) -> ProbeOutcome:
    """Name the Prometheus-compatible servers of the cluster, the best candidate first."""
    from cotenant.base.kube.discovery import find_prometheus

    servers = find_prometheus(client)
    if not servers:
        fix = "Name a Prometheus by --prometheus, or give its Service the labels that Prometheus charts set."
        return ProbeOutcome(ProbeState.WARNING, "no Service looks like Prometheus", fix)
    descriptions = (f"{c.flavour} {c.namespace}/{c.service}:{c.port}" for c in servers)
    return ProbeOutcome(ProbeState.OK, ", ".join(descriptions))
