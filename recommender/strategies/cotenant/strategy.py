"""Applies all sizing rules in order: columns for all containers, then values workload by workload. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from itertools import groupby
from typing import Final

import numpy as np

from cotenant.base.cluster import Container, ContainerRole
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.base.table import NODE_GROUP_INPUT
from cotenant.recommender import siblings
from cotenant.recommender.base import display_inputs, recommendation, withheld
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.model.sibling import SIBLING_INPUT, Sibling
from cotenant.recommender.settings import CotenantSettings, RecommenderSettings
from cotenant.recommender.strategies.cotenant import autoscaler, bounds, heap, jobs, notes, size
from cotenant.recommender.strategies.cotenant.demand import ResourceDemand, cpu_demand, memory_demand
from cotenant.recommender.strategies.cotenant.draft import Draft, Drafts, Slot
from cotenant.recommender.strategies.cotenant.grade import at_risk, grade
from cotenant.recommender.strategies.cotenant.policy import Policy, policies
from cotenant.recommender.strategies.cotenant.size import ContainerContext
from cotenant.recommender.strategies.cotenant.withhold import reasons

HPA_TARGET_MAX_PERCENT: Final = 90
"""Highest utilisation target proposed to an autoscaler. Above ninety percent an autoscaler reacts after the pods
are full."""

CPU, MEMORY = Resource.CPU, Resource.MEMORY
REQUEST, LIMIT = Field.REQUEST, Field.LIMIT
TOO_EARLY: Final = frozenset({Reason.NOT_ENOUGH_HISTORY, Reason.LOW_COVERAGE})
RAISES_NOTHING: Final = "; this raises no request of the container, and only its own history can lower one"
Given = Mapping[tuple[int, Resource], Sibling]
"""Siblings whose history a container's request may rest on, by its index and the resource."""
SLOTS: Final = tuple((resource, field) for resource in Resource for field in Field)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The inputs of one run of strategy `cotenant`, and what it computes once for all containers.

    `reasons[resource][i]` is OK, or why the own history of container i allows no proposal.
    """

    evidence: Evidence
    own: CotenantSettings
    policies: Sequence[Policy]
    demand: Mapping[Resource, ResourceDemand]
    reasons: Mapping[Resource, Sequence[Reason]]
    bounds: bounds.Bounds
    priors: Mapping[Resource, Mapping[int, siblings.Prior]]


@dataclass(frozen=True, slots=True)
class WorkloadDrafts:
    """The result of sizing one workload, from which its values are made; `solutions` are its autoscaler's targets.

    No target fits the `unsolved` resources, so they have no drafts. `raised` are the siblings that raised a request.
    """

    drafts: Drafts
    solutions: Mapping[Resource, autoscaler.Solution]
    unsolved: frozenset[Resource]
    heaps: heap.Heaps
    raised: Given = attribute(default_factory=dict)


class Cotenant:
    """Strategy `cotenant`: demand-based requests with reasons; it withholds values instead of guessing."""

    name = "cotenant"

    def recommend(self, evidence: Evidence, settings: RecommenderSettings) -> list[Recommendation]:
        """Return one recommendation per container, in the order of `evidence`; each workload is solved as a whole."""
        # What all containers of a run share is computed once.
        own = settings.cotenant
        resolved = policies(evidence.workloads, own)
        demand = {CPU: cpu_demand(evidence, resolved, own), MEMORY: memory_demand(evidence, resolved, own)}
        why = {r: reasons(evidence, d, resolved, own) for r, d in demand.items()}
        all_bounds = bounds.bounds_of(evidence.inventory)
        priors: dict[Resource, dict[int, siblings.Prior]] = {resource: {} for resource in demand}
        for r, d in demand.items() if evidence.siblings else ():
            scaled = np.array([autoscaler.follows(w, r) for w in evidence.workloads], dtype=np.bool_)
            closed = scaled | jobs.episodic(evidence)  # an autoscaler adds their pods, or they run now and then
            priors[r] = siblings.priors(evidence, r, d.wanted, d.span_days, closed)
        run = Run(evidence, own, resolved, demand, why, all_bounds, priors)
        recommendations = []
        for _, members in groupby(range(len(evidence)), key=lambda i: evidence.workloads[i].ref):
            indices = list(members)
            solved = _solve(run, indices)
            for index in indices:
                values = _values(run, index, solved)
                plain = recommendation(self.name, evidence, index, values, settings)
                sentences = notes.of(run.evidence, run.demand, run.policies[index], index, values)
                for solution in solved.solutions.values():
                    draft = solved.drafts.get(Slot(index, solution.resource, REQUEST))
                    if draft is not None and draft.now != draft.amount:
                        sentences += (solution.sentence,)
                for resource, of in run.priors.items():
                    if index in of:  # also a prior that came to nothing
                        is_idle = of[index].sibling and (index, resource) not in solved.raised
                        sentences += (of[index].sentence + (RAISES_NOTHING if is_idle else ""),)
                own_heap = solved.heaps.get(index)
                sentences += tuple(heap.notes(own_heap, _container_context(run, index).container.heap))
                profile = run.policies[index].profile
                recommendations.append(replace(plain, profile=profile, notes=sentences, heap=own_heap))
        return recommendations


def _solve(run: Run, indices: Sequence[int]) -> WorkloadDrafts:
    """Return all drafts of one workload, without siblings' raises if any value would be smaller with them.

    A raise of one container may leave less for another (node size, quota), or move more than the request (a heap, an
    autoscaler's target): such a workload waits for history of its own.
    """
    plain = _drafts(run, indices, {})
    priors = ((i, r, run.priors[r][i].sibling) for r in Resource for i in indices if i in run.priors[r])
    priors_given = {(i, r): sibling for i, r, sibling in priors if sibling is not None and _is_open(run, i, r, sibling)}
    if not priors_given:
        return plain
    more = _drafts(run, indices, priors_given)
    if (more.heaps, more.solutions, more.unsolved) != (plain.heaps, plain.solutions, plain.unsolved):
        return plain
    before = {slot: draft.amount for slot, draft in plain.drafts.items()}
    least = {slot: before.get(slot, draft.counted or 0) for slot, draft in more.drafts.items()}
    if not before.keys() <= least.keys() or any(d.amount < least[slot] for slot, d in more.drafts.items()):
        return plain
    moved = {slot: draft for slot, draft in more.drafts.items() if before.get(slot) != draft.amount}
    raised = {key: sibling for key, sibling in priors_given.items() if Slot(*key, REQUEST) in moved}
    # a limit rises with its request alone, which a quota may have kept
    own = {slot: draft for slot, draft in moved.items() if (slot.index, slot.resource) in raised}
    return replace(more, drafts=plain.drafts | own, raised=raised)


def _is_open(run: Run, index: int, resource: Resource, sibling: Sibling) -> bool:
    """Return whether a sibling may raise a request: it is proposed anyway, or the sibling clearly raises it."""
    reason = run.reasons[resource][index]
    if reason is not Reason.NOT_ENOUGH_HISTORY:
        return reason is Reason.OK
    now = float(np.nan_to_num(run.evidence.effective_request(resource)[index]))
    measured = run.demand[resource].coverage[index] >= run.own.minimum_coverage
    return bool(measured and sibling.amount > now * (1 + run.own.dead_band_fraction))


def _drafts(run: Run, indices: Sequence[int], priors_given: Given) -> WorkloadDrafts:
    workload = run.evidence.workloads[indices[0]]
    places = {i: _container_context(run, i) for i in indices}
    drafts: Drafts = {}
    for index, place in places.items():
        for resource, demand in run.demand.items():
            sibling = priors_given.get((index, resource))
            if sibling is not None or run.reasons[resource][index] is Reason.OK:
                drafts[Slot(index, resource, REQUEST)] = size.request(place, demand, sibling)
    names = {i: place.container.name for i, place in places.items()}
    by_name = {name: index for index, name in names.items()}
    solutions: dict[Resource, autoscaler.Solution | None] = {}
    for resource in (resource for resource in Resource if autoscaler.follows(workload, resource)):
        solved, solutions[resource] = autoscaler.solve(drafts, workload, by_name, resource, HPA_TARGET_MAX_PERCENT)
        drafts = {  # what the solution raises is to be an allowed size, too
            slot: draft if draft is drafts[slot] else size.apply_size_steps(places[slot.index], resource, draft)
            for slot, draft in solved.items()
        }
    for index, place in places.items():
        drafts |= _limits(run, place, drafts, index)
    heaps = heap.heaps_of(places, drafts, run.demand[MEMORY])
    drafts = heap.with_heaps(drafts, heaps, places)
    drafts = bounds.bounded(drafts, workload, names, run.bounds)
    if places[indices[0]].guaranteed:  # request and limit of each container and resource at the smaller of the two
        unequal = dict(drafts)
        for slot, draft in unequal.items():
            other = unequal.get(Slot(slot.index, slot.resource, LIMIT if slot.field is REQUEST else REQUEST))
            if other is not None:
                drafts[slot] = draft.at_most("request = limit", other.amount, Reason.QOS_CLASS)
    drafts, heaps = heap.settle_heaps(drafts, heaps)
    final = {r: autoscaler.finalize_target(s, drafts, workload, by_name) for r, s in solutions.items() if s}
    reached = {r: s for r, s in final.items() if s.target <= max(HPA_TARGET_MAX_PERCENT, s.target_now)}
    unsolved = frozenset(solutions.keys() - reached.keys())
    cuts = {s for s, d in drafts.items() if d.amount < (d.now or 0) and run.reasons[s.resource][s.index] in TOO_EARLY}
    drafts = {slot: draft for slot, draft in drafts.items() if slot.resource not in unsolved and slot not in cuts}
    return WorkloadDrafts(drafts, reached, unsolved, heaps)


def _container_context(run: Run, index: int) -> ContainerContext:
    workload, name = run.evidence.workloads[index], run.evidence.containers[index].container
    container = workload.container(name) or Container(name)
    return ContainerContext(index, workload, container, run.policies[index], run.own)


def _limits(run: Run, place: ContainerContext, drafts: Drafts, index: int) -> Drafts:
    """Return the drafts with the limits for their requests; a CPU limit to be removed has no draft."""
    memory, cpu = drafts.get(Slot(index, MEMORY, REQUEST)), drafts.get(Slot(index, CPU, REQUEST))
    limits: dict[Resource, Draft | None] = {}
    if memory and run.reasons[MEMORY][index] in TOO_EARLY:
        limits[MEMORY] = size.limit_above(place.container.limits.get(MEMORY), memory)
    elif memory:
        limits[MEMORY] = size.memory_limit(place, memory, run.demand[MEMORY])
    if run.reasons[CPU][index] in TOO_EARLY:
        raised = size.raised_cpu_limit(place, run.demand[CPU])
        limits[CPU] = size.limit_above(place.container.limits.get(CPU), cpu, raised) if cpu else raised
    elif cpu and (place.policy.cpu_limit != "unset" or place.guaranteed):  # a Guaranteed pod's class rests on it
        limits[CPU] = size.cpu_limit(place, cpu, run.demand[CPU])
    return {Slot(index, resource, LIMIT): limit for resource, limit in limits.items() if limit is not None}


def _values(run: Run, index: int, solved: WorkloadDrafts) -> list[Value]:
    values = []
    inputs = {r: _inputs(run, index, r, solved) for r in Resource}
    for resource, field in SLOTS:
        now = run.evidence.now(index, resource, field)
        draft = solved.drafts.get(Slot(index, resource, field))
        if draft is not None:
            risk = at_risk(run.evidence, run.demand[resource], index, run.own.severity)
            level = grade(resource, field, draft.now, draft.amount, run.evidence.replicas(index), risk)
            origin = inputs[resource], draft.formula, draft.clamps, run.policies[index].overrides[resource]
            values.append(Value(resource, field, draft.now, draft.amount, Action.SET, draft.reason, level, *origin))
            continue
        if field is LIMIT and now is None:
            continue
        reason = Reason.HPA_UNSOLVED if resource in solved.unsolved else run.reasons[resource][index]
        if reason is Reason.OK:
            values.append(Value(CPU, LIMIT, now, None, Action.UNSET, reason, Severity.OK, inputs[CPU], "no CPU limit"))
        else:
            values.append(withheld(resource, field, now, reason, inputs[resource]))
    return values


def _inputs(run: Run, index: int, resource: Resource, solved: WorkloadDrafts) -> dict[str, float | int | str]:
    demand, place = run.demand[resource], _container_context(run, index)
    # The margin in a demand: of memory a share, of CPU the amount that its share and its root come to.
    if resource is MEMORY:
        margins: dict[str, float | int] = {"margin_fraction": place.policy.margin_fraction(MEMORY)}
    else:
        margin = size.cpu_margin(place, demand)
        margins = {} if margin is None else {"margin_millicores": margin}
    inputs = display_inputs(
        **{name: float(column[index]) for name, column in demand.columns.items()},
        observed_max=float(demand.seen[index]),
        **({"demand_max": float(demand.highest[index])} if resource is CPU else {}),
        **margins,
        days=float(demand.span_days[index]),
        coverage=float(demand.coverage[index]),
        pods_seen=int(demand.pods[index]),
    )
    if resource is MEMORY:
        inputs["oom_kills"] = len(run.evidence.oom_kills[index])
        if (own := place.container.heap) is not None:
            inputs |= display_inputs(
                heap_maximum_bytes=own.maximum_bytes,
                heap_live_bytes=own.live_bytes,
                heap_committed_bytes=own.committed_bytes,
                beside_heap_bytes=own.other_bytes,
                collecting_fraction=own.collecting_fraction,
            )
    if demand.runs[index]:
        inputs["runs"] = int(demand.runs[index])
    inputs |= {f"{NODE_GROUP_INPUT}{name}": round(amount) for name, amount in demand.groups.get(index, {}).items()}
    solution = solved.solutions.get(resource)
    inputs |= solution.inputs if solution else {}
    if sibling := solved.raised.get((index, resource)):
        inputs |= {SIBLING_INPUT: str(sibling.container), "sibling_days": sibling.days}
    return inputs | _of_the_pod(run, index, resource, solved)


def _of_the_pod(run: Run, index: int, resource: Resource, solved: WorkloadDrafts) -> dict[str, float | int | str]:
    """Return what an init container's pod requests without that container; empty for other containers.

    The init container's own request costs nothing up to that amount. The key is pod_request_without_it, the value is in
    the resource's unit.
    """
    workload = run.evidence.workloads[index]
    roles = {c.name: c for c in workload.containers}
    own = roles.get(run.evidence.containers[index].container)
    if own is None or own.role is not ContainerRole.INIT:
        return {}
    drafts = ((s.index, d) for s, d in solved.drafts.items() if s.resource is resource and s.field is REQUEST)
    proposed = {run.evidence.containers[i].container: draft.amount for i, draft in drafts}
    staying = (c for c in roles.values() if c.role is not ContainerRole.INIT)
    rest = sum(proposed.get(c.name, c.effective_requests.get(resource, 0)) for c in staying)
    return {"pod_request_without_it": rest}
