"""`cotenant doctor`: finds what is missing on this machine, in store, Prometheus and cluster, each with its fix."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Final

import typer
from msgspec.structs import replace

from cotenant.base.commands.output import DocumentFormat, DocumentOption, console, message, print_document
from cotenant.base.commands.session import examples, new_app, session_of
from cotenant.base.kube import clock_of_results
from cotenant.base.process.clock import SystemClock
from cotenant.base.settings.load import Loaded
from cotenant.base.settings.sections import store_url
from cotenant.base.text import visible_lines
from cotenant.cli.analysis.metric_source import (
    HeaderOption,
    LabelOption,
    TokenOption,
    found_prometheus,
    prometheus_flags,
)
from cotenant.cli.analysis.recorded_history import kubeconfig_cluster
from cotenant.cli.cluster.probes import cluster, machine, metrics, storage
from cotenant.cli.cluster.probes.outcome import ProbeFinding, ProbeState
from cotenant.settings import Settings

app = new_app()

STYLES: Final = {
    ProbeState.OK: "green",
    ProbeState.WARNING: "yellow",
    ProbeState.FAILED: "bold red",
    ProbeState.SKIPPED: "dim",
}


@app.command(
    epilog=examples(
        "cotenant doctor",
        "cotenant doctor --prometheus http://localhost:9090 -o json",
        "cotenant doctor --prometheus https://prom.example --bearer-token-file token",
        "cotenant doctor --kubeconfig cluster.yaml --context prod",
    )
)
def doctor(
    ctx: typer.Context,
    prometheus: Annotated[
        str | None, typer.Option("--prometheus", "-p", metavar="URL", help="Prometheus to try.")
    ] = None,
    bearer_token_file: TokenOption = None,
    header: HeaderOption = None,
    label: LabelOption = None,
    kubeconfig: Annotated[str | None, typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig to try.")] = None,
    context: Annotated[str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")] = None,
    store: Annotated[str | None, typer.Option("--store", metavar="URL", help="Store to try.")] = None,
    output: DocumentOption = DocumentFormat.TABLE,
) -> None:
    """Check everything that a scan needs: what was checked, what was found, and the fix.

    Exit code 1 if a required check failed or could not be made.
    """
    flags = {
        **prometheus_flags(prometheus, bearer_token_file, header, label),
        "kube.kubeconfig": kubeconfig,
        "kube.context": context,
        "store.url": store,
    }
    findings = list(examine(lambda: session_of(ctx).load(flags).of(Settings), os.environ))
    if output is DocumentFormat.TABLE:
        from rich.text import Text

        out = console(sys.stdout)
        for finding in findings:
            must = ", required" if finding.required and finding.state is not ProbeState.OK else ""
            out.print(Text(f"{finding.probe}: {finding.state}{must}", STYLES[finding.state]), soft_wrap=True)
            for word in ("tried", "found", "fix"):
                if text := getattr(finding, word):
                    out.print(Text(f"  {word:<6} {visible_lines(text)}"), soft_wrap=True)
    else:
        print_document(findings, output)
    for finding in findings:
        if finding.required and finding.state is ProbeState.SKIPPED:
            message(f"{finding.probe}: {finding.found}. {finding.fix}", style="yellow")
    if any(finding.required and finding.state in (ProbeState.FAILED, ProbeState.SKIPPED) for finding in findings):
        raise typer.Exit(1)


def examine(load: Callable[[], Loaded[Settings]], env: Mapping[str, str]) -> Iterator[ProbeFinding]:
    """Yield the findings in the order in which to fix them; if settings are invalid, only those about the machine."""
    blocked = False
    for finding in machine.probes(load):
        blocked = blocked or finding.fatal
        yield finding
    if blocked:
        return
    loaded, clock = load(), SystemClock()
    settings = loaded.settings
    url = store_url(settings.store, env)
    # ages of what is stored as `cotenant status` and the pages count them; a server's clock is compared with ours
    yield from storage.probes(url, clock_of_results(settings.kube, reaches_cluster=loaded.reaches_cluster))
    prometheus = found_prometheus(settings, env)
    profiler = replace(settings.profiler, prometheus=prometheus) if prometheus else settings.profiler
    of_cluster = list(cluster.probes(settings.kube, settings.manager.namespace))
    readable = any(finding.probe == cluster.RIGHTS and finding.state is ProbeState.OK for finding in of_cluster)
    recorders, asked_well = storage.running_recorders(url, clock.now_seconds()), bool(profiler.prometheus.url)
    for finding in metrics.probes(profiler, clock, alone=not readable, recorded=bool(recorders)):
        asked_well = asked_well and not finding.fatal
        yield finding
    if recorders and asked_well:
        yield metrics.probe_recorder(url, recorders, profiler, kubeconfig_cluster(settings, True))
    yield from of_cluster
