"""The class whose policy a pod follows, and what the pod's own annotations change in it. Pure.

Koordinator's pod annotations (`koordinator.sh/cpuBurst`, `cpuQOS`, `memoryQOS`, `blkioQOS`) hold JSON with a part of
the node's policy: a field that is set there applies, one that is missing or null is the node's. An annotation that is
not a JSON object, or has a value out of range, changes nothing and is reported.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.json_documents.struct_validation import without_nulls
from cotenant.base.kubernetes.protocol import ENDED_PHASES
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import KubeQos, PodSpec, Verdict
from cotenant.enforcer.model.node_policy import PolicyPart

PartT = TypeVar("PartT", bound=PolicyPart)
UNREADABLE: Final = "AnnotationUnreadable"
_CLASS: Final = {KubeQos.GUARANTEED: QosClass.LSR, KubeQos.BURSTABLE: QosClass.LS, KubeQos.BEST_EFFORT: QosClass.BE}


def class_of(pod: PodSpec) -> QosClass:
    """Return the pod's QoS class: its label, else by Kubernetes (Guaranteed is LSR, Burstable LS, BestEffort BE)."""
    return _CLASS[pod.kube_qos] if pod.qos_class is QosClass.NONE else pod.qos_class


def live(pod: PodSpec) -> bool:
    """Return whether containers of the pod may run: it has not ended.

    They also run during the grace period of a pod that is being deleted; its limits, placement and exclusive CPUs stay
    in force that long.
    """
    return pod.phase not in ENDED_PHASES


def annotation_fields(pod: PodSpec, annotation: str) -> tuple[dict[str, Any], tuple[Verdict, ...]]:
    """Return the annotation's JSON object without nulls, {} if it is missing, and a verdict if it is invalid."""
    text = pod.annotations.get(annotation)
    if text is None:
        return {}, ()
    try:
        return without_nulls(msgspec.json.decode(text, type=dict[str, Any])), ()
    except UNDECODABLE as bad:
        return {}, (unreadable(pod, annotation, bad),)


def apply_annotation(template: PartT, pod: PodSpec, annotation: str) -> tuple[PartT, tuple[Verdict, ...]]:
    """Return a part of the policy, overridden by an annotation; unchanged, with a verdict, if that is invalid."""
    fields, verdicts = annotation_fields(pod, annotation)
    if not fields:
        return template, verdicts
    return replace_fields(template, fields, pod, annotation)


def replace_fields(
    template: PartT, fields: dict[str, Any], pod: PodSpec, annotation: str
) -> tuple[PartT, tuple[Verdict, ...]]:
    """Return a part of the policy, overridden by decoded `fields`; unchanged, with a verdict, if they are invalid."""
    try:
        return msgspec.convert({**msgspec.to_builtins(template), **fields}, type(template)), ()
    except msgspec.ValidationError as bad:
        return template, (unreadable(pod, annotation, bad),)


def unreadable(pod: PodSpec, annotation: str, bad: Exception) -> Verdict:
    """Return the verdict on an annotation that is ignored because it is invalid."""
    message = f"{pod.key}: annotation {annotation} cannot be read, so the node's policy applies: {bad}"
    return Verdict(pod.key, UNREADABLE, message, warning=True)
