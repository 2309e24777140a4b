"""EDGE: writes what was settled, reads it back, and gives it back.

    applier = Applier(hierarchy, Journal(folder), dry_run=False)
    done = applier.apply([step.plan for step in steps], seen)      each tick
    observer.read(pods, applications, facts, fresh=applier.held)   the next one
    applier.give_back()                                            SIGTERM, or a policy that is too old

Nothing is touched whose original value is not on disk. At most one write a knob a tick, whoever else writes; what the
kernel refuses is looked at again and tried a second time in the same tick, then told. A refusal is an answer (`Done`),
never an exception; only running out of files is: `NodeUnreadable`, skip the tick.
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

from cotenant.model.errors import NodeUnreadable, StoreError
from enforcer.cgroupfs import Hierarchy, Lack
from enforcer.changes import Done, Note, Notes, Outcome, Place, Settled, Write
from enforcer.contract import CgroupPath, GroupReading, Knob, Level, MemoryUse, NodeReading, Observation, Plan, Value
from enforcer.journal import Journal
from enforcer.knobs import same
from enforcer.kubelet_values import lost_notes
from enforcer.ordering import SETS, ancestors, within
from enforcer.settle import Circumstances, settle

TOLD_SECONDS: Final = 60.0
"""The same is told again after this time."""
CONFLICT_DRIFTS: Final = 3
"""So many changes by somebody else within TOLD_SECONDS are a conflict."""
DENIED_SECONDS: Final = 30.0
"""Where writing is denied it is tried again after this time."""
_GONE: Final = (errno.ENODEV,)
_ORDER: Final = (errno.EINVAL, errno.EBUSY, errno.ENOSPC, errno.ERANGE)
_NOWHERE: Final = Observation(0.0, 0.0, NodeReading("", (), 0, 0))


@dataclass(frozen=True, slots=True)
class _Failure:
    """A value that the kernel refused in both tries of a tick; not tried again before (monotonic)."""

    value: Value
    not_before: float
    delay_seconds: float


@dataclass(slots=True)
class _Pass:
    """One pass over writes."""

    done: list[Done] = field(default_factory=list)
    refused: list[tuple[Write, int]] = field(default_factory=list)
    """To be tried again, with errno."""
    settled: set[Place] = field(default_factory=set)
    """Written or restored."""
    restored: set[Place] = field(default_factory=set)
    tried: set[Place] = field(default_factory=set)
    gone: set[CgroupPath] = field(default_factory=set)


class Applier:
    """The hand of the agent. One thread."""

    def __init__(
        self,
        hierarchy: Hierarchy,
        journal: Journal,
        dry_run: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is written yet. dry_run: answer what would be written, restore nothing."""
        self._hierarchy, self._journal, self._dry_run, self._monotonic = hierarchy, journal, dry_run, monotonic
        self._lost = journal.lost
        self._held: frozenset[Place] = frozenset()
        self._told: dict[tuple[Place, Outcome], tuple[object, float]] = {}
        self._drifts: dict[Place, deque[float]] = {}
        self._written: set[Place] = set()
        self._failed: dict[Place, _Failure] = {}
        self._denied_until = -float("inf")
        self.denied = ""
        """Why nothing can be written at the moment (permission, read-only mount), or ""."""

    @property
    def held(self) -> frozenset[Place]:
        """Knobs to look at in the next tick: those that carry our value, and those that were just written."""
        return self._held

    def apply(self, plans: Sequence[Plan], seen: Observation) -> list[Done]:
        """Make it so: settle, note, write, read back. Only changes are answered; an unchanged tick gives [].

        NodeUnreadable when no more files can be opened.
        """
        self._journal.beat()
        notes = self._known(seen)
        groups = seen.groups()
        strays, gone = self._strays(notes, groups)
        notes = {place: note for place, note in notes.items() if note.path not in gone}
        around = Circumstances(self._hierarchy.dialect, strays)
        settled = settle(plans, seen, notes, self._hierarchy.dialect, around)
        newer = self._newer(settled, {**groups, **strays})
        first_notes = any(not w.restores and (w.drifted or w.place not in notes) for w in settled.writes)
        if newer or first_notes:  # seldom: somebody wrote since the reading, or an original is to be noted
            others = lost_notes(seen) if first_notes else {}
            around = replace(around, strays={**strays, **newer}, not_kubelets=others)
            settled = settle(plans, seen, notes, self._hierarchy.dialect, around)
        if self._dry_run:
            return self._tell([*settled.refused, *(_answer(w, Outcome.WOULD_WRITE) for w in _final(settled.writes))])
        first = self._carry_out(settled)
        if first.refused and not self.denied:
            fresh = {**around.strays, **self._looked_again(first, {**groups, **around.strays})}
            corrected = settle(plans, seen, self._journal.notes, self._hierarchy.dialect, replace(around, strays=fresh))
            second = self._carry_out(corrected)
            first.done += second.done
            first.refused = second.refused
            first.tried |= second.tried
        self._remember(first)
        self._held = frozenset({*settled.held, *first.tried})
        return self._tell([*settled.refused, *first.done, *(self._failure(w, e) for w, e in first.refused)])

    def give_back(self) -> list[Done]:
        """Everything to what stood there before; needs no observation. What cannot be given back stays noted."""
        if self._dry_run:
            return []
        try:
            return self.apply((), _NOWHERE)
        except NodeUnreadable:  # files ran out; those that were held open are closed now, and no tick follows
            return self.apply((), _NOWHERE)

    # --- what is known beforehand ------------------------------------------------------------------------------------
    def _known(self, seen: Observation) -> Notes:
        """The journal's notes; once, when they were lost, those that can be told from what stands there."""
        if self._dry_run or not self._lost or seen.kubepods is None:
            return self._journal.notes
        self._lost = False
        found = {**lost_notes(seen), **self._journal.notes}
        with contextlib.suppress(StoreError):  # told when they are saved before the writes
            self._journal.begin(found)
        return found

    def _strays(
        self, notes: Notes, groups: dict[CgroupPath, GroupReading]
    ) -> tuple[dict[CgroupPath, GroupReading], set[CgroupPath]]:
        """Noted cgroups that were not seen, read now; and those that are gone."""
        found: dict[CgroupPath, GroupReading] = {}
        gone = set()
        for path in {path for path, _ in notes} - groups.keys():
            mine = [note for place, note in notes.items() if place[0] == path]
            knobs = self._knobs(path, {note.knob for note in mine})
            if knobs is None:
                gone.add(path)
            else:
                found[path] = GroupReading(path, mine[0].level, memory=self._memory(path, knobs), knobs=knobs)
        return found, gone

    def _knobs(self, path: CgroupPath, knobs: Iterable[Knob]) -> dict[Knob, Value] | None:
        """Present values; None when the cgroup is gone. Idle ones show no shares."""
        read = {knob: self._hierarchy.read_knob(path, knob) for knob in {*knobs, Knob.CPU_IDLE}}
        if all(value in (Lack.GONE, Lack.ABSENT) for value in read.values()) and Lack.GONE in read.values():
            return None
        found = {knob: value for knob, value in read.items() if not isinstance(value, Lack)}
        if found.get(Knob.CPU_IDLE) == 1:
            found.pop(Knob.CPU_SHARES, None)
        return found

    def _memory(self, path: CgroupPath, knobs: Iterable[Knob]) -> MemoryUse | None:
        """What is used now, where a knob depends on it; None = not known."""
        return self._hierarchy.memory_use(path) if Knob.MEMORY_LIMIT in knobs else None

    def _newer(self, settled: Settled, groups: dict[CgroupPath, GroupReading]) -> dict[CgroupPath, GroupReading]:
        """Cgroups whose knobs that are to be written, or memory in use, are not what they were when they were read."""
        found = {}
        for path in {write.path for write in settled.writes}:
            knobs = {write.knob for write in settled.writes if write.path == path}
            fresh, known = self._knobs(path, knobs), groups[path].knobs
            looked = {*knobs, Knob.CPU_IDLE}
            other = fresh is not None and any(fresh.get(knob) != known.get(knob) for knob in looked)
            if fresh is not None and (other or Knob.MEMORY_LIMIT in knobs):
                kept = {k: v for k, v in known.items() if k not in looked}
                memory = self._memory(path, knobs) or groups[path].memory
                found[path] = replace(groups[path], memory=memory, knobs={**kept, **fresh})
        return found

    def _looked_again(self, first: _Pass, groups: dict[CgroupPath, GroupReading]) -> dict[CgroupPath, GroupReading]:
        """Fresh readings of what was written and refused, of the cgroups above, and of all below, named or not."""
        knobs = {write.knob for write, _ in first.refused} | {Knob.CPU_QUOTA, Knob.CPU_BURST}
        refused = {write.path for write, _ in first.refused}
        paths = (
            {path for path, _ in first.settled} | refused | {a for p in refused for a in ancestors(p) if a in groups}
        )
        for path in refused:
            paths |= set(self._below(path))
        knobs |= {knob for _, knob in first.settled}
        found = {}
        for path in sorted(paths - first.gone):
            known = groups.get(path, GroupReading(path, Level.CONTAINER))
            fresh = self._knobs(path, knobs)
            if fresh is not None:
                kept = {k: v for k, v in known.knobs.items() if k not in knobs}
                found[path] = replace(known, knobs={**kept, **fresh})
        return found

    def _below(self, path: CgroupPath, depth: int = 3) -> Iterable[CgroupPath]:
        names = self._hierarchy.children(path, "cpu") if depth else Lack.GONE
        for name in names if not isinstance(names, Lack) else ():
            yield f"{path}/{name}"
            yield from self._below(f"{path}/{name}", depth - 1)

    # --- writing -----------------------------------------------------------------------------------------------------
    def _carry_out(self, settled: Settled) -> _Pass:
        """Save the notes, write in order, forget what was given back."""
        one = _Pass()
        writes = settled.writes
        if self.denied and self._monotonic() < self._denied_until:
            return one
        try:
            self._journal.save(settled.notes)
        except StoreError as full:
            allowed = [w for w in writes if self._noted(w)]
            one.done += [_answer(w, Outcome.NOT_NOTED, message=full.message) for w in writes if w not in allowed]
            writes = tuple(allowed)
        self.denied = ""
        for write in writes:
            if not self.denied and write.path not in one.gone and not self._waits(write):
                self._put(write, one)
        self._forget(one)
        return one

    def _remember(self, one: _Pass) -> None:
        """Refused values wait longer each time; nothing is remembered of what is not noted any more."""
        now, notes = self._monotonic(), self._journal.notes
        failed = {p: f for p, f in self._failed.items() if p in notes and p not in one.settled}
        for write, _ in one.refused:
            before = failed.get(write.place)
            again = before is not None and before.value == write.value
            delay = min(max(2 * before.delay_seconds, 2.0), TOLD_SECONDS) if before and again else 0.0
            failed[write.place] = _Failure(write.value, now + delay, delay)
        self._failed = failed
        self._written &= notes.keys()
        self._drifts = {place: times for place, times in self._drifts.items() if place in notes}

    def _waits(self, write: Write) -> bool:
        failure = self._failed.get(write.place)
        return failure is not None and failure.value == write.value and self._monotonic() < failure.not_before

    def _noted(self, write: Write) -> bool:
        """Whether the journal on disk already knows that this value may stand there."""
        note = self._journal.notes.get(write.place)
        return note is not None and (write.restores or write.value in note.written)

    def _put(self, write: Write, one: _Pass) -> None:
        one.tried.add(write.place)
        refused = self._hierarchy.write_knob(write.path, write.knob, write.value, write.present)
        other = self._cpus_instead(write, refused)
        if other:
            write = replace(write, value=other)
            refused = self._hierarchy.write_knob(write.path, write.knob, write.value)
        if refused == 0:
            if not write.on_the_way:
                self._read_back(write, one)
        elif refused in _GONE:
            one.gone.add(write.path)
            one.done.append(_answer(write, Outcome.GONE))
        elif refused == errno.ENOENT:
            one.done.append(_answer(write, Outcome.UNSUPPORTED, refused, "this cgroup has no such file"))
        elif refused in _ORDER or (refused == errno.EACCES and write.knob in SETS):
            if not write.on_the_way:
                one.refused.append((write, refused))
        else:
            self.denied = f"{write.path}: {write.knob} cannot be written: {os.strerror(refused)}"
            self._denied_until = self._monotonic() + DENIED_SECONDS
            one.done.append(_answer(write, Outcome.DENIED, refused, self.denied))

    def _cpus_instead(self, write: Write, refused: int) -> str:
        """The list that comes to the same as one that the kernel refuses, "" = none."""
        if write.knob is not Knob.CPUSET_CPUS or not refused:
            return ""
        if write.value == "":  # v2: a list cannot be cleared while tasks run; all CPUs come to the same
            return self._hierarchy.usable_cpus() if refused == errno.ENOSPC else ""
        if not write.restores or refused not in (errno.EINVAL, errno.ERANGE):
            return ""
        there = str(within(write.value, self._hierarchy.usable_cpus()))  # without CPUs that have gone since
        return there if there != write.value else ""

    def _read_back(self, write: Write, one: _Pass) -> None:
        found = self._hierarchy.read_knob(write.path, write.knob)
        if found is Lack.GONE:
            one.gone.add(write.path)
            one.done.append(_answer(write, Outcome.GONE))
            return
        value = None if isinstance(found, Lack) else found
        if value is None or not same(write.knob, value, write.value, self._hierarchy.dialect):
            one.done.append(replace(_answer(write, Outcome.FAILED, message=f"reads {value} afterwards"), found=value))
            return
        one.settled.add(write.place)
        if write.restores:
            one.restored.add(write.place)
        one.done.append(replace(self._success(write), found=value))

    def _success(self, write: Write) -> Done:
        if write.restores:
            return _answer(write, Outcome.RESTORED)
        drifts = self._drift(write)
        if drifts >= CONFLICT_DRIFTS:
            told = f"somebody else keeps setting {write.present}: {drifts} times within {TOLD_SECONDS:.0f} s"
            return _answer(write, Outcome.CONFLICT, message=told)
        return _answer(write, Outcome.WRITTEN, message=f"somebody else had set {write.present}" if drifts else "")

    def _drift(self, write: Write) -> int:
        """How often somebody else changed this lately; a value that we never got written is no drift."""
        now = self._monotonic()
        times = self._drifts.setdefault(write.place, deque(maxlen=100))
        if write.drifted and write.place in self._written:
            times.append(now)
        while times and times[0] < now - TOLD_SECONDS:
            times.popleft()
        self._written.add(write.place)
        return len(times) if write.drifted else 0

    def _forget(self, one: _Pass) -> None:
        """Notes of what was given back or is gone."""
        done = {p for p in self._journal.notes if p in one.restored or p[0] in one.gone}
        for place in done:
            self._written.discard(place)
            self._drifts.pop(place, None)
        for path in one.gone:
            self._hierarchy.forget(path)
        kept: dict[Place, Note] = {place: note for place, note in self._journal.notes.items() if place not in done}
        try:
            self._journal.save(kept)
        except StoreError:
            return  # a note too many is harmless: next time it is found given back

    def _failure(self, write: Write, refused: int) -> Done:
        return _answer(write, Outcome.FAILED, refused, f"the kernel refuses it: {os.strerror(refused)}")

    # --- telling -----------------------------------------------------------------------------------------------------
    def _tell(self, done: Iterable[Done]) -> list[Done]:
        """Mark what was told within the last minute."""
        now = self._monotonic()
        answers = []
        for one in done:
            if one.outcome in _ACTS:
                answers.append(one)
                continue
            key = ((one.path, one.knob), one.outcome)
            about: object = one.errno if one.outcome is Outcome.CONFLICT else (one.value, one.errno)
            before = self._told.get(key)
            repeated = before is not None and before[0] == about and now - before[1] < TOLD_SECONDS
            if not repeated:
                self._told[key] = (about, now)
            answers.append(replace(one, repeated=repeated))
        self._told = {key: told for key, told in self._told.items() if now - told[1] < TOLD_SECONDS}
        return answers


_ACTS: Final = (Outcome.WRITTEN, Outcome.RESTORED)


def _final(writes: Iterable[Write]) -> list[Write]:
    return [write for write in writes if not write.on_the_way]


def _answer(write: Write, outcome: Outcome, refused: int = 0, message: str = "") -> Done:
    return Done(
        path=write.path,
        knob=write.knob,
        level=write.level,
        value=write.value,
        outcome=outcome,
        strategy=write.strategy,
        why=write.why,
        before=write.present,
        errno=refused,
        message=message,
    )
