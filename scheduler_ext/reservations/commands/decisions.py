"""EDGE: `cotenant reservations approve|reject|skip|unskip`: decisions about a plan, tried on the server or done."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.base.commands.call import LIVE, CommandCall, command
from cotenant.base.commands.output import message
from cotenant.base.commands.session import new_app
from cotenant.base.errors import UsageError
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.text import counted

if TYPE_CHECKING:
    from cotenant.base.people import Person
    from cotenant.base.settings.base import SettingSections
    from cotenant.scheduler_ext.reservations.model.plan import Plan
    from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef
    from cotenant.scheduler_ext.reservations.service.service import ClusterPlanService

app = new_app()

PlanArgument = Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="The plan.", show_default=False)]
StartOption = Annotated[
    str, typer.Option("--start", metavar="TIME", help="Start of the occurrence, as 2027-03-05T17:00:00Z.")
]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Apply it and record it in the ledger; without it the API server only checks.")
]
OnceOption = Annotated[bool, typer.Option("--once", help="For the next occurrence only, not for all.")]
StandbyOption = Annotated[
    int | None,
    typer.Option(
        "--standby", min=0, max=100, metavar="PODS", help="Pods for which capacity is reserved at all times; 0 is none."
    ),
]
GenerationOption = Annotated[
    int | None,
    typer.Option(
        "--generation",
        min=1,
        metavar="N",
        help="Only if the plan still has this generation, as printed by the dry run; default: the present one.",
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, for later readers.")]


@command(
    app,
    LIVE,
    "cotenant reservations approve shop/deployment-web  # a dry run",
    "cotenant reservations approve shop/deployment-web --once --yes",
    "cotenant reservations approve shop/deployment-web --generation 3 --yes  # only as the dry run showed it",
    "cotenant reservations approve shop/deployment-web --standby 0 --yes  # its windows alone",
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
    """Approve a plan: its capacity is reserved at the start of its window less the lead.

    The plan is printed first, and approved only as printed.
    """
    from cotenant.scheduler_ext.reservations.acts import ApprovePlan
    from cotenant.scheduler_ext.reservations.model.plan import DecisionScope

    scope = DecisionScope.ONCE if once else DecisionScope.SERIES
    asked = ApprovePlan(parse_plan(plan), scope, reason, standby, generation)
    carry_out(call.settings, asked, yes)


@command(app, LIVE, "cotenant reservations reject shop/deployment-web --reason 'sale is over' --yes")
def reject(
    call: CommandCall, plan: PlanArgument, once: OnceOption = False, reason: ReasonOption = "", yes: YesOption = False
) -> None:
    """Reject a plan: nothing is reserved, and what is reserved is released."""
    from cotenant.scheduler_ext.reservations.acts import RejectPlan
    from cotenant.scheduler_ext.reservations.model.plan import DecisionScope

    scope = DecisionScope.ONCE if once else DecisionScope.SERIES
    carry_out(call.settings, RejectPlan(parse_plan(plan), reason, scope), yes)


@command(app, LIVE, "cotenant reservations skip shop/deployment-web-schedule --start 2027-03-05T17:00:00Z --yes")
def skip(call: CommandCall, plan: PlanArgument, start: StartOption, yes: YesOption = False) -> None:
    """Leave out one occurrence of a schedule; the others stay."""
    from cotenant.scheduler_ext.reservations.acts import SkipOccurrence

    asked = SkipOccurrence(parse_plan(plan), _moment(start))
    carry_out(call.settings, asked, yes)


@command(app, LIVE, "cotenant reservations unskip shop/deployment-web-schedule --start 2027-03-05T17:00:00Z --yes")
def unskip(call: CommandCall, plan: PlanArgument, start: StartOption, yes: YesOption = False) -> None:
    """Let a skipped occurrence of a schedule happen after all."""
    from cotenant.scheduler_ext.reservations.acts import RestoreOccurrence

    asked = RestoreOccurrence(parse_plan(plan), _moment(start))
    carry_out(call.settings, asked, yes)


def carry_out(settings: SettingSections, asked: Any, yes: bool) -> None:
    """Try a request on the server, or do it through the plan service, which writes it into the ledger."""
    from cotenant.scheduler_ext.reservations.acts import ApprovePlan, RejectPlan

    service, who = service_of(settings), person("")
    if isinstance(asked, ApprovePlan):
        read = service.plan(who, asked.plan)
        _print_approved(read, asked.standby)
        asked = replace(asked, generation=read.generation if asked.generation is None else asked.generation)
    if not yes:
        tried = service.try_out(who, asked)
        done = "the API server would take it; nothing was written. Do it with --yes"
        message(f"{tried.intent.address}: {tried.intent.why}; {done}")
        for line in tried.lines:
            message(f"  {line.pointer}: {line.now} -> {line.new}")
        return
    plan, done = service.do(who, asked), "written"
    if isinstance(asked, ApprovePlan):
        done = _approved_words(settings, plan)
    elif isinstance(asked, RejectPlan):
        done = f"Rejected by {_approver_name(plan)}; written"
    message(f"reservationplans/{asked.plan}: {done}")


def _approved_words(settings: SettingSections, approved: Plan) -> str:
    """Describe what an approval comes to: when which capacity is reserved."""
    from cotenant.base.kube import clock_of

    head = f"Approved by {_approver_name(approved)}; written"
    beside = "".join(f"\n{line}" for line in _window_and_standby_text(approved).splitlines())
    if not approved.status.window:
        return f"{head}{beside}"
    at = datetime.fromtimestamp(approved.status.reserve_at_seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    is_past = approved.status.reserve_at_seconds <= clock_of(settings.section(KubeSettings)).now_seconds()
    when = f"is reserved now: its time, {at}, has passed" if is_past else f"will be reserved at {at}"
    return f"{head}\ncapacity for {counted(approved.count, 'pod')} {when}{beside}"


def parse_plan(text: str) -> PlanRef:
    """Return the plan that a text names."""
    from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef

    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise UsageError(f"{text!r} is not NAMESPACE/NAME", fix="Write it as in shop/deployment-web.")
    return PlanRef(namespace, name)


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


def _print_approved(plan: Plan, standby: int | None) -> None:
    """Print what an approval with this standby (None: the plan's own) lets be reserved, and the generation."""
    from cotenant.scheduler_ext.reservations.commands.rows import terms_text

    chosen = plan if standby is None else replace(plan, standby=standby)
    lines = [
        f"{plan.namespace}/{plan.name}: {terms_text(plan)}",
        f"generation {plan.generation}; --generation {plan.generation} approves only this one",
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


def _moment(start: str) -> float:
    from cotenant.base.kubernetes.moments import moment_of

    at = moment_of(start, "--start")
    if at is None:
        raise UsageError("--start is empty", fix="Write a time in UTC, as 2027-03-05T17:00:00Z.")
    return at
