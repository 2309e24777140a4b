from __future__ import annotations

import io
import json
import urllib.parse
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.base.cluster import EventKind
from cotenant.base.usage.usage import Signal
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec, generate
from tests.support.openmetrics import Dress, write
from tests.support.openmetrics.blocks import create_blocks
from tests.support.openmetrics.text import inside
from tests.support.prometheus_server import serve

FEW = frozenset({"container_cpu_usage_seconds_total", "container_memory_working_set_bytes"})


@pytest.fixture(scope="module")
def cluster() -> SyntheticCluster:
    return generate(SyntheticSpec(nodes=3, workloads=25, days=2, seed=3))


def dressed(cluster: SyntheticCluster, dress: Dress) -> list[str]:
    out = io.BytesIO()
    samples = write(cluster.inventory, cluster.usage, out, dress)
    lines = out.getvalue().decode().splitlines()
    assert sum(not line.startswith("#") for line in lines) == samples
    return lines


def points(lines: list[str], metric: str, **labels: str) -> dict[str, list[tuple[int, float]]]:
    """Samples of each series of a metric that carries the labels."""
    by_series: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        if line.startswith(metric + "{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
            series, _, rest = line.rpartition("} ")
            value, moment = rest.split()
            by_series.setdefault(series, []).append((int(moment), float(value)))
    return by_series


@pytest.mark.slow
def test_a_family_stands_in_one_piece_and_the_text_ends(cluster: SyntheticCluster) -> None:
    lines = dressed(cluster, Dress(interval_seconds=300))
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    assert lines[-1] == "# EOF"


def test_times_of_a_series_ascend_by_the_interval(cluster: SyntheticCluster) -> None:
    ref = cluster.usage[Signal.CPU_USAGE_MEAN].refs[0]
    lines = dressed(cluster, Dress(interval_seconds=60, families=FEW, noise=False))
    (samples,) = points(lines, "container_memory_working_set_bytes", pod=ref.pod, container=ref.container).values()
    assert set(np.diff([moment for moment, _ in samples])) <= set(range(60, 86_400, 60))


def test_a_counter_grows_by_the_usage_of_each_slot(cluster: SyntheticCluster) -> None:
    usage = cluster.usage[Signal.NODE_CPU_USAGE_MEAN]
    lines = dressed(cluster, Dress(interval_seconds=300, families=FEW, noise=False))
    (samples,) = points(lines, "container_cpu_usage_seconds_total", node=usage.refs[0].name, id="/").values()
    moments, values = np.array(samples).T
    # One sample a slot at `phase`: between two lie (1 - phase/300) of slot k and phase/300 of slot k + 1.
    share = (moments[0] % 300) / 300
    mean = np.nan_to_num(usage.values[0]).astype(float)
    slots = ((moments - usage.grid.start_seconds) // 300).astype(int)
    k = np.flatnonzero(np.diff(slots) == 1)
    expected = 0.3 * (mean[slots[k]] * (1 - share) + mean[slots[k] + 1] * share)
    assert np.allclose(np.diff(values)[k], expected, atol=2e-6)


def test_the_highest_rate_inside_a_slot_is_the_slots_maximum(cluster: SyntheticCluster) -> None:
    mean, top = cluster.usage[Signal.CPU_USAGE_MEAN], cluster.usage[Signal.CPU_USAGE_MAX]
    # A scrape every 60 s can show at most 5 x the mean, when all of the slot's work falls into one of its five minutes.
    row = int(np.nanargmax(np.nanmean(mean.values, axis=1)))
    pieces = inside(np.nan_to_num(mean.values[row]).astype(float), top.values[row], 5).reshape(-1, 5)
    has_mean = ~np.isnan(mean.values[row])
    assert np.allclose(pieces.mean(axis=1)[has_mean], mean.values[row][has_mean], rtol=1e-5)
    assert np.allclose(
        pieces.max(axis=1)[has_mean], np.minimum(top.values[row], 5 * mean.values[row])[has_mean], rtol=1e-5
    )


def test_a_restart_resets_the_counter_or_begins_a_new_series() -> None:
    cluster = generate(SyntheticSpec(nodes=2, workloads=6, days=10, seed=7))
    restart = next(e for e in cluster.inventory.events if e.kind is EventKind.OOM_KILL)
    who = {"pod": restart.subject.pod, "container": restart.subject.container}
    dress = Dress(interval_seconds=300, families=FEW, noise=False)
    (samples,) = points(dressed(cluster, dress), "container_cpu_usage_seconds_total", **who).values()
    drops = np.array(samples)[1:, 0][np.diff(np.array(samples)[:, 1]) < 0]
    assert any(abs(moment - restart.time_seconds) <= 600 for moment in drops)
    several = points(dressed(cluster, replace(dress, new_ids=True)), "container_cpu_usage_seconds_total", **who)
    assert len(several) == len(drops) + 1
    assert all((np.diff([value for _, value in series]) >= 0).all() for series in several.values())


@pytest.mark.slow
def test_kills_are_counted_in_whole_numbers() -> None:
    cluster = generate(SyntheticSpec(nodes=2, workloads=6, days=10, seed=7))
    kills = [e.subject for e in cluster.inventory.events if e.kind is EventKind.OOM_KILL]
    name = "container_oom_events_total"
    lines = dressed(cluster, Dress(interval_seconds=60, families=frozenset({name})))
    for ref in set(kills):
        (series,) = points(lines, name, pod=ref.pod, container=ref.container).values()
        assert {value for _, value in series} == set(range(kills.count(ref) + 1))
        assert (np.diff([value for _, value in series]) >= 0).all()


@pytest.mark.slow
def test_each_scraper_gives_its_own_copy_and_lost_scrapes_are_missing(cluster: SyntheticCluster) -> None:
    ref = cluster.usage[Signal.CPU_USAGE_MEAN].refs[0]
    dress = Dress(interval_seconds=60, families=FEW, noise=False)
    twice = replace(dress, scrapers=({"prometheus_replica": "a"}, {"prometheus_replica": "b"}))
    who = {"pod": ref.pod, "container": ref.container}
    copies = points(dressed(cluster, twice), "container_memory_working_set_bytes", **who)
    assert len(copies) == 2
    assert all(copies.values())
    (all_,) = points(dressed(cluster, dress), "container_memory_working_set_bytes", **who).values()
    (some,) = points(dressed(cluster, replace(dress, lost=0.3)), "container_memory_working_set_bytes", **who).values()
    assert 0.55 < len(some) / len(all_) < 0.85


def test_an_interval_that_does_not_divide_a_slot_is_refused() -> None:
    with pytest.raises(ValueError, match="7 s does not divide"):
        Dress(interval_seconds=7)


def ask(url: str, expression: str, moment: int) -> dict[tuple[str, ...], float]:
    """An instant query's answer by (namespace, pod, container)."""
    query = urllib.parse.urlencode({"query": expression, "time": moment})
    with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=30) as response:
        vector: list[dict[str, Any]] = json.load(response)["data"]["result"]
    keys = ("namespace", "pod", "container")
    return {tuple(sample["metric"].get(key, "") for key in keys): float(sample["value"][1]) for sample in vector}


@pytest.mark.slow
@pytest.mark.prometheus
def test_a_real_prometheus_answers_with_the_usage_that_was_dressed(cluster: SyntheticCluster, tmp_path: Path) -> None:
    texts = FEW | {"kube_pod_container_resource_requests", "kube_pod_owner"}
    last_hours = {signal: usage.tail(usage.grid.size // 8) for signal, usage in cluster.usage.items()}
    create_blocks(cluster.inventory, last_hours, tmp_path / "data", Dress(interval_seconds=15, families=texts))
    mean, memory = cluster.usage[Signal.CPU_USAGE_MEAN], cluster.usage[Signal.MEMORY_WORKING_SET_MAX]
    request = cluster.usage[Signal.CPU_REQUEST]
    slot = mean.grid.size - 50
    moment = mean.grid.start_seconds + (slot + 1) * 300
    with serve(tmp_path / "data") as url:
        rates = ask(url, 'rate(container_cpu_usage_seconds_total{container!="",container!="POD"}[5m])', moment)
        peaks = ask(
            url, 'max_over_time(container_memory_working_set_bytes{container!="",container!="POD"}[5m])', moment
        )
        requests = ask(url, 'kube_pod_container_resource_requests{resource="cpu"}', moment)
        owners = ask(url, "kube_pod_owner", moment)
    settled = ~np.isnan(mean.values[:, slot - 1 : slot + 2]).any(axis=1)
    alive = list(np.flatnonzero(settled))
    assert len(alive) > 20
    for i in alive:
        ref = mean.refs[i]
        key = (ref.namespace, ref.pod, ref.container)
        # 15-s scrapes see 285 of the slot's 300 s; the missed quarter minute may be the slot's maximum.
        top = cluster.usage[Signal.CPU_USAGE_MAX].values[i, slot]
        assert rates[key] * 1000 == pytest.approx(float(mean.values[i, slot]), abs=0.06 * max(float(top), 1.0))
        assert peaks[key] == pytest.approx(float(memory.values[i, slot]), rel=1e-6)
        assert (ref.namespace, ref.pod, "") in owners
    hour = request.grid.index_of(moment)
    shown: dict[tuple[str, ...], float] = {
        (r.namespace, r.pod, r.container): v[hour] for r, v in zip(request.refs, request.values, strict=True)
    }
    assert {k: v * 1000 for k, v in requests.items()} == pytest.approx({k: shown[k] for k in requests})
    assert len(requests) >= len(alive) // 2
