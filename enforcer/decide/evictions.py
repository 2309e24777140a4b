"""Which of the wanted evictions may be asked now, and what asking one means on the wire. Pure.

All strategies share one bucket of tokens; a pod that was asked to leave is not asked again until its time has passed.
A refusal gives its token back, because nobody left, and keeps its own pod from being asked anew for a time that doubles
with every further refusal (`after_refusal`): another one is asked in its place at once.
Never asked: a pod that is not in this tick's list under that very uid, one that leaves already, one made from a file on
the node, and one whose priority is the system's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cotenant.base.kubernetes.intent import Address, Create, eviction_of
from cotenant.enforcer.contract import Evict, PodSpec

AGAIN_SECONDS: Final = 30.0
"""Interval of eviction requests for a pod that still exists."""
LONGEST_REST_SECONDS: Final = 300.0
"""Of a pod whose eviction is refused again and again: a budget may permit it at any time."""
AT_ONCE_SECONDS: Final = 1
"""Shortest time that a kubelet gives; 0 would drop the pod's object while its containers may still run."""
SYSTEM_PRIORITY: Final = 2_000_000_000
"""system-cluster-critical and above."""
OWN_NAMESPACE: Final = "cotenant"


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate at which pods may be asked to leave."""

    per_minute: int = 6
    burst: int = 3


@dataclass(frozen=True, slots=True)
class EvictionBudget:
    """Tokens that are left, as of when, and when each pod (by uid) was asked last; monotonic seconds."""

    tokens: float = float("inf")
    at_seconds: float = 0.0
    by_uid: Mapping[str, float] = field(default_factory=dict)

    def return_token(self, rate: Rate) -> EvictionBudget:
        """Return the budget with the token of an eviction that evicted no pod."""
        return replace(self, tokens=min(float(rate.burst), self.tokens + 1))


@dataclass(frozen=True, slots=True)
class RefusedPod:
    """The number of consecutive refusals of a pod's eviction, the last reason, and the time until which it rests."""

    times: int
    until_seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """The evictions that may be requested now, the reasons against the others by uid, and what to remember."""

    now: tuple[Evict, ...]
    refused: Mapping[str, str]
    asked: EvictionBudget


def admit_evictions(
    evictions: Iterable[Evict], pods: Mapping[str, PodSpec], admission: EvictionBudget, at_seconds: float, rate: Rate
) -> Admitted:
    """Choose, in the order of `evictions`. pods: this tick's, by uid."""
    passed = max(0.0, at_seconds - admission.at_seconds)
    tokens = min(float(rate.burst), admission.tokens + passed * rate.per_minute / 60)
    if not rate.per_minute:
        tokens = 0.0
    asked_at = {uid: at for uid, at in admission.by_uid.items() if at_seconds - at < AGAIN_SECONDS}
    chosen: list[Evict] = []
    refused: dict[str, str] = {}
    for eviction in evictions:
        why = unfit(eviction, pods.get(eviction.uid)) or ("asked already" if eviction.uid in asked_at else "")
        if not why and tokens < 1:
            why = f"more than {rate.per_minute} evictions a minute"
        if why:
            refused[eviction.uid] = why
            continue
        tokens -= 1
        asked_at[eviction.uid] = at_seconds
        chosen.append(eviction)
    return Admitted(tuple(chosen), refused, replace(admission, tokens=tokens, at_seconds=at_seconds, by_uid=asked_at))


def after_refusal(
    before: RefusedPod | None, why: str, at_seconds: float, *, answered: bool = True, retry_after_seconds: float = 0.0
) -> RefusedPod:
    """A pod after one more refusal: it rests AGAIN_SECONDS, twice as long after each further one, five minutes at most.

    Where nobody answered, the rest does not grow: that says nothing about the pod. It is at least as long as the server
    asked for, within the same five minutes.
    """
    times = (before.times if before else 0) + answered
    rest = AGAIN_SECONDS * 2 ** min(max(times - 1, 0), 10)
    rest = min(max(rest, retry_after_seconds), LONGEST_REST_SECONDS)
    return RefusedPod(times, at_seconds + rest, why)


def unfit(eviction: Evict, pod: PodSpec | None) -> str:
    """Why this pod is never asked to leave; empty when it may be."""
    if pod is None or (pod.namespace, pod.name) != (eviction.namespace, eviction.name):
        return "no such pod here"
    if pod.deleting:
        return "leaves already"
    if pod.static:
        return "made from a file on the node"
    if pod.priority >= SYSTEM_PRIORITY or pod.namespace == OWN_NAMESPACE:
        return "the system's own"
    return ""


def request_of(eviction: Evict, grace_seconds: int) -> Create:
    """An Eviction with the pod's uid as precondition; a negative grace period leaves it to the pod.

    A pod that is not to be asked by the API alone gets AT_ONCE_SECONDS then: the kubelet stops its containers at once,
    and still confirms that they ended before the pod's name is free again.
    """
    if grace_seconds < 0 and not eviction.by_api_only:
        grace_seconds = AT_ONCE_SECONDS
    options = {"gracePeriodSeconds": grace_seconds} if grace_seconds >= 0 else {}
    pod = Address("v1", "pods", eviction.name, eviction.namespace)
    return eviction_of(pod, eviction.uid, eviction.why, options, "enforcer")
