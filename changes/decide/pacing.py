"""Apply a large batch in waves, each with as many workloads as the guardrails allow at once. Pure.

The next wave follows once the one before is verified; harm ends the batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf
from typing import Final

from cotenant.changes.decide.methods import first_of
from cotenant.changes.model.settings import GuardrailSettings

SIZE: Final = "batch-size"
SHARE: Final = "batch-share"


def waves_of(
    moved_millicores: Sequence[int],
    requested_millicores: int,
    settings: GuardrailSettings,
    canary: float = 0.0,
    overridden: Collection[str] = (),
) -> list[int]:
    """Return the wave number of each workload of a batch, in its order; wave 0 goes first.

    `moved_millicores` are the CPU requests that each workload moves over all pods, `requested_millicores` those of the
    cluster (0: unknown, the share is not limited). `canary` is the share of workloads that form wave 0. `overridden`
    names rules that a person overrides.
    """
    most = inf if SIZE in overridden else settings.most_workloads
    is_limited = requested_millicores > 0 and SHARE not in overridden
    budget = settings.most_requests_share * requested_millicores if is_limited else inf
    ahead = first_of(len(moved_millicores), canary)
    is_canary = ahead < len(moved_millicores)
    waves: list[int] = []
    wave, count, used = 0, 0, 0
    for index, moved in enumerate(moved_millicores):
        begins_rest = is_canary and index == ahead
        if count and (begins_rest or count >= most or used + moved > budget):
            wave, count, used = wave + 1, 0, 0
        waves.append(wave)
        count, used = count + 1, used + moved
    return waves
