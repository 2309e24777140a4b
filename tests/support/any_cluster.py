"""Any small pod with any usage, for properties of strategies; `KINDS` are those in which one rule decides.

@given(clusters())
def test_...(case: Scenario): case.recommendations("cotenant")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from cotenant.base.cluster import Autoscaler, Container, ContainerRole, LimitRange, Quota, Workload
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, MIB, Resource
from cotenant.base.runtimes.heap import ManagedHeap
from cotenant.recommender.model.sibling import Sibling
from cotenant.recommender.settings import CotenantSettings
from tests.support.scenario import DAY, Scenario, Track, steady

CPU, MEMORY = Resource.CPU, Resource.MEMORY
WEB: Final = WorkloadRef("shop", "Deployment", "web")
DAYS: Final = 8
STEPS: Final = {"cpu_steps_millicores": [250, 1000, 4000], "memory_steps_bytes": [256 * MIB, GIB, 4 * GIB]}
_amounts = st.integers(0, 40_000)
_flags = st.booleans()


@st.composite
def clusters(draw: st.DrawFn) -> Scenario:
    """Any small pod with any usage, bounds, autoscaler and annotations."""
    parts, guaranteed = [], draw(_flags)
    for name in ("app", "proxy")[: draw(st.integers(1, 2))]:
        amounts_asked = st.integers(1, 20_000) | st.integers(1, 20).map(lambda cores: 1000 * cores)  # also whole cores
        requests = {r: draw(amounts_asked) * (1 if r is CPU else MIB) for r in Resource if guaranteed or draw(_flags)}
        ratio = 1 if guaranteed else draw(st.integers(1, 4))
        limits = {r: ratio * a for r, a in requests.items() if guaranteed or draw(_flags)}
        parts.append(Container(name, requests, limits, role=draw(st.sampled_from(ContainerRole))))
    annotations_drawn = draw(
        st.dictionaries(
            st.sampled_from(["profile", "cpu-fraction", "max-memory", "min-cpu", "keep-qos-class", "cpu-limit", "?"]),
            st.sampled_from(["aggressive", "0.5", "300Mi", "2", "false", "unset", "\u202e", "-1"]),
            max_size=3,
        )
    )
    targets = st.dictionaries(st.sampled_from(Resource), st.integers(1, 100))
    scaler = Autoscaler("web", 1, 9, draw(targets))
    otherwise = tuple(r for r in Resource if r not in scaler.targets and draw(_flags))
    of = Workload(
        WEB,
        draw(st.integers(0, 50)),
        tuple(parts),
        qos=draw(st.sampled_from(QosClass)),
        autoscaler=replace(scaler, unsolvable=otherwise) if draw(_flags) else None,
        annotations={f"cotenant.dev/{k}": v for k, v in annotations_drawn.items()},
    )
    ranges = [
        LimitRange(
            "shop",
            r,
            draw(st.none() | _amounts),
            draw(st.none() | st.integers(1, 2**40)),
            draw(st.none() | st.floats(0, 5)),
        )
        for r in Resource
        if draw(_flags)
    ]
    quotas = [Quota("shop", "q", r, draw(_flags), draw(_amounts), draw(_amounts)) for r in Resource if draw(_flags)]
    tracks = [_track(draw, of, part.name) for part in parts]
    return Scenario([of], tracks, DAYS, DAYS, limit_ranges=ranges, quotas=quotas)


def _track(draw: st.DrawFn, of: Workload, name: str) -> Track:
    values: Sequence[float] = draw(
        st.lists(st.floats(0, 15_000, width=32) | st.just(float("nan")), min_size=1, max_size=9)
    )
    shape = np.resize(np.array(values), DAYS * DAY)
    kills = draw(st.lists(st.integers(0, DAYS * DAY - 1), max_size=2))
    return Track(of.ref, "web-0", cpu=shape, throttled=shape[::-1], memory=shape * MIB, container=name, kills=kills)


@dataclass(frozen=True)
class PointedCluster:
    """A cluster with one plain pod and one thing about it, and the settings of strategy cotenant."""

    scenario: Scenario
    own: CotenantSettings

    @property
    def workload(self) -> Workload:
        """The one that there is."""
        return self.scenario.workloads[0]


def _plain(
    cpu: Any, memory: Any, requests: dict[Resource, int], limits: dict[Resource, int] | None = None, **more: Any
) -> PointedCluster:
    """One container; cpu in millicores and memory in MiB, whole histories.

    own: settings of the strategy; heap: of the container; anything else: of the workload.
    """
    own, heap = more.pop("own", {}), more.pop("heap", None)
    of = Workload(WEB, more.pop("replicas", 1), (Container("app", requests, limits or {}, heap=heap),), **more)
    days = len(cpu) / DAY
    track = Track(WEB, "web-0", cpu=np.asarray(cpu), memory=np.asarray(memory) * MIB)
    return PointedCluster(Scenario([of], [track], days, days), CotenantSettings(**own))


def _near_what_it_needs(draw: st.DrawFn) -> PointedCluster:
    """Requests around 429 m and 345 MiB, which 400 m and 300 MiB ask for."""
    requests = {CPU: draw(st.integers(380, 490)), MEMORY: draw(st.integers(300, 390)) * MIB}
    limits = {r: 2 * a for r, a in requests.items()}
    return _plain(steady(400, DAYS), steady(300, DAYS), requests, limits, own={"lower_limits": draw(_flags)})


def _growing(draw: st.DrawFn) -> PointedCluster:
    day = 1 + 0.5 * np.sin(np.arange(DAY) / DAY * 2 * np.pi)
    weeks = [300, 300 + draw(st.integers(0, 150)), 300 + draw(st.integers(150, 400))]
    cpu = np.concatenate([level * np.tile(day, 7) for level in weeks])
    return _plain(cpu, steady(300, 21), {CPU: draw(st.integers(100, 2000))})


def _leaking(draw: st.DrawFn) -> PointedCluster:
    climb = 300 + draw(st.integers(0, 60)) * np.arange(12 * DAY) / DAY
    return _plain(steady(400, 12), climb, {MEMORY: draw(st.integers(1, 8)) * GIB}, {MEMORY: 8 * GIB})


def _annotated(draw: st.DrawFn) -> PointedCluster:
    bounds = {
        f"cotenant.dev/{side}-{resource}": f"{draw(st.integers(1, 900))}{'m' if resource is CPU else 'Mi'}"
        for side in ("min", "max")
        for resource in Resource
        if draw(_flags)
    }
    return _plain(steady(400, DAYS), steady(300, DAYS), {CPU: 800}, {MEMORY: GIB}, annotations=bounds)


def _left_out(draw: st.DrawFn) -> PointedCluster:
    annotations_drawn = draw(
        st.sampled_from([{"skip": "true"}, {"exclude-containers": "app"}, {"exclude-containers": "other"}])
    )
    marks = {f"cotenant.dev/{key}": text for key, text in annotations_drawn.items()}
    return _plain(steady(400, DAYS), steady(300, DAYS), {CPU: 800}, {MEMORY: GIB}, annotations=marks)


def _in_a_range(draw: st.DrawFn) -> PointedCluster:
    plain = _plain(steady(400, DAYS), steady(300, DAYS), {CPU: 800, MEMORY: GIB}, {CPU: 3000, MEMORY: 2 * GIB})
    bounds = sorted(draw(st.lists(st.integers(1, 4000), min_size=2, max_size=2)))
    resource = draw(st.sampled_from(Resource))
    low, high = (bound * (1 if resource is CPU else MIB) for bound in bounds)
    bound = LimitRange("shop", resource, low, high, draw(st.none() | st.floats(1, 3)))
    return replace(plain, scenario=replace(plain.scenario, limit_ranges=(bound,)))


def _in_steps(draw: st.DrawFn) -> PointedCluster:
    cpu, memory = draw(st.integers(1, 5000)), draw(st.integers(1, 5000))
    return _plain(steady(cpu, DAYS), steady(memory, DAYS), {CPU: 3}, own=STEPS)


def _bound_to_cores(draw: st.DrawFn) -> PointedCluster:
    equal = {CPU: draw(st.sampled_from([1000, 2500, 4000, 10_000])), MEMORY: GIB}
    qos = draw(st.sampled_from([QosClass.LSR, QosClass.LSE, QosClass.LS]))
    cpu = steady(draw(st.integers(1, 9000)), DAYS)
    limits = equal if draw(_flags) else {CPU: 2 * equal[CPU]}
    return _plain(cpu, steady(300, DAYS), equal, limits, qos=qos, own={"lower_limits": draw(_flags)})


def _asking_for_nothing(draw: st.DrawFn) -> PointedCluster:
    own = {"keep_qos_class": draw(_flags)}
    return _plain(
        steady(400, DAYS), steady(300, DAYS), {}, qos=draw(st.sampled_from([QosClass.BE, QosClass.LS])), own=own
    )


def _seen_seldom(draw: st.DrawFn) -> PointedCluster:
    """A short history, one with gaps, and a part that is not measured at all."""
    slots = draw(st.integers(1, 3 * DAY))
    measured = np.arange(slots) % draw(st.integers(1, 4)) == 0
    cpu, memory = np.where(measured, 400.0, np.nan), np.where(measured, 300.0, np.nan)
    limits = {CPU: draw(st.sampled_from([300, 900]))}
    unmeasured = np.full(slots, np.nan)
    return _plain(cpu, memory if draw(_flags) else unmeasured, {CPU: 800, MEMORY: GIB}, limits)


def _as_large_as_a_node(draw: st.DrawFn) -> PointedCluster:
    """Nodes have 16 cores and 64 GiB."""
    cpu, memory = draw(st.integers(12_000, 24_000)), draw(st.integers(50_000, 90_000))
    return _plain(steady(cpu, DAYS), steady(memory, DAYS), {CPU: 1000, MEMORY: GIB})


def _with_a_heap(draw: st.DrawFn) -> PointedCluster:
    maximum, live = draw(st.integers(256, 8000)), draw(st.integers(32, 2000))
    busy = draw(st.sampled_from([0.0, 0.2]))
    heap = ManagedHeap("jvm", maximum * MIB, min(live, maximum) * MIB, maximum * MIB, 200 * MIB, busy)
    request = draw(st.integers(512, 9000)) * MIB
    own = {"lower_limits": draw(_flags)}
    limits = {MEMORY: request + draw(st.integers(0, 2000)) * MIB}
    return _plain(steady(400, DAYS), steady(maximum + 200, DAYS), {MEMORY: request}, limits, heap=heap, own=own)


def _scaled(draw: st.DrawFn) -> PointedCluster:
    scaler = Autoscaler("web", 1, 9, draw(st.sampled_from([{CPU: 60}, {CPU: 95, MEMORY: 70}, {}])))
    scaler = replace(scaler, unsolvable=() if MEMORY in scaler.targets else draw(st.sampled_from([(), (MEMORY,)])))
    requests = {CPU: draw(st.integers(100, 4000)), MEMORY: draw(st.integers(100, 4000)) * MIB}
    return _plain(steady(400, DAYS), steady(300, DAYS), requests, autoscaler=scaler)


def _killed(draw: st.DrawFn) -> PointedCluster:
    """Kills under a limit that is near what was seen."""
    limits = {MEMORY: draw(st.integers(200, 2000)) * MIB}
    plain = _plain(steady(400, DAYS), steady(300, DAYS), {MEMORY: limits[MEMORY] // 2}, limits)
    (track,) = plain.scenario.tracks
    kills = draw(st.lists(st.integers(0, DAYS * DAY - 1), min_size=1, max_size=3))
    return replace(plain, scenario=replace(plain.scenario, tracks=[replace(track, kills=kills)]))


def _in_a_quota(draw: st.DrawFn) -> PointedCluster:
    plain = _plain(steady(400, DAYS), steady(300, DAYS), {CPU: 100, MEMORY: 64 * MIB}, replicas=draw(st.integers(1, 9)))
    resource, free_amount = draw(st.sampled_from(Resource)), draw(st.integers(0, 900))
    unit = 1 if resource is CPU else MIB
    quota = Quota("shop", "q", resource, False, (5000 + free_amount) * unit, 5000 * unit)
    return replace(plain, scenario=replace(plain.scenario, quotas=(quota,)))


def _with_a_sibling(draw: st.DrawFn) -> PointedCluster:
    """Days of 400 m and 300 MiB beside a container that asked for up to three times as much in two weeks."""
    days = draw(st.sampled_from([0.5, 2.0, 7.5]))
    plain = _plain(
        steady(400, days), steady(300, days), {CPU: draw(st.integers(50, 900)), MEMORY: 256 * MIB}, {MEMORY: 300 * MIB}
    )
    other = ContainerRef(WorkloadRef("shop", "Deployment", "web-v1"), "app")
    siblings = [
        Sibling(other, CPU, draw(st.integers(300, 1300)), 14.0, 0, 1, 0),
        Sibling(other, MEMORY, draw(st.integers(200, 900)) * MIB, 14.0, 0, 1, 0),
    ]
    return replace(plain, scenario=replace(plain.scenario, siblings=siblings))


def _any(draw: st.DrawFn) -> PointedCluster:
    return PointedCluster(draw(clusters()), CotenantSettings())


KINDS: Final[dict[str, tuple[Callable[[st.DrawFn], PointedCluster], frozenset[Reason]]]] = {
    "near what it needs": (_near_what_it_needs, frozenset({Reason.WITHIN_DEAD_BAND, Reason.LIMIT_KEPT, Reason.OK})),
    "growing": (_growing, frozenset({Reason.TREND, Reason.OBSERVED_MAXIMUM})),
    "leaking": (_leaking, frozenset({Reason.LEAK})),
    "annotated": (_annotated, frozenset({Reason.ANNOTATION})),
    "left out": (_left_out, frozenset({Reason.EXCLUDED})),
    "in a LimitRange": (_in_a_range, frozenset({Reason.LIMIT_RANGE})),
    "in a quota": (_in_a_quota, frozenset({Reason.QUOTA})),
    "in steps": (_in_steps, frozenset({Reason.SPEC_LADDER, Reason.FLOOR})),
    "bound to cores": (_bound_to_cores, frozenset({Reason.WHOLE_CORES, Reason.QOS_CLASS})),
    "asking for nothing": (_asking_for_nothing, frozenset({Reason.BEST_EFFORT})),
    "seen seldom": (_seen_seldom, frozenset({Reason.NOT_ENOUGH_HISTORY, Reason.LOW_COVERAGE, Reason.NO_DATA})),
    "as large as a node": (_as_large_as_a_node, frozenset({Reason.IMPLAUSIBLE, Reason.NODE_SIZE})),
    "with a heap": (_with_a_heap, frozenset({Reason.HEAP})),
    "scaled": (_scaled, frozenset({Reason.HPA_SOLVED, Reason.HPA_UNSOLVED, Reason.HPA_ON_RESOURCE})),
    "killed": (_killed, frozenset({Reason.OOM_BUMP})),
    "with a sibling": (_with_a_sibling, frozenset({Reason.SIBLING})),
    "any": (_any, frozenset()),
}
"""Kind -> how one is drawn, and the reasons that among some dozens of them come up."""
