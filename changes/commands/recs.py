"""`cotenant recs`: accept recommendations as changes that are dry-run first, checked, verified and reversible."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from cotenant.base.commands.call import DECLARED, LIVE, ROWS, STORED, CommandCall, command
from cotenant.base.commands.cells import human
from cotenant.base.commands.output import Format, message, print_totals
from cotenant.base.commands.session import EXIT_FINDINGS, examples, new_app
from cotenant.base.errors import NoData, UsageError
from cotenant.base.kubernetes.quantity import format_amount
from cotenant.base.table import Kind
from cotenant.base.text import agree, counted
from cotenant.changes.commands import recs_approval, recs_bundle, recs_list
from cotenant.changes.commands.ledger_access import (
    find_change,
    open_actions,
    proposed_gpu_shares,
    workload_recommendations,
)
from cotenant.changes.commands.recs_options import Canary, GpuShares, MethodOption, Second, Workloads
from cotenant.changes.model.service import Method
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.model.tables import changes_table

if TYPE_CHECKING:
    from cotenant.changes.accept import Actions
    from cotenant.changes.decide.review import Review
    from cotenant.recommender.model.recommendation import Recommendation


class DryRun(StrEnum):
    """The dry-run mode: whether the server checks the change before it is applied."""

    SERVER = "server"
    NONE = "none"


app = new_app()
for _part in (recs_list, recs_bundle, recs_approval):
    app.registered_commands.extend(_part.app.registered_commands)


@app.callback(
    epilog=examples(
        "cotenant recs list -n pay",
        "cotenant recs show pay/Deployment/checkout",
        "cotenant recs apply pay/checkout --method in-place --canary 0.1 --yes",
        "cotenant recs rollback 3f9c21 --yes",
    )
)
def recs() -> None:
    """Accept recommendations as changes that are reviewed, dry-run on the server, recorded first, and reversible."""


@command(
    app,
    STORED | LIVE,
    "cotenant recs show pay/Deployment/checkout",
    "cotenant recs show pay/checkout pay/fraud-gateway",
)
def show(
    call: CommandCall,
    workloads: Workloads,
    method: MethodOption = Method.TEMPLATE,
    approved_by: Second = "",
    gpu_shares: GpuShares = False,
) -> None:
    """Show each field that would be written and the result of each guardrail; nothing is changed.

    Exit code 3: a workload was left out.
    """
    with _open_review(call, workloads, gpu_shares) as (actions, recommendations):
        reviews = actions.review(recommendations, approved_by, method)
        for review in reviews:
            _print(describe(review), sys.stdout)
    raise typer.Exit(EXIT_FINDINGS if any(review.error for review in reviews) else 0)


@command(
    app,
    STORED | LIVE | ROWS,
    "cotenant recs apply pay/Deployment/checkout --dry-run  # on the server; also the default",
    "cotenant recs apply pay/checkout --yes",
    "cotenant recs apply pay/checkout --method in-place --yes  # nothing restarts",
    "cotenant recs apply pay/checkout pay/fraud-gateway --canary 0.1 --yes",
    "cotenant recs apply pay/checkout --ladder --yes  # all steps of a large cut",
    "cotenant recs apply pay/checkout --dry-run none --yes --override cpu-step",
    "cotenant recs apply recsys/ranker --gpu-shares  # for an oversized GPU",
)
def apply(
    call: CommandCall,
    workloads: Workloads,
    yes: Annotated[bool, typer.Option("--yes", help="Apply the changes. Without --yes only dry-run them.")] = False,
    override: Annotated[
        list[str] | None,
        typer.Option("--override", metavar="RULE", help="A guardrail to override by name; the ledger records it."),
    ] = None,
    approved_by: Second = "",
    method: MethodOption = Method.TEMPLATE,
    canary: Canary = 0.0,
    ladder: Annotated[
        bool,
        typer.Option(
            "--ladder", help="Accept all steps of a cut; each later step is applied once the previous step is verified."
        ),
    ] = False,
    gpu_shares: GpuShares = False,
    dry_run: Annotated[
        DryRun,
        typer.Option(
            "--dry-run",
            help="server: dry run on the API server first; none: no dry run; without a value: only the dry run.",
        ),
    ] = DryRun.SERVER,
) -> None:
    """Review the changes, dry-run them on the API server and, with --yes, apply them; no workload is half-applied.

    Exit code 3: a workload was refused.
    """
    from cotenant.changes.accept import AcceptanceTerms
    from cotenant.changes.model.change import ChangeState, count_of_states

    terms = AcceptanceTerms(overridden=tuple(override or ()), second_person=approved_by, canary=canary, ladder=ladder)
    with _open_review(call, workloads, gpu_shares) as (actions, recommendations):
        reviews = actions.review(recommendations, approved_by, method, terms.overridden)
        is_for_people = call.output in (Format.TABLE, Format.WIDE)
        for review in reviews:  # rows for programs stand alone on stdout
            _print(describe(review), sys.stdout if is_for_people else sys.stderr)
        good, bad = _select_applicable_reviews(actions, reviews, terms.overridden, dry_run)
        if not yes:
            if not is_for_people:  # nothing was changed: no rows
                call.print(changes_table(()))
            message(f"dry run: {counted(len(good), 'workload')} would be changed, {bad} would not; to apply: --yes")
            raise typer.Exit(EXIT_FINDINGS if bad else 0)
        done = actions.accept(good, terms)
        if ladder:
            if going := [review for review in good if not review.no_ladder]:
                later = f"later steps of {counted(len(going), 'workload')} follow"
                message(f"{later}, each once the previous step is verified: cotenant recs ladders")
            for review in good:
                if review.no_ladder and review.next_steps:
                    message(f"{review.workload}: only the first step is accepted: {review.no_ladder}", style="yellow")
        call.print(changes_table(done))
        if waiting := count_of_states(done, ChangeState.WAITING):
            have = agree(waiting, "change waits", "changes wait")
            message(f"{have} until the soak time of the first changes is over: run cotenant recs watch")
        soak_minutes = call.settings.section(ActionSettings).soak_minutes
        if done:
            message(f"verify the changes after {soak_minutes:g} minutes: cotenant recs verify {done[0].change.batch}")
        refused = bad + count_of_states(done, ChangeState.FAILED, ChangeState.UNKNOWN)
        raise typer.Exit(EXIT_FINDINGS if refused else 0)


@contextmanager
def _open_review(call: CommandCall, workloads: list[str], gpus: bool) -> Iterator[tuple[Actions, list[Recommendation]]]:
    """Yield actions that know the CPU requests of the cluster, and the stored recommendations of these workloads."""
    from cotenant.base.commands.results import open_store
    from cotenant.recommender.stored_recommendations import requested_millicores

    proposed = proposed_gpu_shares if gpus else workload_recommendations
    recommendations = proposed(call.settings, call.cluster, workloads)
    requested = requested_millicores(open_store(call.settings, call.cluster))
    with open_actions(call.settings) as actions:
        yield actions.having(requested_millicores=lambda: requested), recommendations


@command(app, DECLARED | ROWS, "cotenant recs changes", "cotenant recs changes -o csv")
def changes(call: CommandCall) -> None:
    """List all accepted changes with their states, without reading the cluster."""
    from cotenant.base.process.clock import SystemClock
    from cotenant.changes.change_ledger import ChangeLedger
    from cotenant.changes.commands.ledger_access import open_ledger
    from cotenant.changes.model.change import states_summary, unsettled_count

    ledger = open_ledger(call.settings)
    statuses = ChangeLedger(ledger, SystemClock(), "").statuses().values()
    call.print(changes_table(statuses))
    if statuses:
        print_totals(states_summary(statuses), call.output)
    if unknown := unsettled_count(statuses):
        have = agree(unknown, "change has", "changes have")
        message(f"{have} an unknown outcome; to find the outcome: cotenant recs settle", style="yellow")
    ledger.close()


@command(
    app,
    LIVE | ROWS,
    "cotenant recs rollback 3f9c21  # what would be restored",
    "cotenant recs rollback 3f9c21 --yes",
    "cotenant recs rollback --batch 77ab10cd --yes",
)
def rollback(
    call: CommandCall,
    change: Annotated[str, typer.Argument(metavar="CHANGE", help="Id of a change, or the beginning of the id.")] = "",
    batch: Annotated[str, typer.Option("--batch", metavar="ID", help="Batch id of changes accepted together.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Roll the changes back. Without --yes only show them.")] = False,
) -> None:
    """Restore the values from before a change (with --yes), unless another writer has changed them since."""
    if bool(change) == bool(batch):
        raise UsageError("give either the id of a change or --batch", fix="`cotenant recs changes` lists all ids.")
    with open_actions(call.settings) as actions:
        statuses = actions.journal.statuses()
        of_batch = [status for status in statuses.values() if status.change.batch == batch]
        chosen = [find_change(statuses, change)] if change else of_batch
        if not chosen:  # a script that misnames its batch must not read this as "rolled back"
            raise UsageError(f"no change has the batch {batch!r}", fix="`cotenant recs changes` lists the batches.")
        due = [s for s in chosen if s.state.in_force or change]
        if not yes:
            call.print(changes_table(due))
            message(f"dry run: {counted(len(due), 'change')} would be rolled back; --yes rolls back")
            raise typer.Exit()
        done = [actions.roll_back(s) for s in due]
        call.print(changes_table(done))
        raise typer.Exit(EXIT_FINDINGS if any(s.state.in_force for s in done) else 0)


@command(app, LIVE | ROWS, "cotenant recs settle")
def settle(call: CommandCall) -> None:
    """Read the cluster to find the outcome of changes for which it is unknown; exit code 3: one is still unknown."""
    from cotenant.changes.soak.reconcile import settle as settled

    with open_actions(call.settings) as actions:
        statuses = settled(actions)
        call.print(changes_table(statuses))
        raise typer.Exit(EXIT_FINDINGS if any(not s.state.settled for s in statuses) else 0)


@command(app, LIVE | ROWS, "cotenant recs verify", "cotenant recs verify 77ab10cd --revert  # rolls back what did harm")
def verify(
    call: CommandCall,
    which: Annotated[str, typer.Argument(metavar="CHANGE|BATCH", help="Change or batch id; none: all applied.")] = "",
    roll_back: Annotated[bool, typer.Option("--revert", help="Roll back changes that did harm.")] = False,
) -> None:
    """Verify changes after their soak time: OOM kills, restarts, missing replicas and more are harm (exit code 3)."""
    from cotenant.changes.model.change import ChangeState
    from cotenant.changes.soak.reconcile import verify as verified

    with recs_bundle.open_actions_with_metrics(call.settings, "changes are verified") as actions:
        statuses = actions.journal.statuses().values()
        chosen = [s for s in statuses if s.change.id.startswith(which) or s.change.batch == which]
        if which and not chosen:  # a script that misnames its batch must not read this as "no harm"
            raise UsageError(f"no change or batch id begins with {which!r}", fix="`cotenant recs changes` lists ids.")
        done = []
        for status in (s for s in chosen if s.state is ChangeState.APPLIED):
            try:
                checked = verified(actions, status)
            except NoData as error:
                message(str(error))
                continue
            done.append(actions.roll_back(checked) if roll_back and checked.state is ChangeState.REGRESSED else checked)
        call.print(changes_table(done))
        bad = (ChangeState.REGRESSED, ChangeState.ROLLED_BACK)
        raise typer.Exit(EXIT_FINDINGS if any(s.state in bad for s in done) else 0)


def describe(review: Review) -> Iterator[str]:
    """Yield the lines that show a review to people."""
    yield str(review.workload)
    if review.error:
        yield f"  left out: {review.error}"
        return
    for write in review.writes:
        for pointer, old in write.before.items():
            yield f"  {write.address} {pointer}"
            yield f"    now {_plain(old)}"
            yield f"    new {_plain(write.after[pointer])}"
    for step in review.next_steps:
        now, new = (format_amount(step.resource, amount) for amount in (step.now, step.amount))
        when = human(Kind.TIME, step.from_seconds)
        yield f"  next step from {when}: {step.container} {step.resource} request {now} -> {new}"
    other = "" if review.suggested is review.method else f" (suggested: {review.suggested.full_name})"
    yield f"  method {review.method.full_name}{other}"
    for rule in review.guardrails:
        yield f"  {rule.outcome.value:<4}  {rule.rule}: {rule.why}"


def _select_applicable_reviews(
    actions: Actions, reviews: list[Review], overridden: tuple[str, ...], dry_run: DryRun
) -> tuple[list[Review], int]:
    """Return the reviews that passed guardrails and dry run, and the number of the others; print why others did not."""
    from cotenant.changes.accept import dry_run_review

    good = []
    for review in reviews:
        blocked = review.blocked(overridden)
        if blocked:
            rules = ", ".join(g.rule for g in blocked)
            message(f"{review.workload}: stopped by {rules}; --override RULE overrides one by name", style="yellow")
        elif not review.error and dry_run is DryRun.NONE:
            good.append(review)
        elif not review.error:
            answer = dry_run_review(actions, review)
            if not answer.accepted:
                message(f"{review.workload}: refused by the API server: {answer.words}. {answer.fix}", style="yellow")
                continue
            good.append(review)
            message(f"{review.workload}: the API server would accept the change")
            for field in answer.added:
                message(f"  admission would set {field.pointer} to {field.new or 'nothing'}")
    return good, len(reviews) - len(good)


def _plain(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value, order="sorted").decode() if value is not None else "nothing"


def _print(lines: Iterator[str], to: TextIO) -> None:
    from cotenant.base.text import visible

    to.writelines(f"{visible(line)}\n" for line in lines)
