"""The story of an incident in order of time: what the operator saw, what cotenant did, what it cost. Pure.

The cluster's part compares a simulated run with the incident to the same run without it; flash crowd and memory leak
also have a node second by second, because suppression and eviction act within seconds. What each part of cotenant does
while something is unavailable is the product's own behaviour (`DID`); alerts are those of deploy/monitoring (`ALERTS`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Final

import numpy as np

from cotenant.base.progress import Progress
from cotenant.base.usage.extremes import extremes
from cotenant.enforcer.model.enforcement import REASON_SENTENCES, AgentAction
from cotenant.experiment.interference import Interference
from cotenant.experiment.loop import run_all_settings
from cotenant.experiment.outcome import STEP_SECONDS, Incident, SharingOutcome
from cotenant.experiment.world import World
from cotenant_lab.simulation.nodes.node_incidents import (
    CORES,
    CROWD_FACTOR,
    EVICTING,
    ON_A_NODE,
    SLOWED,
    NodeReplay,
    replay_incident,
)

NORMAL_SECONDS: Final = 600.0
"""After a wrong forecast everything is normal again within so long."""
TITLES: Final = {
    Incident.FLASH_CROWD: "A flash crowd: the forecast is wrong",
    Incident.PROMETHEUS_AWAY: "Prometheus is away for an hour at the peak",
    Incident.MEMORY_LEAK: "A service leaks memory",
    Incident.MANAGER_DEAD: "The manager is dead over night",
    Incident.NODE_FAILURE: "A tenth of the nodes fails at the peak",
}
DID: Final = {
    Incident.FLASH_CROWD: (
        "The manager's next run computes batch-cpu from the measured usage; until then node agents throttle "
        "best-effort pods."
    ),
    Incident.PROMETHEUS_AWAY: (
        "The pipeline's run fails and is retried; the last run's forecasts stay in use. Node agents report usage to "
        "the API server themselves, so that batch-cpu is still computed from the nodes' present usage."
    ),
    Incident.MEMORY_LEAK: "The node agent evicts batch pods above the memory threshold; services are not evicted.",
    Incident.MANAGER_DEAD: (
        "batch-cpu stays as it was last written. Node agents read their policy from the API server: best-"
        "effort pods still give way to services."
    ),
    Incident.NODE_FAILURE: (
        "Kubernetes starts the pods of these nodes on the others, whose batch-cpu follows the services' usage there; "
        "batch jobs of the failed nodes wait and start again."
    ),
}
UNSEEN: Final = {
    Incident.FLASH_CROWD: "No alert of cotenant; the page Enforcement shows what was throttled or evicted, and why.",
    Incident.PROMETHEUS_AWAY: "No alert: Prometheus itself is down. The log says `pipeline gave no results`.",
    Incident.NODE_FAILURE: "No alert of cotenant: Kubernetes says that the nodes are not ready.",
    Incident.MEMORY_LEAK: "No alert of cotenant below 50 evictions an hour; the page Enforcement names the pods.",
}
ALERTS: Final = {Incident.MANAGER_DEAD: ("CotenantManagerAbsent", 15)}
"""Alert of deploy/monitoring/rules.yaml and the minutes after which it fires."""


UNTOLD: Final = frozenset({"ValueGivenBack", "BatchLimits", "BestEffortYields"})
"""What follows by itself from a pod that comes or goes."""


class Witness(StrEnum):
    """The subject of a line of the time line: what happened, what the operator saw, or what cotenant did."""

    WORLD = "happened"
    OPERATOR = "operator"
    COTENANT = "cotenant"


@dataclass(frozen=True, slots=True)
class IncidentLine:
    """One line of the time line; `seconds` since the incident began."""

    seconds: float
    witness: Witness
    text: str


@dataclass(frozen=True, slots=True)
class IncidentCost:
    """One figure of an incident's cost, `value` in `unit`; `at_most` is the goal, None without a goal."""

    what: str
    value: float
    unit: str
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        """True if the goal is met; None without a goal."""
        return None if self.at_most is None else self.value <= self.at_most


@dataclass(frozen=True, slots=True)
class IncidentStory:
    """One incident: its time line, in order, and its costs."""

    incident: Incident
    lines: tuple[IncidentLine, ...]
    costs: tuple[IncidentCost, ...]

    @property
    def title(self) -> str:
        """Title of the incident for people."""
        return TITLES[self.incident]


@dataclass(frozen=True, slots=True, eq=False)
class ClusterRuns:
    """Runs of a cluster with the incident (`hit`) and without it (`spared`); it lasts for the steps [first, last)."""

    hit: SharingOutcome
    spared: SharingOutcome
    first: int
    last: int

    @property
    def offered_before_cores(self) -> float:
        """CPU that nodes offered to batch in the step before the incident, in cores."""
        return float(self.hit.timeline.offered_cores[max(self.first - 1, 0)])


def story_of(hit: SharingOutcome, cluster: World, spared: World, progress: Progress) -> IncidentStory:
    """Return the story of the incident in the world of the run `hit`.

    The same run in the world without the incident (`spared`) is simulated for the comparison.
    """
    incident = cluster.effect.incident
    assert incident is not None
    without = run_all_settings(spared, {hit.sharing: (hit.knob,)}, Interference(), progress)[0]
    first, last = (slot - cluster.first_slot for slot in (cluster.effect.first, cluster.effect.last))
    begin = float(hit.timeline.time_seconds[first])
    node = replay_incident(incident, Interference(), begin) if incident in ON_A_NODE else None
    return build_story(incident, ClusterRuns(hit, without, first, last), node)


def build_story(incident: Incident, runs: ClusterRuns, node: NodeReplay | None) -> IncidentStory:
    """Return the incident's story from its cluster runs, and from the replay on one node if there is one."""
    lines = [*_cluster_lines(incident, runs), *(_node_lines(node) if node else ())]
    costs = (*_cluster_costs(runs), *(_node_costs(node) if node else ()))
    return IncidentStory(incident, tuple(sorted(lines, key=lambda line: line.seconds)), costs)


# --- the cluster -----------------------------------------------------------------------------------------------------
def _cluster_lines(incident: Incident, runs: ClusterRuns) -> Iterator[IncidentLine]:
    hit, part = runs.hit.timeline, slice(runs.first, runs.last)
    length = (runs.last - runs.first) * STEP_SECONDS
    yield IncidentLine(0, Witness.WORLD, f"{TITLES[incident]}.")
    yield IncidentLine(0, Witness.COTENANT, DID[incident])
    if incident in ALERTS:
        alert, minutes = ALERTS[incident]
        yield IncidentLine(60.0 * minutes, Witness.OPERATOR, f"Alert {alert}.")
    else:
        yield IncidentLine(0, Witness.OPERATOR, UNSEEN[incident])
    before = runs.offered_before_cores
    during = hit.offered_cores[part]
    if ends := extremes(during):
        text = f"Cluster: batch-cpu {before:.0f} cores before, {ends.least:.0f} to {ends.most:.0f} during the incident."
        yield IncidentLine(length, Witness.COTENANT, text)
    if evicted := int(hit.evictions[part].sum()):
        yield IncidentLine(length, Witness.COTENANT, f"Cluster: {evicted} batch pods evicted so far.")
    yield IncidentLine(length, Witness.WORLD, "The incident is over.")
    normal = length + normal_after_seconds(runs)
    if np.isfinite(normal):
        yield IncidentLine(normal, Witness.WORLD, "Cluster: no node is short of capacity any more.")


def normal_after_seconds(runs: ClusterRuns) -> float:
    """Return the seconds from the incident's end until the cluster is no worse than without it; inf = never.

    Worse means that more nodes are short of capacity, or that services are slowed more and beyond `SLOWED`. Steps are
    five minutes; only the day after the end counts.
    """
    part = slice(runs.first, runs.last + 24 * 3600 // STEP_SECONDS)
    hit, spared = runs.hit.timeline, runs.spared.timeline
    worse = (hit.short_ratio[part] > spared.short_ratio[part] + 1e-9) & (hit.short_ratio[part] > 0)
    worse |= hit.latency_ratio[part] > np.maximum(spared.latency_ratio[part], SLOWED)
    wrong = np.flatnonzero(worse)
    after = (int(wrong[-1]) + 1 if len(wrong) else 0) - (runs.last - runs.first)
    return float("inf") if len(wrong) and wrong[-1] == len(worse) - 1 else float(max(after, 0) * STEP_SECONDS)


def _cluster_costs(runs: ClusterRuns) -> Iterator[IncidentCost]:
    """Figures of the whole cluster; the return to normal has a goal only where the forecast was wrong."""
    hit, spared = runs.hit, runs.spared
    yield IncidentCost("batch core-hours lost, cluster", spared.batch_core_hours - hit.batch_core_hours, "core-hours")
    yield IncidentCost("batch pods evicted more, cluster", hit.evictions - spared.evictions, "pods")
    part = slice(runs.first, runs.last)
    yield IncidentCost("nodes short while it lasts, mean", 100 * float(hit.timeline.short_ratio[part].mean()), "%")
    highest = float(hit.timeline.latency_ratio[part].max())
    yield IncidentCost("p99 of services / no colocation, worst five minutes", highest, "x", SLOWED)
    limit = NORMAL_SECONDS / 60 if hit.scenario.incident is Incident.FLASH_CROWD else None
    yield IncidentCost("normal again after its end, cluster", normal_after_seconds(runs) / 60, "min", limit)


# --- one node --------------------------------------------------------------------------------------------------------
def _node_lines(node: NodeReplay) -> Iterator[IncidentLine]:
    if node.incident is Incident.FLASH_CROWD:
        text = f"Services on a node of {CORES} cores need {CROWD_FACTOR:g} times the CPU of their forecast peak."
        yield IncidentLine(0, Witness.WORLD, text)
    acts_told = sorted((act for act in node.acts if act.reason not in UNTOLD), key=lambda act: act.time_seconds)
    # Acts of one reason and pod that follow each other are one line.
    for _, run in groupby(acts_told, key=lambda act: (act.reason, act.pod if act.reason == EVICTING else "")):
        acts = list(run)
        first, reason = acts[0], acts[0].reason
        at = _seconds_after_begin(node, first)
        if at < 0:
            continue
        sentence = REASON_SENTENCES.get(reason, reason)
        about = f" {first.pod}:" if first.pod else ""
        last = f" ({len(acts)} times, the last after {_clock(_seconds_after_begin(node, acts[-1]))})"
        last = last if len(acts) > 1 else ""
        yield IncidentLine(at, Witness.COTENANT, f"Node:{about} {sentence} {first.why}{last}".strip())
    length = node.ends_seconds - node.begins_seconds
    if node.incident is Incident.MEMORY_LEAK:
        text = "The service is at its memory limit: the kernel ends it and the kubelet starts it again."
        yield IncidentLine(length, Witness.WORLD, text)
    if np.isfinite(node.normal_after_seconds):
        text = "Node: batch pods may use as much as before."
        yield IncidentLine(length + node.normal_after_seconds, Witness.WORLD, text)


def _seconds_after_begin(node: NodeReplay, act: AgentAction) -> float:
    """Return the seconds from the begin of the incident to an action of the agent; negative before it."""
    return act.time_seconds - node.unix_seconds - node.begins_seconds


def _clock(seconds: float) -> str:
    """A length as minutes:seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _node_costs(node: NodeReplay) -> Iterator[IncidentCost]:
    """Figures of one node under its agent, with goals as those of the cluster."""
    yield IncidentCost("services evicted, node", len(node.evicted_services), "pods", 0)
    yield IncidentCost("batch pods evicted, node", len(node.evicted), "pods")
    yield IncidentCost("seconds in which batch slowed services by more than 10 %, node", node.slowed_seconds, "s")
    yield IncidentCost("batch core-hours lost, node", node.lost_core_hours, "core-hours")
    limit = NORMAL_SECONDS / 60 if node.incident is Incident.FLASH_CROWD else None
    yield IncidentCost("normal again after its end, node", node.normal_after_seconds / 60, "min", limit)
