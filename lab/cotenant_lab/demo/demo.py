"""`cotenant demo`: a whole cluster in the browser, without network or Kubernetes; the next start reuses its history."""

from __future__ import annotations

import math
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.base.commands.cells import human
from cotenant.base.commands.output import DocumentFormat, DocumentOption, message, print_document
from cotenant.base.commands.progress import bars
from cotenant.base.commands.session import examples, new_app, session_of
from cotenant.base.errors import UsageError
from cotenant.base.table import Kind
from cotenant.base.text import counted, percent
from cotenant.base.usage.peak import BUSIEST_NAME, PEAK_NAME
from cotenant.settings import Settings
from cotenant_lab.demo.on_cluster import DEFAULT_WORKLOADS, DemoOptions, run
from cotenant_lab.demo.time_left import COPY_STAGE

if TYPE_CHECKING:
    from cotenant.base.store import Store
    from cotenant.recommender.model.views import Overview
    from cotenant_lab.demo.progress_page import ProgressPage
    from cotenant_lab.simulation.cluster import DemoScenario
    from cotenant_lab.synthetic import SyntheticSpec

app = new_app()

IntervalOption = Annotated[
    float | None,
    typer.Option(min=1, max=3600, help="With --cluster: seconds between usage reports; default: 60."),
]
SpeedOption = Annotated[
    float, typer.Option(min=1, max=3600, help="With --cluster: factor by which the day passes faster.")
]
HistoryOption = Annotated[
    str | None, typer.Option(metavar="URL", help="With --cluster: fsspec URL of the store for the history.")
]
RemoveStoreOption = Annotated[bool, typer.Option("--remove-store", help="With --remove: delete the history too.")]


@app.command(
    epilog=examples(
        "cotenant demo",
        "cotenant demo --once  # print the summary and end",
        "cotenant demo --nodes 10 --workloads 100 --days 14 --port 9000",
        "cotenant demo --cluster test.kubeconfig --workloads 50  # what it would create there; writes nothing",
        "cotenant demo --cluster test.kubeconfig --workloads 50 --apply  # and reports what its pods use, until Ctrl-C",
        "cotenant demo --cluster test.kubeconfig --apply --speed 60  # an hour of the day in a minute",
        "cotenant demo --cluster test.kubeconfig --remove --apply --remove-store",
    )
)
def demo(
    ctx: typer.Context,
    once: Annotated[
        bool, typer.Option("--once", help="Print the summary and end; with --cluster: report usage once and end.")
    ] = False,
    nodes: Annotated[int, typer.Option(min=1, max=2000, help="Number of nodes.")] = 60,
    workloads: Annotated[
        int | None, typer.Option(min=1, max=20_000, help="Number of workloads; default: 900, 40 with --cluster.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=90, help="Days of history.")] = 28,
    seed: Annotated[int, typer.Option(help="The same seed gives the same cluster.")] = 7,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="TCP port; 0 takes any free port.")] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="KUBECONFIG", help="Create workloads on this cluster; only list them without --apply."),
    ] = None,
    context: Annotated[str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="With --cluster: write changes.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="With --cluster: remove the demo.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --cluster: allow real nodes.")] = False,
    fake_nodes: Annotated[bool, typer.Option("--fake-nodes", help="With --cluster: create kwok nodes too.")] = False,
    interval: IntervalOption = None,
    speed: SpeedOption = 1.0,
    store: HistoryOption = None,
    remove_store: RemoveStoreOption = False,
    output: DocumentOption = DocumentFormat.TABLE,
) -> None:
    """Generate a cluster, analyse it and show it in the browser until Ctrl-C.

    Only its history remains, in the user's cache (~/.cache/cotenant/demo), so that the next start takes seconds. With
    --cluster its workloads are created on a test cluster instead, in separate namespaces; their history goes to the
    store, and until Ctrl-C the usage of fake nodes is reported as their agents would.
    """
    from cotenant.base.process.clock import SystemClock
    from cotenant_lab.synthetic import SyntheticSpec

    options = DemoOptions(apply, remove, yes, fake_nodes, remove_store, once and cluster is not None, speed, interval)
    if cluster is None:
        options.require_cluster()
        if store is not None:
            raise UsageError("--store needs --cluster", fix="Leave out --store, or add --cluster.")
    else:
        flags = {"kube.kubeconfig": cluster, "kube.context": context, "store.url": store}
        now_seconds = int(SystemClock().now_seconds())
        spec = SyntheticSpec(nodes, workloads or DEFAULT_WORKLOADS, days, seed, now_seconds)
        run(Settings.of(session_of(ctx).load(flags).settings), spec, options)
        return
    session = session_of(ctx)
    quiet = {} if session.debug else {"telemetry.log_level": "warning"}
    settings = Settings.of(session.load({"dashboard.port": port, "profiler.window_days": days, **quiet}).settings)
    _run_without_cluster(
        settings, SyntheticSpec(nodes, workloads or 900, days, seed, rush=True), output if once else None, browser
    )


def _run_without_cluster(settings: Settings, spec: SyntheticSpec, once: DocumentFormat | None, browser: bool) -> None:
    """Run the demo without a cluster of the user.

    `once`: print the overview in this format and return; None: serve the dashboard with a cluster in this process.
    """
    from cotenant_lab.demo.live_cluster import Opening, show

    # A signal is an exception, as with Ctrl-C, so that the files go first; also where uvicorn raises it again.
    before, currency = signal.signal(signal.SIGTERM, signal.default_int_handler), settings.recommender.prices.currency
    try:
        with tempfile.TemporaryDirectory(prefix="cotenant-demo-") as name, _address(settings, once) as listener:
            folder = Path(name)
            if listener is None:
                overview = _overview(_prepare_demo(folder, spec, settings, None)[0])
                if once is None or once is DocumentFormat.TABLE:
                    for line in summary(overview, currency):
                        typer.echo(line)
                else:
                    print_document(overview, once)
                return
            opening = Opening.of(listener, settings, folder, browser=browser)
            with opening.page:
                store, story = _prepare_demo(folder, spec, settings, opening.page)
                for line in summary(_overview(store), currency):
                    message(line)
                show(store, story, settings, folder, opening)
    finally:
        signal.signal(signal.SIGTERM, before)


def _address(settings: Settings, once: DocumentFormat | None) -> AbstractContextManager[socket.socket | None]:
    """The socket of the pages, bound before the cluster is generated: a port in use is said at once."""
    if once is not None:
        return nullcontext()
    from cotenant.dashboard.server.listener import bind_socket

    return bind_socket(settings.dashboard.host, settings.dashboard.port)


def _prepare_demo(
    folder: Path, spec: SyntheticSpec, settings: Settings, page: ProgressPage | None
) -> tuple[Store, DemoScenario]:
    from cotenant.base.process.clock import FixedClock
    from cotenant.base.settings.sections import PipelineSettings, folder_url
    from cotenant.base.store import FACTS, Store, StoreFacts
    from cotenant.manager.decisions.results import collect
    from cotenant.pipeline import daily_analysis
    from cotenant.pipeline.daily_analysis import Sharding
    from cotenant.pipeline.shards.executors import Processes
    from cotenant_lab.demo.kept_demo import demo_folder, keep_demo, restore_demo
    from cotenant_lab.simulation.cluster import DemoScenario
    from cotenant_lab.simulation.controllers.autoscaler import demand_of
    from cotenant_lab.simulation.demo import CLUSTER, containers_with_gpus, fill, spikes
    from cotenant_lab.simulation.node_reports import node_metrics
    from cotenant_lab.simulation.usage_now import curves

    message(
        f"Demo cluster: {spec.nodes} nodes, {spec.workloads} workloads, {spec.days} days, seed {spec.seed}."
        " Synthetic: nothing is applied to a real cluster."
    )
    store, kept_folder = Store(folder_url(folder / "store"), CLUSTER), demo_folder(spec, settings)
    with bars() as shown:
        progress = page.following(shown, spec.workloads * spec.days) if page else shown
        if kept_folder.exists():
            progress.stage(COPY_STAGE, 1)
            if (scenario := restore_demo(kept_folder, store, folder / "store")) is not None:
                message(f"The history is that of the demo's last start, kept in {kept_folder}.")
                return store, scenario
        # The demo's clock stands at the end of its history, so that every run shows the same.
        generated = fill(store, spec, progress)
        store.write_document(FACTS, StoreFacts(demo=True))
        inventory = generated.inventory
        demand = demand_of(generated, (w.ref for w in inventory.workloads if w.autoscaler))
        metrics, usage_of_a_pod, gpus = node_metrics(generated), curves(generated), containers_with_gpus(generated)
        del generated  # a gigabyte of usage that is in the store now
        clock = FixedClock(inventory.time_seconds)
        spikes(store, inventory, spec.seed, progress)
        # Two processes where the machine has the CPUs, since somebody waits for the chart; else as the settings say.
        untouched = settings.pipeline == PipelineSettings()
        sharding = Sharding(Processes()) if untouched and (os.cpu_count() or 1) > 1 else None
        analysis = daily_analysis.analyse(store, settings, clock, progress, sharding=sharding)
        daily_analysis.publish(analysis, store, settings)
        scenario = DemoScenario(inventory, collect(analysis), demand, metrics, usage_of_a_pod, gpus)
        progress.stage(COPY_STAGE, 1)
        keep_demo(kept_folder, folder / "store", scenario)
    return store, scenario


def _overview(store: Store) -> Overview:
    from cotenant.recommender.model.views import Overview

    overview = store.read_document("overview", Overview)
    assert overview is not None, "the analysis has just written it"
    return overview


def summary(overview: Overview, currency: str) -> Iterator[str]:
    """Yield the lines that summarise the overview for a terminal."""
    from cotenant.recommender.model.savings_text import balanced_text

    head = overview.headline
    sizes = (counted(overview.nodes, "node"), counted(overview.workloads, "workload"), counted(overview.pods, "pod"))
    yield f"{overview.cluster}: {', '.join(sizes)} running"
    for name, requested, used in (
        ("CPU", head.cpu_requests_commitment, head.cpu_utilisation),
        ("memory", head.memory_requests_commitment, head.memory_utilisation),
    ):
        yield f"{name:<7} requested {percent(requested)}, used {percent(used)} of allocatable"
    if math.isfinite(overview.cpu.batch_now) and math.isfinite(overview.memory.batch_now):
        cpu, memory = _cores(overview.cpu.batch_now), human(Kind.BYTES, int(overview.memory.batch_now))
        yield f"free for batch now: {cpu} cores, {memory} memory"
    else:
        yield "free for batch now: not known; see cotenant get reclaimable for each node's reason"
    if peak := overview.peak:
        start, height = datetime.fromtimestamp(peak.start_seconds, UTC), _cores(peak.height_millicores)
        mild = "" if peak.pronounced else " (not a pronounced peak)"
        rise = f"{BUSIEST_NAME} from {start:%a %H:%M} UTC, {percent(peak.above_mean, signed=True)} over the day's mean"
        yield f"{PEAK_NAME}: {height} cores, {rise}{mild}; {peak.led_by} adds most"
    else:
        yield f"{PEAK_NAME}: unknown. {overview.peak_reason}"
    if (planned := overview.savings) is not None:
        yield f"recommendations now: {balanced_text(planned.now, currency)}"
        yield f"after all steps: {balanced_text(planned.all_steps, currency)}"
        yield f"{overview.worth_the_effort} recommendations give 70 % of the cores that are freed"
    yield "severities: " + ", ".join(f"{n} {severity}" for severity, n in sorted(overview.severities.items()))


def _cores(millicores: float) -> str:
    return f"{millicores / 1000:,.0f}"
