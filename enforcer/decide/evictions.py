"""Which of the wanted evictions may be requested now, and the request that is sent. Pure.

All strategies share one token bucket. A pod whose eviction was requested is not requested again until a time has
passed. A refusal returns its token, because no pod was evicted, and delays the next request for the same pod, by twice
as long with each further refusal (`after_refusal`): another pod is requested in its place at once. Never requested: a
pod that is not in this tick's list under that uid, is already being deleted, was made from a file on the node, or has a
system priority.
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
"""Longest time between requests for a pod whose eviction is refused repeatedly: a budget may permit it at any time."""
AT_ONCE_SECONDS: Final = 1
"""Shortest grace period of a kubelet; 0 would delete the pod's object while its containers may still run."""
SYSTEM_PRIORITY: Final = 2_000_000_000
"""system-cluster-critical and above."""
OWN_NAMESPACE: Final = "cotenant"


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate limit of evictions, over all strategies."""

    per_minute: int = 6
    burst: int = 3


@dataclass(frozen=True, slots=True)
class EvictionBudget:
    """The tokens left at `at_seconds`, and when each pod's eviction was last requested, by uid; monotonic seconds."""

    tokens: float = float("inf")
    at_seconds: float = 0.0
    by_uid: Mapping[str, float] = field(default_factory=dict)

    def return_token(self, rate: Rate) -> EvictionBudget:
        """Return the budget with one more token, because the eviction that used the token evicted no pod."""
        return replace(self, tokens=min(float(rate.burst), self.tokens + 1))


@dataclass(frozen=True, slots=True)
class RefusedPod:
    """The number of consecutive refusals of a pod's eviction, the last reason, and the time of the next request."""

    times: int
    until_seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """The evictions to request now, and the new budget."""

    now: tuple[Evict, ...]
    asked: EvictionBudget


def admit_evictions(
    evictions: Iterable[Evict], pods: Mapping[str, PodSpec], admission: EvictionBudget, at_seconds: float, rate: Rate
) -> Admitted:
    """Choose the evictions to request now, in the given order; `pods` are those of this tick, by uid."""
    passed = max(0.0, at_seconds - admission.at_seconds)
    filled = min(float(rate.burst), admission.tokens + passed * rate.per_minute / 60)
    tokens = filled if rate.per_minute else 0.0
    asked_at = {uid: at for uid, at in admission.by_uid.items() if at_seconds - at < AGAIN_SECONDS}
    chosen: list[Evict] = []
    for eviction in evictions:
        if tokens < 1 or eviction.uid in asked_at or unfit(eviction, pods.get(eviction.uid)):
            continue
        tokens -= 1
        asked_at[eviction.uid] = at_seconds
        chosen.append(eviction)
    return Admitted(tuple(chosen), replace(admission, tokens=tokens, at_seconds=at_seconds, by_uid=asked_at))


def after_refusal(
    before: RefusedPod | None, why: str, at_seconds: float, *, answered: bool = True, retry_after_seconds: float = 0.0
) -> RefusedPod:
    """Return the state of a pod whose eviction was refused again: the next request waits for AGAIN_SECONDS.

    The wait doubles with each further refusal. It does not grow if nobody answered, because that says nothing about the
    pod. It is at least `retry_after_seconds`, the delay that the server requested, and at most five minutes.
    """
    times = (before.times if before else 0) + answered
    rest = AGAIN_SECONDS * 2 ** min(max(times - 1, 0), 10)
    rest = min(max(rest, retry_after_seconds), LONGEST_REST_SECONDS)
    return RefusedPod(times, at_seconds + rest, why)


def unfit(eviction: Evict, pod: PodSpec | None) -> str:
    """Return why the eviction of this pod must not be requested; empty if it may be."""
    if pod is None or (pod.namespace, pod.name) != (eviction.namespace, eviction.name):
        return "this node has no such pod"
    if pod.deleting:
        return "the pod is already being deleted"
    if pod.static:
        return "the pod is static, made from a file on the node"
    if pod.priority >= SYSTEM_PRIORITY or pod.namespace == OWN_NAMESPACE:
        return "the pod is a system pod"
    return ""


def request_of(eviction: Evict, grace_seconds: int) -> Create:
    """Return the API request that evicts the pod; it is refused if another pod has the name now (another uid).

    A `grace_seconds` of 0 or more is the grace period. If it is negative, a pod with `eviction.by_api_only` keeps its
    own grace period, and any other pod gets AT_ONCE_SECONDS: the kubelet stops the containers at once, and confirms
    that they ended before the pod's name is free again.
    """
    if grace_seconds < 0 and not eviction.by_api_only:
        grace_seconds = AT_ONCE_SECONDS
    options = {"gracePeriodSeconds": grace_seconds} if grace_seconds >= 0 else {}
    pod = Address("v1", "pods", eviction.name, eviction.namespace)
    return eviction_of(pod, eviction.uid, eviction.why, options, "enforcer")
