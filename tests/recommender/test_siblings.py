"""A young container may rest on a longer measured sibling: upwards alone, where the evidence agrees, and said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import Autoscaler, Container, Quota, Workload
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.changes.decide.guardrails import GuardrailOutcome, judge_recorded
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.recommender import siblings
from cotenant.recommender.enrich import enrich
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.model.sibling import Sibling, family, stem
from cotenant.recommender.settings import CotenantSettings, RecommenderSettings
from cotenant.recommender.strategies.cotenant import Cotenant
from tests.support.any_cluster import clusters
from tests.support.scenario import DAY, Scenario, Track, amount, steady, value

CPU, MEMORY = Resource.CPU, Resource.MEMORY
REQUEST, LIMIT = Field.REQUEST, Field.LIMIT
YOUNG = WorkloadRef("shop", "Deployment", "web-v2")
OLD = ContainerRef(WorkloadRef("shop", "Deployment", "web"), "app")
BLUE = ContainerRef(WorkloadRef("shop", "Deployment", "web-blue"), "app")
DAYS = 0.5


def old(resource: Resource, asks: int, **more: object) -> Sibling:
    """The sibling `web`, measured for two weeks, without a request of its own."""
    return replace(Sibling(OLD, resource, asks, 14.0, 0, 1, 0), **more)  # type: ignore[arg-type]


def young(
    *measured_siblings: Sibling,
    requests: Mapping[Resource, int] | None = None,
    limits: Mapping[Resource, int] | None = None,
    days: float = DAYS,
    **more: object,
) -> Scenario:
    """`web-v2`, which used 400 m and 300 MiB for half a day: by itself it would ask for 429 m and 345 MiB."""
    set_requests = {CPU: 200} if requests is None else requests
    of = replace(Workload(YOUNG, 1, (Container("app", set_requests, limits or {}),)), **more)  # type: ignore[arg-type]
    track = Track(YOUNG, "web-v2-0", cpu=steady(400, days), memory=steady(300, days) * MIB)
    return Scenario([of], [track], days, days, siblings=measured_siblings)


def recommended(scenario: Scenario, **own: object) -> Recommendation:
    return scenario.recommendation("cotenant", RecommenderSettings(cotenant=CotenantSettings(**own)))  # type: ignore[arg-type]


def enriched(scenario: Scenario) -> Recommendation:
    """The first container's recommendation as it is stored."""
    evidence, own = scenario.evidence(), RecommenderSettings()
    return enrich(Cotenant().recommend(evidence, own), evidence, evidence.inventory, own)[0]


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("checkout-v2", "checkout"),
        ("checkout-blue", "checkout"),
        ("checkout-1.4", "checkout"),
        ("checkout-canary-v3", "checkout"),
        ("checkout-staging", "checkout-staging"),
        ("cart-checkout", "cart-checkout"),
        ("v2", "v2"),  # nothing else is left
    ],
)
def test_versions_and_tracks_of_a_roll_out_are_no_part_of_the_name(name: str, of: str) -> None:
    assert stem(name) == of


def test_siblings_have_one_namespace_one_kind_one_name_and_one_container() -> None:
    first = ContainerRef(WorkloadRef("a", "Deployment", "web"), "app")
    assert family(first) == family(ContainerRef(WorkloadRef("a", "Deployment", "web-canary"), "app"))
    for other in (
        ContainerRef(WorkloadRef("b", "Deployment", "web"), "app"),
        ContainerRef(WorkloadRef("a", "StatefulSet", "web"), "app"),
        ContainerRef(WorkloadRef("a", "Deployment", "worker"), "app"),
        ContainerRef(WorkloadRef("a", "Deployment", "web"), "proxy"),
    ):
        assert family(first) != family(other)


def test_half_a_day_beside_a_sibling_is_enough_for_a_raise_that_names_it() -> None:
    scenario = young(old(CPU, 600))
    assert value(recommended(replace(scenario, siblings=())), CPU).reason is Reason.NOT_ENOUGH_HISTORY
    raised = recommended(scenario)
    proposal = value(raised, CPU)
    assert (proposal.amount, proposal.reason) == (600, Reason.SIBLING)
    assert (proposal.inputs["sibling"], proposal.inputs["sibling_days"]) == ("shop/Deployment/web/app", 14)
    assert proposal.clamps[0].rule == "sibling shop/Deployment/web/app, measured for 14 days"
    assert raised.notes == (
        "cpu: sibling shop/Deployment/web/app, measured for 14 days, needs 600m: used; "
        "this container's own history needs only 429m",
    )
    # memory has no sibling and waits as before
    assert value(raised, MEMORY).reason is Reason.NOT_ENOUGH_HISTORY


def test_a_sibling_never_lowers_a_request() -> None:
    scenario = young(old(CPU, 600), requests={CPU: 900})
    recommendation = recommended(scenario)
    assert value(recommendation, CPU).reason is Reason.NOT_ENOUGH_HISTORY
    assert recommendation.notes[0].endswith(
        "; this raises no request of the container, and only its own history can lower one"
    )


def test_a_cut_after_days_of_its_own_stops_at_what_the_sibling_asks_for() -> None:
    scenario = young(old(CPU, 600), requests={CPU: 900}, days=2)
    assert amount(recommended(replace(scenario, siblings=())), CPU) == 429  # 400 + sqrt(400 x 2 m) = 428.3
    assert amount(recommended(scenario), CPU) == 600


@pytest.mark.parametrize(
    ("siblings", "why"),
    [
        ([old(CPU, 425)], "already needs 429m"),
        ([old(CPU, 860)], "needs less than half, 429m"),
        ([old(CPU, 600, request=401)], "its request or replica count differs too much"),
        ([old(CPU, 600, replicas=3)], "its request or replica count differs too much"),
        (
            [
                old(CPU, 850),
                old(CPU, 424, container=ContainerRef(WorkloadRef("shop", "Deployment", "web-blue"), "app")),
            ],
            "the two disagree, so neither sibling is used",
        ),
    ],
    ids=["contradicted", "of another size", "another request", "other replicas", "two that disagree"],
)
def test_evidence_that_does_not_agree_is_no_prior_and_says_why(siblings: Sequence[Sibling], why: str) -> None:
    scenario = young(*siblings)
    recommendation = recommended(scenario)
    assert recommendation.values == recommended(replace(scenario, siblings=())).values
    assert why in recommendation.notes[0]


def test_of_several_siblings_that_agree_the_largest_counts() -> None:
    assert amount(recommended(young(old(CPU, 500), old(CPU, 600, container=BLUE))), CPU) == 600


@pytest.mark.parametrize("days", [0.2, 7.5])
def test_too_short_a_history_has_no_prior_and_a_week_of_its_own_needs_none(days: float) -> None:
    scenario = young(old(CPU, 600), days=days)
    assert recommended(scenario) == recommended(replace(scenario, siblings=()))


def test_pods_that_an_autoscaler_adds_have_no_prior() -> None:
    scenario = young(old(CPU, 600), autoscaler=Autoscaler("web", 1, 9, {CPU: 60}))
    assert recommended(scenario) == recommended(replace(scenario, siblings=()))


def test_a_history_with_gaps_is_no_ground_either() -> None:
    scenario = young(old(CPU, 600))
    (track,) = scenario.tracks
    is_sampled = np.arange(track.length) % 3 == 0  # a third of the samples; half are wanted
    sparse = replace(scenario, tracks=[replace(track, cpu=np.where(is_sampled, track.cpu, np.nan))])
    assert value(recommended(sparse), CPU).action is Action.WITHHELD


def test_a_limit_makes_way_for_a_raised_request_and_is_neither_lowered_nor_removed() -> None:
    measured_siblings = old(CPU, 600), old(MEMORY, 500 * MIB)
    requests = {CPU: 200, MEMORY: 256 * MIB}
    own = {"lower_limits": True, "cpu_limit": "unset"}
    tight = recommended(young(*measured_siblings, requests=requests, limits={CPU: 450, MEMORY: 400 * MIB}), **own)
    assert [amount(tight, r, LIMIT) for r in Resource] == [600, 500 * MIB]
    wide = recommended(young(*measured_siblings, requests=requests, limits={CPU: 4000, MEMORY: 4096 * MIB}), **own)
    assert [amount(wide, r, LIMIT) for r in Resource] == [4000, 4096 * MIB]


def test_a_limit_stays_where_a_full_quota_keeps_the_request_that_a_sibling_would_raise() -> None:
    sizes = {"requests": {MEMORY: 256 * MIB}, "limits": {MEMORY: 400 * MIB}}
    scenario = replace(young(old(MEMORY, 500 * MIB), days=2, **sizes), quotas=[Quota("shop", "q", MEMORY, False, 0, 0)])
    recommendation = recommended(scenario)
    # 300 x 1.15 = 345 MiB are below the present limit, and the quota has nothing for a larger request.
    assert [amount(recommendation, MEMORY, which) // MIB for which in (REQUEST, LIMIT)] == [256, 400]


def test_a_raise_that_leaves_another_container_less_is_not_made() -> None:
    # 400 m are left in the quota; proxy's own history asks for 200 + sqrt(400) = 220 m, 120 m more than now, and web's
    # sibling for 400 m more: both scaled to the 400 m would leave proxy less than without
    scenario = young(old(CPU, 600), old(MEMORY, 500 * MIB))
    (of,), (track,) = scenario.workloads, scenario.tracks
    proxy = Container("proxy", {CPU: 100})
    scenario = replace(
        scenario,
        days=2,
        history_days=2,
        workloads=[replace(of, containers=(*of.containers, proxy))],
        tracks=[
            replace(track, begins=DAY + DAY // 2),
            Track(YOUNG, "web-v2-0", cpu=steady(200, 2), container="proxy"),
        ],
        quotas=[Quota("shop", "q", CPU, False, 5400, 5000)],
    )
    recommendations = scenario.recommendations("cotenant")
    assert value(recommendations["web-v2/app"], CPU).reason is Reason.NOT_ENOUGH_HISTORY
    assert amount(recommendations["web-v2/proxy"], CPU) == 220


def test_what_rests_on_a_sibling_is_of_low_confidence_and_never_ready_whatever_the_settings() -> None:
    recommendation = enriched(young(old(CPU, 600)))
    assert recommendation.trust is not None
    assert recommendation.trust.words == "low: Uses the history of a sibling, shop/Deployment/web/app."
    history = next(
        g for g in judge_recorded([recommendation], GuardrailSettings(minimum_days=0.0)) if g.rule == "history"
    )
    assert history.outcome is GuardrailOutcome.FAIL
    assert history.why == "0.5 days of history; at least 0 are needed; older history comes from shop/Deployment/web/app"


def test_a_sibling_is_known_by_what_its_own_demand_asked_for_before_any_bound() -> None:
    scenario = young(days=14, requests={CPU: 420}, limits={MEMORY: 2048 * MIB})
    by_resource = {s.resource: s for s in siblings.siblings_of([enriched(scenario)])}
    assert value(recommended(scenario), CPU).amount == 420  # the dead band keeps it; its demand asks for 429 m
    at = scenario.inventory().time_seconds
    ref = ContainerRef(YOUNG, "app")
    days = 14 - 1 / DAY  # from the first to the last sample
    assert by_resource[CPU] == Sibling(ref, CPU, 429, pytest.approx(days), 420, 1, at)  # type: ignore[arg-type]
    assert by_resource[MEMORY] == Sibling(ref, MEMORY, 345 * MIB, pytest.approx(days), 2048 * MIB, 1, at)  # type: ignore[arg-type]


def test_what_is_young_leaks_or_follows_an_autoscaler_is_no_sibling() -> None:
    assert not [*siblings.siblings_of([recommended(young(days=6))])]
    assert not [*siblings.siblings_of([recommended(young(old(CPU, 600), days=6.9))])]
    scaled = young(days=14, autoscaler=Autoscaler("web", 1, 9, {CPU: 60}))
    assert [s.resource for s in siblings.siblings_of([recommended(scaled)])] == [MEMORY]
    leaking = young(days=14)
    (track,) = leaking.tracks
    climbing = replace(track, memory=(300 + 10 * np.arange(14 * DAY) / DAY) * MIB)
    assert [s.resource for s in siblings.siblings_of([recommended(replace(leaking, tracks=[climbing]))])] == [CPU]


def passed_on(*of: object) -> list[Sibling]:
    return [*siblings.for_next_analysis(*of)]  # type: ignore[arg-type]


def test_what_is_known_of_a_workload_outlives_it_for_as_long_as_its_history_counts() -> None:
    newer, before = old(CPU, 600, end_seconds=200), old(CPU, 500, end_seconds=100)
    assert passed_on([newer], [before], [OLD.workload], 100) == [newer]
    assert passed_on([], [before], [OLD.workload], 100) == []  # it is there, and nothing is proposed any more
    assert passed_on([], [before], [], 100) == [before]
    assert passed_on([], [before], [], 101) == []


def test_only_families_of_several_workloads_are_passed_on() -> None:
    sibling = old(CPU, 600)
    young_one = ContainerRef(YOUNG, "app")
    assert siblings.related_families([sibling], [OLD]) == {}
    assert siblings.related_families([sibling], [OLD, young_one]) == {family(OLD): [sibling]}
    assert siblings.related_families([sibling], [young_one]) == {family(OLD): [sibling]}  # it was renamed


@st.composite
def young_clusters(draw: st.DrawFn) -> Scenario:
    """Any small pod, whose usage begins in the newest days, beside siblings that ask for about as much or more."""
    of = draw(clusters())
    begins = round((of.days - draw(st.sampled_from([0.3, 0.9, 1.5, 6.0, 7.5]))) * DAY)
    tracks = [
        replace(t, begins=begins, cpu=t.cpu[begins:], throttled=None, memory=t.memory[begins:], kills=[])
        for t in of.tracks
    ]
    plain = replace(of, tracks=tracks)
    at_once = RecommenderSettings(cotenant=CotenantSettings(minimum_days=0.0, minimum_coverage=0.0))
    old_siblings = [
        Sibling(
            ContainerRef(WorkloadRef("shop", "Deployment", name), recommendation.container.container),
            of_value.resource,
            round((of_value.clamps[0].before if of_value.clamps else of_value.amount) * draw(st.floats(0.9, 2.1))),
            draw(st.floats(7, 60)),
            (of_value.now or 0) * draw(st.integers(0, 3)),
            draw(st.sampled_from([0, of.workloads[0].replicas])),
            0,
        )
        for recommendation in plain.recommendations("cotenant", at_once).values()
        for name in ("web-v1", "web-blue")[: draw(st.integers(1, 2))]
        for of_value in recommendation.values
        if of_value.field is REQUEST and of_value.amount is not None
    ]
    return replace(plain, siblings=old_siblings)


def _counted(value_of: Value, beside: Recommendation) -> float:
    """Return a field as it would be once applied: no limit is the largest one, and a request that is not set is it."""
    if value_of.then is not None:
        return value_of.then
    limit = beside.value(value_of.resource, LIMIT)
    if value_of.field is LIMIT:
        return np.inf
    return (limit.then if limit else beside.present_limits.get(value_of.resource)) or 0


@pytest.mark.slow
@settings(deadline=None)
@given(young_clusters())
def test_no_value_is_smaller_or_looser_because_of_a_sibling(scenario: Scenario) -> None:
    with_them, without = (
        scenario.recommendations("cotenant"),
        replace(scenario, siblings=()).recommendations("cotenant"),
    )
    for name, recommendation in with_them.items():
        plain = without[name]
        assert [(v.resource, v.field) for v in recommendation.values] == [(v.resource, v.field) for v in plain.values]
        for with_sibling, other in zip(recommendation.values, plain.values, strict=True):
            assert (with_sibling.action is Action.UNSET) == (other.action is Action.UNSET)
            assert _counted(with_sibling, recommendation) >= _counted(other, plain)
            # the inputs of an init container tell what the others request, without a change of its own
            if (with_sibling.then, with_sibling.reason) != (other.then, other.reason):
                assert "sibling" in with_sibling.inputs


@pytest.mark.slow
@settings(deadline=None)
@given(young_clusters())
def test_the_order_of_siblings_and_workloads_does_not_matter(scenario: Scenario) -> None:
    other = replace(scenario.workloads[0], ref=WorkloadRef("shop", "Deployment", "other"))
    both = replace(scenario, workloads=[*scenario.workloads, other])
    turned = replace(both, workloads=both.workloads[::-1], siblings=[*scenario.siblings][::-1])
    assert both.recommendations("cotenant") == turned.recommendations("cotenant")


@pytest.mark.slow
@settings(deadline=None)
@given(young_clusters())
def test_siblings_of_others_change_nothing(scenario: Scenario) -> None:
    strangers = [
        replace(s, container=ContainerRef(WorkloadRef("shop", "Deployment", "api"), "app")) for s in scenario.siblings
    ]
    plain = replace(scenario, siblings=()).recommendations("cotenant")
    assert replace(scenario, siblings=strangers).recommendations("cotenant") == plain
