"""Rules of strategy cotenant one by one, and what holds whatever the evidence: bounds, order, monotony."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import Autoscaler, Container, ContainerRole, LimitRange, Node, Quota, Workload
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, MIB, Resource
from cotenant.base.severity import Severity
from cotenant.changes.decide.autoscaler_targets import moves
from cotenant.recommender.model.recommendation import Action, Field, Recommendation
from cotenant.recommender.settings import (
    CotenantSettings,
    RecommenderSettings,
)
from cotenant.recommender.strategies.cotenant import jobs
from cotenant.recommender.strategies.cotenant import size as sizing
from cotenant.recommender.strategies.cotenant.daemons import group_of
from cotenant.recommender.strategies.cotenant.grade import grade
from tests.support.any_cluster import DAYS, WEB, clusters
from tests.support.scenario import DAY, Scenario, Track, amount, steady, value

CPU, MEMORY = Resource.CPU, Resource.MEMORY
REQUEST, LIMIT = Field.REQUEST, Field.LIMIT


def workload(
    requests: dict[Resource, int] | None = None, limits: dict[Resource, int] | None = None, **of: Any
) -> Workload:
    return Workload(WEB, of.pop("replicas", 1), (Container("app", requests or {}, limits or {}),), **of)


def scenario(of: Workload, cpu: float = 400, memory: float = 300 * MIB, **cluster: Any) -> Scenario:
    """Every container flat at these amounts."""
    tracks = [
        Track(of.ref, "web-0", cpu=steady(cpu, DAYS), memory=steady(memory, DAYS), container=c.name)
        for c in of.containers
    ]
    return Scenario([of], tracks, days=DAYS, history_days=DAYS, **cluster)


def recommended(case: Scenario, **own: Any) -> Recommendation:
    return case.recommendation("cotenant", RecommenderSettings(cotenant=CotenantSettings(**own)))


def rules(recommendation: Recommendation, resource: Resource, which: Field = REQUEST) -> list[str]:
    return [clamp.rule for clamp in value(recommendation, resource, which).clamps]


def test_profiles_order_the_amounts() -> None:
    case = scenario(workload())
    memory = {p: amount(recommended(case, profile=p), MEMORY) for p in ("conservative", "balanced", "aggressive")}
    assert memory == {"conservative": 390 * MIB, "balanced": 345 * MIB, "aggressive": 330 * MIB}  # 300 x 1.3, 1.15, 1.1
    assert recommended(case, profile="aggressive").profile == "aggressive"


def test_an_annotation_bounds_the_value_and_says_so() -> None:
    wishes = {"cotenant.dev/max-memory": "200Mi", "cotenant.dev/min-cpu": "1", "cotenant.dev/cpu-margin": "lots"}
    recommendation = recommended(scenario(workload(limits={MEMORY: 400 * MIB}, annotations=wishes)))
    assert amount(recommendation, MEMORY) == amount(recommendation, MEMORY, LIMIT) == 200 * MIB
    assert rules(recommendation, MEMORY) == ["annotation cotenant.dev/max-memory"]
    assert (amount(recommendation, CPU), value(recommendation, CPU).reason) == (1000, Reason.ANNOTATION)
    assert value(recommendation, CPU).overrides == ("minimum 1000 millicores (annotation cotenant.dev/min-cpu)",)
    assert [n for n in recommendation.notes if "'lots' is not a number >= 0 and <= 10" in n]


@pytest.mark.parametrize(("most", "proposed"), [(400, None), (500, 500), (700, 700), (4000, 1600)])
@pytest.mark.parametrize("by_annotation", [True, False])
def test_no_maximum_makes_a_raise_without_history_a_cut(most: int, proposed: int | None, by_annotation: bool) -> None:
    # Two hours of 800 m above a limit of 500 m: it rises to 800 x 2 = 1600 m or to the maximum, and never falls.
    of = workload({CPU: 200}, {CPU: 500})
    if by_annotation:
        of = replace(of, annotations={"cotenant.dev/max-cpu": f"{most}m"})
    ranges = [] if by_annotation else [LimitRange("shop", CPU, maximum=most)]
    track = Track(of.ref, "web-0", cpu=steady(800, 2 / 24), memory=steady(300 * MIB, 2 / 24))
    case = Scenario([of], [track], days=2 / 24, history_days=2 / 24, limit_ranges=ranges)
    limit = value(recommended(case), CPU, LIMIT)
    assert (limit.amount, limit.action is Action.WITHHELD) == (proposed, proposed is None)
    assert proposed or limit.reason is Reason.NOT_ENOUGH_HISTORY


@pytest.mark.parametrize(("most", "proposed"), [(400, None), (512, 512), (600, 600), (4000, 615)])
def test_an_annotated_maximum_makes_no_raise_after_an_oom_kill_a_cut(most: int, proposed: int | None) -> None:
    # Killed at 512 MiB within two hours: max(512 + 100, 512 x 1.2 = 614.4) -> 615 MiB, or the maximum above 512 MiB.
    at = {MEMORY: 512 * MIB}
    of = workload(at, at, annotations={"cotenant.dev/max-memory": f"{most}Mi"})
    track = Track(of.ref, "web-0", cpu=steady(100, 2 / 24), memory=steady(500 * MIB, 2 / 24), kills=[20])
    recommendation = recommended(Scenario([of], [track], days=2 / 24, history_days=2 / 24))
    for which in Field:
        assert value(recommendation, MEMORY, which).amount == (proposed and proposed * MIB)
        assert proposed or value(recommendation, MEMORY, which).reason is Reason.NOT_ENOUGH_HISTORY


def test_skipped_and_excluded_containers_have_no_value() -> None:
    for wishes in ({"cotenant.dev/skip": "true"}, {"cotenant.dev/exclude-containers": "app"}):
        recommendation = recommended(scenario(workload(annotations=wishes)))
        assert {v.reason for v in recommendation.values} == {Reason.EXCLUDED}


def test_request_stays_equal_to_limit_where_the_pod_is_guaranteed() -> None:
    equal = {CPU: 2000, MEMORY: 1024 * MIB}
    recommendation = recommended(scenario(workload(equal, equal)))
    for resource in Resource:
        assert amount(recommendation, resource) == amount(recommendation, resource, LIMIT)
    assert value(recommendation, CPU).reason is Reason.QOS_CLASS
    assert amount(recommendation, CPU) == 2000  # the limit is not lowered, so the request stays
    assert [n for n in recommendation.notes if n.startswith("cpu would need 429m; the pod is Guaranteed")]
    lower = recommended(scenario(workload(equal, equal)), lower_limits=True)
    assert amount(lower, CPU) == amount(lower, CPU, LIMIT) == 429
    by_limit_alone = recommended(scenario(workload(limits=equal)))
    assert amount(by_limit_alone, MEMORY) == amount(by_limit_alone, MEMORY, LIMIT) == 1024 * MIB
    loose = recommended(scenario(workload(equal, equal)), keep_qos_class=False, cpu_limit="unset")
    assert value(loose, CPU, LIMIT).action is Action.UNSET


def test_what_is_best_effort_by_its_label_has_asked_for_no_guarantee() -> None:
    equal = {CPU: 2000, MEMORY: 1024 * MIB}
    recommendation = recommended(scenario(workload(equal, equal, qos=QosClass.BE)))
    assert (amount(recommendation, CPU), amount(recommendation, CPU, LIMIT)) == (429, 2000)
    assert (amount(recommendation, MEMORY), amount(recommendation, MEMORY, LIMIT)) == (345 * MIB, 1024 * MIB)


def test_best_effort_by_label_is_left_alone() -> None:
    recommendation = recommended(scenario(workload(qos=QosClass.BE)))
    assert {v.reason for v in recommendation.values} == {Reason.BEST_EFFORT}
    assert amount(recommended(scenario(workload(qos=QosClass.BE)), keep_qos_class=False), CPU) == 429


def test_classes_bound_to_cores_get_whole_ones() -> None:
    recommendation = recommended(scenario(workload({CPU: 4000}, qos=QosClass.LSR), cpu=1100))
    assert (amount(recommendation, CPU), rules(recommendation, CPU)) == (
        2000,
        ["whole cores for LSR"],
    )  # 1100 + sqrt(2200) = 1147, up
    assert value(recommendation, CPU).reason is Reason.WHOLE_CORES


def test_the_ladder_rounds_up_to_its_next_step_and_lets_larger_amounts_be() -> None:
    recommendation = recommended(
        scenario(workload()), cpu_steps_millicores=[250, 500, 1000], memory_steps_bytes=[128 * MIB]
    )
    assert (amount(recommendation, CPU), value(recommendation, CPU).reason) == (500, Reason.SPEC_LADDER)
    assert amount(recommendation, MEMORY) == 345 * MIB
    assert sizing.next_step(1001, [250, 500, 1000]) is None


def test_usage_beyond_any_node_is_a_slip_of_units() -> None:
    recommendation = recommended(scenario(workload(), cpu=400_000))  # cores written as millicores, on nodes of 16 cores
    assert value(recommendation, CPU).reason is Reason.IMPLAUSIBLE
    assert value(recommendation, MEMORY).amount == 345 * MIB
    absurd = recommended(scenario(workload({CPU: 250_000})))
    assert [n for n in absurd.notes if "larger than any node: 250" in n]


def test_a_quota_gives_no_more_than_it_has_left() -> None:
    quota = Quota("shop", "compute", CPU, of_limits=False, hard=3000, used=2600)
    of = workload({CPU: 200}, replicas=4)
    recommendation = recommended(scenario(of, quotas=[quota]))
    # 429 m wanted, 229 m more for each of 4; 400 m are left: 100 m each
    assert (amount(recommendation, CPU), value(recommendation, CPU).reason) == (300, Reason.QUOTA)
    assert rules(recommendation, CPU) == ["ResourceQuota compute: 400m left"]
    assert amount(recommended(scenario(of, quotas=[replace(quota, hard=10_000)])), CPU) == 429
    full = recommended(scenario(of, quotas=[replace(quota, used=5000)]))
    assert amount(full, CPU) == 200


SCALED = Autoscaler("web", 1, 9, {CPU: 50})
COUNTED: dict[str, dict[str, Any]] = {
    "quota without a rest": {"quotas": [Quota("shop", "compute", CPU, of_limits=False, hard=3000, used=3000)]},
    "quota with little left": {"quotas": [Quota("shop", "compute", CPU, of_limits=False, hard=3000, used=2900)]},
    "limit range of the pod, most": {"limit_ranges": [LimitRange("shop", CPU, maximum=700, of_pod=True)]},
    "limit range of the pod, least": {"limit_ranges": [LimitRange("shop", CPU, minimum=900, of_pod=True)]},
    "autoscaler": {"autoscaler": SCALED},
    "autoscaler and limit range": {"autoscaler": SCALED, "limit_ranges": [LimitRange("shop", CPU, minimum=800)]},
    "nothing": {},
}


@pytest.mark.parametrize("cpu", [100.0, 400.0, 600.0])
@pytest.mark.parametrize("bounds", COUNTED)
def test_a_request_that_is_not_set_is_treated_as_one_of_the_limit(bounds: str, cpu: float) -> None:
    # The API server writes the limit of 1000 m as the request of each pod: the scheduler, quotas, ranges and the
    # autoscaler's percents count that, whatever the template has.
    cluster = dict(COUNTED[bounds])
    scaler = cluster.pop("autoscaler", None)
    of = workload({}, {CPU: 1000}, replicas=4, autoscaler=scaler)
    set_out = workload({CPU: 1000}, {CPU: 1000}, replicas=4, autoscaler=scaler)
    implicit, explicit = (recommended(scenario(spec, cpu=cpu, **cluster)) for spec in (of, set_out))
    assert amount(implicit, CPU) == amount(explicit, CPU)
    shown = [f"hpa_target{now}_percent" for now in ("", "_now")]
    assert [value(implicit, CPU).inputs.get(k) for k in shown] == [value(explicit, CPU).inputs.get(k) for k in shown]
    assert value(implicit, CPU).severity is not Severity.CRITICAL or value(explicit, CPU).severity is Severity.CRITICAL
    assert moves([replace(implicit, present_limits={CPU: 1000})]) == moves([explicit])


def test_no_first_request_is_set_below_the_limit_while_memory_leaks() -> None:
    climb = 300 + 30 * np.arange(12 * DAY) / DAY
    of = workload({}, {MEMORY: 4 * GIB})
    proposal = value(recommended(Scenario([of], [Track(WEB, "web-0", memory=climb * MIB)], 12, 12)), MEMORY)
    assert (proposal.amount, proposal.reason) == (4 * GIB, Reason.LEAK)


def test_what_a_container_beside_has_as_its_limit_is_taken_on_the_node() -> None:
    node = Node("node-1", {CPU: 4000, MEMORY: 8 * GIB}, {CPU: 4000, MEMORY: 1000 * MIB})
    for requests in ({}, {MEMORY: 600 * MIB}):
        beside = Container("beside", requests, {MEMORY: 600 * MIB})
        case = scenario(Workload(WEB, 1, (Container("app"),)), memory=600 * MIB, nodes=[node])
        of = Workload(WEB, 1, (Container("app"), beside))
        recommendations = Scenario([of], case.tracks, days=DAYS, history_days=DAYS, nodes=[node]).recommendations(
            "cotenant"
        )
        # 600 MiB x 1.15 = 690 MiB are wanted; 600 of the 1000 are the other's, which no sample tells about
        assert amount(recommendations["web/app"], MEMORY) == 400 * MIB


def test_a_limit_range_bounds_limit_by_request() -> None:
    bound = LimitRange("shop", CPU, minimum=500, max_ratio=2.0)
    recommendation = recommended(scenario(workload({CPU: 1000}, {CPU: 8000}), limit_ranges=[bound]))
    # 429 m is below the minimum of 500 m; the limit of 8000 m takes a request of 4000 m, and 1000 m are there now
    assert amount(recommendation, CPU) == 1000
    assert amount(recommendation, CPU, LIMIT) == 2000
    assert rules(recommendation, CPU, LIMIT)[-1] == "LimitRange of namespace shop: limit / request"
    elsewhere = recommended(scenario(workload({CPU: 1000}), limit_ranges=[replace(bound, namespace="pay")]))
    assert amount(elsewhere, CPU) == 429


def test_the_containers_of_a_pod_share_what_a_node_has() -> None:
    node = Node("node-1", {CPU: 4000, MEMORY: 8 * GIB}, {CPU: 4000, MEMORY: 1000 * MIB})
    two = Workload(WEB, 1, (Container("app"), Container("proxy")))
    recommendations = scenario(two, memory=600 * MIB, nodes=[node]).recommendations("cotenant").values()
    # 2 x 690 MiB do not fit into 1000 MiB: in proportion
    assert [amount(r, MEMORY) for r in recommendations] == [500 * MIB, 500 * MIB]


WIDE = Node("wide", {CPU: 64_000, MEMORY: 64 * GIB}, {CPU: 63_000, MEMORY: 60 * GIB})
DEEP = Node("node-1", {CPU: 8000, MEMORY: 256 * GIB}, {CPU: 7600, MEMORY: 250 * GIB})


@pytest.mark.parametrize(
    ("now", "used", "proposed"),
    [
        # 7,550 + the root of 2 x 7,550 = 7,673 m, and 190 x 1.15 = 218.5 GiB: only DEEP has so much memory.
        ((4000, 180), (7550, 190), (7600, 218.5)),
        # 25,000 + the root of 50,000 = 25,224 m, and 55 x 1.15 = 63.25 GiB: only WIDE has so many cores.
        ((20_000, 40), (25_000, 55), (25_224, 60)),
        # No node holds the pod as it is, and which one it would be on is not known.
        ((20_000, 180), (25_000, 190), (25_224, 218.5)),
    ],
)
def test_a_pod_is_raised_within_one_node_and_not_within_the_largest_of_each_resource(
    now: tuple[int, int], used: tuple[int, int], proposed: tuple[int, float]
) -> None:
    of = workload({CPU: now[0], MEMORY: now[1] * GIB})
    recommendation = recommended(scenario(of, cpu=used[0], memory=used[1] * GIB, nodes=[WIDE, DEEP]))
    assert (amount(recommendation, CPU), amount(recommendation, MEMORY) / GIB) == proposed


@pytest.mark.parametrize("allocatable", [{}, {CPU: 0, MEMORY: 0}])
def test_nodes_whose_allocatable_amounts_are_unknown_bound_no_proposal(allocatable: dict[Resource, int]) -> None:
    node = Node("node-1", {CPU: 8000, MEMORY: 32 * GIB}, allocatable)
    recommendation = recommended(scenario(workload({CPU: 100, MEMORY: GIB}), cpu=7550, memory=2 * GIB, nodes=[node]))
    # 7,550 + the root of 2 x 7,550 = 7,673 m, and 2,048 x 1.15 = 2,355.2, rounded up: as without any node
    assert (amount(recommendation, CPU), amount(recommendation, MEMORY) // MIB) == (7673, 2356)


def test_an_init_container_alone_must_fit() -> None:
    node = Node("node-1", {CPU: 4000, MEMORY: 8 * GIB}, {CPU: 4000, MEMORY: 1000 * MIB})
    parts = (Container("app"), Container("migrate", role=ContainerRole.INIT))
    recommendations = scenario(Workload(WEB, 1, parts), memory=700 * MIB, nodes=[node]).recommendations("cotenant")
    assert {amount(r, MEMORY) for r in recommendations.values()} == {805 * MIB}


def test_several_containers_under_one_autoscaler_keep_its_trigger() -> None:
    parts = (Container("app", {CPU: 1000}), Container("proxy", {CPU: 500}))
    of = Workload(WEB, 3, parts, autoscaler=Autoscaler("web", 1, 9, {CPU: 40}))
    recommendations = scenario(of, cpu=300).recommendations("cotenant")
    total = sum(amount(r, CPU) for r in recommendations.values())
    target = value(recommendations["web/app"], CPU).inputs["hpa_target_percent"]
    assert target == 90  # 600 m over 2 x 315 m would be 95 %
    # the trigger was 1500 x 0.4 = 600 m; whole millicores and percents lose less than 1 %
    assert total * float(target) / 100 == pytest.approx(600, rel=0.01)


def test_requests_stay_where_an_autoscaler_follows_one_container_of_the_pod() -> None:
    # It adds a pod where app uses 60 % of 500 m, 300 m. Solved over the pod's 2500 m, app would get 1390 m and the
    # target 90 %: a pod would be added at 1251 m.
    parts = (Container("app", {CPU: 500}), Container("proxy", {CPU: 2000}))
    of = Workload(WEB, 3, parts, autoscaler=Autoscaler("web", 1, 9, {}, (CPU,)))
    recommendations = scenario(of, cpu=100).recommendations("cotenant")
    for recommendation in recommendations.values():
        assert (value(recommendation, CPU).amount, value(recommendation, CPU).reason) == (None, Reason.HPA_UNSOLVED)
        assert value(recommendation, MEMORY).amount is not None
    assert moves(list(recommendations.values())) == ()
    by_krr = scenario(of, cpu=100).recommendations("krr-simple").values()
    assert {value(by_target, CPU).reason for by_target in by_krr} == {Reason.HPA_ON_RESOURCE}


def test_an_autoscaler_on_the_memory_of_one_container_leaves_cpu_free() -> None:
    of = workload({CPU: 1000, MEMORY: GIB}, autoscaler=Autoscaler("web", 1, 9, {}, (MEMORY,)))
    recommendation = recommended(scenario(of))
    assert value(recommendation, MEMORY).reason is Reason.HPA_UNSOLVED
    assert amount(recommendation, CPU) < 1000


def test_a_bound_after_the_solution_moves_the_target_again() -> None:
    # 1000 m at 50 %: the trigger is 500 m; LimitRange allows no less than 800 m, so the target becomes 62.5 %
    of = workload({CPU: 1000}, autoscaler=Autoscaler("web", 1, 9, {CPU: 50}))
    recommendation = recommended(scenario(of, limit_ranges=[LimitRange("shop", CPU, minimum=800)]))
    assert amount(recommendation, CPU) == 800
    assert value(recommendation, CPU).inputs["hpa_target_percent"] == 62


@pytest.mark.parametrize("limits", [{}, {CPU: 1000}])
@pytest.mark.parametrize("by_annotation", [True, False])
def test_a_bound_below_an_autoscalers_trigger_leaves_its_resource_alone(
    by_annotation: bool, limits: dict[Resource, int]
) -> None:
    # 1000 m at 80 %: pods are added at 800 m, which is 160 % of 500 m: no pod would ever use so much of such a limit.
    of = workload({CPU: 1000}, limits, autoscaler=Autoscaler("web", 1, 9, {CPU: 80}))
    bound = LimitRange("shop", CPU, maximum=500)
    case = (
        scenario(replace(of, annotations={"cotenant.dev/max-cpu": "500m"}))
        if by_annotation
        else scenario(of, limit_ranges=[bound])
    )
    of_cpu = [v for v in recommended(case).values if v.resource is CPU]
    assert {(v.action, v.reason) for v in of_cpu} == {(Action.WITHHELD, Reason.HPA_UNSOLVED)}
    assert value(recommended(case), MEMORY).reason is Reason.OBSERVED_MAXIMUM


def test_what_an_autoscalers_target_raises_is_an_allowed_size() -> None:
    # 4000 m at 32 %: the trigger is 1280 m, 90 % of 1423 m; the sizes above it are 2000 m (64 %) and 1500 m (85.3 %).
    of = workload({CPU: 4000}, autoscaler=Autoscaler("web", 1, 9, {CPU: 32}))
    whole_cores = recommended(scenario(replace(of, qos=QosClass.LSR)))
    assert (amount(whole_cores, CPU), value(whole_cores, CPU).inputs["hpa_target_percent"]) == (2000, 64)
    allowed_size = recommended(scenario(of), cpu_steps_millicores=[500, 1500, 4000])
    assert (amount(allowed_size, CPU), value(allowed_size, CPU).inputs["hpa_target_percent"]) == (1500, 85)


def test_an_unchanged_request_leaves_the_target_alone() -> None:
    of = workload({CPU: 420}, autoscaler=Autoscaler("web", 1, 9, {CPU: 60}))
    recommendation = recommended(scenario(of))
    assert value(recommendation, CPU).inputs["hpa_target_percent"] == 60
    assert not [n for n in recommendation.notes if "autoscaler" in n]


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("train-20261005", "train"),
        ("train-7f9c4", "train"),
        ("train-3-8d41f", "train"),
        ("backup-daily", "backup-daily"),
        ("12345", "12345"),
        ("load-stage-2", "load-stage"),
    ],
)
def test_runs_share_the_name_without_its_last_part(name: str, stem: str) -> None:
    assert jobs.template(Workload(WorkloadRef("ml", "Job", name), 0, ())) == stem
    assert jobs.template(Workload(WorkloadRef("ml", "Deployment", name), 0, ())) == name


def test_a_nodes_group_is_its_label_then_its_type_then_its_size() -> None:
    node = Node("n", {CPU: 16_000, MEMORY: 64 * GIB}, {})
    assert group_of(node) == "16 cores, 64 GiB"
    typed = replace(node, labels={"node.kubernetes.io/instance-type": "m5.large"})
    assert group_of(typed) == "m5.large"
    assert group_of(replace(typed, labels={**typed.labels, "cotenant.dev/node-group": "edge"})) == "edge"


@pytest.mark.parametrize(
    ("change", "level"),
    [
        ((CPU, REQUEST, None, 400, 3, False), Severity.WARNING),  # nothing is requested
        ((CPU, LIMIT, None, 400, 3, False), Severity.GOOD),
        ((MEMORY, LIMIT, 4 * GIB, 1 * GIB, 9, False), Severity.GOOD),  # harms nobody
        ((MEMORY, LIMIT, 1 * GIB, 2 * GIB, 1, True), Severity.CRITICAL),
        ((MEMORY, REQUEST, 2 * GIB, 1 * GIB, 1, True), Severity.OK),  # not a raise: by size
        ((CPU, REQUEST, 1000, 400, 5, False), Severity.WARNING),  # waste, however large, is no danger
        ((CPU, REQUEST, 1000, 10, 10_000, False), Severity.WARNING),
        ((CPU, REQUEST, 1000, 550, 100, False), Severity.WARNING),
        ((CPU, REQUEST, 400, 1000, 100, False), Severity.WARNING),  # a raise without risk is never critical
        ((CPU, REQUEST, 1000, 850, 1, False), Severity.OK),
        ((CPU, REQUEST, 1000, 950, 100, False), Severity.GOOD),  # 5 %
        ((CPU, REQUEST, 20, 10, 1, False), Severity.GOOD),  # 10 m
    ],
)
def test_severity_is_danger_and_below_that_share_and_amount(
    change: tuple[Resource, Field, int | None, int | None, int, bool], level: Severity
) -> None:
    assert grade(*change) is level


def growing(weeks: Sequence[float], noise: float = 0.0) -> Scenario:
    """CPU at these weekly levels with a working week and a daily rhythm."""
    rng = np.random.default_rng(5)
    day = 1 + 0.5 * np.sin(np.arange(DAY) / DAY * 2 * np.pi)
    week = np.concatenate([day] * 5 + [0.4 * day] * 2)
    cpu = np.concatenate([level * week for level in weeks])
    cpu = cpu * rng.normal(1, noise, len(cpu)).clip(0)
    days = 7 * len(weeks)
    return Scenario([workload()], [Track(WEB, "web-0", cpu=cpu)], days, days)


def test_growth_is_told_from_weekends_noise_and_a_step() -> None:
    def growth_of(case: Scenario) -> object:
        return value(recommended(case), CPU).inputs.get("growth_per_week")

    # most days 100 m more than a week before; the newest week's mean is 500 m x (5 + 2 x 0.4) / 7 = 414 m: 24 %
    assert growth_of(growing([300, 400, 500], noise=0.05)) == pytest.approx(0.24, rel=0.1)
    assert growth_of(growing([500, 500, 500], noise=0.05)) is None
    assert growth_of(growing([500, 400, 300])) is None
    assert growth_of(growing([300, 500])) is None  # two weeks: may be a step


def test_growth_is_projected_no_further_than_twice() -> None:
    flat = amount(recommended(growing([1000, 1000, 1000])), CPU)
    assert flat < amount(recommended(growing([200, 500, 1000])), CPU) <= 2 * flat


def leaking(shape: np.ndarray, kills: Sequence[int] = ()) -> Scenario:
    of = workload({MEMORY: 4 * GIB}, {MEMORY: 4 * GIB})
    days = len(shape) // DAY
    return Scenario([of], [Track(WEB, "web-0", memory=shape * MIB, kills=kills)], days, days)


def test_a_leak_is_told_from_rhythm_and_judged_since_the_last_restart() -> None:
    climb = 300 + 30 * np.arange(12 * DAY) / DAY  # 30 MiB a day
    rhythm = 300 + 100 * np.sin(np.arange(12 * DAY) / DAY * 2 * np.pi)
    rng = np.random.default_rng(5)
    for shape, leaks in ((climb, True), (rhythm, False), (climb + rhythm, True), (climb[::-1], False)):
        proposal = value(recommended(leaking(shape + rng.normal(0, 5, len(shape)))), MEMORY)
        assert (proposal.reason is Reason.LEAK) is leaks
        assert (proposal.amount == 4 * GIB) is leaks
    # killed three days ago: nothing is known of the new process yet
    restarted = np.concatenate([climb[: 9 * DAY], climb[: 3 * DAY]])
    assert value(recommended(leaking(restarted, kills=[9 * DAY])), MEMORY).reason is not Reason.LEAK


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(clusters())
def test_whatever_the_cluster_values_are_whole_and_ordered_and_each_step_is_told(case: Scenario) -> None:
    for recommendation in case.recommendations("cotenant").values():
        for v in recommendation.values:
            assert (v.amount is None) == (v.action is not Action.SET)
            assert v.amount is None or 0 <= v.amount < 2**63
            assert all(isinstance(i, str) or np.isfinite(i) for i in v.inputs.values())
            assert all(a.after == b.before for a, b in zip(v.clamps, v.clamps[1:], strict=False))
            assert not v.clamps or v.clamps[-1].after == v.amount
            assert v.action is not Action.SET or v.formula
            assert v.field is LIMIT or v.action is not Action.UNSET
        for resource in Resource:
            request, limit = recommendation.value(resource, REQUEST), recommendation.value(resource, LIMIT)
            if request and limit and request.amount is not None and limit.amount is not None:
                assert request.amount <= limit.amount
        msgspec.json.encode(recommendation)


@pytest.mark.slow
@settings(max_examples=35, deadline=None)
@given(clusters())
def test_memory_is_never_below_what_was_seen_with_its_margin_unless_a_clamp_says_so(case: Scenario) -> None:
    for recommendation in case.recommendations("cotenant").values():
        for which in Field:
            v = recommendation.value(MEMORY, which)
            if v is not None and v.amount is not None:
                needed = float(v.inputs.get("observed_max", 0)) * (1 + float(v.inputs["margin_fraction"]))
                lowered = [c for c in v.clamps if c.after < c.before]
                assert v.amount >= needed * (1 - 1e-9) or lowered


@pytest.mark.slow
@settings(max_examples=35, deadline=None)
@given(clusters())
def test_an_autoscaler_always_keeps_its_trigger(case: Scenario) -> None:
    of, made_ = case.workloads[0], case.recommendations("cotenant")
    staying = [c for c in of.containers if c.role is not ContainerRole.INIT]
    for resource in of.autoscaler.unsolvable if of.autoscaler else ():
        requests = [value(made_[f"web/{c.name}"], resource) for c in staying]
        assert all(v.amount is None for v in requests)
    for resource, target in (of.autoscaler.targets if of.autoscaler else {}).items():
        values = {c.name: value(made_[f"web/{c.name}"], resource) for c in staying}
        inputs = [v.inputs for v in values.values() if "hpa_target_percent" in v.inputs]
        if not inputs:
            assert all(v.amount is None for v in values.values())
            continue
        before = sum(c.requests[resource] for c in staying) * target
        amounts = [values[c.name].amount for c in staying]
        total = sum(c.requests[resource] if a is None else a for c, a in zip(staying, amounts, strict=True))
        # the nearest whole percent to the old trigger, at least 1
        assert float(inputs[0]["hpa_target_percent"]) == max(1, round(before / max(total, 1)))


@pytest.mark.slow
@settings(max_examples=35, deadline=None)
@given(clusters())
def test_a_limit_is_only_lowered_by_a_rule_that_says_so(case: Scenario) -> None:
    for recommendation in case.recommendations("cotenant").values():
        for v in recommendation.values:
            if v.field is LIMIT and v.amount is not None and v.now is not None and v.amount < v.now:
                rules = [clamp.rule for clamp in v.clamps]  # the request may have raised it again, after the rule
                assert any(word in rule for rule in rules for word in ("annotation", "LimitRange", "Quota", "="))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(1, 4000, width=32), min_size=1, max_size=12), st.floats(1, 3), st.integers(1, 4000))
def test_more_demand_never_means_less(millicores: list[float], factor: float, now: int) -> None:
    shape = np.resize(np.array(millicores), DAYS * DAY)
    of = workload({CPU: now, MEMORY: now * MIB}, {CPU: 2 * now, MEMORY: 2 * now * MIB})
    recommendations = [
        recommended(Scenario([of], [Track(WEB, "web-0", cpu=shape * f, memory=shape * f * MIB)], DAYS, DAYS))
        for f in (1.0, factor)
    ]
    for resource in Resource:
        for which in Field:
            assert amount(recommendations[0], resource, which) <= amount(recommendations[1], resource, which)
