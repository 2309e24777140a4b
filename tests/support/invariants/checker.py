"""All invariants, by name, and what a recording breaks of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tests.support.invariants.acts import (
    every_change_has_an_outcome,
    no_cgroup_left_tightened,
    no_gate_beyond_its_limit,
    no_latency_sensitive_pod_evicted,
    written_under_the_lease,
)
from tests.support.invariants.capacity import capacity_promised_once, hardware_given_once, quotas_within_runtime
from tests.support.invariants.ceiling import batch_below_its_ceiling
from tests.support.invariants.records import Bounds, Recording, Violation

Invariant = Callable[[Recording, Bounds], Iterator[Violation]]
INVARIANTS: Final[Mapping[str, Invariant]] = {
    found.__name__.replace("_", "-"): found
    for found in (
        capacity_promised_once,
        written_under_the_lease,
        no_latency_sensitive_pod_evicted,
        no_cgroup_left_tightened,
        every_change_has_an_outcome,
        batch_below_its_ceiling,
        no_gate_beyond_its_limit,
        hardware_given_once,
        quotas_within_runtime,
    )
}
"""Each one's definition is its docstring."""


def violations(recording: Recording, bounds: Bounds | None = None) -> tuple[Violation, ...]:
    """Everything that was broken, in the order in which it happened."""
    by_time = (violation for broken in INVARIANTS.values() for violation in broken(recording, bounds or Bounds()))
    return tuple(sorted(by_time, key=lambda violation: violation.seconds))
