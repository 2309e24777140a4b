"""What nodes lend is one number on every surface, and one line from the past over now into the next day."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import copytree
from typing import Any, Final

import numpy as np
import pytest
from msgspec import structs

import cotenant
from cotenant.base.cluster import Node, Pod
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.kubernetes.protocol import (
    COLOCATION_STRATEGY_ANNOTATION,
    CPU_NORMALIZATION_RATIO_ANNOTATION,
    CPU_RECLAIM_RATIO_LABEL,
    MID_STATIC_CPU_RATIO_LABEL,
    NODE_RESERVATION_ANNOTATION,
    THIRD_PARTY_ALLOCATIONS_ANNOTATION,
)
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.resource import GIB, Resource
from cotenant.base.store import Store
from cotenant.base.usage.usage import HOUR_SECONDS, Signal
from cotenant.dashboard.home import overview as overview_page
from cotenant.dashboard.nodes import lent_now
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.pipeline import daily_analysis
from cotenant.pipeline.analysis import Analysis
from cotenant.recommender.colocation.model.batch_totals import why_unknown
from cotenant.recommender.colocation.model.lendable import LIKELY, NODE_HISTORY, SURE
from cotenant.recommender.model.views import NODES, RECLAIMABLE, Overview
from cotenant.recommender.settings import ReclaimableSettings, RecommenderSettings
from cotenant.settings import Settings
from cotenant_lab.simulation.demo import CLUSTER
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec
from tests.dashboard.test_states import text_of, view_on
from tests.support import command_line, dashboard
from tests.support.dashboard import Results

pytestmark = pytest.mark.slow

SPEC = SyntheticSpec(nodes=5, workloads=40, days=5, seed=23)
LEAN = ForecastingSettings(booster_rows=0, origins=1)
POD_SIGNAL: Final = {Resource.CPU: Signal.CPU_USAGE_MEAN, Resource.MEMORY: Signal.MEMORY_WORKING_SET_MAX}
NODE_SIGNAL: Final = {Resource.CPU: Signal.NODE_CPU_USAGE_MEAN, Resource.MEMORY: Signal.NODE_MEMORY_WORKING_SET_MAX}


@dataclass(frozen=True)
class Case:
    """Settings of a scan, and what the nodes' objects say beside them: labels and annotations by the node's number."""

    reclaim: ReclaimableSettings = field(default_factory=ReclaimableSettings)
    strategy: str = "cotenant"
    labels: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    annotations: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    def node(self, number: int, node: Node) -> Node:
        return replace(
            node,
            labels={**node.labels, **self.labels.get(number, {})},
            annotations={**node.annotations, **self.annotations.get(number, {})},
        )

    @property
    def settings(self) -> Settings:
        return Settings(
            forecasting=LEAN, recommender=RecommenderSettings(strategy=self.strategy, reclaimable=self.reclaim)
        )


def of_all(text: Mapping[str, str]) -> dict[int, Mapping[str, str]]:
    return dict.fromkeys(range(SPEC.nodes), text)


CASES: Final[Mapping[str, Case]] = {
    "default": Case(),
    "policy request": Case(ReclaimableSettings(memory_policy="request")),
    "policy maxUsageRequest": Case(ReclaimableSettings(cpu_policy="maxUsageRequest", memory_policy="maxUsageRequest")),
    "policy forecast": Case(ReclaimableSettings(cpu_policy="forecast", memory_policy="forecast")),
    "a cap": Case(ReclaimableSettings(batch_cpu_percent=20, batch_memory_percent=10, mid_cpu_percent=5)),
    "an annotation of 95 %": Case(
        annotations=of_all({COLOCATION_STRATEGY_ANNOTATION: '{"cpuReclaimThresholdPercent": 95}'})
    ),
    "a label of 0.3": Case(labels={0: {CPU_RECLAIM_RATIO_LABEL: "0.3"}, 2: {CPU_RECLAIM_RATIO_LABEL: "0.9"}}),
    "a node that is off": Case(annotations={1: {COLOCATION_STRATEGY_ANNOTATION: '{"enable": false}'}}),
    "all nodes off": Case(annotations=of_all({COLOCATION_STRATEGY_ANNOTATION: '{"enable": false}'})),
    "a strategy of a peer": Case(strategy="krr-simple"),
    "reserved CPUs, a ratio and another scheduler": Case(
        annotations={
            0: {NODE_RESERVATION_ANNOTATION: '{"resources": {"cpu": "3", "memory": "9Gi"}}'},
            1: {CPU_NORMALIZATION_RATIO_ANNOTATION: "1.5"},
            2: {
                THIRD_PARTY_ALLOCATIONS_ANNOTATION: '{"allocations": [{"name": "yarn", "priority": "koord-batch", '
                '"resources": {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "2Gi"}}]}'
            },
        }
    ),
    "mid by a fixed share": Case(
        ReclaimableSettings(mid_mode="static", mid_static_cpu_percent=10, mid_static_memory_percent=20),
        labels={3: {MID_STATIC_CPU_RATIO_LABEL: "0.25"}},
    ),
}


@dataclass(frozen=True)
class Made:
    """A case's store, with what its scan computed."""

    case: Case
    store: Store
    analysis: Analysis
    end_seconds: int

    @property
    def overview(self) -> Overview:
        document = self.store.read_document("overview", Overview)
        assert document is not None
        return document

    def history(self, resource: Resource) -> list[dict[str, Any]]:
        rows = self.store.read_table(NODE_HISTORY).rows()
        return [row for row in rows if row["resource"] == resource.value]


def scanned(base: Store, folder: Path, case: Case, age_seconds: float = 0.0) -> Made:
    """A scan of a copy of the store, with the case's nodes and settings, so long after the last sample."""
    copytree(Path(base.url.removeprefix("file://")), folder, dirs_exist_ok=True)
    store = Store(folder.as_uri(), CLUSTER)
    inventory = store.read_inventory()
    assert inventory is not None
    store.write_inventory(replace(inventory, nodes=tuple(case.node(i, n) for i, n in enumerate(inventory.nodes))))
    end = inventory.time_seconds
    analysis = daily_analysis.analyse(store, case.settings, FixedClock(end + age_seconds), Silent())
    daily_analysis.publish(analysis, store, case.settings)
    return Made(case, store, analysis, end)


@pytest.fixture(scope="module")
def plain(store: Store, cluster: SyntheticCluster, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return scanned(store, tmp_path_factory.mktemp("plain"), Case())


@pytest.fixture(scope="module", params=CASES)
def lending_scan(
    request: pytest.FixtureRequest, store: Store, cluster: SyntheticCluster, tmp_path_factory: pytest.TempPathFactory
) -> Made:
    return scanned(store, tmp_path_factory.mktemp("case"), CASES[request.param])


# ---- the formula by hand


def used_at(cluster: SyntheticCluster, resource: Resource, slot: int) -> dict[tuple[str, str], float]:
    """Usage of each pod at the end of a slot: the newest sample of each container in ten minutes, containers summed."""
    usage = cluster.usage[POD_SIGNAL[resource]]
    used: dict[tuple[str, str], float] = {}
    for ref, row in zip(usage.refs, usage.values, strict=True):
        newest = row[slot] if np.isfinite(row[slot]) else row[slot - 1]
        if np.isfinite(newest):
            used[ref.namespace, ref.pod] = used.get((ref.namespace, ref.pod), 0.0) + float(newest)
    return used


def high_use(pod: Pod, used: float | None, runs: bool, resource: Resource, policy: str) -> float:
    """What a pod takes from batch by a policy."""
    if pod.effective_priority.is_reclaimer:
        return 0.0
    request = (pod.requests.get(resource, 0) + pod.mid_requests.get(resource, 0)) * runs
    if policy == "request":
        return request
    if policy == "maxUsageRequest":
        return max(request, used or 0.0)
    exclusive = pod.qos is QosClass.LSE and resource is Resource.CPU
    return request if runs and (used is None or exclusive) else used or 0.0


def by_hand(scan: Made, cluster: SyntheticCluster, number: int, resource: Resource, slot: int) -> float:
    """Batch of a node at the end of a slot, from raw samples: capacity - margin - system - pods, bounded."""
    case, node = scan.case, scan.analysis.history.inventory.nodes[number]
    fields = structs.asdict(case.reclaim)
    cpu = resource is Resource.CPU
    percent = fields[f"{resource}_reclaim_percent"]
    if cpu and number in case.labels and CPU_RECLAIM_RATIO_LABEL in case.labels[number]:
        percent = {"0.3": 30, "0.9": 90}[case.labels[number][CPU_RECLAIM_RATIO_LABEL]]
    live = case.annotations.get(number, {})
    strategy = json.loads(live.get(COLOCATION_STRATEGY_ANNOTATION, "{}"))
    if strategy.get("enable") is False:
        return 0.0
    percent = strategy.get("cpuReclaimThresholdPercent", percent) if cpu else percent
    policy, capacity = fields[f"{resource}_policy"], node.capacity[resource]
    moment = cluster.spec.grid.start_seconds + (slot + 1) * 300
    used = used_at(cluster, resource, slot)
    pods = [p for p in cluster.inventory.pods if p.node == node.name]
    on_node = sum(used.get((p.namespace, p.name), 0.0) for p in pods)
    taken = 0.0
    for pod in pods:
        runs = pod.start_seconds <= moment and (pod.end_seconds is None or moment < pod.end_seconds)
        taken += high_use(pod, used.get((pod.namespace, pod.name)), runs, resource, policy)
    whole_node = cluster.usage[NODE_SIGNAL[resource]]
    series = whole_node.values[[ref.name for ref in whole_node.refs].index(node.name)][: slot + 1]
    newest = np.flatnonzero(np.isfinite(series))[-1]
    if (slot - newest) * 300 > 15 * 60:
        return math.nan
    reserved = capacity - node.allocatable[resource]
    if NODE_RESERVATION_ANNOTATION in live:
        reserved = max(reserved, 3000 if cpu else 9 * GIB)
    system = max(math.ceil(series[newest]) - math.ceil(on_node), 0)
    system = reserved if policy == "request" else max(system, reserved)
    amount = capacity - int(capacity * (100 - percent) / 100) - system - math.ceil(taken)
    cap = fields[f"batch_{resource}_percent"]
    amount = max(amount if cap is None else min(amount, int(capacity * (cap / 100))), 0)
    if cpu and CPU_NORMALIZATION_RATIO_ANNOTATION in live:
        amount = math.ceil(math.floor(amount * 1000 * 1.5) / 1000)
    if THIRD_PARTY_ALLOCATIONS_ANNOTATION in live:
        amount = max(amount - (1500 if cpu else 2 * GIB), 0)
    return float(amount)


def slots_of(scan: Made, resource: Resource) -> list[int]:
    """The last slot of each hour of NODE_HISTORY."""
    lines, start = scan.analysis.lendable[resource], scan.analysis.history.window.start_seconds
    return [int((t + HOUR_SECONDS - start) // 300 - 1) for t in lines.hours.times()]


@pytest.mark.parametrize("resource", Resource)
def test_every_past_hour_of_batch_is_the_formula_on_the_raw_samples_of_then(
    lending_scan: Made, cluster: SyntheticCluster, resource: Resource
) -> None:
    rows, slots = lending_scan.history(resource), slots_of(lending_scan, resource)
    for number, row in enumerate(rows):
        for hour in (*range(1, len(slots) - 1, 17), len(slots) - 1):
            expected = by_hand(lending_scan, cluster, number, resource, slots[hour])
            forecast = structs.asdict(lending_scan.case.reclaim)[f"{resource}_policy"] == "forecast"
            if forecast:
                # what had been forecast then is not kept, and now the larger of peak and present usage counts
                assert row["batch"][hour] is None or (hour == len(slots) - 1 and row["batch"][hour] <= expected + 1)
            elif math.isnan(expected):
                assert row["batch"][hour] is None
            else:
                # sums of float32 samples round differently in another order
                assert row["batch"][hour] == pytest.approx(expected, abs=1.5, rel=1e-7)


# ---- one number on every surface


def on_the_command_line(scan: Made, *arguments: str) -> list[dict[str, Any]]:
    done = command_line.cotenant(*arguments, "--store", scan.store.url, "-o", "json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def sums(rows: list[dict[str, Any]], column: Callable[[dict[str, Any]], Any]) -> float:
    return float(sum(column(row) or 0 for row in rows))


@pytest.mark.parametrize("band", Band)
@pytest.mark.parametrize("resource", Resource)
def test_the_tile_is_the_last_point_of_the_line_and_what_every_surface_says(
    lending_scan: Made, resource: Resource, band: Band
) -> None:
    overview = lending_scan.overview
    series = overview.cpu if resource is Resource.CPU else overview.memory
    tile = series.batch_now if band is Band.BATCH else series.mid_now
    line = series.batch if band is Band.BATCH else series.mid
    assert line[-1] == tile
    rows = lending_scan.history(resource)
    # node by node: the last hour is the amount of RECLAIMABLE, of `get reclaimable`, of Python and of `explain node`
    amounts = {
        r["node"]: r["amount"]
        for r in lending_scan.store.read_table(RECLAIMABLE).rows()
        if (r["band"], r["resource"]) == (band.value, resource.value)
    }
    assert {row["node"]: row[band.value][-1] for row in rows} == amounts
    assert sum(amounts.values()) == tile
    listed = on_the_command_line(lending_scan, "get", "reclaimable")
    assert {row["node"]: row[f"{band}_{resource}"] for row in listed} == amounts
    with_terms = on_the_command_line(lending_scan, "get", "reclaimable", "--terms")
    of_band = [row for row in with_terms if (row["band"], row["resource"]) == (band.value, resource.value)]
    assert {row["node"]: row["amount"] for row in of_band} == amounts
    frame = cotenant.open_store(lending_scan.store.url).reclaimable(f"band={band}", resource=resource.value)
    (column,) = (name for name in frame.columns if name.startswith("amount"))
    assert dict(zip(frame["node"], frame[column], strict=True)) == amounts
    node = rows[0]["node"]
    done = command_line.cotenant("explain", "node", node, "--store", lending_scan.store.url, "-o", "json")
    explained = json.loads(done.stdout)
    (own,) = (a for a in explained["amounts"] if (a["band"], a["resource"]) == (band.value, resource.value))
    assert own["amount"] == amounts[node]


@pytest.mark.server
def test_the_api_and_the_pages_say_the_same(lending_scan: Made) -> None:
    results = Results(lending_scan.store, lending_scan.end_seconds)
    with dashboard.served(dashboard.app_of(results)) as address:

        def get(path: str) -> Any:
            with urllib.request.urlopen(f"{address}/api/v1/{path}", timeout=120) as response:
                return json.loads(response.read())

        overview, nodes = get("overview"), get("nodes")
        histories = {row["node"]: get(f"nodes/{row['node']}/history") for row in nodes["rows"]}
    for resource in Resource:
        series = overview[resource.value]
        for band in Band:
            listed = {row["node"]: row[f"{band}_{resource}"] for row in nodes["rows"]}
            assert series[f"{band}_now"] == series[band.value][-1] == sum(listed.values())
            assert {name: h[resource.value][band.value][-1] for name, h in histories.items()} == listed
        # the curve of the cluster is the sum of the nodes' curves in every half hour ahead
        ahead = np.array([h[resource.value]["batch_likely"] for h in histories.values()], dtype=np.float64)
        np.testing.assert_allclose(series["batch_ahead"][LIKELY], ahead.sum(axis=0))
    stored = lending_scan.overview
    view = view_on(dashboard.StoreSource(lending_scan.store, dashboard.QUICK), lending_scan.end_seconds)
    page = text_of(overview_page.render(view, ""))
    assert f'"{stored.cpu.batch_now:.10g}"' in page and f'"{stored.memory.mid_now:.10g}"' in page


# ---- past, now and future are one line


def test_now_lies_inside_its_own_range_and_at_95_percent_no_more_is_lent_than_at_the_median(lending_scan: Made) -> None:
    for series in (lending_scan.overview.cpu, lending_scan.overview.memory):
        likely, sure = (np.array(series.batch_ahead[level]) for level in (LIKELY, SURE))
        assert likely.shape == sure.shape == (48,)
        assert np.isfinite(likely).all() and (sure <= likely + 1e-6).all()
        low, high, least = said_range(series)
        # ten digits are shown
        assert least <= low <= series.batch_now * (1 + 1e-9) and series.batch_now <= high * (1 + 1e-9)
    assert lending_scan.overview.cpu.lending_nodes == SPEC.nodes


def said_range(series: Any) -> tuple[float, float, float]:
    """The numbers in the first sentence about the next 24 hours: from, to, at least."""
    parts = lent_now.ahead_parts(series)
    between, least = (w.to_plotly_json()["props"] for w in parts if not isinstance(w, str))
    return float(between["data-low"]), float(between["data-value"]), float(least["data-value"])


def test_what_is_ahead_follows_the_forecast_of_prod_by_the_same_formula(plain: Made) -> None:
    """Where nothing bounds the amount it falls by as much as prod's use is forecast to rise over its present use."""
    path = plain.analysis.prod_forecasts[Resource.CPU]
    present = plain.analysis.pod_sums[Resource.CPU].hours["prod_used"][:, -1]
    rows = plain.history(Resource.CPU)
    compared = 0
    for number, row in enumerate(rows):
        for half_hour in range(48):
            rise = math.ceil(path.level(0.5)[number, half_hour]) - math.ceil(present[number])
            if row["batch"][-1] > 0 and row["batch_likely"][half_hour] > 0:
                assert row["batch_likely"][half_hour] == pytest.approx(row["batch"][-1] - rise, abs=1)
                compared += 1
    assert compared > 100


def test_the_batch_page_and_the_fit_read_the_stored_lines(lending_scan: Made) -> None:
    room = dashboard.StoreSource(lending_scan.store, dashboard.QUICK).lendable_capacity()
    assert room is not None
    for row in lending_scan.history(Resource.MEMORY):
        number = room.nodes.index(row["node"])
        assert room.capacity[Resource.MEMORY, SURE][number].tolist() == row["batch_sure"]
        assert room.capacity[Resource.MEMORY, LIKELY][number].tolist() == row["batch_likely"]


def test_mid_of_the_past_is_drawn_where_no_forecast_could_change_it_and_nowhere_else(lending_scan: Made) -> None:
    rows = lending_scan.history(Resource.CPU)
    past = [row["mid"][:-1] for row in rows]
    if lending_scan.case.reclaim.mid_mode == "static":
        # 10 % of each node's capacity, 25 % of the fourth's
        shares = [0.25 if number == 3 else 0.1 for number in range(SPEC.nodes)]
        for share, node, line in zip(shares, lending_scan.analysis.history.inventory.nodes, past, strict=True):
            assert set(line) - {None} == {int(node.capacity[Resource.CPU] * share)}
    else:
        off = {
            n
            for n, of_node in lending_scan.case.annotations.items()
            if "false" in of_node.get(COLOCATION_STRATEGY_ANNOTATION, "")
        }
        for number, line in enumerate(past):
            assert set(line) == ({0.0} if number in off else {None})
        assert all(row["mid"][-1] is not None and row["mid_likely"][0] is not None for row in rows)


# ---- what is not known


@pytest.fixture(scope="module")
def stale(store: Store, cluster: SyntheticCluster, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return scanned(store, tmp_path_factory.mktemp("stale"), Case(), age_seconds=3 * 86_400)


def test_old_results_say_why_nothing_is_known_and_promise_nothing(stale: Made) -> None:
    overview = stale.overview
    assert math.isnan(overview.cpu.batch_now) and math.isnan(overview.memory.mid_now)
    assert overview.cpu.lending_nodes == 0
    assert (
        not np.isfinite(overview.cpu.batch_ahead[SURE]).any() and not np.isfinite(overview.cpu.mid_ahead[LIKELY]).any()
    )
    # what could have been lent when there were samples stays as it was
    assert np.isfinite(overview.cpu.batch).sum() > 100
    rows = on_the_command_line(stale, "get", "reclaimable")
    assert [(row["batch_cpu"], row["reason"]) for row in rows] == [(None, "metric-expired")] * SPEC.nodes
    stderr = command_line.cotenant("get", "reclaimable", "--store", stale.store.url).stderr
    assert "free for batch now: not known: The node's metric is too old; once the manager has seen no update" in stderr
    view = view_on(dashboard.StoreSource(stale.store, dashboard.QUICK), stale.end_seconds)
    page = text_of(overview_page.render(view, ""))
    card = page.split("The capacity that can be lent is not known")[1][:2000]
    why = why_unknown(view.source.snapshot().tables[RECLAIMABLE.name])
    assert why and why in card
    assert "95 %" not in card and "at least" not in card
    assert "on 0 of 5 nodes" in page


@pytest.mark.server
def test_scripts_hear_why_nothing_is_known_of_what_old_results_lend(stale: Made) -> None:
    with (
        dashboard.served(dashboard.app_of(Results(stale.store, stale.end_seconds))) as address,
        pytest.raises(urllib.error.HTTPError) as refused,
    ):
        urllib.request.urlopen(f"{address}/api/v1/fit", timeout=120)
    text = refused.value.read().decode()
    assert refused.value.code == 404 and "what nodes can lend is not known: The node's metric is too old" in text


def test_a_node_without_any_sample_is_not_known_and_the_others_are(
    store: Store, cluster: SyntheticCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "case"
    copytree(Path(store.url.removeprefix("file://")), folder)
    own = Store(folder.as_uri(), CLUSTER)
    silent = replace(cluster.inventory.nodes[1], name="silent")
    own.write_inventory(replace(cluster.inventory, nodes=(*cluster.inventory.nodes, silent)))
    silent_scan = scanned(own, tmp_path / "scan", Case())
    row = next(r for r in silent_scan.history(Resource.CPU) if r["node"] == "silent")
    assert set(row["batch"]) == set(row["batch_likely"]) == {None}
    (listed,) = (r for r in silent_scan.store.read_table(NODES).rows() if r["node"] == "silent")
    assert (listed["batch_cpu"], listed["reason"]) == (None, "metric-missing")
    others = [r["batch"][-1] for r in silent_scan.history(Resource.CPU) if r["node"] != "silent"]
    assert silent_scan.overview.cpu.batch_now == silent_scan.overview.cpu.batch[-1] == sum(others)
    assert silent_scan.overview.cpu.lending_nodes == SPEC.nodes
    # the next day is of the nodes that lend now
    assert np.isfinite(silent_scan.overview.cpu.batch_ahead[LIKELY]).all()
