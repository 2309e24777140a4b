"""`cotenant run`: forecasts of every container of a large history, shard by shard."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.apps.cli.analysis.results import ClusterOption, StoreOption, open_store
from cotenant.apps.cli.command import examples, new_app, session_of
from cotenant.apps.cli.output import DocumentFormat, message, print_document
from cotenant.apps.cli.progress import bars
from cotenant.core.model.errors import UsageError
from cotenant.core.model.resource import Resource

if TYPE_CHECKING:
    from cotenant.apps.pipeline.fleet.executors import Executor
    from cotenant.apps.pipeline.fleet.plan import Share
    from cotenant.apps.pipeline.fleet.run import Fleet, FleetSummary

app = new_app()


class RunFormat(StrEnum):
    """How to write what was done."""

    SUMMARY = "summary"
    JSON = "json"
    YAML = "yaml"


WorkersOption = Annotated[int, typer.Option("--workers", "-w", min=1, max=256, help="Processes on this machine.")]
SchedulerOption = Annotated[
    str | None, typer.Option("--scheduler", metavar="URL", help="Dask scheduler, tcp://host:8786 or tls://host:8786.")
]
CaOption = Annotated[str, typer.Option("--tls-ca", metavar="FILE", help="CA of a tls:// scheduler (PEM).")]
CertOption = Annotated[str, typer.Option("--tls-cert", metavar="FILE", help="Own certificate for it (PEM).")]
KeyOption = Annotated[str, typer.Option("--tls-key", metavar="FILE", help="Key of that certificate (PEM).")]


@app.command(
    epilog=examples(
        "cotenant run  # two processes on this machine; run again after an interruption, finished shards are kept",
        "cotenant run --store s3://usage/history --cluster prod --workers 8",
        "cotenant run --hour  # add the hours since the last run, in seconds",
        "cotenant run --shard $JOB_COMPLETION_INDEX/8  # one pod of a Kubernetes Indexed Job, counted from 0",
        "cotenant run --merge  # join what the pods of that Job have computed",
        "cotenant run --scheduler tls://dask:8786 --tls-ca ca.pem --tls-cert me.pem --tls-key me.key",
    )
)
def run(
    ctx: typer.Context,
    resource: Annotated[
        list[Resource] | None, typer.Option("--resource", "-r", help="cpu or memory; may be repeated; default both.")
    ] = None,
    hour: Annotated[bool, typer.Option("--hour", help="Only add the whole hours since the last run.")] = False,
    shard: Annotated[str | None, typer.Option("--shard", metavar="I/N", help="Only part I of N, from 0.")] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Only join the shards that parts have computed.")] = False,
    workers: WorkersOption = 2,
    scheduler: SchedulerOption = None,
    tls_ca: CaOption = "",
    tls_cert: CertOption = "",
    tls_key: KeyOption = "",
    series: Annotated[int, typer.Option("--series-per-shard", min=50, max=50_000, help="Size of a shard.")] = 1000,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    output: Annotated[
        RunFormat, typer.Option("--output", "-o", help="How to write what was done.")
    ] = RunFormat.SUMMARY,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
) -> None:
    """Forecast every container of the stored history: shards in bounded memory, kept when finished, joined at the end.

    Exit codes: 0 done, 1 failed or shards are missing, 2 wrong words, 130 interrupted.
    """
    if sum((hour, merge, shard is not None)) > 1:
        raise UsageError("--hour, --shard and --merge exclude each other")
    from cotenant.apps.pipeline.fleet.executors import Dask, Processes, Tls
    from cotenant.apps.pipeline.fleet.plan import Share
    from cotenant.apps.pipeline.fleet.run import Fleet

    settings = session_of(ctx).load({"store.url": store}).settings
    share = None if shard is None else Share.parse(shard)
    executor = Dask(scheduler, Tls(tls_ca, tls_cert, tls_key)) if scheduler else Processes(workers)
    place = open_store(settings, cluster)
    with bars(quiet=quiet) as progress:
        fleet = Fleet(place, settings, tuple(dict.fromkeys(resource or list(Resource))), series, progress)
        summary = _done(fleet, executor, share, hour=hour, merge=merge)
    if output is not RunFormat.SUMMARY:
        print_document(dataclasses.asdict(summary), DocumentFormat(output.value))
    elif not quiet:
        _say(summary)


def _done(fleet: Fleet, executor: Executor, share: Share | None, *, hour: bool, merge: bool) -> FleetSummary:
    if hour:
        return fleet.hour(executor)
    if merge:
        return fleet.merge()
    return fleet.run(executor, share)


def _say(summary: FleetSummary) -> None:
    message(f"{summary.series:,} series in {summary.shards} shards, {summary.computed} computed now.")
    if summary.joined:
        message(f"Joined: results fleet-cpu, fleet-memory of the store. Run {summary.digest}.")
    elif summary.missing:
        message(f"{summary.missing} shards are still missing; when all parts are done: cotenant run --merge.")
    else:
        message("All shards are there: cotenant run --merge.")
