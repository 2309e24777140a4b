"""The decision of one tick: all strategies run, their wants are merged, and limits apply if the policy is stale. Pure.

    Observation, policy, Memory  --decide-->  TickDecision(wants, evictions, verdicts), Memory

There are three modes. ACT: the policy is current. HOLD: the policy or the list of pods was not confirmed for too long;
strategies continue with the last one, but no pod is evicted, and no best-effort cgroup gets more than it had. RELEASE:
there is no policy, or it was stale for so long that it was given up; nothing is wanted, so every value is restored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from cotenant.base.allocation.cpu_topology import parse_cpus
from cotenant.base.controllers.isolation import compute_without_failing
from cotenant.enforcer.contract import (
    NO_LIMIT,
    Evict,
    Knob,
    Observation,
    Step,
    Strategy,
    StrategyPlan,
    Value,
    Verdict,
    Want,
)
from cotenant.enforcer.decide.changes import Place
from cotenant.enforcer.model.node_policy import NodePolicy

FAILED: Final = "StrategyFailed"
NUMBERS: Final = frozenset({Knob.CPU_QUOTA, Knob.MEMORY_LIMIT, Knob.MEMORY_HIGH, Knob.CPU_BURST, Knob.CPU_SHARES})
"""Knobs whose larger values allow more, NO_LIMIT the most."""


class AgentMode(StrEnum):
    """The extent to which a tick may act: fully, without giving best effort more, or only to restore values."""

    ACT = "act"
    HOLD = "hold"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Ages:
    """The ages in seconds above which inputs are stale; `release_seconds` later, a stale policy is given up."""

    policy_ttl_seconds: float = 300.0
    release_seconds: float = 3600.0
    pods_ttl_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Memory:
    """The loop's memory between ticks: each strategy's state and last wants, by its name, and all effective wants."""

    states: Mapping[str, Any] = field(default_factory=dict)
    plans: Mapping[str, tuple[Want, ...]] = field(default_factory=dict)
    wants: tuple[Want, ...] = ()


@dataclass(frozen=True, slots=True)
class TickDecision(StrategyPlan):
    """The merged plan of all strategies after a tick, the mode of the tick, and its urgent evictions."""

    _: KW_ONLY
    mode: AgentMode
    urgent: tuple[Evict, ...] = ()
    """Evictions that cannot wait for an API server; made also while no other pod is evicted."""

    def evictions_key(self) -> set[tuple[str, str]]:
        """Return the uid and strategy of each eviction; the reasons may differ."""
        return {(e.uid, e.strategy) for e in self.evictions}


def mode_of(observation: Observation, policy: NodePolicy | None, ages: Ages) -> AgentMode:
    """Return the mode that follows from the ages of the policy and of the list of pods."""
    if policy is None or observation.policy_age_seconds > ages.policy_ttl_seconds + ages.release_seconds:
        return AgentMode.RELEASE
    stale_pods = observation.pods_age_seconds > ages.pods_ttl_seconds
    stale = stale_pods or observation.policy_age_seconds > ages.policy_ttl_seconds
    return AgentMode.HOLD if stale else AgentMode.ACT


def decide(
    observation: Observation, policy: NodePolicy | None, memory: Memory, strategies: Sequence[Strategy[Any]], ages: Ages
) -> tuple[TickDecision, Memory]:
    """Return the decision of this tick and the new memory.

    If a strategy raises an error, it runs again without the few pods that cause it; if that fails, its last wants stay.
    """
    mode, node = mode_of(observation, policy, ages), observation.node.name
    if policy is None or mode is AgentMode.RELEASE:
        verdict = Verdict(node, "NoPolicy", "No policy was received: nothing is changed on this node.")
        if policy is not None:
            text = "The policy was not confirmed for too long: every value is restored."
            verdict = Verdict(node, "PolicyGivenUp", text, warning=True)
        return TickDecision(mode=mode, verdicts=(verdict,)), Memory()
    states, plans, failures = dict(memory.states), dict[str, StrategyPlan](), list[Verdict]()
    for strategy in strategies:
        name = strategy.name
        state = states[name] if name in states else strategy.initial()
        try:
            step, left_out = _step_without_failing(strategy, observation, policy, state, memory.plans.get(name, ()))
        except Exception as error:  # noqa: BLE001 - one broken idea must not let all the others go
            plans[name] = StrategyPlan(tuple(w for w in memory.plans.get(name, ()) if w.path in observation.groups()))
            failures.append(Verdict(node, FAILED, f"{name}: {type(error).__name__}: {error}", True))
        else:
            states[name], plans[name] = step.state, step.plan
            failures += left_out
    wants, refused = merge_wants(plans.values(), node)
    evictions: tuple[Evict, ...] = tuple({e.uid: e for p in reversed(plans.values()) for e in p.evictions}.values())
    urgent = tuple(e for e in evictions if e.urgent)
    surfaces = {(s.surface, s.key): s for plan in reversed(plans.values()) for s in plan.surfaces}
    verdicts = [*failures, *refused, *(v for plan in plans.values() for v in plan.verdicts)]
    if what := " and ".join(observation.recalled):
        text = f"No {what} was received since the agent started: the agent uses the last known state."
        verdicts.insert(0, Verdict(node, "Recalled", text, warning=True))
    if mode is AgentMode.HOLD:
        wants, evictions = keep_tighter_wants(wants, memory.wants, observation), ()
        what = "policy" if observation.policy_age_seconds > ages.policy_ttl_seconds else "list of pods"
        text = f"The {what} is stale: the API server is not asked to evict, and best effort gets no more CPU."
        verdicts.append(Verdict(node, "Stale", text, warning=True))
    targets = (plan.best_effort_target_millicores for plan in plans.values())
    target = next((target for target in targets if target is not None), None)
    tick = TickDecision(wants, evictions, tuple(verdicts), tuple(surfaces.values()), target, mode=mode, urgent=urgent)
    return tick, Memory(states, {name: plan.wants for name, plan in plans.items()}, wants)


def _step_without_failing(
    strategy: Strategy[Any], observation: Observation, policy: NodePolicy, state: Any, before: Sequence[Want]
) -> tuple[Step[Any], list[Verdict]]:
    """Run a strategy without the few pods on which it fails; their wants of `before` stay, with a verdict each."""

    def step(without: Collection[str]) -> Step[Any]:
        pods = tuple(pod for pod in observation.pods if pod.spec.uid not in without)
        return strategy.step(replace(observation, pods=pods) if without else observation, policy, state)

    taken, failed = compute_without_failing([pod.spec.uid for pod in observation.pods], step, (MemoryError,))
    if not failed:
        return taken, []
    pods = tuple(pod for pod in observation.pods if pod.spec.uid in failed)
    groups = replace(observation, kubepods=None, tiers={}, pods=pods, host_applications=()).groups()
    kept_wants = tuple(want for want in before if want.path in groups)
    plan = replace(taken.plan, wants=(*taken.plan.wants, *kept_wants))
    verdicts = [Verdict(p.spec.key, FAILED, f"{strategy.name}: {failed[p.spec.uid]}", True) for p in pods]
    return replace(taken, plan=plan), verdicts


def merge_wants(plans: Iterable[StrategyPlan], node: str) -> tuple[tuple[Want, ...], list[Verdict]]:
    """Return one want per cgroup setting, the earliest strategy's, and a verdict per pair of strategies in conflict."""
    chosen: dict[Place, Want] = {}
    refused: dict[tuple[str, str, Knob], Verdict] = {}
    for want in (w for plan in plans for w in plan.wants):
        first = chosen.setdefault(want.place, want)
        if first.value != want.value:
            text = f"{first.strategy} and {want.strategy} want different {want.knob}: {first.strategy}'s value is used"
            refused[first.strategy, want.strategy, want.knob] = Verdict(node, "KnobConflict", text, warning=True)
    return tuple(chosen.values()), list(refused.values())


def keep_tighter_wants(wants: Iterable[Want], before: Iterable[Want], observation: Observation) -> tuple[Want, ...]:
    """Return `wants`, but keep each want on best effort in `before` that the new wants would loosen or drop.

    The loop needs this while its inputs are stale: they must not loosen any limit of best effort.
    """
    chosen = {w.place: w for w in wants}
    groups, root = observation.groups(), observation.best_effort_root
    for old in before:
        inside = root is not None and (old.path == root.path or old.path.startswith(f"{root.path}/"))
        if not inside or old.path not in groups:
            continue
        new = chosen.get(old.place)
        if new is None or _is_looser(new.knob, new.value, old.value):
            chosen[old.path, old.knob] = old
    return tuple(chosen.values())


def _is_looser(knob: Knob, new: Value, old: Value) -> bool:
    """Return whether the new value allows the cgroup more; leaving cpu.idle counts as more."""
    if isinstance(new, int) and isinstance(old, int):
        if knob is Knob.CPU_IDLE:
            return new < old
        if knob in NUMBERS:
            return old != NO_LIMIT and (new == NO_LIMIT or new > old)
    if knob is Knob.CPUSET_CPUS and isinstance(new, str) and isinstance(old, str):
        return len(parse_cpus(new)) > len(parse_cpus(old))
    return False
