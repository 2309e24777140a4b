"""What objectives that people wrote say: narrowed queries, owners, documents of any content, ceilings."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.identity import WorkloadRef
from cotenant.changes.decide.regression_check import Measure
from cotenant.changes.model.judgement import RuleVerdict
from cotenant.changes.objectives.belonging import Ownership, Surroundings, ownership
from cotenant.changes.objectives.policy_objectives import objectives_of_policies
from cotenant.changes.objectives.query_labels import Selector, put_labels, selectors_of
from cotenant.changes.objectives.slo_objects import openslo_objectives, pyrra_objectives, sloth_objectives
from tests.changes.test_found_objectives import SETTINGS
from tests.cluster.api import Json
from tests.support import slo_objects


def test_a_query_is_narrowed_in_each_of_its_selectors_and_stays_the_same_query() -> None:
    query = 'sum by (a) (rate(a{x=~"\\\\d+[{]",y!="q\\"}"}[$window] offset 5m)) / on (b) group_left () c # d{}\n or e{}'

    def filled(text: str) -> str:
        return text.replace("$window", "60s")

    narrowed = put_labels(query, lambda _: 'namespace="shop"', filled)
    assert [selector.equal("namespace") for selector in selectors_of(filled(narrowed))] == ["shop"] * 3
    assert narrowed.replace('{namespace="shop"}', "").replace('namespace="shop",', "") == query.replace("e{}", "e")


NAMES = st.sampled_from(["a", "b:c", "http_requests_total", "by", "sum_x"])
MATCHER = st.builds(
    "{}{}{}".format, st.sampled_from(["x", "le", "job"]), st.sampled_from(["=", "!=", "=~", "!~"]),
    st.sampled_from(['"v"', "'{'", "`}`", '"\\"}"', '"1"']),
)  # fmt: skip
SELECTOR = st.builds(
    lambda name, matchers, gap: f"{name}{gap}{{{','.join(matchers)}}}" if matchers else name,
    NAMES.filter(lambda name: name != "by"), st.lists(MATCHER, max_size=3), st.sampled_from(["", " "]),
)  # fmt: skip
AROUND = st.sampled_from(["{}", "sum({})", "rate({}[5m])", "sum by (x) ({})", "max_over_time({}[10m:1m])", "-({})"])


@given(st.lists(st.tuples(SELECTOR, AROUND), min_size=1, max_size=4))
def test_whatever_is_narrowed_has_the_label_in_every_selector_and_nothing_else_changes(
    parts: list[tuple[str, str]],
) -> None:
    query = " + ".join(around.format(selector) for selector, around in parts)
    before = selectors_of(query)
    after = selectors_of(put_labels(query, lambda _: 'namespace="shop"', str))
    assert [(series.metric, series.matchers[1:]) for series in after] == [
        (series.metric, series.matchers) for series in before
    ]
    assert all(series.matchers[0] == ("namespace", "=", "shop") for series in after)


KEYS = st.sampled_from(
    """metadata name namespace labels spec slos sli events errorQuery totalQuery raw errorRatioQuery plugin objective
    target targetPercent window indicator ratio errors total metric latency success latencyNative bool_gauge objectives
    indicatorRef timeWindow duration ratioMetric thresholdMetric good bad rawType counter metricSource type query
    budgetingMethod timeSliceTarget displayName""".split()  # noqa: SIM905
)
TEXTS: Final = (
    "99.9", "0.99", "success", "Prometheus", "Timeslices", "5m", "1e999", "a{}", "sum(rate(a[{{.window}}]))", "{",
    "sum(rate(a[$window])) / 0", "a{x='$'}", "(" * 200, "-" * 500 + "a", "\0", "{{.window}}",
)  # fmt: skip
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.sampled_from(TEXTS))
DOCUMENTS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=25
)
SHAPES = st.fixed_dictionaries({"spec": st.fixed_dictionaries({}, optional={
    "slos": st.lists(st.fixed_dictionaries({"objective": LEAVES, "sli": DOCUMENTS})),
    "target": LEAVES, "indicator": DOCUMENTS, "objectives": st.lists(DOCUMENTS, max_size=2),
})})  # fmt: skip


@pytest.mark.slow
@given(st.one_of(DOCUMENTS, SHAPES), st.dictionaries(st.text(max_size=3), DOCUMENTS, max_size=2))
@settings(max_examples=400, deadline=None)
def test_any_document_of_these_kinds_is_an_objective_or_a_named_reason(body: Any, others: dict[str, Any]) -> None:
    slos = [*sloth_objectives(body), *pyrra_objectives(body), *openslo_objectives(body, others, others)]
    assert slos
    for slo in slos:
        assert bool(slo.reason) != bool(slo.query)
        assert slo.reason or (slo.promised is not None and 0 < slo.promised <= 1 and selectors_of(
            slo.query.replace("$window", "5m").replace("$$", "$")))  # fmt: skip


OTHERS: Final = (("web-api-7d4b-x2x9z", {"app": "web-api", "tier": "front"}),)
NEAR: Final = Surroundings(
    WorkloadRef("shop", "Deployment", "web"), {"app": "web", "tier": "front"}, {"web": True, "front": False}, OTHERS
)


@pytest.mark.parametrize(
    ("matchers", "labels", "owner"),
    [
        ([("pod", "=~", "web-[a-z0-9]+-[a-z0-9]{5}")], {}, Ownership.OWN),
        ([("deployment", "=", "web")], {}, Ownership.OWN),
        ([("service", "=", "web")], {}, Ownership.OWN),
        ([("app", "=", "web")], {}, Ownership.OWN),
        ([("namespace", "=", "shop"), ("job", "=", "x"), ("app", "=", "web")], {}, Ownership.OWN),
        ([("job", "=", "web")], {"app": "web"}, Ownership.BY_OBJECT),
        ([("job", "=", "web")], {}, Ownership.UNKNOWN),
        ([("pod", "=~", "web-.*")], {}, Ownership.UNKNOWN),  # web-api's pods, too
        ([("pod", "=~", ".*")], {}, Ownership.UNKNOWN),
        ([("pod", "=~", "(web|api)-.*")], {}, Ownership.UNKNOWN),
        ([("service", "=", "nobody")], {}, Ownership.UNKNOWN),
        ([("service", "=", "front")], {}, Ownership.OTHER),
        ([("pod", "=~", "api-.*")], {}, Ownership.OTHER),
        ([("deployment", "=", "api")], {}, Ownership.OTHER),
        ([("statefulset", "=", "web")], {}, Ownership.OTHER),
        ([("app", "=", "api")], {}, Ownership.OTHER),
        ([("job", "=", "web")], {"app": "api"}, Ownership.OTHER),
        ([("namespace", "=", "audit"), ("deployment", "=", "web")], {}, Ownership.OTHER),
    ],
)
def test_an_objective_belongs_to_whom_its_query_or_its_object_names(
    matchers: list[tuple[str, str, str]], labels: dict[str, str], owner: Ownership
) -> None:
    assert ownership([Selector("m", tuple(matchers))], NEAR, "shop", labels) is owner


LIVE: Final = {"metadata": {"name": "web", "namespace": "shop", "labels": {"tier": "web"}}}
ASKED: Final = {"name": "p99", "measure": "Latency", "query": 'max(p99{namespace="$namespace"})', "ceiling": 0.3}


@pytest.mark.parametrize(
    ("spec", "rules", "refused"),
    [
        ({"objectives": [ASKED]}, ["p99 latency (policy a: p99)"], []),
        ({"objectives": [ASKED], "selector": {"matchLabels": {"tier": "web"}}}, ["p99 latency (policy a: p99)"], []),
        ({"objectives": [ASKED], "selector": {"matchLabels": {"tier": "db"}}}, [], []),
        ({"objectives": [ASKED], "mode": "Off"}, [], []),
        ({}, [], []),
        ({"objectives": [{**ASKED, "query": "max(p99)"}]}, [], ["p99 latency (policy a: p99)"]),
        ({"objectives": [{**ASKED, "ceiling": -1}]}, [], ["failed requests (policy a)"]),
        ({"objectives": [{"name": "p99"}]}, [], ["failed requests (policy a)"]),
        ({"objectives": "none"}, [], ["failed requests (policy a)"]),
    ],
)
def test_a_policys_objectives_guard_the_workloads_that_it_selects(
    spec: Json, rules: list[str], refused: list[str]
) -> None:
    objectives, faults = objectives_of_policies([slo_objects.policy("shop", "a", spec)], LIVE)
    assert [objective.rule for objective in objectives] == rules and [fault.rule for fault in faults] == refused
    # What is refused is said, and keeps the change from a verdict.
    assert all(fault.error and fault.after is None for fault in faults)


@given(st.dictionaries(st.sampled_from(["objectives", "mode", "selector", "name"]), DOCUMENTS))
def test_any_policy_gives_objectives_or_reasons(spec: Json) -> None:
    objectives, faults = objectives_of_policies([slo_objects.policy("shop", "a", spec)], LIVE)
    assert all(objective.query and objective.ceiling for objective in objectives) and all(
        fault.error for fault in faults
    )


def test_a_ceiling_decides_where_the_change_may_have_broken_it() -> None:
    from cotenant.changes.decide.regression_check import Compared, check_measure

    def verdict(before: float | None, after: float | None, measure: Measure = Measure.ERRORS) -> RuleVerdict:
        return check_measure(Compared(measure, before, after, name="n", ceiling=0.02), SETTINGS).verdict

    assert [verdict(0.0, 0.02), verdict(0.0, 0.021), verdict(None, 0.02)] == [
        RuleVerdict.KEPT, RuleVerdict.WORSE, RuleVerdict.KEPT
    ]  # fmt: skip
    # Broken before: the usual rule decides, which allows a hundredth more, or a fifth of a latency.
    assert [verdict(0.03, 0.035), verdict(0.03, 0.041)] == [RuleVerdict.KEPT, RuleVerdict.WORSE]
    assert [verdict(0.03, 0.036, Measure.LATENCY), verdict(0.03, 0.037, Measure.LATENCY)] == [
        RuleVerdict.KEPT, RuleVerdict.WORSE
    ]  # fmt: skip
    # Nobody knows whether the change broke it, or whether it is broken.
    assert [verdict(None, 0.03), verdict(0.0, None)] == [RuleVerdict.NO_DATA, RuleVerdict.NO_DATA]
