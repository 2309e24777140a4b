"""A workload's own latency query reads its own namespace, and not too much of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.changes.soak.own_series import MOST_CHARACTERS, NAMESPACE_LABELS, check_own

OWN = 'rate(latency_bucket{namespace="shop",le="1"}[5m])'
FOREIGN = 'rate(latency_bucket{namespace="audit",le="1"}[5m])'


@pytest.mark.parametrize(
    "query",
    [
        OWN,
        f"histogram_quantile(0.99, sum by (le) ({OWN}))",
        f"{OWN} / {OWN}",
        f"max_over_time(({OWN})[1h:1m])",
        'istio_request_duration_milliseconds_bucket{destination_workload_namespace="shop"}',
        'foo{exported_namespace="shop",namespace="ingress"}',
        "vector(1)",
        '{"latency_bucket", namespace="shop"}',
        '{__name__="latency_bucket", namespace="shop"}',
        'foo{namespace="shop"} / foo{namespace="shop"} offset 1w',
        f"max_over_time(({OWN})[1d:1m] @ end())",
        f"avg_over_time(max_over_time(({OWN})[5m:1m])[1h:5m])",  # 5 x 12 evaluations
        f"{OWN} # or latency_bucket",
    ],
)
def test_a_query_of_the_own_namespace_is_asked(query: str) -> None:
    check_own(query, "shop", "cotenant.dev/latency-query")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("latency_bucket", "reads more than namespace shop: latency_bucket"),
        (FOREIGN, "reads more than namespace shop"),
        ('foo{namespace=~"shop|audit"}', "reads more than namespace shop"),
        ('foo{namespace!="audit"}', "reads more than namespace shop"),
        ('{__name__=~".+"}', "reads more than namespace shop"),
        ('foo{namespace="shop" or namespace="audit"}', "reads more than namespace shop"),
        (f"{OWN} or on() {FOREIGN}", "reads more than namespace shop"),
        (f"label_replace({FOREIGN}, 'namespace', 'shop', '', '')", "reads more than namespace shop"),
        (f"{OWN} > on() group_left() count(up)", "reads more than namespace shop: up"),
        (OWN.replace("5m", "30d"), "looks 30 days back"),
        (f"max_over_time(({OWN})[1h:1s])", "evaluates every 1 s"),
        (f"max_over_time(({OWN})[90d:1h])", "looks 90 days back"),
        # A namespace has thousands of series: which metric of it is said as well.
        ('{namespace="shop"}', "reads more than one metric"),
        ('{__name__=~".+",namespace="shop"}', "reads more than one metric"),
        ('count({__name__!="x",namespace="shop"})', "reads more than one metric"),
        # Evaluations multiply: 1,440 minutes of a day, each of 1,440 minutes; and 60 x 60.
        (f"max_over_time(max_over_time(({OWN})[1d:1m])[1d:1m])", "evaluates 2,073,600 times"),
        (f"sum_over_time((1 + max_over_time(({OWN})[1h:]))[1h:])", "evaluates 3,600 times"),
        # A moment of the past is no latency of now.
        (f"({OWN}) + foo{{namespace='shop'}} @ 0", "reads samples of a fixed time"),
        ('foo{namespace="shop"} offset 90d', "has an offset of 90 days"),
        (f"sum_over_time(({OWN})[5m:1m] offset -30d)", "has an offset of 30 days"),
        # info() adds labels of target_info of whoever has the same instance and job.
        ('info(foo{namespace="shop"})', r"by info\(\)"),
        (f"({OWN}) or label_replace(audit, 'namespace', 'shop', '', '')", "reads more than namespace shop: audit"),
        ("foo{", "is not valid PromQL"),
        ("x" * (MOST_CHARACTERS + 1), f"{MOST_CHARACTERS + 1} characters"),
    ],
)
def test_any_other_is_refused_with_what_it_reads(query: str, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("|", r"\|")) as refusal:
        check_own(query, "shop", "cotenant.dev/latency-query")
    assert refusal.value.fix


SELECTORS = st.builds(
    lambda name, label, value: (f'{name}{{{label}="{value}"}}', label in NAMESPACE_LABELS and value == "shop"),
    st.sampled_from(["a", "b:c", "http_requests_total"]),
    st.sampled_from([*NAMESPACE_LABELS, "job", "pod"]),
    st.sampled_from(["shop", "audit", "shop2", ""]),
)
AROUND = st.sampled_from(
    ["{}", "sum({})", "rate({}[5m])", "-({})", "max_over_time({}[10m:1m])", "({} offset 1h)", "topk(3, {})"]
)


@given(st.lists(st.tuples(SELECTORS, AROUND), min_size=1, max_size=4), st.sampled_from(["+", "or", "and on()"]))
def test_a_query_is_own_when_every_selector_is(parts: list[tuple[tuple[str, bool], str]], operator: str) -> None:
    query = f" {operator} ".join(around.format(selector) for (selector, _), around in parts)
    own = all(own for (_, own), _ in parts)
    try:
        check_own(query, "shop", "cotenant.dev/latency-query")
    except UsageError:
        assert not own
    else:
        assert own
