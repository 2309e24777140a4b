"""What quotas give back that use more than their runtime for too long, down to their runtime and no further. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cotenant.base.kubernetes.intent import Create
from cotenant.base.kubernetes.quota_tree import quantity_of
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.quota_admission import QuotaAdmission, QuotaUse
from cotenant.scheduler_ext.queues.victims import eviction, let_go_by_quota, limit_units, victims
from cotenant.scheduler_ext.queues.view import QueueView

EVICTIONS_PER_ROUND: Final = 10
"""Pods that one quota gives back in one round, at most. Ten pods in a round give back capacity within minutes and
end no workload at once."""


@dataclass(frozen=True, slots=True)
class Revocation:
    """Pods to evict, and (object, sentence) of what is told about quotas that cannot give back enough."""

    evictions: tuple[Create, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()


def excess(use: QuotaUse) -> dict[str, int]:
    """Return by how much a quota's gated pods use more than it may use, by resource; only amounts above zero."""
    over = {r: u - use.ungated.get(r, 0) - use.limit.get(r, 0) for r, u in use.used.items()}
    return {resource: amount for resource, amount in over.items() if amount > 0}


def over_since(view: QueueView, admission: QuotaAdmission) -> dict[str, float]:
    """Since when (Unix time) each quota uses more than it may."""
    return {name: view.over_since.get(name, view.now_seconds) for name, use in admission.uses.items() if excess(use)}


def borrows_since(view: QueueView, admission: QuotaAdmission) -> dict[str, float]:
    """Since when (Unix time) each quota uses more of some resource than its min."""
    least = {name: view.quotas[name].minimum for name in admission.uses}
    borrowing = (n for n, use in admission.uses.items() if any(u > least[n].get(r, 0) for r, u in use.used.items()))
    return {name: view.borrows_since.get(name, view.now_seconds) for name in borrowing}


def revocation(
    view: QueueView, settings: QueueSettings, admission: QuotaAdmission, since: Mapping[str, float]
) -> Revocation:
    """Return the evictions that give capacity back now, with notes; nothing while `queues.revoke` is off."""
    if not settings.revoke:
        return Revocation()
    pods = let_go_by_quota(view, since)
    evictions: list[Create] = []
    notes: list[tuple[str, str]] = []
    for quota in sorted(pods):
        if view.now_seconds - since[quota] <= settings.delay_evict_seconds:
            continue
        units, lacking = victims(view, pods[quota], excess(admission.uses[quota]))
        why = f"quota {quota} uses more than its runtime for {view.now_seconds - since[quota]:.0f} seconds"
        evictions += [eviction(pod, why) for unit in limit_units(units, EVICTIONS_PER_ROUND) for pod in unit]
        if lacking:
            amounts = ", ".join(f"{quantity_of(r, amount)} of {r}" for r, amount in sorted(lacking.items()))
            notes.append((f"elasticquotas/{quota}", f"uses {amounts} too much that no pod may be evicted for now"))
    return Revocation(tuple(evictions), tuple(notes))
