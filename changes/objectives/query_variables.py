"""Fills in the variables of a workload's queries: $namespace, $workload, $pods (a regular expression), $window. Pure.

$pods matches the names of old and new pods.
"""

from __future__ import annotations

from string import Template
from typing import Final

from cotenant.base.identity import WorkloadRef
from cotenant.profiler.prometheus.promql import literal, quote

_SUFFIX: Final = {"Deployment": "-[a-z0-9]+-[a-z0-9]{5}", "StatefulSet": "-[0-9]+", "CronJob": "-[0-9]+-[a-z0-9]{5}"}


def pod_names_pattern(workload: WorkloadRef) -> str:
    """Return a regular expression for the names of a workload's pods, old and new."""
    return literal(workload.name) + _SUFFIX.get(workload.kind, "-[a-z0-9]{5}")


def fill_variables(query: str, workload: WorkloadRef, span: int) -> str:
    """Return a workload's query with its variables filled in; $window is `span` seconds."""
    names = {"namespace": workload.namespace, "workload": workload.name, "pods": pod_names_pattern(workload)}
    values = {key: quote(value)[1:-1] for key, value in names.items()}  # escaped for use within quotation marks
    return Template(query).safe_substitute(values, window=f"{span}s")
