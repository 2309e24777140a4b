"""The order in which knobs are written so that the kernel accepts each write. Pure.

cgroup v1 refuses a child's quota above its parent's and a child's CPUs outside its parent's, also between two writes;
both versions refuse a burst above the quota; shares cannot be written while a cgroup is idle. So the order is:

    idle off, burst down, quotas up (parents first), quotas down (children first), burst up, shares, idle on,
    CPU lists to the union of old and new (parents first), then to the new one (children first), the rest
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Final

from cotenant.base.allocation.cpu_topology import format_cpus, parse_cpus
from cotenant.base.errors import UsageError
from cotenant.enforcer.contract import NO_LIMIT, CgroupPath, Knob, Value
from cotenant.enforcer.decide.changes import KnobWrite

SETS: Final = (Knob.CPUSET_CPUS, Knob.CPUSET_MEMS)
_WITH_ORDER: Final = (Knob.CPU_IDLE, Knob.CPU_BURST, Knob.CPU_QUOTA, Knob.CPU_SHARES, *SETS)


def depth(path: CgroupPath) -> int:
    """Return how many cgroups are above the path, including the root."""
    return path.count("/") + 1 if path else 0


@lru_cache(maxsize=2048)
def ancestors(path: CgroupPath) -> tuple[CgroupPath, ...]:
    """Return the paths of all cgroups above `path`, from its parent up, without the root."""
    parts = path.split("/")
    return tuple("/".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))


def wider(first: Value, second: Value) -> bool:
    """Return whether the first quota or amount allows more than the second; False for texts."""
    if NO_LIMIT in (first, second):
        return first == NO_LIMIT != second
    return isinstance(first, int) and isinstance(second, int) and first > second


def order_writes(writes: Iterable[KnobWrite]) -> tuple[KnobWrite, ...]:
    """Return the writes in an order that the kernel accepts, with the intermediate writes that CPU lists need."""
    sorted_writes = sorted(writes, key=lambda w: (depth(w.path), w.path, w.knob))
    of = {knob: [w for w in sorted_writes if w.knob is knob] for knob in _WITH_ORDER}
    quotas, bursts = of[Knob.CPU_QUOTA], of[Knob.CPU_BURST]
    idle_on = [w for w in of[Knob.CPU_IDLE] if w.value]
    return (
        *(w for w in of[Knob.CPU_IDLE] if not w.value),
        *(w for w in bursts if not _is_loosening(w)),
        *(w for w in quotas if _is_loosening(w)),
        *(w for w in reversed(quotas) if not _is_loosening(w)),
        *(w for w in bursts if _is_loosening(w)),
        *of[Knob.CPU_SHARES],
        *idle_on,
        *(step for knob in SETS for step in _order_cpusets(of[knob])),
        *(w for w in sorted_writes if w.knob not in _WITH_ORDER),
    )


def _is_loosening(write: KnobWrite) -> bool:
    return write.present is None or wider(write.value, write.present)


def _order_cpusets(writes: list[KnobWrite]) -> list[KnobWrite]:
    """Write the union of old and new lists top-down, then the new lists bottom-up."""
    rising, falling = [], []
    for write in writes:
        both = union(write.present, write.value)
        if both == write.value:  # nothing is taken away
            rising.append(write)
            continue
        falling.append(write)
        if both != write.present:
            rising.append(replace(write, value=both, on_the_way=True))
    return [*rising, *reversed(falling)]


def union(present: Value | None, target: Value) -> Value:
    """Return the CPUs of the present and the target list; the target alone if it is empty or one is unreadable."""
    if not target:
        return target
    try:
        return format_cpus(parse_cpus(str(present or "")) | parse_cpus(str(target)))
    except UsageError:
        return target


def fit_cpu_list(cpus: Value, allowed: Value) -> Value:
    """Return those of `cpus` that are in `allowed`, else all of `allowed`; keep `cpus` if a list cannot be read."""
    try:
        mine, parents = parse_cpus(str(cpus)), parse_cpus(str(allowed))
    except UsageError:
        return cpus
    if not mine or not parents or mine <= parents:
        return cpus
    return format_cpus(mine & parents or parents)
