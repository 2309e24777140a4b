"""Strategy `example-max`: request the highest usage ever seen in one pod, and a fifth more. A complete plug-in."""

from __future__ import annotations

from math import isfinite

from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.recommender.base import display_inputs, recommendation, rounded_up, withheld
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.settings import RecommenderSettings
from cotenant.recommender.severity import severity

MARGIN = 0.2
UNITS = {Resource.CPU: 1, Resource.MEMORY: MIB}
"""Proposals are rounded up to whole millicores and MiB."""


class ExampleMax:
    """A strategy is a class without arguments, with a name and this one method."""

    name = "example-max"

    def recommend(self, evidence: Evidence, settings: RecommenderSettings) -> list[Recommendation]:
        """One recommendation for each container of the evidence, in its order."""
        highest = {resource: evidence.highest_seen(resource) for resource in Resource}
        made = []
        for index in range(len(evidence)):
            values = [propose(evidence, index, resource, float(highest[resource][index])) for resource in Resource]
            made.append(recommendation(self.name, evidence, index, values, settings))
        return made


def propose(evidence: Evidence, index: int, resource: Resource, highest: float) -> Value:
    """The request of one container; without any usage no value, but a reason."""
    now = evidence.now(index, resource, Field.REQUEST)
    if not isfinite(highest):
        return withheld(resource, Field.REQUEST, now, Reason.NO_DATA, {})
    amount = rounded_up(highest * (1 + MARGIN), UNITS[resource])
    return Value(
        resource,
        Field.REQUEST,
        now,
        amount,
        Action.SET,
        Reason.OBSERVED_MAXIMUM,
        severity=severity(resource, now, amount, evidence.workloads[index].replicas),
        inputs=display_inputs(observed_max=highest, margin_fraction=MARGIN),
        formula=f"highest ever seen x {1 + MARGIN:g}",
    )
