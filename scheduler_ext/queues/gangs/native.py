"""Gangs that are left to Kubernetes' own gang scheduling: which ones, and the PodGroups that their pods wait for. Pure.

The webhook names a PodGroup in new members (`queues.admission.pod_gates`); that cannot be taken back. So whichever way
such a gang goes, a PodGroup has to exist before its members may go: with the policy `gang` where the scheduler is to
place it, with `basic` where we do. What a PodGroup cannot say stays with us.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cotenant.base.kubernetes.intent import Create
from cotenant.scheduler_ext.queues.gangs.group import GangGroup, GangMembers
from cotenant.scheduler_ext.queues.gangs.reservations import asker_of
from cotenant.scheduler_ext.queues.model.native_group import inexpressible_fields, native_group
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.view import QueueView


def left_to_scheduler(members: GangMembers, view: QueueView, settings: QueueSettings) -> bool:
    """Return whether the scheduler places the gang: wanted and offered, and the gang's pods and terms allow it."""
    if settings.gangs_by == "own" or view.native_groups is None or inexpressible_fields(members.gang):
        return False
    placed_by_us = members.native is not None and not members.native.min_count
    waiting = [pod for pod in members.pods if not pod.node]
    return not placed_by_us and not members.satisfied and all(pod.scheduling_group for pod in waiting)


def group_intents(view: QueueView, groups: Iterable[GangGroup], settings: QueueSettings) -> Iterator[Create]:
    """PodGroups that members name and that do not exist; that of an incomplete gang comes when it is complete."""
    if view.native_groups is None:
        return
    for members in (members for group in groups for members in group.gangs):
        native_pods = [pod for pod in members.pods if pod.scheduling_group and not pod.node]
        if not native_pods or members.native is not None or members.gang.problem:
            continue
        owners = [(pod.name, pod.uid) for pod in native_pods]
        gang, asker = members.gang, asker_of(native_pods[0], members.gang)
        if not left_to_scheduler(members, view, settings):
            yield native_group(gang.namespace, gang.name, 0, owners, f"cotenant places gang {gang.key} itself", asker)
        elif not all(pod.waits_for_gang for pod in native_pods):
            yield native_group(gang.namespace, gang.name, 0, owners, f"members of gang {gang.key} wait for it", asker)
        elif len(members.gated) >= members.needed:
            why = f"gang {gang.key} is left to the scheduler"
            yield native_group(gang.namespace, gang.name, gang.min_available, owners, why, asker)


def placed_by(members: GangMembers, view: QueueView, settings: QueueSettings) -> str:
    """Return "kubernetes" or "cotenant", whichever places a gang, with the reason why Kubernetes does not.

    The reason is given only where Kubernetes might place it.
    """
    if members.native is not None and members.native.min_count:
        return "kubernetes"
    if settings.gangs_by == "own" or view.native_groups is None:
        return "cotenant"
    if left_to_scheduler(members, view, settings):
        return "kubernetes"
    unstamped = "it has pods that name no PodGroup of Kubernetes" if members.pods and not members.satisfied else ""
    because = inexpressible_fields(members.gang) or unstamped
    return f"cotenant: {because}" if because else "cotenant"
