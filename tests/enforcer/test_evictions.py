"""Which evictions may be asked, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.enforcer.contract import Evict, PodSpec
from cotenant.enforcer.decide.evictions import AGAIN_SECONDS, EvictionBudget, Rate, admit_evictions, request_of, unfit


def pod(name: str, **others: Any) -> PodSpec:
    return PodSpec("x", name, f"u-{name}", **others)


def evict_of(name: str) -> Evict:
    return Evict("x", name, f"u-{name}", "memory-evict", "memory is short")


PODS = {f"u-{n}": pod(n) for n in "abcdefgh"}


def test_a_burst_is_asked_at_once_and_the_rest_as_the_bucket_fills() -> None:
    rate = Rate(per_minute=6, burst=3)
    first = admit_evictions([evict_of(n) for n in "abcde"], PODS, EvictionBudget(), 100.0, rate)
    assert [e.name for e in first.now] == ["a", "b", "c"]
    # Six a minute is one in ten seconds.
    early = admit_evictions([evict_of("d")], PODS, first.asked, 109.0, rate)
    assert early.now == ()
    assert [e.name for e in admit_evictions([evict_of("d")], PODS, early.asked, 110.0, rate).now] == ["d"]


def test_a_pod_that_was_asked_is_not_asked_again_before_its_time() -> None:
    first = admit_evictions([evict_of("a")], PODS, EvictionBudget(), 0.0, Rate())
    soon = admit_evictions([evict_of("a")], PODS, first.asked, AGAIN_SECONDS - 1, Rate())
    assert soon.now == ()
    assert [e.name for e in admit_evictions([evict_of("a")], PODS, soon.asked, AGAIN_SECONDS, Rate()).now] == ["a"]


def test_a_rate_of_none_evicts_nobody() -> None:
    assert admit_evictions([evict_of("a")], PODS, EvictionBudget(), 0.0, Rate(per_minute=0)).now == ()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (None, "this node has no such pod"),
        (PodSpec("x", "other", "u-a"), "this node has no such pod"),
        (pod("a", deleting=True), "the pod is already being deleted"),
        (pod("a", static=True), "the pod is static, made from a file on the node"),
        (pod("a", priority=2_000_001_000), "the pod is a system pod"),
        (PodSpec("x", "a", "u-a"), ""),
    ],
)
def test_some_pods_are_never_asked(spec: PodSpec | None, why: str) -> None:
    assert unfit(evict_of("a"), spec) == why


def test_the_request_holds_for_the_very_pod_that_was_looked_at() -> None:
    request = request_of(evict_of("a"), 20)
    assert request.address.path == "/api/v1/namespaces/x/pods/a" and request.subresource == "eviction"
    assert request.body["deleteOptions"] == {"preconditions": {"uid": "u-a"}, "gracePeriodSeconds": 20}
    polite = replace(evict_of("a"), by_api_only=True)
    assert request_of(polite, -1).body["deleteOptions"] == {"preconditions": {"uid": "u-a"}}


def test_a_pod_that_is_to_go_at_once_gets_the_shortest_time_that_a_kubelet_gives() -> None:
    assert request_of(evict_of("a"), -1).body["deleteOptions"]["gracePeriodSeconds"] == 1


@given(
    steps=st.lists(st.tuples(st.floats(0, 30), st.lists(st.sampled_from("abcdefgh"), max_size=8)), max_size=30),
    per_minute=st.integers(0, 60),
    burst=st.integers(1, 5),
)
@settings(max_examples=80)
def test_never_more_than_the_burst_and_what_the_time_brought(
    steps: list[tuple[float, list[str]]], per_minute: int, burst: int
) -> None:
    at, budget, count = 0.0, EvictionBudget(), 0
    for passed, names in steps:
        at += passed
        round_ = admit_evictions([evict_of(n) for n in names], PODS, budget, at, Rate(per_minute, burst))
        budget, count = round_.asked, count + len(round_.now)
        # The bucket begins full and gains per_minute / 60 a second.
        assert count <= (burst + at * per_minute / 60 + 1e-6 if per_minute else 0)
