"""The validating webhook for pods: QoS x priority class, whole CPUs, batch resources, quotas, fixed labels. Pure.

The table checks the raw class (label, else the band of spec.priority), not the defaulted one. An existing pod is
checked only for fields that it may not change and for additional use of its quota, so that a pod that was created while
the webhook was unavailable can still be deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from cotenant.admission.pod_mutation import FIXED_LABELS
from cotenant.admission.resources import BATCH_NAMES, amounts, containers
from cotenant.base.allocation.cpu_annotations import assignment_of
from cotenant.base.allocation.devices import DEVICE_ALLOCATED_ANNOTATION
from cotenant.base.errors import CotenantError
from cotenant.base.kubernetes.pod_wire import requests_of, requests_of_pod
from cotenant.base.kubernetes.protocol import (
    QUEUED_ANNOTATION,
    RESERVATION_AFFINITY_ANNOTATION,
    RESERVATION_ALLOCATED_ANNOTATION,
    RESERVATION_LABEL,
    RESOURCE_STATUS_ANNOTATION,
    SYSTEM_NAMESPACE,
)
from cotenant.base.kubernetes.qos import QOS_LABEL, PriorityClass, QosClass, priority_of, qos_of
from cotenant.base.kubernetes.quota_tree import NAME_LABEL, PREEMPTIBLE_LABEL, QuotaTree, quantity_of
from cotenant.base.problem import Problem
from cotenant.base.text import format_value
from cotenant.scheduler_ext.queues.model.gang import GANG_PREFIX

REFUSED: Final[Mapping[QosClass, frozenset[PriorityClass]]] = {
    QosClass.LSR: frozenset(PriorityClass) - {PriorityClass.PROD},
    QosClass.BE: frozenset({PriorityClass.PROD, PriorityClass.NONE}),
}
"""Combinations that are refused; every other one is at most unusual."""
FIXED_ANNOTATIONS: Final = (QUEUED_ANNOTATION, RESERVATION_AFFINITY_ANNOTATION)
"""Annotations that cannot change, like those of its gang (GANG_PREFIX): allocations and waiting depend on them."""
MARKS: Final = (
    RESERVATION_LABEL,
    RESERVATION_ALLOCATED_ANNOTATION,
    RESOURCE_STATUS_ANNOTATION,
    DEVICE_ALLOCATED_ANNOTATION,
)
"""Labels and annotations by which controllers and schedulers record what a running pod was assigned."""
_OTHER_WRITERS: Final = (SYSTEM_NAMESPACE, "kube-system")
WHOLE_CPUS: Final = (QosClass.LSE, QosClass.LSR)
_QOS_FIELD: Final = f"metadata.labels[{QOS_LABEL}]"

Pod = Mapping[str, Any]


def problems_of_new(pod: Pod, namespace: str, quotas: QuotaTree) -> list[Problem]:
    """Return all problems of a new pod. The caller has checked that its metadata and spec are JSON objects."""
    labels = pod["metadata"].get("labels") or {}
    qos, priority = qos_of(labels), _priority(pod)
    refused = REFUSED.get(qos, frozenset())
    problems = []
    if priority in refused:
        allowed = ", ".join(sorted(c for c in PriorityClass if c not in refused and c))
        class_name = f"priority class {priority.value}" if priority.value else "no Koordinator priority class"
        fix = f"set spec.priorityClassName to one of {allowed}"
        problems.append(Problem(_QOS_FIELD, qos, f"cannot be combined with {class_name}", fix))
    return [*problems, *_whole_cpus(pod, qos), *_batch_needs_be(pod, qos), *leaf_quota(namespace, labels, quotas)]


def problems_of_change(old: Pod, new: Pod, gives: bool = False) -> list[Problem]:
    """Return the problems of an update that changes a pod's class, quota, gang or assigned capacity.

    FIXED_LABELS, FIXED_ANNOTATIONS and gang annotations may never change. MARKS may change if the writer, such as a
    scheduler, may assign them (`gives`). A change of the priority class is reported only if no other problem is.
    """
    problems = []
    for side, fixed in (("labels", FIXED_LABELS), ("annotations", FIXED_ANNOTATIONS)):
        before, after = (pod["metadata"].get(side) or {} for pod in (old, new))
        problems += [
            _immutable_field_problem(f"metadata.{side}[{key}]", before.get(key), after.get(key))
            for key in sorted(before.keys() | after.keys())
            if before.get(key) != after.get(key)
            and (
                key in fixed or (side == "annotations" and key.startswith(GANG_PREFIX)) or (key in MARKS and not gives)
            )
        ]
    was, now = _priority(old), _priority(new)
    if was is not now and not problems:
        problems.append(_immutable_field_problem("spec.priority", was, now))
    return problems


def may_give(username: str, groups: Collection[str], own_namespace: str) -> bool:
    """Return whether a user (a controller, a scheduler, an admin) may write the capacity assigned to a running pod."""
    accounts = (f"system:serviceaccount:{namespace}:" for namespace in (own_namespace, *_OTHER_WRITERS))
    return username.startswith((*accounts, "system:kube-")) or "system:masters" in groups


def problems_of_resize(old: Pod, new: Pod, namespace: str, quotas: QuotaTree) -> Iterator[Problem]:
    """Yield a problem for each resource that an in-place resize raises above the max of the pod's quota or its parents.

    A pod that may not be preempted must stay within min. A resource that does not grow is not checked, so that an
    exceeded quota prevents no decrease. A changed CPU request of a pod with exclusive CPUs is a problem in any case.
    """
    metadata = old["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    with suppress(CotenantError):
        was, now = (requests_of_pod(pod).get("cpu", 0) for pod in (old, new))
        cpus = len(assignment_of(annotations, "the pod").cpus)
        if cpus and was != now:  # the pod was given CPUs of its own, and would keep just these
            message = f"cannot be resized: the pod keeps the {cpus} exclusive CPUs assigned to it"
            fix = "create a new pod that requests as many CPUs as needed"
            yield Problem("spec.containers[*].resources.requests.cpu", quantity_of("cpu", now), message, fix)
    quota = quotas.of_pod(namespace, labels, annotations.get(QUEUED_ANNOTATION, ""))
    if quota is None:
        return
    try:
        before, after = requests_of_pod(old), requests_of_pod(new)
    except CotenantError as error:
        yield Problem("spec.containers[*].resources.requests", "", error.message, error.fix)
        return
    for word, bound, most, used in quotas.bounds(quota, labels.get(PREEMPTIBLE_LABEL) == "false"):
        for resource, amount in after.items():
            more = amount - before.get(resource, 0)
            total = max(used.get(resource, 0) + more, amount)
            if more > 0 and resource in most and total > most[resource]:
                texts = [quantity_of(resource, n) for n in (used.get(resource, 0), more, most[resource])]
                message = f"{texts[0]} used + {texts[1]} more is above {word} {texts[2]} of quota {bound.name}"
                field = f"spec.containers[*].resources.requests.{resource}"
                yield Problem(field, quantity_of(resource, amount), message, "request less, or have the quota raised")


def _immutable_field_problem(field: str, was: str | None, now: str | None) -> Problem:
    return Problem(field, now or "", f"may not be changed; it was {format_value(was or '')}", "create a new pod")


def _priority(pod: Pod) -> PriorityClass:
    value = pod["spec"].get("priority")
    number = value if isinstance(value, int) and not isinstance(value, bool) else None
    return priority_of(pod["metadata"].get("labels") or {}, number)


def _whole_cpus(pod: Pod, qos: QosClass) -> Iterator[Problem]:
    """Yield a problem unless a pod of a class that binds CPUs requests a whole, positive number of them."""
    if qos not in WHOLE_CPUS:
        return
    field = "spec.containers[*].resources.requests.cpu"
    try:
        request_millicores = requests_of(pod["spec"]).get("cpu", 0)
    except CotenantError as error:
        yield Problem(field, "", error.message, error.fix)
        return
    if not request_millicores:
        yield Problem(field, "0", f"is less than a CPU, and {qos} needs whole CPUs", "request a whole number of CPUs")
    elif request_millicores % 1000:
        message = f"is not a whole number of CPUs, as {qos} needs"
        yield Problem(field, f"{request_millicores}m", message, "request whole CPUs")


def _batch_needs_be(pod: Pod, qos: QosClass) -> Iterator[Problem]:
    """Yield a problem for each list of a container that names batch resources although the QoS class is not BE."""
    if qos is QosClass.BE:
        return
    for group in ("initContainers", "containers"):
        for index, container in enumerate(containers(pod, group)):
            for side in ("requests", "limits"):
                names = [name for name in BATCH_NAMES if name in amounts(container, side)]
                if names:
                    field = f"spec.{group}[{index}].resources.{side}"
                    message = f"are only for QoS BE, but the pod is {qos.value or 'without a QoS label'}"
                    yield Problem(
                        field, ", ".join(names), message, f"set {_QOS_FIELD} to BE, or request cpu and memory"
                    )
                    break


def leaf_quota(namespace: str, labels: Mapping[str, str], quotas: QuotaTree) -> Iterator[Problem]:
    """Yield a problem if the pod's quota, by label or namespace, has child quotas: such a quota may have no pods."""
    quota = quotas.of_pod(namespace, labels)
    if quota and quota.is_parent:
        below = ", ".join(q.name for q in quotas.children(quota.name)[:5]) or f"the quotas below {quota.name}"
        yield Problem(f"metadata.labels[{NAME_LABEL}]", quota.name, "is a parent quota", f"use one of: {below}")
