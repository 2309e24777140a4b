"""Cuts that are larger than one step may be: their steps, which pass the guardrail, end where the proposal is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.changes.decide.checks.capacity import requests_of_running
from cotenant.changes.decide.guardrails import judge_recorded
from cotenant.changes.decide.readiness import readiness
from cotenant.changes.decide.steps import MOST_STEPS, first_step, later_steps, rebase_on_live
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.model.steps import Ready

LIMITS = GuardrailSettings()
WEB = WorkloadRef("pay", "Deployment", "web")


def value(resource: Resource, field: Field, now: int | None, amount: int | None) -> Value:
    evidence = {"days": 14.0, "coverage": 1.0}
    return Value(resource, field, now, amount, Action.SET, Reason.OK, inputs=evidence)


def proposed(*values: Value) -> Recommendation:
    return Recommendation(ContainerRef(WEB, "app"), "cotenant", 2, values, 14 * 86_400, "digest", 0)


def cpu(now: int, amount: int) -> Recommendation:
    return proposed(value(Resource.CPU, Field.REQUEST, now, amount))


@given(st.sampled_from(Resource), st.integers(1, 10**13), st.integers(0, 10**13), st.floats(0, 1))
def test_every_step_passes_its_rule_and_goes_on_from_the_one_before(
    resource: Resource, now: int, amount: int, most: float
) -> None:
    limits = GuardrailSettings(most_cpu_cut=most, most_memory_cut=most)
    proposal = proposed(value(resource, Field.REQUEST, now, amount))
    (first,) = first_step([proposal], limits)
    step = first.value(resource, Field.REQUEST)
    assert step is not None and step.amount is not None and (step.amount == amount or amount < step.amount < now)
    rule = next(guardrail for guardrail in judge_recorded([first], limits) if guardrail.rule == f"{resource}-step")
    later = later_steps([proposal], [first], limits, 0.0)
    if step.amount == amount:
        assert later == ()
    else:
        assert rule.outcome.value == "pass"
        # of amounts so small that no share can be cut nothing follows
        assert [next_step.now for next_step in later] == [step.amount, *(later_step.amount for later_step in later)][
            :-1
        ]


def test_a_cut_of_ten_cores_to_four_is_three_steps_a_day_apart() -> None:
    proposal = cpu(10_000, 4_000)
    (first,) = first_step([proposal], LIMITS)
    # 10 x 0.7 = 7; 7 x 0.7 = 4.9; 4.9 x 0.7 = 3.43 is below the proposal of 4.
    assert first.values[0].amount == 7_000
    steps = later_steps([proposal], [first], LIMITS, 1_000.0)
    assert [(s.from_seconds, s.now, s.amount) for s in steps] == [
        (1_000.0 + 86_400, 7_000, 4_900),
        (1_000.0 + 2 * 86_400, 4_900, 4_000),
    ]
    # Who overrides the rule takes it whole.
    assert first_step([proposal], LIMITS, ("cpu-step",)) == (proposal,)


def test_a_step_is_smaller_where_the_rest_would_lie_within_the_dead_band() -> None:
    proposal = cpu(10_000, 4_500)
    (first,) = first_step([proposal], LIMITS)
    # 4.9 to 4.5 is 8 %, below the 10 % that are worth a change: the second step ends at 4.5 / 0.9
    later = [(s.now, s.amount) for s in later_steps([proposal], [first], LIMITS, 0.0)]
    assert later == [(7_000, 5_000), (5_000, 4_500)]
    # 7 to 6.9 is 1 %: 6.9 / 0.9 comes first
    proposal = cpu(10_000, 6_900)
    (first,) = first_step([proposal], LIMITS)
    assert first.values[0].amount == 7_667
    assert [(s.now, s.amount) for s in later_steps([proposal], [first], LIMITS, 0.0)] == [(7_667, 6_900)]


def test_a_cut_that_makes_no_two_steps_worth_a_change_leaves_its_rest() -> None:
    # two cuts of 10 % come to 19 %: of 18 % at most 15 % a step there is one step, and a rest that stays
    limits = GuardrailSettings(most_cpu_cut=0.15)
    proposal = cpu(10_000, 8_200)
    (first,) = first_step([proposal], limits)
    assert first.values[0].amount == 8_500 and later_steps([proposal], [first], limits, 0.0) == ()


@given(st.sampled_from(Resource), st.integers(100, 10**12), st.floats(0.001, 0.8))
def test_the_steps_of_the_defaults_end_where_the_proposal_is(resource: Resource, now: int, share: float) -> None:
    target = int(now * share)
    proposal = proposed(value(resource, Field.REQUEST, now, target))
    (first,) = first_step([proposal], LIMITS)
    step = first.value(resource, Field.REQUEST)
    assert step is not None
    last = [step.amount, *(later_step.amount for later_step in later_steps([proposal], [first], LIMITS, 0.0))][-1]
    # but for so small amounts that a millicore, or what it takes to round up, is more than the dead band
    assert last == target or target < 200 or len(later_steps([proposal], [first], LIMITS, 0.0)) >= MOST_STEPS - 1


@given(st.sampled_from(Resource), st.integers(1, 10**13), st.integers(0, 10**13), st.floats(0, 1), st.floats(0, 1))
def test_every_later_step_passes_all_rules_that_need_no_cluster(
    resource: Resource, now: int, amount: int, most: float, least: float
) -> None:
    limits = GuardrailSettings(most_cpu_cut=most, most_memory_cut=most, least_change=least)
    proposal = proposed(value(resource, Field.REQUEST, now, amount))
    for step in later_steps([proposal], first_step([proposal], limits), limits, 0.0):
        recommendation = proposed(value(resource, Field.REQUEST, step.now, step.amount))
        assert [r.rule for r in judge_recorded([recommendation], limits) if r.outcome.value == "fail"] == []


def test_memory_is_cut_in_whole_mebibytes_and_a_limit_never_falls_below_its_request() -> None:
    proposal = proposed(
        value(Resource.MEMORY, Field.REQUEST, 1001 * MIB, 300 * MIB),
        value(Resource.MEMORY, Field.LIMIT, 1001 * MIB, 300 * MIB),
    )
    (first,) = first_step([proposal], LIMITS)
    # 1001 x 0.8 = 800.8, up to the next mebibyte.
    assert [v.amount for v in first.values] == [801 * MIB, 801 * MIB]


def test_money_of_a_step_is_its_share_of_the_proposals() -> None:
    proposal = replace(
        cpu(10_000, 5_000), monthly_saving=101.0, monthly_savings={Resource.CPU: 100.0, Resource.MEMORY: 1}
    )
    (first,) = first_step([proposal], LIMITS)
    # 3 of 5 cores of 100, and what memory saves in full.
    assert first.monthly_saving == pytest.approx(61.0)


def test_what_is_ready_is_told_from_the_recommendations_alone() -> None:
    assert readiness([cpu(1_000, 800)], LIMITS).ready is Ready.WHOLE
    assert readiness([cpu(1_000, 300)], LIMITS).ready is Ready.FIRST_STEP
    assert readiness([cpu(1_000, 1_000)], LIMITS).ready is Ready.NOTHING
    young = replace(cpu(1_000, 300).values[0], inputs={"days": 2.0, "coverage": 1.0})
    stopped = readiness([proposed(young)], LIMITS)
    assert (stopped.ready, stopped.stopped_by) == (Ready.BLOCKED, ("history",))
    # 2 millicores cannot be cut by 30 %: the whole cut of 50 % stays one, and its rule stops it.
    assert readiness([cpu(2, 1)], LIMITS).stopped_by == ("cpu-step",)


def test_the_number_of_steps_is_said_before_anybody_accepts_one() -> None:
    # 10 cores by at most 30 % a step: 7, 4.9, 4. With another container that takes two (1 -> 0.7 -> 0.6) still three,
    # because one step takes all containers of a workload together.
    assert readiness([cpu(10_000, 4_000)], LIMITS).steps == 3
    assert readiness([cpu(10_000, 4_000), cpu(1_000, 600)], LIMITS).steps == 3
    assert readiness([cpu(1_000, 800)], LIMITS).steps == 1
    assert readiness([cpu(1_000, 1_000)], LIMITS).steps == 0


def test_present_values_are_those_of_the_cluster_not_of_the_scan() -> None:
    resources = {"requests": {"cpu": "7"}, "limits": {"cpu": "8"}}
    live = {"spec": {"template": {"spec": {"containers": [{"name": "app", "resources": resources}]}}}}
    proposal = proposed(
        value(Resource.CPU, Field.REQUEST, 10_000, 4_500), value(Resource.CPU, Field.LIMIT, None, 9_000)
    )
    (over,) = rebase_on_live(live, {}, [proposal])
    assert [v.now for v in over.values] == [7_000, 8_000]
    # A pod that still runs with more is cut from there.
    pod = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "10"}}}]}}
    (running,) = rebase_on_live(live, requests_of_running([pod]), [proposal])
    assert running.values[0].now == 10_000


def infeasible(spec: str, has: str) -> dict[str, Any]:
    """A pod whose node refuses a resize: its spec asks for something, and its container has something else."""
    amounts = {"requests": {"cpu": has}}
    status = {"name": "app", "resources": amounts, "allocatedResources": {"cpu": has}}
    return {
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": spec}}}]},
        "status": {
            "containerStatuses": [status],
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
        },
    }


def test_no_step_ends_above_what_runs() -> None:
    live = {"spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]}}}}
    proposal = proposed(value(Resource.CPU, Field.REQUEST, 1_000, 200))
    # Resized in place to 300m: by at most 30 % a step ends at 210m, not at 700m, which would raise what runs.
    (small,) = rebase_on_live(live, requests_of_running([infeasible("300m", "300m")]), [proposal])
    assert small.values[0].now == 300
    (first,) = first_step([small], LIMITS)
    assert first.values[0].amount is not None and first.values[0].amount < 300
    # A resize to 100 cores that the node refused: nobody has them.
    (refused,) = rebase_on_live(live, requests_of_running([infeasible("100", "1")]), [proposal])
    assert refused.values[0].now == 1_000
