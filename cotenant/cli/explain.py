"""`cotenant explain`: why a recommendation says what it says."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli.cells import human
from cotenant.cli.command import examples, new_app, session_of
from cotenant.cli.output import DocumentFormat, DocumentOption, aligned, print_document
from cotenant.cli.results import ClusterOption, StoreOption, open_store
from cotenant.model.cluster import ContainerRole
from cotenant.model.errors import NoData
from cotenant.model.reasons import SENTENCES
from cotenant.model.recommendation import Action, Recommendation, Restart, Trust, Value
from cotenant.model.resource import Resource
from cotenant.model.table import Kind
from cotenant.model.text import visible
from cotenant.model.usage import DAY_SECONDS

if TYPE_CHECKING:
    from cotenant.edges.store import Store

app = new_app()
RESTARTS = {
    Restart.NONE: "no pod that runs is restarted",
    Restart.IN_PLACE: "running pods can be resized in place; a change of the template alone starts new ones",
    Restart.ROLLOUT: "starts new pods",
}
KINDS = {Resource.CPU: Kind.MILLICORES, Resource.MEMORY: Kind.BYTES}


@app.command(
    epilog=examples(
        "cotenant explain pay/Deployment/checkout",
        "cotenant explain pay/checkout --container app",
        "cotenant explain pay/checkout -o json",
    )
)
def explain(
    ctx: typer.Context,
    workload: Annotated[str, typer.Argument(metavar="NAMESPACE/KIND/NAME", help="The kind may be left out.")],
    container: Annotated[str | None, typer.Option("--container", "-c", metavar="NAME", help="Only this one.")] = None,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    output: DocumentOption = DocumentFormat.TABLE,
) -> None:
    """Print what a recommendation rests on: values, reasons, formulas, rules, back-test, confidence, the patch."""
    settings = session_of(ctx).load({"store.url": store}).settings
    place = open_store(settings, cluster)
    found = [r for r in _of_workload(place, workload) if container in (None, r.container.container)]
    if not found:
        raise NoData(f"{workload} has no container {container}", fix=f"cotenant explain {workload} shows all of them.")
    if output is not DocumentFormat.TABLE:
        print_document(found, output)
        return
    for recommendation in found:
        lines = describe(recommendation, settings.recommender.prices.currency)
        sys.stdout.writelines(f"{line}\n" for line in lines)


def _of_workload(store: Store, workload: str) -> list[Recommendation]:
    from cotenant.pipeline.explain import Explanations

    return Explanations(store).of_workload(workload)


def describe(recommendation: Recommendation, currency: str) -> Iterator[str]:
    """The explanation of one container, line by line; a part that the strategy does not speak of is left out."""
    yield visible(str(recommendation.container))
    yield from _head(recommendation, currency)
    for value in recommendation.values:
        yield ""
        yield from _value(value)
    yield from _part("back-test", _backtest(recommendation))
    yield from _part("confidence", _trust(recommendation.trust))
    yield from _part("notes", recommendation.notes)
    yield from _part("queries", recommendation.queries)
    yield ""
    yield from _apply(recommendation)
    yield ""


def _head(found: Recommendation, currency: str) -> Iterator[str]:
    """What it rests on, how bad it is, what it would cost and save."""
    profile = f" ({found.profile})" if found.profile else ""
    role = "" if found.role is ContainerRole.MAIN else f", {found.role} container"
    yield (
        f"strategy {visible(found.strategy)}{profile}, {found.window_seconds / DAY_SECONDS:.1f} days of history, "
        f"{found.replicas} pods{role}, severity {found.severity}, settings {found.settings_digest}"
    )
    if found.monthly_saving is not None:
        word = "saves" if found.monthly_saving >= 0 else "costs"
        yield f"{word} {abs(found.monthly_saving):,.2f} {visible(currency)} a month over all pods"


def _value(value: Value) -> Iterator[str]:
    kind = KINDS[value.resource]
    yield f"{value.resource} {value.field}: {_change(value, kind)}  [{value.reason}] {SENTENCES[value.reason]}"
    if value.formula:
        yield f"  formula: {visible(value.formula)}"
    for clamp in value.clamps:
        yield f"  rule: {visible(clamp.rule)}: {human(kind, clamp.before)} -> {human(kind, clamp.after)}"
    yield from (f"  by annotation: {visible(override)}" for override in value.overrides)
    yield from (f"  {line.rstrip()}" for line in aligned([(n, _input(v)) for n, v in value.inputs.items()]))


def _change(value: Value, kind: Kind) -> str:
    now = "not set" if value.now is None else human(kind, value.now)
    proposed = {
        Action.SET: human(kind, value.amount),
        Action.UNSET: "unset",
        Action.WITHHELD: "withheld",
    }[value.action]
    return f"{now} -> {proposed}"


def _input(value: float | int | str) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return visible(str(value))


def _backtest(found: Recommendation) -> list[str]:
    """What the last days would have been, beside what they were."""
    tried = found.backtest
    if tried is None:
        return []
    rows = [
        (f"last {tried.days:g} days", "as it was", "as proposed"),
        ("OOM kills", str(tried.now_oom_kills), str(tried.oom_kills)),
        ("minutes throttled", f"{tried.now_throttled_minutes:.0f}", f"{tried.throttled_minutes:.0f}"),
        ("times above the memory request, not before", "", str(tried.evictions)),
        ("CPU requests freed, all pods", "", human(Kind.MILLICORES, tried.freed_millicores)),
        ("memory requests freed, all pods", "", human(Kind.BYTES, tried.freed_bytes)),
    ]
    return [line.rstrip("\n") for line in aligned(rows, (False, True, True))]


def _trust(trust: Trust | None) -> list[str]:
    return [] if trust is None else [f"{trust.confidence:.0%}", *trust.because]


def _part(title: str, lines: Sequence[str]) -> Iterator[str]:
    """A headed list, nothing where it is empty."""
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"  {visible(line)}" for line in lines)


def _apply(found: Recommendation) -> Iterator[str]:
    """What applying it does to the pods, and the line that does it; or why there is none."""
    from recommender.patches import kubectl_command, refusal, resources

    if not resources(found):
        yield "nothing to apply"
    elif why := refusal(found):
        yield visible(f"no patch: {why}")
    else:
        yield f"to apply ({RESTARTS[found.restart]}):"
        yield kubectl_command(found)
