"""A server whose kubelets write a series of CPU for each core gives what one with a series for all cores gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from cotenant.base.colocation.nodemetric import CollectPolicy
from cotenant.base.resource import Resource
from cotenant.base.usage.quality import Defect
from cotenant.base.usage.usage import Signal, TimeGrid, TimeWindow
from cotenant.profiler.node_metric.source import NodeMetricSource
from cotenant.profiler.prometheus import PrometheusSource
from cotenant.profiler.prometheus.quantiles import QuantileQuery
from cotenant.profiler.settings import PrometheusSettings
from tests.profiler.conftest import profiler_settings, pulled, store_in
from tests.support.prometheus import Server, blocks_from

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]

START, SCRAPE, SCRAPES = 1_795_046_400, 30, 360  # three hours
END = START + SCRAPE * SCRAPES
CPU = "container_cpu_usage_seconds_total"
GRID = TimeGrid(START + 600, 300, (END - START - 600) // 300)  # without the first rates

Samples = Sequence[float]
"""A counter at each scrape, in CPU seconds."""
Series = tuple[Mapping[str, str], Samples]


def core_rates(subject: int, core: int) -> np.ndarray:
    """Cores used between two scrapes: a third of one, and each core's peak of 0.9 in another minute of each slot."""
    at = np.arange(SCRAPES)
    return np.where((at // 2 + core + subject) % 5 == 0, 0.9, 0.3 / (1 + core))


def counters(subject: int, cores: int) -> list[np.ndarray]:
    return [np.concatenate([[5.0], 5.0 + np.cumsum(SCRAPE * core_rates(subject, c))]) for c in range(cores)]


SUBJECTS: dict[str, dict[str, str]] = {
    "web": {"namespace": "shop", "pod": "web-0", "container": "main", "node": "n1", "instance": "n1"},
    "side": {"namespace": "shop", "pod": "web-0", "container": "side", "node": "n1", "instance": "n1"},
    "job": {"namespace": "ml", "pod": "job-0", "container": "main", "node": "n2", "instance": "n2"},
    "n1": {"id": "/", "node": "n1", "instance": "n1"},
    "n2": {"id": "/", "node": "n2", "instance": "n2"},
}


def one_series(cores: int, *, label: str = "") -> list[Series]:
    """One series for all cores."""
    return [
        ({**own, "cpu": label}, np.sum(counters(i, cores), axis=0).tolist()) for i, own in enumerate(SUBJECTS.values())
    ]


def split(cores: int, name: str = "cpu{:02d}", *, but: str = "") -> list[Series]:
    """A series for each core, of all nodes but one whose kubelet writes the total."""
    return [
        series
        for i, own in enumerate(SUBJECTS.values())
        for series in (
            [({**own, "cpu": "total"}, np.sum(counters(i, cores), axis=0).tolist())]
            if own["node"] == but
            else [({**own, "cpu": name.format(c)}, values.tolist()) for c, values in enumerate(counters(i, cores))]
        )
    ]


def labelled(series: Sequence[Series], **labels: str) -> list[Series]:
    return [({**own, **labels}, values) for own, values in series]


def twice(series: Sequence[Series], **labels: tuple[str, str]) -> list[Series]:
    """The same from two replicas: of Prometheus, or of what scrapes for it."""
    return [({**own, label: value}, v) for own, v in series for label, pair in labels.items() for value in pair]


VARIANTS: dict[str, tuple[str, list[Series]]] = {
    # variant -> the one that it must equal, and its series
    "4 cores, total": ("4", one_series(4, label="total")),
    "4 cores, each": ("4", split(4)),
    "4 cores, each, other names": ("4", split(4, "cpu{}")),
    "4 cores, each, plain numbers": ("4", split(4, "{}")),
    "4 cores, each, in capitals": ("4", split(4, "CPU{}")),
    "4 cores, each, with the group of processors": ("4", split(4, "0,{}")),
    "4 cores, all": ("4", one_series(4, label="all")),
    # the words of cAdvisor, Telegraf, Windows' counters, collectd
    **{
        f"4 cores, each beside {word}": ("4", [*split(4), *one_series(4, label=word)])
        for word in ("Total", "cpu-total", "_Total", "all")
    },
    "4 cores, each on one node": ("4", split(4, but="n1")),
    "4 cores, each beside the total": ("4", [*split(4), *one_series(4, label="total")]),
    "4 cores, each beside all of them without the label, or that alone": ("4", [*split(4, but="n1"), *one_series(4)]),
    "4 cores, each, two replicas": ("4", twice(split(4), prometheus_replica=("a", "b"))),
    "4 cores, total, two replicas": ("4", twice(one_series(4, label="total"), prometheus_replica=("a", "b"))),
    "1 core": ("1", split(1)),
    "12 cores, each": ("12", split(12)),
    **{str(cores): (str(cores), one_series(cores)) for cores in (1, 4, 12)},
}
TESTED = [name for name in VARIANTS if not name.isdigit()]
JOBS = {
    "4 cores, total of a kubelet and each of cAdvisor": (one_series(4, label="total"), split(4)),
    "4 cores, all of a kubelet and each of cAdvisor": (one_series(4), split(4)),
    "4 cores, each of two jobs under other names": (split(4, "{}"), split(4)),
    "4 cores, total of one job and all of another": (one_series(4, label="total"), one_series(4)),
}
"""Two jobs that scrape the same containers."""
VARIANTS |= {
    name: ("4", [*labelled(first, job="kubelet"), *labelled(second, job="cadvisor")])
    for name, (first, second) in JOBS.items()
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cores")
    with (folder / "m.om").open("w") as text:
        text.write(f"# TYPE {CPU.removesuffix('_total')} counter\n")
        for variant, (_, series) in VARIANTS.items():
            for own, values in series:
                labels = ",".join(f'{k}="{v}"' for k, v in {**own, "variant": variant}.items() if v)
                text.writelines(
                    f"{CPU}{{{labels}}} {v!r} {START + SCRAPE * k}\n" for k, v in enumerate(map(float, values))
                )
        text.write("# EOF\n")
    blocks_from(folder / "m.om", folder / "data")
    with Server(folder / "data") as server:
        yield server.url


def settings(url: str, variant: str) -> PrometheusSettings:
    return profiler_settings(url, labels={"variant": variant}).prometheus


@pytest.mark.parametrize("variant", TESTED)
def test_a_scan_adds_the_cores(url: str, variant: str, tmp_path: Path) -> None:
    stores = [store_in(tmp_path, name) for name in ("c", "d")]
    records = [
        pulled(store, END, profiler_settings(url, labels={"variant": name}))
        for store, name in zip(stores, (variant, VARIANTS[variant][0]), strict=True)
    ]
    for signal in (Signal.CPU_USAGE_MEAN, Signal.CPU_USAGE_MAX, Signal.NODE_CPU_USAGE_MEAN):
        usage, meant = (store.read(signal, GRID) for store in stores)
        assert usage.refs == meant.refs != ()
        np.testing.assert_allclose(usage.values, meant.values, rtol=1e-4, err_msg=str(signal))
    if "replicas" not in variant:
        assert records[0].defects.get(Defect.DUPLICATE_SERIES, 0) == 0
    if variant == "4 cores, each":
        # each of the four cores: 0.9 in one minute of five, else 0.3 / (1 + c)
        mean = sum(0.9 / 5 + 0.3 / (1 + c) * 4 / 5 for c in range(4))
        row = stores[0].read(Signal.CPU_USAGE_MEAN, GRID)
        assert row.values[[r.container for r in row.refs].index("side")].mean() == pytest.approx(1000 * mean, rel=0.01)


@pytest.mark.parametrize("variant", [*TESTED, *JOBS])
def test_quantiles_of_the_server_add_the_cores(url: str, variant: str) -> None:
    answers = []
    for name in (variant, VARIANTS[variant][0]):
        source = PrometheusSource(settings(url, name))
        inventory = source.inventory(END, TimeWindow(START, END))
        answers.append(source.quantiles(QuantileQuery(0.95, END, 7200, pooled=(0.5,)), inventory))
        source.close()
    quantiles, meant = answers
    assert quantiles.pods.keys() == meant.pods.keys()
    for ref, pod in meant.pods.items():
        assert quantiles.pods[ref].cpu_percentile_millicores == pytest.approx(pod.cpu_percentile_millicores, rel=1e-4)
        assert quantiles.pods[ref].cpu_points == pod.cpu_points
    for container, pooled in meant.pooled.items():
        assert quantiles.pooled[container] == pytest.approx(pooled, rel=1e-4)


@pytest.mark.parametrize("variant", [*TESTED, *JOBS])
def test_reports_of_nodes_add_the_cores(url: str, variant: str) -> None:
    policy = CollectPolicy()
    observed = []
    for name in (variant, VARIANTS[variant][0]):
        source = NodeMetricSource(settings(url, name))
        observed.append(source.observe(END, policy, {}))
        source.close()
    per_core, meant = observed
    for tracks in ("nodes", "sums"):
        ours, theirs = (getattr(observation, tracks)[Resource.CPU] for observation in (per_core, meant))
        assert ours.nodes == theirs.nodes == ("n1", "n2")
        np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-4)
    assert sorted(per_core.pods) == [("ml", "job-0"), ("shop", "web-0")]
    used, expected = (
        dict(zip(observation.pods, observation.usage[Resource.CPU], strict=True)) for observation in (per_core, meant)
    )
    assert used == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("variant", TESTED)
def test_containers_and_nodes_are_counted_once(url: str, variant: str) -> None:
    source = PrometheusSource(settings(url, variant))
    people = source.survey(TimeWindow(START, END)).population
    source.close()
    copies = 2 if "replicas" in variant else 1
    assert people.containers == {"shop": 2 * copies, "ml": copies}
    assert people.nodes == 2 * copies
