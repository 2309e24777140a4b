"""Notes on the values of one container: facts that a person should know before applying them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from cotenant.base.cluster import ContainerRole
from cotenant.base.kubernetes.quantity import format_millicores, human_bytes
from cotenant.base.resource import Resource
from cotenant.base.text import percent
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.model.recommendation import Action, Field, Value
from cotenant.recommender.strategies.cotenant.annotations import PREFIX
from cotenant.recommender.strategies.cotenant.demand import ResourceDemand
from cotenant.recommender.strategies.cotenant.jobs import template
from cotenant.recommender.strategies.cotenant.policy import Policy
from cotenant.recommender.strategies.cotenant.size import KEPT

CPU, MEMORY = Resource.CPU, Resource.MEMORY
SLOW_START: Final = 1.5
"""Start-up maximum above this many times the steady request is worth a word."""


def of(
    evidence: Evidence, demand: Mapping[Resource, ResourceDemand], policy: Policy, index: int, values: Sequence[Value]
) -> tuple[str, ...]:
    """Return all notes on one container's values as sentences, those on ignored annotations first."""
    by_field = {(v.resource, v.field): v for v in values}
    cpu, memory, workload, role = demand[CPU], demand[MEMORY], evidence.workloads[index], evidence.role(index)
    sentences = [*policy.notes]
    if role is ContainerRole.INJECTED:
        sentences.append("a webhook injects this container into the pods: a patch of the template does not change it")
    if role is ContainerRole.INIT:
        sentences.append("init container: its pod requests the larger of this request and the other containers' sum")
    if workload.ref.kind == "Job" and cpu.runs[index] > cpu.pods[index]:
        sentences.append(f"this Job is one of the runs of {template(workload)} and is sized by all of them")
    sentences += _of_start(cpu, index, by_field)
    if np.isfinite(memory.leak[index]):
        growth = f"memory grows by {human_bytes(memory.leak[index])} a day since the last restart"
        sentences.append(f"{growth} and is not released: memory is not lowered until the leak is fixed")
    highest, median = (float(cpu.columns[name][index]) for name in ("highest_pod_p95", "median_pod_p95"))
    if np.isfinite(highest):
        p95 = f"p95 of the highest pod is {_amount(CPU, highest)}, of the median pod {_amount(CPU, median)}"
        sentences.append(f"replicas are uneven: {p95}; the request is sized for the highest pod")
    weekly = float(cpu.columns["growth_per_week"][index])
    if np.isfinite(weekly):
        sentences.append(f"CPU demand grows by {percent(weekly)} a week; the request covers the next days")
    for resource, of_resource in demand.items():
        if groups := of_resource.groups.get(index):
            most, least = max(groups, key=lambda g: groups[g]), min(groups, key=lambda g: groups[g])
            sentences.append(
                f"{resource} by node group: {_amount(resource, groups[most])} on {most}, "
                f"{_amount(resource, groups[least])} on {least}; one template serves all, so the largest need counts"
            )
    requests = [v for v in values if v.field is Field.REQUEST]
    for v in requests:
        if clamp := next((clamp for clamp in v.clamps if clamp.rule == KEPT), None):
            sentences.append(
                f"{v.resource} would need {_amount(v.resource, clamp.before)}; the pod is Guaranteed, so its request "
                f"stays at the limit; annotation {PREFIX}lower-limits or {PREFIX}keep-qos-class changes that"
            )
    for v in requests:
        if v.now is not None and 0 < demand[v.resource].largest_node < v.now:
            sentences.append(f"{v.resource} {v.field} is larger than any node: {_amount(v.resource, v.now)}")
    return tuple(sentences)


def _of_start(demand: ResourceDemand, index: int, values: Mapping[tuple[Resource, Field], Value]) -> Iterator[str]:
    """Yield a note on a container with a slow start, and whether its limit covers the start."""
    request, limit = values.get((CPU, Field.REQUEST)), values.get((CPU, Field.LIMIT))
    startup = float(demand.startup[index])
    if request is None or not request.amount or not startup > SLOW_START * request.amount:
        return
    text = f"slow start: up to {_amount(CPU, startup)} of CPU in the first minutes; the request covers only later usage"
    if limit is None or limit.action is Action.UNSET:
        yield f"{text}; no limit throttles the start"
    elif limit.amount is not None and limit.amount >= startup:
        yield f"{text}; the limit covers the start"
    else:
        yield f"{text}; the limit throttles the start, which will take longer"


def _amount(resource: Resource, amount: float | None) -> str:
    return format_millicores(round(amount or 0)) if resource is CPU else human_bytes(amount or 0)
