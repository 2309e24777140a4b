"""Runtime quota: the figures of Koordinator's own tables, and what must hold for every tree."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.queues.quota_round import random_tree
from cotenant.base.kubernetes.protocol import ROOT_QUOTA
from cotenant.base.kubernetes.quota_tree import QuotaNode
from cotenant.scheduler_ext.queues.runtime_quota import RuntimeQuota, Siblings, layout_of, runtime_quota, scaled_minimum
from tests.scheduler_ext.queues.plain_quota import plain_runtime

GIB = 2**30


def quota(
    name: str, maximum: int, minimum: int, parent: str = ROOT_QUOTA, *, weight: int | None = None, lends: bool = True
) -> QuotaNode:
    weights = {} if weight is None else {"cpu": weight}
    return QuotaNode(
        name, parent=parent, maximum={"cpu": maximum}, minimum={"cpu": minimum}, shared_weight=weights, lends=lends
    )


def computed(
    quotas: Mapping[str, QuotaNode], total: int, requests: Mapping[str, int], *, scaling: bool = True
) -> tuple[dict[str, int], RuntimeQuota]:
    layout = layout_of(quotas)
    result = runtime_quota(
        layout, {"cpu": total}, layout.array({n: {"cpu": r} for n, r in requests.items()}), scaling=scaling
    )
    return {name: int(result.runtime[row, 0]) for name, row in layout.row_of.items()}, result


def runtimes(total: int, requests: Mapping[str, int], *quotas: QuotaNode, scaling: bool = True) -> dict[str, int]:
    return computed({q.name: q for q in quotas}, total, requests, scaling=scaling)[0]


class TestTablesOfKoordinator:
    """Figures of `core/runtime_quota_calculator_test.go` and `core/group_quota_manager_test.go`."""

    def test_four_groups_of_a_hundred(self) -> None:
        four = (
            quota("node1", 1000, 10, weight=40),
            quota("node2", 1000, 15, weight=60),
            quota("node3", 1000, 20, weight=50),
            quota("node4", 1000, 15, weight=80),
        )
        requests = {"node1": 5, "node2": 20, "node3": 40, "node4": 70}
        assert runtimes(100, requests, *four) == {"node1": 5, "node2": 20, "node3": 35, "node4": 40}

    @pytest.mark.parametrize(("first", "expected"), [(0, (0, 90)), (30, (30, 70)), (60, (55, 45))])
    def test_a_group_that_comes_back_gets_its_guarantee(self, first: int, expected: tuple[int, int]) -> None:
        """Their last line is 60 and 50 of 100, as no min is scaled in it; what we give never exceeds the total."""
        two = (quota("test1", 80, 60, weight=1), quota("test2", 100, 50, weight=1))
        assert tuple(runtimes(100, {"test1": first, "test2": 90}, *two, scaling=False).values()) == expected

    def test_two_groups_beyond_their_min(self) -> None:
        two = (quota("test1", 80, 50, weight=1), quota("test2", 100, 50, weight=1))
        assert runtimes(120, {"test1": 100}, two[0]) == {"test1": 80}
        assert runtimes(120, {"test1": 100, "test2": 150}, *two) == {"test1": 60, "test2": 60}

    def test_equal_weights_share_what_no_min_covers(self) -> None:
        two = (quota("test1", 96, 50), quota("test2", 96, 40))
        assert runtimes(96, {"test1": 120}, *two) == {"test1": 96, "test2": 0}
        assert runtimes(96, {"test1": 120, "test2": 150}, *two) == {"test1": 53, "test2": 43}

    def test_a_group_that_does_not_lend_keeps_its_min(self) -> None:
        two = (quota("test1", 96, 60), quota("test2", 96, 40, lends=False))
        assert runtimes(100, {"test1": 120}, *two) == {"test1": 60, "test2": 40}

    @pytest.mark.parametrize(
        ("lends", "request_of_first", "expected"),
        [
            ((False, False, False), 0, (60, 20, 20)),
            ((False, False, False), 40, (60, 40, 20)),
            ((False, False, False), 60, (80, 60, 20)),
            ((True, False, True), 0, (20, 20, 0)),
            ((True, False, True), 40, (40, 40, 0)),
            ((True, False, True), 60, (60, 60, 0)),
            ((True, False, False), 0, (40, 20, 20)),
            ((True, False, False), 40, (60, 40, 20)),
            ((True, False, False), 60, (80, 60, 20)),
        ],
    )
    def test_what_is_not_lent_is_requested_of_the_parent(
        self, lends: tuple[bool, bool, bool], request_of_first: int, expected: tuple[int, int, int]
    ) -> None:
        top, first, second = lends
        tree = (
            quota("top", 96, 60, lends=top),
            quota("first", 96, 20, "top", lends=first),
            quota("second", 96, 20, "top", lends=second),
        )
        quota_runtimes = runtimes(100, {"first": request_of_first}, *tree)
        assert (quota_runtimes["top"], quota_runtimes["first"], quota_runtimes["second"]) == expected

    @pytest.mark.parametrize(("request_", "expected"), [(10, 10), (25, 25), (55, 30)])
    def test_requests_go_up_as_far_as_each_max(self, request_: int, expected: int) -> None:
        tree = (quota("test1", 96, 80), quota("test1-a", 60, 50, "test1"), quota("a-123", 30, 20, "test1-a"))
        assert set(runtimes(96, {"a-123": request_}, *tree).values()) == {expected}

    def test_max_beyond_the_parent_and_beyond_the_total(self) -> None:
        tree = (quota("test1", 600, 100), quota("test1-sub1", 500, 100, "test1"))
        assert runtimes(300, {"test1-sub1": 500}, *tree) == {"test1": 300, "test1-sub1": 300}

    @pytest.mark.parametrize("total", [200_000, 200 * GIB], ids=["millicores", "bytes"])
    def test_guarantees_shrink_with_the_cluster(self, total: int) -> None:
        """Three times min 100 in a cluster of 200: a third each, the two units of the remainder by name."""
        family = [quota(name, 5 * total, total // 2, "p") for name in "abc"]
        quotas = {q.name: q for q in [quota("p", 5 * total, total * 3 // 2), *family]}
        quota_runtimes, result = computed(quotas, total, dict.fromkeys("abc", total))
        third = total // 3
        assert result.minimum[:, 0].tolist() == [total, third, third, third]
        assert [quota_runtimes[n] for n in "abc"] == [third + 1, third + 1, third]
        idle, _ = computed(quotas, total, {"a": total, "c": total})
        assert [idle[n] for n in "abc"] == [total // 2, 0, total // 2]
        large, result = computed(quotas, 3 * total, dict.fromkeys("abc", total))
        assert [large[n] for n in "abc"] == [total] * 3 and result.minimum[1:, 0].tolist() == [total // 2] * 3

    @pytest.mark.parametrize(("pool", "expected"), [(200, (50, 50, 50)), (100, (50, 25, 25)), (50, (50, 0, 0))])
    def test_a_group_that_does_not_scale_keeps_its_min(self, pool: int, expected: tuple[int, ...]) -> None:
        """Figures of `core/scale_minquota_when_over_root_res_test.go`."""
        family = Siblings(0, 3, np.array([-1]), np.array([0]), np.zeros(3, dtype=np.intp))
        minimum = np.full((3, 1), 50)
        scales = np.array([False, True, True])
        assert scaled_minimum(minimum, scales, np.array([[pool]]), family)[:, 0].tolist() == list(expected)


def test_ties_go_by_name_and_not_by_the_order_of_objects() -> None:
    quotas = {n: quota(n, 10, 0, weight=1) for n in "cab"}
    assert runtimes(5, dict.fromkeys("abc", 10), *quotas.values()) == {"a": 2, "b": 2, "c": 1}


def test_a_group_of_weight_zero_borrows_nothing() -> None:
    two = (
        QuotaNode("a", maximum={"cpu": 10, "memory": 5}, shared_weight={"cpu": 0, "memory": 5}),
        quota("b", 10, 0),
    )
    assert runtimes(10, {"a": 10, "b": 3}, *two) == {"a": 0, "b": 3}


def test_pods_right_in_a_parent_come_before_its_children() -> None:
    tree = (quota("top", 10, 10), quota("leaf", 10, 0, "top"))
    assert runtimes(10, {"top": 4, "leaf": 10}, *tree) == {"top": 10, "leaf": 6}


def test_a_total_below_zero_is_none() -> None:
    assert runtimes(-5, {"a": 3}, quota("a", 10, 5)) == {"a": 0}


amounts = st.one_of(st.integers(0, 50), st.integers(0, 2**63 - 1), st.integers(0, 64).map(lambda g: g * GIB))


@st.composite
def trees(draw: st.DrawFn) -> tuple[dict[str, QuotaNode], int, dict[str, int]]:
    """A tree of up to nine groups with figures of every size, a total, requests of any of its groups."""
    names = [f"q{i}" for i in draw(st.permutations(range(draw(st.integers(1, 9)))))]
    quotas: dict[str, QuotaNode] = {}
    for name in names:
        parent = draw(st.sampled_from([ROOT_QUOTA, *quotas]))
        maximum = draw(amounts)
        weight = draw(st.one_of(st.none(), st.integers(1, 100), amounts))
        quotas[name] = quota(
            name, maximum, min(maximum, draw(amounts)), parent, weight=weight, lends=draw(st.integers(0, 3)) > 0
        )
    return quotas, draw(amounts), {name: draw(amounts) for name in names if draw(st.booleans())}


@given(trees(), st.booleans())
@settings(max_examples=60)
def test_arrays_give_what_the_rules_give_one_by_one(
    drawn: tuple[dict[str, QuotaNode], int, dict[str, int]], scaling: bool
) -> None:
    quotas, total, requests = drawn
    expected = plain_runtime(quotas, total, requests, "cpu", scaling)
    assert computed(quotas, total, requests, scaling=scaling)[0] == expected
    assert computed(dict(reversed(quotas.items())), total, requests, scaling=scaling)[0] == expected


@given(trees())
@settings(max_examples=60)
def test_what_holds_for_every_tree(drawn: tuple[dict[str, QuotaNode], int, dict[str, int]]) -> None:
    quotas, total, requests = drawn
    quota_runtimes, result = computed(quotas, total, requests)
    limited = np.minimum(result.request, layout_of(quotas).maximum)
    row_of = layout_of(quotas).row_of
    for parent in [ROOT_QUOTA, *quotas]:
        family = [q for q in quotas.values() if q.parent == parent]
        pool = total if parent == ROOT_QUOTA else max(0, quota_runtimes[parent] - requests.get(parent, 0))
        given_out = sum(quota_runtimes[q.name] for q in family)
        assert given_out <= pool
        hungry = [q for q in family if quota_runtimes[q.name] < limited[row_of[q.name], 0] and weight_of(q) > 0]
        assert not hungry or given_out == pool, "somebody is hungry while something is idle"
    for name, quota_ in quotas.items():
        assert quota_runtimes[name] <= max(quota_.maximum["cpu"], result.minimum[row_of[name], 0])
        assert quota_runtimes[name] >= min(limited[row_of[name], 0], result.minimum[row_of[name], 0])


def weight_of(node: QuotaNode) -> int:
    return node.shared_weight.get("cpu", 0) or (0 if any(node.shared_weight.values()) else node.maximum["cpu"])


@given(trees(), st.integers(0, 100))
@settings(max_examples=30)
def test_a_group_that_asks_for_more_gets_no_less(
    drawn: tuple[dict[str, QuotaNode], int, dict[str, int]], more: int
) -> None:
    quotas, total, requests = drawn
    name = sorted(quotas)[0]
    before = computed(quotas, total, requests)[0][name]
    after = computed(quotas, total, {**requests, name: requests.get(name, 0) + more})[0][name]
    assert after >= before - len(quotas)  # a remainder may go to another name when the family of the hungry changes


def test_a_thousand_groups_in_five_depths_equal_the_plain_rules() -> None:
    """The tree of bench/queues/quota_round.py; memory in single bytes takes the way of Python's integers."""
    quotas, requests, total = random_tree(random.Random(3), depths=(3, 10, 30, 60, 120), odd_bytes=True)
    layout = layout_of(quotas)
    result = runtime_quota(layout, total, layout.array(requests))
    for resource, column in layout.column_of.items():
        expected = plain_runtime(
            quotas, total[resource], {n: r.get(resource, 0) for n, r in requests.items()}, resource
        )
        assert {n: int(result.runtime[row, column]) for n, row in layout.row_of.items()} == expected
