"""When the autopilot does nothing at all: it is paused, too much did harm, or the cluster is in trouble. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.autopilot.decide.history import ActState, Decisions, PastAct
from cotenant.autopilot.settings import AutopilotSettings
from cotenant.base.reasons import Reason
from cotenant.base.text import counted, percent

MOST_NODES_NOT_READY: Final = 0.05
"""Share of nodes that are not ready above which nothing is changed. One node in twenty not ready is an outage, not
maintenance."""


@dataclass(frozen=True, slots=True)
class Halt:
    """The reason why nothing is done now."""

    reason: Reason
    words: str


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The known health of the cluster.

    nodes, ready: counts; trouble: why the cluster could not be asked, "" when it could; paused: the text of the
    switch, "" when it does not pause.
    """

    nodes: int = 0
    ready: int = 0
    trouble: str = ""
    paused: str = ""


def halt_of(health: ClusterHealth, decisions: Decisions) -> Halt | None:
    """The first reason to do nothing; None when there is none."""
    if health.paused:
        return Halt(Reason.AUTOPILOT_PAUSED, health.paused)
    if decisions.stopped:
        return Halt(Reason.AUTOPILOT_STOPPED, decisions.stopped)
    if health.trouble:
        return Halt(Reason.AUTOPILOT_CLUSTER_IN_TROUBLE, health.trouble)
    away = health.nodes - health.ready
    if not health.nodes or away > MOST_NODES_NOT_READY * health.nodes:
        words = f"not ready: {away} of {counted(health.nodes, 'node')}; at most {percent(MOST_NODES_NOT_READY)}"
        return Halt(Reason.AUTOPILOT_CLUSTER_IN_TROUBLE, words if health.nodes else "no node is known")
    return None


def too_much_harm(acts: Sequence[PastAct], since_seconds: float, settings: AutopilotSettings) -> str:
    """Why everything has to stop, "" when it need not: harm among the last changes judged since a person resumed.

    `stop_share` is taken of `stop_changes`, also while fewer have been judged: of 40, 5 % are two.
    """
    verified = [a for a in acts if a.state in (ActState.KEPT, ActState.HARMFUL) and a.since_seconds > since_seconds]
    last = sorted(verified, key=lambda act: act.since_seconds)[-settings.stop_changes :]
    bad = [act for act in last if act.state is ActState.HARMFUL]
    if not bad or len(bad) < settings.stop_share * settings.stop_changes:
        return ""
    names = ", ".join(sorted({str(act.workload) for act in bad}))
    return f"{len(bad)} of the last {counted(len(last), 'change')} did harm: {names}"
