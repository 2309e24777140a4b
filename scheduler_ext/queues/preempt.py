"""A pod that waits because its quota is full takes capacity back from pods of lower priority of the same quota. Pure.

As Koordinator's quota plugin preempts: only inside the quota, only pods of lower priority that may be preempted, and
not for a pod whose preemptionPolicy is Never. Only the first of a queue preempts; nobody is evicted unless enough can
be, nor for a pod that would find no capacity on the nodes afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.base.kubernetes.intent import Create
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.packing import FreeCapacity, member_groups
from cotenant.scheduler_ext.queues.quota_admission import QuotaAdmission
from cotenant.scheduler_ext.queues.quota_queue import QueueUnit
from cotenant.scheduler_ext.queues.revoke import EVICTIONS_PER_ROUND
from cotenant.scheduler_ext.queues.victims import eviction, let_go_by_quota, limit_units, victims
from cotenant.scheduler_ext.queues.view import QueueView


def preemptions(view: QueueView, settings: QueueSettings, admission: QuotaAdmission) -> Iterator[Create]:
    """Evictions of this round; none while `queues.preempt` is off, nor of a quota that is over its runtime.

    Such a quota gives back by `queues.revoke`, whoever waits; what it uses beyond that by no gate it never does.
    """
    if not settings.preempt:
        return
    full = [stuck for stuck in admission.stuck if not admission.uses[stuck.unit.quota].over and _preempts(stuck.unit)]
    pods = let_go_by_quota(view, {stuck.unit.quota for stuck in full})
    for stuck in full:
        lowest = min(pod.priority for pod in stuck.unit.pods)
        units, lacking = victims(view, pods.get(stuck.unit.quota, []), stuck.missing, below=lowest)
        chosen = [pod for unit in units for pod in unit]
        if lacking or not chosen or not _fits_after_removal(view, stuck.unit, chosen):
            continue
        why = f"{stuck.unit.place} of priority {lowest} waits for quota {stuck.unit.quota}, and this pod's is lower"
        yield from (eviction(pod, why) for unit in limit_units(units, EVICTIONS_PER_ROUND) for pod in unit)


def _preempts(unit: QueueUnit) -> bool:
    return len(unit.needs) == 1 and all(pod.preempts for pod in unit.pods)


def _fits_after_removal(view: QueueView, unit: QueueUnit, chosen: list[QueuePod]) -> bool:
    """Return whether the unit fits on the nodes once these pods, and those that end already, are gone."""
    going = {pod.uid for pod in chosen}
    staying = [pod for pod in view.pods if pod.uid not in going and not pod.is_ending(view.now_seconds)]
    names = {name for pod in unit.pods for name in pod.requests}
    return not FreeCapacity.of(view.nodes, names, staying).shortages(member_groups(unit.pods))
