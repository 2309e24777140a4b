"""One sample that no machine can use: its own row says so, and every reader of the store serves all others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest

import cotenant
from cotenant.base.cluster import Inventory
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.store import FACTS, Store, StoreFacts
from cotenant.base.usage.usage import DAY_SECONDS, Signal, TimeGrid
from cotenant.cli.analysis.backtest_reclaim import trial as policy_trial
from cotenant.experiment.interference import Interference
from cotenant.experiment.loop import run_all_settings
from cotenant.experiment.nodes_past import stored_world
from cotenant.experiment.outcome import Sharing, SharingScenario
from cotenant.pipeline import daily_analysis
from cotenant.recommender.model.views import FINDINGS, FORECASTS, NODES, RECOMMENDATIONS, WORKLOADS, Overview
from cotenant.settings import Settings

GARBAGE = [
    # 1e30 bytes or millicores fit no integer of 64 bits; 1e15 do, and are a thousand times any machine.
    (Signal.MEMORY_WORKING_SET_MAX, 1e30),
    (Signal.CPU_USAGE_MEAN, 3e35),
    (Signal.CPU_USAGE_MEAN, 1e15),
    (Signal.CPU_THROTTLED_MEAN, 1e30),
    (Signal.CPU_USAGE_MAX, 1e30),
    (Signal.NODE_CPU_USAGE_MEAN, 1e30),
    (Signal.NODE_MEMORY_WORKING_SET_MAX, 1e30),
]
READERS: dict[str, Callable[[cotenant.ClusterStore], pd.DataFrame]] = {
    "workloads": lambda s: s.workloads(),
    "recommendations": lambda s: s.recommendations(),
    "recommend": lambda s: s.recommend(),
    "recommend with krr": lambda s: s.recommend(strategy="krr-simple"),
    "recommend with vpa": lambda s: s.recommend(strategy="vpa"),
    "nodes": lambda s: s.nodes(),
    "reclaimable": lambda s: s.reclaimable(),
    "findings": lambda s: s.findings(),
    **{f"forecasts of {r}": lambda s, r=r: s.forecasts(resource=r) for r in Resource},  # type: ignore[misc]
    **{f"portraits of {r}": lambda s, r=r: s.portraits(resource=r) for r in Resource},  # type: ignore[misc]
    "usage of workloads": lambda s: s.usage(),
    "usage of containers": lambda s: s.usage(per="container"),
    **{f"usage of nodes, {r}": lambda s, r=r: s.node_usage(resource=r) for r in Resource},  # type: ignore[misc]
    **{f"prod on nodes, {r}": lambda s, r=r: s.node_usage(resource=r, of="prod") for r in Resource},  # type: ignore[misc]
}


HARMLESS = [
    # below zero there is no usage, and a request or a count of that size is nobody's
    (Signal.CPU_USAGE_MEAN, -1e6),
    (Signal.MEMORY_WORKING_SET_MAX, -5e9),
    (Signal.CPU_REQUEST, 1e30),
    (Signal.CPU_REQUEST, -1e30),
    (Signal.MEMORY_LIMIT, 1e30),
    (Signal.RESTARTS, 1e30),
]
"""Samples that say nothing of the container at all."""


@dataclass(frozen=True)
class Spoilt:
    """A store of which one sample is garbage, and the same store without it."""

    store: cotenant.ClusterStore
    clean: cotenant.ClusterStore
    signal: Signal
    series: str
    folder: Path


def spoilt_series(store: Store, signal: Signal, value: float, at: int = 3) -> str:
    """Put the value into a sample of the last day of the series that has most of them; which series that is."""
    span = store.span(signal)
    assert span is not None
    usage = store.read(signal, TimeGrid.from_span(span[1] - DAY_SECONDS, span[1], signal.spec.step_seconds))
    row = int(np.isfinite(usage.values).sum(axis=1).argmax())
    values = usage.values.copy()
    values[row, np.flatnonzero(np.isfinite(values[row]))[at]] = value
    store.append(signal, replace(usage, values=values))
    return str(usage.refs[row])


def analysed(folder: Path, spoil: tuple[Signal, float] | None) -> tuple[cotenant.ClusterStore, str]:
    opened = cotenant.demo_store(folder, nodes=2, workloads=5, days=4, seed=3, analyse=False)
    store, series = Store(folder.as_uri(), opened.cluster), ""
    if spoil is not None:
        series = spoilt_series(store, *spoil)
    inventory = store.read_inventory()
    assert inventory is not None
    settings, clock = Settings(), FixedClock(inventory.time_seconds)
    store.write_document(FACTS, StoreFacts(demo=True))
    daily_analysis.publish(daily_analysis.analyse(store, settings, clock, Silent()), store, settings)
    return opened, series


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> cotenant.ClusterStore:
    return analysed(tmp_path_factory.mktemp("clean"), None)[0]


@pytest.fixture(scope="module", params=GARBAGE, ids=lambda garbage: f"{garbage[0]} {garbage[1]:g}")
def spoilt(
    request: pytest.FixtureRequest, clean: cotenant.ClusterStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Spoilt]:
    folder = tmp_path_factory.mktemp("spoilt")
    store, series = analysed(folder, request.param)
    yield Spoilt(store, clean, request.param[0], series, folder)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_serves_as_many_rows_as_without_the_garbage(spoilt: Spoilt, reader: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows, clean = READERS[reader](spoilt.store), READERS[reader](spoilt.clean)
    if reader.startswith(("usage of", "prod on nodes")):
        assert 0 <= len(clean) - len(rows) <= 1, "the slot of the garbage is a gap"
    else:
        assert len(rows) == len(clean)


@pytest.mark.slow
def test_the_container_of_the_garbage_is_implausible_and_all_others_are_as_before(spoilt: Spoilt) -> None:
    of_node = spoilt.signal.spec.per_node
    recommendations, clean = spoilt.store.recommendations(), spoilt.clean.recommendations()
    resource = "memory" if spoilt.signal is Signal.MEMORY_WORKING_SET_MAX else "cpu"
    spoilt_rows = recommendations[f"{resource}_reason"] == "implausible"
    pods = {f"{p.namespace}/{p.name}": p.workload for p in _inventory(spoilt).pods}
    if of_node:
        assert not spoilt_rows.any()
    else:
        namespace, pod, _ = spoilt.series.split("/")
        workload = pods[f"{namespace}/{pod}"]
        assert set(recommendations.workload[spoilt_rows]) == {workload.name}
    same = ~spoilt_rows & ~clean[f"{resource}_reason"].isin(["implausible"])
    unit = Resource(resource).unit
    columns = [f"{resource}_request_{unit}", f"{resource}_reason"]
    pd.testing.assert_frame_equal(recommendations.loc[same, columns], clean.loc[same, columns])


@pytest.mark.slow
def test_sums_pages_and_forecasts_show_nothing_beyond_the_nodes(spoilt: Spoilt) -> None:
    """The demo's two nodes are all that can be used: more in any sum, mean or peak is the garbage."""
    capacity = {r: sum(n.capacity[r] for n in _inventory(spoilt).nodes) for r in Resource}
    workloads, nodes = spoilt.store.workloads(), spoilt.store.nodes()
    for resource in Resource:
        unit, most = resource.unit, 1.2 * capacity[resource]
        for statistic in ("max", "p95"):
            assert workloads[f"{resource}_{statistic}_{unit}"].max() <= most
        assert nodes[f"{resource}_usage_{unit}"].max() <= most
        assert spoilt.store.forecasts(resource=resource)[f"peak_{unit}"].max() <= most


def test_the_tables_that_rest_and_the_command_line_serve_are_numbers_that_json_has(spoilt: Spoilt) -> None:
    store = Store(spoilt.folder.as_uri(), spoilt.store.cluster)
    for schema in (RECOMMENDATIONS, WORKLOADS, NODES, FORECASTS, FINDINGS):
        rows = list(store.relation(schema).read().rows())
        assert msgspec.json.decode(msgspec.json.encode(rows)) == rows


def _inventory(spoilt: Spoilt) -> Inventory:
    inventory = Store(spoilt.folder.as_uri(), spoilt.store.cluster).read_inventory()
    assert inventory is not None
    return inventory


@pytest.mark.slow
@pytest.mark.parametrize(("signal", "value"), HARMLESS, ids=[f"{s} {v:g}" for s, v in HARMLESS])
def test_a_sample_that_is_no_usage_changes_no_recommendation(
    signal: Signal, value: float, clean: cotenant.ClusterStore, tmp_path: Path
) -> None:
    store, _ = analysed(tmp_path, (signal, value))
    pd.testing.assert_frame_equal(store.recommendations(), clean.recommendations())
    overview = Store(tmp_path.as_uri(), store.cluster).read_document("overview", Overview)
    assert overview is not None
    # the demo's containers ask for a few hundred cores together: a line of its charts beyond a million is garbage
    assert all(0 <= amount < 1e9 for amount in overview.cpu.request if amount is not None and np.isfinite(amount))
    for reader in ("workloads", "findings", "usage of containers", "recommend with vpa"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert len(READERS[reader](store)) == len(READERS[reader](clean)), reader


def replayed(folder: Path, spoils: Sequence[tuple[Signal, float]]) -> tuple[list[float], list[float]]:
    """What `simulate --trace stored` and `backtest --reclaim` compute, of a history of 17 days."""
    store = Store(folder.as_uri(), cotenant.demo_store(folder, nodes=2, workloads=5, days=17, analyse=False).cluster)
    for number, (signal, value) in enumerate(spoils):
        spoilt_series(store, signal, value, at=3 + number)
    cluster = stored_world(store, Settings(), SharingScenario("stored", 2, 5, 3, 1), Silent())
    (outcome,) = run_all_settings(cluster, {Sharing.KOORDINATOR: (60.0,)}, Interference(), Silent())
    scores = policy_trial(store, Settings(), Silent(), 0).scores
    return (
        [outcome.batch_core_hours, outcome.violation_ratio, outcome.utilisation_ratio],
        [amount for score in scores for amount in (score.amount, score.violation, score.short_unit_hours)],
    )


@pytest.mark.slow
def test_simulations_and_back_tests_of_policies_are_as_without_the_garbage(tmp_path: Path) -> None:
    outcomes, clean = (replayed(tmp_path / str(n), spoils) for n, spoils in enumerate(([*GARBAGE, *HARMLESS], [])))
    # fewer than twenty of the day's samples are gaps; none decides what is lent, and no shortage comes of them
    for ours, theirs in zip(outcomes, clean, strict=True):
        assert ours == pytest.approx(theirs, rel=0.01)
