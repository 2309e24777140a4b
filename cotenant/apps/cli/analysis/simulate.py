"""EDGE: `cotenant simulate`: ways to share nodes with batch work, tried on a simulated or a recorded cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cotenant.apps.cli.analysis.results import ClusterOption, StoreOption, open_store
from cotenant.apps.cli.command import examples, new_app, session_of
from cotenant.apps.cli.output import Format, NoHeadersOption, message, print_table
from cotenant.apps.cli.progress import bars
from cotenant.core.model.errors import UsageError
from cotenant.core.model.table import Column, Kind, Schema, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cotenant.apps.experiment.outcome import Incident, Sharing, SharingOutcome
    from cotenant.apps.experiment.world import World
    from cotenant.core.adapters.store import Store
    from cotenant.core.model.progress import Progress
    from cotenant.core.settings.root import Settings

app = new_app()

STORED: Final = "stored"
WAYS: Final = ("none", "static-overcommit", "koordinator", "cotenant", "oracle")

SCHEMA: Final = Schema(
    "simulated_sharing",
    (
        Column("sharing", "Sharing", Kind.TEXT, "How nodes are shared with batch work.", essential=True),
        Column(
            "knob", "Knob", Kind.NUMBER, "cotenant: risk in %; koordinator: reclaim %; static: share.", essential=True
        ),
        Column("batch_core_hours", "Batch core-hours", Kind.NUMBER, "Done by batch pods, without lost work."),
        Column("utilisation_ratio", "Utilisation", Kind.RATIO, "Used core-hours over those that the nodes have."),
        Column("violation_ratio", "Short", Kind.RATIO, "Node-time in which use and promises exceeded the node."),
        Column("latency_ratio", "p99", Kind.NUMBER, "p99 of latency-sensitive pods over that without batch, modelled."),
        Column("deadlines_met_ratio", "Deadlines met", Kind.RATIO, "Of batch jobs that were due."),
        Column("evictions", "Evictions", Kind.INTEGER, "Batch pods that left for want of memory."),
        Column("suppressed_core_hours", "Suppressed", Kind.NUMBER, "Core-hours promised to batch and not given."),
        Column("trace", "Trace", Kind.TEXT, "Where the pods' usage comes from.", wide=True),
        Column("nodes", "Nodes", Kind.INTEGER, "Simulated nodes.", wide=True),
        Column("days", "Days", Kind.INTEGER, "Judged days, after the history.", wide=True),
        Column("seed", "Seed", Kind.INTEGER, "Of all that is drawn.", wide=True),
        Column("incident", "Incident", Kind.TEXT, "What goes wrong on the second day.", wide=True),
    ),
    ("sharing", "knob"),
)


def _ways(value: list[str] | None) -> list[str]:
    for way in value or ():
        if way not in WAYS:
            raise typer.BadParameter(f"{way!r} is none of {', '.join(WAYS)}")
    return value or []


@app.command(
    epilog=examples(
        "cotenant simulate",
        "cotenant simulate --trace stored --policy koordinator --policy cotenant --risk 1 --risk 5",
        "cotenant simulate --trace traces/bitbrains_rnd.parquet --nodes 40 --pods 800 -o csv",
        "cotenant simulate --incident flash-crowd --seed 3 -o json",
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
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=5000, help="Nodes; not for the stored history.")] = 20,
    pods: Annotated[int | None, typer.Option("--pods", min=1, help="Pods on them; default: 20 a node.")] = None,
    days: Annotated[int | None, typer.Option("--days", min=2, max=90, help="Judged days; default: 7.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of all that is drawn: same seed, same result.")] = 1,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", metavar="NAME", callback=_ways, help=f"May be repeated; default: all of {', '.join(WAYS)}."
        ),
    ] = None,
    risk: Annotated[
        list[float] | None,
        typer.Option("--risk", min=0.01, max=50, help="Of cotenant's peaks, percent; may be repeated. Default: 1."),
    ] = None,
    static_share: Annotated[
        list[float] | None,
        typer.Option("--static-share", min=0, max=1, help="Of each node, lent at all times. Default: 0.5."),
    ] = None,
    incident: Annotated[
        str | None,
        typer.Option(
            "--incident", metavar="NAME", help="flash-crowd, prometheus-away, memory-leak or manager-dead, on day two."
        ),
    ] = None,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to write the rows.")] = Format.TABLE,
    no_headers: NoHeadersOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
) -> None:
    """Try ways to share nodes with batch work on a simulated cluster, by this program's own decisions. Read-only.

    With --trace stored: on what your nodes did, before anything is turned on.
    """
    from cotenant.apps.experiment.comparison import swept
    from cotenant.apps.experiment.interference import Interference
    from cotenant.apps.experiment.outcome import SharingScenario

    if trace != STORED and (store or cluster):
        raise UsageError("--store and --cluster go with --trace stored", fix="Add --trace stored, or leave them out.")
    settings = session_of(ctx).load({"store.url": store}).settings
    scenario = SharingScenario(trace, nodes, pods or 20 * nodes, days or 7, seed, _incident(incident))
    place = open_store(settings, cluster) if trace == STORED else None
    with bars(quiet=quiet) as progress:
        world = _world(scenario, place, settings, progress)
        knobs = _knobs(policy or list(WAYS), tuple(risk or (1.0,)), tuple(static_share or (0.5,)))
        outcomes = swept(world, knobs, Interference(), progress)
    print_table(table(outcomes), output, headers=not no_headers)
    if not quiet:
        message(summary(outcomes))


def table(outcomes: Sequence[SharingOutcome]) -> Table:
    """A row an outcome."""
    names = {column.name for column in SCHEMA.columns}
    rows: list[dict[str, Any]] = []
    for outcome in outcomes:
        row = {name: value for name, value in outcome.row().items() if name in names}
        rows.append(row | {"sharing": str(outcome.sharing), "incident": str(outcome.scenario.incident or "")})
    return Table.from_rows(SCHEMA, rows)


def summary(outcomes: Sequence[SharingOutcome]) -> str:
    """What cotenant would have done beside Koordinator's formulas, in a line; how much was simulated otherwise."""
    from cotenant.apps.experiment.comparison import of
    from cotenant.apps.experiment.outcome import Sharing

    ours, theirs = of(outcomes, Sharing.COTENANT), of(outcomes, Sharing.KOORDINATOR)
    if not ours or not theirs or theirs[0].batch_core_hours <= 0:
        scenario = outcomes[0].scenario
        return f"{len(outcomes)} runs of {scenario.days} days on {scenario.nodes} nodes"
    one, other = ours[0], theirs[0]
    return (
        f"cotenant at {one.knob:g} % risk: {one.batch_core_hours / other.batch_core_hours:.2f} x the batch core-hours "
        f"of Koordinator's formulas, nodes short {one.violation_ratio:.2%} of the time against "
        f"{other.violation_ratio:.2%} (a simulation: docs/simulate.md says what it assumes)"
    )


def _incident(name: str | None) -> Incident | None:
    from cotenant.apps.experiment.outcome import Incident

    if name is None:
        return None
    try:
        return Incident(name)
    except ValueError as error:
        raise UsageError(f"there is no incident {name!r}", fix=f"There are: {', '.join(Incident)}.") from error


def _knobs(
    ways: Sequence[str], risks: tuple[float, ...], shares: tuple[float, ...]
) -> Mapping[Sharing, Sequence[float]]:
    """Settings to run by way: those that are asked for, else those of an install."""
    from cotenant.apps.experiment.comparison import INSTALLED
    from cotenant.apps.experiment.outcome import Sharing

    settings = {Sharing.COTENANT: risks, Sharing.STATIC: shares}
    return {way: settings.get(way, (INSTALLED.get(way, 0.0),)) for way in map(Sharing, dict.fromkeys(ways))}


def _world(scenario: Any, place: Store | None, settings: Settings, progress: Progress) -> World:
    """Of the stored history, a trace file, or the synthetic cluster."""
    from cotenant.apps.experiment.world import SYNTHETIC, synthetic_world, trace_world

    if place is not None:
        from cotenant.apps.experiment.stored_world import stored_world

        return stored_world(place, settings, scenario, progress)
    if scenario.trace == SYNTHETIC:
        return synthetic_world(scenario, progress)
    path = Path(scenario.trace)
    if not path.is_file():
        raise UsageError(
            f"--trace {scenario.trace} is no file", fix="Give synthetic, stored, or a Parquet file (docs/simulate.md)."
        )
    from cotenant.apps.experiment.families import read

    return trace_world(scenario, read(path))
