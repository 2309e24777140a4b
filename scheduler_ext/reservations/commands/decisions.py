"""EDGE: `cotenant reservations approve|reject|skip|unskip`: decisions about a plan, tried on the server or done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base.commands.cluster_options import Context, Kubeconfig, settings_of
from cotenant.base.commands.command import examples, new_app
from cotenant.base.commands.output import message
from cotenant.base.errors import UsageError
from cotenant.base.settings.sections.kube import KubeSettings
from cotenant.base.text import counted

if TYPE_CHECKING:
    from cotenant.base.kube import KubeClient
    from cotenant.base.kubernetes.intent import Apply, Create, Patch
    from cotenant.base.people import Person
    from cotenant.base.settings.root import SettingSections
    from cotenant.scheduler_ext.reservations.model.plan import DecisionScope, Plan, PlanDecision
    from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef, PlanService
    from cotenant.scheduler_ext.reservations.service.service import ClusterPlanService

    Trial = Callable[[Plan, float, str], Apply | Patch]
    """The write of a decision, from the plan, the time (Unix seconds), and one's name at the API server."""
    PlanAct = Callable[[PlanService, PlanRef], str]
    """The decision through the plan service, and what is said of it."""

app = new_app()

PlanArgument = Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="The plan.", show_default=False)]
StartOption = Annotated[
    str, typer.Option("--start", metavar="TIME", help="Start of the occurrence, as 2027-03-05T17:00:00Z.")
]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Do it, and write it into the ledger; without it the API server only checks.")
]
OnceOption = Annotated[bool, typer.Option("--once", help="For the next occurrence only, not for all.")]
StandbyOption = Annotated[
    int | None,
    typer.Option(
        "--standby", min=0, max=100, metavar="PODS", help="Pods that capacity is kept ready for at any time; 0 is none."
    ),
]
GenerationOption = Annotated[
    int | None,
    typer.Option(
        "--generation",
        min=1,
        metavar="N",
        help="Only if the plan still is this one, as the dry run has printed; else the one that is printed now.",
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for those who read it later.")]


@app.command(
    epilog=examples(
        "cotenant reservations approve shop/deployment-web  # a dry run",
        "cotenant reservations approve shop/deployment-web --once --yes",
        "cotenant reservations approve shop/deployment-web --generation 3 --yes  # only as the dry run showed it",
        "cotenant reservations approve shop/deployment-web --standby 0 --yes  # its windows alone",
    )
)
def approve(
    ctx: typer.Context,
    plan: PlanArgument,
    once: OnceOption = False,
    standby: StandbyOption = None,
    generation: GenerationOption = None,
    reason: ReasonOption = "",
    yes: YesOption = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Approve a plan: its capacity is reserved at the start of its window less the lead.

    The plan is printed first, and approved only as printed.
    """
    from cotenant.base.kube import clock_of
    from cotenant.scheduler_ext.reservations.model.plan import DecisionScope, PlanDecision

    scope = DecisionScope.ONCE if once else DecisionScope.SERIES

    def act(service: PlanService, ref: PlanRef) -> str:
        read = service.plan(person(""), ref)
        _print_approved(read, standby)
        seen = read.generation if generation is None else generation
        approved = service.approve(person(""), ref, scope, reason, standby, seen)
        beside = "".join(f"\n{line}" for line in _window_and_standby_text(approved).splitlines())
        if not approved.status.window:
            return f"Approved by {_approver_name(approved)}; written{beside}"
        at = datetime.fromtimestamp(approved.status.reserve_at_seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
        is_past = approved.status.reserve_at_seconds <= clock_of(settings.section(KubeSettings)).now_seconds()
        when = f"is reserved now: its time, {at}, has passed" if is_past else f"will be reserved at {at}"
        then = f"capacity for {counted(approved.count, 'pod')} {when}{beside}"
        return f"Approved by {_approver_name(approved)}; written\n{then}"

    settings = settings_of(ctx, None, kubeconfig, context)
    _act(settings, plan, yes, _approval(PlanDecision.APPROVED, scope, reason, standby, generation), act)


@app.command(epilog=examples("cotenant reservations reject shop/deployment-web --reason 'sale is over' --yes"))
def reject(
    ctx: typer.Context,
    plan: PlanArgument,
    once: OnceOption = False,
    reason: ReasonOption = "",
    yes: YesOption = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Reject a plan: nothing is reserved, and what is reserved is released."""
    from cotenant.scheduler_ext.reservations.model.plan import DecisionScope, PlanDecision

    scope = DecisionScope.ONCE if once else DecisionScope.SERIES

    def act(service: PlanService, ref: PlanRef) -> str:
        rejected = service.reject(person(""), ref, reason, scope)
        return f"Rejected by {_approver_name(rejected)}; written"

    settings = settings_of(ctx, None, kubeconfig, context)
    _act(settings, plan, yes, _approval(PlanDecision.REJECTED, scope, reason), act)


@app.command(
    epilog=examples("cotenant reservations skip shop/deployment-web-schedule --start 2027-03-05T17:00:00Z --yes")
)
def skip(
    ctx: typer.Context,
    plan: PlanArgument,
    start: StartOption,
    yes: YesOption = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Leave out one occurrence of a schedule; the others stay."""
    from cotenant.scheduler_ext.reservations.service.terms import skip_start_patch

    at = _moment(start)

    def act(service: PlanService, ref: PlanRef) -> str:
        service.skip(person(""), ref, at)
        return "written"

    settings = settings_of(ctx, None, kubeconfig, context)
    _act(settings, plan, yes, lambda plan, now_seconds, _name: skip_start_patch(plan, at, now_seconds), act)


@app.command(
    epilog=examples("cotenant reservations unskip shop/deployment-web-schedule --start 2027-03-05T17:00:00Z --yes")
)
def unskip(
    ctx: typer.Context,
    plan: PlanArgument,
    start: StartOption,
    yes: YesOption = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Let a skipped occurrence of a schedule happen after all."""
    from cotenant.scheduler_ext.reservations.service.terms import restore_start_patch

    at = _moment(start)

    def act(service: PlanService, ref: PlanRef) -> str:
        service.restore(person(""), ref, at)
        return "written"

    settings = settings_of(ctx, None, kubeconfig, context)
    _act(settings, plan, yes, lambda plan, now_seconds, _name: restore_start_patch(plan, at, now_seconds), act)


def parse_plan_name(text: str) -> tuple[str, str]:
    """Namespace and name of a plan."""
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise UsageError(f"{text!r} is not NAMESPACE/NAME", fix="Write it as in shop/deployment-web.")
    return namespace, name


def service_of(settings: SettingSections) -> ClusterPlanService:
    """The plan service, which writes into the ledger."""
    from cotenant.base.kube import clock_of
    from cotenant.scheduler_ext.reservations.service.configured_service import plan_service_of

    return plan_service_of(settings, clock=clock_of(settings.section(KubeSettings)))


def _approver_name(plan: Plan) -> str:
    """The name below its approval."""
    return plan.approval.by if plan.approval else ""


def person(name: str) -> Person:
    """The local person, "" under the name that the API server knows; the cluster decides on their rights."""
    from cotenant.base.people import Grant, Person, Role

    return Person(name, grants=(Grant(Role.ADMIN),))


def check(client: KubeClient, intent: Apply | Create | Patch) -> None:
    """Check by a dry run that the API server would accept the intent; nothing is written."""
    from cotenant.base.kube import Writer
    from cotenant.changes.sent_writes import sent
    from cotenant.scheduler_ext.reservations.service.plans import FIELD_MANAGER

    lines = sent(Writer(client, FIELD_MANAGER), intent, dry_run=True).lines
    done = "the API server would take it; nothing was written. Do it with --yes"
    message(f"{intent.address}: {intent.why}; {done}")
    for line in lines:
        message(f"  {line.pointer}: {line.now} -> {line.new}")


def _approval(
    decision: PlanDecision,
    scope: DecisionScope,
    reason: str,
    standby: int | None = None,
    generation: int | None = None,
) -> Trial:
    from cotenant.scheduler_ext.reservations.model.plan import Approval, PlanDecision
    from cotenant.scheduler_ext.reservations.service.plans import decide_plan, require_seen

    def trial(plan: Plan, now_seconds: float, name: str) -> Apply:
        require_seen(plan, generation)
        if decision is PlanDecision.APPROVED:
            _print_approved(plan, standby)
        return decide_plan(plan, Approval(decision, scope, name, now_seconds, reason), standby)

    return trial


def _print_approved(plan: Plan, standby: int | None) -> None:
    """Print what an approval with this standby (None: the plan's own) lets be reserved, and the generation."""
    from cotenant.scheduler_ext.reservations.commands.rows import terms_text

    chosen = plan if standby is None else replace(plan, standby=standby)
    lines = [
        f"{plan.namespace}/{plan.name}: {terms_text(plan)}",
        f"generation {plan.generation}; --generation {plan.generation} approves no other",
        *_window_and_standby_text(chosen).splitlines(),
    ]
    message("\n".join(lines))


def _window_and_standby_text(plan: Plan) -> str:
    """Return the windows that an approval covers and the standby capacity, a line each; "" for neither."""
    from cotenant.scheduler_ext.reservations.commands.rows import window_text

    lines = [f"windows (UTC): {window_text(plan.windows)}"] if plan.windows else []
    if plan.standby:
        lines.append(
            f"standby: capacity for {counted(plan.standby, 'more pod')} of "
            f"{plan.cores_per_pod:g} cores at any time, "
            f"at most {plan.standby_core_hours:.1f} idle core-hours a day; --standby 0 leaves it out"
        )
    return "\n".join(lines)


def _act(settings: SettingSections, plan: str, yes: bool, trial: Trial, act: PlanAct) -> None:
    """Runs as a dry run on the server, or for good through the plan service, which writes it into the ledger."""
    from contextlib import closing

    from cotenant.base.kube import connect
    from cotenant.changes.live_context import who as asked_who
    from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef
    from cotenant.scheduler_ext.reservations.service import plans

    ref = PlanRef(*parse_plan_name(plan))
    if yes:
        message(f"reservationplans/{ref}: {act(service_of(settings), ref)}")
        return
    with closing(connect(settings.section(KubeSettings))) as client:
        now_seconds = client.clock().now_seconds()
        check(client, trial(plans.plan(client, ref.namespace, ref.name), now_seconds, asked_who(client).name))


def _moment(start: str) -> float:
    from cotenant.base.kubernetes.moments import moment_of

    at = moment_of(start, "--start")
    if at is None:
        raise UsageError("--start is empty", fix="Write a moment in UTC, as 2027-03-05T17:00:00Z.")
    return at
