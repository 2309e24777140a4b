"""`cotenant explain`: why a recommendation says what it says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli.cells import human
from cotenant.cli.command import examples, new_app, session_of
from cotenant.cli.output import DocumentFormat, DocumentOption, aligned, print_document
from cotenant.cli.results import ClusterOption, StoreOption, open_store
from cotenant.cli.text import visible
from cotenant.model.reasons import SENTENCES
from cotenant.model.recommendation import Action, Recommendation, Value
from cotenant.model.resource import Resource
from cotenant.model.table import Kind

if TYPE_CHECKING:
    from cotenant.edges.store import Store

app = new_app()
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
    """Print what a recommendation rests on: present and proposed values, reasons, formulas, inputs, the patch."""
    place = open_store(session_of(ctx).load({"store.url": store}).settings, cluster)
    found = [r for r in _of_workload(place, workload) if container in (None, r.container.container)]
    if output is not DocumentFormat.TABLE:
        print_document(found, output)
        return
    for recommendation in found:
        sys.stdout.writelines(f"{line}\n" for line in describe(recommendation))


def _of_workload(store: Store, workload: str) -> list[Recommendation]:
    from cotenant.pipeline.explain import Explanations

    return Explanations(store).of_workload(workload)


def describe(recommendation: Recommendation) -> Iterator[str]:
    """The explanation of one container, line by line."""
    from recommender.patches import kubectl_command

    days = recommendation.window_seconds / 86_400
    yield visible(str(recommendation.container))
    yield (
        f"strategy {recommendation.strategy}, {days:.1f} days of history, {recommendation.replicas} pods, "
        f"severity {recommendation.severity}, settings {recommendation.settings_digest}"
    )
    for value in recommendation.values:
        yield ""
        yield from _value(value)
    patch = kubectl_command(recommendation)
    if patch:
        yield ""
        yield patch
    yield ""


def _value(value: Value) -> Iterator[str]:
    kind = KINDS[value.resource]
    yield f"{value.resource} {value.field}: {_change(value, kind)}  [{value.reason}] {SENTENCES[value.reason]}"
    if value.formula:
        yield f"  formula: {visible(value.formula)}"
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
