"""Objectives in autopilot policies: what they contain, and which workloads they are for. Pure.

A policy gives a measure, its query and its ceiling. They verify all changes of the workloads that the policy selects,
whoever accepts them; a policy that is off verifies nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.struct_validation import deviations, without_nulls
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.changes.decide.regression_check import Compared, Measure, Objective
from cotenant.changes.objectives.query_variables import fill_variables
from cotenant.changes.soak.own_series import check_own

Json = Mapping[str, Any]
MEASURES: Final = {"ErrorRatio": Measure.ERRORS, "Latency": Measure.LATENCY}
MOST_OBJECTIVES: Final = 5


class PolicyObjective(msgspec.Struct, frozen=True, rename="camel"):
    """One objective of a policy; `ceiling` is a share for ErrorRatio, seconds for Latency."""

    name: Annotated[str, msgspec.Meta(pattern="^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
    measure: Literal["ErrorRatio", "Latency"]
    query: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    ceiling: Annotated[float, msgspec.Meta(gt=0, le=3600)]

    def problem(self, namespace: str) -> tuple[object, str, str] | None:
        """Return (value, why, fix) if the objective is invalid, else None; `namespace` is that of its policy."""
        if self.measure == "ErrorRatio" and self.ceiling >= 1:
            return self.ceiling, "is not a share", "Write a share below 1: 0.01 is one request in a hundred."
        anybody = WorkloadRef(namespace, "Deployment", "name")
        try:
            check_own(fill_variables(self.query, anybody, HOUR_SECONDS), namespace, "query")
        except UsageError as error:
            return repr(self.query), f"cannot be used: {error.message}", error.fix
        return None


def objectives_of_policies(policies: Iterable[Json], live: Json) -> tuple[list[Objective], list[Compared]]:
    """Return the objectives of the policies that select the workload `live`, and the refused ones with the reason.

    `policies` are the AutopilotPolicies of the workload's namespace; those with mode Off are ignored.
    """
    objectives: list[Objective] = []
    refused: list[Compared] = []
    labels = (live.get("metadata") or {}).get("labels") or {}
    for body in policies:
        spec = body.get("spec") or {}
        entries = without_nulls(spec.get("objectives") or [])
        if not entries or spec.get("mode") == "Off":
            continue
        try:
            if not LabelSelector.parse(spec.get("selector") or {}).matches(labels):
                continue
        except UsageError:  # a selector that cannot be read selects nothing
            continue
        meta = body.get("metadata") or {}
        policy, namespace = str(meta.get("name") or ""), str(meta.get("namespace") or "")
        try:
            faults = [str(fault) for fault in deviations(entries, list[PolicyObjective], "spec.objectives")]
            objectives_of_policy = [] if faults else msgspec.convert(entries, list[PolicyObjective])
        except msgspec.ValidationError as error:
            faults = [str(error)]
        if faults:
            refused.append(Compared(Measure.ERRORS, None, None, faults[0], f"policy {policy}"))
            continue
        for written in objectives_of_policy:
            measure, name = MEASURES[written.measure], f"policy {policy}: {written.name}"
            if problem := written.problem(namespace):
                value, why, fix = problem
                refused.append(Compared(measure, None, None, f"{value} {why}. {fix}", name))
            else:
                objectives.append(Objective(measure, written.query, name, written.ceiling))
    return objectives, refused
