"""Quantities of measured usage. Ratios of the cluster follow the rules of kubernetes-mixin."""

from __future__ import annotations

from typing import Final

from cotenant.base.tables.quantity import Aggregation, Level, Moment, Quantity, Surface, Unit

_VIEWS: Final = "cotenant.recommender.model.views"
_HEADLINE_SURFACES: Final = (Surface.TILE, Surface.CLI, Surface.REST, Surface.REPORT)


def _headline(key: str, name: str, definition: str, statistic: str) -> Quantity:
    """One of the six ratios of the whole cluster."""
    return Quantity(
        key=key,
        name=name,
        definition=definition,
        unit=Unit.RATIO,
        function=f"{_VIEWS}.Headline.{key.removeprefix('cluster_').removesuffix('_ratio')}",
        aggregation=Aggregation(Level.CLUSTER, statistic),
        time=Moment.LAST_SCAN,
        surfaces=_HEADLINE_SURFACES,
    )


QUANTITIES: Final[tuple[Quantity, ...]] = (
    *(
        _headline(
            f"cluster_{resource}_utilisation_ratio",
            f"{name} used",
            f"What nodes report as used, system included, in the newest hour with data / their allocatable {name}.",
            "mean of the newest hour",
        )
        for resource, name in (("cpu", "CPU"), ("memory", "memory"))
    ),
    *(
        _headline(
            f"cluster_{resource}_{amounts}_commitment_ratio",
            f"{name} {amounts}",
            f"Sum of {amounts} of {pods} / allocatable {name} of all nodes.",
            "sum over the pods",
        )
        for resource, name in (("cpu", "CPU"), ("memory", "memory"))
        for amounts, pods in (
            ("requests", "the pods on nodes, as the scheduler counts them"),
            ("limits", "the running pods of workloads"),
        )
    ),
)
