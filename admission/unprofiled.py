"""Pods that a ClusterColocationProfile selects but that have nothing of it: the webhook was not called. Pure.

If the webhook is unavailable, pods are created as their authors wrote them (`failurePolicy: Ignore`), and nothing
translates them later: such a pod uses the capacity of services until it is created again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cotenant.admission.policies.compiler import NOT_OURS
from cotenant.admission.profile import Profile
from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.kubernetes.protocol import MIRROR_ANNOTATION, SUB_PRIORITY_LABEL
from cotenant.base.kubernetes.qos import QOS_LABEL


@dataclass(frozen=True, slots=True)
class CreatedPod:
    """A pod that has not ended, with the fields that profiles set; `created_seconds` is Unix time, None if unknown."""

    namespace: str
    name: str
    created_seconds: float | None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    priority_class: str = ""
    scheduler_name: str = ""


def unprofiled_pods(
    pods: Iterable[CreatedPod],
    profiles: Mapping[str, tuple[Profile, float]],
    namespace_labels: Mapping[str, Mapping[str, str]],
) -> Iterator[tuple[CreatedPod, Profile]]:
    """Yield each pod that a profile selects but that has none of its values, with the first such profile.

    `profiles` has by name each profile and the Unix time of its last change, `namespace_labels` the labels of each
    known namespace. Not compared are static pods, pods in unknown or excluded namespaces, pods created before the
    profile's last change, profiles for less than 100 % of the pods, and profiles that set no value to recognise a pod
    by.
    """
    for pod in pods:
        labels = namespace_labels.get(pod.namespace)
        is_asked_about = NOT_OURS.matches({NOT_OURS.key: pod.namespace}) and MIRROR_ANNOTATION not in pod.annotations
        if labels is None or not is_asked_about:
            continue
        for profile, since_seconds in profiles.values():
            is_later = pod.created_seconds is not None and pod.created_seconds > since_seconds
            if not is_later or profile.percent != 100 or not profile.matches(labels, pod.labels):
                continue
            # One mark is enough: others may be changed.
            marks = [key in pod.labels for key in profile.labels]
            marks += [key in pod.annotations for key in profile.annotations]
            marks += [QOS_LABEL in pod.labels] if profile.qos_class else []
            marks += [SUB_PRIORITY_LABEL in pod.labels] if profile.sub_priority is not None else []
            marks += [pod.priority_class == profile.priority_class] if profile.priority_class else []
            marks += [pod.scheduler_name == profile.scheduler_name] if profile.scheduler_name else []
            if marks and not any(marks):
                yield pod, profile
                break


def profile_since_seconds(body: Mapping[str, Any]) -> float:
    """Return the Unix time of a ClusterColocationProfile object's last write; infinity if the object has none."""
    metadata = body["metadata"]
    times = [metadata.get("creationTimestamp"), *(entry.get("time") for entry in metadata.get("managedFields") or ())]
    where = f"ClusterColocationProfile {metadata['name']}: time of a write"
    moments = [moment_of(time, where) for time in times]
    return max((at for at in moments if at is not None), default=float("inf"))
