"""A scan of a real Prometheus with workloads that are off for a part of the day: what they get, and if it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.store.store import Store
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.pipeline import daily_analysis
from cotenant.pipeline.shards.executors import Here
from cotenant.pipeline.shards.plan import ShardSize
from cotenant.profiler.history import pull
from cotenant.profiler.prometheus import PrometheusSource
from cotenant.profiler.settings import ProfilerSettings, PrometheusSettings
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.settings import Settings
from tests.profiler.conftest import store_in
from tests.support.prometheus import Server, blocks_from

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]
DAY, DAYS, EVERY = 86_400, 8, 60
START = 1_795_046_400 - DAYS * DAY
END = START + DAYS * DAY
MILLICORES = 100
Lives = dict[tuple[str, str, str], list[tuple[int, int]]]


def lives() -> Lives:
    """(owner's kind, owner, pod) -> its lives in seconds since START; one name may live again."""
    pod_lives: Lives = {("DaemonSet", "agent", "agent-x1"): [(0, DAYS * DAY)]}
    pod_lives["StatefulSet", "office", "office-0"] = [(d * DAY + 8 * 3600, d * DAY + 18 * 3600) for d in range(DAYS)]
    pod_lives["StatefulSet", "market", "market-0"] = [(0, 5 * DAY), (7 * DAY, DAYS * DAY)]  # not at the weekend
    pod_lives["StatefulSet", "pulse", "pulse-0"] = [(h * 3600, h * 3600 + 2400) for h in range(0, 24 * DAYS, 3)]
    for day in range(DAYS):
        pod_lives["ReplicaSet", "night-7d9f8b6c5d", f"night-7d9f8b6c5d-{day:05d}"] = [
            (day * DAY + 3600, day * DAY + 4 * 3600)
        ]
    return pod_lives


def samples(spans: list[tuple[int, int]], down: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """(moment, seconds lived so far since the newest beginning) of each scrape, none while the source is down."""
    for begin, end in spans:
        for moment in range(begin, end, EVERY):
            if not down[0] <= moment < down[1]:
                yield START + moment, moment - begin


def written(folder: Path, down: tuple[int, int]) -> Path:
    cpu, memory = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
    families: dict[str, list[str]] = {}

    def add(family: str, labels: str, at: int, value: float) -> None:
        families.setdefault(family, []).append(f"{family}{{{labels}}} {value:g} {at}")

    for (kind, owner, pod), spans in lives().items():
        of_pod = f'namespace="shop",pod="{pod}"'
        own = f'{of_pod},container="app"'
        by_family = {
            "kube_pod_owner": f'{of_pod},owner_kind="{kind}",owner_name="{owner}",owner_is_controller="true"',
            "kube_pod_info": f'{of_pod},node="n1",created_by_kind="{kind}",created_by_name="{owner}"',
            "kube_pod_status_phase": f'{of_pod},phase="Running"',
        }
        for at, lived in samples(spans, down):
            add(cpu, own, at, lived * MILLICORES / 1000)
            add(memory, own, at, 1e8)
            for family, labels in by_family.items():
                add(family, labels, at, 1)
            add("kube_pod_container_status_restarts_total", own, at, 0)
            add("kube_pod_container_resource_requests", f'{own},resource="cpu",node="n1"', at, 1)
            add("kube_pod_container_resource_requests", f'{own},resource="memory",node="n1"', at, 2**30)
            add("kube_pod_container_resource_limits", f'{own},resource="memory",node="n1"', at, 2**31)
    for at, _ in samples([(0, DAYS * DAY)], down):
        add(cpu, 'id="/",node="n1"', at, (at - START) * 1.0)
        add(memory, 'id="/",node="n1"', at, 1e9)
        add(
            "kube_replicaset_owner",
            'namespace="shop",replicaset="night-7d9f8b6c5d",owner_kind="Deployment",owner_name="night"',
            at,
            1,
        )
        for name in ("kube_node_status_allocatable", "kube_node_status_capacity"):
            add(name, 'node="n1",resource="cpu",unit="core"', at, 16)
            add(name, 'node="n1",resource="memory",unit="byte"', at, 2**36)
    with (folder / "m.om").open("w") as text:
        for family, lines in families.items():
            text.write(
                f"# TYPE {family.removesuffix('_total')} {'counter' if family.endswith('_total') else 'gauge'}\n"
            )
            text.writelines(f"{line}\n" for line in sorted(lines, key=lambda line: line.rsplit("}", 1)[0]))
        text.write("# EOF\n")
    blocks_from(folder / "m.om", folder / "data")
    return folder / "data"


def scanned(folder: Path, down: tuple[int, int]) -> Store:
    with Server(written(folder, down)) as server:
        settings = ProfilerSettings(window_days=DAYS, prometheus=PrometheusSettings(url=server.url))
        source, store = PrometheusSource(settings.prometheus), store_in(folder / "store")
        try:
            pull(source, store, settings, FixedClock(END), Silent())
        finally:
            source.close()
    return store


def advice_by_name(store: Store, most_series: int = 8000) -> dict[str, Recommendation]:
    sharding = daily_analysis.Sharding(Here(), ShardSize(most_series)) if most_series < 8000 else None
    analysis = daily_analysis.analyse(store, Settings(), FixedClock(END), Silent(), sharding=sharding)
    return {recommendation.container.workload.name: recommendation for recommendation in analysis.recommendations}


def covered(recommendation: Recommendation) -> float:
    return min(float(v.inputs["coverage"]) for v in recommendation.values if "coverage" in v.inputs)


def test_what_is_off_at_night_or_most_of_the_day_is_whole_and_gets_values(tmp_path: Path) -> None:
    store = scanned(tmp_path, down=(0, 0))
    recommendations = advice_by_name(store)
    for name in ("office", "night", "market", "pulse"):
        assert covered(recommendations[name]) >= 0.95 > GuardrailSettings().minimum_coverage
        assert not {v.reason for v in recommendations[name].values} & {Reason.LOW_COVERAGE, Reason.NO_DATA}
        amounts = [v.amount for v in recommendations[name].values if v.resource is Resource.CPU and v.amount]
        # 100 m in all hours of life: neither less than that, nor the 1,000 m that are requested.
        assert amounts, recommendations[name].values
        assert all(MILLICORES <= amount < 1000 for amount in amounts)


def test_two_days_without_prometheus_are_a_gap_of_each_of_them_however_the_work_is_divided(tmp_path: Path) -> None:
    store = scanned(tmp_path, down=(3 * DAY, 5 * DAY))
    recommendations = advice_by_name(store)
    # Two of eight days could not be seen: a quarter of the lives or of the time.
    for name in ("office", "night"):
        assert covered(recommendations[name]) < 0.8 < GuardrailSettings().minimum_coverage
    divided = advice_by_name(store, most_series=1)
    assert {name: covered(recommendation) for name, recommendation in divided.items()} == {
        name: covered(advice) for name, advice in recommendations.items()
    }
