"""Jobs by template: runs whose names differ only in the last part share their history. Pure.

A Job made by hand or by a pipeline is a new object each time (`train-20261119`, `train-7f9c4`), with minutes of
history. Jobs of one namespace with the same requests and with names that differ only in the last part are runs of one
template. (A CronJob's runs have its name and are pooled earlier.)
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import ContainerRole, Workload
from cotenant.base.inventory.pod_templates import without_endings
from cotenant.recommender.evidence import Evidence, Floats, Integers

EPISODIC: Final = frozenset({"Job", "CronJob"})
"""Kinds that run now and then: gaps between their pods are no missing samples."""
_RUN: Final = re.compile(r"[0-9]+|(?=[a-z]*[0-9])[a-z0-9]{5,}")
"""A part at the end of a name that tells one run of a template from another."""


def template(workload: Workload) -> str:
    """Return the name that all runs of a Job's template share; for other kinds, the workload's own name."""
    name = workload.ref.name
    return without_endings(name, _RUN.fullmatch) if workload.ref.kind == "Job" else name


def episodic(evidence: Evidence) -> npt.NDArray[np.bool_]:
    """Return for each container whether it runs only now and then.

    True for containers of jobs, and for init containers, which run once per pod.
    """
    kinds = (workload.ref.kind for workload in evidence.workloads)
    flags = (kind in EPISODIC or evidence.role(index) is ContainerRole.INIT for index, kind in enumerate(kinds))
    return np.fromiter(flags, dtype=np.bool_, count=len(evidence))


def groups(evidence: Evidence) -> Integers:
    """Return a number that identifies each container's job template, the same for all runs of one template."""
    numbers: dict[object, int] = {}
    group_numbers = []
    for ref, workload in zip(evidence.containers, evidence.workloads, strict=True):
        key: object = ref
        if workload.ref.kind == "Job":
            amounts = ((c.name, sorted(c.requests.items()), sorted(c.limits.items())) for c in workload.containers)
            resources = tuple((name, tuple(requests), tuple(limits)) for name, requests, limits in amounts)
            key = (ref.workload.namespace, template(workload), ref.container, resources)
        group_numbers.append(numbers.setdefault(key, len(numbers)))
    return np.array(group_numbers, dtype=np.int64)


def group_maximum(column: Floats, group: Integers) -> Floats:
    """Return for each container the largest value in its group; NaN if the group has none."""
    highest = np.full(group.max(initial=-1) + 1, -np.inf)
    np.maximum.at(highest, group, np.where(np.isfinite(column), column, -np.inf))
    return np.where(np.isfinite(highest[group]), highest[group], np.nan)


def runs(evidence: Evidence, pods: Integers, group: Integers) -> Integers:
    """Return the number of runs (pods) seen of each container's job template; 0 for long-running containers."""
    together = np.bincount(group, weights=pods, minlength=len(pods)).astype(np.int64)
    return np.where(episodic(evidence), together[group], 0)
