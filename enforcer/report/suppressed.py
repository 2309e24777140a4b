"""The share of the last hour in which best effort was suppressed, for the Node's annotation that schedulers read. Pure.

    sample, tier --share--> SuppressionHistory --fraction--> annotation `node.cotenant.dev/suppressed-fraction`

Best effort is suppressed in the part of a tick in which its quota throttled it, or in the whole tick if it used all the
CPUs that it had. CPU time that it loses by weight alone does not count. The annotation is written seldom, because every
watcher of Nodes receives each write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.protocol import SUPPRESSED_FRACTION_ANNOTATION
from cotenant.enforcer.contract import GroupReading
from cotenant.enforcer.model.enforcement import LaneSample

MINUTES: Final = 60
LEAST_SECONDS: Final = 300.0
"""Observed time below which there is no share yet, as after a start."""
STEP: Final = 0.05
"""Change of the share below which nothing is written."""
ALL_OF_IT: Final = 0.95
"""Share of its CPU limit from which on best effort's usage counts as suppressed."""


@dataclass(frozen=True, slots=True)
class SuppressionHistory:
    """Best effort's last hour, oldest first: (minute of Unix time, seconds suppressed, seconds observed)."""

    minutes: tuple[tuple[int, float, float], ...] = ()

    def after(self, sample: LaneSample, tier: GroupReading | None, elapsed_seconds: float) -> SuppressionHistory:
        """Return the history extended by one tick of `elapsed_seconds`."""
        minute, suppressed_seconds = int(sample.time_seconds // 60), share(sample, tier) * elapsed_seconds
        recent = tuple(entry for entry in self.minutes if minute - MINUTES < entry[0] <= minute)
        if recent and recent[-1][0] == minute:
            _, before, observed_seconds = recent[-1]
            newest = (minute, before + suppressed_seconds, observed_seconds + elapsed_seconds)
            return SuppressionHistory((*recent[:-1], newest))
        return SuppressionHistory((*recent, (minute, suppressed_seconds, elapsed_seconds)))

    def fraction(self) -> float | None:
        """Return the suppressed share of the last hour, 0..1; None if too little was observed."""
        observed_seconds = sum(entry[2] for entry in self.minutes)
        if observed_seconds < LEAST_SECONDS:
            return None
        return min(sum(entry[1] for entry in self.minutes) / observed_seconds, 1.0)


def share(sample: LaneSample, tier: GroupReading | None) -> float:
    """Return the share of a tick, 0..1, in which best effort was suppressed."""
    if sample.limit is None or sample.best_effort is None or tier is None:
        return 0.0
    if tier.cpu.periods:
        return min(tier.cpu.throttled_periods / tier.cpu.periods, 1.0)
    return 1.0 if sample.limit < sample.capacity and sample.best_effort >= ALL_OF_IT * sample.limit else 0.0


def note(node: str, history: SuppressionHistory, annotations: Mapping[str, str]) -> Apply | None:
    """Return the patch of the Node's annotation; None if `annotations` has the value, or too little was observed."""
    fraction = history.fraction()
    if fraction is None or not node:
        return None
    present = None
    with contextlib.suppress(ValueError):
        present = float(annotations.get(SUPPRESSED_FRACTION_ANNOTATION, ""))
    if present is not None and abs(fraction - present) < STEP and (fraction > 0 or present == 0):
        return None
    address = Address("v1", "nodes", node)
    body = address.manifest("Node", {"annotations": {SUPPRESSED_FRACTION_ANNOTATION: f"{fraction:.2f}"}})
    return Apply(address, body, why="share of the last hour in which best effort was suppressed")


def withdrawal(node: str, annotations: Mapping[str, str]) -> Apply | None:
    """Return the patch that takes the annotation from the Node; None if `annotations` does not have it."""
    if SUPPRESSED_FRACTION_ANNOTATION not in annotations:
        return None
    address = Address("v1", "nodes", node)
    return Apply(address, address.manifest("Node"), why="the agent ends, and its last share would soon be untrue")
