"""From recommendations to something a person can apply: a strategic-merge patch or a `kubectl patch` command. Pure.

If a request was computed together with an autoscaler's target, the target changes too (`autoscaler_targets`). A patch
has only the fields that change; amounts are exact Kubernetes quantities, never floats. All containers of a workload go
into one patch, so that applying it is one rollout. What cannot be patched is refused with a reason (`refusal`), and so
are names that Kubernetes would not allow: they never reach a command line or a path.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from cotenant.base.cluster import ContainerRole
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.intent import DNS_NAME
from cotenant.base.kubernetes.quantity import format_amount
from cotenant.changes.decide import autoscaler_targets
from cotenant.recommender.model.recommendation import Field, Recommendation

TEMPLATE_PATHS: Final = {
    "Deployment": ("spec", "template", "spec"),
    "StatefulSet": ("spec", "template", "spec"),
    "DaemonSet": ("spec", "template", "spec"),
    "ReplicaSet": ("spec", "template", "spec"),
    "ReplicationController": ("spec", "template", "spec"),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
}
"""Path of the pod spec by kind, for kinds whose template can be patched. That of a Job or a bare pod cannot change."""

LISTS: Final = {
    ContainerRole.MAIN: "containers",
    ContainerRole.INIT: "initContainers",
    ContainerRole.SIDECAR: "initContainers",
}
"""List of the pod spec that has containers of a role; an injected container is in none."""

_UNCHANGEABLE: Final = {
    "Job": "a Job's template cannot be changed; change what creates the Job",
    "Pod": "a bare pod has no template; change what creates the pod",
}
_INJECTED: Final = "a webhook injects the container, so no template has it; set the resources at the webhook"
FIELDS: Final = {Field.REQUEST: "requests", Field.LIMIT: "limits"}


def patch(*recommendations: Recommendation) -> dict[str, Any]:
    """Return the strategic-merge patch of one workload from its containers' recommendations; empty if nothing changes.

    A null removes a field. Dump the patch as JSON or YAML.
    """
    changed = [r for r in recommendations if resources(r) and not file_refusal(r)]
    if not changed:
        return {}
    spec: dict[str, Any] = defaultdict(list)
    for recommendation in changed:
        entry = {"name": recommendation.container.container, "resources": resources(recommendation)}
        spec[LISTS[recommendation.role]].append(entry)
    return nest_mapping(TEMPLATE_PATHS[changed[0].container.workload.kind], dict(spec))


def kubectl_command(*recommendations: Recommendation) -> str:
    """Return a shell line with the `kubectl patch` of one workload (and its autoscaler), "" if nothing changes."""
    document = patch(*recommendations)
    if not document:
        return ""
    workload = recommendations[0].container.workload
    body = json.dumps(document, separators=(",", ":"))
    arguments = ["kubectl", "patch", "-n", workload.namespace, f"{workload.kind.lower()}/{workload.name}"]
    line = shlex.join([*arguments, "--type=strategic", "-p", body])
    moves = autoscaler_targets.moves([r for r in recommendations if not file_refusal(r)])
    return autoscaler_targets.in_order(line, moves)


def refusal(recommendation: Recommendation) -> str:
    """Return why the recommendation cannot be written as a patch; "" if it can."""
    ref, kind = recommendation.container, recommendation.container.workload.kind
    for name in (ref.workload.namespace, ref.workload.name, ref.container):
        if not DNS_NAME.fullmatch(name):
            return f"{name!r} is not a Kubernetes name; check the labels of the metric source"
    if recommendation.role is ContainerRole.INJECTED:
        return _INJECTED
    if kind in TEMPLATE_PATHS:
        return ""
    return _UNCHANGEABLE.get(kind, f"the path of the template is not known for the kind {kind}")


def file_refusal(recommendation: Recommendation) -> str:
    """Return why the recommendation cannot be written to a file or a command line; "" if it can.

    A change of the maximum heap cannot: the flag that sets it is in the template's text, which only the cluster has.
    """
    heap = "the container's maximum heap has to change too: use cotenant recs apply" if recommendation.heap else ""
    return refusal(recommendation) or heap


def applied_refusal(recommendation: Recommendation) -> str:
    """Return why the recommendation cannot be written for server-side apply; "" if it can.

    A proposed GPU share cannot: server-side apply does not remove whole GPUs, a field that another manager set.
    """
    gpu = "the container's whole GPUs would remain beside the share: use another form, or cotenant recs apply"
    return file_refusal(recommendation) or (gpu if recommendation.gpu else "")


def resources(recommendation: Recommendation) -> dict[str, dict[str, str | None]]:
    """Return the changing fields of the container's `resources`; None removes a field."""
    changed_fields: dict[str, dict[str, str | None]] = {}
    for value in recommendation.values:
        if value.changes_template:
            amount = None if value.amount is None else format_amount(value.resource, value.amount)
            changed_fields.setdefault(FIELDS[value.field], {})[value.resource.value] = amount
    if recommendation.gpu:
        for side in FIELDS.values():
            changed_fields.setdefault(side, {}).update(recommendation.gpu.moves)
    return changed_fields


def by_workload(recommendations: Iterable[Recommendation]) -> dict[WorkloadRef, list[Recommendation]]:
    """Group recommendations by workload, keeping their order."""
    groups: dict[WorkloadRef, list[Recommendation]] = defaultdict(list)
    for recommendation in recommendations:
        groups[recommendation.container.workload].append(recommendation)
    return dict(groups)


def nest_mapping(path: Iterable[str], inner: dict[str, Any]) -> dict[str, Any]:
    """Return the inner mapping nested below the path of keys."""
    for key in reversed(tuple(path)):
        inner = {key: inner}
    return inner
