"""What recommendations free and raise: one definition, one sign, for any mix of values, steps and missing requests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.cluster import Container, ContainerRole, Workload, pod_amount
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, Resource
from cotenant.base.severity import Waste
from cotenant.changes.decide.readiness import readiness
from cotenant.changes.decide.steps import first_step
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.recommender.backtest import Amounts
from cotenant.recommender.enrich import enrich
from cotenant.recommender.model.pod_floors import pod_floors
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.model.savings import (
    COLUMNS,
    PlannedSavings,
    RequestTotals,
    Savings,
    When,
    joined_plans,
    joined_savings,
    money_moved,
    request_change,
    request_now,
    saving_cells,
    savings_of,
    summed_savings,
    total_change,
)
from cotenant.recommender.model.savings_text import balanced_text, net_text, saving_text
from cotenant.recommender.model.steps import Ready
from cotenant.recommender.model.todo import TodoList, todo_list
from cotenant.recommender.settings import PriceSettings, RecommenderSettings
from tests.support import scenario

CPU, MEMORY = Resource.CPU, Resource.MEMORY
WEB = WorkloadRef("pay", "Deployment", "web")
MAYBE = st.none() | st.integers(0, 10**6)


def value(resource: Resource, field: Field, now: int | None, then: int | None, action: Action | None = None) -> Value:
    inputs = {"days": 14.0, "coverage": 1.0}
    action = action or (Action.UNSET if then is None else Action.SET)
    return Value(resource, field, now, then, action, Reason.OK, inputs=inputs)


def proposal(*values: Value, replicas: int = 1, **more: object) -> Recommendation:
    return Recommendation(ContainerRef(WEB, "app"), "cotenant", replicas, values, 0, "d", 0, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("request_now_", "limit_now", "then", "change"),
    [
        # As the API server admits a pod: a limit without a request is the request.
        (None, 5_000, 261, 261 - 5_000),
        (None, 5_000, 5_000, 0),
        # Neither: the scheduler counts 0, so all of the proposal is raised.
        (None, None, 261, 261),
        (1_000, 5_000, 261, 261 - 1_000),
        (0, 5_000, 261, 261),
    ],
)
def test_a_missing_request_is_the_limit_else_nothing(
    request_now_: int | None, limit_now: int | None, then: int, change: int
) -> None:
    request = value(CPU, Field.REQUEST, request_now_, then)
    of_limit = [] if limit_now is None else [value(CPU, Field.LIMIT, limit_now, limit_now)]
    recommendation = proposal(request, *of_limit, replicas=2)
    assert (request_change(recommendation, CPU), total_change(recommendation, CPU)) == (change, 2 * change)
    # The same where the strategy says nothing of limits: the template's is kept beside the values.
    limits = {} if limit_now is None else {CPU: limit_now}
    silent = proposal(request, replicas=2, present_limits=limits)
    assert total_change(silent, CPU) == 2 * change


def test_a_request_that_is_removed_falls_back_to_the_limit_and_a_withheld_one_says_nothing() -> None:
    removed = proposal(value(CPU, Field.REQUEST, 1_000, None), value(CPU, Field.LIMIT, 400, 400))
    assert request_change(removed, CPU) == 400 - 1_000
    withheld = value(CPU, Field.REQUEST, None, None, Action.WITHHELD)
    assert request_change(proposal(withheld, value(CPU, Field.LIMIT, 400, 400)), CPU) is None
    # A limit that moves under a request that is not set moves what the scheduler counts.
    assert request_change(proposal(withheld, value(CPU, Field.LIMIT, 400, 300)), CPU) == -100
    assert request_change(proposal(), CPU) is None


@given(st.lists(st.tuples(MAYBE, MAYBE, MAYBE, st.sampled_from(Action)), min_size=1, max_size=6))
def test_money_and_amounts_count_a_request_by_the_same_rule(
    rows: list[tuple[int | None, int | None, int | None, Action]],
) -> None:
    def column(place: int) -> np.ndarray:
        return np.array([np.nan if row[place] is None else row[place] for row in rows], dtype=np.float64)

    now = Amounts({CPU: column(0)}, {CPU: column(1)})
    then = Amounts({CPU: column(0)}, {CPU: column(1)})
    recommendations = []
    for index, (request, limit, proposed, action) in enumerate(rows):
        amount = None if action is not Action.SET else proposed or 0
        of_request = Value(CPU, Field.REQUEST, request, amount, action, Reason.OK)
        recommendations.append(proposal(of_request, present_limits={} if limit is None else {CPU: limit}))
        then.apply(index, recommendations[-1])
    for index, recommendation in enumerate(recommendations):
        # `enrich` prices the difference of these columns.
        assert now.effective_request(CPU)[index] == request_now(recommendation, CPU)
        moved = then.effective_request(CPU)[index] - now.effective_request(CPU)[index]
        assert (request_change(recommendation, CPU) or 0) == moved


@given(st.lists(st.tuples(st.integers(-(10**9), 10**9), st.integers(-(10**12), 10**12)), max_size=20))
def test_frees_and_raises_are_never_negative_and_their_difference_is_the_net(changes: list[tuple[int, int]]) -> None:
    cpu, memory = [c for c, _ in changes], [m for _, m in changes]
    names = COLUMNS[When.ALL_STEPS]
    summed = summed_savings({names.cpu: cpu, names.memory: memory, names.freed: [], names.raised: []})
    for side in (summed.frees, summed.raises):
        assert side.millicores >= 0 and side.bytes >= 0 and side.monthly is None
    assert (summed.net.millicores, summed.net.bytes) == (-sum(cpu), -sum(memory))
    assert joined_savings([summed, summed]).net.bytes == 2 * summed.net.bytes


def test_money_is_split_as_the_amounts_are_and_its_net_is_the_saving() -> None:
    recommendation = proposal(
        value(CPU, Field.REQUEST, 1_000, 400), value(MEMORY, Field.REQUEST, GIB, 2 * GIB), replicas=3,
        monthly_saving=7.0, monthly_savings={CPU: 10.0, MEMORY: -3.0},
    )  # fmt: skip
    assert money_moved(recommendation) == (10.0, 3.0)
    summed = savings_of([recommendation])
    assert summed == Savings(RequestTotals(1_800, 0, 10.0), RequestTotals(0, 3 * GIB, 3.0))
    assert summed.net == RequestTotals(1_800, -3 * GIB, 7.0)
    # Of a share of a GPU the money alone is known.
    assert money_moved(proposal(monthly_saving=-2.0)) == (0, 2.0)
    assert savings_of([proposal()]).frees.monthly is None


REQUESTS = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 9))
PARTS = st.lists(st.tuples(st.sampled_from(ContainerRole), st.integers(0, 9)), min_size=1, max_size=5)


@given(PARTS, REQUESTS)
def test_what_containers_free_adds_up_to_what_their_pod_frees(
    parts: list[tuple[ContainerRole, int]], then: dict[str, int]
) -> None:
    own = [Container(name, {CPU: now}, role=role) for name, (role, now) in zip("abcde", parts, strict=False)]
    floors = pod_floors(Workload(WEB, 1, tuple(own)), then, CPU)
    after = [replace(c, requests={CPU: then.get(c.name, c.requests[CPU])}) for c in own]
    changes = [
        request_change(proposal(value(CPU, Field.REQUEST, c.requests[CPU], a.requests[CPU]),
                            pod_floor={CPU: floors[c.name]}), CPU) or 0
        for c, a in zip(own, after, strict=True)
    ]  # fmt: skip
    assert sum(changes) == pod_amount(after, CPU) - pod_amount(own, CPU)
    # none frees anything by asking for more
    moved = [a.requests[CPU] - c.requests[CPU] for c, a in zip(own, after, strict=True)]
    assert all(change * move >= 0 for change, move in zip(changes, moved, strict=True))
    if all(c.role is not ContainerRole.INIT for c in own):
        assert changes == moved


@pytest.mark.parametrize(
    ("app", "frees"),
    [
        # 3000 m stay whatever the init container asks for before them
        (3000, 0),
        # 2000 m before, then what stays, 500 m
        (500, 1500),
    ],
)
def test_an_init_container_frees_only_what_its_pod_needs_beyond_the_others(app: int, frees: int) -> None:
    days = 14
    parts = (Container("migrate", {CPU: 2000}, role=ContainerRole.INIT), Container("app", {CPU: app}))
    of = Workload(WEB, 20, parts)
    # the init container is seen in two slots alone, of the days that are back-tested
    used = {"migrate": np.full((days - 3) * scenario.DAY, np.nan), "app": np.full(days * scenario.DAY, 0.9 * app)}
    used["migrate"][-2:] = 30.0
    tracks = [scenario.Track(WEB, "web-0", cpu=cpu, container=name) for name, cpu in used.items()]
    evidence = scenario.Scenario([of], tracks, days=days, history_days=days).evidence()
    proposed = [
        Recommendation(ref, "any", 20, (value(CPU, Field.REQUEST, now, then),), 0, "d", 0)
        for ref in evidence.containers
        for now, then in (((2000, 110) if ref.container == "migrate" else (app, app)),)
    ]
    settings = RecommenderSettings(prices=PriceSettings(per_core_hour=0.01))
    recommendations = enrich(proposed, evidence, evidence.inventory, settings)
    assert savings_of(recommendations).frees.millicores == 20 * frees
    # a core at 0.01 an hour, 730 hours
    assert savings_of(recommendations).net.monthly == pytest.approx(20 * frees / 1000 * 7.3)
    (migrate,) = [
        recommendation for recommendation in recommendations if recommendation.container.container == "migrate"
    ]
    assert (todo_list(migrate) is TodoList.CUT, migrate.waste is Waste.NONE) == (frees > 0, frees == 0)
    # of the one pod that ran all days, whose init container's request held as long as the pod
    assert (
        sum(recommendation.backtest.freed_millicores for recommendation in recommendations if recommendation.backtest)
        == frees
    )


def test_where_pods_differ_init_containers_count_for_nothing() -> None:
    parts = (Container("migrate", {CPU: 2000}, role=ContainerRole.INIT), Container("app", {CPU: 500}, pods=2))
    assert pod_floors(Workload(WEB, 3, parts), {"migrate": 110, "app": 300}, CPU) == {"migrate": 2000, "app": 0}


def test_of_jobs_the_mean_number_of_pods_counts_for_amounts_as_it_does_for_money() -> None:
    job = proposal(value(CPU, Field.REQUEST, 1_000, 400), replicas=0, pods=0.25)
    assert total_change(job, CPU) == -150


def test_now_and_all_steps_are_different_columns_of_one_row() -> None:
    all_steps = proposal(value(CPU, Field.REQUEST, 10_000, 4_000), monthly_saving=60.0, monthly_savings={CPU: 60.0})
    (first,) = first_step([all_steps], GuardrailSettings())
    cells = saving_cells(all_steps, When.ALL_STEPS) | saving_cells(first, When.NOW)
    rows = {name: [cell] for name, cell in cells.items()}
    # The first step takes 30 % of 10 cores.
    assert summed_savings(rows, When.NOW).frees == RequestTotals(3_000, 0, 30.0)
    assert summed_savings(rows, When.ALL_STEPS).frees == RequestTotals(6_000, 0, 60.0)
    plan = PlannedSavings(*(summed_savings(rows, when) for when in When))
    assert joined_plans([plan, plan]).now.frees.millicores == 6_000


def test_a_request_that_is_set_first_falls_from_its_limit_by_steps() -> None:
    recommendation = proposal(value(CPU, Field.REQUEST, None, 400), present_limits={CPU: 1_000}, monthly_saving=6.0,
                monthly_savings={CPU: 6.0})  # fmt: skip
    (first,) = first_step([recommendation], GuardrailSettings())
    # 1000 x 0.7, and money as for 300 of the 600 m.
    assert first.values[0].amount == 700 and first.monthly_saving == pytest.approx(3.0)
    ready = readiness([recommendation], GuardrailSettings())
    assert (ready.ready, ready.stopped_by) == (Ready.FIRST_STEP, ())


@pytest.mark.parametrize(
    ("qos", "labels", "ready", "stopped_by"),
    [
        (QosClass.LS, {}, Ready.WHOLE, ()),
        (QosClass.LSR, {}, Ready.SECOND_PERSON, ("second-person",)),
        (QosClass.LSE, {}, Ready.SECOND_PERSON, ("second-person",)),
        (QosClass.LS, {"kustomize.toolkit.fluxcd.io/name": "apps"}, Ready.BLOCKED, ("gitops",)),
    ],
)
def test_ready_says_before_the_click_what_the_review_would_leave_out(
    qos: QosClass, labels: dict[str, str], ready: Ready, stopped_by: tuple[str, ...]
) -> None:
    recommendation = proposal(value(CPU, Field.REQUEST, 1_000, 800))
    readiness_now = readiness([recommendation], GuardrailSettings(), Workload(WEB, 2, (), qos, labels=labels))
    assert (readiness_now.ready, readiness_now.stopped_by) == (ready, stopped_by)
    # An operator or a VerticalPodAutoscaler writes it anew, whatever its labels say.
    plain = Workload(WEB, 2, (), qos, labels=labels)
    for managed, rule in (
        (replace(plain, operator="Grafana main"), "gitops"),
        (replace(plain, vertical="v"), "autoscaler"),
    ):
        assert readiness([recommendation], GuardrailSettings(), managed).ready is Ready.BLOCKED
        assert readiness([recommendation], GuardrailSettings(), managed).stopped_by == (
            stopped_by if labels else (rule,)
        )
    # Rules that stop it come first: a second person would not help.
    young = replace(recommendation, values=(replace(recommendation.values[0], inputs={"days": 0.5, "coverage": 1.0}),))
    assert readiness([young], GuardrailSettings(), Workload(WEB, 2, (), QosClass.LSR)).stopped_by == ("history",)


def template(**more: object) -> Workload:
    same = {CPU: 1_000, MEMORY: GIB}
    return Workload(WEB, 2, (Container("app", same, same),), **more)  # type: ignore[arg-type]


def test_a_class_that_the_pods_would_lose_is_said_before_the_click() -> None:
    recommendation = proposal(value(CPU, Field.REQUEST, 1_000, 800))
    readiness_now = readiness([recommendation], GuardrailSettings(), template())
    assert (readiness_now.ready, readiness_now.stopped_by) == (Ready.BLOCKED, ("qos-class",))
    # With its limit the request stays equal to it.
    both = proposal(value(CPU, Field.REQUEST, 1_000, 800), value(CPU, Field.LIMIT, 1_000, 800))
    assert readiness([both], GuardrailSettings(), template()).stopped_by == ()


def test_a_class_is_not_guessed_where_the_template_is_not_known() -> None:
    recommendation = proposal(value(CPU, Field.REQUEST, 1_000, 800))
    of_some_pods = replace(template().containers[0], pods=1)
    for unknown in (template(described=False), replace(template(), containers=(of_some_pods,))):
        assert readiness([recommendation], GuardrailSettings(), unknown).stopped_by == ()


def test_every_number_stands_under_its_word_and_none_is_negative() -> None:
    both = Savings(RequestTotals(302_000, 421 * GIB, 7_483.0), RequestTotals(255_000, 485 * GIB, 7_283.0))
    assert saving_text(both, "USD") == (
        "frees 302 cores, 421 GiB, 7,483 USD a month; raises 255 cores, 485 GiB where more is needed, 7,283 USD a month"
    )
    assert net_text(both, "USD") == "net frees 47 cores, 200 USD a month, raises 64 GiB"
    assert saving_text(Savings(), "USD") == "frees nothing"
    assert balanced_text(Savings(RequestTotals(500)), "") == "frees 500 m"
    assert "-" not in net_text(both, "USD") and "−" not in net_text(both, "USD")
