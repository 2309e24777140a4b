from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import requests

from cotenant.base.identity import ContainerRef, PodContainerRef
from cotenant.base.usage.usage import DAY_SECONDS, TimeWindow
from cotenant.profiler.prometheus import PrometheusSource
from cotenant.profiler.prometheus.plan import Population
from cotenant.profiler.prometheus.quantiles import QuantileQuery, queries
from tests.profiler.conftest import Served, profiler_settings

pytestmark = pytest.mark.prometheus


def instant(url: str, expression: str, moment: int) -> float:
    body = requests.post(f"{url}/api/v1/query", {"query": expression, "time": moment}, timeout=60).json()
    assert body["status"] == "success", body
    return float(body["data"]["result"][0]["value"][1])


def test_answers_are_those_of_asking_each_container_alone(served: Served) -> None:
    source = PrometheusSource(profiler_settings(served.server.url).prometheus)
    window = TimeWindow(served.end - DAY_SECONDS, served.end)
    inventory = source.inventory(served.end, window)
    answers = source.quantiles(QuantileQuery(0.95, served.end, DAY_SECONDS, pooled=(0.66, 0.96)), inventory)
    assert len(answers.pods) > 20
    for ref in list(answers.pods)[::7]:
        own = f'{{namespace="{ref.namespace}",pod="{ref.pod}",container="{ref.container}"}}'
        cpu, memory = f"container_cpu_usage_seconds_total{own}", f"container_memory_working_set_bytes{own}"
        quantiles = answers.pods[ref]
        text = f"quantile_over_time(0.95, rate({cpu}[75s])[1d:75s])"
        assert quantiles.cpu_percentile_millicores == pytest.approx(1000 * instant(served.server.url, text, served.end))
        assert quantiles.memory_max_bytes == instant(served.server.url, f"max_over_time({memory}[1d:75s])", served.end)
        assert quantiles.cpu_points == instant(served.server.url, f"count_over_time({cpu}[1d:75s])", served.end)
        assert quantiles.memory_points == instant(served.server.url, f"count_over_time({memory}[1d:75s])", served.end)


def test_pooled_percentiles_are_those_of_all_points_of_all_pods(served: Served) -> None:
    source = PrometheusSource(profiler_settings(served.server.url).prometheus)
    inventory = source.inventory(served.end, TimeWindow(served.end - DAY_SECONDS, served.end))
    # Cut to the minute it is no multiple of 75 s after the epoch, nor is the first point a day before.
    now = served.end - 47
    answers = source.quantiles(QuantileQuery(0.95, now, DAY_SECONDS, pooled=(0.66, 0.96)), inventory)
    owners = inventory.owners()
    pods: dict[ContainerRef, list[PodContainerRef]] = {}
    for ref in answers.pods:
        container = inventory.container_of(ref, owners)
        assert container is not None
        pods.setdefault(container, []).append(ref)
    container, refs = max(pods.items(), key=lambda pair: len(pair[1]))
    assert len(refs) > 1
    points: list[float] = []
    for ref in refs:
        own = f'{{namespace="{ref.namespace}",pod="{ref.pod}",container="{ref.container}"}}'
        expression = f"rate(container_cpu_usage_seconds_total{own}[75s])"
        # As KRR asks: from a day before now cut to the minute, every 75 s, both ends included.
        minute = served.end - 60
        params: dict[str, Any] = {"query": expression, "start": minute - DAY_SECONDS, "end": minute, "step": 75}
        body = requests.get(f"{served.server.url}/api/v1/query_range", params, timeout=60).json()
        points += [float(v) for series in body["data"]["result"] for _, v in series["values"]]
    expected = np.percentile(points, [66, 96]) * 1000
    assert list(answers.pooled[container].values()) == pytest.approx(expected.tolist())


def test_a_thousand_workloads_take_far_fewer_queries_than_one_for_each() -> None:
    people = Population({f"team-{i}": 28 for i in range(40)})
    range_queries = queries(QuantileQuery(0.95, 1_795_089_600), people, {})
    # 16,128 steps x 62 series = 1 M steps a query: 2 namespaces of 28, so 20 groups x 4 questions.
    assert len(range_queries) == 80
    assert len({q.shard for q in range_queries}) == 20
