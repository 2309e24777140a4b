"""Declared objects other than pods: LimitRanges, quotas, annotations, node labels, server version. Pure.

Reads the same snapshot as `inventory`, which joins the results. kube-state-metrics exports annotations and labels only
if configured to (--metric-annotations-allowlist, --metric-labels-allowlist), with "_" in place of every character that
is invalid in a Prometheus label.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from cotenant.base.cluster import QUOTA_KEYS, LimitRange, Quota, tightest
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.quantity import LARGEST
from cotenant.base.resource import Resource

Series = Sequence[tuple[dict[str, str], float]]
State = Mapping[str, Series]

LIMIT_RANGE: Final = "kube_limitrange"
QUOTA: Final = "kube_resourcequota"
BUILD: Final = "kubernetes_build_info"
NODE_INFO: Final = "kube_node_info"
ANNOTATED: Final = {
    "kube_deployment_annotations": ("Deployment", "deployment"),
    "kube_statefulset_annotations": ("StatefulSet", "statefulset"),
    "kube_daemonset_annotations": ("DaemonSet", "daemonset"),
    "kube_cronjob_annotations": ("CronJob", "cronjob"),
    "kube_job_annotations": ("Job", "job_name"),
}
"""Metric -> kind, and the label with the object's name."""
CREATED: Final = {
    "kube_deployment_created": ("Deployment", "deployment"),
    "kube_statefulset_created": ("StatefulSet", "statefulset"),
    "kube_daemonset_created": ("DaemonSet", "daemonset"),
    "kube_cronjob_created": ("CronJob", "cronjob"),
}
"""Metric -> kind, and the label with the object's name: one series for each existing object."""
DECLARED: Final = (LIMIT_RANGE, QUOTA, BUILD, *ANNOTATED, *CREATED)
"""Metrics that are read at the snapshot's time for this module alone."""

BLIND: Final = "no access to the Kubernetes API, and kube-state-metrics"
"""Words in each note about a fact that the Kubernetes API has and kube-state-metrics does not export."""
_OURS: Final = "annotation_cotenant_dev_"
_VERSION: Final = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")
_NODE_LABELS: Final = {
    re.sub(r"[^a-zA-Z0-9_]", "_", name): name
    for name in (
        *("node.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
        *("kubernetes.io/arch", "kubernetes.io/os", "kubernetes.io/hostname"),
        *("karpenter.sh/nodepool", "karpenter.sh/capacity-type", "eks.amazonaws.com/nodegroup"),
        *("eks.amazonaws.com/capacityType", "cloud.google.com/gke-nodepool", "kubernetes.azure.com/agentpool"),
    )
}
"""Well-known labels of nodes by the name that is left of them in Prometheus."""


def amount(resource: Resource, value: float) -> int:
    """Convert cores or bytes of kube-state-metrics to the resource's unit, limited to 64 bits."""
    return min(round(value * 1000) if resource is Resource.CPU else round(value), LARGEST)


def limit_ranges(state: State) -> tuple[LimitRange, ...]:
    """Return the tightest LimitRange bounds by namespace and resource, those on containers and on pods separately."""
    limits: list[LimitRange] = []
    for x, value in state[LIMIT_RANGE]:
        resource = next((r for r in Resource if r == x.get("resource")), None)
        if resource is None or x.get("type") not in ("Container", "Pod"):
            continue  # it bounds volumes
        bare = LimitRange(x.get("namespace", ""), resource, of_pod=x["type"] == "Pod")
        match x.get("constraint"):  # others are defaults
            case "min":
                limits.append(replace(bare, minimum=amount(resource, value)))
            case "max":
                limits.append(replace(bare, maximum=amount(resource, value)))
            case "maxLimitRequestRatio":
                limits.append(replace(bare, max_ratio=value))
    return tightest(limits)


def quotas(state: State) -> tuple[Quota, ...]:
    """Return the ResourceQuotas on CPU and memory; `requests.cpu` takes precedence over its short form `cpu`.

    A quota's scopes are not exported: one that counts only some pods looks like any other here.
    """
    sides_by_key: dict[tuple[str, str, Resource, bool], dict[str, float]] = {}
    for x, value in sorted(state[QUOTA], key=lambda pair: "." in pair[0].get("resource", "")):
        if (key := QUOTA_KEYS.get(x.get("resource", ""))) and x.get("type") in ("hard", "used"):
            name = x.get("namespace", ""), x.get("resourcequota", "")
            sides_by_key.setdefault((*name, *key), {})[x["type"]] = value
    return tuple(
        Quota(*key, amount(key[2], sides["hard"]), amount(key[2], sides.get("used", 0.0)))
        for key, sides in sorted(sides_by_key.items())
        if "hard" in sides
    )


def kinds_with_own_annotations(state: State) -> frozenset[str]:
    """Return the kinds for which any annotation of cotenant.dev is exported.

    A series without such an annotation proves nothing: kube-state-metrics before 2.10 exports one without annotations
    for each object even without an allow-list, and an allow-list may contain other annotations only.
    """
    return frozenset(
        kind for metric, (kind, _) in ANNOTATED.items() for x, _ in state[metric] if any(k.startswith(_OURS) for k in x)
    )


def own_annotations(state: State) -> dict[WorkloadRef, dict[str, str]]:
    """Return the cotenant.dev annotations of each workload; "_" is read as "-", because cotenant's keys have no "_"."""
    annotations: dict[WorkloadRef, dict[str, str]] = {}
    for metric, (kind, label) in ANNOTATED.items():
        for x, _ in state[metric]:
            ours = {k.removeprefix(_OURS): v for k, v in x.items() if k.startswith(_OURS)}
            if ours:
                ref = WorkloadRef(x.get("namespace", ""), kind, x.get(label, ""))
                annotations[ref] = {f"cotenant.dev/{k.replace('_', '-')}": v for k, v in ours.items()}
    return annotations


def controllers(state: State) -> tuple[WorkloadRef, ...]:
    """Return every controller object of the kinds in CREATED, with or without pods."""
    return tuple(
        sorted(
            WorkloadRef(x.get("namespace", ""), kind, x.get(label, ""))
            for metric, (kind, label) in CREATED.items()
            for x, _ in state[metric]
        )
    )


def node_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return a node's labels: well-known ones by their real name, others as kube-state-metrics names them."""
    exported = {k.removeprefix("label_"): v for k, v in labels.items() if k.startswith("label_")}
    return {_NODE_LABELS.get(k, k): v for k, v in exported.items()}


def server_version(state: State) -> str:
    """Return the lowest version of API servers, such as "1.35.4", or else the highest of other components."""
    builds = [(x.get("git_version", ""), "apiserver" in x.get("job", "")) for x, _ in state[BUILD]]
    by_server = [text for text, own in builds if own]
    texts = by_server or [text for text, _ in builds] or [x.get("kubelet_version", "") for x, _ in state[NODE_INFO]]
    versions = [match for match in map(_VERSION.search, texts) if match]
    # While it is upgraded, replicas of two versions run: the oldest of the servers is what one can rely on.
    chosen = (min if by_server else max)(
        versions, key=lambda version: tuple(int(part or 0) for part in version.groups()), default=None
    )
    return chosen[0] if chosen else ""
