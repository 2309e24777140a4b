"""Koordinator's QoS classes and priority bands, with its defaulting rules.

Source: Koordinator's protocol (labels `koordinator.sh/qosClass`, `koordinator.sh/priority-class`, spec.priority bands).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

QOS_LABEL = "koordinator.sh/qosClass"
PRIORITY_CLASS_LABEL = "koordinator.sh/priority-class"


class QosClass(StrEnum):
    """Koordinator's QoS class of a pod, which decides how it shares a node; NONE if its label is missing or unknown."""

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"
    NONE = ""


class PriorityClass(StrEnum):
    """Koordinator's priority class of a pod, which decides whom it may preempt; NONE means outside every band."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"
    NONE = ""

    @property
    def is_reclaimer(self) -> bool:
        """True if pods of this class run on reclaimed capacity, so that they do not count as high-priority pods."""
        return self in (PriorityClass.BATCH, PriorityClass.FREE)


BANDS: dict[PriorityClass, tuple[int, int]] = {
    PriorityClass.PROD: (9000, 9999),
    PriorityClass.MID: (7000, 7999),
    PriorityClass.BATCH: (5000, 5999),
    PriorityClass.FREE: (3000, 3999),
}


_QOS_TEXTS = frozenset(qos_class.value for qos_class in QosClass)


def qos_of(labels: Mapping[str, str]) -> QosClass:
    """Return the QoS class of the label; a missing or unknown one is NONE."""
    text = labels.get(QOS_LABEL, "")
    return QosClass(text) if text in _QOS_TEXTS else QosClass.NONE


def priority_of(labels: Mapping[str, str], priority: int | None) -> PriorityClass:
    """Return the priority class without defaults: the label's if it is set, else by spec.priority's band, else NONE.

    A label with an unknown text gives NONE, whatever spec.priority is.
    """
    name = labels.get(PRIORITY_CLASS_LABEL)
    if name is not None:
        return PriorityClass(name) if name in BANDS else PriorityClass.NONE
    return next(
        (c for c, (low, high) in BANDS.items() if priority is not None and low <= priority <= high), PriorityClass.NONE
    )


def with_default(qos: QosClass, priority: PriorityClass, *, best_effort: bool = False) -> PriorityClass:
    """Return the priority class for calculations: as given, else by QoS class (BE -> batch, others -> prod), else NONE.

    `best_effort` is true if Kubernetes' QoS class is BestEffort, which counts as BE if the pod has no QoS label.
    """
    if priority is not PriorityClass.NONE:
        return priority
    if qos is QosClass.BE or (qos is QosClass.NONE and best_effort):
        return PriorityClass.BATCH
    return PriorityClass.NONE if qos is QosClass.NONE else PriorityClass.PROD
