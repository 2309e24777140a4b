"""What the rules about load say of every node for the kinds of pod that are asked about again and again.

Pods of a workload are one kind to the rules, and between two of them a few nodes changed. The second pod of a kind has
all nodes judged; from then on only nodes that changed are judged again, by the same functions, and only once one of
them is asked about: the scheduler asks about a part of the nodes, and seldom about those that it has just used. Then
all that changed are judged together: a few nodes cost what one costs. What is handed out are copies. For one thread.
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
    """The load rules' verdict on all nodes for one kind of pod, as of the snapshot of `names` and `steps`.

    since, until: Unix time between which it is valid. changed: nodes that have changed since they were checked,
    (nodes,); stale: whether there are any.
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
        """Note which rows changed since; False when more may have changed than those."""
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
        """Return whether any of these rows may have changed since its check; row -1 may be taken for the last row."""
        return self.stale and bool(self.changed[rows].any())


class Opinions:
    """The opinions that are kept."""

    def __init__(self, settings: ExtenderSettings) -> None:
        """Create an empty cache."""
        self._settings = settings
        self._kept: OrderedDict[PodKind, Opinion] = OrderedDict()
        self._came: OrderedDict[PodKind, str] = OrderedDict()
        self._last: tuple[NodeSnapshot | None, NewPod | None, float, Opinion | None] = (None, None, 0.0, None)
        """What was asked last, and the opinion of it: one question is looked up more than once."""

    def verdicts_of(self, snapshot: NodeSnapshot, pod: NewPod, rows: Rows, now_seconds: float) -> NodeVerdicts:
        """The load rules' judgement of each row, (n,), from the cache where the pod's kind is known; a copy.

        rows: rows of the snapshot; -1, a node that the snapshot does not have, passes.
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
        """Points of each row, (n,), 0 to 100, more is better; 0 for row -1, a node that the snapshot does not have."""
        opinion = self._opinion(snapshot, pod, rows, now_seconds)
        if opinion is None:
            values = load_rules.points(snapshot, rows, pod, now_seconds, self._settings)
        else:
            values = opinion.points[rows]
        values[rows < 0] = 0.0
        return values

    def standings(self, snapshot: NodeSnapshot, pod: NewPod, rows: Rows, now_seconds: float) -> Floats:
        """Return the points of each row, (n,), as `points` does, but NaN where no use is reported, and for row -1."""
        opinion = self._opinion(snapshot, pod, rows, now_seconds)
        if opinion is None:
            points = load_rules.points(snapshot, rows, pod, now_seconds, self._settings)
            values = _of_reporting(snapshot, rows, points)
        else:
            values = opinion.standings[rows]
        values[rows < 0] = np.nan
        return values

    def _opinion(self, snapshot: NodeSnapshot, pod: NewPod, rows: Rows, now_seconds: float) -> Opinion | None:
        """Up to date for these rows; None when they are cheaper: few, for the first pod of its kind."""
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
        """Unix time when the next report of these nodes expires, or infinity: opinions hold until then."""
        ends = snapshot.column(SnapshotColumn.UPDATED)[part] + self._settings.load_aware.metric_expiration_seconds
        return float(np.min(ends, initial=np.inf, where=ends > now_seconds - MARGIN_SECONDS))


def _of_reporting(snapshot: NodeSnapshot, part: Rows | slice, points: Floats) -> Floats:
    """The points of these nodes, NaN where no use is reported."""
    return np.where(snapshot.column(SnapshotColumn.MEASURED)[part] > 0, points, np.nan)
