"""EDGE: `cotenant node enforcement`: list the actions of node agents, collect them from the cluster, import logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base import measures
from cotenant.base.commands.output import Format, NoHeadersOption, OutputOption, message, print_table
from cotenant.base.commands.results import (
    ClusterOption,
    FilterOption,
    NamespaceOption,
    StoreOption,
    filter_rows,
    open_store,
    settings_of,
    url_of,
)
from cotenant.base.commands.session import examples, new_app, session_of
from cotenant.base.errors import ClusterForbidden, ClusterUnreachable, NoData, UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.settings.sections import KubeSettings, ManagerSettings
from cotenant.base.text import counted
from cotenant.enforcer.settings import EnforcerSettings
from cotenant.profiler.settings import ProfilerSettings

if TYPE_CHECKING:
    from cotenant.base.process.clock import Clock
    from cotenant.base.settings.base import SettingSections
    from cotenant.base.store import Store
    from cotenant.enforcer.model.enforcement import AgentAction, EnforcementHistory, NodeLanes
    from cotenant.enforcer.model.enforcement_tables import Retention

app = new_app()
DEFAULT_CLUSTER = "default"
_LOG_FIX = "Name an agent's actions.jsonl or a recording, and remove broken lines."
FilesArgument = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", help="Agents' actions.jsonl files, or recordings made by enforcer.record_file."),
]
NodeOption = Annotated[
    str, typer.Option("--node", metavar="NAME", help="Node of these logs, for lines that do not name one.")
]


@app.callback(
    epilog=examples("cotenant node enforcement gather", "cotenant node enforcement list --filter lane=eviction")
)
def enforcement() -> None:
    """Show what node agents did and why, as on the dashboard's page."""


@app.command(
    "list",
    epilog=examples(
        "cotenant node enforcement list",
        "cotenant node enforcement list --filter 'node=n1&lane=eviction,interference' -o wide",
        "cotenant node enforcement list --filter 'since=2026-11-19T12:00:00Z&mode!=dry-run' -o csv",
    ),
)
def list_(
    ctx: typer.Context,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = None,
    query: FilterOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """List the actions collected from node agents, newest first: the rows and filters of the dashboard's page."""
    from cotenant.enforcer.model.enforcement_tables import ENFORCEMENT

    opened = open_store(session_of(ctx).load({"store.url": store}).settings, cluster)
    try:
        table = opened.read_table(ENFORCEMENT)
    except NoData as error:
        raise NoData(
            "no actions of node agents have been collected yet",
            fix="Run cotenant node enforcement gather, or cotenant node enforcement import with an agent's log.",
        ) from error
    text = query or ""
    rows = filter_rows(
        table, namespace, text if "sort=" in text else "&".join(part for part in (text, "sort=-time") if part)
    )
    print_table(rows, output, headers=not no_headers)
    message(f"{len(rows)} of {len(table)} collected actions")


@app.command(
    epilog=examples(
        "cotenant node enforcement gather",
        "cotenant node enforcement gather --cluster prod-1  # the cluster's name in the store",
    )
)
def gather(ctx: typer.Context, cluster: ClusterOption = None, store: StoreOption = None) -> None:
    """Read the agents' Events from the cluster, and their CPU over time from Prometheus if configured, into the store.

    The manager does the same by itself. An API server keeps Events for about an hour. Exit code 1 if the agents could
    not be queried; the dashboard then shows the reason.
    """
    from cotenant.base.kube import connect
    from cotenant.enforcer.model.agents import ask
    from cotenant.profiler.enforcement.collected import keep
    from cotenant.profiler.enforcement.collector_child import with_lanes

    settings = settings_of(ctx, store, None, None)
    opened = _store(settings, cluster)
    with closing(connect(settings.section(KubeSettings))) as client:
        bounds = _bounds(settings, client.clock())  # Events have the cluster's times
        history = ask(client, bounds.now_seconds)
    prometheus = settings.section(ProfilerSettings).prometheus
    gathering = keep(opened, with_lanes(history, prometheus, bounds), bounds)
    if gathering.trouble:
        raise (ClusterForbidden if gathering.forbidden else ClusterUnreachable)(gathering.trouble, fix=gathering.fix)
    agents = "an unknown number of agents" if gathering.agents is None else counted(gathering.agents, "agent")
    message(f"{len(history.acts)} series of Events collected from {agents}")
    for note in gathering.notes:
        message(note)


@app.command(
    "import",
    epilog=examples(
        "cotenant node enforcement import /var/lib/cotenant/enforcer/actions.jsonl",
        "cotenant node enforcement import actions.jsonl --node n1 --cluster prod-1",
        "cotenant node enforcement import observations.jsonl  # a recording: decided again, shown as a dry run",
    ),
)
def import_(
    ctx: typer.Context,
    files: FilesArgument,
    node: NodeOption = "",
    cluster: ClusterOption = None,
    store: StoreOption = None,
) -> None:
    """Read logs or recordings of agents into the store. Actions that are already stored are skipped."""
    from cotenant.base.process.clock import SystemClock
    from cotenant.enforcer.model.enforcement import EnforcementHistory, Gathering
    from cotenant.profiler.enforcement.collected import keep

    settings = session_of(ctx).load({"store.url": store}).settings
    acts: list[AgentAction] = []
    lanes: list[NodeLanes] = []
    for file in files:
        if not file.is_file():
            raise UsageError(f"{file} does not exist", fix="Name an agent's actions.jsonl or recording.")
        imported = (
            recount_recording(file, settings)
            if is_recording(file)
            else EnforcementHistory(tuple(read_log_actions(file, node)))
        )
        acts += imported.acts
        lanes += imported.lanes
        message(f"{file}: {len(imported.acts)} actions")
    bounds = _bounds(settings, SystemClock())
    gathering = Gathering(bounds.now_seconds, sources=(f"import of {', '.join(sorted({f.name for f in files}))}",))
    opened = _store(settings, cluster)
    before = opened.read_document("enforcement", Gathering)
    if before is None or not before.agents:
        nodes, dry = {act.node for act in acts}, {act.node for act in acts if act.dry}
        gathering = replace(gathering, agents=len(nodes) or None, dry_agents=len(dry))
    keep(opened, EnforcementHistory(tuple(acts), tuple(lanes), gathering), bounds)
    old = measures.matching_count(act.time_seconds < bounds.now_seconds - 86_400 * bounds.days for act in acts)
    if old:
        message(f"{counted(old, 'action')} not kept: older than the {bounds.days:g} days of manager.enforcement_days")


def is_recording(file: Path) -> bool:
    """Return whether a file is a recording of observations, whose first line has a version, rather than a log."""
    with file.open("rb") as lines:
        return b'"version"' in lines.readline(4096)[:64]


def read_log_actions(file: Path, node: str) -> Iterator[AgentAction]:
    """Yield the actions in an agent's log; an incomplete last line is skipped with a message.

    Raise UsageError, which names the line, if a line is no action, or if it names no node and `node` is empty.
    """
    import msgspec

    from cotenant.enforcer.report.acts import act_of
    from cotenant.enforcer.report.status import ActionRecord

    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                action = msgspec.json.decode(line, type=ActionRecord)
            except UNDECODABLE as error:
                if number > 1 and not line.endswith(b"\n"):
                    message(f"{file} line {number} is incomplete and was skipped; import it again when it is complete")
                    return  # the agent is writing it, or was ended in the middle of it
                raise UsageError(
                    f"{file} line {number} is not an action in an agent's log: {error}", fix=_LOG_FIX
                ) from error
            name = action.node or node
            if not name:
                raise UsageError(f"{file} line {number} does not name its node", fix="Add --node NAME.")
            yield act_of(action, name)


def recount_recording(file: Path, settings: SettingSections) -> EnforcementHistory:
    """Repeat a recording's decisions with the present strategies and settings; return the actions and CPU lanes."""
    from cotenant.enforcer.decide.evictions import Rate
    from cotenant.enforcer.decide.registry import strategies
    from cotenant.enforcer.model.enforcement import EnforcementHistory
    from cotenant.enforcer.model.enforcement_tables import grid_samples
    from cotenant.enforcer.report.acts import Recount
    from cotenant.enforcer.report.recorder import replay_recording

    own = settings.section(EnforcerSettings)
    recount, node = Recount(Rate(own.evictions_per_minute, own.evictions_burst)), ""
    for tick in replay_recording(file, strategies(own)):
        recount.tick(tick.seen, tick.decided)
        node = tick.seen.node.name
    if not node:
        raise UsageError(f"{file} line 2 is not a complete observation of a recording", fix=_LOG_FIX)
    lanes = grid_samples(node, recount.samples, dry=True, source=f"the recording {file.name}")
    return EnforcementHistory(tuple(recount.acts), (lanes,) if recount.samples else ())


def _store(settings: SettingSections, cluster: str | None) -> Store:
    """Return the store of a cluster; create one for a cluster without data."""
    from cotenant.base.store import Store

    try:
        return open_store(settings, cluster)
    except NoData:
        return Store(url_of(settings), cluster or DEFAULT_CLUSTER)


def _bounds(settings: SettingSections, clock: Clock) -> Retention:
    from cotenant.enforcer.model.enforcement_tables import Retention

    return Retention(clock.now_seconds(), settings.section(ManagerSettings).enforcement_days)
