"""EDGE: `cotenant explain pod`: which nodes refuse a pod by which rule, for a pending pod or one not created yet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.base.commands.files import documents
from cotenant.base.commands.output import Format, NoHeadersOption, OutputOption, message, print_table
from cotenant.base.commands.results import Context, Kubeconfig, settings_of
from cotenant.base.commands.session import examples, new_app
from cotenant.base.errors import UsageError
from cotenant.base.identity import PodName
from cotenant.base.json_documents.json_decoders import mapping_or_empty
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.scheduler_ext.extender.settings import ExtenderSettings

if TYPE_CHECKING:
    from cotenant.base.kube import KubeClient
    from cotenant.base.settings.base import SettingSections
    from cotenant.scheduler_ext.extender.why import Explanation, RuleRefusal

app = new_app()

WHY = Schema(
    "why",
    (
        Column("rule", "Rule", Kind.TEXT, "Rule that refuses nodes: the extender's or the scheduler's."),
        Column("nodes", "Nodes", Kind.INTEGER, "Nodes that the rule refuses; several rules may refuse a node."),
        Column("reason", "Reason", Kind.TEXT, "Why the nodes are refused."),
    ),
    ("rule", "reason"),
)


@app.command(
    epilog=examples(
        "cotenant explain pod web-7d4b9c-x2x9z -n shop",
        "cotenant explain pod shop/web-7d4b9c-x2x9z",
        "cotenant explain pod -f pod.yaml  # where would it fit? nothing is created",
        "cotenant explain pod -f job.yaml -o json",
    )
)
def why(
    ctx: typer.Context,
    pod: Annotated[str, typer.Argument(help="A pod: NAME, or NAMESPACE/NAME.", show_default=False)] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of POD.")] = "default",
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="File with a pod or a pod template to test.")
    ] = None,
    extender: Annotated[
        bool | None,
        typer.Option(
            "--extender/--no-extender",
            help="Whether to apply the extender's rules. Default: yes if a running extender is found.",
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Show why a pod is pending: how many nodes each rule refuses. Reads the cluster, writes nothing."""
    if bool(pod) is bool(file):
        raise UsageError("give either the name of a pod or --file", fix="Run: cotenant explain pod POD -n NAMESPACE")
    from cotenant.scheduler_ext.extender.stock_rules import unchecked_constraints, waits_for

    settings = settings_of(ctx, None, kubeconfig, context)
    named_namespace, _, name = pod.rpartition("/")
    body, explanation = _explain_pod(settings, PodName(named_namespace or namespace, name), file, extender)
    print_table(Table.from_rows(WHY, refusal_rows(explanation)), output, headers=not no_headers)
    spec = body.get("spec") or {}
    if node := spec.get("nodeName"):
        message(f"{explanation.pod} is already scheduled, on {node}")
        return
    if gates := waits_for(spec):
        message(f"{explanation.pod} is not scheduled before its scheduling gates are removed: {', '.join(gates)}")
    best = f"; best: {', '.join(explanation.best)}" if explanation.best else ""
    message(f"{explanation.fits} of {explanation.nodes} nodes would accept {explanation.pod}{best}")
    for note in (*explanation.notes, unchecked_constraints(spec)):
        if note:
            message(f"note: {note}")


def _explain_pod(
    settings: SettingSections, name: PodName, file: Path | None, extender: bool | None
) -> tuple[Mapping[str, Any], Explanation]:
    import msgspec

    from cotenant.base.kube import connect
    from cotenant.base.kubernetes.models.pod import PodWire
    from cotenant.scheduler_ext.extender.pod import facts_of
    from cotenant.scheduler_ext.extender.stock_rules import refusals
    from cotenant.scheduler_ext.extender.watch.cluster_reader import extender_runs, pod_of, read_cluster
    from cotenant.scheduler_ext.extender.why import Explanation, explain_placement, parse_scheduler_message

    client = connect(settings.section(KubeSettings))
    try:
        body = pod_of(client, *name) if file is None else template_of(file, name.namespace)
        if mapping_or_empty(body.get("spec")).get("nodeName"):
            return body, Explanation("/".join(name), 0, 0, [])
        observed = read_cluster(client, settings.section(ExtenderSettings))
        with_extender = extender_runs(client, settings.section(ExtenderSettings)) if extender is None else extender
        gates = queue_refusals(client, settings, body, len(observed.nodes)) if file is None else []
    finally:
        client.close()
    try:
        facts = facts_of(msgspec.convert(body, PodWire), settings.section(ExtenderSettings).load_aware)
    except msgspec.ValidationError as error:
        raise UsageError(f"{file or name[1]} is not a pod: {error}", fix="Check the file's indentation.") from error
    others = refusals(body.get("spec") or {}, observed.nodes)
    explanation = explain_placement(
        observed.snapshot, facts, observed.moment, settings.section(ExtenderSettings), others, with_extender
    )
    refused = [*gates, *explanation.refusals]
    conditions = [mapping_or_empty(c) for c in mapping_or_empty(body.get("status")).get("conditions") or ()]
    condition = next((str(c.get("message") or "") for c in conditions if c.get("type") == "PodScheduled"), "")
    return body, msgspec.structs.replace(explanation, refusals=refused, scheduler=parse_scheduler_message(condition))


def refusal_rows(explanation: Explanation) -> list[dict[str, Any]]:
    """Return one row for each rule that refuses nodes, cotenant's rules before kube-scheduler's."""
    refused = (*explanation.refusals, *explanation.scheduler)
    return [{"rule": rule.rule, "nodes": rule.nodes, "reason": rule.reason} for rule in refused]


def queue_refusals(
    client: KubeClient, settings: SettingSections, pod: Mapping[str, Any], nodes: int
) -> list[RuleRefusal]:
    """Return one refusal, of all nodes, for each of the pod's gates of cotenant, in the words of `explain queue`."""
    from cotenant.base.errors import ClusterError
    from cotenant.scheduler_ext.extender.why import RuleRefusal
    from cotenant.scheduler_ext.queues.commands.live_queues import read_report, unserved_gates
    from cotenant.scheduler_ext.queues.model.explanation import UNSERVED, gate_sentences
    from cotenant.scheduler_ext.reservations.pod_gate import MISSPELT, OUR_GATES, gates_of, misspelt

    unknown = [RuleRefusal(gate, MISSPELT, nodes) for gate in misspelt(gates_of(pod))]
    gates = [gate for gate in gates_of(pod) if gate in OUR_GATES]
    if not gates:
        return unknown
    meta, unserved = mapping_or_empty(pod.get("metadata")), frozenset[str]()
    try:
        now_seconds = client.clock().now_seconds()
        _, report = read_report(client, settings, now_seconds)
        unserved = unserved_gates(client, now_seconds)
        sentences = gate_sentences(report, meta, unserved)
    except ClusterError as error:
        sentences = dict.fromkeys(OUR_GATES, f"the pod's queue cannot be read: {error.message}")
    refused = [*unknown, *(RuleRefusal(gate.rpartition("/")[2], sentences[gate], nodes) for gate in gates)]
    silent = ", ".join(gate for gate in gates if gate in unserved and sentences[gate] != UNSERVED)
    return [*refused, *([RuleRefusal("manager", f"{silent}: {UNSERVED}", nodes)] if silent else [])]


def template_of(file: Path, namespace: str) -> dict[str, Any]:
    """Return the pod in a manifest, or the pod template of a Deployment, Job or CronJob; raise UsageError if none."""
    manifest, *more = documents(str(file))
    body = manifest
    while isinstance(body, dict) and "containers" not in (spec := mapping_or_empty(body.get("spec"))):
        body = spec.get("template") or spec.get("jobTemplate")
    if more or not isinstance(body, dict):
        problem = "several objects" if more else "neither a pod nor a pod template"
        raise UsageError(f"{file} holds {problem}", fix="Give one object in YAML or JSON.")
    outer = mapping_or_empty(manifest.get("metadata"))
    meta = {"name": outer.get("name", ""), "namespace": outer.get("namespace") or namespace}
    return {**body, "metadata": {**meta, **mapping_or_empty(body.get("metadata"))}}
