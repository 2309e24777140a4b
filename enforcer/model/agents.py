"""EDGE: reads the reports of node agents from the cluster: their Events as actions, and how many agents run.

    Events of the agents --acts_of--> AgentActions;  pods of the DaemonSet -> number of agents and of dry runs

Anybody who may write Events can have written one. So all their content is only shown as text and cut to a length, and a
time in the future is ignored. Nothing is done because of an Event.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from cotenant.base.errors import ClusterError, ClusterForbidden, UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.models.pod import ConfiguredPod
from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.kubernetes.protocol import NODE_AGENT
from cotenant.enforcer.model.enforcement import ACT_ANNOTATION, AgentAction, EnforcementHistory, Gathering

EVENTS: Final = "/apis/events.k8s.io/v1/events"
OURS: Final = f"reportingController={NODE_AGENT}"
AGENT_PODS: Final = f"app.kubernetes.io/name={NODE_AGENT}"
DRY_RUN: Final = "COTENANT_ENFORCER__DRY_RUN"
SOURCE: Final = "Events of the cluster"
LETTERS: Final = 600
NAME_LETTERS: Final = 253
EARLY_SECONDS: Final = 120.0
"""By how many seconds clocks of other machines may be ahead."""
RIGHT: Final = "Allow `list` on events.k8s.io/events, as deploy/rbac/reader.yaml does."
UNCOUNTED: Final = "the number of running agents is not known, because pods cannot be listed"


class _EventMeta(msgspec.Struct, rename="camel"):
    uid: str = ""
    annotations: dict[str, str] | None = None
    creation_timestamp: str = ""


class _EventSeries(msgspec.Struct, rename="camel"):
    count: int = 0
    last_observed_time: str = ""


class EventWire(msgspec.Struct, rename="camel"):
    """The fields of a Kubernetes Event from which an agent's action is read."""

    metadata: _EventMeta
    event_time: str | None = None
    reporting_controller: str = ""
    series: _EventSeries | None = None


def ask(client: KubeClient, now_seconds: float) -> EnforcementHistory:
    """Read the agents' Events once; a missing right or a failed request is noted in the result, not raised as error."""
    try:
        events = client.list(EVENTS, EventWire, fieldSelector=OURS)
    except ClusterError as error:
        forbidden = isinstance(error, ClusterForbidden)
        fix = error.fix or (RIGHT if forbidden else "")
        failed = Gathering(now_seconds, trouble=error.message, fix=fix, forbidden=forbidden)
        return EnforcementHistory(gathering=failed)
    acts = tuple(acts_of(events, now_seconds))
    return EnforcementHistory(acts, gathering=count_agents(client, acts, now_seconds))


def count_agents(client: KubeClient, acts: Iterable[AgentAction], now_seconds: float) -> Gathering:
    """Return a record with the number of agents: the pods of their DaemonSet, and other nodes that Events name."""
    reporting_nodes = {act.node for act in acts if act.node}
    try:
        pods = client.list("/api/v1/pods", ConfiguredPod, labelSelector=AGENT_PODS)
    except ClusterError:
        return Gathering(now_seconds, sources=(SOURCE,), agents=len(reporting_nodes) or None, notes=(UNCOUNTED,))
    nodes = {pod.spec.node_name for pod in pods if pod.spec.node_name}
    settings = [pod.variable(DRY_RUN) for pod in pods if pod.spec.node_name]
    dry = sum(1 for text in settings if text is None or text.lower() not in ("false", "0", "no", "off"))
    agents = len(nodes | reporting_nodes)
    return Gathering(now_seconds, sources=(SOURCE,), agents=agents, dry_agents=dry, notes=tuple(client.gaps()))


def acts_of(events: Iterable[EventWire], now_seconds: float) -> Iterator[AgentAction]:
    """Yield for each Event its newest action, with the number of all its actions; skip Events without an action."""
    for event in events:
        text = (event.metadata.annotations or {}).get(ACT_ANNOTATION)
        if event.reporting_controller == NODE_AGENT and text:
            with contextlib.suppress(*UNDECODABLE):
                yield _bound_action(msgspec.json.decode(text, type=AgentAction), event, now_seconds)


def _bound_action(act: AgentAction, event: EventWire, now_seconds: float) -> AgentAction:
    last = event.series.last_observed_time if event.series else ""
    latest = now_seconds + EARLY_SECONDS
    moments = (act.time_seconds, *map(_seconds, (last, event.event_time or "", event.metadata.creation_timestamp)))
    time = next((at for at in moments if 0 < at <= latest), now_seconds)
    names = ("node", "pod", "reason", "strategy", "knob", "outcome")
    short = {name: getattr(act, name)[:NAME_LETTERS] for name in names}
    long = {name: getattr(act, name)[:LETTERS] for name in ("why", "subject", "before", "after")}
    total = max(event.series.count if event.series else 1, 1)
    changed: dict[str, Any] = {**short, **long, "pod": act.pod[: 2 * NAME_LETTERS]}
    return replace(act, time_seconds=time, series=event.metadata.uid, total=total, count=1, **changed)


def _seconds(moment: str) -> float:
    try:
        return moment_of(moment, "time") or 0.0
    except (UsageError, OverflowError):
        return 0.0
