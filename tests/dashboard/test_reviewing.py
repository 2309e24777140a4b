"""What a review's address says, what is left out and why, what it comes to, and the diff of what would be written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import ContainerRole
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, Resource
from cotenant.changes.model.service import BundleForm, DryRunResult, FieldMove, GuardrailResult, Method, WorkloadReview
from cotenant.dashboard.changes import review as reviewing
from cotenant.dashboard.changes import review_end
from cotenant.dashboard.changes.review import ReviewTerms
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.model.savings import RequestTotals, Savings
from tests.support.component_text import text_of

WEB, API, JOB = (WorkloadRef("pay", "Deployment", name) for name in ("web", "api", "job"))
NAMES = st.text(min_size=1, max_size=8).filter(lambda text: text.strip() == text)
REFS = st.builds(WorkloadRef, NAMES, NAMES, NAMES)


def recommended(*fields: tuple[Resource, Field, int | None, int | None], replicas: int = 1) -> Recommendation:
    """A container whose fields go from the first to the second amount; None to remove, -1 to withhold."""
    values = tuple(
        Value(resource, field, now, None if then == -1 else then, action_of(then), Reason.OK)
        for resource, field, now, then in fields
    )
    return Recommendation(ContainerRef(WEB, "app"), "cotenant", replicas, values, 0, "d", 0, role=ContainerRole.MAIN)


def action_of(then: int | None) -> Action:
    return Action.WITHHELD if then == -1 else Action.UNSET if then is None else Action.SET


@settings(max_examples=60)
@given(st.lists(REFS, max_size=4, unique=True))
def test_an_address_names_exactly_the_workloads_it_was_made_of(refs: list[WorkloadRef]) -> None:
    terms = reviewing.parse_terms(reviewing.href("/", refs).partition("?")[2])
    assert list(terms.workloads) == refs


@settings(max_examples=80)
@given(st.text(max_size=40))
def test_any_address_is_read_without_an_error(text: str) -> None:
    terms = reviewing.parse_terms(text)
    assert terms.step in (*reviewing.STEPS, reviewing.DONE) and 0 <= terms.canary < 1


def test_terms_are_read_and_what_cannot_be_is_as_if_not_said() -> None:
    search = (
        "?ids=pay/Deployment/web&ids=pay/Deployment/web&ids=broken&step=confirm&key=0123456789abcdef"
        "&method=in-place&form=helm&override=history&override=cpu-step&because=+tonight+&second=olga&canary=0.1"
    )
    assert reviewing.parse_terms(search) == ReviewTerms(
        workloads=(WEB,),
        step="confirm",
        key="0123456789abcdef",
        method=Method.IN_PLACE,
        form=BundleForm.HELM,
        overridden=("cpu-step", "history"),
        because="tonight",
        second_person="olga",
        canary=0.1,
    )
    assert reviewing.parse_terms("step=nowhere&key=<b>&method=magic&form=x&canary=7&all=yes") == ReviewTerms()


def test_the_list_s_own_filters_are_kept_apart_from_the_review_s_terms() -> None:
    assert (
        reviewing.filters_of("?all=1&ns=pay&kind!=Job&step=diff&key=12345678&override=a&q=x") == "ns=pay&kind!=Job&q=x"
    )


def test_what_is_wanted_of_the_service_carries_every_term_and_the_key() -> None:
    terms = ReviewTerms(key="12345678", overridden=("history",), because="b", second_person="o", canary=0.5)
    request = terms.request([WEB, API], Method.TEMPLATE, terms.key)
    assert (request.workloads, request.key, request.canary) == ((WEB, API), "12345678", 0.5)
    assert (request.overridden, request.because, request.second_person) == (("history",), "b", "o")


def looks() -> list[WorkloadReview]:
    failing = GuardrailResult("history", "fail", "3 days of history")
    return [
        WorkloadReview(
            WEB,
            rules=(GuardrailResult("namespace", "pass", ""),),
            savings=Savings(RequestTotals(500, 0, 14.0), RequestTotals(0, GIB, 4.0)),
        ),
        WorkloadReview(API, rules=(failing,), savings=Savings(RequestTotals(250))),
        WorkloadReview(JOB, error="it is gone"),
    ]


def test_each_workload_stands_and_falls_alone() -> None:
    going, outs = reviewing.split_by_obstacle(looks(), ReviewTerms(), Method.TEMPLATE)
    assert [look.workload for look in going] == [WEB]
    assert [(out.review.workload, out.why) for out in outs] == [
        (API, "history: 3 days of history"),
        (JOB, "it is gone"),
    ]
    going, outs = reviewing.split_by_obstacle(looks(), ReviewTerms(overridden=("history",)), Method.TEMPLATE)
    assert [look.workload for look in going] == [WEB, API] and len(outs) == 1
    # Files change nothing in the cluster, so guardrails do not hold them back.
    assert len(reviewing.split_by_obstacle(looks(), ReviewTerms(), Method.BUNDLE)[0]) == 2


def test_a_refusal_of_the_server_and_an_impossible_method_leave_out_with_the_next_step() -> None:
    refused = replace(looks()[0], tried=DryRunResult(False, "exceeded quota", "Ask for more quota."))
    (out,) = reviewing.split_by_obstacle([refused], ReviewTerms(), Method.TEMPLATE)[1]
    assert (out.why, out.fix) == ("the server refuses: exceeded quota", "Ask for more quota.")
    cannot = replace(looks()[0], impossible={Method.IN_PLACE: "server 1.30"})
    (out,) = reviewing.split_by_obstacle([cannot], ReviewTerms(), Method.IN_PLACE)[1]
    assert (out.why, out.fix) == ("in-place: server 1.30", "Choose another method.")


def test_a_review_s_foot_says_what_is_freed_and_what_is_raised_each_as_a_positive_number() -> None:
    # 500 m + 250 m are freed and one GiB is raised; money of the one that is priced.
    summary = text_of(review_end.summary_line(looks()[:2], 1, "EUR"))
    assert "now: frees 750 m, 14.00 EUR a month; raises 1 GiB where more is needed, 4.00 EUR a month" in summary
    assert "1 left out" in summary and "−" not in summary and "+" not in summary


@pytest.mark.parametrize(
    ("suggested", "chosen"),
    [
        ((Method.IN_PLACE, Method.IN_PLACE), Method.IN_PLACE),
        ((Method.IN_PLACE, Method.TEMPLATE), Method.TEMPLATE),
        ((Method.BUNDLE, Method.BUNDLE), Method.BUNDLE),
        ((Method.BUNDLE, Method.IN_PLACE), Method.IN_PLACE),
    ],
)
def test_the_method_chosen_beforehand_is_what_the_service_suggests(
    suggested: tuple[Method, ...], chosen: Method
) -> None:
    reviews = [replace(look, suggested=method) for look, method in zip(looks(), suggested, strict=False)]
    assert reviewing.default_method(reviews) is chosen


def test_lines_say_now_then_highest_and_the_change_over_all_pods() -> None:
    recommendation = recommended(
        (Resource.CPU, Field.REQUEST, 1000, 400),
        (Resource.CPU, Field.LIMIT, 2000, None),
        (Resource.MEMORY, Field.REQUEST, 100, 100),
        (Resource.MEMORY, Field.LIMIT, 7, -1),
        replicas=3,
    )
    cpu, limit, memory = reviewing.lines([recommendation])
    # 3 pods x (400 m - 1000 m)
    assert (cpu.then, cpu.total, cpu.moves) == (400, -1800, True)
    assert (limit.then, limit.total, limit.moves) == (None, None, True)
    assert (memory.moves, memory.seen_max) == (False, None)


@pytest.mark.parametrize(
    ("cpu", "memory", "classes"),
    [
        (((100, 100), (100, 100)), ((10, 10), (10, 10)), ("Guaranteed", "Guaranteed")),
        (((100, 50), (100, 100)), ((10, 10), (10, 10)), ("Guaranteed", "Burstable")),
        (((None, 50), (None, -1)), ((None, -1), (None, -1)), ("BestEffort", "Burstable")),
        (((100, None), (None, -1)), ((None, -1), (None, -1)), ("Burstable", "BestEffort")),
    ],
)
def test_a_changed_quality_of_service_class_is_seen(
    cpu: tuple[tuple[int | None, int | None], ...],
    memory: tuple[tuple[int | None, int | None], ...],
    classes: tuple[str, str],
) -> None:
    fields = [(r, f, *pair) for r, pairs in zip(Resource, (cpu, memory), strict=True)
              for f, pair in zip((Field.REQUEST, Field.LIMIT), pairs, strict=True)]  # fmt: skip
    assert reviewing.quality_classes([recommended(*fields)]) == classes


def test_the_diff_names_object_and_place_and_keeps_what_stays() -> None:
    place = "/spec/template/spec/containers/0/resources"
    resources = FieldMove("web", place, "requests cpu 1, requests memory 1Gi", "requests cpu 800m, requests memory 1Gi")
    target = FieldMove("hpa", "/spec/metrics/0", "60", "75")
    assert reviewing.yaml_diff([resources, target]).split("\n") == [
        "--- web", "+++ web", f"@@ {place} @@", " requests:", "-  cpu: 1", "+  cpu: 800m", "   memory: 1Gi",
        "--- hpa", "+++ hpa", "@@ /spec/metrics/0 @@", "-60", "+75",
    ]  # fmt: skip


def test_a_refusal_that_names_a_guardrail_leads_to_its_switch() -> None:
    refusal = "guardrail batch-share: 40 % of the cluster's CPU requests change at once; at most 10 % may"
    assert (reviewing.rule_of(refusal), reviewing.rule_of("no such thing")) == ("batch-share", "")


def test_failed_rules_are_gathered_with_whom_they_stop() -> None:
    assert reviewing.failed_rules(looks()) == {"history": [(API, "3 days of history")]}
