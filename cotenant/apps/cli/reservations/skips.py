"""`cotenant reservations skip|unskip`: one occurrence of a schedule left out, or brought back."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.apps.cli.cluster.install import ContextOption, KubeconfigOption
from cotenant.apps.cli.command import examples, new_app, session_of
from cotenant.apps.cli.output import message
from cotenant.core.model.errors import UsageError

if TYPE_CHECKING:
    from cotenant.core.model.changes.people import Someone
    from cotenant.core.model.kubernetes.intent import Patch
    from cotenant.core.model.reservations.plan import Plan
    from cotenant.core.model.reservations.plan_service import PlanRef, PlanService

app = new_app()

PlanArgument = Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="The plan.", show_default=False)]
StartOption = Annotated[
    str, typer.Option("--start", metavar="TIME", help="Start of the occurrence, as 2027-03-05T17:00:00Z.")
]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Do it, and write it into the ledger; without it the API server only checks.")
]
Deed = Callable[["PlanService", "Someone", "PlanRef", float], object]


@app.command(
    epilog=examples("cotenant reservations skip shop/deployment-web-schedule --start 2027-03-05T17:00:00Z --yes")
)
def skip(
    ctx: typer.Context,
    plan: PlanArgument,
    start: StartOption,
    yes: YesOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Leave out one occurrence of a schedule; the others stay."""
    from changes.plans.terms import skipped

    _do(ctx, {"kube.kubeconfig": kubeconfig, "kube.context": context}, (plan, start, yes), skipped,
        lambda desk, who, ref, at: desk.skip(who, ref, at))  # fmt: skip


@app.command(
    epilog=examples("cotenant reservations unskip shop/deployment-web-schedule --start 2027-03-05T17:00:00Z --yes")
)
def unskip(
    ctx: typer.Context,
    plan: PlanArgument,
    start: StartOption,
    yes: YesOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Let a skipped occurrence of a schedule happen after all."""
    from changes.plans.terms import restored

    _do(ctx, {"kube.kubeconfig": kubeconfig, "kube.context": context}, (plan, start, yes), restored,
        lambda desk, who, ref, at: desk.restore(who, ref, at))  # fmt: skip


def _do(
    ctx: typer.Context,
    flags: dict[str, str | None],
    arguments: tuple[str, str, bool],
    patch_of: Callable[[Plan, float, float], Patch],
    deed: Deed,
) -> None:
    """Runs as a dry run on the server, or for good through the plan service, which writes it into the ledger."""
    from changes.plans import plans
    from cotenant.apps.cli.changes.change_service import plan_desk_of
    from cotenant.core.adapters.clock import SystemClock
    from cotenant.core.adapters.kube import Writer, connect
    from cotenant.core.model.changes.people import Grant, Role, Someone
    from cotenant.core.model.reservations.plan_service import PlanRef
    from cotenant.core.model.reservations.reservation import moment_of

    text, start, yes = arguments
    namespace, _, name = text.partition("/")
    at = moment_of(start, "--start")
    if not name or at is None:
        raise UsageError(f"{text!r} --start {start!r}", fix="Write NAMESPACE/NAME and a moment in UTC.")
    settings = session_of(ctx).load(flags).settings
    if yes:
        who = Someone(getpass.getuser(), grants=(Grant(Role.ADMIN),))
        deed(plan_desk_of(settings), who, PlanRef(namespace, name), at)
        message(f"reservationplans/{text}: written")
        return
    client = connect(settings.kube)
    intent = patch_of(plans.plan(client, namespace, name), at, SystemClock().now_seconds())
    Writer(client, plans.FIELD_MANAGER).send(intent, dry_run=True)
    client.close()
    message(f"{intent.address}: {intent.why}; the API server would take it, nothing was written. Do it with --yes")
