"""EDGE: writes the decided values to cgroups, reads them back, and restores the original values.

    applier = Applier(hierarchy, OriginalValues(folder), dry_run=False)
    done = applier.apply([step.plan for step in steps], seen)                  in each tick
    observer.read(pods, applications, facts, fresh=applier.overridden_knobs)   in the next tick
    applier.restore()                                      on SIGTERM, or if the policy is too old

No knob is written before its original value is on disk. Each knob is written at most once per tick, also when others
write it; a value that the kernel refuses is tried a second time in the same tick after a new reading, then reported. A
refusal is a result (`Done`), never an exception. `NodeUnreadable` is raised only if no more files can be opened; the
caller then skips the tick.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cotenant.base.errors import NodeUnreadable, StoreError
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.contract import (
    CgroupPath,
    GroupReading,
    Knob,
    Level,
    NodeReading,
    Observation,
    StrategyPlan,
    Value,
)
from cotenant.enforcer.decide.changes import Done, KnobWrite, Notes, Place, Settled, WriteOutcome
from cotenant.enforcer.decide.knobs import BLOCK_DEVICES, same
from cotenant.enforcer.decide.kubelet_values import lost_notes, unexplained_limits
from cotenant.enforcer.decide.settle import Circumstances, settle
from cotenant.enforcer.decide.write_order import SETS, ancestors, fit_cpu_list
from cotenant.enforcer.observe.cgroupfs import Hierarchy, Unavailable, WriteAnswer

TOLD_SECONDS: Final = 60.0
"""The same finding is reported again after this time."""
CONFLICT_DRIFTS: Final = 3
"""Number of changes by another program within TOLD_SECONDS that is reported as a conflict."""
OLDEST_SECONDS: Final = 1e9
"""Age of a list of pods that was never received (`agent.with_ages`)."""
DENIED_SECONDS: Final = 30.0
"""Time until a write that was denied is tried again."""
_DENIED: Final = (errno.EROFS, errno.EPERM, errno.EACCES)
"""Nothing can be written on this node; any other errno is of one value in one place."""
_NOWHERE: Final = Observation(0.0, 0.0, NodeReading("", (), 0, 0))


@dataclass(frozen=True, slots=True)
class _RefusedValue:
    """A value that the kernel refused twice in a tick; it is not tried before `not_before` (monotonic seconds)."""

    value: Value
    not_before: float
    delay_seconds: float


@dataclass(slots=True)
class _Pass:
    done: list[Done] = field(default_factory=list)
    refused: list[tuple[KnobWrite, int]] = field(default_factory=list)
    """To be tried again, with errno."""
    settled: set[Place] = field(default_factory=set)
    """Written or restored."""
    restored: set[Place] = field(default_factory=set)
    tried: set[Place] = field(default_factory=set)
    gone: set[CgroupPath] = field(default_factory=set)


class Applier:
    """Writes, reads back and restores the values of cgroup settings (knobs); for use by a single thread."""

    def __init__(
        self,
        hierarchy: Hierarchy,
        originals: OriginalValues,
        dry_run: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create an applier; in a dry run it only returns what it would write, and restores nothing."""
        self._hierarchy, self._journal, self._dry_run, self._monotonic = hierarchy, originals, dry_run, monotonic
        self._lost = originals.lost
        self._held: frozenset[Place] = frozenset()
        self._told: dict[tuple[Place, WriteOutcome], tuple[object, float]] = {}
        self._drifts: dict[Place, deque[float]] = {}
        self._written: set[Place] = set()
        self._failed: dict[Place, _RefusedValue] = {}
        self._denied_until = -float("inf")
        self.denied = ""
        """Why nothing can be written at the moment (permission, read-only mount), or ""."""
        self.unexplained: tuple[str, ...] = ()
        """Sentences about limits that no note records and that may be the kubelet's; they are left as found."""

    @property
    def overridden_knobs(self) -> frozenset[Place]:
        """The cgroup settings to read in the next tick: those that have a value of the agent, or were just written."""
        return self._held

    def apply(self, plans: Sequence[StrategyPlan], observation: Observation) -> list[Done]:
        """Write the values that `plans` want and return the results; NodeUnreadable if no more files can be opened.

        The original values are saved first, and each value is read back.
        """
        self._journal.beat()
        notes = self._journal.notes
        if not self._dry_run and self._lost and observation.kubepods is not None:
            # The notes were lost, and the pods are known: with what can only be an agent's.
            self._lost = observation.pods_age_seconds >= OLDEST_SECONDS
            notes = {**lost_notes(observation), **notes}
            noted_paths = {path for path, _ in notes}
            self.unexplained = tuple(text for path, text in unexplained_limits(observation) if path not in noted_paths)
            with contextlib.suppress(StoreError):  # told when they are saved before the writes
                self._journal.begin(notes)
        groups = observation.groups()
        strays, removed = self._strays(notes, observation)
        notes = {place: note for place, note in notes.items() if note.path not in removed}
        around = Circumstances(self._hierarchy.dialect, strays)
        settled = settle(plans, observation, notes, self._hierarchy.dialect, around)
        newer = self._newer(settled, {**groups, **strays})
        first_notes = any(not w.restores and (w.drifted or w.place not in notes) for w in settled.writes)
        if newer or first_notes:  # seldom: somebody wrote since the reading, or an original is to be noted
            others = lost_notes(observation) if first_notes else {}
            around = replace(around, strays={**strays, **newer}, not_kubelets=others)
            settled = settle(plans, observation, notes, self._hierarchy.dialect, around)
        if self._dry_run:
            would = (_answer(w, WriteOutcome.WOULD_WRITE) for w in settled.writes if not w.on_the_way)
            return self._mark_repeated([*settled.refused, *would])
        first = self._carry_out(settled)
        if first.refused and not self.denied:
            fresh = {**around.strays, **self._read_again(first, {**groups, **around.strays})}
            around = replace(around, strays=fresh)
            second = self._carry_out(settle(plans, observation, self._journal.notes, self._hierarchy.dialect, around))
            first.done += second.done
            first.refused = second.refused
            first.tried |= second.tried
        failures = self._remember(first)
        self._held = frozenset({*settled.values_in_force, *first.tried})
        return self._mark_repeated([*settled.refused, *first.done, *failures])

    def restore(self) -> list[Done]:
        """Restore every original value; a value that cannot be restored stays in the journal."""
        if self._dry_run:
            return []
        try:
            return self.apply((), _NOWHERE)
        except NodeUnreadable:  # files ran out; those that were held open are closed now, and no tick follows
            return self.apply((), _NOWHERE)

    # --- what is known beforehand ------------------------------------------------------------------------------------

    def _strays(self, notes: Notes, observation: Observation) -> tuple[dict[CgroupPath, GroupReading], set[CgroupPath]]:
        """Return readings of noted cgroups that the observation lacks, and the noted cgroups that are gone.

        Cgroups of pods that are missing from a known list of pods are left out: the API server forgets a pod that is
        deleted by force, or with its Node, while its containers run through their grace period. They keep their values
        until then.
        """
        readings: dict[CgroupPath, GroupReading] = {}
        removed = set()
        listed = observation.kubepods is not None and observation.pods_age_seconds < OLDEST_SECONDS
        pods = {pod.group.path for pod in observation.pods if pod.group is not None}
        for path in {path for path, _ in notes} - observation.groups().keys():
            mine = [note for place, note in notes.items() if place[0] == path]
            knobs = self._knobs(path, {note.knob for note in mine})
            if knobs is None:
                removed.add(path)
            elif not (listed and mine[0].level in (Level.POD, Level.CONTAINER) and pods.isdisjoint(ancestors(path))):
                memory = self._hierarchy.memory_use(path) if Knob.MEMORY_LIMIT in knobs else None
                readings[path] = GroupReading(path, mine[0].level, memory=memory, knobs=knobs)
        return readings, removed

    def _knobs(self, path: CgroupPath, knobs: Iterable[Knob]) -> dict[Knob, Value] | None:
        """Return the present values of a cgroup, without shares if it is idle; None if the cgroup is gone."""
        read = {knob: self._hierarchy.read_knob(path, knob) for knob in {*knobs, Knob.CPU_IDLE}}
        if Unavailable.GONE in read.values() and set(read.values()) <= {Unavailable.GONE, Unavailable.ABSENT}:
            return None
        present = {knob: value for knob, value in read.items() if not isinstance(value, Unavailable)}
        if present.get(Knob.CPU_IDLE) == 1:
            present.pop(Knob.CPU_SHARES, None)
        return present

    def _newer(self, settled: Settled, groups: dict[CgroupPath, GroupReading]) -> dict[CgroupPath, GroupReading]:
        """Return new readings of cgroups to write whose values or memory usage have changed since the observation."""
        newer = {}
        for path in {write.path for write in settled.writes}:
            knobs = {write.knob for write in settled.writes if write.path == path}
            fresh, before = self._knobs(path, knobs), groups[path].knobs
            looked = {*knobs, Knob.CPU_IDLE}
            other = fresh is not None and any(fresh.get(knob) != before.get(knob) for knob in looked)
            if fresh is not None and (other or Knob.MEMORY_LIMIT in knobs):
                other_knobs = {k: v for k, v in before.items() if k not in looked}
                memory = (Knob.MEMORY_LIMIT in knobs and self._hierarchy.memory_use(path)) or groups[path].memory
                newer[path] = replace(groups[path], memory=memory, knobs={**other_knobs, **fresh})
        return newer

    def _read_again(self, first: _Pass, groups: dict[CgroupPath, GroupReading]) -> dict[CgroupPath, GroupReading]:
        """Return fresh readings of written and refused cgroups, and of all above and below the refused ones."""
        knobs = {write.knob for write, _ in first.refused} | {Knob.CPU_QUOTA, Knob.CPU_BURST}
        refused = {write.path for write, _ in first.refused}
        paths = {path for path, _ in first.settled} | refused
        for path in refused:
            paths |= {above for above in ancestors(path) if above in groups}
            paths |= set(self._hierarchy.paths(depth=3, below=path))
        knobs |= {knob for _, knob in first.settled}
        readings = {}
        for path in sorted(paths - first.gone):
            before = groups.get(path, GroupReading(path, Level.CONTAINER))
            fresh = self._knobs(path, knobs)
            if fresh is not None:
                other_knobs = {k: v for k, v in before.knobs.items() if k not in knobs}
                readings[path] = replace(before, knobs={**other_knobs, **fresh})
        return readings

    # --- writing -----------------------------------------------------------------------------------------------------
    def _carry_out(self, settled: Settled) -> _Pass:
        """Save the notes, write in order, and delete the notes of restored values and of removed cgroups."""
        writing = _Pass()
        writes = settled.writes
        if self.denied and self._monotonic() < self._denied_until:
            return writing
        try:
            self._journal.save(settled.notes)
        except StoreError as full:
            allowed = []
            for write in writes:  # on disk: what restores a value, and what the note lists the value of
                note = self._journal.notes.get(write.place)
                if note is not None and (write.restores or write.value in note.written):
                    allowed.append(write)
                else:
                    writing.done.append(_answer(write, WriteOutcome.NOT_NOTED, message=full.message))
            writes = tuple(allowed)
        self.denied = ""
        for write in writes:
            if self.denied or write.path in writing.gone:
                continue
            failed = self._failed.get(write.place)
            if failed is None or failed.value != write.value or self._monotonic() >= failed.not_before:
                self._put(write, writing)
        notes = self._journal.notes
        done = {place for place in notes if place in writing.restored or place[0] in writing.gone}
        for place in done:
            self._written.discard(place)
            self._drifts.pop(place, None)
        for path in writing.gone:
            self._hierarchy.forget(path)
        with contextlib.suppress(StoreError):  # a note too many is harmless: next time it is found given back
            self._journal.save({place: note for place, note in notes.items() if place not in done})
        return writing

    def _remember(self, writing: _Pass) -> list[Done]:
        """Return the refused writes, whose next try is delayed; forget the state of knobs without a note."""
        now, notes, failures = self._monotonic(), self._journal.notes, []
        failed = {p: f for p, f in self._failed.items() if p in notes and p not in writing.settled}
        for write, refused in writing.refused:
            before = failed.get(write.place)
            again = before is not None and before.value == write.value
            delay = min(max(2 * before.delay_seconds, 2.0), TOLD_SECONDS) if before and again else 0.0
            failed[write.place] = _RefusedValue(write.value, now + delay, delay)
            outcome, why = WriteOutcome.FAILED, f"the kernel refuses the value: {os.strerror(refused)}"
            if refused == errno.ENODEV and write.knob in BLOCK_DEVICES:
                outcome, why = WriteOutcome.UNSUPPORTED, f"no such device: {write.value}"
            failures.append(_answer(write, outcome, refused, why))
        self._failed = failed
        self._written &= notes.keys()
        self._drifts = {place: times for place, times in self._drifts.items() if place in notes}
        return failures

    def _put(self, write: KnobWrite, writing: _Pass) -> None:
        writing.tried.add(write.place)
        refused = self._hierarchy.write_knob(write.path, write.knob, write.value, write.present)
        other = self._cpus_instead(write, refused)
        if other:
            write = replace(write, value=other)
            refused = self._hierarchy.write_knob(write.path, write.knob, write.value)
        if refused == 0:
            if not write.on_the_way:
                reading = self._hierarchy.read_knob(write.path, write.knob)
                if reading is Unavailable.GONE:
                    writing.gone.add(write.path)
                    writing.done.append(_answer(write, WriteOutcome.GONE))
                    return
                value = None if isinstance(reading, Unavailable) else reading
                if value is None or not same(write.knob, value, write.value, self._hierarchy.dialect):
                    failed = _answer(write, WriteOutcome.FAILED, message=f"the value read back is {value}")
                    writing.done.append(replace(failed, found=value))
                    return
                writing.settled.add(write.place)
                if write.restores:
                    writing.restored.add(write.place)
                writing.done.append(replace(self._success(write), found=value))
        elif refused is Unavailable.GONE:
            writing.gone.add(write.path)
            writing.done.append(_answer(write, WriteOutcome.GONE))
        elif refused == errno.ENOENT:
            writing.done.append(_answer(write, WriteOutcome.UNSUPPORTED, refused, "the cgroup lacks the setting"))
        elif refused not in _DENIED or (refused == errno.EACCES and write.knob in SETS):
            if not write.on_the_way:
                writing.refused.append((write, refused))
        else:
            self.denied = f"{write.path}: {write.knob} cannot be written: {os.strerror(refused)}"
            self._denied_until = self._monotonic() + DENIED_SECONDS
            writing.done.append(_answer(write, WriteOutcome.DENIED, refused, self.denied))

    def _cpus_instead(self, write: KnobWrite, refused: WriteAnswer) -> str:
        """Return an equivalent CPU list that the kernel accepts in place of the refused one; "" if there is none."""
        if write.knob is not Knob.CPUSET_CPUS or not refused:
            return ""
        if write.value == "":  # v2: a list cannot be cleared while tasks run; all CPUs come to the same
            return self._hierarchy.usable_cpus() if refused == errno.ENOSPC else ""
        if not write.restores or refused not in (errno.EINVAL, errno.ERANGE):
            return ""
        usable = str(fit_cpu_list(write.value, self._hierarchy.usable_cpus()))  # without CPUs that have gone since
        return usable if usable != write.value else ""

    def _success(self, write: KnobWrite) -> Done:
        if write.restores:
            return _answer(write, WriteOutcome.RESTORED)
        # How often another party changed this recently; a value that we never wrote does not count as drift.
        now = self._monotonic()
        times = self._drifts.setdefault(write.place, deque(maxlen=100))
        if write.drifted and write.place in self._written:
            times.append(now)
        while times and times[0] < now - TOLD_SECONDS:
            times.popleft()
        self._written.add(write.place)
        drifts = len(times) if write.drifted else 0
        if drifts >= CONFLICT_DRIFTS:
            message = f"another program keeps writing {write.present}: {drifts} times within {TOLD_SECONDS:.0f} s"
            return _answer(write, WriteOutcome.CONFLICT, message=message)
        return _answer(write, WriteOutcome.WRITTEN, message=f"another program wrote {write.present}" if drifts else "")

    # --- telling -----------------------------------------------------------------------------------------------------
    def _mark_repeated(self, done: Iterable[Done]) -> list[Done]:
        """Mark repetitions of results reported within the last minute."""
        now = self._monotonic()
        answers = []
        for result in done:
            if result.outcome in (WriteOutcome.WRITTEN, WriteOutcome.RESTORED):
                answers.append(result)
                continue
            key = (result.place, result.outcome)
            about: object = result.errno if result.outcome is WriteOutcome.CONFLICT else (result.value, result.errno)
            before = self._told.get(key)
            repeated = before is not None and before[0] == about and now - before[1] < TOLD_SECONDS
            if not repeated:
                self._told[key] = (about, now)
            answers.append(replace(result, repeated=repeated))
        self._told = {key: entry for key, entry in self._told.items() if now - entry[1] < TOLD_SECONDS}
        return answers


def _answer(write: KnobWrite, outcome: WriteOutcome, refused: int = 0, message: str = "") -> Done:
    return Done.of(write, outcome, before=write.present, errno=refused, message=message)
