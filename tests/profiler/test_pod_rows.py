"""Rows of whole pods are a check alone: what containers do not show is not lowered, and nothing counts twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cotenant.base.cluster import Inventory, PodRow
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.base.usage.usage import Signal
from cotenant.pipeline.shards.work import workload_totals
from cotenant.profiler.sightings import carried_over, merge_inventories
from cotenant.recommender.model.finding import FindingKind
from cotenant.recommender.model.recommendation import Action, Field
from tests.support.kube_series import END, START, Found, Line, PodSpec, link, node, scanned, served

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]

CPU, MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
OWNER = ("ReplicaSet", "web-5c9f7d8b6f")
POD = f"{OWNER[1]}-bcdfg"
SLICE = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_22.slice"
OWN = {"namespace": "shop", "pod": POD}


def pod(uses: tuple[float, float] = (100, 200), containers: Sequence[str] = ("main",)) -> list[Line]:
    """One pod of 1000m and 1 GiB a container, which uses so many millicores and MiB in each."""
    spec = PodSpec(POD, OWNER, containers=containers, uses=uses)
    return [*spec.lines(), link(*OWNER, ("Deployment", "web")), *node()]


def row(millicores: float, mib: float, **labels: str) -> list[Line]:
    """The pod's own."""
    own = OWN | {"id": SLICE} | labels
    return [Line(CPU, own, millicores / 1000, counter=True), Line(MEMORY, own, mib * MIB)]


def counted(seconds: float, lines: Sequence[Line], container: str = "main") -> list[Line]:
    """The lines where the container's counter of CPU stands still."""
    return [
        replace(x, value=seconds, counter=False) if x.metric == CPU and x.labels.get("container") == container else x
        for x in lines
    ]


def still(seconds: float, **labels: str) -> Line:
    """A counter of CPU of the pod's own group, or of one in it, that stands still."""
    return Line(CPU, OWN | {"id": SLICE} | labels, seconds)


def without_rows(lines: Sequence[Line], container: str) -> list[Line]:
    return [x for x in lines if x.metric not in (CPU, MEMORY) or x.labels.get("container") != container]


def of_replicas(lines: Sequence[Line]) -> list[Line]:
    """Each of cAdvisor's series twice, as two replicas of Prometheus write them."""
    return [
        replace(x, labels={**x.labels, "replica": name}) if x.metric in (CPU, MEMORY) else x
        for name in "ab"
        for x in lines
        if name == "a" or x.metric in (CPU, MEMORY)
    ]


def of_cores(lines: Sequence[Line]) -> list[Line]:
    """A series of CPU for each of four cores."""
    split = [
        replace(x, labels={**x.labels, "cpu": f"cpu{i:02d}"}, value=x.value / 4)
        for x in lines
        if x.metric == CPU
        for i in range(4)
    ]
    return [*(x for x in lines if x.metric != CPU), *split]


def with_totals(lines: Sequence[Line], *, of_pods: bool, of_containers: bool) -> list[Line]:
    """A series of CPU for each of four cores, and one of all of them beside these, of pods' rows or of containers'."""
    chosen = [x for x in lines if x.metric == CPU and (of_containers if x.labels.get("container") else of_pods)]
    return [*of_cores(lines), *(replace(x, labels={**x.labels, "cpu": "total"}) for x in chosen)]


PAUSE = {"id": f"{SLICE}/cri-containerd-9f.scope", "image": "registry.k8s.io/pause:3.10", "name": "9f"}
LOWERED = None
MORE, NO_CPU, NOTHING = Reason.POD_USES_MORE, Reason.CPU_UNMEASURED, Reason.UNMEASURED
VARIANTS: dict[str, tuple[list[Line], Reason | None, Reason | None]] = {
    # what is done with CPU and with memory: a reason why it is not lowered
    "no rows of pods": (pod(), LOWERED, LOWERED),
    "the pod's is a little larger": ([*pod(), *row(112, 225)], LOWERED, LOWERED),
    "the pod's is smaller": ([*pod(), *row(80, 150)], LOWERED, LOWERED),
    "a pause container alone": ([*pod(), *row(0.1, 1, **PAUSE)], LOWERED, LOWERED),
    "the pod's and a pause container's": ([*pod(), *row(105, 205), *row(0.1, 1, **PAUSE)], LOWERED, LOWERED),
    "two containers": ([*pod(containers=("main", "side")), *row(205, 410)], LOWERED, LOWERED),
    "two replicas": (of_replicas([*pod(), *row(110, 220)]), LOWERED, LOWERED),
    "a series for each core": (of_cores([*pod(), *row(110, 220)]), LOWERED, LOWERED),
    "much larger": ([*pod(), *row(500, 800)], MORE, MORE),
    "much larger, without ids": ([*pod(), *row(500, 800, id="")], MORE, MORE),
    "larger of CPU": ([*pod(), *row(160, 205)], MORE, LOWERED),
    "larger of memory": ([*pod(), *row(105, 300)], LOWERED, MORE),
    "larger, two replicas": (of_replicas([*pod(), *row(500, 800)]), MORE, MORE),
    "larger, a series for each core": (of_cores([*pod(), *row(500, 800)]), MORE, MORE),
    **{
        f"{name}, a series for each core, a total {beside}": (with_totals(lines, of_pods=p, of_containers=c), cpu, m)
        for beside, p, c in (("of pods", True, False), ("of containers", False, True), ("of both", True, True))
        for name, lines, cpu, m in (
            ("a little larger", [*pod(), *row(110, 220)], LOWERED, LOWERED),
            # 100m * 1.2 + 20m = 140m: more than that, and less than twice that
            ("larger", [*pod(), *row(170, 220)], MORE, LOWERED),
            ("much larger", [*pod(), *row(500, 800)], MORE, MORE),
        )
    },
    "a container's rows are lost": (
        without_rows([*pod(containers=("main", "side")), *row(205, 410)], "side"), MORE, MORE,
    ),
    "sandboxed": ([*counted(0, pod((0, 0))), *row(500, 800)], NOTHING, NOTHING),
    "sandboxed, no rows of pods": (counted(0, pod((0, 0))), NOTHING, NOTHING),
    "CPU is not counted": (counted(0, pod()), NO_CPU, LOWERED),
    "CPU is not counted, the pod works": ([*counted(0, pod()), *row(500, 205)], NO_CPU, LOWERED),
    "CPU is not counted, not of the pod either": ([*counted(0, pod()), still(0)], NO_CPU, LOWERED),
    "CPU is not counted but of a pause container": ([*counted(0, pod()), still(0.03, **PAUSE)], NO_CPU, LOWERED),
    "CPU is not counted, the pod sleeps": ([*counted(0, pod()), still(12.5)], LOWERED, LOWERED),
    "the container sleeps": (counted(12.5, pod()), LOWERED, LOWERED),
    "the container sleeps, two replicas": (of_replicas(counted(12.5, pod())), LOWERED, LOWERED),
    "the container sleeps, a series for each core": (of_cores(counted(12.5, pod())), LOWERED, LOWERED),
}  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    lines = {name: lines for name, (lines, _, _) in VARIANTS.items()}
    with served(tmp_path_factory.mktemp("rows"), lines) as address:
        yield address


@pytest.fixture(scope="module")
def scans(url: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Found]:
    """A scan of each variant, once."""
    return cache(lambda variant: scanned(url, variant, tmp_path_factory.mktemp("store")))


@pytest.fixture
def scan(variant: str, scans: Callable[[str], Found]) -> Found:
    return scans(variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_a_pods_own_row_does_not_bear_out_is_not_lowered(scan: Found, variant: str) -> None:
    _, *reasons = VARIANTS[variant]
    proposal = scan.recommendations["shop/Deployment/web/main"]
    for resource, reason in zip(Resource, reasons, strict=True):
        value = proposal.value(resource, Field.REQUEST)
        assert value is not None
        if reason is None:  # a tenth of what is asked for is used
            assert value.action is not Action.WITHHELD
            assert (value.change or 0) < 0
        else:
            assert (value.action, value.reason) == (Action.WITHHELD, reason)
    assert ("containers show together" in scan.notes) is (
        MORE in reasons or variant == "sandboxed" or "the pod works" in variant
    )
    if any(reasons):
        assert FindingKind.IDLE_WORKLOAD not in {finding.kind for finding in scan.results.findings}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pods_own_row_is_in_no_sum(scan: Found, variant: str) -> None:
    lines, *_ = VARIANTS[variant]
    owners, totals = workload_totals(scan.history)
    assert [str(ref) for ref in owners.workloads] == ["shop/Deployment/web"]
    # by container and core, of replicas one: what each uses, without the total that some have beside their cores
    own = {
        (x.metric, x.labels["container"], x.labels.get("cpu")): x
        for x in lines
        if x.labels.get("container") and x.labels.get("cpu") != "total"
    }
    millicores = sum(1000 * x.value for (metric, *_), x in own.items() if metric == CPU and x.counter)
    working_set = sum(x.value for (metric, *_), x in own.items() if metric == MEMORY)
    cpu, memory = (totals[s].values[0] for s in (Signal.CPU_USAGE_MEAN, Signal.MEMORY_WORKING_SET_MAX))
    assert np.nanmax(cpu) == pytest.approx(millicores, rel=1e-4, abs=1e-6)
    if working_set:
        assert np.nanmax(memory) == pytest.approx(working_set, rel=1e-4)
    else:  # zeros of memory are absence, not 0 bytes
        assert np.isnan(memory).all()


SLOW = {"much larger": MORE, "no rows of pods": LOWERED, "the pod's is a little larger": LOWERED}


def beside_fast_ones(lines: Sequence[Line], every: int) -> list[Line]:
    """The lines, with cAdvisor's scraped so often, beside pods that are scraped every minute: the usual interval."""
    fast = [
        replace(x, every=60) if x.metric in (CPU, MEMORY) else x
        for i in range(5)
        for x in PodSpec(f"busy-{i}", ("StatefulSet", "busy"), namespace="pay").lines()
    ]
    # the last sample is two thirds of an interval old where the answer is evaluated
    slow = [replace(x, every=every, since=START + every // 3) if x.metric in (CPU, MEMORY) else x for x in lines]
    return [*slow, *fast]


def test_pods_that_are_scraped_more_rarely_than_others_are_compared_too(tmp_path: Path) -> None:
    variants = {
        f"{name} {every}": beside_fast_ones(VARIANTS[name][0], every)
        for name in SLOW
        for every in (300, 600, 900, 1800)
    }
    with served(tmp_path, variants) as url:
        for variant in variants:
            pod_scan = scanned(url, variant, tmp_path / variant.replace(" ", "-"))
            request = pod_scan.recommendations["shop/Deployment/web/main"].value(Resource.MEMORY, Field.REQUEST)
            assert request is not None
            # The row of the pod shows 800 MiB where its container shows 200, at any interval.
            reason = SLOW[variant.rsplit(" ", 1)[0]]
            assert (request.action is Action.WITHHELD, request.reason is MORE) == (bool(reason), bool(reason)), variant
            assert ("containers show together" in pod_scan.notes) is bool(reason), variant


def split(shares: Sequence[float], late: int = 0, **label: Sequence[str]) -> list[Line]:
    """The pod with several series of CPU: shares of a core, told apart by a label, each scraped so much later."""
    ((name, values),) = label.items()
    parts = [
        replace(x, labels={**x.labels, name: value}, value=share, since=x.since + late * i)
        for x in pod()
        if x.metric == CPU and "container" in x.labels
        for i, (share, value) in enumerate(zip(shares, values, strict=True))
    ]
    return [*(x for x in pod() if x.metric != CPU or "container" not in x.labels), *parts]


SPLIT: dict[str, tuple[list[Line], Reason | None, int]] = {
    # series of one container, why CPU is not lowered, and how many millicores it may use
    "cores under another label": (split((0.05, 0.03, 0.015, 0.005), core=("0", "1", "2", "3")), MORE, 100),
    "two cores, one idle": (split((0.1, 0.0), cpu_id=("c0", "c1")), MORE, 100),
    "cores and replicas": (
        [replace(x, labels={**x.labels, "replica": r}) if x.metric == CPU and "core" in x.labels else x
         for r in "ab" for x in split((0.08, 0.02), core=("0", "1")) if r == "a" or "core" in x.labels],
        MORE, 200,  # no more than this, as nobody knows which label is which
    ),
    # the same counter, seen at another second
    "replicas": (split((0.1, 0.1), replica=("a", "b")), LOWERED, 0),
    "replicas, one is five minutes late": (split((0.1, 0.1), late=300, replica=("a", "b")), LOWERED, 0),
}  # fmt: skip


def test_series_of_one_container_that_count_apart_are_its_parts(tmp_path: Path) -> None:
    with served(tmp_path, {name: lines for name, (lines, _, _) in SPLIT.items()}) as url:
        for variant, (_, reason, millicores) in SPLIT.items():
            pod_scan = scanned(url, variant, tmp_path / variant.replace(" ", "-"))
            request = pod_scan.recommendations["shop/Deployment/web/main"].value(Resource.CPU, Field.REQUEST)
            assert request is not None
            assert (request.action is Action.WITHHELD, request.reason is MORE) == (bool(reason), bool(reason)), variant
            beyond = [row.beyond.get(Resource.CPU, 0) for row in pod_scan.history.inventory.pod_rows]
            assert max(beyond, default=0) == pytest.approx(millicores, abs=2), variant


def test_what_a_pods_row_said_counts_as_long_as_its_history() -> None:
    old = PodRow("shop", POD, START, {Resource.CPU: 500}, ("main",))
    stored = Inventory("c", START, (), (), (), pod_rows=(old,))
    newer = PodRow("shop", POD, END, {Resource.MEMORY: 7}, ("side",))
    for snapshot, meant in (
        (Inventory("c", END, (), (), ()), old),
        (
            Inventory("c", END, (), (), (), pod_rows=(newer,)),
            replace(newer, beyond={Resource.CPU: 500, Resource.MEMORY: 7}, idle=("main", "side")),
        ),
    ):
        for join in (merge_inventories, carried_over):
            assert join(stored, snapshot, START).pod_rows == (meant,)
        expected_rows: Mapping[bool, tuple[PodRow, ...]] = {True: (), False: snapshot.pod_rows}
        assert merge_inventories(stored, snapshot, START + 1).pod_rows == expected_rows[not snapshot.pod_rows]
