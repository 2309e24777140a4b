"""`cotenant serve manager` publishes extended resources, NodeSLOs, NodeMetrics, Recommendations, UsageForecasts."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base.commands.output import Format, NoHeadersOption, OutputOption, message, print_table
from cotenant.base.commands.session import examples, new_app, remember_cluster, session_of
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.settings import Settings

if TYPE_CHECKING:
    from cotenant.base.logs.metrics import Metrics
    from cotenant.manager.run import Manager

app = new_app()

INTENTS = Schema(
    "intents",
    (
        Column("feature", "Feature", Kind.TEXT, "Controller that decided the write."),
        Column("verb", "Verb", Kind.TEXT, "apply, patch or delete."),
        Column("object", "Object", Kind.TEXT, "What is written."),
        Column("subresource", "Part", Kind.TEXT, "Subresource to write; empty for the object itself."),
        Column("why", "Why", Kind.TEXT, "Reason of the write."),
        Column("old", "Now", Kind.TEXT, "Present value, as JSON.", wide=True),
        Column("new", "New value", Kind.TEXT, "New value, as JSON.", wide=True),
    ),
    ("feature", "object", "subresource"),
)


@app.command(
    epilog=examples(
        "cotenant serve manager --once  # a table of the due writes; writes nothing",
        "cotenant serve manager --once -o json",
        "cotenant serve manager --write  # writes, until SIGTERM",
        "cotenant serve manager --write --prometheus http://prometheus:9090 --store s3://bucket/cotenant",
        "cotenant serve manager --write --at 2027-03-05T17:40:00Z  # fast-forward a test cluster",
        "cotenant --set manager.features_off=[recommendations,forecasts] serve manager --write",
    )
)
def manager(
    ctx: typer.Context,
    write: Annotated[
        bool | None, typer.Option("--write/--dry-run", help="Write to the cluster; default: setting manager.write.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Decide once, show the due writes (with --write: send them), exit.")
    ] = False,
    kubeconfig: Annotated[str | None, typer.Option(metavar="FILE", help="Path of the kubeconfig.")] = None,
    context: Annotated[str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig.")] = None,
    prometheus: Annotated[str | None, typer.Option(metavar="URL", help="Prometheus to query.")] = None,
    store: Annotated[str | None, typer.Option(metavar="URL", help="fsspec URL of the store.")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="Cluster's name in the store.", callback=remember_cluster)
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of /metrics, /livez and /readyz.")] = None,
    at: Annotated[
        str,
        typer.Option(
            "--at", metavar="TIME", help="Start the manager's clock at this time, to fast-forward a test cluster."
        ),
    ] = "",
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Run the controllers that publish to the Kubernetes API. Writes only with --write or setting manager.write."""
    flags = {
        "manager.write": write,
        "kube.kubeconfig": kubeconfig,
        "kube.context": context,
        "profiler.prometheus.url": prometheus,
        "store.url": store,
        "telemetry.health_port": port,
    }
    settings = Settings.of(session_of(ctx).load(flags).settings)
    if settings.manager.write:
        message(
            f"The manager WRITES to the cluster when it holds the Lease {settings.manager.namespace}/cotenant-manager."
        )
    else:
        message("Dry run: nothing is written to the cluster. Give --write, or set manager.write, to write.")
    if once:
        _print_one_round(settings, cluster, at, output, headers=not no_headers)
        return
    from cotenant.base.process.in_hand import keep_notes
    from cotenant.manager.run import run

    keep_notes("manager")
    running, metrics = _make_manager(settings, cluster, at)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())

    def wait() -> None:  # in slices, so that Python runs the signal's handler
        while not ended.wait(1.0):
            pass

    run(running, settings, metrics, wait)
    message("The manager has stopped and released the Lease.")


def _make_manager(settings: Settings, cluster: str | None, at: str) -> tuple[Manager, Metrics]:
    import platform

    from cotenant.base.kube import connect
    from cotenant.base.logs.metrics import Metrics
    from cotenant.base.version import __version__
    from cotenant.manager.run import Manager, Options

    client = connect(settings.kube)
    metrics = Metrics(__version__, platform.python_version())
    clock = None
    if at:  # it begins at a moment to come; UsageError on a cluster that is no test's
        from cotenant.base.kubernetes.moments import moment_of
        from cotenant.base.process.clock import ShiftedClock, SystemClock
        from cotenant.cli.cluster.real_nodes import require_test_cluster

        require_test_cluster(client)
        moment = moment_of(at, "--at")
        ahead = (moment or 0.0) - SystemClock().now_seconds()
        message(f"The manager's clock begins at {at}.")
        clock = ShiftedClock(ahead)
    options = Options(cluster or client.access.cluster, fast_forward=clock is not None)
    return Manager(client, settings, metrics, options, clock), metrics


def _print_one_round(settings: Settings, cluster: str | None, at: str, output: Format, *, headers: bool) -> None:
    manager, _ = _make_manager(settings, cluster, at)
    try:
        actions = manager.settle()
    finally:
        manager.stop(withdraw=False)  # what the table does not show is not done: all who wait would be let go at once
    intents = [{"feature": name, **row} for name, rows in actions.items() for row in rows]
    print_table(Table.from_rows(INTENTS, intents), output, headers=headers)
    states = manager.board.states
    for name, state in states.items():
        message(f"{name}: {state.condition.value}. {state.message}".rstrip())
    if any(state.condition.broken for state in states.values()):
        raise typer.Exit(1)
