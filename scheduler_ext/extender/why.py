"""Why a pod is pending: how many nodes each rule refuses. Pure.

Two sources: the results of cotenant's rules for every node, and the message that kube-scheduler wrote into the pod's
PodScheduled condition. Fit by requests is evaluated here too, so that it works for a pod that does not exist yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from cotenant.base.allocation.allocator import HardwareClaim
from cotenant.base.allocation.cpu_allocator import CpuAllocator
from cotenant.base.allocation.device_allocator import DeviceAllocator
from cotenant.scheduler_ext.arrays import Flags
from cotenant.scheduler_ext.extender import decide
from cotenant.scheduler_ext.extender.columns import SnapshotColumn
from cotenant.scheduler_ext.extender.decide import Instant, Posture
from cotenant.scheduler_ext.extender.judgement import NodeVerdicts
from cotenant.scheduler_ext.extender.metric import BATCH_NAMES
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot

_HEAD: Final = re.compile(r"^(\d+)/(\d+) nodes are available: (.*?)(?:\. preemption: (.*))?\.?$", re.DOTALL)
_PART: Final = re.compile(r"(\d{1,9}) ((?:[^,.]|\.(?!\s)|,(?! \d+ ))+)")
BEST: Final = 3  # nodes that are named as the best places
FITTING: Final = {
    "cpu": (SnapshotColumn.ALLOCATABLE_CPU, SnapshotColumn.REQUESTED_CPU),
    "memory": (SnapshotColumn.ALLOCATABLE_MEMORY, SnapshotColumn.REQUESTED_MEMORY),
    BATCH_NAMES[0]: (SnapshotColumn.BATCH_OFFERED_CPU, SnapshotColumn.BATCH_CPU),
    BATCH_NAMES[1]: (SnapshotColumn.BATCH_OFFERED_MEMORY, SnapshotColumn.BATCH_MEMORY),
}
"""Resources whose fit the snapshot knows: the allocatable and the requested column."""


class RuleRefusal(msgspec.Struct, frozen=True):
    """The number of nodes that refuse a pod by one rule."""

    rule: str
    reason: str
    nodes: int


class PodVerdict(msgspec.Struct, frozen=True):
    """The last answer to kube-scheduler about a pod."""

    pod: str
    at_seconds: float
    asked: int
    passed: int
    refusals: list[RuleRefusal]
    load_rules_off: str = ""
    yielded: str = ""  # the rule that had no say, for by its own estimates it would have refused every node; or ""

    @classmethod
    def of(
        cls, pod: NewPod, node_count: int, at_seconds: float, stance: Posture, refused: Mapping[tuple[str, str], int]
    ) -> PodVerdict:
        """Return the verdict of one answer about `node_count` nodes; `refused` is (rule, text) -> number of nodes."""
        passed = node_count - sum(refused.values())
        return cls(pod.key, at_seconds, node_count, passed, refusals_of(refused), stance.load_off, stance.yielded)


class Explanation(msgspec.Struct, frozen=True):
    """The obstacles to a pod's placement; `fits` is the number of nodes that no rule refuses.

    `refusals` count a node for each rule that refuses it. `scheduler` are the refusals that kube-scheduler reports.
    """

    pod: str
    nodes: int
    fits: int
    refusals: list[RuleRefusal]
    scheduler: list[RuleRefusal] = []
    notes: list[str] = []
    best: list[str] = []  # nodes that take it, best first


def refusals_of(counts: Mapping[tuple[str, str], int]) -> list[RuleRefusal]:
    """Return the numbers of refused nodes by (rule, text) as rows, in the given order."""
    return [RuleRefusal(rule, reason, number) for (rule, reason), number in counts.items()]


def explain_placement(
    snapshot: NodeSnapshot,
    pod: NewPod,
    now: Instant,
    settings: ExtenderSettings,
    others: Mapping[tuple[str, str], Sequence[bool]] | None = None,
    with_rules: bool = True,
) -> Explanation:
    """Return by which rules nodes refuse the pod: cotenant's rules, too few free resources, or `others`.

    `others` maps (rule, text) to whether it refuses each node. Without `with_rules` (no extender runs), cotenant's
    rules refuse and rank nothing.
    """
    rows = np.arange(len(snapshot.names), dtype=np.intp)
    fit = {
        ("resources", f"too little {name}"): missing for name, missing in insufficient_resources(snapshot, pod).items()
    }
    stock = fit | {key: np.asarray(refused, dtype=np.bool_) for key, refused in (others or {}).items()}
    free = np.ones(len(rows), dtype=np.bool_)
    for refused in stock.values():
        free &= ~refused
    verdicts, stance = NodeVerdicts.passing(len(rows)), Posture()
    rule_notes = ["no running extender was found, so its rules are not applied; --extender applies its rules anyway"]
    if with_rules:
        verdicts, stance = decide.check_nodes(snapshot, pod, rows, now, settings)
        fitting = np.flatnonzero(free)
        if 0 < len(fitting) < len(rows):  # checked alone, as in a question of the scheduler
            fitting_verdicts, stance = decide.check_nodes(snapshot, pod, fitting, now, settings)
            verdicts.put(fitting, fitting_verdicts)
        rule_notes = [f"load rules are inactive: {stance.load_off}"] if stance.load_off else []
        if stance.yielded:
            rule_notes.append(
                f"rule {stance.yielded} is ignored because its estimates would refuse every remaining node"
            )
    passing = np.flatnonzero(free & verdicts.passed)
    points = decide.points(snapshot, pod, passing, now, settings)
    order = passing[np.argsort(-points, kind="stable")][: BEST if with_rules else 0]
    counted = {key: int(refused.sum()) for key, refused in stock.items() if refused.any()}
    refusals = refusals_of(verdicts.counts()) + refusals_of(counted)
    notes = (*rule_notes, *_not_tried(pod, settings), pod.unread, snapshot.problem())
    return Explanation(
        pod=pod.key,
        nodes=len(rows),
        fits=len(passing),
        refusals=sorted(refusals, key=lambda refusal: (-refusal.nodes, refusal.rule, refusal.reason)),
        notes=[text for text in notes if text],
        best=[snapshot.names[row] for row in order.tolist()],
    )


def insufficient_resources(snapshot: NodeSnapshot, pod: NewPod) -> dict[str, Flags]:
    """Return resource -> mask (nodes,) of the nodes that have less of it free than the pod requests."""
    missing = {}
    for name, (capacity, taken) in FITTING.items():
        requested = pod.requests.get(name, 0)
        if requested:
            missing[name] = snapshot.column(capacity) - snapshot.column(taken) < requested
    return missing


def parse_scheduler_message(message: str) -> list[RuleRefusal]:
    """Return the refusals in a PodScheduled condition's message; any other text becomes one refusal of 0 nodes."""
    head = _HEAD.match(message.strip())
    if not head:
        return [RuleRefusal("scheduler", message.strip(), 0)] if message.strip() else []
    return [RuleRefusal("scheduler", reason.strip(" ."), int(number)) for number, reason in _PART.findall(head[3])]


def _not_tried(pod: NewPod, settings: ExtenderSettings) -> list[str]:
    """Return the hardware rules that the pod needs and that are off in these settings; the extender's may be on."""
    claim = HardwareClaim(pod.identity, pod.requests)
    rules = (("cpus", settings.cpus.on, CpuAllocator()), ("devices", settings.devices.on, DeviceAllocator()))
    return [
        f"rule {rule} was not applied: extender.{rule}.on is false in the settings of this command"
        for rule, on, allocator in rules
        if pod.wants_bind and not on and allocator.concerns(claim)
    ]
