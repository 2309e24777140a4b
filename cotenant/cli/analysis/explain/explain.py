"""`cotenant explain`: why a recommendation says what it says, and where a node's numbers come from."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from cotenant.base.cluster import ContainerRole
from cotenant.base.commands.cells import human
from cotenant.base.commands.cluster_options import DeclaredClusterOption, settings_of
from cotenant.base.commands.command import examples, new_app, session_of
from cotenant.base.commands.completion import node_names, workload_addresses
from cotenant.base.commands.output import DocumentFormat, DocumentOption, align_columns, print_document
from cotenant.base.commands.results import (
    AllClustersOption,
    ClusterOption,
    StoredScans,
    StoreOption,
    load_for_reading,
    open_scans,
    open_store,
)
from cotenant.base.errors import NoData
from cotenant.base.process.clock import SystemClock
from cotenant.base.reasons import SENTENCES
from cotenant.base.resource import Resource
from cotenant.base.table import Kind, kind_of_input
from cotenant.base.text import visible
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.cli.registry import EXPLAIN
from cotenant.recommender.model.recommendation import Action, Recommendation, Restart, Trust, Value
from cotenant.recommender.model.savings import When, savings_of
from cotenant.recommender.model.savings_text import saving_phrases, saving_text
from cotenant.recommender.model.shortage_text import sentences

if TYPE_CHECKING:
    from cotenant.base.store import Store

app = new_app()
NodeArgument = Annotated[str, typer.Argument(metavar="NAME", help="The node's name.", autocompletion=node_names)]
RESTARTS = {
    Restart.NONE: "no pod that runs is restarted",
    Restart.IN_PLACE: "running pods can be resized in place; a change of the template alone starts new ones",
    Restart.ROLLOUT: "starts new pods",
}
KINDS = {Resource.CPU: Kind.MILLICORES, Resource.MEMORY: Kind.BYTES}


def _addresses(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return completions for `cotenant explain`: kinds, which may precede a name, workloads and node/NAME."""
    kinds = [entry.name for entry in EXPLAIN if entry.name.startswith(incomplete)]
    if incomplete.startswith("node/"):
        return [f"node/{name}" for name in node_names(ctx, incomplete.removeprefix("node/"))]
    return kinds + workload_addresses(ctx, incomplete)


@app.callback()
def _family() -> None:
    """Why: a recommendation, what a node can lend, what is in force there."""


@app.command(
    epilog=examples(
        "cotenant explain pay/Deployment/checkout",
        "cotenant explain pay/checkout --container app",
        "cotenant explain pay/checkout -o json",
    )
)
def workload(
    ctx: typer.Context,
    workload: Annotated[
        str,
        typer.Argument(metavar="NAMESPACE/KIND/NAME", help="The kind may be left out.", autocompletion=_addresses),
    ],
    container: Annotated[str | None, typer.Option("--container", "-c", metavar="NAME", help="Only this one.")] = None,
    cluster: ClusterOption = None,
    all_clusters: AllClustersOption = False,
    store: StoreOption = None,
    output: DocumentOption = DocumentFormat.TABLE,
) -> None:
    """Print what a recommendation rests on: values, reasons, formulas, rules, back-test, confidence, the patch."""
    settings = load_for_reading(ctx, store, all_clusters)
    scans = open_scans(settings, cluster, all_clusters)
    by_cluster = _by_cluster(scans, workload, container)
    if output is not DocumentFormat.TABLE:
        rows = [(name, one) for name, of_one in by_cluster.items() for one in of_one]
        print_document(
            [recommendation_with_cluster(name, one) for name, one in rows]
            if all_clusters
            else [one for _, one in rows],
            output,
        )
        return
    for name, recommendations in by_cluster.items():
        if all_clusters:
            sys.stdout.write(f"cluster {visible(name)}\n")
            settings = session_of(ctx).of_cluster(name).read({"store.url": store}).settings
        for recommendation in recommendations:
            lines = describe(recommendation, settings.recommender.prices.currency)
            sys.stdout.writelines(f"{line}\n" for line in lines)


def recommendation_with_cluster(cluster: str, recommendation: Recommendation) -> dict[str, Any]:
    """A recommendation as plain values, its cluster in front."""
    return {"cluster": cluster, **msgspec.to_builtins(recommendation, str_keys=True)}


def _by_cluster(scans: StoredScans, workload: str, container: str | None) -> dict[str, list[Recommendation]]:
    """Recommendations of the workload in each cluster that has it; NoData when none does."""
    of_each: dict[str, list[Recommendation]] = {}
    missing: NoData | None = None
    for place in scans.stores:
        try:
            of_each[place.cluster] = _of_workload(place, workload)
        except NoData as error:
            missing = error
    if not of_each and missing:
        raise missing
    chosen = {
        name: [r for r in of_one if container in (None, r.container.container)] for name, of_one in of_each.items()
    }
    if not any(chosen.values()):
        raise NoData(f"{workload} has no container {container}", fix=f"cotenant explain {workload} shows all of them.")
    return chosen


@app.command(
    epilog=examples(
        "cotenant explain node/node-07",
        "cotenant explain node node-07 --from-cluster",
        "cotenant explain node/node-07 -o json",
    )
)
def node(
    ctx: typer.Context,
    name: NodeArgument,
    from_cluster: Annotated[
        bool, typer.Option("--from-cluster", help="As its cluster's objects are now, without stored results.")
    ] = False,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    output: DocumentOption = DocumentFormat.TABLE,
) -> None:
    """Print every term of what a node can lend, and which layer set each parameter."""
    from cotenant.cli.analysis.explain import explain_node

    if from_cluster:
        settings = settings_of(ctx, store, None, None)
        explanation = explain_node.from_cluster(settings, name, SystemClock().now_seconds())
    else:
        settings = session_of(ctx).load({"store.url": store}).settings
        explanation = explain_node.from_store(open_store(settings, cluster), name)
    if output is not DocumentFormat.TABLE:
        print_document(explanation, output)
        return
    sys.stdout.writelines(f"{line}\n" for line in explain_node.describe(explanation))


@app.command(
    epilog=examples(
        "cotenant explain node-slo/node-07",
        "cotenant explain node-slo node-07 --config-map slo.yaml --labels pool=gpu",
    )
)
def node_slo(
    ctx: typer.Context,
    name: NodeArgument,
    config_map: Annotated[
        str | None, typer.Option("--config-map", metavar="FILE", help="This file instead of the cluster's.")
    ] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", metavar="K=V,...", help="These labels instead of the node's own.")
    ] = None,
    cluster: DeclaredClusterOption = None,  # noqa: ARG001 - the session knows it
    output: DocumentOption = DocumentFormat.TABLE,
) -> None:
    """Print every value of slo-controller-config in force on a node, and which layer set it."""
    from cotenant.cli.analysis.explain.explain_node_slo import SloInputs, node_slo_explanation
    from cotenant.cli.analysis.explain.explain_node_slo import describe as describe_slo

    explanation = node_slo_explanation(settings_of(ctx, None, None, None), name, SloInputs(config_map, labels))
    if output is not DocumentFormat.TABLE:
        print_document(explanation, output)
        return
    sys.stdout.writelines(f"{line}\n" for line in describe_slo(explanation))


def _of_workload(store: Store, workload: str) -> list[Recommendation]:
    from cotenant.recommender.stored_recommendations import Explanations

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


def _head(recommendation: Recommendation, currency: str) -> Iterator[str]:
    """Yield the basis of a recommendation, its severity, and what it would cost and save."""
    profile = f" ({recommendation.profile})" if recommendation.profile else ""
    role = "" if recommendation.role is ContainerRole.MAIN else f", {recommendation.role} container"
    days, digest = recommendation.window_seconds / DAY_SECONDS, recommendation.settings_digest
    yield (
        f"strategy {visible(recommendation.strategy)}{profile}, {days:.1f} days of history, "
        f"{recommendation.replicas} replicas{role}, severity {recommendation.severity}, settings {digest}"
    )
    savings = savings_of([recommendation])
    if saving_phrases(savings):
        yield f"{When.ALL_STEPS}, over all pods: {saving_text(savings, visible(currency))}"


def _value(value: Value) -> Iterator[str]:
    kind = KINDS[value.resource]
    yield f"{value.resource} {value.field}: {_change(value, kind)}  [{value.reason}] {SENTENCES[value.reason]}"
    if value.formula:
        yield f"  formula: {visible(value.formula)}"
    for clamp in value.clamps:
        yield f"  rule: {visible(clamp.rule)}: {human(kind, clamp.before)} -> {human(kind, clamp.after)}"
    yield from (f"  by annotation: {visible(override)}" for override in value.overrides)
    yield from (
        f"  {line.rstrip()}"
        for line in align_columns([(n, _input(n, v, value.resource)) for n, v in value.inputs.items()])
    )


def _change(value: Value, kind: Kind) -> str:
    now = "not set" if value.now is None else human(kind, value.now)
    proposed = {
        Action.SET: human(kind, value.amount),
        Action.UNSET: "unset",
        Action.WITHHELD: "withheld",
    }[value.action]
    return f"{now} -> {proposed}"


def _input(name: str, value: float | int | str, resource: Resource) -> str:
    if isinstance(value, str):
        return visible(value)
    kind = kind_of_input(name, resource)
    return human(kind, round(value) if kind is Kind.MILLICORES else value)


def _backtest(recommendation: Recommendation) -> list[str]:
    """Return the table of the last days as they were and as they would have been as proposed; empty if not tested."""
    tried = recommendation.backtest
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
    table = [line.rstrip("\n") for line in align_columns(rows, (False, True, True))]
    return [*table, *(f"{heading}: {sentence}" for heading, sentence in sentences(tried))]


def _trust(trust: Trust | None) -> list[str]:
    return [] if trust is None else [trust.level.value, *trust.because]


def _part(title: str, lines: Sequence[str]) -> Iterator[str]:
    """A headed list, nothing where it is empty."""
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"  {visible(line)}" for line in lines)


def _apply(recommendation: Recommendation) -> Iterator[str]:
    """Yield what applying does to the pods and the command that does it, or the reason why there is none."""
    from cotenant.changes.decide.patches import file_refusal, kubectl_command, resources

    if not resources(recommendation):
        yield "nothing to apply"
    elif why := file_refusal(recommendation):
        yield visible(f"no patch: {why}")
    else:
        yield f"to apply ({RESTARTS[recommendation.restart]}):"
        yield kubectl_command(recommendation)
