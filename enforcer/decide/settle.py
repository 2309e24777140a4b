"""Turns what strategies want into the writes that are needed. Pure.

    settle(plans, seen, notes, dialect) -> Settled(writes in order, notes to save before the first of them)

Each knob has one target: the first strategy's want, or else, if the knob has a value of the agent that no strategy
wants any more, the original value. Targets are then adjusted to what the kernel accepts (`_fit`) and compared with the
present values, so a tick without changes writes nothing. A value that another program sets meanwhile becomes the
original value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import (
    NO_LIMIT,
    CgroupPath,
    ContainerSpec,
    GroupReading,
    Knob,
    Level,
    MemoryUse,
    Observation,
    StrategyPlan,
    Value,
    Want,
)
from cotenant.enforcer.decide.changes import Done, KnobWrite, Notes, OriginalValue, Place, Settled, WriteOutcome
from cotenant.enforcer.decide.granted import CPU, container_limit, total
from cotenant.enforcer.decide.knobs import (
    MICROSECONDS_PER_MILLICORE,
    PAGE_BYTES,
    Dialect,
    may_stem_from,
    objection,
    round_for_write,
    same,
    shares_of,
)
from cotenant.enforcer.decide.write_order import SETS, ancestors, depth, fit_cpu_list, order_writes, wider
from cotenant.enforcer.knob_table import Version

MEMORY_MARGIN: Final = 1.05
"""Least ratio of memory.high or a memory limit to the usage: the kernel stops tasks above memory.high, and on cgroup v2
a limit below the usage makes it kill one at once."""
WRITTEN_KEPT: Final = 8
AFTER_IDLE: Final = (1024, shares_of(100))
"""What the kernel sets as shares (v1) and weight (v2) when a cgroup ceases to be idle."""
_PROTECTING: Final = (Knob.MEMORY_MIN, Knob.MEMORY_LOW)
"""Knobs of which more is stricter: it is kept from others."""
Groups = Mapping[CgroupPath, GroupReading]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Further inputs of `settle` besides the observation.

    `strays` are readings of cgroups without a known container (sandboxes), or newer readings of cgroups in the
    observation. `not_kubelets` has values that the kubelet cannot have set, and what it would have set
    (`kubelet_values.lost_notes`).
    """

    dialect: Dialect
    strays: Groups = field(default_factory=dict)
    not_kubelets: Notes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _KnobTarget:
    value: Value
    level: Level
    strategy: str
    why: str
    restores: bool = False
    back_to: Value | None = None
    made_from: Value | None = None


_Targets = dict[Place, _KnobTarget]


def settle(
    plans: Sequence[StrategyPlan],
    observation: Observation,
    notes: Notes,
    dialect: Dialect,
    more: Circumstances | None = None,
) -> Settled:
    """Return the writes in order, and the journal to save before them; of conflicting plans the earlier one applies."""
    circumstances = more or Circumstances(dialect)
    groups = {**observation.groups(), **circumstances.strays}
    first: dict[Place, Want] = {}
    clashes, refused = [], []
    for want in (want for plan in plans for want in plan.wants):
        earlier = first.setdefault(want.place, want)
        if earlier.value != want.value:
            why = f"{earlier.strategy} wants {earlier.value}: {earlier.why}"
            clashes.append(Done.of(want, WriteOutcome.REFUSED, message=why))
    targets: _Targets = {}
    for place, want in first.items():
        if (no := _refusal(want, groups, observation, notes, dialect)) is not None:
            refused.append(no)
            continue
        value = round_for_write(want.knob, want.value)
        targets[place] = _KnobTarget(value, want.level, want.strategy, want.why, False, want.back_to, want.made_from)
    # Knobs that have, or may have, our value and are not wanted are restored; what others have set since stays.
    for place, note in notes.items():
        if place not in targets and note.path in groups and _holds_agent_value(note, groups[note.path], dialect):
            why = "the original value"
            targets[place] = _KnobTarget(note.original, note.level, note.strategy, why, restores=True)
    _fit(targets, groups, observation, notes, circumstances)
    writes, next_notes, values_in_force = _plan_writes(targets, groups, notes, circumstances)
    return Settled(order_writes(writes), next_notes, (*clashes, *refused), values_in_force)


def _refusal(want: Want, groups: Groups, observation: Observation, notes: Notes, dialect: Dialect) -> Done | None:
    """Return why a want is refused, or None; a value that another program has set since counts as the original."""
    group, outcome = groups.get(want.path), WriteOutcome.REFUSED
    if group is None:
        why = "the cgroup belongs to no known pod, QoS tier or host application"
    elif wrong := objection(want.knob, want.value):
        why = wrong
    elif want.knob not in observation.supported or not (want.knob in group.knobs or _idle_hides(want.knob, group)):
        outcome, why = WriteOutcome.UNSUPPORTED, "this kernel, or this cgroup, has no file for the setting"
    else:
        before = _value_before_us(want.knob, group, notes, dialect) if want.never_looser else None
        if before is None or not wider(*((before, want.value) if want.knob in _PROTECTING else (want.value, before))):
            return None
        if same(want.knob, before, round_for_write(want.knob, want.value), dialect):
            return None
        why = f"the original value {before} is stricter and is kept"
    return Done.of(want, outcome, message=why)


def _value_before_us(knob: Knob, group: GroupReading, notes: Notes, dialect: Dialect) -> Value | None:
    """Return the original value, or the value that another program has set since."""
    note = notes.get((group.path, knob))
    return note.original if note is not None and _holds_agent_value(note, group, dialect) else group.knobs.get(knob)


def _idle_hides(knob: Knob, group: GroupReading) -> bool:
    """Return whether the cgroup is idle, so that the kernel neither shows nor accepts shares."""
    return knob is Knob.CPU_SHARES and group.knobs.get(Knob.CPU_IDLE) == 1


def _holds_agent_value(note: OriginalValue, group: GroupReading, dialect: Dialect) -> bool:
    if _idle_hides(note.knob, group):
        return True
    present = group.knobs.get(note.knob)
    return present is not None and _was_written(note, present, dialect)


def _was_written(note: OriginalValue, present: Value, dialect: Dialect) -> bool:
    return any(may_stem_from(note.knob, present, value, dialect) for value in note.written)


# --- what the kernel can take ------------------------------------------------------------------------------------
def _fit(
    targets: _Targets, groups: Groups, observation: Observation, notes: Notes, circumstances: Circumstances
) -> None:
    # Tasks above memory.high stand still: it is not below what is used or requested.
    places = [p for p, t in targets.items() if p[1] is Knob.MEMORY_HIGH and not t.restores]
    requests = _requests(observation) if places else {}
    for path, knob in places:
        group = groups[path]
        used = int(group.memory.usage * MEMORY_MARGIN) if group.memory else 0
        _not_below(max(used, requests.get(path, 0)), targets, group, knob, "it is not set below usage or request")
    # A memory limit below what is used, also one that is restored, makes the kernel end a task. So the limit follows
    # the falling use, a step a tick; where the use is not known it is not lowered at all.
    for path in [path for path, knob in targets if knob is Knob.MEMORY_LIMIT]:
        group = groups[path]
        floor = limit_floor(group.memory) if group.memory else group.knobs.get(Knob.MEMORY_LIMIT, NO_LIMIT)
        _not_below(floor, targets, group, Knob.MEMORY_LIMIT, "the limit is not set below the memory usage")
    for (path, knob), target in list(targets.items()):
        # 1 ms of the cgroup's own period: the kernel refuses less, and the kubelet does not set it either.
        least = groups[path].least_quota
        if knob is Knob.CPU_QUOTA and target.value != NO_LIMIT and wider(least, target.value):
            targets[path, knob] = replace(target, value=least)
    if circumstances.dialect.version(Knob.CPU_QUOTA) is Version.V1:
        _fit_quotas(targets, groups, observation, notes, circumstances.dialect)
    touched = {path for path, knob in targets if knob in (Knob.CPU_QUOTA, Knob.CPU_BURST)}
    for group in (groups[path] for path in sorted(touched)):
        quota, burst = (_final(targets, group, knob) for knob in (Knob.CPU_QUOTA, Knob.CPU_BURST))
        if quota not in (None, NO_LIMIT) and burst is not None and wider(burst, quota):
            _adjust(targets, group, Knob.CPU_BURST, quota, "cpu.burst is at most the quota")
    if circumstances.dialect.version(Knob.CPUSET_CPUS) is Version.V1:
        for knob in SETS:
            _fit_sets(knob, targets, groups)
    # Shares wait while a cgroup is or becomes idle; becoming idle they are noted, afterwards they are written.
    for path, group in groups.items():
        if _final(targets, group, Knob.CPU_IDLE) == 1:
            targets.pop((path, Knob.CPU_SHARES), None)


def _below_changes(targets: _Targets, groups: Groups, knob: Knob) -> list[CgroupPath]:
    """Return the cgroups with a target for this knob and all below them, parents first."""
    changed = {path for path, target in targets if target is knob}
    return sorted((p for p in groups if p in changed or not changed.isdisjoint(ancestors(p))), key=depth)


def _final(targets: _Targets, group: GroupReading, knob: Knob) -> Value | None:
    target = targets.get((group.path, knob))
    return target.value if target else group.knobs.get(knob)


def limit_floor(memory: MemoryUse) -> int:
    """Return the lowest safe memory limit in bytes: working set + half the page cache, at least 1.05 x working set.

    The kernel drops cache to get below a lower limit, but kills a task if it cannot drop enough at once, for example
    because pages are not written to disk yet. So each tick takes at most half of the cache.
    """
    cache = max(memory.usage - memory.working_set, 0)
    return max(int(memory.working_set * MEMORY_MARGIN), memory.working_set + cache // 2)


def at_least(floor: Value, value: Value, present: Value) -> Value:
    """Return the limit `value`; for a cut below `floor`, `floor`, or `present` if that is lower or hardly higher."""
    if isinstance(floor, int) and floor != NO_LIMIT:
        floor = -(-floor // PAGE_BYTES) * PAGE_BYTES
    if not wider(present, value) or not wider(floor, value):
        return value
    # Within five percent: not worth a write each tick.
    near = isinstance(floor, int) and isinstance(present, int) and present > 0 and present * 0.95 <= floor <= present
    return present if near or wider(floor, present) else floor


def _not_below(floor: Value, targets: _Targets, group: GroupReading, knob: Knob, why: str) -> None:
    target = targets[group.path, knob]
    value = at_least(floor, target.value, group.knobs.get(knob, NO_LIMIT))
    if value != target.value:
        _adjust(targets, group, knob, value, why)


def _fit_quotas(targets: _Targets, groups: Groups, observation: Observation, notes: Notes, dialect: Dialect) -> None:
    """Adjust quotas to what cgroup v1 accepts, and to what the kubelet is about to write.

    A pod's quota is not below that of a container that may still start with the kubelet's own quota: cgroup v1 would
    refuse it and the container would not start. If the original quota was lower, it is the bound. A quota that the
    kubelet gave a pod is not lowered while it resizes the pod: its next write is a container's quota of that size. No
    quota is above the lowest of its ancestors, where it would have no effect and cgroup v1 refuses it.
    """
    for pod in observation.pods:
        target = targets.get((pod.group.path, Knob.CPU_QUOTA)) if pod.group else None
        if pod.group is None or target is None or target.restores or target.value == NO_LIMIT:
            continue
        waiting = (container for container in pod.spec.every_container if not container.running)
        starts = (container_limit(pod.spec, container, CPU) or 0 for container in waiting)
        least = max(starts, default=0) * MICROSECONDS_PER_MILLICORE
        before = _value_before_us(Knob.CPU_QUOTA, pod.group, notes, dialect)
        least = before if isinstance(before, int) and wider(least, before) else least
        if wider(least, target.value):
            _adjust(targets, pod.group, Knob.CPU_QUOTA, least, "a container of the pod will start with this quota")
    for group in (pod.group for pod in observation.pods if pod.spec.resizing and pod.group is not None):
        place = (group.path, Knob.CPU_QUOTA)
        target, note, present = targets.get(place), notes.get(place), group.knobs.get(Knob.CPU_QUOTA)
        kubelets = present is not None and (note is None or not _holds_agent_value(note, group, dialect))
        if target is not None and present is not None and kubelets and wider(present, target.value):
            _adjust(targets, group, Knob.CPU_QUOTA, present, "the quota is kept while the kubelet resizes the pod")
    for path in _below_changes(targets, groups, Knob.CPU_QUOTA):
        mine = _final(targets, groups[path], Knob.CPU_QUOTA)
        above = [_final(targets, groups[a], Knob.CPU_QUOTA) for a in ancestors(path) if a in groups]
        limits = [value for value in above if isinstance(value, int) and value != NO_LIMIT]
        if mine not in (None, NO_LIMIT) and limits and wider(mine, min(limits)):
            _adjust(targets, groups[path], Knob.CPU_QUOTA, min(limits), "the quota is at most the parent cgroup's")


def _fit_sets(knob: Knob, targets: _Targets, groups: Groups) -> None:
    """Remove from each cpuset the CPUs that an ancestor lacks; a cgroup without a list is left to the runtime."""
    for path in _below_changes(targets, groups, knob):
        if not groups[path].knobs.get(knob):
            targets.pop((path, knob), None)
            continue
        mine = _final(targets, groups[path], knob)
        for above in (a for a in ancestors(path) if a in groups):
            allowed = _final(targets, groups[above], knob)
            fitted = fit_cpu_list(mine, allowed) if mine and allowed else mine
            if mine is not None and fitted is not None and fitted != mine:
                _adjust(targets, groups[path], knob, fitted, "only CPUs of the parent cgroup are set")
                mine = fitted


def _adjust(targets: _Targets, group: GroupReading, knob: Knob, value: Value, why: str) -> None:
    target = targets.get((group.path, knob))
    if target is None:
        targets[group.path, knob] = _KnobTarget(value, group.level, "fitting", why)
    else:
        reason = why if target.restores else f"{target.why}; {why}"
        targets[group.path, knob] = replace(target, value=value, why=reason, restores=False)


# --- compared with what stands there -----------------------------------------------------------------------------
def _plan_writes(
    targets: _Targets, groups: Groups, notes: Notes, circumstances: Circumstances
) -> tuple[list[KnobWrite], dict[Place, OriginalValue], dict[Place, Value]]:
    """Return writes for targets that differ from the present values, the notes to save before, and held values.

    A restored value that is already present needs no note any more. A wanted value that is already present is noted if
    a runtime hook set it (`_made_so`).
    """
    writes, values_in_force, dialect = [], {}, circumstances.dialect
    next_notes: dict[Place, OriginalValue] = {}
    for place, note in notes.items():
        # One without a target is done with, unless its cgroup was not seen, or we make it idle: that hides shares.
        idle = targets.get((note.path, Knob.CPU_IDLE))
        waits = note.knob is Knob.CPU_SHARES and idle is not None and idle.value == 1 and not idle.restores
        if place in targets or note.path not in groups or waits:
            next_notes[place] = note
    for place, target in targets.items():
        present = groups[place[0]].knobs.get(place[1])
        settled = present is not None and same(place[1], present, target.value, dialect)
        if settled:
            if target.restores:
                next_notes.pop(place, None)
            elif place not in next_notes:
                next_notes |= _made_so(place, target, dialect)
        else:
            drifted = _has_drifted(notes.get(place), present, dialect)
            value, level, strategy, why = target.value, target.level, target.strategy, target.why
            write = KnobWrite(*place, value, level, strategy, why, present, target.restores, drifted=drifted)
            writes.append(write)
            next_notes |= _notes_for_write(write, groups[place[0]], next_notes, circumstances)
            if write.restores and _idle_hides(place[1], groups[place[0]]):  # from now on AFTER_IDLE is the kubelet's
                next_notes[place] = replace(next_notes[place], written=(target.value,))
        if place in next_notes and target.back_to is not None:
            # The kubelet's word; one that has changed since is the new original.
            note, target_told = next_notes[place], target.back_to
            original = note.original if note.told in (None, target_told) else target_told
            next_notes[place] = replace(note, original=original, told=target_told)
        if place in next_notes and not target.restores:
            values_in_force[place] = target.value
    return writes, next_notes, values_in_force


def _made_so(place: Place, target: _KnobTarget, dialect: Dialect) -> dict[Place, OriginalValue]:
    """Return the note of a value that a runtime hook set when the container was created."""
    before = target.made_from
    if before is None or same(place[1], before, target.value, dialect):
        return {}
    return {place: OriginalValue(*place, target.level, before, (target.value,), target.strategy)}


def _has_drifted(note: OriginalValue | None, present: Value | None, dialect: Dialect) -> bool:
    return note is not None and present is not None and not _was_written(note, present, dialect)


def _notes_for_write(
    write: KnobWrite, group: GroupReading, notes: Notes, circumstances: Circumstances
) -> dict[Place, OriginalValue]:
    """Return the note of this write; for a cgroup that becomes idle also of its shares, which the kernel forgets."""
    if write.restores:
        return {}
    not_kubelets = circumstances.not_kubelets
    new_notes: dict[Place, OriginalValue] = {}
    note, derived = notes.get(write.place), not_kubelets.get(write.place)
    if note is None and write.present is not None:
        note = OriginalValue(write.path, write.knob, write.level, derived.original if derived else write.present)
    elif note is not None and write.drifted and write.present is not None and derived is None:
        note = replace(note, original=write.present)
    if note is not None:
        new_notes[note.place] = _add_written_values(note, write.strategy, write.value)
    shares, place = group.knobs.get(Knob.CPU_SHARES), (write.path, Knob.CPU_SHARES)
    if write.knob is Knob.CPU_IDLE and write.value == 1 and shares is not None:
        own = not_kubelets[place].original if place in not_kubelets else shares
        before = notes.get(place)
        if before is None or _has_drifted(before, shares, circumstances.dialect):
            before = OriginalValue(write.path, Knob.CPU_SHARES, write.level, own)
        new_notes[place] = _add_written_values(before, write.strategy, *AFTER_IDLE)
    return new_notes


def _add_written_values(note: OriginalValue, strategy: str, *values: Value) -> OriginalValue:
    written = (*(v for v in note.written if v not in values), *values)[-WRITTEN_KEPT:]
    return replace(note, written=written, strategy=strategy)


# --- what pods asked for -----------------------------------------------------------------------------------------
def _requests(observation: Observation) -> dict[CgroupPath, int]:
    """Return each cgroup's memory request in bytes, the larger one during a resize; batch memory for best effort."""
    requested_bytes: dict[CgroupPath, int] = {}
    for pod in observation.pods:
        name = "kubernetes.io/batch-memory" if pod.spec.qos_class is QosClass.BE else "memory"
        for container in pod.containers:
            if container.group is not None:
                requested_bytes[container.group.path] = _largest_request(container.spec, name)
        if pod.group is not None:
            requested_bytes[pod.group.path] = total(pod.spec, partial(_largest_request, name=name))
    return requested_bytes


def _largest_request(container: ContainerSpec, name: str) -> int:
    return max(container.requests.get(name, 0), (container.actual_requests or {}).get(name, 0))
