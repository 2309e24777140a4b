"""The promise that pods which wait for quota or gang are looked after: made, renewed, taken back. Pure.

It stands in the SwapGuard beside the promise of Reservations, which another controller writes by server-side apply: a
JSON patch of this one field changes nothing else, and belongs to no apply that would take it away.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from cotenant.base.kubernetes.intent import Address, Create, Intent, Patch
from cotenant.base.kubernetes.moments import micro_moment
from cotenant.base.kubernetes.protocol import GANG_GATE, QUOTA_GATE
from cotenant.scheduler_ext.queues.model.native_group import native_group
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.reservations.guard import ADDRESS, MANAGED, Guard
from cotenant.scheduler_ext.reservations.model.scheduling_gate import OUR_GATES, without_gate


def renew_promise(guard: Guard, served_seconds: float, now_seconds: float) -> tuple[Intent, ...]:
    """The write that makes the promise last `served_seconds` from now; none while most of it is left."""
    remaining = guard.queues_served_until_seconds - now_seconds
    if served_seconds * 2 / 3 <= remaining <= 2 * served_seconds:
        return ()
    promise = promise_intent(guard, now_seconds + served_seconds, "the manager handles waiting pods")
    # The first one, and one after a pause, changes what the webhook does; the others only go on.
    return (replace(promise, routine=0 < remaining <= served_seconds) if isinstance(promise, Patch) else promise,)


def renewal_seconds(guard: Guard, served_seconds: float, now_seconds: float) -> float:
    """Return the seconds until the promise has to be renewed."""
    return max(0.0, guard.queues_served_until_seconds - served_seconds * 2 / 3 - now_seconds)


def withdraw_queue_promise(
    guard: Guard, pods: Iterable[QueuePod], now_seconds: float, native_groups: Container[tuple[str, str]] = ()
) -> tuple[Intent, ...]:
    """Return the writes that take the promise back: no pod gets a gate any more, and waiting pods lose theirs.

    For the ordinary end of the manager that made it, and where another scheduler deals with quotas and gangs. A
    member of a gang loses the gate of its Reservation, too: no manager would ever hand capacity to it. native_groups:
    Kubernetes' own PodGroups, by namespace and name; a PodGroup that a waiting pod names and that is missing is
    created, because without it the pod would not be scheduled.
    """
    waiting = [pod for pod in pods if waits(pod)]
    scheduling_groups = {(p.namespace, p.scheduling_group) for p in waiting if p.scheduling_group and p.waits_for_gang}
    absent = sorted(place for place in scheduling_groups if place not in native_groups)
    groups = (native_group(*place, why="nobody looks after its gang") for place in absent)
    revoked = guard.queues_served_until_seconds > now_seconds
    ended = (promise_intent(guard, now_seconds, "no manager handles queues any more"),) if revoked else ()
    return (*ended, *groups, *(gates_removal(pod) for pod in waiting))


def waits(pod: QueuePod) -> bool:
    """Return whether a gate of queues keeps the pod from being scheduled."""
    return not pod.node and not pod.deleting and (QUOTA_GATE in pod.gates or GANG_GATE in pod.gates)


def gates_removal(pod: QueuePod) -> Patch:
    """End every gate of ours on a pod; refused when it has changed meanwhile."""
    gates = OUR_GATES if GANG_GATE in pod.gates else (QUOTA_GATE,)
    operations = tuple(without_gate(pod.gates, pod.version, *gates))
    return Patch(Address("v1", "pods", pod.name, pod.namespace), operations, why="nobody looks after its queue")


def promise_intent(guard: Guard, until_seconds: float, why: str) -> Intent:
    """Write the promise, and the object where there is none."""
    until = micro_moment(until_seconds)
    if guard.version:
        return Patch(ADDRESS, ({"op": "add", "path": "/spec/queuesServedUntil", "value": until},), why=why)
    body = ADDRESS.manifest("SwapGuard", {"labels": MANAGED}, spec={"queuesServedUntil": until})
    return Create(ADDRESS, body, why=why)
