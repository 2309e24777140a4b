"""`cotenant node`: the agent's values and their reasons (status), replayed decisions (replay), CPUs (topology)."""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.base.commands.output import Format, NoHeadersOption, OutputOption, message, print_table
from cotenant.base.commands.session import EXIT_FINDINGS, examples, new_app, session_of
from cotenant.base.errors import NoData, SourceUnreachable, UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.measures import matching_count
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.base.tables.quantity import Unit
from cotenant.base.text import agree, counted
from cotenant.enforcer.commands.topology import EXAMPLES, topology
from cotenant.enforcer.settings import EnforcerSettings

if TYPE_CHECKING:
    from cotenant.enforcer.report.recorder import Replayed
    from cotenant.enforcer.report.status import NodeStatus, ValueInForce

app = new_app()
app.command(epilog=EXAMPLES)(topology)

STATUS = Schema(
    "node-status",
    (
        Column("pod", "Pod", Kind.TEXT, "namespace/name; empty for the cgroup of a QoS class.", essential=True),
        Column("qos", "QoS", Kind.TEXT, "Koordinator QoS class of the pod."),
        Column("cpu_millicores", "CPU", Kind.MILLICORES, "CPU usage in the last tick."),
        Column("memory_bytes", "Memory", Kind.BYTES, "Working set in the last tick."),
        Column("knob", "Knob", Kind.TEXT, "Cgroup setting that the agent sets; empty: none.", essential=True),
        Column("value", "Value", Kind.TEXT, "Value that the agent enforces; -1 = no limit."),
        Column("original", "Goes back to", Kind.TEXT, "Original value; empty if nothing was written."),
        Column("strategy", "Strategy", Kind.TEXT, "Strategy that wants the value."),
        Column("why", "Why", Kind.TEXT, "Reason for the value, or a finding about the pod."),
        Column("cgroup", "Cgroup", Kind.TEXT, "Path of the cgroup.", wide=True),
        Column("uid", "UID", Kind.TEXT, "Uid of the pod.", wide=True),
    ),
    ("uid", "cgroup", "knob"),
)
REPLAY = Schema(
    "node-replay",
    (
        Column("tick", "Tick", Kind.INTEGER, "Line of the recording, from 1.", unit=Unit.NUMBER),
        Column("time", "Time", Kind.TIME, "Time of the observation."),
        Column(
            "mode",
            "Mode",
            Kind.TEXT,
            "act (write), hold (stale inputs: raise no limit, evict no pod) or release (restore all).",
        ),
        Column("action", "Action", Kind.TEXT, "want, give back (restore), evict, or differs from the recording."),
        Column("subject", "Subject", Kind.TEXT, "Cgroup or pod."),
        Column("knob", "Knob", Kind.TEXT, "Setting of the action."),
        Column("value", "Value", Kind.TEXT, "Value of the setting."),
        Column("strategy", "Strategy", Kind.TEXT, "Strategy that wants the value."),
        Column("why", "Why", Kind.TEXT, "Reason for the action."),
    ),
    ("tick", "subject", "knob"),
)


@app.callback(epilog=examples("cotenant node status", "cotenant node replay observations.jsonl"))
def node() -> None:
    """Show the values that this node's agent enforces and why, replay recorded decisions, and draw the node's CPUs."""


@app.command(
    epilog=examples(
        "cotenant node status",
        "cotenant node status -o json",
        "cotenant node status --url http://127.0.0.1:9466/status  # asks the agent itself",
        "kubectl exec -n cotenant cotenant-enforcer-x7k2p -- cotenant node status  # on another node",
    )
)
def status(
    ctx: typer.Context,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="URL of /status; default: read --file.")] = "",
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Status file; default: in enforcer.state_dir.")
    ] = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Show, for every pod of this node, the values that the agent enforces, the original values, and the reasons."""
    settings = session_of(ctx).load({}).settings
    node_status = read_status(url, file or Path(settings.section(EnforcerSettings).state_dir) / "status.json")
    rows = list(status_rows(node_status))
    print_table(Table.from_rows(STATUS, rows), output, headers=not no_headers)
    for line in _heading(node_status):
        message(line)


@app.command(
    epilog=examples(
        "cotenant node replay observations.jsonl  # every change of a decision",
        "cotenant node replay observations.jsonl -o json",
        "cotenant --set enforcer.strategies_off=[cpu-burst] node replay observations.jsonl",
    )
)
def replay(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Recording made by enforcer.record_file.")],
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Replay the decisions of a recording, and show each change.

    The exit code is 3 if a decision differs from the recorded one, because a strategy, its settings or the version
    differs.
    """
    from cotenant.enforcer.decide.registry import strategies
    from cotenant.enforcer.report.recorder import replay_recording

    if not file.is_file():
        raise UsageError(f"{file} does not exist", fix="Record with --set enforcer.record_file=FILE node enforcer.")
    settings = session_of(ctx).load({}).settings
    rows: list[dict[str, Any]] = []
    before: dict[tuple[str, str], Any] = {}
    same: list[bool] = []
    for tick in replay_recording(file, strategies(settings.section(EnforcerSettings))):
        same.append(tick.same)
        rows += replay_rows(tick, before)
    print_table(Table.from_rows(REPLAY, rows), output, headers=not no_headers)
    differing = matching_count(not is_same for is_same in same)
    message(f"{counted(len(same), 'tick')} replayed; {agree(differing, 'differs', 'differ')} from the recording")
    if differing:
        raise typer.Exit(EXIT_FINDINGS)


def read_status(url: str, file: Path) -> NodeStatus:
    """Return the status from the agent at `url`, or from `file` if `url` is ""; raise NoData or SourceUnreachable."""
    import msgspec

    from cotenant.enforcer.report.status import NodeStatus

    try:
        raw = _fetch(url) if url else file.read_bytes()
        return msgspec.json.decode(raw, type=NodeStatus)
    except FileNotFoundError as error:
        raise NoData(
            f"there is no {file}: no agent has saved its status",
            fix="If the agent runs as a DaemonSet (`cotenant install --enforcer --apply`), run this command in its "
            "pod or give --url. On a node with `cotenant node enforcer`, set enforcer.state_dir to the agent's folder.",
        ) from error
    except (OSError, ValueError, http.client.HTTPException, *UNDECODABLE) as error:
        raise SourceUnreachable(f"no status from {url or file}: {error}") from error


def _fetch(url: str) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {url!r} is not an http address")
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - http and https alone
        body: bytes = answer.read(64 << 20)
    return body


def status_rows(node_status: NodeStatus) -> Iterator[dict[str, Any]]:
    """Yield a row for each value and each verdict; a pod without either has one row."""
    for pod in node_status.pods:
        base = {
            "pod": f"{pod.namespace}/{pod.name}",
            "qos": pod.qos or pod.kubernetes_qos,
            "cpu_millicores": pod.cpu_millicores,
            "memory_bytes": pod.memory_bytes,
            "uid": pod.uid,
        }
        rows = [base | _value(value) for value in pod.values]
        rows += [base | {"why": f"{verdict.reason}: {verdict.message}"} for verdict in pod.verdicts]
        yield from rows or [base]
    for value in node_status.others:
        yield _value(value)
    for verdict in node_status.verdicts:
        yield {"why": f"{verdict.reason}: {verdict.message}"}


def _value(value: ValueInForce) -> dict[str, Any]:
    original = "" if value.original is None else str(value.original)
    cells = {"knob": value.knob, "value": str(value.value), "strategy": value.strategy, "why": value.why}
    return cells | {"cgroup": value.cgroup, "original": original}


def _heading(status: NodeStatus) -> Iterator[str]:
    """Yield lines about the whole node: mode, policy and its age, what is not ready or not supported."""
    age = "" if status.policy_age_seconds is None else f", policy age {status.policy_age_seconds:.0f} s"
    dry = "; dry run: nothing is written" if status.dry_run else ""
    yield f"node {status.node} at {status.updated}: {status.mode}, policy from {status.policy_origin}{age}{dry}"
    if status.ready:
        yield f"not ready: {status.ready}"
    yield from status.notes
    for unsupported in status.unsupported:
        yield f"{unsupported.field}: {unsupported.why}"


def replay_rows(tick: Replayed, before: dict[tuple[str, str], Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each decision of a tick that differs from the tick before, and update `before`."""
    base = {"tick": tick.number, "time": tick.seen.wall_seconds, "mode": tick.decided.mode.value}
    wants = {(want.path, want.knob.value): want for want in tick.decided.wants}
    for (path, knob), want in wants.items():
        old = before.get((path, knob))
        if old is None or old.value != want.value:
            cells = {"subject": path, "knob": knob, "value": str(want.value), "strategy": want.strategy}
            yield base | cells | {"action": "want", "why": want.why}
    for (path, knob), old in before.items():
        if (path, knob) not in wants:
            yield base | {"subject": path, "knob": knob, "strategy": old.strategy, "action": "give back"}
    for eviction in tick.decided.evictions:
        cells = {"subject": f"{eviction.namespace}/{eviction.name}", "strategy": eviction.strategy}
        yield base | cells | {"action": "evict", "why": eviction.why}
    if not tick.same:
        yield base | {"action": "differs", "why": "the recorded decision differs"}
    before.clear()
    before.update(wants)
