"""`cotenant reservations`: capacity for workloads before they need it: proposed, previewed, approved, back-tested."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.apps.cli.analysis.results import ClusterOption, NamespaceOption, StoreOption, chosen, open_store
from cotenant.apps.cli.cluster.install import ContextOption, KubeconfigOption
from cotenant.apps.cli.command import examples, new_app, session_of
from cotenant.apps.cli.completion import workload_addresses
from cotenant.apps.cli.output import (
    DocumentFormat,
    DocumentOption,
    Format,
    NoHeadersOption,
    OutputOption,
    message,
    print_document,
    print_table,
)
from cotenant.apps.cli.reservations import skips
from cotenant.core.model.errors import CotenantError, UsageError
from cotenant.core.model.identity import WorkloadRef

if TYPE_CHECKING:
    from changes.plans.plans import Ahead
    from changes.plans.service import ClusterPlanService
    from cotenant.core.adapters.kube import KubeClient
    from cotenant.core.model.changes.people import Someone
    from cotenant.core.model.kubernetes.intent import Apply, Create
    from cotenant.core.model.reservations.plan import PlanDecision, Recurrence, Span
    from cotenant.core.settings.root import Settings

app = new_app()
app.registered_commands.extend(skips.app.registered_commands)

PlanArgument = Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="The plan.", show_default=False)]
WorkloadArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAMESPACE/KIND/NAME", help="The workload.", show_default=False, autocompletion=workload_addresses
    ),
]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Do it, and write it into the ledger; without it the API server only checks.")
]
OnceOption = Annotated[bool, typer.Option("--once", help="For the next occurrence only, not for all.")]
ByOption = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who decides; else the login name.")]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for those who read it later.")]


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


@app.command(
    name="list", epilog=examples("cotenant reservations list -n shop", "cotenant reservations list --proposed -o csv")
)
def list_(
    ctx: typer.Context,
    proposed: Annotated[
        bool, typer.Option("--proposed", help="What the stored results propose, without asking a cluster.")
    ] = False,
    namespace: NamespaceOption = None,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """List plans of the cluster, or with --proposed what the last scan found worth reserving."""
    settings = _settings(ctx, kubeconfig, context, store)
    if proposed:
        from cotenant.core.model.views import PLANS

        rows = open_store(settings, cluster).read_table(PLANS)
        print_table(chosen(rows, namespace, None), output, headers=not no_headers)
        return
    from changes.plans.plans import plans
    from cotenant.apps.cli.reservations.rows import plan_table

    listed = plans(_client(settings), namespace or ())
    print_table(plan_table(listed), output, headers=not no_headers)
    if not listed:
        message("no reservation plan; `cotenant reservations list --proposed` shows what the last scan proposes")


@app.command(
    epilog=examples("cotenant reservations show shop/deployment-web", "cotenant reservations show shop/web -o yaml")
)
def show(
    ctx: typer.Context,
    plan: PlanArgument,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = DocumentFormat.TABLE,
) -> None:
    """Show one plan: what it asks for, where it is in its life, how past occurrences went."""
    from changes.plans.plans import plan as read

    name = _named(plan)
    print_document(read(_client(_settings(ctx, kubeconfig, context)), *name), output)


@app.command(epilog=examples("cotenant reservations scores shop/deployment-web -o csv"))
def scores(
    ctx: typer.Context,
    plan: PlanArgument,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Show how a plan's past occurrences went: reserved, used, missed, idle, lead."""
    from changes.plans.plans import plan as read
    from cotenant.apps.cli.reservations.rows import score_table

    name = _named(plan)
    table = score_table(read(_client(_settings(ctx, kubeconfig, context)), *name))
    print_table(table, output, headers=not no_headers)
    if not len(table):
        message("no occurrence has ended yet")


@app.command(epilog=examples("cotenant reservations report shop/deployment-web"))
def report(
    ctx: typer.Context,
    plan: PlanArgument,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Show what a plan's last peak came to: expected and seen, covered or not, idle, and what would be without it."""
    from changes.plans.plans import plan as read
    from cotenant.apps.cli.reservations.rows import report_table
    from cotenant.core.model.reservations.occurrence_report import reports

    settings = _settings(ctx, kubeconfig, context)
    newest = next(iter(reports(read(_client(settings), *_named(plan)))), None)
    if newest is None:
        message("no occurrence has ended yet")
        return
    print_table(report_table(newest, settings.recommender.prices.currency), output, headers=not no_headers)


@app.command(
    epilog=examples(
        "cotenant reservations preview shop/deployment-web", "cotenant reservations preview shop/web -o json"
    )
)
def preview(
    ctx: typer.Context,
    plan: PlanArgument,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Show what approving a plan would mean: where its pods fit, quota left, batch displaced, money."""
    from changes.plans.plans import plan as read
    from changes.plans.plans import previewed
    from cotenant.apps.cli.reservations.rows import preview_table

    name = _named(plan)
    settings = _settings(ctx, kubeconfig, context)
    client = _client(settings)
    plan_preview = previewed(client, read(client, *name), _now(), settings, _ahead(settings))
    print_table(preview_table(plan_preview, settings.recommender.prices.currency), output, headers=not no_headers)


@app.command(
    epilog=examples(
        "cotenant reservations plan shop/Deployment/web --pods 4 --schedule '0 18 * * *' --zone Asia/Tokyo --for 2h",
        "cotenant reservations plan shop/Deployment/web --pods 4 --start 2027-03-05T18:00:00Z --for 2h --yes",
    )
)
def plan(
    ctx: typer.Context,
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
    yes: YesOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Make a plan by schedule or for one window, sized by the workload's own requests; it still has to be approved."""
    from changes.plans.plans import created, new_plan
    from cotenant.core.model.reservations.plan import Recurrence, proposal_name
    from cotenant.core.model.reservations.plan_service import PlanTerms

    ref, settings = _workload(workload), _settings(ctx, kubeconfig, context)
    when = _when(schedule, zone, start, length)
    title = name or f"{proposal_name(ref)}-{'schedule' if schedule else 'once'}"
    if yes:
        recurring, window = (when, None) if isinstance(when, Recurrence) else (None, when)
        _desk(settings).make(_person(_login()), ref, PlanTerms(pods, window, recurring), title)
        message(f"reservationplans/{ref.namespace}/{title}: written")
    else:
        client = _client(settings)
        _check(client, created(client, new_plan((ref.namespace, ref.kind, ref.name), title, pods, when)))
    message(f"approve it with: cotenant reservations approve {ref.namespace}/{title} --yes")


@app.command(
    epilog=examples(
        "cotenant reservations approve shop/deployment-web  # a dry run",
        "cotenant reservations approve shop/deployment-web --once --yes",
    )
)
def approve(
    ctx: typer.Context,
    plan: PlanArgument,
    once: OnceOption = False,
    reason: ReasonOption = "",
    by: ByOption = None,
    yes: YesOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Approve a plan: its capacity is reserved at the start of its window less the lead."""
    from cotenant.core.model.reservations.plan import PlanDecision

    name = _named(plan)
    _decide(_settings(ctx, kubeconfig, context), name, PlanDecision.APPROVED, (once, reason, by, yes))


@app.command(epilog=examples("cotenant reservations reject shop/deployment-web --reason 'sale is over' --yes"))
def reject(
    ctx: typer.Context,
    plan: PlanArgument,
    once: OnceOption = False,
    reason: ReasonOption = "",
    by: ByOption = None,
    yes: YesOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Reject a plan: nothing is reserved, and what is reserved is released."""
    from cotenant.core.model.reservations.plan import PlanDecision

    name = _named(plan)
    _decide(_settings(ctx, kubeconfig, context), name, PlanDecision.REJECTED, (once, reason, by, yes))


@app.command(
    epilog=examples(
        "cotenant reservations backtest shop/Deployment/web",
        "cotenant reservations backtest shop/Deployment/web -o csv",
    )
)
def backtest(
    ctx: typer.Context,
    workload: WorkloadArgument,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Replay the last days from the store: what each quantile, last week's cron and a static headroom would reserve."""
    from cotenant.apps.cli.reservations.rows import BACKTESTS
    from cotenant.apps.pipeline.nodes import POD_SIGNAL
    from cotenant.apps.pipeline.plans import rehearsal
    from cotenant.apps.pipeline.shards.work import workload_totals
    from cotenant.apps.pipeline.stored_history import load
    from cotenant.core.model.resource import Resource
    from cotenant.core.model.table import Table
    from recommender.plans.proposals import contest

    settings = session_of(ctx).load({"store.url": store}).settings
    history = load(open_store(settings, cluster), settings)
    usage = workload_totals(history)[1][POD_SIGNAL[Resource.CPU]]
    size, past = rehearsal(history.inventory, usage, _workload(workload), settings)
    cores, ratio = size.request_millicores / 1000, settings.plans.miss_cost_ratio
    rows = [
        {
            "policy": policy,
            "held_core_hours": ledger.held * cores,
            "hit": ledger.hit_ratio,
            "coverage": ledger.coverage,
            "missed_peaks": ledger.missed_peaks,
            "peaks": ledger.peaks,
            "idle_core_hours": ledger.idle * cores,
            "cost": ledger.cost(ratio) * cores,
            "chosen": "*" if chosen else "",
        }
        for policy, ledger, chosen in contest(size, past, settings.plans)
    ]
    print_table(Table.from_rows(BACKTESTS, rows), output, headers=not no_headers)
    message(f"the last {past.days:.0f} days, forecast once a day; a missed core-hour costs {ratio:g} idle ones")


def _settings(
    ctx: typer.Context, kubeconfig: str | None, context: str | None, store: str | None = None
) -> Settings:  # fmt: skip
    return session_of(ctx).load({"kube.kubeconfig": kubeconfig, "kube.context": context, "store.url": store}).settings


def _client(settings: Settings) -> KubeClient:
    from cotenant.core.adapters.kube import connect

    return connect(settings.kube)


def _now() -> float:
    from cotenant.core.adapters.clock import SystemClock

    return SystemClock().now_seconds()


def _named(text: str) -> tuple[str, str]:
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise UsageError(f"{text!r} is not NAMESPACE/NAME", fix="Write it as in shop/deployment-web.")
    return namespace, name


def _workload(text: str) -> WorkloadRef:
    parts = text.split("/")
    if len(parts) != 3 or not all(parts):
        raise UsageError(f"{text!r} is not NAMESPACE/KIND/NAME", fix="Write it as in shop/Deployment/web.")
    return WorkloadRef(*parts)


def _when(schedule: str, zone: str, start: str, length: str) -> Recurrence | Span:
    from cotenant.core.model.reservations.plan import Recurrence, Span
    from cotenant.core.model.reservations.reservation import moment_of, seconds_of

    seconds = seconds_of(length, "--for")
    if bool(schedule) is bool(start) or seconds <= 0:
        raise UsageError("give --schedule or --start, and a length", fix="--schedule '0 18 * * 1-5' --for 2h")
    if schedule:
        return Recurrence(schedule, zone, seconds)
    begin = moment_of(start, "--start")
    if begin is None or begin + seconds <= _now():
        raise UsageError(f"--start {start!r}: the window is already over", fix="Give a time to come.")
    return Span(begin, begin + seconds)


def _decide(
    settings: Settings, name: tuple[str, str], word: PlanDecision, arguments: tuple[bool, str, str | None, bool]
) -> None:
    """Runs as a dry run, or for good through the plan service, which writes it into the ledger."""
    from changes.plans.plans import decided
    from changes.plans.plans import plan as read
    from cotenant.core.model.reservations.plan import Approval, DecisionScope
    from cotenant.core.model.reservations.plan import PlanDecision as Word
    from cotenant.core.model.reservations.plan_service import PlanRef

    once, reason, by, yes = arguments
    scope, who = DecisionScope.ONCE if once else DecisionScope.SERIES, by or _login()
    if not yes:
        client = _client(settings)
        _check(client, decided(read(client, *name), Approval(word, scope, who, _now(), reason)))
        return
    desk, ref = _desk(settings), PlanRef(*name)
    if word is Word.REJECTED:
        desk.reject(_person(who), ref, reason, scope)
        message(f"reservationplans/{ref}: Rejected by {who}; written")
        return
    decided_plan = desk.approve(_person(who), ref, scope, reason)
    message(f"reservationplans/{ref}: Approved by {who}; written")
    if decided_plan.status.window:
        at = datetime.fromtimestamp(decided_plan.status.reserve_at_seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
        message(f"capacity for {decided_plan.count} pods will be reserved at {at}")


def _ahead(settings: Settings) -> Ahead:
    """What nodes will use, by the only store that there is; without one nobody knows."""
    from changes.forecasted_usage import ahead_of
    from changes.plans.plans import nothing_ahead

    try:
        return ahead_of(open_store(settings, None))
    except CotenantError:
        return nothing_ahead


def _desk(settings: Settings) -> ClusterPlanService:
    from cotenant.apps.cli.changes.change_service import plan_desk_of

    return plan_desk_of(settings)


def _login() -> str:
    """Name of the account; UsageError where it has none, as in a container with a user of its own number."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError) as error:
        raise UsageError("this account has no name", fix="Give --by NAME, or set LOGNAME.") from error


def _person(name: str) -> Someone:
    """The local person; the cluster decides on their rights."""
    from cotenant.core.model.changes.people import Grant, Role, Someone

    return Someone(name, grants=(Grant(Role.ADMIN),))


def _check(client: KubeClient, intent: Apply | Create) -> None:
    """Whether the API server would take it."""
    from changes.plans.plans import FIELD_MANAGER
    from cotenant.core.adapters.kube import Writer

    Writer(client, FIELD_MANAGER).send(intent, dry_run=True)
    done = "the API server would take it; nothing was written. Do it with --yes"
    message(f"{intent.address}: {intent.why}; {done}")
