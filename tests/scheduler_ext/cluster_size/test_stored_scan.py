"""The answer at every level of requests as one object: what the scan gives, what it cannot, and what is stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.base.cluster import Pod
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.models.pod import SizedPodWire
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.recommender.settings import PriceSettings
from cotenant.scheduler_ext.cluster_size.demand import BusiestMoment, proposals_of
from cotenant.scheduler_ext.cluster_size.model import RequestLevel, SizedCluster, SizeOptions
from cotenant.scheduler_ext.cluster_size.pod_rules import ClusterObjects, sized_pod
from cotenant.scheduler_ext.cluster_size.prices import NodePrices, node_prices, parse_price_list
from cotenant.scheduler_ext.cluster_size.report import (
    HIDDEN,
    REPORT,
    SizeReport,
    best_known,
    fits_at_peaks,
    level_document,
    level_sentences,
    narrow_report,
    report_document,
    sentences_of,
    short_sentence,
)
from cotenant.scheduler_ext.cluster_size.stored_scan import NO_SCAN, OTHER_CLUSTER, Asked, StoredScan, keep, size_report
from tests.scheduler_ext.cluster_size.two_nodes import node, pod
from tests.support.overview import overview

LEVELS = tuple(RequestLevel)
NOW_SECONDS = 1_700_000_000.0
OWNER: dict[str, Any] = {"owners": [{"kind": "ReplicaSet", "name": "web-5d4f", "controller": True}]}
LABELS: dict[str, Any] = {"labels": {"app": "web", "pod-template-hash": "5d4f"}}
STEP = {
    "namespace": "shop", "kind": "Deployment", "workload": "web", "container": "main", "ready": "whole",
    "cpu_step": 600, "memory_step": None, "cpu_request": 400, "memory_request": None, "cpu_action": "set",
    "memory_action": "withheld",
}  # fmt: skip


def cluster(rows: list[dict[str, Any]]) -> SizedCluster:
    """Three nodes of 4 cores with three pods of 1 core each: 9 cores of 12."""
    bodies = [pod(f"{where}{n}", where, **OWNER, **LABELS) for where in "abc" for n in range(3)]
    proposals = proposals_of(rows)
    pods = tuple(sized_pod(msgspec.convert(body, SizedPodWire), ClusterObjects(), proposals) for body in bodies)
    return SizedCluster((node("a"), node("b"), node("c")), pods)


def scan(rows: list[dict[str, Any]], nodes: frozenset[str] = frozenset("abc"), reason: str = "") -> StoredScan:
    return StoredScan("prod", proposals_of(rows), overview("prod"), nodes, reason)


def report(
    rows: list[dict[str, Any]], stored_scan: StoredScan | None = None, prices: NodePrices | None = None
) -> SizeReport:
    state = cluster(rows)
    sheet = node_prices(state.nodes, PriceSettings(per_core_hour=0.25, per_gib_hour=0.0), None)
    inputs = Asked(state, stored_scan or scan(rows), SizeOptions(), prices or sheet)
    return size_report(inputs, LEVELS, NOW_SECONDS, Silent())


def test_each_level_has_its_own_number_and_its_money() -> None:
    sizes = report([STEP])
    # 9 x 1 core need 3 nodes of 4; 9 x 600m = 5.4 need 2; 9 x 400m = 3.6 fit on one, but 9 x 1 GiB not on 8 GiB: 2.
    leaving = {level.level: len(level.size.leaving) for level in sizes.levels if level.size}
    assert leaving == {RequestLevel.NOW: 0, RequestLevel.READY: 1, RequestLevel.ALL_STEPS: 1}
    # A node costs 4 x 0.25 x 730 = 730 a month.
    assert short_sentence(sizes, RequestLevel.READY) == "0 of 3 nodes could leave now, 1 more after the ready steps"
    assert short_sentence(sizes, RequestLevel.NOW) == "0 of 3 nodes could leave now"
    assert best_known(sizes) is RequestLevel.READY
    assert [level.bound for level in sizes.levels] == [3, 2, 2]


def test_every_level_is_named_and_every_amount_has_its_unit() -> None:
    sizes = report([STEP])
    # One node of 4 cores and 8 GiB leaves; before the step none does.
    assert sentences_of(sizes, RequestLevel.READY)[0] == (
        "1 of 3 nodes could leave: 4 cores, 8 GiB, 730 USD a month (none in reserve)"
    )
    assert level_sentences(sizes) == [
        "0 of 3 nodes could leave with requests as they are",
        "1 of 3 nodes could leave after the ready steps (730 USD a month)",
        "1 of 3 nodes could leave after all steps (730 USD a month)",
    ]


@pytest.mark.parametrize(
    ("stored_scan", "why"),
    [
        (StoredScan(reason=NO_SCAN), NO_SCAN),
        (scan([STEP], frozenset({"x", "y"})), OTHER_CLUSTER),
    ],
    ids=["no scan", "another cluster"],
)
def test_without_a_scan_of_this_cluster_only_the_present_has_a_number(stored_scan: StoredScan, why: str) -> None:
    sizes = report([STEP], stored_scan)
    assert sizes.at(RequestLevel.NOW).size is not None and best_known(sizes) is RequestLevel.NOW
    for level in (RequestLevel.READY, RequestLevel.ALL_STEPS):
        assert sizes.at(level).size is None and sizes.at(level).reason == why
        assert short_sentence(sizes, level) == ""
    assert f"It is not known which nodes could leave after the ready steps: {why}" in level_sentences(sizes)
    assert [peak.reason for peak in sizes.peaks] == [why, why]
    size = sizes.at(RequestLevel.NOW).size
    assert size is not None and fits_at_peaks(sizes, size) is None


def test_where_nothing_is_ready_the_number_is_that_of_now() -> None:
    sizes = report([])
    now = sizes.at(RequestLevel.NOW)
    assert [replace(level, level=RequestLevel.NOW) for level in sizes.levels] == [now] * 3


def test_the_highest_stored_hour_is_held_against_the_kept_nodes() -> None:
    sizes = report([])
    size = sizes.at(RequestLevel.NOW).size
    assert size is not None
    # The overview's flat history is 100 millicores, and the kept nodes have 12 cores; it stores no forecast peak.
    forecast, highest = sizes.peaks
    assert forecast.reason == "no-peak" and highest.cpu == 100.0
    assert fits_at_peaks(sizes, size) is True


def test_nodes_without_a_price_are_counted_and_their_cores_named() -> None:
    state = cluster([STEP])
    listed = parse_price_list("machine_type,price_per_hour,currency\nm5,1,EUR\n", "p.csv")
    sizes = report([STEP], prices=node_prices(state.nodes, PriceSettings(), listed))
    size = sizes.at(RequestLevel.READY).size
    assert size is not None and size.price_month is None and size.unpriced_count == 1
    assert "1 of 3 nodes could leave after the ready steps (4 cores)" in level_sentences(sizes)
    assert sizes.notes == ("3 nodes are without the label node.kubernetes.io/instance-type, and so without a price",)


def test_the_stored_report_is_the_report(tmp_path: Path) -> None:
    sizes, store = report([STEP]), Store(tmp_path.as_uri(), "prod")
    keep(store, sizes)
    again = store.read_document(REPORT, SizeReport)
    assert again == sizes and again is not None
    assert report_document(again) == report_document(sizes)


def test_somebody_who_reads_other_namespaces_sees_the_numbers_and_no_pod() -> None:
    sizes = report([STEP])
    hidden = narrow_report(sizes, {"bank"})
    assert level_sentences(hidden) == level_sentences(sizes)
    texts = [msgspec.json.encode(level_document(hidden, level)).decode() for level in RequestLevel]
    assert "shop/" not in "".join(texts) and HIDDEN in texts[0]
    assert narrow_report(sizes, {"shop"}) == sizes


def test_pods_of_the_busiest_moment_count_at_every_level_and_are_said() -> None:
    night = WorkloadRef("shop", "CronJob", "night")
    busy_pods = tuple(Pod("shop", name, night, "a", 0, 60, requests={Resource.CPU: 1_500}) for name in "nm")
    busy = BusiestMoment(0, busy_pods, {("shop", pod.name): night for pod in busy_pods})
    sizes, before = report([STEP], replace(scan([STEP]), busiest=busy)), report([STEP])
    # 9 x 600m + 2 x 1.5 = 8.4 cores: no node of 4 cores may leave, where one could at 5.4 cores. At 9 x 400m + 3 = 6.6
    # cores two nodes hold all.
    assert [len(sized_level.size.leaving) for sized_level in before.levels if sized_level.size] == [0, 1, 1]
    assert [len(sized_level.size.leaving) for sized_level in sizes.levels if sized_level.size] == [0, 0, 1]
    when = "Thu 01 Jan 00:00 UTC (3 cores, 0 B)"
    note = f"counted in addition to running pods: 2 pods that ran at the busiest moment, {when}"
    assert all(note in sentences_of(sizes, level) for level in LEVELS)
    elsewhere = report([STEP], replace(scan([STEP], nodes=frozenset({"z"})), busiest=busy))
    assert note not in sentences_of(elsewhere, RequestLevel.NOW)
