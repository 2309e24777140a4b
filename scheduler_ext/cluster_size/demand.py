"""Requests at a level: as they are, after what is ready to apply, after all steps of the recommendations. Pure.

Proposals come from the table of recommendations of the last scan, container by container. A pod whose workload has none
keeps its requests. Where raised requests are more than a node has, pods that rise lose their place on it and are placed
anew, the largest rise first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kubernetes.models.pod import ContainerWire, PodSpecWire, ResourcesWire
from cotenant.base.resource import Resource
from cotenant.recommender.model.recommendation import Action
from cotenant.recommender.model.steps import Ready
from cotenant.scheduler_ext.cluster_size.model import ClusterState, RequestLevel, SizedPod
from cotenant.scheduler_ext.cluster_size.steps import Proposed

Amounts = Mapping[str, int]
Proposals = Mapping[ContainerRef, Mapping[RequestLevel, Amounts]]
"""Container -> level -> its request by resource name (millicores, bytes), of those that the level changes."""
READY: Final = frozenset(ready.value for ready in Ready if ready.now)


def proposals_of(rows: Iterable[Mapping[str, Any]]) -> dict[ContainerRef, dict[RequestLevel, Amounts]]:
    """Proposals of rows of the table of recommendations."""
    found = {}
    for row in rows:
        ref = ContainerRef(WorkloadRef(row["namespace"], row["kind"], row["workload"]), row["container"])
        step = {r.value: row[f"{r.value}_step"] for r in Resource} if row["ready"] in READY else {}
        whole = {r.value: row[f"{r.value}_request"] for r in Resource if row[f"{r.value}_action"] == Action.SET.value}
        levels = {RequestLevel.READY: _known_amounts(step), RequestLevel.ALL_STEPS: _known_amounts(whole)}
        if any(levels.values()):
            found[ref] = levels
    return found


def proposed_of(rows: Iterable[Mapping[str, Any]]) -> Proposed:
    """Count how many containers have a recommendation, how many of them are ready, and the steps of the longest cut."""
    changing = [row for row in rows if any(row[f"{r.value}_action"] == Action.SET.value for r in Resource)]
    ready = sum(row["ready"] in READY for row in changing)
    steps = max((row.get("steps") or 1 for row in changing), default=1)
    return Proposed(ready, len(changing), steps, len(changing) - ready)


def _known_amounts(amounts: Mapping[str, int | None]) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount is not None}


def proposed_spec(spec: PodSpecWire, amounts: Mapping[str, Amounts]) -> PodSpecWire:
    """The spec with requests of some containers, by their names, replaced."""

    def with_proposals(containers: Sequence[ContainerWire] | None) -> list[ContainerWire]:
        return [_with_requests(container, amounts.get(container.name, {})) for container in containers or ()]

    return msgspec.structs.replace(
        spec, containers=with_proposals(spec.containers), init_containers=with_proposals(spec.init_containers)
    )


def _with_requests(container: ContainerWire, amounts: Amounts) -> ContainerWire:
    if not amounts:
        return container
    own = container.resources or ResourcesWire()
    texts = {name: f"{amount}m" if name == Resource.CPU.value else str(amount) for name, amount in amounts.items()}
    resources = msgspec.structs.replace(own, requests={**(own.requests or {}), **texts})
    return msgspec.structs.replace(container, resources=resources)


def state_at(state: ClusterState, level: RequestLevel) -> ClusterState:
    """The state with the requests of a level."""
    if level is RequestLevel.NOW:
        return state
    pods = [replace(pod, requests=pod.later[level]) if level in pod.later else pod for pod in state.pods]
    homeless = _homeless(state, pods)
    return replace(
        state, pods=tuple(replace(pod, node="") if number in homeless else pod for number, pod in enumerate(pods))
    )


def _homeless(state: ClusterState, pods: Sequence[SizedPod]) -> set[int]:
    """Numbers of the pods that rise and that their nodes have nothing left for, the largest rise first."""
    on_node: dict[str, list[int]] = defaultdict(list)
    for number, pod in enumerate(pods):
        on_node[pod.node].append(number)
    found: set[int] = set()
    for node in state.nodes:
        numbers = on_node.get(node.name, [])
        for name in (resource.value for resource in Resource):
            before = {number: state.pods[number].requests.get(name, 0) for number in numbers}
            rises = {number: pods[number].requests.get(name, 0) - before[number] for number in numbers}
            left = node.allocatable.get(name, 0) - sum(
                pods[number].requests.get(name, 0) for number in numbers if number not in found
            )
            for number in sorted(numbers, key=lambda number: (-rises[number], number)):
                if left >= 0 or rises[number] <= 0:
                    break
                if number not in found and pods[number].stays is None and not pods[number].goes_with_node:
                    found.add(number)
                    left += pods[number].requests.get(name, 0)
    return found
