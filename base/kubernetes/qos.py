"""Koordinator's QoS classes and priority bands, with its defaulting rules.

Source: Koordinator's protocol (labels `koordinator.sh/qosClass`, `koordinator.sh/priority-class`, spec.priority bands).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

QOS_LABEL = "koordinator.sh/qosClass"
PRIORITY_CLASS_LABEL = "koordinator.sh/priority-class"


class QosClass(StrEnum):
    """The QoS class of a pod, by which it shares a node; NONE means the pod has no (known) label."""

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"
    NONE = ""


class PriorityClass(StrEnum):
    """The priority class of a pod, by which it may displace others; NONE means outside every band."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"
    NONE = ""

    @property
    def is_reclaimer(self) -> bool:
        """True if pods of this class run on reclaimed capacity and do not count as its owners."""
        return self in (PriorityClass.BATCH, PriorityClass.FREE)


BANDS: dict[PriorityClass, tuple[int, int]] = {
    PriorityClass.PROD: (9000, 9999),
    PriorityClass.MID: (7000, 7999),
    PriorityClass.BATCH: (5000, 5999),
    PriorityClass.FREE: (3000, 3999),
}


_QOS_TEXTS = frozenset(qos_class.value for qos_class in QosClass)


def qos_of(labels: Mapping[str, str]) -> QosClass:
    """QoS class by label; unknown text counts as none."""
    text = labels.get(QOS_LABEL, "")
    return QosClass(text) if text in _QOS_TEXTS else QosClass.NONE


def priority_of(labels: Mapping[str, str], priority: int | None) -> PriorityClass:
    """Raw priority class: the label's name if it is set, else the band of spec.priority, else none.

    A label of unknown text gives no class: it does not fall through to spec.priority.
    """
    name = labels.get(PRIORITY_CLASS_LABEL)
    if name is not None:
        return PriorityClass(name) if name in BANDS else PriorityClass.NONE
    return next(
        (c for c, (low, high) in BANDS.items() if priority is not None and low <= priority <= high), PriorityClass.NONE
    )


def with_default(qos: QosClass, priority: PriorityClass, *, best_effort: bool = False) -> PriorityClass:
    """Priority class for calculations: raw, else from the QoS class (BE -> batch, the others -> prod), else none.

    best_effort: Kubernetes' QoS class of the pod is BestEffort, which stands for BE where the pod has no QoS label.
    """
    if priority is not PriorityClass.NONE:
        return priority
    if qos is QosClass.BE or (qos is QosClass.NONE and best_effort):
        return PriorityClass.BATCH
    return PriorityClass.NONE if qos is QosClass.NONE else PriorityClass.PROD
