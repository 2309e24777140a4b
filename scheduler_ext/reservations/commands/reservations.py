"""EDGE: `cotenant reservations`: lists, previews, approves and back-tests plans that reserve capacity for workloads."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.base.commands.call import DOCUMENT, LIVE, ROWS, STORED, CommandCall, command
from cotenant.base.commands.output import message, print_document
from cotenant.base.commands.results import NamespaceOption, filter_rows, named_workload, open_store
from cotenant.base.commands.session import EXIT_PARTIAL, examples, new_app, session_of, workload_addresses
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.text import counted
from cotenant.recommender.settings import RecommenderSettings
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings

if TYPE_CHECKING:
    from cotenant.base.kube import KubeClient
    from cotenant.base.settings.base import SettingSections
    from cotenant.scheduler_ext.reservations.model.plan import Plan
    from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef

app = new_app()

PlanArgument = Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="Reservation plan.", show_default=False)]
StartOption = Annotated[
    str, typer.Option("--start", metavar="TIME", help="Start of the occurrence, such as 2027-03-05T17:00:00Z.")
]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Write the change and record it in the ledger; without --yes nothing is written.")
]
OnceOption = Annotated[bool, typer.Option("--once", help="Decide only on the plan's next occurrence.")]
StandbyOption = Annotated[
    int | None,
    typer.Option("--standby", min=0, max=100, metavar="PODS", help="Pods for which capacity is reserved at all times."),
]
GenerationOption = Annotated[
    int | None,
    typer.Option(
        "--generation",
        min=1,
        metavar="N",
        help="Approve only if the plan still has this generation; a dry run shows it. Default: the present generation.",
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, which the plan's history shows.")]


@command(
    app,
    LIVE,
    "cotenant reservations approve shop/deployment-web  # a dry run",
    "cotenant reservations approve shop/deployment-web --once --yes",
    "cotenant reservations approve shop/deployment-web --generation 3 --yes  # fails if the plan has changed",
    "cotenant reservations approve shop/deployment-web --standby 0 --yes  # without standby capacity",
)
def approve(
    call: CommandCall,
    plan: PlanArgument,
    once: OnceOption = False,
    standby: StandbyOption = None,
    generation: GenerationOption = None,
    reason: ReasonOption = "",
    yes: YesOption = False,
) -> None:
    """Approve a plan: its capacity is reserved before each of its windows, by the plan's lead time.

    The plan is printed first. The approval fails if the plan has changed since it was printed.
    """
    from cotenant.scheduler_ext.reservations.acts import ApprovePlan
    from cotenant.scheduler_ext.reservations.model.plan import DecisionScope

    scope = DecisionScope.ONCE if once else DecisionScope.SERIES
    request = ApprovePlan(parse_plan(plan), scope, reason, standby, generation)
    carry_out(call.settings, request, yes)


@command(app, LIVE, "cotenant reservations reject shop/deployment-web --reason 'sale is over' --yes")
def reject(
    call: CommandCall, plan: PlanArgument, once: OnceOption = False, reason: ReasonOption = "", yes: YesOption = False
) -> None:
    """Reject a plan: it reserves no more capacity, and capacity that is reserved already is released."""
    from cotenant.scheduler_ext.reservations.acts import RejectPlan
    from cotenant.scheduler_ext.reservations.model.plan import DecisionScope

    scope = DecisionScope.ONCE if once else DecisionScope.SERIES
    carry_out(call.settings, RejectPlan(parse_plan(plan), reason, scope), yes)


@command(app, LIVE, "cotenant reservations skip shop/deployment-web-schedule --start 2027-03-05T17:00:00Z --yes")
def skip(call: CommandCall, plan: PlanArgument, start: StartOption, yes: YesOption = False) -> None:
    """Skip one occurrence of a scheduled plan; its other occurrences are not changed."""
    from cotenant.scheduler_ext.reservations.acts import SkipOccurrence

    carry_out(call.settings, SkipOccurrence(parse_plan(plan), _start(start)), yes)


@command(app, LIVE, "cotenant reservations unskip shop/deployment-web-schedule --start 2027-03-05T17:00:00Z --yes")
def unskip(call: CommandCall, plan: PlanArgument, start: StartOption, yes: YesOption = False) -> None:
    """Restore an occurrence of a scheduled plan that was skipped."""
    from cotenant.scheduler_ext.reservations.acts import RestoreOccurrence

    carry_out(call.settings, RestoreOccurrence(parse_plan(plan), _start(start)), yes)


def carry_out(settings: SettingSections, request: Any, yes: bool) -> None:
    """Send a request as a dry run, or with `yes` carry it out through the plan service and record it in the ledger."""
    from cotenant.base.kube import clock_of
    from cotenant.base.people import Grant, Person, Role
    from cotenant.scheduler_ext.reservations.acts import ApprovePlan, RejectPlan
    from cotenant.scheduler_ext.reservations.service.service import plan_service_of

    # The local person, under the name that the API server knows: the cluster decides on their rights.
    service = plan_service_of(settings, clock=clock_of(settings.section(KubeSettings)))
    who = Person("", grants=(Grant(Role.ADMIN),))
    if isinstance(request, ApprovePlan):
        from cotenant.scheduler_ext.reservations.commands.rows import terms_text

        read = service.plan(who, request.plan)
        chosen = read if request.standby is None else replace(read, standby=request.standby)
        lines = [
            f"{read.namespace}/{read.name}: {terms_text(read)}",
            f"plan generation {read.generation}: with --generation {read.generation} only this generation is approved",
            *_standby_lines(chosen),
        ]
        message("\n".join(lines))
        request = replace(request, generation=read.generation if request.generation is None else request.generation)
    if not yes:
        tried = service.try_out(who, request)
        done = "dry run: the API server accepts the change; nothing was written. Repeat with --yes to write the change"
        message(f"{tried.intent.address}: {tried.intent.why}; {done}")
        for line in tried.lines:
            message(f"  {line.pointer}: {line.now} -> {line.new}")
        return
    plan, done = service.do(who, request), "written"
    if isinstance(request, ApprovePlan):
        beside = "".join(f"\n{line}" for line in _standby_lines(plan))
        done = f"the approval by {plan.approval.by if plan.approval else ''} was written to the plan"
        if plan.status.window:
            at = datetime.fromtimestamp(plan.status.reserve_at_seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
            is_past = plan.status.reserve_at_seconds <= clock_of(settings.section(KubeSettings)).now_seconds()
            when = f"is being reserved now, later than the due time {at}" if is_past else f"will be reserved at {at}"
            done += f"\ncapacity for the plan {when}"
        done += beside
    elif isinstance(request, RejectPlan):
        done = f"the rejection by {plan.approval.by if plan.approval else ''} was written to the plan"
    message(f"reservationplans/{request.plan}: {done}")


def parse_plan(text: str) -> PlanRef:
    """Return the plan that a text of the form NAMESPACE/NAME names; raise UsageError for any other form."""
    from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef

    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise UsageError(f"plan {text!r} is not NAMESPACE/NAME", fix="Write it like shop/deployment-web.")
    return PlanRef(namespace, name)


def _standby_lines(plan: Plan) -> list[str]:
    """Return a line with the standby capacity that an approval covers; no line without any."""
    if not plan.standby:
        return []
    return [
        f"standby: capacity for {counted(plan.standby, 'more pod')} of "
        f"{plan.cores_per_pod:g} cores is reserved at all times, "
        f"at most {plan.standby_core_hours:.1f} idle core-hours a day; --standby 0 approves the plan without standby"
    ]


WorkloadArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAMESPACE/KIND/NAME", help="Workload.", show_default=False, autocompletion=workload_addresses
    ),
]


@app.callback(
    epilog=examples(
        "cotenant reservations list --proposed  # proposals of the last scan, without a cluster",
        "cotenant reservations list",
        "cotenant reservations preview shop/deployment-web",
        "cotenant reservations approve shop/deployment-web --yes",
    )
)
def _family() -> None:
    """Reserve capacity before a workload needs it."""


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
        bool, typer.Option("--proposed", help="List the plans that the last scan proposes; needs no cluster.")
    ] = False,
    namespace: NamespaceOption = None,
) -> None:
    """List the reservation plans of the cluster, or with --proposed those that the last scan proposes."""
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
        where = f" in {', '.join(namespace)}" if namespace else ""
        last = "`cotenant reservations list --proposed` lists the last scan's proposals"
        message(f"no reservation plan exists{where}; {last}")
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
    """Show one plan as an object: its terms, its approval, its present phase and the scores of past occurrences."""
    print_document(_read(call.settings, plan), call.output)


@command(app, LIVE | ROWS, "cotenant reservations scores shop/deployment-web -o csv")
def scores(call: CommandCall, plan: PlanArgument) -> None:
    """Show each past occurrence of a plan: capacity reserved, used, lacking and idle, and how early it was reserved."""
    from cotenant.scheduler_ext.reservations.commands.rows import score_table

    table = score_table(_read(call.settings, plan))
    call.print(table)
    if not len(table):
        message("no occurrence has ended yet")


@command(app, LIVE | ROWS, "cotenant reservations report shop/deployment-web")
def report(call: CommandCall, plan: PlanArgument) -> None:
    """Report on a plan's last occurrence: expected and actual pods, coverage, idle capacity, benefit of the plan."""
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
    """Show what approving a plan would do: where its pods fit, remaining quota, displaced batch work, cost."""
    from cotenant.changes.forecasted_usage import ahead_of
    from cotenant.scheduler_ext.reservations.commands.rows import preview_table
    from cotenant.scheduler_ext.reservations.service.plans import nothing_ahead, preview_plan

    settings = call.settings
    plan_read, client = _read(settings, plan), _client(settings)
    now_seconds = client.clock().now_seconds()
    try:
        ahead = ahead_of(open_store(settings, session_of(call.ctx).cluster))
    except CotenantError:
        ahead = nothing_ahead  # no store of the named cluster, or of the only one: no forecast is known
    plan_preview = preview_plan(client, plan_read, now_seconds, settings, ahead)
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
    pods: Annotated[int, typer.Option("--pods", min=1, max=10_000, help="Number of pods to reserve capacity for.")],
    length: Annotated[str, typer.Option("--for", metavar="DURATION", help="Length of each window, such as 2h.")],
    schedule: Annotated[
        str, typer.Option("--schedule", metavar="CRON", help="Starts of the windows, as five cron fields.")
    ] = "",
    zone: Annotated[str, typer.Option("--zone", metavar="IANA", help="Time zone of the schedule.")] = "Etc/UTC",
    start: Annotated[str, typer.Option("--start", metavar="TIME", help="Start of a single window (RFC 3339).")] = "",
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of the plan. Default: derived from the workload.")
    ] = "",
    standby: StandbyOption = None,
    yes: YesOption = False,
) -> None:
    """Create a plan for a schedule or one window, sized by the workload's requests. It needs an approval afterwards."""
    from cotenant.base.kube import clock_of
    from cotenant.base.kubernetes.moments import seconds_of
    from cotenant.scheduler_ext.reservations.acts import MakePlan
    from cotenant.scheduler_ext.reservations.model.plan import Recurrence, Span
    from cotenant.scheduler_ext.reservations.model.plan_service import PlanTerms

    settings = call.settings
    ref = named_workload(settings, None, workload)
    seconds = seconds_of(length, "--for")
    if bool(schedule) is bool(start) or seconds <= 0:
        fix = "Write for example --schedule '0 18 * * 1-5' --for 2h."
        raise UsageError("a plan needs either --schedule or --start, and a positive --for", fix=fix)
    recurring = window = None
    if schedule:
        recurring = Recurrence(schedule, zone, seconds)
    else:
        begin = _start(start)
        window = Span(begin, begin + seconds)
        if window.end_seconds <= clock_of(settings.section(KubeSettings)).now_seconds():
            raise UsageError(f"the window of --start {start!r} is already over", fix="Give a later start.")
    request = MakePlan(ref, PlanTerms(pods, window=window, recurring=recurring, standby=standby or 0), name)
    carry_out(settings, request, yes)
    message(f"approve the plan with: cotenant reservations approve {request.plan} --yes")


@command(
    app,
    STORED | ROWS,
    "cotenant reservations backtest shop/Deployment/web",
    "cotenant reservations backtest shop/Deployment/web -o csv",
)
def backtest(call: CommandCall, workload: WorkloadArgument) -> None:
    """Replay the stored days: what each quantile, last week's demand and a constant headroom would have reserved."""
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
    message(f"replayed {past.days:.0f} days, one forecast a day; a missed core-hour equals {ratio:g} idle core-hours")


def _read(settings: SettingSections, name: str) -> Plan:
    from cotenant.scheduler_ext.reservations.service.plans import plan

    ref = parse_plan(name)
    return plan(_client(settings), ref.namespace, ref.name)


def _client(settings: SettingSections) -> KubeClient:
    from cotenant.base.kube import connect

    return connect(settings.section(KubeSettings))


def _start(text: str) -> float:
    from cotenant.base.kubernetes.moments import moment_of

    at = moment_of(text, "--start")
    if at is None:
        raise UsageError("--start is empty", fix="Write a time in UTC, such as 2027-03-05T17:00:00Z.")
    return at
