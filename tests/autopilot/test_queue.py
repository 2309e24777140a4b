"""The queue of a round: limits, order, back-off, and why each workload waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import structs

from cotenant.autopilot.decide.halt import ClusterHealth, Halt, halt_of, too_much_harm
from cotenant.autopilot.decide.history import ActState, Decisions, PastAct
from cotenant.autopilot.decide.policy import PolicyLimits, PolicySpec, effective
from cotenant.autopilot.decide.round_order import (
    QueueCandidate,
    QueueEntry,
    RoundInputs,
    back_off_end,
    decide,
    ended_rests,
    for_manifests,
    withheld,
)
from cotenant.autopilot.model import AutopilotMode, QueueVerdict
from cotenant.autopilot.settings import AutopilotSettings, CeilingSettings, Way
from cotenant.base.identity import WorkloadRef
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.changes.model.change import AUTOPILOT_KEY_PREFIX, Change, ChangeState, ChangeStatus
from cotenant.changes.model.settings import ActionSettings

NOW = 1_800_000_000.0
HOUR, DAY = 3600.0, 86_400.0
LIMITS = effective(CeilingSettings(), PolicySpec())
SETTINGS = AutopilotSettings()


def ref(name: str, namespace: str = "shop") -> WorkloadRef:
    return WorkloadRef(namespace, "Deployment", name)


def candidate(name: str, worth: float = 1.0, namespace: str = "shop", **more: object) -> QueueCandidate:
    fields: dict[str, object] = {
        "mode": AutopilotMode.ACT,
        "limits": LIMITS,
        "worth": worth,
        "confidence": 1.0,
        "lowers": True,
    }
    return QueueCandidate(ref(name, namespace), f"{namespace}/p", **{**fields, **more})  # type: ignore[arg-type]


def act(name: str, state: ActState, ago_seconds: float = 0.0, restarts: int = 0, namespace: str = "shop") -> PastAct:
    return PastAct(ref(name, namespace), NOW - ago_seconds, NOW - ago_seconds, state, restarts)


def entry(inputs: RoundInputs) -> QueueEntry:
    (only,) = decide(inputs)
    return only


def names(entries: tuple[QueueEntry, ...], verdict: QueueVerdict = QueueVerdict.ACT) -> list[str]:
    return [e.candidate.workload.name for e in entries if e.verdict is verdict]


@pytest.mark.parametrize(
    ("more", "around", "reason"),
    [
        ({}, {"halt": Halt(Reason.AUTOPILOT_PAUSED, "by ann")}, Reason.AUTOPILOT_PAUSED),
        ({"blocked": (Reason.AUTOPILOT_NEVER_TOUCHED, "")}, {}, Reason.AUTOPILOT_NEVER_TOUCHED),
        ({}, {"left_alone": {"shop/Deployment/a": "vpa"}}, Reason.AUTOPILOT_OTHER_WRITER),
        ({"confidence": 0.74}, {}, Reason.AUTOPILOT_UNCERTAIN),
        ({}, {"busy": frozenset({ref("a")})}, Reason.AUTOPILOT_CHANGE_UNDER_WAY),
        ({}, {"cool_downs": {ref("a"): NOW + 1}}, Reason.AUTOPILOT_COOL_DOWN),
        ({}, {"acts": (act("a", ActState.HARMFUL, HOUR),)}, Reason.AUTOPILOT_BACKS_OFF),
        ({}, {"acts": (act("a", ActState.HARMFUL, 900 * DAY),) * 3}, Reason.AUTOPILOT_GIVEN_UP),
        ({"limits": structs.replace(LIMITS, ways=[]), "gitops": "argo"}, {}, Reason.AUTOPILOT_KEPT_BY_GITOPS),
        ({"limits": structs.replace(LIMITS, own_windows=["sat 00:00-00:01 UTC"])}, {}, Reason.AUTOPILOT_OUTSIDE_WINDOW),
        (
            {"limits": structs.replace(LIMITS, ways=[Way.ROLL_OUT])},
            {"acts": (act("a", ActState.KEPT, 6 * DAY, restarts=1),)},
            Reason.AUTOPILOT_NO_WAY_LEFT,
        ),
        ({}, {"acts": tuple(act(f"o{i}", ActState.UNDER_WAY) for i in range(5))}, Reason.AUTOPILOT_QUEUE_FULL),
    ],
)
def test_a_workload_that_waits_says_why(more: dict[str, object], around: Mapping[str, object], reason: Reason) -> None:
    inputs = RoundInputs(NOW, (candidate("a", **more),), **{"at_once": 5, **around})  # type: ignore[arg-type]
    waits = entry(inputs)
    assert (waits.verdict, waits.reason, waits.place) == (QueueVerdict.WAIT, reason, 0)
    assert waits.words


def test_a_bundle_takes_what_a_gitops_tool_keeps_and_nothing_else_holds_back() -> None:
    no_way = structs.replace(LIMITS, ways=[])
    candidates = (
        candidate("in-place", gitops="flux"),
        candidate("no-way", gitops="flux", limits=no_way),
        candidate("uncertain", gitops="flux", limits=no_way, confidence=0.1),
        candidate("nobodys"),
    )
    entries = decide(RoundInputs(NOW, candidates, at_once=5))
    assert sorted(queue_candidate.workload.name for queue_candidate in for_manifests(entries)) == ["in-place", "no-way"]
    # a manifest takes no place in the queue: the one for which the round has no room is in the bundle, too
    entries = decide(RoundInputs(NOW, candidates, at_once=0))
    assert names(entries) == []
    assert sorted(queue_candidate.workload.name for queue_candidate in for_manifests(entries)) == ["in-place", "no-way"]


def test_nothing_holds_back_a_candidate_that_may_go() -> None:
    goes = entry(RoundInputs(NOW, (candidate("a"),)))
    assert (goes.verdict, goes.reason, goes.place, goes.ways) == (QueueVerdict.ACT, Reason.OK, 1, tuple(LIMITS.ways))


def test_memory_rises_after_an_oom_kill_first_and_outside_of_windows() -> None:
    shut = structs.replace(LIMITS, own_windows=["sat 00:00-00:01 UTC"])
    urgent = candidate("killed", worth=0.1, urgent=Resource.MEMORY, lowers=False, limits=shut)
    entries = decide(RoundInputs(NOW, (candidate("rich", worth=100.0), urgent), at_once=1))
    assert names(entries) == ["killed"] and names(entries, QueueVerdict.WAIT) == ["rich"]


@pytest.mark.parametrize("spares", [True, False])
def test_everybodys_windows_hold_the_queue_back_and_memory_after_an_oom_kill_where_they_do_not_spare_it(
    spares: bool,
) -> None:
    actions = ActionSettings(windows=["sat 00:00-00:01 UTC"], windows_spare_memory=spares)
    urgent = candidate("killed", urgent=Resource.MEMORY, lowers=False)
    entries = decide(RoundInputs(NOW, (candidate("rich"), urgent), at_once=5, actions=actions))
    assert names(entries) == ["killed"] * spares
    assert {e.reason for e in entries if e.verdict is QueueVerdict.WAIT} == {Reason.AUTOPILOT_OUTSIDE_WINDOW}


def test_cpu_after_throttling_comes_after_memory_after_a_kill_and_is_spared_the_policys_windows_alone() -> None:
    shut = structs.replace(LIMITS, own_windows=["sat 00:00-00:01 UTC"])
    cpu, memory = (
        candidate(name, worth, urgent=resource, lowers=False, limits=shut)
        for name, worth, resource in (("slow", 9.0, Resource.CPU), ("killed", 0.1, Resource.MEMORY))
    )
    rich = candidate("rich", worth=100.0)
    assert names(decide(RoundInputs(NOW, (rich, cpu, memory), at_once=9))) == ["killed", "slow", "rich"]
    everybody = ActionSettings(windows=["sat 00:00-00:01 UTC"])
    # everybody's windows spare memory that rises, and nothing else
    assert names(decide(RoundInputs(NOW, (rich, cpu, memory), at_once=9, actions=everybody))) == ["killed"]
    assert withheld(cpu, ActionSettings(), NOW) == "" and "closed" in withheld(cpu, everybody, NOW)


def test_what_was_decided_is_withheld_once_no_policy_acts_or_its_window_has_closed() -> None:
    # 1_800_000_000 is Friday, 15 January 2027, 08:00 UTC
    goes = candidate("a", limits=structs.replace(LIMITS, own_windows=["fri 07:00-08:01 UTC"]))
    assert withheld(goes, ActionSettings(), NOW) == ""
    assert "opens Fri 07:00 UTC" in withheld(goes, ActionSettings(), NOW + 60)
    assert "closed" in withheld(candidate("a"), ActionSettings(windows=["sat 00:00-00:01 UTC"]), NOW)
    contested = candidate("a", blocked=(Reason.AUTOPILOT_TWO_POLICIES, ""))
    for other in (None, contested, candidate("a", mode=AutopilotMode.OBSERVE)):
        assert withheld(other, ActionSettings(), NOW) == (
            "no policy acts on the workload in this round, or the workload has no recommendation any more"
        )


def test_the_rest_of_a_canary_ends_where_no_policy_acts_any_more_and_stays_where_nobody_could_look() -> None:
    def rest(name: str, state: ChangeState = ChangeState.WAITING, namespace: str = "shop") -> ChangeStatus:
        change = Change(
            name, f"{AUTOPILOT_KEY_PREFIX}1", namespace, "Deployment", name, "m", (), "in-place", "", (), wave=1
        )
        return ChangeStatus(change, state, NOW, NOW, "m")

    statuses = [
        rest("acting"),
        rest("observed"),
        rest("gone"),
        rest("done", ChangeState.VERIFIED),
        rest("x", namespace="pay"),
    ]
    around = [candidate("acting"), candidate("observed", mode=AutopilotMode.OBSERVE)]
    assert [s.change.name for s in ended_rests(statuses, around, {"pay"})] == ["observed", "gone"]
    assert [s.change.name for s in ended_rests(statuses, around, ())] == ["observed", "gone", "x"]


def test_outside_of_windows_memory_rises_only_by_ways_that_restart_nothing() -> None:
    shut = structs.replace(LIMITS, own_windows=["sat 00:00-00:01 UTC"], ways=[Way.ROLL_OUT, Way.IN_PLACE])
    urgent = candidate("killed", urgent=Resource.MEMORY, lowers=False, limits=shut)
    assert entry(RoundInputs(NOW, (urgent,))).ways == (Way.IN_PLACE,)
    rolls_out = replace(urgent, limits=structs.replace(shut, ways=[Way.ROLL_OUT]))
    waits = entry(RoundInputs(NOW, (rolls_out,)))
    assert (waits.verdict, waits.reason) == (QueueVerdict.WAIT, Reason.AUTOPILOT_OUTSIDE_WINDOW)
    is_open = replace(rolls_out, limits=structs.replace(shut, own_windows=[], ways=[Way.ROLL_OUT]))
    assert entry(RoundInputs(NOW, (is_open,))).ways == (Way.ROLL_OUT,)


def test_worth_times_confidence_orders_and_a_neighbour_of_what_soaks_stands_back() -> None:
    a, b = candidate("a", 10.0), candidate("b", 9.0, confidence=0.9)
    c = candidate("c", 8.0, confidence=0.9, namespace="pay")
    nodes = {"a": "n1", "b": "n1", "c": "n2"}
    places = {
        queue_candidate.workload: frozenset({nodes[queue_candidate.workload.name]}) for queue_candidate in (a, b, c)
    }
    # scores 10, 8.1 and 7.2; once `a` is chosen, `b` shares its namespace and its node: 8.1 / (1 + 1 + 1) = 2.7 < 7.2
    assert names(decide(RoundInputs(NOW, (c, b, a), places=places, at_once=3))) == ["a", "c", "b"]


def test_a_policy_that_observes_proposes_everything_and_takes_no_place() -> None:
    observed = tuple(candidate(f"o{i}", worth=i + 1.0, mode=AutopilotMode.OBSERVE) for i in range(3))
    entries = decide(RoundInputs(NOW, (*observed, candidate("a")), at_once=1, halt=None))
    assert names(entries) == ["a"] and names(entries, QueueVerdict.PROPOSE) == ["o2", "o1", "o0"]
    paused = decide(RoundInputs(NOW, (*observed, candidate("a")), halt=Halt(Reason.AUTOPILOT_PAUSED, "x")))
    assert names(paused) == [] and names(paused, QueueVerdict.PROPOSE) == ["o2", "o1", "o0"]


def test_back_off_grows_fourfold_and_ends_where_a_person_resumes_the_workload() -> None:
    bad = [act("a", ActState.HARMFUL, ago) for ago in (30 * DAY, 1 * DAY)]
    first = 48 * HOUR
    assert back_off_end(bad[:1], first, 0.0) == NOW - 30 * DAY + 48 * HOUR
    # the second one: 4 x 48 hours after it
    assert back_off_end(bad, first, 0.0) == NOW - DAY + 192 * HOUR
    assert back_off_end([*bad, act("a", ActState.HARMFUL)], first, 0.0) == float("inf")
    assert back_off_end([*bad, act("a", ActState.HARMFUL)], first, NOW) is None
    assert entry(RoundInputs(NOW, (candidate("other"),), tuple(bad))).verdict is QueueVerdict.ACT
    # what the cluster refused rests for an hour, the second time for four
    refused = [act("b", ActState.FAILED, ago) for ago in (DAY, HOUR)]
    assert back_off_end(refused, first, 0.0) == NOW - HOUR + 4 * HOUR


def test_two_of_the_last_forty_changes_stop_everything_until_a_person_resumes() -> None:
    # 5 % of 40 are two; the two lie among 38 good ones, then behind 40 newer good ones
    good = [act(f"g{i}", ActState.KEPT, i) for i in range(38)]
    bad = [act("x", ActState.HARMFUL, 100.0), act("y", ActState.HARMFUL, 101.0)]
    assert too_much_harm([*good, bad[0]], 0.0, AutopilotSettings()) == ""
    assert "2 of the last 40 changes did harm" in too_much_harm([*good, *bad], 0.0, AutopilotSettings())
    assert too_much_harm([*good, *bad], NOW - 99, AutopilotSettings()) == ""
    newer = [act(f"n{i}", ActState.KEPT, -i) for i in range(40)]
    assert too_much_harm([*good, *bad, *newer], 0.0, AutopilotSettings()) == ""


@pytest.mark.parametrize(
    ("health", "decisions", "reason"),
    [
        (ClusterHealth(100, 100, paused="by ann"), Decisions(stopped="x"), Reason.AUTOPILOT_PAUSED),
        (ClusterHealth(100, 100), Decisions(stopped="2 of 40"), Reason.AUTOPILOT_STOPPED),
        (ClusterHealth(100, 94), Decisions(), Reason.AUTOPILOT_CLUSTER_IN_TROUBLE),
        (ClusterHealth(), Decisions(), Reason.AUTOPILOT_CLUSTER_IN_TROUBLE),
        (ClusterHealth(100, 100, trouble="no answer"), Decisions(), Reason.AUTOPILOT_CLUSTER_IN_TROUBLE),
        (ClusterHealth(100, 95), Decisions(), None),
    ],
)
def test_everything_halts_when_paused_stopped_or_in_trouble(
    health: ClusterHealth, decisions: Decisions, reason: Reason | None
) -> None:
    halt = halt_of(health, decisions)
    assert (halt.reason if halt else None) == reason


TIMES = st.floats(-40 * DAY, 5 * DAY)  # also of the future: a clock went back
WORKLOADS = st.builds(ref, st.sampled_from("abcdef"), st.sampled_from(["shop", "pay"]))
ACTS = st.lists(
    st.builds(
        lambda workload, ago, state, restarts: PastAct(workload, NOW + ago, NOW + ago, state, restarts),
        WORKLOADS,
        TIMES,
        st.sampled_from(ActState),
        st.integers(0, 2),
    ),
    max_size=12,
)
CANDIDATES = st.dictionaries(
    WORKLOADS,
    st.tuples(
        st.floats(0, 100),
        st.floats(0, 1),
        st.booleans(),
        st.sampled_from([AutopilotMode.ACT, AutopilotMode.OBSERVE]),
        st.integers(1, 3),
    ),
    max_size=8,
)


def candidate_of(workload: WorkloadRef, terms: tuple[float, float, bool, AutopilotMode, int]) -> QueueCandidate:
    worth, confidence, urgent, mode, at_once = terms
    limits = structs.replace(LIMITS, at_once=at_once, ways=[Way.ROLL_OUT])
    policy = f"{workload.namespace}/p"
    return QueueCandidate(
        workload, policy, mode, limits, worth, confidence, lowers=not urgent, urgent=Resource.MEMORY if urgent else None
    )


@given(CANDIDATES, ACTS, st.integers(1, 4), st.booleans())
def test_limits_hold_and_everybody_is_answered_once(
    terms: dict[WorkloadRef, tuple[float, float, bool, AutopilotMode, int]],
    acts: list[PastAct],
    at_once: int,
    halted: bool,
) -> None:
    candidates = tuple(candidate_of(workload, values) for workload, values in terms.items())
    under_way = {a.workload for a in acts if a.state is ActState.UNDER_WAY}
    halt = Halt(Reason.AUTOPILOT_STOPPED, "x") if halted else None
    inputs = RoundInputs(NOW, candidates, tuple(acts), frozenset(under_way), halt=halt, at_once=at_once)
    entries = decide(inputs)
    assert sorted(e.candidate.workload for e in entries) == sorted(terms)
    going = [e.candidate for e in entries if e.verdict is QueueVerdict.ACT]
    assert len(going) == 0 or len(going) + len(under_way) <= at_once
    assert not (halted and going)
    for chosen in going:
        assert chosen.mode is AutopilotMode.ACT and chosen.workload not in under_way
        assert chosen.confidence >= LIMITS.minimum_confidence
        week = [a.restarts for a in acts if a.workload == chosen.workload and a.accepted_seconds > NOW - 7 * DAY]
        assert sum(week) < LIMITS.restarts_per_week
        assert sum(a.workload == chosen.workload and a.state is ActState.HARMFUL for a in acts) < 3
    assert [e.place for e in entries if e.place] == list(
        range(1, sum(e.verdict is not QueueVerdict.WAIT for e in entries) + 1)
    )
    assert all(e.words or e.verdict is not QueueVerdict.WAIT for e in entries)


def test_every_reason_of_the_autopilot_has_its_sentence() -> None:
    assert all(SENTENCES[reason] for reason in Reason if reason.value.startswith("autopilot-"))


class Rounds(RuleBasedStateMachine):
    """Rounds among outcomes, restarts of the process and jumps of the clock; the history is all that stays."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.acts: list[PastAct] = []
        self.limits: PolicyLimits = structs.replace(LIMITS, at_once=2, ways=[Way.ROLL_OUT], restarts_per_week=1)
        self.windows = ["mon-fri 20:00-06:00 UTC"]
        self.acted_at: list[float] = []

    def inputs(self) -> RoundInputs:
        limits = structs.replace(self.limits, own_windows=self.windows)
        candidates = [QueueCandidate(ref(name), "shop/p", AutopilotMode.ACT, limits, 1.0, 1.0) for name in "abcd"]
        busy = frozenset(a.workload for a in self.acts if a.state is ActState.UNDER_WAY)
        return RoundInputs(self.now, tuple(candidates), tuple(self.acts), busy, at_once=3)

    @rule()
    def round(self) -> None:
        for goes in decide(self.inputs()):
            if goes.verdict is QueueVerdict.ACT:
                self.acts.append(PastAct(goes.candidate.workload, self.now, self.now, ActState.UNDER_WAY, restarts=1))
                self.acted_at.append(self.now)

    @rule(state=st.sampled_from([ActState.KEPT, ActState.HARMFUL, ActState.FAILED]), which=st.integers(0, 20))
    def judged(self, state: ActState, which: int) -> None:
        soaking = [i for i, a in enumerate(self.acts) if a.state is ActState.UNDER_WAY]
        if soaking:
            place = soaking[which % len(soaking)]
            restarts = 2 if state is ActState.HARMFUL else 1
            self.acts[place] = replace(self.acts[place], state=state, since_seconds=self.now, restarts=restarts)

    @rule(jump=st.sampled_from([-30 * DAY, -HOUR, 60.0, HOUR, 10 * HOUR, 3 * DAY, 9 * DAY]))
    def the_clock_moves(self, jump: float) -> None:
        self.now += jump

    @invariant()
    def no_workload_twice_and_no_more_than_its_share(self) -> None:
        soaking = [a.workload for a in self.acts if a.state is ActState.UNDER_WAY]
        assert len(soaking) == len(set(soaking)) <= 2

    @invariant()
    def nobody_is_harmed_a_fourth_time(self) -> None:
        for name in "abcd":
            bad = [i for i, a in enumerate(self.acts) if a.workload == ref(name) and a.state is ActState.HARMFUL]
            assert len(bad) <= 3

    @invariant()
    def no_act_outside_of_its_window(self) -> None:
        # mon-fri from 20:00 to 06:00: NOW is a Friday, 08:00 UTC
        for at in self.acted_at:
            hour, day = at % DAY / HOUR, int(at // DAY + 3) % 7
            assert (hour >= 20 and day < 5) or (hour < 6 and (day - 1) % 7 < 5)


TestRounds = Rounds.TestCase
TestRounds.settings = settings(max_examples=30, stateful_step_count=25)
