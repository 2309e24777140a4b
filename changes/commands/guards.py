"""`cotenant explain guards`: the metrics that verify a service's changes, and further ones that could."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base.commands.call import DECLARED, DOCUMENT, LIVE, CommandCall, command
from cotenant.base.commands.output import DocumentFormat, print_document
from cotenant.base.commands.results import named_workload
from cotenant.base.commands.session import new_app, workload_addresses
from cotenant.base.errors import SettingsError
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.text import percent, visible
from cotenant.changes.model.settings import ActionSettings
from cotenant.profiler.settings import ProfilerSettings

if TYPE_CHECKING:
    from cotenant.changes.objectives.found import Guards

app = new_app()


@command(
    app,
    LIVE | DECLARED | DOCUMENT,
    "cotenant explain guards shop/Deployment/web",
    "cotenant explain guards shop/Deployment/web -o json",
)
def guards(
    call: CommandCall,
    workload: Annotated[str, typer.Argument(metavar="NAMESPACE/KIND/NAME", autocompletion=workload_addresses)],
) -> None:
    """Show which metrics verify the changes of a service, and which further ones were found in Prometheus.

    The search covers latency and failed requests of Istio, Linkerd, Envoy, ingress-nginx, OpenTelemetry, gRPC and the
    JVM. A metric that was found is used only after you set the printed annotation. SLO objects (Sloth, Pyrra, OpenSLO)
    and policies of the workload's namespace need no annotation.
    """
    settings = call.settings
    ref = named_workload(settings, None, workload)
    from cotenant.base.kube import connect
    from cotenant.changes.objectives.search import find_guards
    from cotenant.profiler.prometheus.client import Client

    source = settings.section(ProfilerSettings).prometheus
    if not source.url:
        raise SettingsError(
            "no Prometheus is configured to read metrics of services from", fix="Set profiler.prometheus.url."
        )
    with closing(connect(settings.section(KubeSettings))) as kube, closing(Client(source)) as client:
        now_seconds = kube.clock().now_seconds()
        result = find_guards(kube, client, source.labels, ref, now_seconds, settings.section(ActionSettings))
    if call.output is not DocumentFormat.TABLE:
        print_document(result, call.output)
        return
    sys.stdout.writelines(f"{visible(line)}\n" for line in describe(result))


def describe(guards: Guards) -> Iterator[str]:
    """Yield the lines to print: metrics that verify changes now, then those found, each with the command to use it."""
    yield str(guards.workload)
    yield from (f"  verified by {measure}: {query}" for measure, query in guards.now.items())
    yield from (f"  not verified by {compared.measure}: {compared.error}" for compared in guards.refused)
    if not guards.now and not guards.refused:
        yield "  changes are verified only by OOM kills, restarts, replicas, throttling and CPU pressure"
    yield from (f"  {gap}" for gap in guards.gaps)
    if not guards.found:
        yield "  no metric of latency or failed requests of this workload was found in the last week"
    for objective in guards.found:
        yield ""
        workload = guards.workload
        from cotenant.changes.decide.regression_check import measure_text
        from cotenant.changes.soak.verification import annotate_command

        amounts = {"now": objective.latest, "median": objective.median, "highest": objective.highest}
        shown = [f"{name} {measure_text(objective.measure, v)}" for name, v in amounts.items() if v is not None]
        if objective.requests_per_hour is not None:
            shown.append(f"{objective.requests_per_hour:,.0f} requests an hour")
        if objective.ceiling is not None:
            period = f" over {objective.period}" if objective.period else ""
            shown.append(f"objective at most {measure_text(objective.measure, objective.ceiling)}{period}")
        yield f"found: {objective.measure}, {objective.source}: {', '.join(shown) or 'no value'}"
        if objective.reason:
            yield f"  the metric cannot be used: {objective.reason}"
            continue
        if objective.false_alarms is not None:
            yield f"  {percent(objective.false_alarms, 1)} of the hours without a change would have counted as harm"
        if objective.is_used:
            yield "  in use: an annotation of the workload, or an object of its namespace, names this metric"
            continue
        yield f"  to use this metric, run: {annotate_command(workload, objective.measure, objective.query)}"
