"""Before against after, asked of a real Prometheus; and news that reaches a real receiver."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.settings.sections import NotifySettings
from cotenant.changes.decide.regression_check import (
    NO_SOURCE,
    Compared,
    Measure,
    Objective,
    regression_results,
    said,
    unanswered_query_reason,
)
from cotenant.changes.model.change import Change
from cotenant.changes.model.judgement import ChangeVerdict
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.notifications import send
from cotenant.changes.soak.usage_comparison import PrometheusComparison
from cotenant.changes.soak.watcher import News
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.settings import PrometheusSettings
from tests.support.prometheus import Server, blocks_from

pytestmark = pytest.mark.server

BEGUN = 1_700_000_000 - 1_700_000_000 % 60
SPAN = 1800
SETTINGS = ActionSettings()


def change(name: str = "web", kind: str = "Deployment") -> Change:
    return Change("c1", "b1", "shop", kind, name, "ann", (), "template", "d@0", ())


def harm(comparisons: list[Compared]) -> str:
    return ChangeVerdict(0, 0, tuple(regression_results(comparisons, SETTINGS))).harm


def samples(pod: str, start: int, rates: dict[str, float]) -> list[str]:
    """Counters of one pod, a sample a minute for half an hour, each growing by so much a second."""
    labels = f'{{namespace="shop",pod="{pod}",container="app"}}'
    return [
        f"{name}_total{labels} {rate * (t - start):.3f} {t}"
        for name, rate in rates.items()
        for t in range(start, start + SPAN + 1, 60)
    ]


def rates(throttled: float, waiting: float) -> dict[str, float]:
    return {
        "container_cpu_cfs_periods": 10.0,
        "container_cpu_cfs_throttled_periods": 10 * throttled,
        "container_pressure_cpu_waiting_seconds": waiting,
    }


def test_pods_of_before_a_rollout_are_compared_with_those_after_it(tmp_path: Path) -> None:
    # Before 5 % of the periods are throttled and 1 % of the time is waited, afterwards 30 % and 4 %; another workload
    # whose name begins alike is not counted.
    texts = [
        *samples("web-7d4b-aaaaa", BEGUN - SPAN, rates(0.05, 0.01)),
        *samples("web-9c2f-bbbbb", BEGUN, rates(0.3, 0.04)),
        *samples("web-api-7d4b-ccccc", BEGUN, rates(1.0, 1.0)),
    ]
    with Server(written(tmp_path, texts)) as server:
        client = Client(PrometheusSettings(url=server.url))
        compare = PrometheusComparison(client, {})
        by_measure = {compared.measure: compared for compared in compare(change(), BEGUN, BEGUN + SPAN, [])}
        assert by_measure[Measure.THROTTLED].before == pytest.approx(0.05, rel=0.05)
        assert by_measure[Measure.THROTTLED].after == pytest.approx(0.30, rel=0.05)
        assert by_measure[Measure.PRESSURE].after == pytest.approx(0.04, rel=0.1)
        nobody = compare(change("nobody"), BEGUN, BEGUN + SPAN, [])
        assert [(compared.before, compared.after) for compared in nobody] == [(None, None), (None, None)]
        assert compare(change(), BEGUN, BEGUN + 60, []) == []
        client.close()
    assert harm(list(by_measure.values())).startswith("throttled CPU periods 5.0 % -> 30.0 %, a rise of more than 10 %")


def written(folder: Path, texts: list[str]) -> Path:
    """Blocks with these samples of counters and gauges."""
    families = sorted({line.split("{")[0] for line in texts})
    lines = []
    for name in families:
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE {name.removesuffix('_total')} {kind}", *(x for x in texts if x.startswith(name + "{"))]
    (folder / "m.txt").write_text("\n".join([*lines, "# EOF", ""]))
    blocks_from(folder / "m.txt", folder / "data")
    return folder / "data"


def with_label(texts: list[str], label: str) -> list[str]:
    return [text.replace("{", f"{{{label},", 1) for text in texts]


def test_a_server_with_two_clusters_is_not_compared_and_with_the_label_of_one_it_is(tmp_path: Path) -> None:
    # In `prod` the change throttles the pods, 5 % to 30 %; pods of the same names in `lab` run calmly: added up, half
    # of 30 % would be left.
    used = {"container_cpu_usage_seconds": 0.5}
    prod = [
        *samples("web-7d4b-aaaaa", BEGUN - SPAN, rates(0.05, 0.01) | used),
        *samples("web-9c2f-bbbbb", BEGUN, rates(0.3, 0.01) | used),
    ]
    lab = [
        *samples("web-7d4b-aaaaa", BEGUN - SPAN, rates(0.0, 0.01) | used),
        *samples("web-9c2f-bbbbb", BEGUN, rates(0.0, 0.01) | used),
    ]
    objective = Objective(Measure.LATENCY, "vector(0.1)")
    texts = [*with_label(prod, 'cluster="prod"'), *with_label(lab, 'cluster="lab"')]
    with Server(written(tmp_path, texts)) as server:
        all_in_one, labelled = PrometheusSettings(url=server.url), {"cluster": "prod"}
        mixed = PrometheusComparison(client := Client(all_in_one), {})
        compared = mixed(change(), BEGUN, BEGUN + SPAN, [objective])
        assert mixed.trace(change(), BEGUN, BEGUN + SPAN) == []
        client.close()
        labelled_only = PrometheusComparison(
            client := Client(PrometheusSettings(url=server.url, labels=labelled)), labelled
        )
        by_measure = {c.measure: c for c in labelled_only(change(), BEGUN, BEGUN + SPAN, [objective])}
        client.close()
    assert {c.measure for c in compared} == {Measure.THROTTLED, Measure.PRESSURE, Measure.LATENCY}
    assert all(c.after is None and "holds 2 clusters, by the label cluster: lab, prod" in c.error for c in compared)
    assert compared[0].error.startswith("the metric source holds") and harm(compared) == ""
    assert by_measure[Measure.THROTTLED].after == pytest.approx(0.30, rel=0.05)
    assert by_measure[Measure.LATENCY] == Compared(Measure.LATENCY, 0.1, 0.1)


def test_a_cluster_without_the_label_beside_one_with_it_is_not_compared(tmp_path: Path) -> None:
    pods = samples("web-9c2f-bbbbb", BEGUN - SPAN, {"container_cpu_usage_seconds": 0.5})
    pods += samples("web-9c2f-bbbbb", BEGUN, {"container_cpu_usage_seconds": 0.5})[1:]
    with Server(written(tmp_path, [*pods, *with_label(pods, 'cluster="lab"')])) as server:
        client = Client(PrometheusSettings(url=server.url))
        first, *_ = PrometheusComparison(client, {})(change(), BEGUN, BEGUN + SPAN, [])
        client.close()
    assert "holds 2 clusters, by the label cluster: (none), lab" in first.error


def test_the_drawn_usage_counts_a_pair_of_prometheus_once_and_adds_cores(tmp_path: Path) -> None:
    # 0.25 cores on each of two cores; both replicas have a series of each.
    pod = [
        line.replace("}", f',cpu="cpu0{core}"}}', 1)
        for core in range(2)
        for line in samples("web-9c2f-bbbbb", BEGUN, {"container_cpu_usage_seconds": 0.25})
    ]
    own = 'namespace="shop",pod="web-9c2f-bbbbb",container="app",resource="cpu"'
    moments = range(BEGUN, BEGUN + SPAN + 1, 60)
    asks = [f"kube_pod_container_resource_requests{{{own}}} 1 {t}" for t in moments]
    pair = [line for r in "ab" for line in with_label([*pod, *asks], f'prometheus_replica="{r}"')]
    with Server(written(tmp_path, pair)) as server:
        client = Client(PrometheusSettings(url=server.url))
        (drawn,) = PrometheusComparison(client, {}).trace(change(), BEGUN, BEGUN + SPAN)
        client.close()
    usage, request = dict(zip(drawn.times, zip(drawn.usage, drawn.request, strict=True), strict=True))[BEGUN + 900]
    assert usage == pytest.approx(500, rel=0.01) and request == 1000


def test_a_source_that_is_away_is_said_to_be_and_not_to_be_missing() -> None:
    client = Client(PrometheusSettings(url="http://127.0.0.1:9", retries=0))
    compared = PrometheusComparison(client, {})(change(), BEGUN, BEGUN + SPAN, [])
    client.close()
    assert "no connection to the metric source" in said(compared) and NO_SOURCE not in said(compared)
    assert all(NO_SOURCE not in rule.words for rule in regression_results(compared, SETTINGS))
    assert harm(compared) == "" and unanswered_query_reason(regression_results(compared, SETTINGS)) == ""


def test_what_rises_little_is_no_harm_and_what_was_not_compared_is_said() -> None:
    calm = [Compared(Measure.THROTTLED, 0.05, 0.15), Compared(Measure.PRESSURE, 0.2, 0.1)]
    assert harm(calm) == "" and harm([Compared(Measure.PRESSURE, None, 0.2)]) != ""
    assert "5.0 % -> 15.0 %" in said(calm) and "no metric source is configured" in said([])
    assert said([Compared(Measure.PRESSURE, 0.1, None)]) == "time waiting for a CPU (PSI): no samples"


def test_news_reaches_its_receiver_and_one_that_is_away_stops_nothing() -> None:
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    news = [News("shop/Deployment/web: change c1 did harm", "2 containers were OOM-killed after the change", bad=True)]
    url = f"http://127.0.0.1:{server.server_port}/hook"
    send(url, "prod", news, NotifySettings(format="json"))
    send(url, "prod", news, NotifySettings())
    server.shutdown()
    server.server_close()
    send(url, "prod", news, NotifySettings(timeout_seconds=0.5))
    assert got[0]["news"] == [{"title": news[0].title, "words": news[0].words, "bad": True}]
    assert "OOM-killed" in got[1]["blocks"][1]["text"]["text"] and len(got) == 2
