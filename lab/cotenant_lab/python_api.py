"""EDGE: a synthetic cluster to experiment with, and ways to share its nodes in simulated time, as DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final
from weakref import finalize

import pandas as pd

from cotenant.base.errors import UsageError
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.store import FACTS, Store, StoreFacts
from cotenant.experiment.interference import Interference
from cotenant.experiment.loop import INSTALLED, run_all_settings
from cotenant.experiment.outcome import Incident, Sharing, SharingScenario
from cotenant.experiment.world import World
from cotenant.pipeline import daily_analysis
from cotenant.python_api.arguments import require_integer, require_sequence
from cotenant.python_api.cluster_store import ClusterStore, place_url
from cotenant.settings import Settings
from cotenant_lab.experiment.comparison import KNOBS
from cotenant_lab.experiment.worlds import SYNTHETIC, synthetic_world
from cotenant_lab.simulation import demo
from cotenant_lab.simulation.nodes.incident_story import story_of
from cotenant_lab.synthetic import SyntheticSpec, generate

_SEED: Final = "Any number gives a cluster of its own: seeds=(1,), or seed=1."


def demo_store(
    folder: str | Path | None = None,
    *,
    nodes: int = 8,
    workloads: int = 60,
    days: int = 21,
    seed: int = 7,
    analyse: bool = True,
) -> ClusterStore:
    """Make a synthetic cluster, store its history, analyse it, and open the result, to experiment with.

    `folder` is where it is stored; None means a temporary folder that is removed with the returned object. The same
    seed gives the same cluster. With `analyse` False only the history is stored, for usage and what is computed from
    it. Raises UsageError if the folder has a history that is not a demo's, and for fewer than one node, workload or
    day.
    """
    for name, count in {"nodes": nodes, "workloads": workloads, "days": days}.items():
        require_integer(name, count, "A small cluster is nodes=8, workloads=60, days=21.")
    require_integer("seed", seed, "Any number gives a cluster of its own: seed=7.", least=0)
    place = folder if folder is not None else mkdtemp(prefix="cotenant-")
    store, own = Store(place_url(place), demo.CLUSTER), Settings()
    opened_store = ClusterStore(store, own)
    if folder is None:  # before the folder is filled: nothing stays of a demo that fails either
        finalize(opened_store, rmtree, place, ignore_errors=True)
    cluster = generate(SyntheticSpec(nodes=nodes, workloads=workloads, days=days, seed=seed))
    demo.refill(store, cluster, Silent())
    store.write_document(FACTS, StoreFacts(demo=True))
    if analyse:
        analysis = daily_analysis.analyse(store, own, FixedClock(cluster.inventory.time_seconds), Silent())
        daily_analysis.publish(analysis, store, own)
    return opened_store


def simulate(
    *,
    nodes: int = 20,
    pods: int = 400,
    days: int = 7,
    seeds: Sequence[int] = (1,),
    ways: Sequence[str] = tuple(Sharing),
) -> pd.DataFrame:
    """Simulate days of a synthetic cluster under several ways to share its nodes, each at several settings (knobs).

    `ways` are of `none`, `static-overcommit`, `koordinator`, `cotenant`, `oracle`. One row per seed, way and knob:
    sharing, knob (risk in percent, reclaim percent or lent share), batch_core_hours, utilisation_ratio, violation_ratio
    (share of node-time in which services and what batch was promised exceeded the node), latency_ratio (modelled p99 of
    services over that without batch), deadlines_met_ratio, evictions, suppressed_core_hours, and the scenario.
    docs/simulate.md lists the assumptions. The same arguments give the same rows.
    """
    choose = f"Choose of {', '.join(Sharing)}."
    listed = require_sequence("ways", ways, "texts", choose)
    numbers = require_sequence("seeds", seeds, "numbers", _SEED)
    unknown = [way for way in listed if way not in list(Sharing)]
    if unknown:
        raise UsageError(f"ways={unknown!r} are not known", fix=choose)
    for name, values_given in (("ways", ways), ("seeds", seeds)):
        if not len(values_given):
            raise UsageError(f"{name}={values_given!r} is empty", fix="Leave it out, or name at least one.")
    for number in numbers:
        require_integer("seed", number, _SEED, least=0)
    _require_sizes(nodes, pods, days)
    knobs = {Sharing(way): KNOBS[Sharing(way)] for way in listed}
    rows: list[dict[str, Any]] = []
    for seed in numbers:
        cluster = _world(SharingScenario(SYNTHETIC, nodes, pods, days, seed))
        rows += [outcome.row() for outcome in run_all_settings(cluster, knobs, Interference(), Silent())]
    frame = pd.DataFrame(rows).drop(columns="incident")
    return frame.astype({"sharing": "str", "trace": "str"})


def simulate_incident(
    name: str, *, nodes: int = 20, pods: int = 400, days: int = 3, seed: int = 1
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Simulate an incident on the second day; return its time line and its costs.

    `name` is `flash-crowd`, `prometheus-away`, `memory-leak`, `manager-dead` or `node-failure`. The first DataFrame has
    a row per moment: seconds (since it began), witness (who saw or did it) and text. The second has one row per cost:
    what, value, unit and at_most (the goal; NaN without one).
    """
    require_integer("seed", seed, _SEED, least=0)
    if name not in list(Incident):
        raise UsageError(f"there is no incident {name!r}", fix=f"Known incidents: {', '.join(Incident)}.")
    _require_sizes(nodes, pods, days)
    scenario = SharingScenario(SYNTHETIC, nodes, pods, days, seed, Incident(name))
    cluster, spared = _world(scenario), _world(replace(scenario, incident=None))
    hit = run_all_settings(cluster, {Sharing.COTENANT: (INSTALLED[Sharing.COTENANT],)}, Interference(), Silent())[0]
    story = story_of(hit, cluster, spared, Silent())
    lines = pd.DataFrame([(line.seconds, str(line.witness), line.text) for line in story.lines])
    lines.columns = pd.Index(["seconds", "witness", "text"])
    costs = pd.DataFrame([(cost.what, cost.value, cost.unit, cost.at_most) for cost in story.costs])
    costs.columns = pd.Index(["what", "value", "unit", "at_most"])
    return lines.astype({"witness": "str", "text": "str"}), costs.astype({"at_most": "float64"})


def _require_sizes(nodes: int, pods: int, days: int) -> None:
    """UsageError for what `cotenant simulate` refuses too: without a node or pod there is nothing to play."""
    for name, value, least in (("nodes", nodes, 1), ("pods", pods, 1), ("days", days, 2)):
        require_integer(name, value, "A small run is nodes=20, pods=400, days=3.", least=least)


def _world(scenario: SharingScenario) -> World:
    return synthetic_world(scenario, Silent())
