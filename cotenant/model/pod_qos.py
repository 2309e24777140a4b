"""Kubernetes' QoS class of a pod (status.qosClass), not to be taken for Koordinator's (`cotenant.model.qos`). Pure."""

from __future__ import annotations

from enum import StrEnum


class PodQos(StrEnum):
    """Kubernetes' QoS class of a pod."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"
