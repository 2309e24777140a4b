"""EDGE: `cotenant simulate`: compares ways to share nodes with batch work on a simulated or a recorded cluster."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cotenant.base.commands.output import Format, NoHeadersOption, message, print_table
from cotenant.base.commands.progress import bars
from cotenant.base.commands.results import (
    AllClustersOption,
    AnswerT,
    ClusterOption,
    StoreOption,
    computed_for_each,
    exit_if_partial,
    stored_clusters_of,
)
from cotenant.base.commands.session import examples, new_app, session_of
from cotenant.base.errors import StoreError, UsageError
from cotenant.base.table import Column, Kind, Schema, Table, of_clusters
from cotenant.base.tables.quantity import Unit
from cotenant.base.text import small_percent
from cotenant.experiment.outcome import RISKS_PERCENT, STORED, what_if
from cotenant.settings import Settings
from cotenant_lab.simulation.peaks.replay_table import peak_replays

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cotenant.base.commands.results import StoredCluster
    from cotenant.base.errors import CotenantError
    from cotenant.base.progress import Progress
    from cotenant.base.store import Store
    from cotenant.experiment.outcome import Sharing, SharingOutcome, SharingScenario
    from cotenant.experiment.world import World
    from cotenant_lab.simulation.nodes.incident_story import IncidentStory
    from cotenant_lab.simulation.peaks.peak_replay import PeakReplay

app = new_app()

UNSAID: Final = ("report", "output", "no_headers", "quiet", "store", "cluster", "all_clusters")
"""Options that do not change what a report says."""
WAYS: Final = ("none", "static-overcommit", "koordinator", "cotenant", "oracle")

SCHEMA: Final = Schema(
    "simulated_sharing",
    (
        Column("sharing", "Sharing", Kind.TEXT, "How nodes are shared with batch work.", essential=True),
        Column(
            "knob", "Knob", Kind.NUMBER, "cotenant: risk %; koordinator: reclaim %; static: share lent.", essential=True
        ),
        Column("batch_core_hours", "Batch core-hours", Kind.NUMBER, "Core-hours of finished batch work."),
        Column("utilisation_ratio", "Utilisation", Kind.RATIO, "Core-hours used / core-hours of the nodes."),
        Column("violation_ratio", "Node-time short", Kind.RATIO, "Share of node-time with demand above capacity."),
        Column("latency_ratio", "p99", Kind.NUMBER, "Services' p99 latency / that without batch.", unit=Unit.RATIO),
        Column("deadlines_met_ratio", "Deadlines met", Kind.RATIO, "Share of due batch jobs that met the deadline."),
        Column("evictions", "Evictions", Kind.INTEGER, "Batch pods evicted for lack of memory."),
        Column("suppressed_core_hours", "Suppressed", Kind.NUMBER, "Core-hours promised to batch but withheld."),
        Column("trace", "Trace", Kind.TEXT, "Where the pods' usage comes from.", wide=True),
        Column("nodes", "Nodes", Kind.INTEGER, "Simulated nodes.", wide=True),
        Column("days", "Days", Kind.INTEGER, "Evaluated days, after the history.", wide=True),
        Column("seed", "Seed", Kind.INTEGER, "Seed of the random numbers.", wide=True, unit=Unit.NUMBER),
        Column("incident", "Incident", Kind.TEXT, "What goes wrong on the second day.", wide=True),
    ),
    ("sharing", "knob"),
)


def _ways(value: list[str] | None) -> list[str]:
    for way in value or ():
        if way not in WAYS:
            raise typer.BadParameter(f"{way!r} is not one of {', '.join(WAYS)}")
    return value or []


PolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", metavar="NAME", callback=_ways, help=f"Sharing policy; repeatable. Default: {', '.join(WAYS)}."
    ),
]
RiskOption = Annotated[
    list[float] | None,
    typer.Option(
        "--risk", min=0.01, max=50, help="Risk of cotenant's forecasts, percent; repeatable. Default: 1, or a curve."
    ),
]
StaticShareOption = Annotated[
    list[float] | None,
    typer.Option("--static-share", min=0, max=1, help="Share of each node that is always lent. Default: 0.5."),
]
IncidentOption = Annotated[
    str | None,
    typer.Option(
        "--incident",
        metavar="NAME",
        help="Incident on day two: flash-crowd, prometheus-away, memory-leak, manager-dead or node-failure.",
    ),
]
ReportOption = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Also write the results to one HTML file, with charts."),
]
ReservationsOption = Annotated[
    bool,
    typer.Option(
        "--reservations",
        help="Simulate reservations: how long pods of daily peaks wait with and without forecast-driven plans.",
    ),
]


@app.command(
    epilog=examples(
        "cotenant simulate",
        "cotenant simulate --trace stored --policy koordinator --policy cotenant --risk 1 --risk 5",
        "cotenant simulate --trace stored --all-clusters  # each on its own history, with a column that names it",
        "cotenant simulate --trace traces/bitbrains_rnd.parquet --nodes 40 --pods 800 -o csv",
        "cotenant simulate --incident flash-crowd  # what the operator saw, what cotenant did, what it cost",
        "cotenant simulate --seeds 10 --report simulation.html",
        "cotenant simulate --trace stored --reservations  # how long pods of daily peaks wait, with and without plans",
    )
)
def simulate(
    ctx: typer.Context,
    trace: Annotated[
        str,
        typer.Option(
            "--trace",
            metavar="synthetic|stored|FILE",
            help="Pods of the synthetic cluster, of the stored history, or of a trace file (docs/simulate.md).",
        ),
    ] = "synthetic",
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=5000, help="Nodes; not with --trace stored.")] = 20,
    pods: Annotated[int | None, typer.Option("--pods", min=1, help="Number of pods; default: 20 a node.")] = None,
    days: Annotated[int | None, typer.Option("--days", min=2, max=90, help="Days to evaluate; default: 7.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Random seed: same seed, same result.")] = 1,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=100, help="Number of runs, each with the next seed.")] = 1,
    policy: PolicyOption = None,
    risk: RiskOption = None,
    static_share: StaticShareOption = None,
    incident: IncidentOption = None,
    reservations: ReservationsOption = False,
    report: ReportOption = None,
    cluster: ClusterOption = None,
    all_clusters: AllClustersOption = False,
    store: StoreOption = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="Output format of the rows.")] = Format.TABLE,
    no_headers: NoHeadersOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no summary.")] = False,
) -> None:
    """Compare ways to share nodes with batch work on a simulated cluster, by this program's own decisions. Read-only.

    With --trace stored, replay your own nodes' history at several risks, before anything is turned on, and keep the
    outcome for the dashboard's page Try a risk. With --reservations, compare plans instead of ways to share.
    """
    from cotenant.experiment.outcome import Incident, SharingScenario

    if trace != STORED and (store or cluster or all_clusters):
        raise UsageError(
            "--store, --cluster and --all-clusters need --trace stored", fix="Add --trace stored or drop these options."
        )
    if all_clusters and report:
        raise UsageError("--report covers a single cluster", fix="Name the cluster: --cluster NAME.")
    try:
        happens = None if incident is None else Incident(incident)
    except ValueError as error:
        raise UsageError(f"there is no incident {incident!r}", fix=f"Known names: {', '.join(Incident)}.") from error
    scenario = SharingScenario(trace, nodes, pods or 20 * nodes, days or 7, seed, happens)
    if reservations:
        _print_replays(ctx, scenario)
        return
    risks = tuple(risk or (RISKS_PERCENT if trace == STORED else ()))
    knobs = _knobs(policy or list(WAYS), risks, tuple(static_share or ()), curve=report is not None)

    def simulate_cluster(place: StoredCluster | None, settings: Settings) -> Simulation:
        with bars(quiet=quiet) as progress:
            return _run_simulation(scenario, seeds, knobs, place, settings, progress)

    answers, failures = _answers_by_cluster(ctx, simulate_cluster)
    rows = _combine_tables(ctx, {name: table(simulation.outcomes) for name, simulation in answers.items()})
    print_table(rows, output, headers=not no_headers)
    for name, simulation in answers.items():  # after the rows: a report or store that cannot be written costs none
        _finish(ctx, simulation, f"cluster {name}: " if all_clusters else "")
    exit_if_partial(failures)


def _finish(ctx: typer.Context, simulation: Simulation, head: str) -> None:
    """The story for people, the report, what the dashboard shows, and the summary."""
    from cotenant.base.process.clock import SystemClock
    from cotenant.base.usage.backtest import WHAT_IF
    from cotenant.experiment.interference import Interference

    options, outcomes, story, place = ctx.params, simulation.outcomes, simulation.story, simulation.place
    if story is not None and options["output"] in (Format.TABLE, Format.WIDE):
        sys.stdout.write(f"\n{head}{story_text(story)}")
    if options["report"] is not None:
        from cotenant_lab.commands.simulation_report import SimulationContents, page

        stories, now_seconds = [story] if story is not None else [], int(SystemClock().now_seconds())
        contents = SimulationContents(outcomes, stories, Interference(), command_of(options), now_seconds)
        file = Path(options["report"])
        try:
            file.write_text(page(contents), encoding="utf-8")
        except OSError as error:
            raise StoreError(
                f"{file} cannot be written: {error.strerror}", fix="Give --report a writable path."
            ) from error
    scenario = outcomes[0].scenario
    if place is not None and scenario.incident is None:  # the dashboard shows the first seed, and only cotenant's
        document = what_if([outcome for outcome in outcomes if outcome.scenario == scenario], place.now_seconds())
        if document is not None:
            place.store.write_document(WHAT_IF, document)
    if not options["quiet"]:
        message(f"{head}{summary(outcomes)}")


def _answers_by_cluster(
    ctx: typer.Context, ask: Callable[[StoredCluster | None, Settings], AnswerT]
) -> tuple[dict[str, AnswerT], Mapping[str, CotenantError]]:
    """Return the answer for each selected stored cluster by name, and the errors of those that failed.

    Without `--trace stored` no store is read: the only answer is under the name "".
    """
    options = ctx.params
    if options["trace"] != STORED:
        return {"": ask(None, Settings.of(session_of(ctx).read().settings))}, {}
    clusters = stored_clusters_of(ctx, options["store"], options["cluster"], options["all_clusters"])
    every = options["all_clusters"]
    return computed_for_each(clusters, lambda at: ask(at, Settings.of(at.settings)), "simulated", all_clusters=every)


def _combine_tables(ctx: typer.Context, tables: Mapping[str, Table]) -> Table:
    """The only table, or those of all clusters with a column that names each row's."""
    first = next(iter(tables.values()))
    return of_clusters(first.schema, tables) if ctx.params["all_clusters"] else first


@dataclass(frozen=True, slots=True)
class Simulation:
    """All outcomes, and the incident's story in the first seed (None without an incident); `place`: stored cluster."""

    place: StoredCluster | None
    outcomes: list[SharingOutcome]
    story: IncidentStory | None


def _run_simulation(
    first: SharingScenario,
    seeds: int,
    knobs: Mapping[Sharing, Sequence[float]],
    place: StoredCluster | None,
    settings: Settings,
    progress: Progress,
) -> Simulation:
    """Every way at every knob for each seed; the incident's story is of the first seed, beside the same without it."""
    from cotenant.experiment.interference import Interference
    from cotenant.experiment.loop import run_all_settings
    from cotenant.experiment.outcome import Sharing
    from cotenant_lab.experiment.comparison import installed_outcomes
    from cotenant_lab.simulation.nodes.incident_story import story_of

    outcomes: list[SharingOutcome] = []
    story = None
    store = None if place is None else place.store
    for number in range(seeds):
        scenario = replace(first, seed=first.seed + number)
        cluster = _world(scenario, store, settings, progress)
        outcomes += run_all_settings(cluster, knobs, Interference(), progress)
        ours = installed_outcomes(outcomes, Sharing.COTENANT)
        if scenario.incident is not None and ours and story is None:
            spared = _world(replace(scenario, incident=None), store, settings, progress)
            story = story_of(ours[0], cluster, spared, progress)
    return Simulation(place, outcomes, story)


def _print_replays(ctx: typer.Context, scenario: SharingScenario) -> None:
    """Print what plans would have done for peaks of services (--reservations), and a summary sentence per cluster."""
    from cotenant.base.resource import Resource
    from cotenant.pipeline.nodes.reclaimable import POD_SIGNAL
    from cotenant.pipeline.shards.work import workload_totals
    from cotenant.pipeline.stored_history import load
    from cotenant_lab.experiment.worlds import cell_cluster, history_of
    from cotenant_lab.simulation.peaks.peak_replay import replay_services

    options, quiet = ctx.params, ctx.params["quiet"]
    for name in ("policy", "risk", "static_share", "incident", "report"):
        if options[name]:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} does not go with --reservations", fix=f"Leave out {option} or --reservations.")
    if options["seeds"] > 1:
        raise UsageError("--seeds does not go with --reservations", fix="Run the simulation again with another --seed.")
    if (trace := options["trace"]) not in (STORED, "synthetic"):
        raise UsageError(
            f"--trace {trace} has no workloads that could have a plan", fix="Give --trace stored or synthetic."
        )

    def replays_of(place: StoredCluster | None, settings: Settings) -> list[PeakReplay]:
        with bars(quiet=quiet) as progress:
            progress.stage("Read history", 1)
            history = load(place.store, settings) if place else history_of(cell_cluster(scenario, 0, scenario.nodes))
            usage = workload_totals(history)[1][POD_SIGNAL[Resource.CPU]]
            progress.advance()
            return replay_services(history.inventory, usage, scenario.days, scenario.seed, settings, progress)

    answers, failures = _answers_by_cluster(ctx, replays_of)
    shown = _combine_tables(ctx, {name: peak_replays(replays) for name, replays in answers.items()})
    print_table(shown, options["output"], headers=not options["no_headers"])
    for name, replays in answers.items() if not quiet else ():
        message(f"cluster {name}: {replay_summary(replays)}" if options["all_clusters"] else replay_summary(replays))
    exit_if_partial(failures)


def replay_summary(replays: Sequence[PeakReplay]) -> str:
    """Return a sentence on all services: how long pods waited, and how much reserved capacity was idle."""
    from cotenant_lab.simulation.peaks.peak_play import all_services

    without, reserved = (all_services([getattr(replay, arm) for replay in replays]) for arm in ("without", "reserved"))
    if not (without.pending_seconds and reserved.pending_seconds):
        return f"{len(replays)} services, none of which had a peak in these days"
    before, after, idle = without.p95_seconds, reserved.p95_seconds, reserved.idle
    return (
        f"{len(replays)} services with forecast-driven plans: p95 wait of peak pods {after:.0f} s, {before:.0f} s "
        f"without; {idle:,.0f} reserved core-hours idle (a simulation: docs/simulate.md says what it assumes)"
    )


def story_text(story: IncidentStory) -> str:
    """Return the time line and the costs of an incident as text for a terminal."""
    from cotenant_lab.commands.simulation_report import amount, clock

    lines = [f"{story.title}\n"]
    lines += [f"  {clock(line.seconds):>8}  {line.witness:<9} {line.text}\n" for line in story.lines]
    lines.append("What it cost\n")
    for cost in story.costs:
        goal = "" if cost.at_most is None else f"  (at most {cost.at_most:g}: {'met' if cost.met else 'missed'})"
        lines.append(f"  {cost.what}: {amount(cost)}{goal}\n")
    return "".join(lines)


def command_of(options: Mapping[str, Any]) -> str:
    """Return the command line that computes a report again; `options` are those of `simulate`, by parameter."""
    arguments = ["cotenant", "simulate"]
    for name, value in options.items():
        unset = value is None or value is False
        values = value if isinstance(value, list | tuple) else [] if unset else [value]
        if name not in UNSAID:
            arguments += [argument for value in values for argument in (f"--{name.replace('_', '-')}", str(value))]
    return shlex.join(arguments)


def table(outcomes: Sequence[SharingOutcome]) -> Table:
    """Return a table with one row per outcome."""
    names = {column.name for column in SCHEMA.columns}
    rows: list[dict[str, Any]] = []
    for outcome in outcomes:
        row = {name: value for name, value in outcome.row().items() if name in names}
        rows.append(row | {"sharing": str(outcome.sharing), "incident": str(outcome.scenario.incident or "")})
    return Table.from_rows(SCHEMA, rows)


def summary(outcomes: Sequence[SharingOutcome]) -> str:
    """Return a sentence that compares cotenant with Koordinator's formulas over all seeds, or names the simulation."""
    from cotenant.experiment.outcome import Sharing
    from cotenant_lab.experiment.comparison import batch_ratio, installed_outcomes, mean_violation_ratio

    ours, theirs = installed_outcomes(outcomes, Sharing.COTENANT), installed_outcomes(outcomes, Sharing.KOORDINATOR)
    ratio = batch_ratio(ours, theirs)
    if not ours or not ratio >= 0:
        scenario = outcomes[0].scenario
        return f"{len(outcomes)} runs of {scenario.days} days on {scenario.nodes} nodes"
    short, their_short = (mean_violation_ratio(way) for way in (ours, theirs))
    return (
        f"cotenant at {ours[0].knob:g} % risk: {ratio:.2f} x the batch core-hours of Koordinator's formulas, nodes "
        f"short of capacity {small_percent(short)} of the time against {small_percent(their_short)} "
        "(a simulation: docs/simulate.md says what it assumes)"
    )


def _knobs(
    ways: Sequence[str], risks: tuple[float, ...], shares: tuple[float, ...], *, curve: bool
) -> Mapping[Sharing, Sequence[float]]:
    """Settings of each way: what was asked for, else those of an install, or those of a curve."""
    from cotenant.experiment.loop import INSTALLED
    from cotenant.experiment.outcome import Sharing
    from cotenant_lab.experiment.comparison import KNOBS

    usual: dict[Sharing, tuple[float, ...]] = {way: (knob,) for way, knob in INSTALLED.items()}
    usual = {**KNOBS, Sharing.COTENANT: RISKS_PERCENT} if curve else usual | {Sharing.STATIC: (0.5,)}
    knobs_given = {Sharing.COTENANT: risks, Sharing.STATIC: shares}
    return {way: knobs_given.get(way) or usual.get(way, (0.0,)) for way in map(Sharing, dict.fromkeys(ways))}


def _world(scenario: Any, place: Store | None, settings: Settings, progress: Progress) -> World:
    """Return the world of a scenario from the stored history, a trace file or the synthetic cluster.

    Raises UsageError when the trace is no file.
    """
    from cotenant.experiment.nodes_past import stored_world
    from cotenant_lab.experiment.families import read
    from cotenant_lab.experiment.worlds import SYNTHETIC, synthetic_world, trace_world

    if place is not None:
        return stored_world(place, settings, scenario, progress)
    if scenario.trace == SYNTHETIC:
        return synthetic_world(scenario, progress)
    path = Path(scenario.trace)
    if not path.is_file():
        raise UsageError(
            f"--trace {scenario.trace} is not a file", fix="Give synthetic, stored or a Parquet file: docs/simulate.md."
        )
    return trace_world(scenario, read(path))
