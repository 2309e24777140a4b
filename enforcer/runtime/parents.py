"""EDGE: limits of a container's cgroups, so that no hook makes a container fail to start, or ends a running one.

On cgroup v1 the kernel refuses a quota above an ancestor's and CPUs that the parent lacks; then runc and the container
fail. The loop changes those of whole tiers every second, so they are read when a container is created: a few small
files in an in-memory file system. cgroup v2 has no such rule, but a memory limit below a container's usage ends one of
its tasks at once, so the limit of a running container is lowered only step by step, as the loop does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from cotenant.base.allocation.cpu_topology import parse_cpus
from cotenant.base.errors import CotenantError
from cotenant.enforcer.contract import NO_LIMIT, Knob
from cotenant.enforcer.decide.container_resources import ContainerSettings
from cotenant.enforcer.decide.settle import at_least, limit_floor
from cotenant.enforcer.observe.cgroupfs import Hierarchy
from cotenant.enforcer.observe.layout import Driver, Layout, Runtime

_PERIOD_MICROSECONDS = 100_000
"""Of our quotas."""


@dataclass(frozen=True, slots=True)
class Parents:
    """The cgroup file systems below `root`, whose limits a hook's decision must respect."""

    root: Path

    def fitted(self, decision: ContainerSettings, cgroup_parent: str, container_id: str = "") -> ContainerSettings:
        """Return the decision without values that the kernel would refuse or that would end a container's tasks.

        A memory limit below the usage of the running container `container_id` is raised; "" means a new container. On
        cgroup v1, a quota above an ancestor's becomes NO_LIMIT, and CPUs that the parent lacks become None. A value
        that cannot be checked, because no cgroup file can be read, becomes None: the kubelet's value stays.
        """
        if container_id and decision.memory_limit not in (None, NO_LIMIT):
            limit = self._memory_limit(decision.memory_limit or 0, cgroup_parent, container_id)
            decision = replace(decision, memory_limit=limit)
        if decision.empty or (self.root / "cgroup.controllers").exists():
            return decision
        above = tuple(chain(cgroup_parent))
        if decision.cpu_quota not in (None, NO_LIMIT):
            decision = replace(decision, cpu_quota=self._quota(decision.cpu_quota or 0, above))
        if decision.cpuset_cpus:
            decision = replace(decision, cpuset_cpus=self._cpus(decision.cpuset_cpus, above))
        return decision

    def _memory_limit(self, limit: int, cgroup_parent: str, container_id: str) -> int | None:
        with contextlib.suppress(CotenantError), Hierarchy(self.root, open_limit=0) as node:
            # Possible paths of the container's cgroup, by drivers and runtimes.
            names = {Layout(driver, runtime).container_name(container_id) for driver in Driver for runtime in Runtime}
            for path in (f"{pod}/{name}" for pod in list(chain(cgroup_parent))[-1:] for name in sorted(names)):
                memory, present = node.memory_use(path), node.read_knob(path, Knob.MEMORY_LIMIT)
                if memory is not None and isinstance(present, int):
                    return int(at_least(limit_floor(memory), limit, present))
        return None

    def _quota(self, quota: int, above: tuple[str, ...]) -> int | None:
        narrowest: float | None = None
        for path in above:
            limit = _number(self.root / "cpu" / path / "cpu.cfs_quota_us")
            period = _number(self.root / "cpu" / path / "cpu.cfs_period_us")
            if limit is None or not period:
                continue
            scaled_limit = limit * _PERIOD_MICROSECONDS / period if limit >= 0 else float("inf")
            narrowest = min(scaled_limit, narrowest if narrowest is not None else scaled_limit)
        if narrowest is None:
            return None
        return quota if quota <= narrowest else NO_LIMIT

    def _cpus(self, cpus: str, above: tuple[str, ...]) -> str | None:
        """Return the CPUs if the nearest readable ancestor has all of them; it has no more than those above it."""
        for path in reversed(above):
            try:
                text = (self.root / "cpuset" / path / "cpuset.cpus").read_text()
                return cpus if set(parse_cpus(cpus)) <= set(parse_cpus(text)) else None
            except (OSError, ValueError, CotenantError):
                continue
        return None


def chain(cgroup_parent: str) -> Iterator[str]:
    """Yield the paths from the top down to a pod's cgroup, which the kubelet names by a path or a systemd slice.

    - "/kubepods/besteffort/pod1" -> kubepods, kubepods/besteffort, kubepods/besteffort/pod1
    - "kubepods-besteffort.slice" -> kubepods.slice, kubepods.slice/kubepods-besteffort.slice
    """
    parts = [part for part in cgroup_parent.split("/") if part not in ("", ".", "..")]
    if len(parts) == 1 and parts[0].endswith(".slice"):
        segments = parts[0].removesuffix(".slice").split("-")
        parts = ["-".join(segments[:end]) + ".slice" for end in range(1, len(segments) + 1)]
    for end in range(1, len(parts) + 1):
        yield "/".join(parts[:end])


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
