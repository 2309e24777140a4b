"""A cluster that is switched off with its Prometheus misses nothing; one whose Prometheus alone was away does.

One real Prometheus holds small clusters, told apart by the label `case`: each a way in which nights, or one night, have
no sample. Containers of the same pods run on both sides of each, as on virtual machines that are stopped and started.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.store.store import Store
from cotenant.base.usage.usage import TimeGrid
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.pipeline import daily_analysis
from cotenant.profiler.history import pull
from cotenant.profiler.off_times import OffTimes, Signs, Silence, examine
from cotenant.profiler.prometheus import PrometheusSource
from cotenant.profiler.settings import ProfilerSettings, PrometheusSettings
from cotenant.settings import Settings
from tests.profiler.conftest import store_in
from tests.support.prometheus import Server, blocks_from

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]
HOUR, DAY, DAYS, EVERY = 3600, 86_400, 5, 120
START = 1_795_046_400 - DAYS * DAY
END = START + DAYS * DAY
MILLICORES, NODE_CORES = 100, 0.5
NOTE = "the cluster was switched off"
Span = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """A cluster. dark: [begin, end) without a sample, seconds since START; in `off` ones of these nothing ran.

    booted: seconds from the end of the night to the first sample, in which the nodes ran already. anew: pods have new
    names after each night, and so have nodes if `new_nodes`. roots, starts: whether such series are scraped.
    """

    name: str
    dark: tuple[Span, ...]
    off: bool = True
    booted: int = 120
    anew: bool = False
    new_nodes: bool = False
    roots: bool = True
    starts: tuple[str, ...] = ("container_start_time_seconds", "kube_pod_container_state_started")
    has_database: bool = True
    """A pod of a StatefulSet, whose name stays."""
    runs_on: bool = False
    """One node of three, with its pods, ran through."""
    every: int = EVERY

    @property
    def expected_off(self) -> bool:
        return self.off and bool(self.starts) and not self.runs_on and self.booted <= 1800

    def days(self) -> list[Span]:
        """Stretches with samples."""
        edges = [0, *(x for span in self.dark for x in span), DAYS * DAY]
        return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]


def nights(begin: float, end: float, days: int = DAYS - 1) -> tuple[Span, ...]:
    """From an hour of each day to one of the next day."""
    return tuple((round(d * DAY + begin * HOUR), round((d + 1) * DAY + end * HOUR)) for d in range(days))


NIGHTS = nights(20, 7)
WEEKEND = ((round(2 * DAY + 18 * HOUR), round(4 * DAY + 12 * HOUR)),)
BASE = Case("nights", NIGHTS)
CASES = {
    case.name: case
    for case in (
        BASE,
        replace(BASE, name="weekend", dark=WEEKEND),
        replace(BASE, name="short nights at odd minutes", dark=nights(23.13, 4.07)),
        replace(BASE, name="of new names", anew=True),
        replace(BASE, name="of new names on new nodes", anew=True, new_nodes=True),
        replace(BASE, name="of which no counter has its old name", anew=True, new_nodes=True, has_database=False),
        replace(BASE, name="roots are not scraped", roots=False),
        replace(BASE, name="starts by kube-state-metrics alone", starts=("kube_pod_container_state_started",)),
        replace(BASE, name="a server that takes a while", booted=1200),
        replace(BASE, name="scraped every 300 s", every=300),
        # No cluster off: the source was away.
        replace(BASE, name="outages", off=False),
        replace(BASE, name="outages, roots are not scraped", off=False, roots=False),
        replace(BASE, name="one outage of two days", dark=WEEKEND, off=False),
        replace(BASE, name="one node ran through", runs_on=True),
        replace(BASE, name="one node ran through, roots are not scraped", runs_on=True, roots=False),
        replace(BASE, name="an outage with a reboot of all nodes in it", booted=5 * HOUR),
        replace(BASE, name="the same, of new names", booted=5 * HOUR, anew=True),
        # Nobody can say.
        replace(BASE, name="starts are not scraped", starts=()),
    )
}


def lines(case: Case) -> Iterator[tuple[str, str, int, float]]:
    """(metric, labels, moment, value) of everything that the cluster's server holds."""
    for number, (begin, end) in enumerate(case.days()):
        suffix = "" if not case.anew else f"-{number}"
        for node in range(3):
            lasting = not case.off or (case.runs_on and node == 0)
            booted = begin if not number else begin - case.booted
            since = 0 if lasting else booted
            host = f"n{node}{suffix if case.new_nodes else ''}"
            hash_ = f"{number:05d}" if case.anew else "00000"
            pods: tuple[tuple[str, str, str], ...] = (
                ("ReplicaSet", "web-7d9f8b6c5d", f"web-7d9f8b6c5d-{hash_[:4]}{node}"),
                ("DaemonSet", "agent", f"agent-x{hash_[3:]}{node}"),
            )
            if node == 0 and case.has_database:
                pods = (*pods, ("StatefulSet", "db", "db-0"))
            for at in range(begin, end, case.every):
                moment = START + at
                if case.roots:
                    own = f'id="/",node="{host}",instance="{host}"'
                    yield "container_cpu_usage_seconds_total", own, moment, 5000 * lasting + (at - since) * NODE_CORES
                    yield "container_memory_working_set_bytes", own, moment, 4e9
                if at % 300 < case.every:
                    for name in ("kube_node_status_allocatable", "kube_node_status_capacity"):
                        yield name, f'node="{host}",resource="cpu",unit="core"', moment, 16
                        yield name, f'node="{host}",resource="memory",unit="byte"', moment, 2**36
                for kind, owner, pod in pods:
                    yield from of_pod(case, (kind, owner, pod, host), at, since)


def of_pod(case: Case, pod: tuple[str, str, str, str], at: int, since: int) -> Iterator[tuple[str, str, int, float]]:
    kind, owner, name, host = pod
    pod_labels, moment = f'namespace="shop",pod="{name}"', START + at
    own = f'{pod_labels},container="app"'
    yield "container_cpu_usage_seconds_total", own, moment, (at - since) * MILLICORES / 1000
    yield "container_memory_working_set_bytes", own, moment, 1e8
    if at % 300 >= case.every:
        return
    for metric in case.starts:
        yield metric, own, moment, START + since
    yield (
        "kube_pod_owner",
        f'{pod_labels},owner_kind="{kind}",owner_name="{owner}",owner_is_controller="true"',
        moment,
        1,
    )
    yield "kube_pod_info", f'{pod_labels},node="{host}",created_by_kind="{kind}",created_by_name="{owner}"', moment, 1
    yield "kube_pod_status_phase", f'{pod_labels},phase="Running"', moment, 1
    yield "kube_pod_container_status_restarts_total", own, moment, 0
    yield "kube_pod_container_resource_requests", f'{own},resource="cpu",node="{host}"', moment, 1
    yield "kube_pod_container_resource_requests", f'{own},resource="memory",node="{host}"', moment, 2**30
    yield "kube_pod_container_resource_limits", f'{own},resource="memory",node="{host}"', moment, 2**31
    if kind == "ReplicaSet":
        deployment = 'namespace="shop",replicaset="web-7d9f8b6c5d",owner_kind="Deployment",owner_name="web"'
        yield "kube_replicaset_owner", deployment, moment, 1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("off")
    families: dict[str, dict[str, list[str]]] = {}
    for case in CASES.values():
        for metric, labels, at, value in lines(case):
            of_case = f'{labels},case="{case.name}"'
            families.setdefault(metric, {}).setdefault(of_case, []).append(f"{float(value)!r} {at}")
    with (folder / "m.om").open("w") as text:
        for metric, series in families.items():
            kind = "counter" if metric.endswith("_total") else "gauge"
            text.write(f"# TYPE {metric.removesuffix('_total')} {kind}\n")
            text.writelines(
                f"{metric}{{{labels}}} {value}\n" for labels, some in series.items() for value in dict.fromkeys(some)
            )
        text.write("# EOF\n")
    blocks_from(folder / "m.om", folder / "data")
    with Server(folder / "data") as server:
        yield server


def scanned(server: Server, case: Case, store: Store, *ends: int) -> None:
    """A scan at each of the moments."""
    own = PrometheusSettings(url=server.url, labels={"case": case.name})
    settings = ProfilerSettings(window_days=DAYS, prometheus=own)
    for end in ends:
        source = PrometheusSource(settings.prometheus)
        try:
            pull(source, store, settings, FixedClock(end), Silent())
        finally:
            source.close()


def off_share(case: Case) -> float:
    """Of the window, what has no sample."""
    return sum(end - begin for begin, end in case.dark) / (DAYS * DAY)


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_a_night_of_the_whole_cluster_is_told_from_an_outage_of_its_source(
    server: Server, case: Case, tmp_path: Path
) -> None:
    store = store_in(tmp_path)
    scanned(server, case, store, END)
    analysis = daily_analysis.analyse(store, Settings(), FixedClock(END), Silent())
    notes = store.read_quality()[-1].notes
    assert any(NOTE in note for note in notes) is case.expected_off, notes
    least = GuardrailSettings().minimum_coverage
    names = {"web", "db", "agent"}
    for recommendation in analysis.recommendations:
        if recommendation.container.workload.name not in names:
            continue
        covered = min(float(v.inputs["coverage"]) for v in recommendation.values if "coverage" in v.inputs)
        if case.expected_off:
            assert covered >= 0.95 > least, recommendation.container
            assert not {v.reason for v in recommendation.values} & {Reason.LOW_COVERAGE, Reason.NO_DATA}
        elif not (case.anew and recommendation.container.workload.name != "db"):
            # the time without a sample is missing of what ran, or may have run, through it
            assert covered == pytest.approx(1 - off_share(case), abs=0.04), recommendation.container
        else:
            assert covered <= 1 - off_share(case) + 0.04
    gaps = max(row["gap_seconds"] for row in analysis.coverage.day_rows())
    assert gaps <= case.booted + 900 if case.expected_off else gaps >= HOUR
    amounts = [
        v.amount
        for advice in analysis.recommendations
        for v in advice.values
        if v.resource is Resource.CPU and v.amount
    ]
    assert case.expected_off is False or all(MILLICORES <= amount < 1000 for amount in amounts)


def test_hourly_scans_of_a_morning_say_the_same_as_one_scan_of_all(server: Server, tmp_path: Path) -> None:
    case = CASES["nights"]
    once, often = store_in(tmp_path / "once"), store_in(tmp_path / "often")
    scanned(server, case, once, END)
    mornings = [START + d * DAY + round(h * HOUR) for d in range(1, DAYS) for h in (7.2, 8.2, 19.9)]
    scanned(server, case, often, *mornings, END)
    documents = [store.read_document("off-times", OffTimes) for store in (once, often)]
    assert documents[0] is not None and documents[0] == documents[1]
    # 20:00 to two minutes before 07:00 and its first samples, on four nights
    grid = TimeGrid(START, 300, DAYS * 288)
    slots = int(documents[0].slots(grid).sum())
    assert slots == pytest.approx(4 * 11 * 12, abs=4 * 4)


NIGHT = Silence(1000 * HOUR, 1011 * HOUR)


@pytest.mark.parametrize(
    ("signs", "until"),
    [
        # No counter went on: all began anew, or none has its old name. The starts decide.
        (Signs(0, NIGHT.end_seconds - 600.0), NIGHT.end_seconds - 600),
        (Signs(0, NIGHT.end_seconds + 60.0), NIGHT.end_seconds),
        (Signs(1, NIGHT.end_seconds - 600.0), None),
        (Signs(0, None), None),
        (Signs(0, NIGHT.end_seconds - 1801.0), None),
    ],
)
def test_one_counter_that_went_on_one_early_start_or_no_known_start_is_no_night(
    signs: Signs, until: int | None
) -> None:
    assert signs.off_until(NIGHT) == until


def test_what_is_filled_later_is_off_no_more(server: Server) -> None:
    off_times = OffTimes([NIGHT], [NIGHT])
    assert off_times.of((NIGHT,), 0) == off_times
    assert off_times.of((), 0) == OffTimes()
    assert off_times.of((), NIGHT.start_seconds + 60) == off_times  # the window begins in it
    assert examine(OffTimes(), [NIGHT], object()) == OffTimes()  # a source that cannot tell
    assert not np.any(OffTimes().slots(TimeGrid(0, 300, 12)))
