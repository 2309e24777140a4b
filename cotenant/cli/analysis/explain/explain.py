"""`cotenant explain`: shows the computation of a recommendation or of a node's amounts."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer

from cotenant.base.commands.call import DECLARED, DOCUMENT, SCANS, STORED, CommandCall, command
from cotenant.base.commands.output import DocumentFormat, print_document
from cotenant.base.commands.results import open_store, settings_of
from cotenant.base.commands.session import new_app, node_names, session_of, workload_addresses
from cotenant.base.errors import NoData
from cotenant.base.text import visible
from cotenant.changes.commands.recommendation_lines import describe
from cotenant.cli.registry import EXPLAIN
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.settings import RecommenderSettings
from cotenant.settings import Settings

app = new_app()
NodeArgument = Annotated[str, typer.Argument(metavar="NAME", help="The node's name.", autocompletion=node_names)]


def _addresses(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return completions for `cotenant explain`: kinds, which may precede a name, workloads and node/NAME."""
    kinds = [entry.name for entry in EXPLAIN if entry.name.startswith(incomplete)]
    if incomplete.startswith("node/"):
        return [f"node/{name}" for name in node_names(ctx, incomplete.removeprefix("node/"))]
    return kinds + workload_addresses(ctx, incomplete)


@app.callback()
def _family() -> None:
    """Explain a recommendation, the capacity that a node can lend, or the configuration of a node."""


@command(
    app,
    SCANS | DOCUMENT,
    "cotenant explain pay/Deployment/checkout",
    "cotenant explain pay/checkout --container app",
    "cotenant explain pay/checkout -o json",
)
def workload(
    call: CommandCall,
    workload: Annotated[
        str, typer.Argument(metavar="NAMESPACE/KIND/NAME", help="KIND is optional.", autocompletion=_addresses)
    ],
    container: Annotated[str | None, typer.Option("--container", "-c", metavar="NAME", help="Only this one.")] = None,
) -> None:
    """Explain a workload's recommendation: values, reasons, formulas, rules, back-test, confidence and patch."""
    from cotenant.recommender.stored_recommendations import Explanations

    settings, scans = call.settings, call.scans
    # Recommendations of the workload in each cluster that has it; NoData when none does.
    of_each: dict[str, list[Recommendation]] = {}
    missing: NoData | None = None
    for place in scans.stores:
        try:
            of_each[place.cluster] = Explanations(place).of_workload(workload)
        except NoData as error:
            missing = error
    if not of_each and missing:
        raise missing
    by_cluster = {
        name: [r for r in of_one if container in (None, r.container.container)] for name, of_one in of_each.items()
    }
    if not any(by_cluster.values()):
        raise NoData(f"{workload} has no container {container}", fix=f"Run cotenant explain {workload}.")
    if call.output is not DocumentFormat.TABLE:
        rows = [(name, recommendation) for name, of_one in by_cluster.items() for recommendation in of_one]
        if scans.of_all:  # plain values, each with its cluster in front
            print_document(
                [{"cluster": name, **msgspec.to_builtins(r, str_keys=True)} for name, r in rows], call.output
            )
        else:
            print_document([recommendation for _, recommendation in rows], call.output)
        return
    for name, recommendations in by_cluster.items():
        if scans.of_all:
            sys.stdout.write(f"cluster {visible(name)}\n")
            settings = session_of(call.ctx).of_cluster(name).read({"store.url": call.given["store"]}).settings
        for recommendation in recommendations:
            lines = describe(recommendation, settings.section(RecommenderSettings).prices.currency)
            sys.stdout.writelines(f"{line}\n" for line in lines)


@command(
    app,
    STORED | DOCUMENT,
    "cotenant explain node/node-07",
    "cotenant explain node node-07 --from-cluster",
    "cotenant explain node/node-07 -o json",
)
def node(
    call: CommandCall,
    name: NodeArgument,
    from_cluster: Annotated[
        bool, typer.Option("--from-cluster", help="Compute from the cluster's objects, without stored results.")
    ] = False,
) -> None:
    """Show every term of the capacity that a node can lend, and which layer set each parameter."""
    from cotenant.cli.analysis.explain import explain_node

    if from_cluster:
        settings = settings_of(call.ctx, call.given["store"], None, None)  # it asks the cluster, and no other one
        explanation = explain_node.from_cluster(Settings.of(settings), name)
    else:
        explanation = explain_node.from_store(open_store(call.settings, call.cluster), name)
    if call.output is not DocumentFormat.TABLE:
        print_document(explanation, call.output)
        return
    sys.stdout.writelines(f"{line}\n" for line in explain_node.describe(explanation))


@command(
    app,
    DECLARED | DOCUMENT,
    "cotenant explain node-slo/node-07",
    "cotenant explain node-slo node-07 --config-map slo.yaml --labels pool=gpu",
)
def node_slo(
    call: CommandCall,
    name: NodeArgument,
    config_map: Annotated[
        str | None, typer.Option("--config-map", metavar="FILE", help="Read the ConfigMap from this file.")
    ] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", metavar="K=V,...", help="Use these labels instead of the node's own.")
    ] = None,
) -> None:
    """Show every effective value of slo-controller-config on a node, and which layer set it."""
    from cotenant.cli.analysis.explain.explain_node_slo import describe as describe_slo
    from cotenant.cli.analysis.explain.explain_node_slo import node_slo_explanation

    settings = settings_of(call.ctx, None, None, None)  # it asks the cluster, and no other one
    explanation = node_slo_explanation(Settings.of(settings), name, config_map, labels)
    if call.output is not DocumentFormat.TABLE:
        print_document(explanation, call.output)
        return
    sys.stdout.writelines(f"{line}\n" for line in describe_slo(explanation))
