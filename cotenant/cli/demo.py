"""`cotenant demo`: a whole cluster in the browser, without network or Kubernetes; leaves nothing behind."""

from __future__ import annotations

import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli.cells import human
from cotenant.cli.command import examples, new_app, session_of
from cotenant.cli.output import DocumentFormat, DocumentOption, message, print_document
from cotenant.cli.progress import bars
from cotenant.model.table import Kind

if TYPE_CHECKING:
    from cotenant.edges.store import Store
    from cotenant.model.views import Overview
    from cotenant.settings.root import Settings
    from profiler.synthetic import SyntheticSpec

app = new_app()


@app.command(
    epilog=examples(
        "cotenant demo",
        "cotenant demo --once  # print the summary and end",
        "cotenant demo --nodes 10 --workloads 100 --days 14 --port 9000",
    )
)
def demo(
    ctx: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Print the summary and end; no server.")] = False,
    nodes: Annotated[int, typer.Option(min=1, max=2000, help="Nodes of the cluster.")] = 60,
    workloads: Annotated[int, typer.Option(min=1, max=20_000, help="Workloads of the cluster.")] = 900,
    days: Annotated[int, typer.Option(min=1, max=90, help="Days of history.")] = 28,
    seed: Annotated[int, typer.Option(help="The same seed gives the same cluster.")] = 7,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="TCP port; 0 takes any free one.")] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
    output: DocumentOption = DocumentFormat.TABLE,
) -> None:
    """Generate a cluster, analyse it and show it in the browser. Ctrl-C ends it and leaves nothing behind."""
    from profiler.synthetic import SyntheticSpec

    settings = session_of(ctx).load({"dashboard.port": port, "profiler.window_days": days}).settings
    with tempfile.TemporaryDirectory(prefix="cotenant-demo-") as folder:
        store = _prepared(Path(folder), SyntheticSpec(nodes, workloads, days, seed), settings)
        overview = _overview(store)
        if once:
            _print(overview, output)
        else:
            _show(store, overview, settings, browser=browser)


def _prepared(folder: Path, spec: SyntheticSpec, settings: Settings) -> Store:
    from cotenant.edges.clock import FixedClock
    from cotenant.edges.store import Store
    from cotenant.pipeline import corridor
    from cotenant.sim.demo import CLUSTER, fill

    message(
        f"Demo cluster: {spec.nodes} nodes, {spec.workloads} workloads, {spec.days} days, seed {spec.seed}."
        " Synthetic: nothing is applied to a real cluster."
    )
    store = Store(folder.as_uri(), CLUSTER)
    with bars() as progress:
        # The demo's clock stands at the end of its history, so that every run shows the same.
        clock = FixedClock(fill(store, spec, progress).inventory.time_seconds)
        corridor.publish(corridor.analyse(store, settings, clock, progress), store, settings, demo=True)
    return store


def _overview(store: Store) -> Overview:
    from cotenant.model.views import Overview

    overview = store.read_document("overview", Overview)
    assert overview is not None, "the corridor has just written it"
    return overview


def _print(overview: Overview, output: DocumentFormat) -> None:
    if output is DocumentFormat.TABLE:
        for line in summary(overview):
            typer.echo(line)
    else:
        print_document(overview, output)


def summary(overview: Overview) -> Iterator[str]:
    """The overview in a few lines."""
    head = overview.headline
    yield f"{overview.cluster}: {overview.nodes} nodes, {overview.workloads} workloads, {overview.pods} pods running"
    yield f"CPU     requested {head.cpu_requests_commitment:.0%}, used {head.cpu_utilisation:.0%} of allocatable"
    yield f"memory  requested {head.memory_requests_commitment:.0%}, used {head.memory_utilisation:.0%} of allocatable"
    cpu, memory = _cores(overview.cpu.batch_now), human(Kind.BYTES, int(overview.memory.batch_now))
    yield f"reclaimable for batch now: {cpu} cores, {memory} memory"
    if overview.peak:
        start = datetime.fromtimestamp(overview.peak.start_seconds, UTC)
        above = _cores(overview.peak.above_now_millicores)
        yield f"next peak {start:%a %H:%M} UTC, {above} cores above now, led by {overview.peak.led_by}"
    else:
        yield f"next peak: none. {overview.peak_reason}"
    saving, spared = _cores(overview.saving_cpu_millicores), human(Kind.BYTES, overview.saving_memory_bytes)
    few = overview.worth_the_effort
    yield f"saving: {saving} cores and {spared} memory; {few} recommendations give 70 % of the cores"
    yield "severities: " + ", ".join(f"{n} {severity}" for severity, n in sorted(overview.severities.items()))


def _cores(millicores: float) -> str:
    return f"{millicores / 1000:,.0f}"


def _show(store: Store, overview: Overview, settings: Settings, *, browser: bool) -> None:
    from cotenant.cli.dashboard import serve_store

    for line in summary(overview):
        message(line)

    def ready(url: str) -> None:
        message(f"\nopen {url}   (Ctrl-C ends the demo)")
        if browser:
            with suppress(webbrowser.Error):
                webbrowser.open(url)

    serve_store(store, settings, ready)
