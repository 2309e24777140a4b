"""CPU over time of node agents, from a real Prometheus that holds what an agent's own gauges said."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.base.errors import SourceError, SourceUnfit
from cotenant.base.logs.metrics import Metrics
from cotenant.enforcer.model.enforcement import NUMBERS, AgentAction, EnforcementHistory, Lane, LaneSample
from cotenant.enforcer.model.enforcement_tables import Retention
from cotenant.enforcer.report.action_log import AgentMetrics
from cotenant.profiler.enforcement.collector_child import with_lanes
from cotenant.profiler.enforcement.reading import lanes, query
from cotenant.profiler.settings import ProfilerSettings, PrometheusSettings
from cotenant.settings import Settings
from tests.support.prometheus import Server, blocks_from

pytestmark = pytest.mark.server

END = 1_790_000_040
MINUTES = 30


def scraped(minute: int, node: str, extra: str) -> Iterator[tuple[str, str]]:
    """(metric, line) of one scrape of an agent; others use a core more each ten minutes. extra: labels of a scraper."""
    metrics = AgentMetrics(Metrics("t", "t"))
    limit = 2000.0 if minute >= 10 else None
    others = 4000.0 + 1000 * (minute // 10)
    metrics.lanes(node, LaneSample(0.0, 16_000, others, 1500.0, 6400 - others, limit, 250.0), dry_run=node == "n2")
    for family in metrics.registry.collect():
        for sample in (
            family.samples if family.name in ("cotenant_enforcer_cpu_cores", "cotenant_enforcer_dry_run") else ()
        ):
            labels = {("exported_node" if extra and k == "node" else k): v for k, v in sample.labels.items()}
            text = ",".join([f'{k}="{v}"' for k, v in labels.items()] + ([extra] if extra else []))
            value = "NaN" if math.isnan(sample.value) else f"{sample.value:g}"
            yield sample.name, f"{sample.name}{{{text}}} {value} {END - 60 * (MINUTES - minute)}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """n1 as it is, n2 (a dry run) behind a scraper that has a `node` of its own."""
    folder = tmp_path_factory.mktemp("agents")
    lines: dict[str, list[str]] = {}
    for minute in range(MINUTES):
        for node, extra in (("n1", ""), ("n2", 'node="the-scraper-s"')):
            for name, line in scraped(minute, node, extra):
                lines.setdefault(name, [f"# TYPE {name} gauge"]).append(line)
    text = folder / "text"
    text.write_text("\n".join([*(line for texts in lines.values() for line in texts), "# EOF", ""]))
    blocks_from(text, folder / "data")
    with Server(folder / "data") as running:
        yield running


def test_what_an_agent_measured_comes_back_in_millicores_minute_by_minute(server: Server) -> None:
    first, second = lanes(PrometheusSettings(url=server.url), ["n1", "n2", "never-scraped"], END - 1800, END - 60)
    assert (first.node, first.capacity, first.step_seconds, first.dry) == ("n1", 16_000, 60, False)
    assert (second.node, second.dry) == ("n2", True)
    assert set(first.values) == set(NUMBERS)
    # Minute 5: 4 cores of others, a target of 2.4, no limit yet; minute 25: 6, 0.4 and 2.
    at = {name: (float(first.values[name][5]), float(first.values[name][25])) for name in NUMBERS}
    assert at["others"] == (4000.0, 6000.0) and at["target"] == pytest.approx((2400, 400))
    assert math.isnan(at["limit"][0]) and at["limit"][1] == 2000
    assert at["best_effort"] == (1500.0, 1500.0) and at["burst"] == (250.0, 250.0)


def test_only_nodes_that_did_something_are_asked_for(server: Server) -> None:
    settings = Settings(profiler=ProfilerSettings(prometheus=PrometheusSettings(url=server.url)))
    history = EnforcementHistory((AgentAction(END - 100, "n2", Lane.SUPPRESS, "Suppressed"),))
    assert [lane.node for lane in with_lanes(history, settings.profiler.prometheus, Retention(END)).lanes] == ["n2"]
    assert with_lanes(EnforcementHistory(), settings.profiler.prometheus, Retention(END)).lanes == ()


def test_of_too_many_nodes_those_that_acted_last_are_asked_for_and_it_is_said(server: Server) -> None:
    acts = [AgentAction(END - ago, node, Lane.SUPPRESS, "Suppressed") for node, ago in (("n1", 900), ("n2", 100))]
    history = EnforcementHistory((*acts, AgentAction(END - 1000, "n2", Lane.SUPPRESS, "Suppressed")))
    of_last = with_lanes(history, PrometheusSettings(url=server.url), Retention(END, nodes=1))
    assert [lane.node for lane in of_last.lanes] == ["n2"]
    assert of_last.gathering.notes == ("CPU usage over time covers 1 of 2 nodes: those whose agents acted last",)
    both = with_lanes(history, PrometheusSettings(url=server.url), Retention(END, nodes=2))
    assert [lane.node for lane in both.lanes] == ["n1", "n2"] and both.gathering.notes == ()


def test_acts_are_kept_where_prometheus_does_not_answer() -> None:
    dead = PrometheusSettings(url="http://127.0.0.1:9", retries=0, connect_timeout_seconds=1.0)
    with pytest.raises(SourceError):
        lanes(dead, ["n1"], END - 600, END)
    history = EnforcementHistory((AgentAction(END - 100, "n1", Lane.SUPPRESS, "Suppressed"),))
    without_answer = with_lanes(history, dead, Retention(END))
    assert without_answer.acts == history.acts and without_answer.lanes == ()
    assert "CPU usage over time is not available" in without_answer.gathering.notes[0]


def test_a_node_s_name_is_text_in_the_question(server: Server) -> None:
    nasty = ['a"} or vector(1) or {x="', "n.1", "n1|n2", "b\\"]
    assert lanes(PrometheusSettings(url=server.url), nasty, END - 600, END) == []
    assert "n\\\\.1" in query(["n.1"], {})


def test_agents_of_another_cluster_on_the_same_server_are_not_ours(server: Server) -> None:
    other = PrometheusSettings(url=server.url, labels={"cluster": "other"})
    assert lanes(other, ["n1", "n2"], END - 1800, END - 60) == []
    assert query(["n1"], {"cluster": "prod"}).count('cluster="prod"') == 4  # two metrics, each by two labels


def test_nodes_of_the_same_name_in_two_clusters_are_not_one(tmp_path: Path) -> None:
    lines: dict[str, list[str]] = {}
    for minute in range(MINUTES):
        for cluster in ("prod", "test"):
            for name, line in scraped(minute, "n1", f'cluster="{cluster}"'):
                lines.setdefault(name, [f"# TYPE {name} gauge"]).append(line)
    (tmp_path / "text").write_text("\n".join([*(line for texts in lines.values() for line in texts), "# EOF", ""]))
    blocks_from(tmp_path / "text", tmp_path / "data")
    with Server(tmp_path / "data") as running:
        with pytest.raises(SourceUnfit, match="2 clusters, by the label cluster: prod, test"):
            lanes(PrometheusSettings(url=running.url), ["n1"], END - 1800, END - 60)
        (lane,) = lanes(PrometheusSettings(url=running.url, labels={"cluster": "prod"}), ["n1"], END - 1800, END - 60)
        assert lane.node == "n1"
