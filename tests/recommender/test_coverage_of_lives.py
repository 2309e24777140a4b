"""Coverage is of the pods' lives: what was switched off misses nothing, and what nobody could see is a gap.

Of what a value rests on, and of what people are shown of workloads, namespaces, days and the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import Container, Inventory, Node, Pod, PodPhase, Workload
from cotenant.base.identity import NodeRef, PodContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, MIB, Resource
from cotenant.base.usage.lives import Lives, SourceSilence, source_silence
from cotenant.base.usage.usage import Signal, TimeGrid, Usage
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.profiler.coverage import Coverage, coverage
from cotenant.profiler.pool import by_container
from cotenant.profiler.portrait import build
from cotenant.profiler.settings import PortraitSettings
from cotenant.recommender.base import load_strategy, recommend
from cotenant.recommender.evidence import Evidence, assemble
from cotenant.recommender.model.recommendation import Field, Recommendation
from cotenant.recommender.settings import RecommenderSettings

CPU, MEMORY = Resource.CPU, Resource.MEMORY
MONDAY = 1_791_158_400
HOUR, DAY, DAYS = 12, 288, 8
SLOTS = DAYS * DAY
GRID, HOURS = TimeGrid(MONDAY, 300, SLOTS), TimeGrid(MONDAY, 3600, DAYS * 24)
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Life:
    """A pod that lives in the slots [begin, end)."""

    pod: str
    begin: int
    end: int
    node: str = "n0"


@dataclass(frozen=True)
class Work:
    """A workload with its pods' lives."""

    kind: str
    name: str
    lives: tuple[Life, ...]
    listed_after_end: int = 0
    """Hours for which ended pods stay listed."""

    @property
    def ref(self) -> WorkloadRef:
        return WorkloadRef("shop", self.kind, self.name)


@dataclass
class World:
    """What is seen of some workloads. blind: a node's slots, or those of all (""), without usage; unlisted: hours."""

    works: tuple[Work, ...]
    blind: dict[str, Flags] = field(default_factory=dict)
    unlisted: Flags = field(default_factory=lambda: np.zeros(HOURS.size, dtype=bool))
    dropped: frozenset[str] = frozenset()
    dropped_slots: Flags = field(default_factory=lambda: np.zeros(SLOTS, dtype=bool))
    """Workloads whose series a relabelling dropped in these slots; the nodes report."""
    off: Flags | None = None
    """Slots in which the cluster was switched off; nobody reports in them."""

    def hidden(self, work: Work, life: Life) -> Flags:
        nothing = np.zeros(SLOTS, dtype=bool)
        hidden = self.blind.get(life.node, nothing) | self.blind.get("", nothing)
        return hidden | (self.dropped_slots if work.name in self.dropped else nothing)

    def usage(self) -> dict[Signal, Usage[PodContainerRef]]:
        rows_by_ref: dict[PodContainerRef, npt.NDArray[np.float32]] = {}
        listed: dict[PodContainerRef, npt.NDArray[np.float32]] = {}
        for work in self.works:
            for life in work.lives:
                ref = PodContainerRef("shop", life.pod, "app")
                row = rows_by_ref.setdefault(ref, np.full(SLOTS, np.nan, dtype=np.float32))
                values = listed.setdefault(ref, np.full(HOURS.size, np.nan, dtype=np.float32))
                alive = np.zeros(SLOTS, dtype=bool)
                # a rate needs two scrapes: the first slot of a life has none
                alive[life.begin + 1 : life.end] = True
                row[alive & ~self.hidden(work, life)] = 100
                # looked for at every quarter of an hour after its beginning
                quarters = np.arange(life.begin // 3 * 3 + 3, life.end + work.listed_after_end * HOUR, 3)
                values[np.unique((quarters[quarters <= SLOTS] - 1) // HOUR)] = 0
                values[self.unlisted] = np.nan
        refs = tuple(ref for ref, row in rows_by_ref.items() if not np.isnan(row).all())
        cpu = np.array([rows_by_ref[ref] for ref in refs]).reshape(-1, SLOTS)
        spec = Signal.RESTARTS.spec
        restarts = Usage(tuple(listed), HOURS, np.array(list(listed.values())), spec.resource, spec.statistic)
        return {
            Signal.CPU_USAGE_MEAN: Usage(refs, GRID, cpu, CPU, Signal.CPU_USAGE_MEAN.spec.statistic),
            Signal.MEMORY_WORKING_SET_MAX: Usage(
                refs, GRID, cpu * MIB, MEMORY, Signal.MEMORY_WORKING_SET_MAX.spec.statistic
            ),
            Signal.RESTARTS: restarts,
        }

    def silence(self) -> SourceSilence:
        names = sorted({life.node for work in self.works for life in work.lives} | {"n0"})
        nothing = np.zeros(SLOTS, dtype=bool)
        blind = [self.blind.get(name, nothing) | self.blind.get("", nothing) for name in names]
        spec = Signal.NODE_CPU_USAGE_MEAN.spec
        values = np.where(np.array(blind), np.nan, 1000).astype(np.float32)
        nodes = Usage(tuple(map(NodeRef, names)), GRID, values, spec.resource, spec.statistic)
        source_gaps = source_silence(nodes, {Signal.RESTARTS: self.usage()[Signal.RESTARTS]}, HOURS, off=self.off)
        assert source_gaps is not None
        return source_gaps

    def inventory(self, works: tuple[Work, ...]) -> Inventory:
        end = GRID.end_seconds
        newest = {life.pod: (work, life) for work in works for life in work.lives}
        pods = tuple(
            Pod(
                *("shop", name, work.ref, life.node, MONDAY + 300 * life.begin),
                end_seconds=None if life.end >= SLOTS else MONDAY + 300 * life.end,
                phase=PodPhase.SUCCEEDED if life.end < SLOTS and work.listed_after_end else PodPhase.RUNNING,
            )
            for name, (work, life) in newest.items()
        )
        containers = (Container("app", {CPU: 1000, MEMORY: GIB}, {}),)
        workloads = tuple(Workload(work.ref, 1, containers) for work in works)
        return Inventory("c", end, (Node("n0", {CPU: 9000}, {CPU: 9000}),), workloads, pods, ())

    def evidence(self, works: tuple[Work, ...] | None = None) -> Evidence:
        """Evidence of some of the workloads: usage of their pods alone, the silence of the whole cluster."""
        inventory, silence = self.inventory(works or self.works), self.silence()
        names = {(pod.namespace, pod.name) for pod in inventory.pods}
        usage = {
            signal: u.select(np.array([(r.namespace, r.pod) in names for r in u.refs], dtype=bool))
            for signal, u in self.usage().items()
        }
        portraits = {}
        for resource, signal in ((CPU, Signal.CPU_USAGE_MEAN), (MEMORY, Signal.MEMORY_WORKING_SET_MAX)):
            members = by_container(usage[signal].refs, inventory)
            portraits[resource] = build(members.refs, members.rows, usage[signal], PortraitSettings())
        return assemble(inventory, GRID, usage, portraits, silence=silence)

    def present(self, works: tuple[Work, ...] | None = None) -> Coverage:
        """Samples present of the pods of some of the workloads."""
        inventory, usage = self.inventory(works or self.works), self.usage()
        names = {(pod.namespace, pod.name) for pod in inventory.pods}
        own = {s: u.select(np.array([(r.namespace, r.pod) in names for r in u.refs], bool)) for s, u in usage.items()}
        return coverage(own[Signal.CPU_USAGE_MEAN], inventory, Lives.of(self.silence(), inventory, own))

    def coverage(self) -> dict[str, float]:
        evidence = self.evidence()
        return {w.ref.name: float(c) for w, c in zip(evidence.workloads, evidence.coverage[CPU], strict=True)}


def each_day(
    kind: str, name: str, begin: float, hours: float, *, again: bool = False, late: int = 0, **more: int
) -> Work:
    """Lives from an hour of each day on; `again`: of one pod name, as of a StatefulSet. late: slots."""
    begins = [day * DAY + round(begin * HOUR) + late for day in range(DAYS)]
    pods = (name if again else f"{name}-{day}" for day in range(DAYS))
    lives = (Life(pod, b, min(SLOTS, b + round(hours * HOUR))) for pod, b in zip(pods, begins, strict=True))
    return Work(kind, name, tuple(life for life in lives if life.begin < SLOTS), **more)


ALWAYS = Work("Deployment", "always", (Life("always-0", 0, SLOTS),))
OTHER_NODE = Work("DaemonSet", "agent", (Life("agent-0", 0, SLOTS, "n1"),))


def offs() -> list[Work]:
    """Workloads that are off for a part of each day, of every kind that can be."""
    works = []
    for kind in ("Deployment", "StatefulSet", "Rollout", "Pod", "Cluster"):
        for begin, hours in ((8.0, 12.0), (7.95, 10.2), (22.0, 8.0), (9.5, 1.0), (6.1, 20.0)):
            for again in (False, True):
                if again and kind in ("Deployment", "Rollout"):
                    continue
                works.append(each_day(kind, f"{kind}-{begin:g}-{hours:g}-{again}".lower(), begin, hours, again=again))
    works += [each_day("CronJob", f"cron-{hours:g}", 3.0, hours, listed_after_end=48) for hours in (0.5, 2.0)]
    # scaled by a queue: four short lives a day, each of another pod
    short = (Life(f"keda-{i}", i * 71 + i % 7, i * 71 + i % 7 + 9) for i in range(SLOTS // 72))
    return [*works, Work("Deployment", "keda", tuple(short))]


@pytest.mark.parametrize("work", offs(), ids=lambda work: work.name)
def test_what_is_off_for_a_part_of_the_day_misses_nothing(work: Work) -> None:
    # All slots of its lives have samples; a listing by the hour may add one at an edge: two of 48 in an hour's life.
    assert World((ALWAYS, OTHER_NODE, work)).coverage()[work.name] >= 0.95


def days(first: float, last: float) -> Flags:
    slots = np.zeros(SLOTS, dtype=bool)
    slots[round(first * DAY) : round(last * DAY)] = True
    return slots


def hours_of(slots: Flags) -> Flags:
    return np.asarray(slots.reshape(-1, HOUR).all(axis=1))


DOWN = days(3, 5)
LONG = [work for work in offs() if "-12-" in work.name or "-20-" in work.name or "-10.2-" in work.name]
Missing = Callable[[Work], World]
MISSING: dict[str, Missing] = {
    "Prometheus down": lambda w: World((ALWAYS, OTHER_NODE, w), {"": DOWN}, hours_of(DOWN)),
    "all kubelets down, pods listed": lambda w: World((ALWAYS, OTHER_NODE, w), {"": DOWN}),
    "its node's kubelet down, pods listed": lambda w: World((ALWAYS, OTHER_NODE, w), {"n0": DOWN}),
    "its node's kubelet down, nothing listed": lambda w: World((ALWAYS, OTHER_NODE, w), {"n0": DOWN}, hours_of(DOWN)),
}


@pytest.mark.slow
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("work", [ALWAYS, *LONG], ids=lambda work: work.name)
def test_what_the_source_missed_is_a_gap_for_every_workload(work: Work, missing: str) -> None:
    covered = MISSING[missing](work if work is not ALWAYS else OTHER_NODE).coverage()[work.name]
    # Two of eight days: three quarters of the lives or of the time are seen, reckoned from the first sign of a life to
    # the last; 0.9 is the guardrail's least.
    assert covered == pytest.approx(0.75, abs=0.06)


@pytest.mark.parametrize("work", offs(), ids=lambda work: work.name)
def test_namespaces_and_days_miss_nothing_of_what_is_off_for_a_part_of_the_day(work: Work) -> None:
    present = World((work, OTHER_NODE)).present((work,))
    (namespace,), days_of = present.namespace_rows(), present.day_rows()
    # as above: every slot of its lives has a sample, but for one of 24 at an edge of the shortest
    assert namespace["coverage"] >= 0.95
    assert all(day["coverage"] is None or day["coverage"] >= 0.9 for day in days_of)
    assert present.by_workload[work.ref].samples_present == namespace["coverage"] == present.total.samples_present
    # at night nothing was due: no source was silent for hours
    assert max(day["gap_seconds"] for day in days_of) <= 600


@pytest.mark.slow
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("work", [ALWAYS, *LONG], ids=lambda work: work.name)
def test_namespaces_and_days_show_what_the_source_missed(work: Work, missing: str) -> None:
    work = work if work is not ALWAYS else OTHER_NODE
    cluster = MISSING[missing](work)
    present = cluster.present((work,))
    (namespace,), days_of = present.namespace_rows(), present.day_rows()
    # One pod lives at a time: of each slot in which it lived one sample was due, so that the samples present are the
    # time measured, six days of eight.
    assert namespace["coverage"] == pytest.approx(cluster.coverage()[work.ref.name], abs=1e-5)
    if work is not OTHER_NODE or "its node" not in missing:
        dark, light = days_of[3:5], days_of[:3] + days_of[5:]
        assert all(day["coverage"] <= 0.1 and day["gap_seconds"] >= 8 * 3600 for day in dark)
        # a night's life may begin before midnight on a light day and end on a dark one
        assert min(day["coverage"] for day in light) >= 0.9


NIGHTS = np.asarray(np.tile((np.arange(DAY) >= 20 * HOUR) | (np.arange(DAY) < 7 * HOUR), DAYS))
THROUGH = [
    Work(kind, f"through-{kind.lower()}", (Life("p", 0, SLOTS),)) for kind in ("Deployment", "StatefulSet", "Pod")
]
BY_DAY = [
    each_day("Deployment", "by-day", 7.0, 13.0),
    each_day("Job", "job", 9.0, 2.0),
    each_day("StatefulSet", "set", 7.0, 13.0, again=True),
]


@pytest.mark.parametrize("work", [*THROUGH, *BY_DAY], ids=lambda work: work.name)
def test_nights_of_a_cluster_that_is_switched_off_are_missing_of_nothing_and_an_outage_by_day_is(work: Work) -> None:
    dark = {"": NIGHTS | days(3, 3.5)}
    cluster = World((work, OTHER_NODE), dark, hours_of(dark[""]), off=NIGHTS)
    present = cluster.present((work,))
    # On the fourth day nobody could see 07:00 to 12:00: 5 of 8 x 13 hours. Of the job, from its first sample at 9:00 to
    # its last at 11:00, nobody knows whether it ran in 5 of 170 - 7 x 11 hours. Nothing of the nights is missing.
    missing = {"job": 5 / 93}.get(work.name, 5 / 104)
    assert cluster.coverage()[work.name] == pytest.approx(1 - missing, abs=0.01)
    assert present.by_workload[work.ref].samples_present == pytest.approx(1 - missing, abs=0.01)
    gaps = [row["gap_seconds"] for row in present.day_rows()]
    assert max(gaps[:3] + gaps[4:]) <= 900 and gaps[3] <= 5 * 3600 + 900
    # The same silence of a source alone, while pods ran on or may have run on, is missing.
    outage = World((work, OTHER_NODE), dark, hours_of(dark[""]))
    assert outage.coverage()[work.name] < 0.7


def test_one_dark_node_of_two_takes_half_of_its_days_samples_and_as_much_from_a_value() -> None:
    pair = Work("Deployment", "pair", (Life("pair-0", 0, SLOTS), Life("pair-1", 0, SLOTS, "n1")))
    cluster = World((pair, ALWAYS), {"n1": DOWN})
    present = cluster.present((pair,))
    # 2 pods x 8 days of samples were due, 1 pod x 2 days are missing: 14 of 16. A value is of
    # both pods, so that as much of it is measured.
    assert present.by_workload[pair.ref].samples_present == pytest.approx(14 / 16, abs=0.002)
    assert [round(day["coverage"], 2) for day in present.day_rows()] == [1, 1, 1, 0.5, 0.5, 1, 1, 1]
    assert cluster.coverage()["pair"] == pytest.approx(14 / 16, abs=0.002)


def test_a_pod_that_waits_with_its_image_missing_owes_no_sample() -> None:
    work = Work("Deployment", "web", (Life("web-0", 0, SLOTS), Life("web-1", 0, SLOTS)))
    cluster = World((work, OTHER_NODE))
    usage, inventory = cluster.usage(), cluster.inventory((work,))
    waiting = tuple(replace(p, phase=PodPhase.PENDING) if p.name == "web-1" else p for p in inventory.pods)
    cpu = usage[Signal.CPU_USAGE_MEAN]
    usage[Signal.CPU_USAGE_MEAN] = cpu.select(np.array([ref.pod == "web-0" for ref in cpu.refs]))
    inventory = replace(inventory, pods=waiting)
    sample_coverage = coverage(usage[Signal.CPU_USAGE_MEAN], inventory, Lives.of(cluster.silence(), inventory, usage))
    assert sample_coverage.by_workload[work.ref].samples_present == 1.0


@pytest.mark.parametrize("again", [False, True])
def test_a_pod_that_lived_and_was_dropped_by_a_relabelling_is_a_gap(again: bool) -> None:
    work = each_day("StatefulSet", "db", 8.0, 12.0, again=again)
    cluster = World((ALWAYS, OTHER_NODE, work), dropped=frozenset({"db"}), dropped_slots=DOWN)
    # Six of eight lives of 12 hours were seen, two were listed alone.
    assert cluster.coverage()["db"] == pytest.approx(0.75, abs=0.04)
    assert cluster.coverage()["always"] == 1.0


def test_what_is_off_for_most_of_the_day_gets_values_and_may_be_accepted() -> None:
    night = each_day("Deployment", "night", 1.0, 3.0)
    recommendation = proposed(World((ALWAYS, OTHER_NODE, night)), "night")
    assert {value.reason for value in recommendation.values} & {Reason.LOW_COVERAGE, Reason.NOT_ENOUGH_HISTORY} == set()
    request = next(v.amount for v in recommendation.values if v.resource is CPU and v.field is Field.REQUEST)
    # 100 m in every slot of its life, of 1,000 m requested: by the hours of life, not by the day's mean of 12.5 m.
    assert request is not None and 100 <= request < 1000
    least = min(float(value.inputs["coverage"]) for value in recommendation.values if "coverage" in value.inputs)
    assert least >= GuardrailSettings().minimum_coverage


def proposed(cluster: World, name: str) -> Recommendation:
    own = RecommenderSettings()
    recommendations = recommend(load_strategy(own.strategy), cluster.evidence(), own)
    return next(recommendation for recommendation in recommendations if recommendation.container.workload.name == name)


WORKS = st.lists(st.sampled_from([ALWAYS, OTHER_NODE, *offs()]), min_size=2, max_size=6, unique_by=lambda w: w.name)
GAPS = st.tuples(st.floats(0, 7), st.floats(0.02, 2)).map(lambda g: days(g[0], min(8.0, g[0] + g[1])))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(WORKS, GAPS, st.booleans(), st.sampled_from(["", "n0", "n1"]), st.randoms(use_true_random=False))
def test_verdicts_do_not_depend_on_which_pods_are_looked_at_together(
    works: list[Work], gap: Flags, listed: bool, where: str, random: object
) -> None:
    unlisted = np.zeros(HOURS.size, dtype=bool) if listed else hours_of(gap)
    cluster = World(tuple(works), {where: gap}, unlisted)
    together = cluster.coverage()
    random.shuffle(works)  # type: ignore[attr-defined]
    cut = len(works) // 2
    parts = [tuple(works[:cut]), tuple(works[cut:])]
    by_parts = {
        w.ref.name: float(c)
        for part in parts
        for evidence in [cluster.evidence(part)]
        for w, c in zip(evidence.workloads, evidence.coverage[CPU], strict=True)
    }
    assert by_parts == together
    parts_present = [cluster.present(part) for part in parts if part]
    joined, at_once = reduce(Coverage.merge, parts_present), cluster.present()
    assert joined.namespace_rows() == at_once.namespace_rows()
    assert joined.day_rows() == at_once.day_rows()
    assert joined.due_by_slot.sum() == sum(samples.due for samples in at_once.by_workload.values())
    assert 0 <= at_once.total.samples_present <= 1
