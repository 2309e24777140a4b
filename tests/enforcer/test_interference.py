"""Who suffers from whom, and what is done: baselines, evidence, steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import CpuUse, KubeQos, Observation, PodReading
from cotenant.enforcer.settings import BestEffortSettings
from cotenant.enforcer.strategies.baseline import (
    BASELINE_ANNOTATION,
    BUCKETS,
    FIRST,
    GROWTH,
    Baseline,
    InterferenceSignal,
    bucket,
    measured_signals,
    throttles_itself,
    workload,
)
from cotenant.enforcer.strategies.baseline import annotated_baselines as figures
from cotenant.enforcer.strategies.interference import GIVE_UP_SECONDS, Findings, InterferenceState, correlation, detect
from tests.enforcer.readings import container, node, observation_of, pod

SETTINGS = BestEffortSettings(interference_samples=10, interference_patience_seconds=5.0)


def web(wait: float | None = 1.0, name: str = "web", **others: Any) -> PodReading:
    """A latency-sensitive pod whose tasks wait this percent of the time."""
    reading = pod(name, container(), qos=QosClass.LS, cpu=CpuUse(1000.0), owner=("ReplicaSet", name), **others)
    assert reading.group is not None
    return replace(reading, group=replace(reading.group, cpu_pressure_percent=wait))


def job(name: str, cpu: float, **others: Any) -> PodReading:
    return pod(name, qos=QosClass.BE, kube=KubeQos.BEST_EFFORT, cpu=CpuUse(cpu), **others)


def node_with(*pods: PodReading, at: float = 0.0) -> Observation:
    total = sum(p.group.cpu.millicores or 0.0 for p in pods if p.group)
    return observation_of(*pods, machine=node(10, total), at=at)


class Story:
    """Ticks of one second, one after the other."""

    def __init__(self, **changes: Any) -> None:
        self.settings = msgspec.structs.replace(SETTINGS, **changes)
        self.state = InterferenceState()
        self.at = 0.0

    def tick(self, *pods: PodReading) -> Findings:
        findings, self.state = detect(node_with(*pods, at=self.at), self.state, self.settings)
        self.at += 1.0
        return findings

    def ticks(self, count: int, *pods: PodReading) -> list[Findings]:
        return [self.tick(*pods) for _ in range(count)]

    def learned(self, jobs: tuple[PodReading, ...] = ()) -> Story:
        """After a quiet time in which the pod waited 1 %."""
        self.ticks(20, web(1.0), *(jobs or (job("a", 0.0), job("b", 0.0))))
        return self


def caps(tick_findings: list[Findings]) -> list[int | None]:
    return [f.cap_millicores for f in tick_findings]


def reasons(tick_findings: Findings) -> list[str]:
    return [v.reason for v in tick_findings.verdicts]


BURNS = (job("a", 4000.0), job("b", 100.0))


def test_suffering_that_lasts_halves_best_effort_then_quarters_it_then_evicts_who_moves_with_it() -> None:
    story = Story().learned()
    all_findings = story.ticks(14, web(40.0), *BURNS)
    # confirmed in the third tick; then 5 s for each step; base 4100
    assert caps(all_findings) == [None, None, *[2050] * 5, *[1025] * 7]
    assert [f.antagonist for f in all_findings] == [*[""] * 12, "u-a", "u-a"]
    assert reasons(all_findings[2]) == ["Interference"]
    assert "the usage of default/a correlates with this" in all_findings[2].verdicts[0].message
    assert "cpu-wait 40 %" in all_findings[2].verdicts[0].message


def test_without_a_baseline_nobody_is_a_victim() -> None:
    story = Story()
    assert set(story.ticks(30, web(40.0), *BURNS)) == {Findings()}


def test_baselines_are_not_learned_while_best_effort_is_busy_or_from_young_pods() -> None:
    story = Story()
    story.ticks(20, web(1.0), *BURNS)
    assert story.state.baselines == {}
    young = web(1.0, created_seconds=1.7e9)
    story.ticks(20, young)
    assert story.state.baselines == {}


def test_a_figure_that_the_workload_brings_wins() -> None:
    annotated = web(40.0, annotations={BASELINE_ANNOTATION: '{"cpu-wait": 10}'})
    story = Story()
    assert story.ticks(5, annotated, *BURNS)[-1].cap_millicores is not None
    calm = web(40.0, annotations={BASELINE_ANNOTATION: '{"cpu-wait": 30}'})
    assert Story().learned().ticks(5, calm, *BURNS)[-1].cap_millicores is None


def test_a_short_disturbance_is_none() -> None:
    story = Story().learned()
    all_findings = [
        *story.ticks(2, web(40.0), *BURNS),
        story.tick(web(1.0), *BURNS),
        *story.ticks(2, web(40.0), *BURNS),
    ]
    assert caps(all_findings) == [None] * 5


def test_who_suffered_before_best_effort_began_does_not_suffer_from_its_first_tick() -> None:
    suffers, story = web(40.0, annotations={BASELINE_ANNOTATION: '{"cpu-wait": 1}'}), Story()
    quiet = story.ticks(20, suffers, job("a", 0.0))
    assert reasons(quiet[-1]) == ["Suffers"] and caps(quiet) == [None] * 20
    # the third second in which best effort runs confirms, as without the time before
    assert caps(story.ticks(3, suffers, *BURNS)) == [None, None, 2050]


def test_a_little_waiting_is_nothing_however_little_was_normal() -> None:
    story = Story()
    story.ticks(20, web(0.0), job("a", 0.0))
    # below 5 %
    assert caps(story.ticks(6, web(4.9), job("a", 4000.0))) == [None] * 6


def test_when_the_victim_is_well_again_best_effort_gets_back_step_by_step() -> None:
    story = Story().learned()
    story.ticks(9, web(40.0), *BURNS)
    cap_steps = caps(story.ticks(12, web(1.0), *BURNS))
    # a quarter for 5 s, half for 5 s, all
    assert cap_steps == [*[1025] * 4, *[2050] * 5, *[None] * 3]


def test_who_always_ran_is_no_antagonist_and_suppression_that_does_not_help_is_given_up() -> None:
    steady = job("a", 600.0)
    baseline: dict[str, Any] = {"annotations": {BASELINE_ANNOTATION: '{"cpu-wait": 1}'}}
    story = Story()
    story.ticks(20, web(1.0, **baseline), steady)
    all_findings = story.ticks(16, web(40.0, **baseline), steady)
    assert caps(all_findings) == [None, None, *[300] * 5, *[150] * 5, *[None] * 4]
    assert {f.antagonist for f in all_findings} == {""}
    assert "no best-effort pod's usage correlates with this" in all_findings[2].verdicts[0].message
    assert reasons(all_findings[-1]) == ["NotBestEffort"]
    assert caps(story.ticks(int(GIVE_UP_SECONDS) - 10, web(40.0, **baseline), steady)) == [None] * (
        int(GIVE_UP_SECONDS) - 10
    )
    assert 300 in caps(story.ticks(20, web(40.0, **baseline), steady))


def test_the_eviction_of_who_is_gone_is_not_asked_for() -> None:
    story = Story().learned()
    story.ticks(14, web(40.0), *BURNS)
    all_findings = story.ticks(8, web(40.0), job("b", 1000.0))
    assert {f.antagonist for f in all_findings} == {""}
    assert caps(all_findings)[-1] is None
    assert reasons(all_findings[-1]) == ["NotBestEffort"]


@pytest.mark.parametrize(
    ("mode", "capped", "antagonists"), [("off", False, {""}), ("observe", False, {""}), ("suppress", True, {""})]
)
def test_how_far_it_goes_is_a_setting(mode: Any, capped: bool, antagonists: set[str]) -> None:
    story = Story(interference=mode).learned()
    all_findings = story.ticks(20, web(40.0), *BURNS)
    assert any(c is not None for c in caps(all_findings)) is capped
    assert {f.antagonist for f in all_findings} == antagonists
    texts = {r for f in all_findings for r in reasons(f)}
    assert texts == {"off": set(), "observe": {"Suffers"}, "suppress": {"Interference", "NotBestEffort"}}[mode]


def test_who_suffers_while_best_effort_does_nothing_suffers_from_something_else() -> None:
    story = Story().learned()
    all_findings = story.ticks(5, web(40.0), job("a", 0.0))
    assert caps(all_findings) == [None] * 5
    assert "best effort uses almost no CPU" in all_findings[2].verdicts[0].message


def test_one_case_at_a_time_for_who_suffers_most() -> None:
    story = Story()
    story.ticks(20, web(1.0), web(1.0, "api"), job("a", 0.0))
    all_findings = story.ticks(4, web(20.0), web(60.0, "api"), job("a", 4000.0))
    assert sorted((v.subject, v.reason) for v in all_findings[-1].verdicts) == [
        ("default/api", "Interference"),
        ("default/web", "Suffers"),
    ]


def test_a_victim_that_goes_closes_the_case() -> None:
    story = Story().learned()
    story.ticks(5, web(40.0), *BURNS)
    assert story.tick(*BURNS).cap_millicores is None
    assert story.state.case is None


def test_a_pod_throttled_by_its_own_limit_suffers_from_itself() -> None:
    def throttled(wait: float) -> PodReading:
        reading = web(wait)
        assert reading.group is not None
        cpu = CpuUse(500.0, periods=10, throttled_periods=1)
        return replace(reading, group=replace(reading.group, cpu=cpu))

    assert throttles_itself(throttled(1.0)) and not throttles_itself(web(1.0))
    story = Story().learned()
    assert caps(story.ticks(6, throttled(40.0), *BURNS)) == [None] * 6


def test_every_signal_that_the_machine_has_is_read() -> None:
    reading = web(3.0)
    assert reading.group is not None
    group = replace(
        reading.group,
        run_delay_seconds=0.5,
        cycles_per_instruction=1.5,
        io_pressure_percent=7.0,
        memory_pressure_percent=2.0,
    )
    measured = measured_signals(replace(reading, group=group), 2.0)
    # 0.5 s of 2 s in the run queue
    assert measured == {
        InterferenceSignal.CPU_WAIT: 3.0,
        InterferenceSignal.RUN_DELAY: 25.0,
        InterferenceSignal.CYCLES: 1.5,
        InterferenceSignal.MEMORY_WAIT: 2.0,
        InterferenceSignal.IO_WAIT: 7.0,
    }
    assert measured_signals(replace(web(None), group=None), 1.0) == {}


def test_waiting_is_the_containers_where_the_pod_has_none() -> None:
    reading = web(None)
    two = tuple(replace(c, group=replace(c.group, run_delay_seconds=0.2)) for c in reading.containers if c.group)
    assert measured_signals(replace(reading, containers=two), 1.0) == {
        InterferenceSignal.RUN_DELAY: pytest.approx(20.0)
    }


def test_who_started_between_two_readings_of_the_pressure_is_found() -> None:
    story = Story().learned()
    # read every tenth tick: the antagonist runs for 8 ticks before the next reading shows it
    story.ticks(7, web(1.0), *BURNS)
    story.tick(web(1.0 + 1e-12), *BURNS)  # the same figure, once more computed
    all_findings = story.ticks(14, web(40.0), *BURNS)
    assert {f.antagonist for f in all_findings} == {"", "u-a"}


def test_the_correlation_of_the_paper() -> None:
    # bound 2; fine ticks at 1: 1 / 2 - 1 = -0.5; bad ones at 8: 1 - 2 / 8 = 0.75
    assert correlation([0, 0, 100, 100], [1, 1, 8, 8], 2) == pytest.approx(0.75)
    assert correlation([100, 100, 0, 0], [1, 1, 8, 8], 2) == pytest.approx(-0.5)
    assert correlation([50] * 4, [1, 1, 8, 8], 2) == pytest.approx(0.125)
    assert correlation([0, 0], [8, 8], 2) == 0.0


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e3)), max_size=30), st.floats(0.1, 100))
def test_a_correlation_lies_between_minus_one_and_one(pairs: list[tuple[float, float]], bound: float) -> None:
    assert -1 - 1e-9 <= correlation([u for u, _ in pairs], [v for _, v in pairs], bound) <= 1 + 1e-9


@settings(max_examples=80, deadline=None)
@given(st.lists(st.floats(0, 2000), min_size=1, max_size=60))
def test_a_baseline_is_a_sample_rounded_up_to_its_bucket(values: list[float]) -> None:
    baseline = Baseline()
    for value in values:
        baseline = baseline.add(value, 0.0)
    assert baseline.samples == len(values)
    ends = {FIRST * GROWTH ** bucket(v) for v in values}
    assert baseline.level() in ends
    assert min(values) <= baseline.level() * (1 + 1e-9) or baseline.level() == FIRST * GROWTH ** (BUCKETS - 1)


def test_old_habits_are_forgotten() -> None:
    baseline = Baseline()
    for _ in range(600):
        baseline = baseline.add(50.0, 0.0)
    for _ in range(6000):
        baseline = baseline.add(2.0, 0.0)
    # ten half-lives later
    assert baseline.level() < 3.0


def test_unreadable_figures_count_as_none() -> None:
    assert figures(web(annotations={BASELINE_ANNOTATION: '{"cpi": 1.5, "cpu-wait": -1}'}).spec) == {"cpi": 1.5}
    assert figures(web(annotations={BASELINE_ANNOTATION: "x"}).spec) == {}


def test_a_baseline_belongs_to_the_controller() -> None:
    assert workload(web().spec) == "default/ReplicaSet/web"
    assert workload(pod("bare").spec) == "default/bare"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.floats(0, 5000), st.floats(0, 5000), st.booleans()), min_size=1, max_size=50
    )
)
def test_only_best_effort_is_ever_accused_and_the_state_is_json(ticks: list[tuple[float, float, float, bool]]) -> None:
    story = Story(interference_samples=5)
    story.ticks(8, web(0.5), job("a", 0.0))
    for wait, a, b, is_present in ticks:
        findings = story.tick(web(wait), job("a", a), *([job("b", b)] if is_present else []))
        assert findings.antagonist in {"", "u-a", "u-b"}
        assert findings.cap_millicores is None or findings.cap_millicores >= 0
    assert msgspec.json.decode(msgspec.json.encode(story.state), type=InterferenceState) == story.state
