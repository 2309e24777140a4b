"""Best effort yields the CPU to all other pods: first by weight, then by a target that follows their usage.

1. Protection. The best-effort tier has the smallest weight, so that it runs when no other pod needs the CPU. This is
   what protects latency: a group under a quota still gets its slices at equal weight until the quota is used up.
   cpu.idle does the same, but a kubelet then cannot update its QoS cgroups or start again, because an idle group
   refuses the weight that it writes; so it is an option for nodes without a kubelet.
2. Suppression. The tier as a whole is limited to the target of `suppress_target`, by policy
   - cpuset: to `suppress_cpuset`'s CPUs, in tier, pods and containers; under the kubelet's static CPU manager, which
     owns the others, in containers only;
   - cfsQuota: quota = max(millicores * 100 us, 2000 us), raised by at most 10 % of the machine's per tick; not changed
     by less than 1 % of the machine's, except down to 2000 us. CPUs of LSE pods, reservations and SYSTEM are excluded.
   Reductions are immediate. If it is off, nothing is wanted and every value is restored. At a threshold of 100 % no CPU
   must be kept free, and the weight already gives other pods what they need: the target is then the machine without
   unused reservations. A target that followed the others' usage could then only throttle best effort for CPU time that
   they leave between two ticks, and on kernels before 6.18 a throttled task keeps the kernel locks that it holds.
   Against interference, best effort runs on fewer CPUs under either policy, at least one: with a quota alone it would
   still use every core, and memory bandwidth, until the quota is used up. It then grows step by step.
3. Starvation. On a node without idle CPU, an idle tier gets nothing. If the policy guarantees best effort a share
   (cpuSuppressMinPercent), and it got less for `starve_seconds` although it had work, its weight is raised to the one
   that gives that share among its siblings, until the node has had idle CPU for as long. Other processes run too, so
   that weight may give less than was guaranteed: it grows by what is missing, up to LIFT_MOST.

If the machine's usage is not known in a tick, the last target stays. Koordinator compares a small quota with "none"
(-1) as if it were a number, and may then not write it at all; here "none" is always followed by a quota.
Source: Koordinator's koordlet, `cpusuppress`; protection and starvation are our additions.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from cotenant.base.allocation.cpu_topology import format_cpus, parse_cpus
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.resource import MILLICORES_PER_CORE
from cotenant.enforcer.contract import (
    NO_LIMIT,
    GroupReading,
    Knob,
    KubeQos,
    Observation,
    Step,
    StrategyPlan,
    Value,
    Verdict,
    Want,
)
from cotenant.enforcer.decide.container_resources import SHARES_MAX, SHARES_MIN
from cotenant.enforcer.decide.knobs import MICROSECONDS_PER_MILLICORE
from cotenant.enforcer.model.node_policy import NodePolicy, Thresholds
from cotenant.enforcer.observe.cpusets import forbidden_cpus, may_have_claimed_cores, online_cpus, pod_assignment
from cotenant.enforcer.settings import BestEffortSettings
from cotenant.enforcer.strategies.suppression.suppress_cpuset import LEAST_CPUS, choose, wanted_count
from cotenant.enforcer.strategies.suppression.suppress_target import (
    NodeCpuDemand,
    demand,
    headroom,
    online_ahead,
    with_least,
)

NAME: Final = "cpu-suppress"
LEAST_QUOTA_MICROSECONDS: Final = 2000
GROWTH_PERCENT: Final = 10
UNMOVED_PERCENT: Final = 1
"""Change of the quota, in percent of the machine's, below which it is not written."""
LIFT_AIM: Final = 1.05
"""Multiple of its guaranteed share of the CPU that best effort should get by a raised weight."""
LIFT_STEP: Final = 1.25
"""Largest factor by which a raised weight changes in a tick."""
LIFT_MOST: Final = 1.5
"""Largest `lift_factor`, so that best effort that does not want more is not given everything."""
BUSY_PERCENT: Final = 95
"""Usage in percent above which a node has no idle CPU."""
WANTING_PERCENT: Final = 20
"""Share of the time in which tasks of best effort waited for a CPU, from which on it wants more than it gets."""


@dataclass(frozen=True, slots=True)
class SuppressState:
    """Best effort's last CPU count or quota (the other is None), how long it starved, and how long relief lasted."""

    cpus: int | None = None
    quota: int | None = None
    starved_seconds: float = 0.0
    eased_seconds: float = 0.0
    lifted: bool = False
    lift_factor: float = 1.0
    """Factor on the weight that would give the guaranteed share if only sibling cgroups used the CPU."""
    careful: bool = False
    """True while best effort, after an interference, has not got back all CPU that it may use."""


@dataclass(frozen=True, slots=True)
class Target:
    """The CPU that best effort may use, and why; None if not known in this tick; `capped`: lowered for interference."""

    millicores: int | None
    why: str
    capped: bool = False


@dataclass(frozen=True, slots=True)
class Suppress:
    """The strategy that limits best effort to its CPU target."""

    settings: BestEffortSettings = field(default_factory=BestEffortSettings)
    name: str = NAME

    def initial(self) -> SuppressState:
        """Return the initial state: nothing is suppressed yet."""
        return SuppressState()

    def step(
        self, observation: Observation, policy: NodePolicy, state: SuppressState, cap_millicores: int | None = None
    ) -> Step[SuppressState]:
        """Return the wants for best effort's cgroups and the next state; `cap_millicores`: cap for interference."""
        tier = observation.best_effort_root
        if tier is None or not policy.thresholds.enable:
            return Step(StrategyPlan(), SuppressState())
        use = demand(observation)
        after = self._starvation(observation, policy.thresholds, use, state)
        target = self._target(observation, policy.thresholds, use, cap_millicores)
        protection = self._protection(observation, tier, policy.thresholds, after)
        verdicts, node, pods = [], observation.node, [p.spec for p in observation.pods]
        for pod in pods:  # of these one escapes suppression, the other shares it
            if pod.qos_class is QosClass.BE and pod.kube_qos is not KubeQos.BEST_EFFORT:
                why = f"Kubernetes' class is {pod.kube_qos}: the pod has CPU requests and is not suppressed"
                verdicts.append(Verdict(pod.key, "OutsideTier", f"labelled BE, but {why}", warning=True))
            elif pod.kube_qos is KubeQos.BEST_EFFORT and not pod.best_effort:
                why = "Kubernetes' class is BestEffort: the pod is suppressed with best effort"
                verdicts.append(Verdict(pod.key, "InsideTier", f"labelled {pod.qos_class}, but {why}", warning=True))
        if policy.thresholds.cpu_suppress_policy == "cfsQuota":
            at_once = self._weight_decides(policy.thresholds) and not (target.capped or state.careful or after.lifted)
            # Microseconds per 100 ms; an unknown target keeps the last quota.
            quota, reached = state.quota, False
            if target.millicores is not None:
                before = _number_or_unlimited(tier.knobs.get(Knob.CPU_QUOTA)) if quota is None else quota
                quota = quota_for(target.millicores, before, node.cpu_millicores, at_once)
                unmoved = node.cpu_millicores * UNMOVED_PERCENT // 100  # a difference too small to move it
                reached = quota >= (target.millicores - unmoved) * MICROSECONDS_PER_MILLICORE
            careful = target.capped or (state.careful and not reached)
            added = [*protection] if quota is None else [*protection, _want(tier, Knob.CPU_QUOTA, quota, target.why)]
            if not careful:
                added += _kept_off(observation, tier)
            elif quota is not None:  # the fewest CPUs that the quota fills
                fill = max(math.ceil(quota / (MICROSECONDS_PER_MILLICORE * MILLICORES_PER_CORE)), 1)
                fewest = format_cpus(choose(fill, node, pods).cpus)
                added += [_want(g, Knob.CPUSET_CPUS, fewest, target.why) for g in _groups(observation, tier)]
            plan = _plan(tuple(added), tuple(verdicts), target)
            return Step(plan, replace(after, quota=quota, cpus=None, careful=careful))
        count, wants, short = _by_cpuset(observation, tier, target, state)
        return Step(_plan((*protection, *wants), (*verdicts, *short), target), replace(after, cpus=count, quota=None))

    def _target(
        self, observation: Observation, thresholds: Thresholds, use: NodeCpuDemand | None, cap: int | None
    ) -> Target:
        """Return what best effort may use now and why; None keeps the last setting, a cap can only lower it."""
        if use is None:
            return Target(None, "the machine's usage is not known in this tick: best effort's limit stays")
        online, ahead = use.online, ""
        if self.settings.suppress_target == "forecast-ahead":
            ahead_seconds = self.settings.ahead_seconds
            online = online_ahead(use.online, observation.forecast, observation.wall_seconds, ahead_seconds)
            ahead = ", by the forecast" if online > use.online else ""
        percent = thresholds.cpu_suppress_threshold_percent
        free = headroom(use.capacity, online, percent)
        why = f"{percent} % of {use.capacity} m minus {online} m of other pods and the system{ahead}"
        if self._weight_decides(thresholds):
            free = use.capacity - max(use.reserved - use.system, 0) - (online - use.online)
            rise = " and the forecast rise" if ahead else ""
            why = f"{use.capacity} m minus reservations{rise}: no CPU is kept free, the CPU weight protects other pods"
        if cap is not None and cap < free:
            free, why = cap, f"{cap} m while best effort disturbs other pods"
        return Target(with_least(free, use, thresholds), why, capped=cap is not None)

    def _weight_decides(self, thresholds: Thresholds) -> bool:
        """Return whether no CPU must be kept free and the CPU weight alone protects other pods."""
        return thresholds.cpu_suppress_threshold_percent == 100 and self.settings.protect != "none"

    def _protection(
        self, observation: Observation, tier: GroupReading, thresholds: Thresholds, state: SuppressState
    ) -> tuple[Want, ...]:
        """Return the tier's weight or cpu.idle; if lifted, the weight for its guaranteed share, times the factor."""
        if self.settings.protect == "none":
            return ()
        if state.lifted:
            percent = thresholds.cpu_suppress_min_percent or 0
            # Siblings are the burstable tier and each guaranteed pod; all CPUs' weight where theirs cannot be read.
            guaranteed = (p.group for p in observation.pods if p.spec.kube_qos is KubeQos.GUARANTEED)
            beside = (observation.tiers.get(KubeQos.BURSTABLE), *guaranteed)
            weights = (_number_or_unlimited(g.knobs.get(Knob.CPU_SHARES, 0)) for g in beside if g is not None)
            siblings = sum(max(weight, 0) for weight in weights) or 1024 * len(observation.node.processors)
            shares = min(math.ceil(floor_shares(percent, siblings) * state.lift_factor), SHARES_MAX)
            why = f"best effort starves: its weight now gives it {percent} % of the CPU"
            idle = [_want(tier, Knob.CPU_IDLE, 0, why)] if Knob.CPU_IDLE in observation.supported else []
            return (*idle, _want(tier, Knob.CPU_SHARES, shares, why))
        if self.settings.protect == "idle" and Knob.CPU_IDLE in observation.supported:
            return (_want(tier, Knob.CPU_IDLE, 1, "runs only when no other pod needs the CPU"),)
        return (_want(tier, Knob.CPU_SHARES, SHARES_MIN, "the smallest weight, to protect other pods"),)

    def _starvation(
        self, observation: Observation, thresholds: Thresholds, use: NodeCpuDemand | None, state: SuppressState
    ) -> SuppressState:
        """Lift the tier's weight after `starve_seconds` below its guaranteed share; undo it after as long a relief.

        The tier starves if it gets less than that, has work, and the node is busy or its tasks wait. While it is lifted
        on a busy node, its factor follows what it really gets (`lift_factor`).
        """
        percent, limit = thresholds.cpu_suppress_min_percent, self.settings.starve_seconds
        if not percent or self.settings.protect == "none":
            return SuppressState(state.cpus, state.quota)
        if use is None:
            return state
        busy = (observation.node.cpu.millicores or 0.0) * 100 >= use.capacity * BUSY_PERCENT
        if state.lifted:
            eased = 0.0 if busy else state.eased_seconds + observation.elapsed_seconds
            factor = lift_factor(state.lift_factor, use.best_effort * 100 / (use.capacity * percent)) if busy else 1.0
            lifted = replace(state, eased_seconds=eased, lift_factor=factor)
            return lifted if eased < limit else SuppressState(state.cpus, state.quota)
        inside = [p for p in observation.pods if p.spec.kube_qos is KubeQos.BEST_EFFORT]
        has_work = any(p.spec.phase == "Running" for p in inside)
        short = use.best_effort * 100 < use.capacity * percent
        groups = [p.group for p in inside]
        pressures = (g.cpu_pressure_percent for g in (observation.best_effort_root, *groups) if g)
        pressed = any(p is not None and p >= WANTING_PERCENT for p in pressures)
        delay = sum(g.run_delay_seconds or 0.0 for g in groups if g)
        waits = pressed or delay * 100 >= observation.elapsed_seconds * WANTING_PERCENT
        starved = short and (busy or waits) and has_work
        total = state.starved_seconds + observation.elapsed_seconds if starved else 0.0
        return replace(state, starved_seconds=total, eased_seconds=0.0, lifted=total >= limit)


def _plan(wants: tuple[Want, ...], verdicts: tuple[Verdict, ...], target: Target) -> StrategyPlan:
    return StrategyPlan(wants, verdicts=verdicts, best_effort_target_millicores=target.millicores)


def floor_shares(percent: int, siblings: int) -> int:
    """Return the CPU shares with which a cgroup gets `percent` of the CPU beside siblings with this total of shares."""
    return min(max(math.ceil(siblings * percent / max(100 - percent, 1)), SHARES_MIN), SHARES_MAX)


def lift_factor(before: float, got: float) -> float:
    """Return the next factor by which best effort's weight is raised; `got` is its usage / its guaranteed share.

    The factor stays the same while `got` is from 1 to LIFT_AIM squared, so that not every tick rewrites the weight.
    """
    if 1 <= got <= LIFT_AIM**2:
        return before
    change = LIFT_AIM / max(got, 1e-3)
    return min(max(before * min(max(change, 1 / LIFT_STEP), LIFT_STEP), 1.0), LIFT_MOST)


def quota_for(millicores: int, before: int, capacity_millicores: int, at_once: bool = False) -> int:
    """Return best effort's next CPU quota in us per 100 ms; unless `at_once`, it grows from `before` in steps."""
    target_quota = max(millicores * MICROSECONDS_PER_MILLICORE, LEAST_QUOTA_MICROSECONDS)
    if before == NO_LIMIT:
        return target_quota
    machine = capacity_millicores * MICROSECONDS_PER_MILLICORE
    if abs(target_quota - before) * 100 < machine * UNMOVED_PERCENT and target_quota != LEAST_QUOTA_MICROSECONDS:
        return before
    return target_quota if at_once else min(target_quota, before + machine * GROWTH_PERCENT // 100)


def _kept_off(observation: Observation, tier: GroupReading) -> Iterator[Want]:
    """Yield the CPUs outside those closed to best effort; nothing if none is closed, or all are."""
    closed = forbidden_cpus(observation.node, (p.spec for p in observation.pods)) & online_cpus(observation.node)
    open_cpus = online_cpus(observation.node) - closed
    if not closed or not open_cpus:
        return
    why = "all CPUs except those of LSE pods, claims and reservations"
    for group in _groups(observation, tier, placed=False):
        yield _want(group, Knob.CPUSET_CPUS, format_cpus(open_cpus), why)


def _by_cpuset(
    observation: Observation, tier: GroupReading, target: Target, state: SuppressState
) -> tuple[int | None, tuple[Want, ...], tuple[Verdict, ...]]:
    """Return (number of CPUs, wants, verdicts) of the best-effort tier; an unknown target keeps the last number."""
    everything, before = len(observation.node.processors), state.cpus
    if before is None:  # CPUs that the tier has now; all if its list is empty, absent or unreadable
        before = everything
        with contextlib.suppress(UsageError):
            before = len(parse_cpus(str(tier.knobs.get(Knob.CPUSET_CPUS, "")))) or everything
    least, target_millicores = 1 if target.capped else LEAST_CPUS, target.millicores
    count = state.cpus if target_millicores is None else wanted_count(target_millicores, everything, before, least)
    if count is None:
        return None, (), ()
    choice = choose(count, observation.node, (p.spec for p in observation.pods))
    text = format_cpus(choice.cpus)
    short = (Verdict(observation.node.name, "FewCpus", choice.short, choice.stuck),) if choice.short else ()
    return count, tuple(_want(g, Knob.CPUSET_CPUS, text, target.why) for g in _groups(observation, tier)), short


def _groups(observation: Observation, tier: GroupReading, placed: bool = True) -> Iterator[GroupReading]:
    """Yield the cgroups whose CPUs are best effort's, from the tier down; `placed`: also pods with their own CPUs.

    Only containers if one inside may have CPUs of the kubelet's or of a claim, which the tier must keep then.
    """
    node = observation.node
    inside = [p for p in observation.pods if p.spec.kube_qos is KubeQos.BEST_EFFORT]
    if node.kubelet_static_cpus is False and not node.offered_cpus:
        yield tier
        yield from (p.group for p in inside if p.group is not None)
    unclaimed = [p for p in inside if not may_have_claimed_cores(p.spec, node)]
    moved = [p for p in unclaimed if placed or not pod_assignment(p.spec).cpus]
    yield from (c.group for p in moved for c in p.containers if c.group is not None)


def _want(group: GroupReading, knob: Knob, value: Value, why: str) -> Want:
    return Want(group.path, knob, value, group.level, NAME, why)


def _number_or_unlimited(value: Value | None) -> int:
    return value if isinstance(value, int) else NO_LIMIT
