"""How a batch of any size is applied: as many workloads at a time as the guardrails allow, wave by wave. Pure.

The next wave follows once the one before was verified; harm in one ends the batch.
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
    """The wave of each workload of a batch, in its order: 0 goes first.

    moved_millicores: CPU requests that each workload moves, over all pods; requested_millicores: of the whole cluster,
    0 = not known, so that the share is no limit; canary: share of the workloads that makes wave 0 alone; overridden:
    rules that somebody overrides.
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
