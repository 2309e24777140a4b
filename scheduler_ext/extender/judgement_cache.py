"""A cache of the load rules' results for every node, by kind of pod.

The pods of a workload are one kind to the rules, and only a few nodes change between two of them. For the second pod of
a kind all nodes are checked. From then on only changed nodes are checked again, by the same functions, and only once a
call names a changed node; then all changed nodes are checked together, which costs little more than one. Returned
arrays are copies. Not thread-safe.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotenant.scheduler_ext.arrays import Flags, Floats, Rows
from cotenant.scheduler_ext.extender.columns import SnapshotColumn
from cotenant.scheduler_ext.extender.judgement import Code, NodeVerdicts
from cotenant.scheduler_ext.extender.load import load_rules
from cotenant.scheduler_ext.extender.load.load_rules import PodKind
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot

KINDS: Final = 32  # kinds whose opinions are kept; one takes 34 bytes a node
REMEMBERED: Final = 256  # kinds of which it is remembered that one pod came
MARGIN_SECONDS: Final = 0.001  # so long before a report expires nothing is taken from memory: sums of times are rounded


@dataclass(slots=True)
class Opinion:
    """The load rules' results for all nodes and one kind of pod, valid from `since` to `until` (Unix time).

    They are as of the snapshot's step `steps`. `changed` are flags, (nodes,), of nodes that changed since they were
    checked; `stale` is true if there are any.
    """

    names: tuple[str, ...]
    first_slot: int
    steps: int
    since: float
    until: float
    verdicts: NodeVerdicts
    points: Floats
    standings: Floats
    changed: Flags
    stale: bool = False

    def follow(self, snapshot: NodeSnapshot, now_seconds: float) -> bool:
        """Set `changed` of the rows that changed since the last call; return False if all must be checked again."""
        if self.names is not snapshot.names or self.first_slot != snapshot.first_slot:
            return False
        if not self.since <= now_seconds < self.until - MARGIN_SECONDS:
            return False
        if self.steps == snapshot.steps:
            return True
        missed = snapshot.changed_since(self.steps)
        if missed is None:
            return False
        self.changed[missed], self.steps = True, snapshot.steps
        self.stale |= len(missed) > 0
        return True

    def doubtful(self, rows: Rows) -> bool:
        """Return whether any of these rows may have changed since it was checked."""
        return self.stale and bool(self.changed[rows].any())


class Opinions:
    """A cache of the load rules' results for all nodes, by kind of pod."""

    def __init__(self, settings: ExtenderSettings) -> None:
        """Create an empty cache."""
        self._settings = settings
        self._kept: OrderedDict[PodKind, Opinion] = OrderedDict()
        self._came: OrderedDict[PodKind, str] = OrderedDict()
        self._last: tuple[NodeSnapshot | None, NewPod | None, float, Opinion | None] = (None, None, 0.0, None)
        """The last lookup and its result: one call looks it up more than once."""

    def verdicts_of(self, snapshot: NodeSnapshot, pod: NewPod, rows: Rows, now_seconds: float) -> NodeVerdicts:
        """Return a copy of the load rules' results for each row, (n,), from the cache if it has the pod's kind.

        `rows` are row numbers of the snapshot; -1 is an unknown node, which passes.
        """
        opinion = self._opinion(snapshot, pod, rows, now_seconds)
        if opinion is None:
            verdicts = load_rules.check_load(snapshot, rows, pod, now_seconds, self._settings)
        else:
            all_ = opinion.verdicts
            verdicts = NodeVerdicts(all_.codes[rows], all_.percent[rows], all_.slot[rows])
        verdicts.codes[rows < 0] = Code.PASS
        return verdicts

    def points(self, snapshot: NodeSnapshot, pod: NewPod, rows: Rows, now_seconds: float) -> Floats:
        """Return the score of each row, (n,), 0 to 100, higher is better; 0 for row -1 (an unknown node)."""
        opinion = self._opinion(snapshot, pod, rows, now_seconds)
        if opinion is None:
            values = load_rules.points(snapshot, rows, pod, now_seconds, self._settings)
        else:
            values = opinion.points[rows]
        values[rows < 0] = 0.0
        return values

    def standings(self, snapshot: NodeSnapshot, pod: NewPod, rows: Rows, now_seconds: float) -> Floats:
        """Return the scores of `points`, (n,), but NaN for nodes without reported usage and for row -1."""
        opinion = self._opinion(snapshot, pod, rows, now_seconds)
        if opinion is None:
            points = load_rules.points(snapshot, rows, pod, now_seconds, self._settings)
            values = _of_reporting(snapshot, rows, points)
        else:
            values = opinion.standings[rows]
        values[rows < 0] = np.nan
        return values

    def _opinion(self, snapshot: NodeSnapshot, pod: NewPod, rows: Rows, now_seconds: float) -> Opinion | None:
        """Return results up to date for these rows; None if few rows are named and the pod is the first of its kind."""
        last_snapshot, last_pod, last_seconds, opinion = self._last
        same = last_snapshot is snapshot and last_pod is pod and last_seconds == now_seconds
        if same and opinion is not None and not opinion.doubtful(rows):
            return opinion
        kind = load_rules.kind_of(snapshot, pod, now_seconds, self._settings)
        opinion = self._kept.get(kind)
        if opinion is None:
            first = self._came.setdefault(kind, pod.identity.uid)  # the first pod of this kind
            if len(self._came) > REMEMBERED:
                self._came.popitem(last=False)
            if first == pod.identity.uid and 2 * len(rows) < len(snapshot.names):
                return None
        if opinion is None or not opinion.follow(snapshot, now_seconds):
            opinion = self._kept[kind] = self._of_all(snapshot, pod, now_seconds)
        elif opinion.doubtful(rows):
            due = np.flatnonzero(opinion.changed)
            if 2 * len(due) > len(snapshot.names):
                opinion = self._kept[kind] = self._of_all(snapshot, pod, now_seconds)
            else:
                # Judge all that changed anew.
                opinion.verdicts.put(due, load_rules.check_load(snapshot, due, pod, now_seconds, self._settings))
                points = load_rules.points(snapshot, due, pod, now_seconds, self._settings)
                opinion.points[due], opinion.standings[due] = points, _of_reporting(snapshot, due, points)
                opinion.until = min(opinion.until, self._same_until(snapshot, due, now_seconds))
                opinion.changed[due], opinion.stale, opinion.since = False, False, now_seconds
        self._last = (snapshot, pod, now_seconds, opinion)
        self._kept.move_to_end(kind)
        if len(self._kept) > KINDS:
            self._kept.popitem(last=False)
        return opinion

    def _of_all(self, snapshot: NodeSnapshot, pod: NewPod, now_seconds: float) -> Opinion:
        about = (pod, now_seconds, self._settings)
        points = load_rules.points(snapshot, slice(None), *about)
        return Opinion(
            names=snapshot.names,
            first_slot=snapshot.first_slot,
            steps=snapshot.steps,
            since=now_seconds,
            until=self._same_until(snapshot, slice(None), now_seconds),
            verdicts=load_rules.check_load(snapshot, slice(None), *about),
            points=points,
            standings=_of_reporting(snapshot, slice(None), points),
            changed=np.zeros(len(snapshot.names), dtype=np.bool_),
        )

    def _same_until(self, snapshot: NodeSnapshot, part: Rows | slice, now_seconds: float) -> float:
        """Return the Unix time when the next of these nodes' reports expires, or infinity."""
        ends = snapshot.column(SnapshotColumn.UPDATED)[part] + self._settings.load_aware.metric_expiration_seconds
        return float(np.min(ends, initial=np.inf, where=ends > now_seconds - MARGIN_SECONDS))


def _of_reporting(snapshot: NodeSnapshot, part: Rows | slice, points: Floats) -> Floats:
    """Return the scores of these nodes, NaN without reported usage."""
    return np.where(snapshot.column(SnapshotColumn.MEASURED)[part] > 0, points, np.nan)
