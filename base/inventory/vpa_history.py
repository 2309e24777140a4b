"""The history of a container that a VerticalPodAutoscaler keeps: the histograms of its checkpoint. Pure.

Its recommender writes them every minute, so they hold days of usage of a cluster that nothing else measured. Bucket
layouts are those of `base.usage.histogram`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cotenant.base.identity import ContainerRef
from cotenant.base.resource import Resource

CHECKPOINT_VERSION: Final = "v3"
"""VPA's `SupportedCheckpointVersion`: it reads no other, and neither do we."""


@dataclass(frozen=True, slots=True)
class SavedHistogram:
    """One decaying histogram: relative weights by bucket, what they sum up to, and the time the decay counts from.

    A weight w stands for total * w / sum of all w, at `reference_seconds` (Unix).
    """

    weights: Mapping[int, float]
    total: float
    reference_seconds: int


@dataclass(frozen=True, slots=True)
class VpaHistory:
    """Usage of one container over all its pods, from the first to the last CPU sample (Unix seconds)."""

    container: ContainerRef
    autoscaler: str
    first_seconds: int
    last_seconds: int
    samples: int
    """CPU samples of all pods together; the recommender takes one per minute and pod."""
    histograms: Mapping[Resource, SavedHistogram]
