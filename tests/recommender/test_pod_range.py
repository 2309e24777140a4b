"""LimitRanges of type Pod: what is proposed keeps them, or is left to the guardrail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.cluster import Container, ContainerRole, LimitRange, Workload, pod_amount
from cotenant.base.kube.objects import LimitRangeObject
from cotenant.base.kube.projection import limit_ranges_of
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.profiler.prometheus.kube_state import declared
from cotenant.recommender.model.recommendation import Field
from cotenant.recommender.strategies.cotenant.draft import Draft, Slot
from cotenant.recommender.strategies.cotenant.pod_range import in_pod_range
from tests.support.any_cluster import DAYS, WEB
from tests.support.scenario import Scenario, Track, amount, steady, value

CPU = Resource.CPU
REQUEST, LIMIT = Field.REQUEST, Field.LIMIT
ROLES = {"app": ContainerRole.MAIN, "side": ContainerRole.SIDECAR, "init": ContainerRole.INIT}


def bound(**of: Any) -> LimitRange:
    return LimitRange("shop", CPU, of_pod=True, **of)


def proposed(requests: int, limits: int | None = None, **of: Any) -> dict[str, dict[Field, int]]:
    """What is proposed for two containers that use 400m each and have these amounts now."""
    own = {CPU: requests}, ({CPU: limits} if limits else {})
    two = Workload(WEB, 1, (Container("app", *own), Container("proxy", *own)))
    tracks = [
        Track(WEB, "web-0", cpu=steady(400, DAYS), memory=steady(300 << 20, DAYS), container=c)
        for c in ("app", "proxy")
    ]
    recommendations = Scenario([two], tracks, days=DAYS, history_days=DAYS, limit_ranges=[bound(**of)]).recommendations(
        "cotenant"
    )
    return {
        ref: {f: amount(r, CPU, f) for f in (REQUEST, LIMIT)[: 2 if limits else 1]}
        for ref, r in recommendations.items()
    }


def test_requests_are_not_cut_below_a_pods_minimum() -> None:
    # 429m is wanted for each of 1000m; the pod must have 1200m: 342m more in the sum, 171m less of a cut for each
    drafts = proposed(1000, minimum=1200)
    assert [f[REQUEST] for f in drafts.values()] == [600, 600]


def test_raises_are_scaled_down_to_a_pods_maximum_and_nothing_falls_below_what_is_there() -> None:
    # 200m are there and 429m wanted for each; 600m in the sum leave 100m more for each
    assert [f[REQUEST] for f in proposed(200, maximum=600).values()] == [300, 300]
    assert [f[REQUEST] for f in proposed(200, maximum=300).values()] == [200, 200]


def test_the_reason_says_that_a_limit_range_decided() -> None:
    two = Workload(WEB, 1, (Container("app", {CPU: 1000}),))
    tracks = [Track(WEB, "web-0", cpu=steady(400, DAYS), memory=steady(300 << 20, DAYS), container="app")]
    case = Scenario([two], tracks, days=DAYS, history_days=DAYS, limit_ranges=[bound(minimum=800)])
    proposal = value(case.recommendation("cotenant"), CPU)
    assert (proposal.amount, proposal.reason) == (800, Reason.LIMIT_RANGE)
    assert [clamp.rule for clamp in proposal.clamps][-1] == "LimitRange of namespace shop: pod"


amounts = st.integers(1, 5_000)


@st.composite
def pods(draw: st.DrawFn) -> tuple[Workload, dict[Slot, Draft], dict[int, str]]:
    """A pod that has amounts now, and drafts of some of them; requests never exceed limits."""
    containers, drafts, names = [], {}, {}
    for index, (name, role) in enumerate(ROLES.items()):
        now_request, request = draw(amounts), draw(amounts)
        now_limit, limit = now_request + draw(st.integers(0, 2_000)), request + draw(st.integers(0, 2_000))
        has_limit = draw(st.booleans())
        containers.append(Container(name, {CPU: now_request}, {CPU: now_limit} if has_limit else {}, role))
        if draw(st.booleans()):
            names[index] = name
            drafts[Slot(index, CPU, REQUEST)] = Draft(now_request, request, Reason.OK, "")
            if has_limit:
                drafts[Slot(index, CPU, LIMIT)] = Draft(now_limit, limit, Reason.OK, "")
    return Workload(WEB, 1, tuple(containers)), drafts, names


def sums(of: Workload, drafts: dict[Slot, Draft], names: dict[int, str]) -> tuple[int, int]:
    index = {name: i for i, name in names.items()}

    def new(old_container: Container) -> Container:
        sides: dict[str, Any] = {
            side: {
                **getattr(old_container, side),
                **({CPU: d.amount} if (d := drafts.get(Slot(index.get(old_container.name, -1), CPU, f))) else {}),
            }
            for f, side in ((REQUEST, "requests"), (LIMIT, "limits"))
        }
        return replace(old_container, **sides)

    parts = [new(container) for container in of.containers]
    return pod_amount(parts, CPU), pod_amount(parts, CPU, "limits")


@given(pods(), st.integers(1, 12_000))
def test_a_maximum_only_takes_from_raises(case: Any, most: int) -> None:
    of, drafts, names = case
    bounded = in_pod_range(drafts, of, names, bound(maximum=most))
    assert bounded.keys() == drafts.keys()
    for slot, draft in bounded.items():
        assert min(drafts[slot].amount, draft.now or 0) <= draft.amount <= drafts[slot].amount
    now = sums(of, {}, {})
    # where today's pod keeps the bound, so does the one proposed
    for before, after in zip(now, sums(of, bounded, names), strict=True):
        if before <= most and all(d.amount >= (d.now or 0) for d in drafts.values()):
            assert after <= most


@given(pods(), st.integers(1, 12_000))
def test_a_minimum_only_raises_and_is_reached_where_limits_allow(case: Any, least: int) -> None:
    of, drafts, names = case
    bounded = in_pod_range(drafts, of, names, bound(minimum=least))
    assert all(bounded[slot].amount >= draft.amount for slot, draft in drafts.items())
    for slot, draft in bounded.items():
        limit = bounded.get(replace(slot, field=LIMIT))
        if slot.field is REQUEST and limit is not None:
            assert draft.amount <= max(limit.amount, drafts[slot].amount)
    unlimited = [s for s in drafts if s.field is REQUEST and not of.containers[s.index].limits and s.index < 2]
    if unlimited and not any(container.limits for container in of.containers):
        assert sums(of, bounded, names)[0] >= least


@given(pods(), st.integers(1, 6))
def test_a_ratio_raises_requests_and_leaves_limits(case: Any, ratio: int) -> None:
    of, drafts, names = case
    bounded = in_pod_range(drafts, of, names, bound(max_ratio=float(ratio)))
    assert all(bounded[slot].amount >= draft.amount for slot, draft in drafts.items())
    assert {s: d for s, d in bounded.items() if s.field is LIMIT} == {
        s: d for s, d in drafts.items() if s.field is LIMIT
    }


def test_both_sources_read_bounds_of_pods_beside_those_of_containers() -> None:
    items = [
        {"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "8"}, "maxLimitRequestRatio": {"cpu": "4"}},
        {"type": "Container", "max": {"cpu": "2"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi", "cpu": "1"}},
    ]
    body = {"metadata": {"name": "l", "namespace": "shop"}, "spec": {"limits": items}}
    expected = (LimitRange("shop", CPU, maximum=2000), bound(minimum=1000, maximum=8000, max_ratio=4.0))
    assert limit_ranges_of(msgspec.convert(body, LimitRangeObject)) == expected
    rows = [
        ({"namespace": "shop", "resource": "cpu", "type": kind, "constraint": constraint}, number)
        for kind, constraint, number in (
            ("Pod", "min", 1.0),
            ("Pod", "max", 8.0),
            ("Pod", "maxLimitRequestRatio", 4.0),
            ("Container", "max", 2.0),
            ("PersistentVolumeClaim", "max", 1.0),
        )
    ]
    assert declared.limit_ranges({declared.LIMIT_RANGE: rows}) == expected


@pytest.mark.parametrize("role", ROLES.values())
def test_an_init_container_alone_is_held_at_the_maximum(role: ContainerRole) -> None:
    of = Workload(WEB, 1, (Container("app", {CPU: 100}), Container("other", {CPU: 100}, role=role)))
    drafts = {Slot(1, CPU, REQUEST): Draft(100, 900, Reason.OK, "")}
    bounded = in_pod_range(drafts, of, {1: "other"}, bound(maximum=500))
    # an init container runs alone: 500m; others beside the 100m of app: 400m
    assert bounded[Slot(1, CPU, REQUEST)].amount == (500 if role is ContainerRole.INIT else 400)
