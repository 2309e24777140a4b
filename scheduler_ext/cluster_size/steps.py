"""The way to a smaller cluster in dated steps: accept, wait, cordon, empty a node, let its autoscaler remove it. Pure.

A date is the earliest one that the settings allow: changes soak, steps of a cut wait for their cool-down, pods leave a
node a few at a time, one node after the other. A plan carries out no step; each step names who would.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.moments import seconds_of
from cotenant.base.text import agree, counted
from cotenant.scheduler_ext.cluster_size.autoscalers.model import NODEPOOL_LABEL, NodeAutoscalers, Obstacle
from cotenant.scheduler_ext.cluster_size.model import ClusterSize, RequestLevel, SizedCluster, SizedNode

UNNEEDED: Final = "scale-down-unneeded-time"
UNNEEDED_DEFAULT: Final = "10m"
THRESHOLD, THRESHOLD_DEFAULT = "scale-down-utilization-threshold", "0.5"
EMPTIED_BY: Final = "PodMigrationJobs, created by Empty on page Rebalance or by HighNodeLoad"
ACCEPTED_BY: Final = "a user who may apply changes: cotenant recs apply"
CORDONED_BY: Final = "by hand: kubectl cordon"
BY_HAND: Final = "manually: no autoscaler manages this node"


class StepAction(StrEnum):
    """The kinds of steps to a smaller cluster, in their order."""

    ACCEPT = "accept"
    WAIT = "wait"
    CORDON = "cordon"
    EMPTY = "empty"
    TAKE = "take"


@dataclass(frozen=True, slots=True)
class StepPace:
    """The pace of a plan by the settings: waiting times in seconds, and the number of pods evicted per round."""

    soak_seconds: float = 1_800.0
    cool_down_seconds: float = 86_400.0
    round_seconds: float = 120.0
    moves_a_round: int = 2


@dataclass(frozen=True, slots=True)
class ProposedChanges:
    """Numbers of containers with a recommended change, and of those whose change can be applied now (`ready`).

    `stopped` is the number of those that a guardrail stops, `most_steps` the number of steps of the longest reduction.
    """

    ready: int = 0
    containers: int = 0
    most_steps: int = 1
    stopped: int = 0


@dataclass(frozen=True, slots=True)
class SizeStep:
    """One step of a plan; `earliest_seconds` (Unix time) is None if a setting prevents the step; `node` may be ""."""

    turn: int
    earliest_seconds: int | None
    action: StepAction
    words: str
    by: str
    node: str = ""
    pods: int = 0


@dataclass(frozen=True, slots=True)
class Route:
    """The inputs of a plan of steps besides the computed size: nodes, autoscalers, obstacles, settings."""

    nodes: tuple[SizedNode, ...]
    autoscalers: NodeAutoscalers
    obstacles: tuple[Obstacle, ...]
    proposed: ProposedChanges
    pace: StepPace
    now_seconds: float


def plan_steps(size: ClusterSize, level: RequestLevel, route: Route) -> tuple[SizeStep, ...]:
    """Return the steps that remove the nodes of a level, in order; () if no node could be removed."""
    if not size.leaving:
        return ()
    proposed, pace, now = route.proposed, route.pace, int(route.now_seconds)
    start, steps = now, list[SizeStep]()
    if level is not RequestLevel.NOW and (proposed.ready or proposed.containers):
        ladder = 1 if level is RequestLevel.READY else max(proposed.most_steps, 1)
        count = proposed.ready if level is RequestLevel.READY else proposed.containers
        sentence = f"accept the recommendations of {counted(count, 'container')}"
        if level is RequestLevel.READY:
            sentence += ", as far as they are ready"
        elif proposed.stopped:
            sentence += f"; guardrails now stop the changes of {proposed.stopped:,} containers, which have no date"
        steps.append(SizeStep(0, now, StepAction.ACCEPT, sentence, ACCEPTED_BY))
        start = math.ceil(now + (ladder - 1) * pace.cool_down_seconds + pace.soak_seconds)
        cuts = "" if ladder == 1 else f"the {ladder} steps of the longest request cut are applied and "
        steps.append(SizeStep(0, start, StepAction.WAIT, f"wait until {cuts}the changes are verified", "cotenant"))
    steps += _node_steps(size, start, route)
    return tuple(replace(step, turn=turn) for turn, step in enumerate(steps, 1))


def _node_steps(size: ClusterSize, start: int, route: Route) -> Iterator[SizeStep]:
    """Yield the step that cordons all removable nodes, then two steps for each node."""
    if len(size.leaving) > 1:
        text = "cordon all removable nodes, so that no pod moves to one of them"
        yield SizeStep(0, start, StepAction.CORDON, text, CORDONED_BY)
    facts = {node.name: node for node in route.nodes}
    stays = {
        name: obstacle.setting
        for obstacle in reversed(route.obstacles)
        if obstacle.even_empty
        for name in obstacle.nodes or ()
    }
    at = start
    for node in size.leaving:
        pods = len(node.places)
        text = f"empty {node.name}: {counted(pods, 'pod')}"
        yield SizeStep(0, at, StepAction.EMPTY, text, EMPTIED_BY if pods else "nobody (node is empty)", node.name, pods)
        at = math.ceil(at + math.ceil(pods / max(route.pace.moves_a_round, 1)) * route.pace.round_seconds)
        labels = facts[node.name].facts.labels if node.name in facts else {}
        taker, delay = route.autoscalers.taker_of(labels), delay_seconds(labels.get(NODEPOOL_LABEL, ""), route)
        stopped = stays.get(node.name, "")
        date = None if stopped or delay is None else math.ceil(at + (delay if taker else 0))
        reason = f", once this setting no longer prevents the removal: {stopped}" if stopped and taker else ""
        yield SizeStep(0, date, StepAction.TAKE, f"{node.name} is removed{reason}", taker or BY_HAND, node.name)


def delay_seconds(pool: str, route: Route) -> float | None:
    """Return how many seconds an autoscaler keeps an empty node of `pool` ("": cluster-autoscaler); None if unknown."""
    own_pool = next((own for own in route.autoscalers.pools or () if own.name == pool), None)
    if pool and own_pool is None:
        return None
    text = (own_pool.consolidate_after or "0s") if own_pool else route.autoscalers.flag(UNNEEDED, UNNEEDED_DEFAULT)
    try:
        return seconds_of(text, "delay")
    except UsageError:
        return None


def autoscaler_sentences(state: SizedCluster, autoscalers: NodeAutoscalers) -> list[str]:
    """Return sentences on the nodes that autoscalers remove by themselves, and on settings that could not be read."""
    lines = []
    for pool in autoscalers.pools or ():
        count = sum(node.facts.labels.get(NODEPOOL_LABEL) == pool.name for node in state.nodes)
        which = "that are empty" if pool.policy == "WhenEmpty" else "that are empty or not needed"
        wait = pool.consolidate_after
        after = "" if wait in ("", "0s", "Never") else f", {wait} after their pods last changed"
        acts, which = ("no node", "") if wait == "Never" else ("nodes", f" {which}")
        lines.append(f"Karpenter removes {acts} of NodePool {pool.name} ({counted(count, 'node')}){which}{after}")
    if autoscalers.pod or autoscalers.status:
        threshold, after = autoscalers.flag(THRESHOLD, THRESHOLD_DEFAULT), autoscalers.flag(UNNEEDED, UNNEEDED_DEFAULT)
        source = "" if autoscalers.flags is not None else " (defaults: the flags could not be read)"
        lines.append(
            f"cluster-autoscaler removes a node whose pods request less than {threshold} of its capacity and fit on "
            f"other nodes, after {after}{source}"
        )
    if not lines:
        lines.append(
            "Neither Karpenter nor cluster-autoscaler was found: an emptied node stays until somebody deletes it"
        )
    return [*lines, *autoscalers.unread]


def steps_note(steps: Sequence[SizeStep]) -> str:
    """Return a note with the number of steps, and of those without a date; "" without steps."""
    open_ended = sum(step.earliest_seconds is None for step in steps)
    if not steps:
        return ""
    undated = f", of which {agree(open_ended, 'has', 'have')} no date yet" if open_ended else ""
    return f"{counted(len(steps), 'step')}{undated}; no step starts automatically"
