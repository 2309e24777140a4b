"""Requests of every container, scaled to the cluster and rounded as people round.

Requests of the pods that run at the end of the window add up to the share of allocatable that the spec names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Container, ContainerRole, Node, pod_amount
from cotenant.base.resource import MIB, Resource
from cotenant_lab.synthetic.fleet import Blueprint, ContainerBlueprint
from cotenant_lab.synthetic.spec import SyntheticSpec

_MANTISSAS = np.array([1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0])
_LADDER = {
    Resource.CPU: np.unique(np.round(np.concatenate([_MANTISSAS * 10.0**power for power in range(1, 5)]))),
    Resource.MEMORY: MIB
    * np.unique(np.concatenate([m * 2.0 ** np.arange(5, 17) for m in (1.0, 1.25, 1.5, 1.75)]).round()),
}
"""Amounts that people write into manifests: 100m, 250m, 1200m; 512Mi, 1.5Gi."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A blueprint with the final amounts of its long-running containers.

    `wish` is what a container without requests needs; `most` is what each can use: its limit, or what its threads can.
    """

    blueprint: Blueprint
    containers: tuple[Container, ...]
    wish: tuple[Mapping[Resource, int], ...]
    most: tuple[Mapping[Resource, int], ...]

    @property
    def template(self) -> tuple[Container, ...]:
        """All containers of a pod, init containers last."""
        main = self.containers[0]
        started = (Container(n, main.requests, main.limits, ContainerRole.INIT) for n in self.blueprint.init)
        return (*self.containers, *started)

    @property
    def request(self) -> Mapping[Resource, int]:
        """The effective request of one pod; init containers add nothing, as they request no more than the main one."""
        return {resource: pod_amount(self.containers, resource) for resource in Resource}


def size(
    spec: SyntheticSpec, plan: Sequence[Blueprint], running: npt.NDArray[np.float64], nodes: Sequence[Node]
) -> tuple[Sized, ...]:
    """Scale and round all amounts; `running` is the number of each blueprint's pods that count for the shares."""
    targets = {Resource.CPU: spec.cpu_requested, Resource.MEMORY: spec.memory_requested}
    amounts = {resource: _amounts(resource, plan, running, nodes, share) for resource, share in targets.items()}
    return tuple(_size_blueprint(blueprint, {r: amounts[r][i] for r in amounts}) for i, blueprint in enumerate(plan))


def _amounts(
    resource: Resource, plan: Sequence[Blueprint], running: npt.NDArray[np.float64], nodes: Sequence[Node], share: float
) -> list[tuple[int, ...]]:
    """Rounded requests of every part of every blueprint; a few rounds of scaling bring the sum to the target."""
    target = share * sum(node.allocatable[resource] for node in nodes)
    largest = 0.15 * max(node.allocatable[resource] for node in nodes)
    sizes = [np.array([part.request[resource] for part in blueprint.parts]) for blueprint in plan]
    declared = [np.array([part.declared for part in blueprint.parts]) for blueprint in plan]
    factor, rounded = 1.0, sizes
    for _ in range(6):
        rounded = [_round(resource, np.minimum(w * factor, largest)) for w in sizes]
        total = sum(float(n * r[d].sum()) for n, r, d in zip(running, rounded, declared, strict=True))
        factor *= target / total if total else 1.0
    return [tuple(int(amount) for amount in amounts) for amounts in rounded]


def _round(resource: Resource, amounts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The nearest rung of the ladder, by ratio."""
    ladder = _LADDER[resource]
    upper = np.clip(np.searchsorted(ladder, amounts), 1, len(ladder) - 1)
    nearer_below = amounts / ladder[upper - 1] < ladder[upper] / np.maximum(amounts, 1.0)
    return np.where(nearer_below, ladder[upper - 1], ladder[upper])


def _size_blueprint(blueprint: Blueprint, amounts: Mapping[Resource, tuple[int, ...]]) -> Sized:
    wishes = [{r: amounts[r][i] for r in amounts} for i in range(len(blueprint.parts))]
    most = tuple(_most(part, size) for part, size in zip(blueprint.parts, wishes, strict=True))
    containers = tuple(
        # A limit alone would be a request too, beyond what the nodes have.
        Container(part.name, dict(size), limits, part.role) if part.declared else Container(part.name, role=part.role)
        for part, size, limits in zip(blueprint.parts, wishes, most, strict=True)
    )
    return Sized(blueprint, containers, tuple(wishes), most)


def _most(part: ContainerBlueprint, size: Mapping[Resource, int]) -> dict[Resource, int]:
    limits = {
        resource: int(
            _round(resource, np.array([max(amount, amount * part.limit[resource] / part.request[resource])]))[0]
        )
        for resource, amount in size.items()
        if part.limit[resource] > 0
    }
    return {resource: max(limit, size[resource]) for resource, limit in limits.items()}
