"""CPU burst: a latency-sensitive container may exceed its CPU limit for a short time instead of being throttled.

The policy has two means. `cpuBurst`: the kernel saves the quota that a container leaves unused, up to a buffer
(cpu.burst). `cfsQuota`: the agent raises the quota of a throttled container step by step, while the share pool (the
CPUs that containers share) is below its threshold.

    buffer  = int(limit_cores * cpuBurstPercent / 100 * 100 ms), at most the quota: the kernel refuses more
    quota   = now * 1.2 to raise it, now * 0.8 to lower it; always within [limit, limit * cfsQuotaBurstPercent %]
    pool    : size = CPUs - requests of LSE and LSR pods; used = node's usage - usage of LSE, LSR and BE pods
              used / size >= threshold: every quota is lowered; >= 0.9 threshold, or unknown: no quota is raised
    limiter : below 60 % of its limit a container saves (100 - use %) a second, above 100 % it spends (use % - 100);
              without savings its quota is lowered; cfsQuotaBurstPeriodSeconds: -1 = no limiter, 0 = no raised quota

While the kubelet resizes a pod, its containers have their limits as quotas and no buffer: the kernel refuses a quota
below the buffer, and on cgroup v1 a pod's quota below a container's.

A pod's quota changes by as much as its containers' quotas. Limits are those that the kubelet has granted
(`decide.granted`), also for native sidecars and init containers; if a limit is not known, nothing changes. LSE, LSR and
BE pods, pods with exclusive CPUs, ephemeral containers, and quotas that the node does not enforce are not changed.
Source: Koordinator's koordlet, `cpuburst`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from cotenant.base.kubernetes.pod_resources import ContainerKind, counted_requests
from cotenant.base.kubernetes.protocol import CPU_BURST_ANNOTATION
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import (
    ContainerReading,
    GroupReading,
    Knob,
    Observation,
    PodReading,
    Step,
    StrategyPlan,
    Value,
    Verdict,
    Want,
)
from cotenant.enforcer.decide.container_resources import QUOTA_MIN_MICROSECONDS, quota_of
from cotenant.enforcer.decide.cpu_bandwidth import NOT_BURSTING, may_burst, raises_quota, ratio_of, saves
from cotenant.enforcer.decide.granted import CPU, container_limit, pod_limit
from cotenant.enforcer.decide.overrides import apply_annotation, live
from cotenant.enforcer.model.node_policy import CpuBurst, NodePolicy

NAME: Final = "cpu-burst"
COOLING_SHARE: Final = 0.9
WINDOW_TICKS: Final = 5
LONGEST_WINDOW_SECONDS: Final = 10.0
SAVING_BELOW_PERCENT: Final = 60
START_SHARE: Final = 0.5
"""A limiter starts with a random part of its capacity, less than this, so that not all quotas change together."""
UNUSED_PERIODS: Final = 2


class PoolLoad(StrEnum):
    """The load of the share pool, the CPUs that bursting containers share."""

    IDLE = "idle"
    COOLING = "cooling"
    OVERLOAD = "overload"
    UNKNOWN = "unknown"


class QuotaMove(StrEnum):
    """The direction in which a container's quota changes."""

    UP = "up"
    DOWN = "down"
    REMAIN = "remain"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The budget of a burst limiter, in percent of the CPU limit x seconds, as of `counted_seconds`."""

    amount: float
    capacity: int
    period_seconds: int
    counted_seconds: float


@dataclass(frozen=True, slots=True)
class PodBase:
    """The pod's quota from which changes are counted, and the quota that the kubelet granted then; us per 100 ms."""

    base: int
    granted: int


@dataclass(frozen=True, slots=True)
class BurstState:
    """Limiters by container ("uid/name"), share pool usage (second, millicores), and quotas that are changed now."""

    seed: int = 0
    tokens: dict[str, Tokens] = field(default_factory=dict)
    pool_use: tuple[tuple[float, float], ...] = ()
    moved: dict[str, int] = field(default_factory=dict)
    """The kubelet's quota, in microseconds, of each container whose quota is changed now."""
    pods: dict[str, PodBase] = field(default_factory=dict)
    """Quotas of pods whose quota is changed now, by uid."""


@dataclass(frozen=True, slots=True)
class QuotaStep:
    """One change of a container's quota from `now` to `then`, in microseconds per 100 ms."""

    base: int
    """The quota for the container's limit; it is smaller on a faster node."""
    now: int
    then: int
    ceiling: int
    given: int
    """The quota that the kubelet set for the limit."""
    why: str = ""

    @property
    def moved(self) -> bool:
        """True if the quota, or the quota from which it is computed, differs from the kubelet's."""
        return (self.then, self.base) != (self.given, self.given)


@dataclass(frozen=True, slots=True)
class BurstContext:
    """The facts of a tick on which the quotas of all containers depend."""

    load: PoolLoad
    at_seconds: float
    ratio: float
    burst_supported: bool


@dataclass(frozen=True, slots=True)
class Burst:
    """The CPU burst strategy; `seed` makes the limiters' random start reproducible."""

    seed: int = 0
    name: str = NAME

    def initial(self) -> BurstState:
        """Return the initial state, without limiters or samples."""
        return BurstState(self.seed)

    def step(self, observation: Observation, policy: NodePolicy, state: BurstState) -> Step[BurstState]:
        """Return cpu.burst and CFS quotas of all pods that may burst, in us per 100 ms, and the next state."""
        samples = pool_samples(observation, state.pool_use)
        load = pool_load(observation, policy.cpu_burst.share_pool_threshold_percent, samples)
        supported = Knob.CPU_BURST in observation.supported
        moment = BurstContext(load, observation.at_seconds, ratio_of(observation.node), supported)
        wants: list[Want] = []
        verdicts: list[Verdict] = []
        going = BurstState(state.seed, dict(state.tokens), samples)
        for pod in (p for p in observation.pods if may_burst(p, observation.node)):
            strategy, complaint = apply_annotation(policy.cpu_burst, pod.spec, CPU_BURST_ANNOTATION)
            verdicts += complaint
            quotas = _quotas(pod, strategy, moment, (state, going))
            wants += _buffers(pod, strategy, moment)
            wants += _quota_wants(pod, quotas, (strategy, moment.ratio), (state, going))
            going.moved.update({key: quota.given for key, quota in quotas.items() if quota.moved})
        # The limiters without those unused for UNUSED_PERIODS periods. The containers of those are gone or no longer
        # limited.
        used_tokens = {
            key: bucket
            for key, bucket in going.tokens.items()
            if observation.at_seconds - bucket.counted_seconds <= UNUSED_PERIODS * bucket.period_seconds
        }
        return Step(StrategyPlan(tuple(wants), verdicts=tuple(verdicts)), replace(going, tokens=used_tokens))


def pool_samples(observation: Observation, before: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """Return the share pool's usage in the ticks of the window, this tick included if its usage is known."""
    window = min(WINDOW_TICKS * observation.elapsed_seconds, LONGEST_WINDOW_SECONDS)
    recent = tuple(sample for sample in before if observation.at_seconds - sample[0] < window)
    if observation.node.cpu.millicores is None:
        return recent
    used = observation.node.cpu.millicores - sum(
        pod.group.cpu.millicores or 0.0 for pod in observation.pods if pod.group and pod.spec.qos_class in NOT_BURSTING
    )
    return (*recent, (observation.at_seconds, max(used, 0.0)))


def pool_millicores(observation: Observation) -> int:
    """Return the machine's CPU without the requests of LSE and LSR pods, in millicores."""
    bound = (p.spec for p in observation.pods if live(p.spec) and p.spec.qos_class in {QosClass.LSE, QosClass.LSR})
    return observation.node.cpu_millicores - sum(counted_requests(pod.resources).get(CPU, 0) for pod in bound)


def pool_load(observation: Observation, threshold_percent: int, samples: tuple[tuple[float, float], ...]) -> PoolLoad:
    """Return the share pool's load by the mean of the samples (second, millicores); without CPUs it counts as full."""
    if not samples:
        return PoolLoad.UNKNOWN
    pool = pool_millicores(observation)
    share = math.fsum(used for _, used in samples) / len(samples) / pool if pool > 0 else 1.0
    threshold = threshold_percent / 100
    if share >= threshold:
        return PoolLoad.OVERLOAD
    return PoolLoad.COOLING if share >= COOLING_SHARE * threshold else PoolLoad.IDLE


def restrict_move(move: QuotaMove, load: PoolLoad) -> QuotaMove:
    """Return the quota change for this load of the pool: UP only if IDLE; in OVERLOAD only DOWN or RESET."""
    if load is PoolLoad.OVERLOAD and move in {QuotaMove.UP, QuotaMove.REMAIN}:
        return QuotaMove.DOWN
    return QuotaMove.REMAIN if move is QuotaMove.UP and load in {PoolLoad.COOLING, PoolLoad.UNKNOWN} else move


def update_tokens(
    strategy: CpuBurst, before: Tokens | None, use_percent: float, at_seconds: float, start: float
) -> Tokens:
    """Return the limiter after this tick; `use_percent` is the container's usage in percent of its CPU limit.

    A limiter that is new or has a new capacity begins with START_SHARE x `start` (0..1) x capacity. Seconds count only
    as whole ones, and the rest in the next tick: otherwise a tick a little shorter than a second would spend nothing.
    """
    period = strategy.cfs_quota_burst_period_seconds
    capacity = period * max(strategy.cfs_quota_burst_percent - 100, 0)
    if before is None or before.capacity != capacity:
        return Tokens(capacity * START_SHARE * start, capacity, period, at_seconds)
    seconds = math.floor(max(at_seconds - before.counted_seconds, 0.0))
    moves = use_percent >= 100 or use_percent < SAVING_BELOW_PERCENT
    saved = (100 - use_percent) * seconds if moves else 0.0
    amount = min(max(before.amount + saved, -capacity), capacity)
    return Tokens(amount, capacity, period, before.counted_seconds + seconds)


def random_part(seed: int, key: str) -> float:
    """Return a pseudo-random number, 0..1, that depends only on the seed and the key, not on containers' order."""
    return int.from_bytes(blake2b(f"{seed}/{key}".encode(), digest_size=8).digest()) / 2**64


def _quotas(
    pod: PodReading, strategy: CpuBurst, moment: BurstContext, states: tuple[BurstState, BurstState]
) -> dict[str, QuotaStep]:
    """Return the quota steps of running containers with a limit, by "uid/name"; `states` are the old and new state."""
    before, going = states
    quotas, period_seconds = {}, strategy.cfs_quota_burst_period_seconds
    for container in pod.containers:
        limit = _limit_millicores(pod, container)
        now = _limit(container.group) if limit else None
        if not limit or now is None or container.group is None:
            continue
        key, base, cpu = f"{pod.spec.uid}/{container.spec.name}", quota_of(limit, moment.ratio), container.group.cpu
        # Up if throttled, down if the limiter has no savings; a policy that raises no quota resets it to the kubelet's.
        move = QuotaMove.UP if cpu.throttled_periods > 0 else QuotaMove.REMAIN
        if not raises_quota(strategy):
            move = QuotaMove.RESET
        elif period_seconds > 0 and cpu.millicores is not None:
            percent, start = 100 * cpu.millicores / limit, random_part(going.seed, key)
            tokens = update_tokens(strategy, going.tokens.get(key), percent, moment.at_seconds, start)
            going.tokens[key] = tokens
            move = restrict_move(move if tokens.amount > 0 else QuotaMove.DOWN, moment.load)
        else:
            move = restrict_move(QuotaMove.DOWN if period_seconds == 0 else move, moment.load)
        # What was not moved starts at its limit, whatever stands there: on a faster node that is the kubelet's quota,
        # and a reading may be of a moment before it was given back.
        begin, move = now if key in before.moved else base, QuotaMove.RESET if pod.spec.resizing else move
        quotas[key] = replace(next_quota(strategy, base, begin, move), now=now, given=quota_of(limit))
    return quotas


def _limit_millicores(pod: PodReading, container: ContainerReading) -> int:
    """Return the limit of a running container in millicores; 0 if it has none, or its quota must not change."""
    spec = container.spec
    if container.group is None or not spec.running or spec.kind is ContainerKind.EPHEMERAL:
        return 0
    return container_limit(pod.spec, spec, CPU) or 0


def _limit(group: GroupReading | None) -> int | None:
    now = group.knobs.get(Knob.CPU_QUOTA) if group else None
    return now if isinstance(now, int) and now > 0 else None


def next_quota(strategy: CpuBurst, base: int, now: int, move: QuotaMove) -> QuotaStep:
    """Return the next step of a quota, kept between the limit and the most that the policy allows."""
    ceiling = base * max(strategy.cfs_quota_burst_percent, 100) // 100
    steps = {QuotaMove.UP: now * 12 // 10, QuotaMove.DOWN: now * 8 // 10, QuotaMove.REMAIN: now, QuotaMove.RESET: base}
    then = min(max(steps[move], base), ceiling)
    return QuotaStep(base, now, then, ceiling, base, f"quota step {move.value} from {now} us; the limit is {base} us")


def pod_quota(pod_now: int, quotas: Iterable[QuotaStep]) -> tuple[int, int]:
    """Return the pod's quota after its containers' steps, and its quota if all containers had the kubelet's quotas.

    `pod_now` is the pod's quota while the containers have `QuotaStep.now`, and may be less than their sum. The first
    result is at most the sum of `QuotaStep.ceiling`, or the second if more, so that failed writes cannot make it grow.
    """
    each = tuple(quotas)
    rest = pod_now - sum(q.now for q in each)
    then, kubelet_quota, ceiling = (sum(getattr(q, name) for q in each) for name in ("then", "given", "ceiling"))
    return min(then + rest, max(ceiling, kubelet_quota + rest)), kubelet_quota + rest


def _quota_wants(
    pod: PodReading, quotas: dict[str, QuotaStep], by: tuple[CpuBurst, float], states: tuple[BurstState, BurstState]
) -> Iterator[Want]:
    """Yield quotas that differ from the kubelet's, also of containers whose limit changed while the quota was changed.

    `by`: the policy and the node's CPU normalization ratio; `states`: the old and the new state. A quota that is not
    above the limit does not replace a stricter one.
    """
    (strategy, ratio), (before, going) = by, states
    moved = {key for key, q in quotas.items() if q.moved or before.moved.get(key, q.given) != q.given}
    granted = pod_limit(pod.spec, CPU) or 0
    pod_now = _limit(pod.group)
    if moved and pod.group is not None and pod_now is not None and granted:
        limit, least = quota_of(granted), quota_of(granted, ratio)
        last = before.pods.get(pod.spec.uid)
        base = last.base if last and last.granted == limit else min(pod_now if not last else least, least)
        going.pods[pod.spec.uid] = PodBase(base, limit)
        moves, _ = pod_quota(base + sum(q.now - q.base for q in quotas.values()), quotas.values())
        value = min(moves, base * max(strategy.cfs_quota_burst_percent, 100) // 100)
        why = "the pod's quota changes with its containers' quotas"
        yield _want(pod.group, Knob.CPU_QUOTA, value, why, limit, never_looser=value <= least)
    for container in pod.containers:
        key = f"{pod.spec.uid}/{container.spec.name}"
        if key in moved and container.group is not None:
            quota = quotas[key]
            strict = quota.then <= quota.base
            yield _want(container.group, Knob.CPU_QUOTA, quota.then, quota.why, quota.given, never_looser=strict)


def buffer_microseconds(limit_millicores: int, strategy: CpuBurst, base: int) -> int:
    """Return a container's cpu.burst in us per 100 ms, 0 = none; at most its quota `base`, which the kernel demands."""
    if not saves(strategy) or limit_millicores <= 0:
        return 0
    return min(limit_millicores * strategy.cpu_burst_percent, base)  # cores / 1000 * percent / 100 * 100000 us


def _buffers(pod: PodReading, strategy: CpuBurst, moment: BurstContext) -> Iterator[Want]:
    """Yield cpu.burst of a pod's containers, and of the pod: their sum, at most the pod's quota.

    Containers without an enforced quota save nothing: the kernel counts only what a quota leaves unused.
    """
    if not moment.burst_supported or not saves(strategy) or pod.spec.resizing:
        return
    total = 0
    for container in pod.containers:
        limit = _limit_millicores(pod, container)
        if not limit or container.group is None or _limit(container.group) is None:
            continue
        amount = buffer_microseconds(limit, strategy, quota_of(limit, moment.ratio))
        total += amount
        if amount:
            why = f"up to {strategy.cpu_burst_percent} % of the limit is saved for bursts, at most the quota"
            yield _want(container.group, Knob.CPU_BURST, amount, why)
    if total and pod.group is not None:
        bound = _limit(pod.group)
        value = total if bound is None else min(total, max(bound, QUOTA_MIN_MICROSECONDS))
        yield _want(pod.group, Knob.CPU_BURST, value, "sum of the containers' cpu.burst")


def _want(
    group: GroupReading, knob: Knob, value: Value, why: str, back_to: int | None = None, never_looser: bool = False
) -> Want:
    return Want(group.path, knob, value, group.level, NAME, why, back_to, never_looser=never_looser)
