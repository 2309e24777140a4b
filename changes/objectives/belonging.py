"""Find which workload an objective belongs to: by its query, else by its object's labels. Pure.

A query that names another workload's pods, Service or app belongs to that. A query that names none belongs to the
workload of its object's labels, and is narrowed to the workload's pods. If neither says it, the objective is not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.changes.objectives.query_labels import Selector
from cotenant.changes.objectives.query_variables import pod_names_pattern
from cotenant.changes.soak.own_series import NAMESPACE_LABELS

WORKLOAD_LABELS: Final = {
    "deployment": "Deployment",
    "k8s_deployment_name": "Deployment",
    "statefulset": "StatefulSet",
    "k8s_statefulset_name": "StatefulSet",
    "daemonset": "DaemonSet",
    "k8s_daemonset_name": "DaemonSet",
    "cronjob": "CronJob",
    "workload": "",
    "destination_workload": "",
}
"""Label that names a workload -> the workload's kind, "" for any kind."""
SERVICE_LABELS: Final = ("service", "exported_service", "kubernetes_service", "destination_service_name")
POD_LABELS: Final = ("pod", "exported_pod", "pod_name", "kubernetes_pod_name", "k8s_pod_name")
APP_LABELS: Final = {
    "app": "app",
    "k8s_app": "k8s-app",
    "app_kubernetes_io_name": "app.kubernetes.io/name",
    "app_kubernetes_io_instance": "app.kubernetes.io/instance",
}
"""Label of series -> the pod label that scrapes copy into it."""
PATH_LABELS: Final = ("uri", "path", "route", "http_route", "handler", "endpoint", "grpc_service", "route_name")
PROBES: Final = re.compile(
    r"/?(actuator|health|healthz|livez?|liveness|readyz?|readiness|startupz?|metrics|prometheus|ping|probe)(/.*)?"
    r"|/q/(health|metrics)(/.*)?|grpc\.health\..*"
)
_HEAD: Final = re.compile(r"\^?([a-z0-9-]*)")
_NAMESPACE_OF: Final = (
    ("destination_workload", "destination_workload_namespace"),
    ("destination_service", "destination_service_namespace"),
    ("k8s_", "k8s_namespace_name"),
    ("exported_", "exported_namespace"),
    ("kubernetes_", "kubernetes_namespace"),
)
"""Prefix of labels that name an owner -> the label with the owner's namespace."""


class Ownership(StrEnum):
    """The relation of an objective to a workload, and how it is known."""

    OWN = "its query names the workload"
    BY_OBJECT = "labels of the object that defines it name the workload"
    OTHER = "it belongs to another workload"
    UNKNOWN = "its workload is not known"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A workload, and the pods and Services in its namespace.

    `labels` are those of its pods; `services` says for each Service whether it leads to this workload alone; `others`
    are names and labels of other workloads' pods. The latter two are None if they may not be listed.
    """

    workload: WorkloadRef
    labels: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, bool] | None = None
    others: tuple[tuple[str, Mapping[str, str]], ...] | None = None


def others_of(pods: Iterable[tuple[str, Mapping[str, str]]], own: Mapping[str, str]) -> tuple[
    tuple[str, Mapping[str, str]], ...
]:  # fmt: skip
    """Return the names and labels of the other workloads' pods; `own` are the labels of this workload's pods."""
    workload = LabelSelector.parse({"matchLabels": own})
    return tuple((name, labels) for name, labels in pods if not workload.matches(labels))


def ownership(
    selectors: Iterable[Selector], surroundings: Surroundings, namespace: str, labels: Mapping[str, str]
) -> Ownership:
    """Return whose objective it is and how that is known; `namespace` and `labels` are those of the SLO object."""
    verdicts = [_selector_owner(selector, surroundings, namespace) for selector in selectors]
    if Ownership.OTHER in verdicts:
        return Ownership.OTHER
    if verdicts and set(verdicts) == {Ownership.OWN}:
        return Ownership.OWN
    if namespace != surroundings.workload.namespace or Ownership.OWN in verdicts:
        return Ownership.UNKNOWN  # of a part of the query nobody knows whose it is
    owners = [_label_owner(key, labels[key], surroundings) for key in APP_LABELS.values() if key in labels]
    if Ownership.OTHER in owners:
        return Ownership.OTHER
    return Ownership.BY_OBJECT if Ownership.OWN in owners else Ownership.UNKNOWN


def namespace_label(selector: Selector) -> str:
    """Return the label in which series hold the namespace of their workload, judged by the selector's other labels."""
    for beginning, label in _NAMESPACE_OF:
        if any(name.startswith(beginning) for name, *_ in selector.matchers):
            return label
    return "namespace"


def misreading_reason(selector: Selector, workload: WorkloadRef) -> str:
    """Return why a selector does not measure the calls that the workload serves; "" if nothing indicates that."""
    asks = selector.equal("direction") == "outbound" or "_client_" in selector.metric
    sent = selector.equal("reporter") == "source" or selector.equal("source_workload") == workload.name
    if asks or (sent and selector.equal("destination_workload") != workload.name):
        return "the query measures calls that the workload makes, not calls that it serves"
    if any(PROBES.fullmatch(selector.equal(label) or "") for label in PATH_LABELS):
        return "the query measures probes, not calls"
    return ""


def _selector_owner(selector: Selector, surroundings: Surroundings, namespace: str) -> Ownership:
    spaces = {value for label, operator, value in selector.matchers if operator == "=" and label in NAMESPACE_LABELS}
    if surroundings.workload.namespace not in (spaces or {namespace}):
        return Ownership.OTHER
    owners = {_matcher_owner(*matcher, surroundings) for matcher in selector.matchers}
    for owner in (Ownership.OTHER, Ownership.OWN):
        if owner in owners:
            return owner
    return Ownership.UNKNOWN


def _matcher_owner(label: str, operator: str, value: str, surroundings: Surroundings) -> Ownership:
    if label in POD_LABELS and operator in ("=", "=~"):
        return _pod_owner(operator, value, surroundings)
    if operator != "=":
        return Ownership.UNKNOWN
    if label in WORKLOAD_LABELS:
        is_own = value == surroundings.workload.name and WORKLOAD_LABELS[label] in ("", surroundings.workload.kind)
        return Ownership.OWN if is_own else Ownership.OTHER
    if label in SERVICE_LABELS and surroundings.services is not None and value in surroundings.services:
        return Ownership.OWN if surroundings.services[value] else Ownership.OTHER
    return _label_owner(APP_LABELS[label], value, surroundings) if label in APP_LABELS else Ownership.UNKNOWN


def _label_owner(key: str, value: str, surroundings: Surroundings) -> Ownership:
    """Return whose pods have this label value: other workloads', this one's alone, or unknown."""
    own = surroundings.labels.get(key)
    if own is None or (own == value and surroundings.others is None):
        return Ownership.UNKNOWN
    is_shared = any(labels.get(key) == value for _, labels in surroundings.others or ())
    return Ownership.OWN if own == value and not is_shared else Ownership.OTHER


def _pod_owner(operator: str, value: str, surroundings: Surroundings) -> Ownership:
    name = surroundings.workload.name
    if operator == "=":
        return Ownership.OWN if re.fullmatch(pod_names_pattern(surroundings.workload), value) else Ownership.OTHER
    if value == pod_names_pattern(surroundings.workload):
        return Ownership.OWN
    match = _HEAD.match(value)
    head = match.group(1) if match else ""
    if not name.startswith(head) and not head.startswith(f"{name}-"):
        return Ownership.OTHER
    if len(head) < len(name) or surroundings.others is None:
        return Ownership.UNKNOWN
    return Ownership.UNKNOWN if any(pod.startswith(head) for pod, _ in surroundings.others) else Ownership.OWN
