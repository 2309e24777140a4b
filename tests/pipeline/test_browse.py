"""What the pages to browse show follows from the stored history."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

from cotenant.base.colocation.reclaim_policies import Band, Reclaimable
from cotenant.base.identity import NodeRef, PodContainerRef, WorkloadRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.usage.usage import HOUR_SECONDS, Signal
from cotenant.pipeline import browse, daily_analysis, stored_history
from cotenant.pipeline.analysis import Analysis
from cotenant.pipeline.tables import nodes
from cotenant.recommender.colocation.model.lendable import NODE_HISTORY
from cotenant.recommender.model.views import (
    COVERAGE,
    COVERAGE_BY_DAY,
    EVENTS,
    FINDINGS,
    RECOMMENDATION_LOG,
    WORKLOADS,
    Overview,
    portraits_of,
)
from cotenant.settings import Settings
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec

CPU, MEMORY = Resource.CPU, Resource.MEMORY
SPEC = SyntheticSpec(nodes=6, workloads=40, days=9, seed=21)


@pytest.fixture(scope="module")
def analysis(store: Store, cluster: SyntheticCluster) -> Analysis:
    daily = daily_analysis.analyse(store, Settings(), FixedClock(cluster.inventory.time_seconds), Silent())
    daily_analysis.publish(daily, store, Settings())
    return daily


def test_a_portrait_hour_holds_the_mean_of_its_slots_over_all_pods(
    store: Store, cluster: SyntheticCluster, analysis: Analysis
) -> None:
    usage = cluster.usage[Signal.CPU_USAGE_MEAN]
    owners = cluster.inventory.owners()
    # A workload whose pods all ran through the last hour without a gap, so that the sum needs no stand-in.
    for ref in analysis.workloads.refs:
        rows = [i for i, s in enumerate(usage.refs) if owners[s.namespace, s.pod] == ref]
        block = usage.values[rows][:, -12:]
        alive = np.isfinite(block).any(axis=1)
        if rows and np.isfinite(block[alive]).all() and alive.any():
            break
    table = store.read_table(portraits_of(ref.namespace))
    row = next(r for r in table.rows() if (r["kind"], r["workload"], r["resource"]) == (ref.kind, ref.name, "cpu"))
    assert row["mean"][-1] == pytest.approx(block[alive].sum(axis=0).mean(), rel=1e-4)
    assert row["highest"][-1] == pytest.approx(block[alive].sum(axis=0).max(), rel=1e-4)
    assert row["start"] + len(row["mean"]) * HOUR_SECONDS == cluster.spec.grid.end_seconds


def test_a_portrait_counts_the_pods_behind_the_requests_of_each_hour(store: Store, analysis: Analysis) -> None:
    workloads = {w.ref: w for w in analysis.history.inventory.workloads}
    several = 0
    for namespace in {ref.namespace for ref in workloads}:
        for row in store.read_table(portraits_of(namespace)).rows():
            ref = WorkloadRef(row["namespace"], row["kind"], row["workload"])
            # Containers of a pod ask for the same in every hour of this cluster, so the sum is theirs times the pods.
            numbers = [c.requests.get(Resource(row["resource"]), 0) for c in workloads[ref].staying]
            pods = np.array(row["pods"], dtype=np.float64)
            if len(pods) and len(numbers) == 1 and numbers[0]:
                has_pods = np.isfinite(pods)
                np.testing.assert_allclose(
                    np.array(row["request"], float)[has_pods], pods[has_pods] * numbers[0], rtol=1e-5
                )
                several += len(set(pods[has_pods].tolist())) > 1
    assert several


def test_a_pod_that_has_ended_and_is_still_listed_requests_nothing(
    store: Store, analysis: Analysis, tmp_path: Path
) -> None:
    """kube-state-metrics tells the amounts of Jobs' pods, and of evicted ones, until somebody deletes them."""
    own_store = Store(tmp_path.as_uri(), store.cluster)
    copytree(Path(store.url.removeprefix("file://")) / store.cluster, tmp_path / store.cluster)
    ends = {(p.namespace, p.name): p.end_seconds for p in analysis.history.inventory.pods if p.end_seconds}
    for signal in (Signal.CPU_REQUEST, Signal.MEMORY_REQUEST):
        usage = stored_history.load(store, Settings()).usage[signal].dense()
        values = usage.values.copy()
        for row, ref in zip(values, usage.refs, strict=True):
            if (ref.namespace, ref.pod) in ends and np.isfinite(row).any():
                row[np.flatnonzero(np.isfinite(row))[-1] :] = row[np.isfinite(row)][-1]
        assert np.isfinite(values).sum() > np.isfinite(usage.values).sum() + 100
        own_store.append(signal, replace(usage, values=values))
    now = FixedClock(analysis.history.inventory.time_seconds)
    repeated = daily_analysis.analyse(own_store, Settings(), now, Silent())
    for resource in Resource:
        np.testing.assert_array_equal(repeated.requested[resource].sums, analysis.requested[resource].sums)
    daily_analysis.publish(repeated, own_store, Settings())
    for namespace in {ref.namespace for ref in analysis.workloads.refs}:
        before, after = (list(s.read_table(portraits_of(namespace)).rows()) for s in (store, own_store))
        for name in ("request", "pods"):
            np.testing.assert_equal([row[name] for row in after], [row[name] for row in before])


def test_portraits_hold_shares_that_add_up_and_an_ascending_ladder(store: Store, analysis: Analysis) -> None:
    for namespace in {w.namespace for w in analysis.workloads.refs}:
        for row in store.read_table(portraits_of(namespace)).rows():
            assert len(row["heat"]) == 168
            if row["weights"]:
                assert sum(row["weights"]) == pytest.approx(1.0, abs=1e-3)
                # percentiles are ends of buckets, the maximum is exact: it may lie inside the last one
                assert row["ladder"][:5] == sorted(row["ladder"][:5])


def test_every_kill_of_the_window_is_an_event_of_its_workload(
    store: Store, cluster: SyntheticCluster, analysis: Analysis
) -> None:
    kills = [e for e in cluster.inventory.events if e.kind == "oom-kill"]
    shown = [r for r in store.read_table(EVENTS).rows() if r["event"] == "oom-kill"]
    assert len(shown) == len({(e.time_seconds, e.subject) for e in kills})
    assert isinstance(kills[0].subject, PodContainerRef)


def test_every_hour_of_a_node_obeys_the_batch_formula_with_the_usage_at_its_end(
    store: Store, analysis: Analysis
) -> None:
    settings = Settings().recommender.reclaimable
    node = analysis.history.inventory.nodes[0]
    rows = store.read_table(NODE_HISTORY).rows()
    row = next(r for r in rows if (r["node"], r["resource"]) == (node.name, "cpu"))
    # batch <= capacity x 60 % - prod, because system and mid use can only lower it
    ceiling = node.capacity[Resource.CPU] * settings.cpu_reclaim_percent / 100
    prod = analysis.pod_totals[Resource.CPU].prod
    at_ends = prod.values[prod.row_of[NodeRef(node.name)]][(row["start"] - prod.grid.start_seconds) // 300 + 11 :: 12]
    assert len(at_ends) == len(row["batch"])
    compared = [(b, p) for b, p in zip(row["batch"], at_ends.tolist(), strict=True) if b is not None and p >= 0]
    assert len(compared) > 150
    assert all(0 <= batch <= max(0.0, ceiling - prod_used) + 1e-3 for batch, prod_used in compared)


def test_the_log_grows_only_when_a_proposal_changes(store: Store, analysis: Analysis) -> None:
    before = store.read_table(RECOMMENDATION_LOG)
    assert len(before) == len(analysis.recommendations)
    again = browse.extend_recommendation_log(before, analysis.recommendations)
    assert list(again.rows()) == list(before.rows())


def test_findings_are_stored_the_worst_first(store: Store, analysis: Analysis) -> None:
    order = ["unknown", "good", "ok", "warning", "critical"]
    ranks = [order.index(r["severity"]) for r in store.read_table(FINDINGS).rows()]
    assert ranks
    assert ranks == sorted(ranks, reverse=True)


def test_the_hour_of_week_begins_on_monday() -> None:
    # 2026-11-16 was a Monday; 15:00 UTC that day is hour 15, the Sunday before at 23:00 is hour 167
    monday = 1_794_787_200
    assert browse.hour_of_week(np.array([monday + 15 * HOUR_SECONDS, monday - HOUR_SECONDS])).tolist() == [15, 167]


def test_an_empty_log_is_a_log(tmp_path: Path) -> None:
    assert len(browse.extend_recommendation_log(None, [])) == 0


def test_every_namespace_with_usage_has_its_coverage(
    store: Store, cluster: SyntheticCluster, analysis: Analysis
) -> None:
    rows = list(store.read_table(COVERAGE).rows())
    assert {r["namespace"] for r in rows} == {s.namespace for s in cluster.usage[Signal.CPU_USAGE_MEAN].refs}
    assert all(0 <= r["coverage"] <= 1 for r in rows)
    # nine days that end at noon touch ten dates
    assert len(store.read_table(COVERAGE_BY_DAY)) == SPEC.days + 1


def test_samples_present_are_one_number_on_every_surface(store: Store, analysis: Analysis) -> None:
    overview, counts = store.read_document("overview", Overview), analysis.coverage
    assert overview is not None
    of_namespaces = [coverage.samples for coverage in counts.by_namespace.values()]
    # the samples of all namespaces / those due, as the samples of all days / those due
    assert overview.coverage == sum(n.present for n in of_namespaces) / sum(n.due for n in of_namespaces)
    assert overview.coverage == counts.seen_by_slot.sum() / counts.due_by_slot.sum()
    shares = {row["namespace"]: row["coverage"] for row in store.read_table(COVERAGE).rows()}
    rows: dict[str, list[float]] = {}
    for row in store.read_table(WORKLOADS).rows():
        rows.setdefault(row["namespace"], []).extend([] if row["coverage"] is None else [row["coverage"]])
    # a namespace lies between the least and the most complete of its workloads, and is the one where there is one
    assert shares.keys() <= rows.keys()
    assert all(min(rows[name]) <= share <= max(rows[name]) for name, share in shares.items())


@pytest.mark.parametrize(
    ("unknown", "reason"),
    [
        ({(Band.BATCH, CPU), (Band.MID, CPU)}, Reason.METRIC_EXPIRED),
        ({(Band.BATCH, MEMORY)}, Reason.METRIC_EXPIRED),
        ({(Band.MID, MEMORY)}, Reason.METRIC_EXPIRED),
        (set(), Reason.OK),
    ],
)
def test_a_node_has_the_reason_of_the_amount_that_is_not_known(
    analysis: Analysis, unknown: set[tuple[Band, Resource]], reason: Reason
) -> None:
    node = analysis.history.inventory.nodes[0].name
    amounts = tuple(
        Reclaimable(node=node, band=band, resource=r, amount=5, policy="usage", terms={}, reason=why)
        for band in Band
        for r in Resource
        for why in [Reason.METRIC_EXPIRED if (band, r) in unknown else Reason.OK]
    )
    row = next(row for row in nodes(replace(analysis, reclaimable=amounts)).rows() if row["node"] == node)
    assert row["reason"] == reason.value
    assert {(b, r) for b in Band for r in Resource if row[f"{b}_{r}"] is None} == unknown


def test_the_clusters_batch_curve_is_the_sum_over_its_nodes(store: Store, analysis: Analysis) -> None:
    overview = store.read_document("overview", Overview)
    assert overview is not None
    nodes = [r["batch"] for r in store.read_table(NODE_HISTORY).rows() if r["resource"] == "cpu"]
    newest = sum(batch[-1] for batch in nodes if batch[-1] is not None)
    assert overview.cpu.batch[-1] == pytest.approx(newest, rel=1e-5)
    assert len(overview.cpu.batch) == len(overview.cpu.times)
