"""Batch amounts of one node's NUMA zones, for the zones of its NodeResourceTopology. Pure.

System and reserved amounts are split evenly; a pod counts in the zones that the scheduler gave it, evenly, or in all
of them. Every split is rounded up in thousandths (of a core, of a byte), as upstream's quantities do. Source:
koord-manager, batchresource (zone level).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.colocation.reclaim_policies import POLICIES, POLICY_CODES
from cotenant.base.resource import Resource
from cotenant.recommender.colocation.columns import Integers, NodeColumns, ceil_amounts, share
from cotenant.recommender.colocation.formulas import (
    Parameters,
    Term,
    kept_percent,
    normalization,
    pod_terms,
    system_terms,
)
from cotenant.recommender.colocation.pods import PodTerms


def zone_batch(capacities: Sequence[int], pods: PodTerms, node: NodeColumns, strategy: ColocationStrategy) -> Integers:
    """Batch amount of each zone in the resource's unit, (zones,); `node` has one row, `pods` are those on it.

    Under the policy `forecast` what the forecast adds to present usage is split evenly.
    """
    parameters, count, resource = Parameters.of([strategy], node.resource), len(capacities), node.resource
    # Parts of the unit that upstream rounds to: millicores are thousandths already, bytes have thousand.
    capacity, fine = np.asarray(capacities, dtype=np.int64), 1 if resource is Resource.CPU else 1000
    system = _split(_sum(system_terms(node, parameters)), count, fine)
    policy = POLICIES[POLICY_CODES[strategy.policy(resource)]]
    # Sum of every pod's even part in each of its zones, (zones,), in thousandths.
    zone_amounts = policy.pods.amounts(pods)
    inside = zone_shares(pods.zones, count)
    if not len(zone_amounts):
        used = np.zeros(inside.shape[1])
    else:
        parts = np.ceil(zone_amounts * fine / inside.sum(axis=1))
        used = np.asarray((parts[:, None] * inside).sum(axis=0))
    if policy.by_forecast:
        present = float(policy.pods.amounts(node)[0])
        used = used + _split(_sum(pod_terms(node, parameters)[0]) - present, count, fine)
    margin = share(capacity, np.full(count, kept_percent(node, parameters)[0]))
    remaining = (capacity - margin) * fine - system - used
    cap = strategy.batch_percent(resource)
    bound = np.inf if cap is None else share(capacity, np.full(count, float(cap))) * fine
    amounts = ceil_amounts(np.minimum(remaining, bound) / fine)
    return amounts + normalization(amounts, node.cpu_ratio) if resource is Resource.CPU else amounts


def zone_shares(masks: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.bool_]:
    """Return the mask of the `count` zones that each pod uses, (pods, count).

    Zones that the node does not have are ignored. A pod without any zone of the node is counted in all of them.
    """
    inside = (masks[:, None] >> np.arange(count)) & 1 > 0
    return np.asarray(inside | ~inside.any(axis=1, keepdims=True))


def _sum(terms: Sequence[Term]) -> float:
    """Return the amount that the terms take of the only node."""
    return float(sum(int(term.counted[0]) for term in terms))


def _split(amount: float, count: int, fine: int) -> float:
    """One zone's part, rounded up, in thousandths."""
    return float(np.ceil(amount * fine / count))
