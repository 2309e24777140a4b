"""EDGE: `cotenant reservations`: capacity for workloads before they need it: previewed, approved, back-tested."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base.commands.call import DOCUMENT, LIVE, ROWS, STORED, CommandCall, command
from cotenant.base.commands.output import (
    message,
    print_document,
)
from cotenant.base.commands.results import (
    NamespaceOption,
    filter_rows,
    named_workload,
    open_store,
)
from cotenant.base.commands.session import EXIT_PARTIAL, examples, new_app, session_of, workload_addresses
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.settings.sections import KubeSettings
from cotenant.recommender.settings import RecommenderSettings
from cotenant.scheduler_ext.reservations.commands import decisions
from cotenant.scheduler_ext.reservations.commands.decisions import (
    PlanArgument,
    StandbyOption,
    YesOption,
    carry_out,
    parse_plan,
)
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings

if TYPE_CHECKING:
    from cotenant.base.kube import KubeClient
    from cotenant.base.settings.base import SettingSections
    from cotenant.scheduler_ext.reservations.model.plan import Plan, Recurrence, Span
    from cotenant.scheduler_ext.reservations.service.plans import Ahead

app = new_app()
app.registered_commands.extend(decisions.app.registered_commands)

WorkloadArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAMESPACE/KIND/NAME", help="The workload.", show_default=False, autocompletion=workload_addresses
    ),
]


@app.callback(
    epilog=examples(
        "cotenant reservations list --proposed  # what the last scan proposes; asks no cluster",
        "cotenant reservations list",
        "cotenant reservations preview shop/deployment-web",
        "cotenant reservations approve shop/deployment-web --yes",
    )
)
def _family() -> None:
    """Capacity that is reserved before a workload needs it."""


@command(
    app,
    STORED | LIVE | ROWS,
    "cotenant reservations list -n shop",
    "cotenant reservations list --proposed -o csv",
    name="list",
)
def list_(
    call: CommandCall,
    proposed: Annotated[
        bool, typer.Option("--proposed", help="Plans that the stored results propose, without a cluster.")
    ] = False,
    namespace: NamespaceOption = None,
) -> None:
    """List plans of the cluster, or with --proposed what the last scan found worth reserving."""
    if proposed:
        from cotenant.recommender.model.views import PLANS

        settings = session_of(call.ctx).load({"store.url": call.given["store"]}).settings  # asks no cluster
        rows = open_store(settings, call.cluster).read_table(PLANS)
        call.print(filter_rows(rows, namespace, None))
        return
    from cotenant.scheduler_ext.reservations.commands.rows import plan_table
    from cotenant.scheduler_ext.reservations.model.plan_states import counts
    from cotenant.scheduler_ext.reservations.service.plans import plans

    listed = plans(_client(call.settings), namespace or ())
    call.print(plan_table(listed.plans))
    if listed.plans:
        message(counts(listed.plans).words)
    elif not listed.unreadable:
        message("no reservation plan; `cotenant reservations list --proposed` shows what the last scan proposes")
    if listed.unreadable:
        message(f"partial: {listed.note}", style="yellow")
        raise typer.Exit(EXIT_PARTIAL)


@command(
    app,
    LIVE | DOCUMENT,
    "cotenant reservations show shop/deployment-web",
    "cotenant reservations show shop/web -o yaml",
)
def show(call: CommandCall, plan: PlanArgument) -> None:
    """Show one plan: what it asks for, where it is in its life, how past occurrences went."""
    print_document(_read(call.settings, plan), call.output)


@command(app, LIVE | ROWS, "cotenant reservations scores shop/deployment-web -o csv")
def scores(call: CommandCall, plan: PlanArgument) -> None:
    """Show how a plan's past occurrences went: reserved, used, missed, idle, lead."""
    from cotenant.scheduler_ext.reservations.commands.rows import score_table

    table = score_table(_read(call.settings, plan))
    call.print(table)
    if not len(table):
        message("no occurrence has ended yet")


@command(app, LIVE | ROWS, "cotenant reservations report shop/deployment-web")
def report(call: CommandCall, plan: PlanArgument) -> None:
    """Show what a plan's last peak came to: expected and seen, covered or not, idle, and what would be without it."""
    from cotenant.scheduler_ext.reservations.commands.rows import report_table
    from cotenant.scheduler_ext.reservations.model.plan_scores import reports

    settings = call.settings
    newest = next(iter(reports(_read(settings, plan))), None)
    if newest is None:
        message("no occurrence has ended yet")
        return
    call.print(report_table(newest, settings.section(RecommenderSettings).prices.currency))


@command(
    app,
    LIVE | ROWS,
    "cotenant reservations preview shop/deployment-web",
    "cotenant reservations preview shop/web -o json",
)
def preview(call: CommandCall, plan: PlanArgument) -> None:
    """Show what approving a plan would mean: where its pods fit, quota left, batch displaced, money."""
    from cotenant.scheduler_ext.reservations.commands.rows import preview_table
    from cotenant.scheduler_ext.reservations.service.plans import preview_plan

    settings = call.settings
    found, client = _read(settings, plan), _client(settings)
    now_seconds = client.clock().now_seconds()
    plan_preview = preview_plan(
        client, found, now_seconds, settings, _forecast_reader(settings, session_of(call.ctx).cluster)
    )
    call.print(preview_table(plan_preview, settings.section(RecommenderSettings).prices.currency))


@command(
    app,
    LIVE,
    "cotenant reservations plan shop/Deployment/web --pods 4 --schedule '0 18 * * *' --zone Asia/Tokyo --for 2h",
    "cotenant reservations plan shop/Deployment/web --pods 4 --start 2027-03-05T18:00:00Z --for 2h --yes",
)
def plan(
    call: CommandCall,
    workload: WorkloadArgument,
    pods: Annotated[int, typer.Option("--pods", min=1, max=10_000, help="Pods that capacity is reserved for.")],
    length: Annotated[str, typer.Option("--for", metavar="DURATION", help="Length of each window, such as 2h.")],
    schedule: Annotated[
        str, typer.Option("--schedule", metavar="CRON", help="Start of each window, five fields.")
    ] = "",
    zone: Annotated[str, typer.Option("--zone", metavar="IANA", help="Time zone of the schedule.")] = "Etc/UTC",
    start: Annotated[str, typer.Option("--start", metavar="TIME", help="Start of a single window (RFC 3339).")] = "",
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of the plan; else made of the workload.")
    ] = "",
    standby: StandbyOption = None,
    yes: YesOption = False,
) -> None:
    """Make a plan by schedule or for one window, sized by the workload's own requests; it still has to be approved."""
    from cotenant.base.kube import clock_of
    from cotenant.scheduler_ext.reservations.acts import MakePlan
    from cotenant.scheduler_ext.reservations.model.plan import Recurrence, Span
    from cotenant.scheduler_ext.reservations.model.plan_service import PlanTerms

    settings = call.settings
    ref = named_workload(settings, None, workload)
    when = _parse_window(schedule, zone, start, length)
    if isinstance(when, Span) and when.end_seconds <= clock_of(settings.section(KubeSettings)).now_seconds():
        raise UsageError(f"--start {start!r}: the window is already over", fix="Give a time to come.")
    recurring, window = (when, None) if isinstance(when, Recurrence) else (None, when)
    asked = MakePlan(ref, PlanTerms(pods, window=window, recurring=recurring, standby=standby or 0), name)
    carry_out(settings, asked, yes)
    message(f"approve it with: cotenant reservations approve {asked.plan} --yes")


@command(
    app,
    STORED | ROWS,
    "cotenant reservations backtest shop/Deployment/web",
    "cotenant reservations backtest shop/Deployment/web -o csv",
)
def backtest(call: CommandCall, workload: WorkloadArgument) -> None:
    """Replay the last days from the store: what each quantile, last week's cron and a static headroom would reserve."""
    from cotenant.scheduler_ext.reservations.commands.rows import backtest_table
    from cotenant.scheduler_ext.reservations.commands.workload_history import WorkloadHistory
    from cotenant.scheduler_ext.reservations.plans.proposals import contest
    from cotenant.scheduler_ext.reservations.plans.rehearsed_proposals import rehearsal

    settings = call.settings
    history = session_of(call.ctx).service(WorkloadHistory)
    inventory, usage = history.read_cpu_totals(open_store(settings, call.cluster), settings)
    size, past = rehearsal(inventory, usage, named_workload(settings, call.cluster, workload), settings)
    cores, ratio = size.request_millicores / 1000, settings.section(PlanSettings).miss_cost_ratio
    tried = backtest_table(contest(size, past, settings.section(PlanSettings)), cores, ratio)
    call.print(tried)
    message(f"the last {past.days:.0f} days, forecast once a day; a missed core-hour costs {ratio:g} idle ones")


def _read(settings: SettingSections, name: str) -> Plan:
    """The plan that a command names."""
    from cotenant.scheduler_ext.reservations.service.plans import plan

    ref = parse_plan(name)
    return plan(_client(settings), ref.namespace, ref.name)


def _client(settings: SettingSections) -> KubeClient:
    from cotenant.base.kube import connect

    return connect(settings.section(KubeSettings))


def _parse_window(schedule: str, zone: str, start: str, length: str) -> Recurrence | Span:
    from cotenant.base.kubernetes.moments import moment_of, seconds_of
    from cotenant.scheduler_ext.reservations.model.plan import Recurrence, Span

    seconds = seconds_of(length, "--for")
    if bool(schedule) is bool(start) or seconds <= 0:
        raise UsageError("give --schedule or --start, and a length", fix="--schedule '0 18 * * 1-5' --for 2h")
    if schedule:
        return Recurrence(schedule, zone, seconds)
    begin = moment_of(start, "--start")
    if begin is None:
        raise UsageError(f"--start {start!r} is not a time", fix="Write it in UTC, as 2027-03-05T17:00:00Z.")
    return Span(begin, begin + seconds)


def _forecast_reader(settings: SettingSections, cluster: str | None) -> Ahead:
    """Return a function that reads the forecast usage of nodes from the store of the named cluster, or of the only one.

    Without such a store it knows of no forecast.
    """
    from cotenant.changes.forecasted_usage import ahead_of
    from cotenant.scheduler_ext.reservations.service.plans import nothing_ahead

    try:
        return ahead_of(open_store(settings, cluster))
    except CotenantError:
        return nothing_ahead
