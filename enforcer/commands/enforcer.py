"""`cotenant node enforcer`: the agent of this node, in the foreground. The package `enforcer` has the agent itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base.commands.output import Format, NoHeadersOption, OutputOption, message, print_table
from cotenant.base.commands.session import examples, new_app, session_of
from cotenant.base.settings.sections import TelemetrySettings
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.enforcer.settings import EnforcerSettings

if TYPE_CHECKING:
    from cotenant.base.settings.base import SettingSections

app = new_app()

WRITES = Schema(
    "writes",
    (
        Column("action", "Action", Kind.TEXT, "Action: write, restore, evict or verdict.", essential=True),
        Column("pod", "Pod", Kind.TEXT, "Pod of the cgroup; empty for a QoS class.", essential=True),
        Column("knob", "Knob", Kind.TEXT, "Setting to write.", essential=True),
        Column("before", "Now", Kind.TEXT, "Present value."),
        Column("value", "New value", Kind.TEXT, "Value to write; -1 = no limit."),
        Column("strategy", "Strategy", Kind.TEXT, "Strategy that wants the value."),
        Column("outcome", "Outcome", Kind.TEXT, "Outcome of the action."),
        Column("why", "Why", Kind.TEXT, "Reason for the action."),
        Column("subject", "Cgroup", Kind.TEXT, "Cgroup to write, or the subject of a verdict.", wide=True),
    ),
    ("action", "subject", "knob"),
)


@app.command(
    epilog=examples(
        "cotenant node enforcer --once --policy policy.yaml --pods pods.yaml  # what would be written, as a table",
        "cotenant node enforcer --policy policy.yaml --pods pods.yaml  # dry run until Ctrl-C, each action a line",
        "cotenant node enforcer --policy policy.yaml --pods pods.yaml --write  # writes; Ctrl-C restores all values",
        "cotenant --set enforcer.strategies_off=[cpu-burst] node enforcer --write",
    )
)
def enforcer(
    ctx: typer.Context,
    write: Annotated[
        bool | None,
        typer.Option("--write/--dry-run", help="Write to cgroups and evict; default: by enforcer.dry_run."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Dry run: print what would be written now, and exit.")] = False,
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="FILE", help="NodeSLO, or its spec, in place of the cluster's.")
    ] = None,
    pods: Annotated[
        str | None, typer.Option("--pods", metavar="FILE", help="Pods as YAML or JSON, in place of the API server.")
    ] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="NAME", help="Name of this node.")] = None,
    state_dir: Annotated[
        str | None, typer.Option("--state-dir", metavar="DIR", help="Folder of journal, action log and status file.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of /status, /metrics and /readyz.")] = None,
    watchdog: Annotated[
        float,
        typer.Option(
            "--watchdog", min=0, max=3600, metavar="SECONDS", help="Restore all if the agent hangs so long; 0: never."
        ),
    ] = 60.0,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Run this node's agent. It writes only with --write or if the settings say so; its end restores every value."""
    flags = {
        "enforcer.dry_run": True if once else None if write is None else not write,
        "enforcer.policy_file": policy,
        "enforcer.pods_file": pods,
        "enforcer.node_name": node,
        "enforcer.state_dir": state_dir,
        "enforcer.watchdog_seconds": watchdog,
        "telemetry.health_port": 0 if once else port,
    }
    settings = session_of(ctx).load(flags).settings
    if once:
        _print_one_tick(settings, output, headers=not no_headers)
        return
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))  # until `run` can end in an orderly way
    from cotenant.enforcer.__main__ import run

    if settings.section(EnforcerSettings).dry_run:
        message("Dry run: nothing is written or evicted. Give --write, or set enforcer.dry_run=false, to write.")
    else:
        message("The agent WRITES to this node's cgroups; Ctrl-C or SIGTERM restores everything.")
    run(settings)
    message("The agent has ended.")


def _print_one_tick(settings: SettingSections, output: Format, *, headers: bool) -> None:
    """Print what the agent would write, without writing it; usage needs two readings, so this runs two ticks."""
    import os

    import msgspec

    from cotenant.base.errors import NodeUnreadable
    from cotenant.base.logs.telemetry import configure_logging
    from cotenant.enforcer.assembly import assemble_agent

    quiet = msgspec.structs.replace(settings.section(TelemetrySettings), log_level="error", log_format="console")
    configure_logging(quiet)
    with assemble_agent(settings, os.environ) as assembly:
        agent = assembly.agent
        agent.run_two_ticks()
        if agent.wrong:
            problem = "; ".join((agent.wrong, *agent.parts.sources.read().notes))
            raise NodeUnreadable(
                f"the node could not be read: {problem}", fix="Set enforcer.cgroup_base and cgroup_root."
            )
        rows = []
        for action in agent.parts.reporter.actions:
            row = {key: "" if value is None else str(value) for key, value in msgspec.to_builtins(action).items()}
            rows.append(row | {"why": row.get("why") or row.get("message", "")})  # a verdict's message is its why
        notes = agent.parts.sources.read().notes
        agent.end()
    print_table(Table.from_rows(WRITES, rows), output, headers=headers)
    for note in notes:
        message(note, style="yellow")
    if not rows:
        message("nothing would be written: all values match the policy")
