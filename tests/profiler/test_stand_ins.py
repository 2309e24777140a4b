"""Totals against the rule of a total, told slot by slot, for random series, lives and groups."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cotenant.base.cluster import Inventory, Pod
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.usage.sparse_usage import SparseUsage, Stretch, of_stretches
from cotenant.base.usage.usage import FloatMatrix, Statistic, TimeGrid, Usage
from cotenant.profiler.pool import by_workload, partial_totals, total

START, STEP, HOLD_SLOTS, MEMBERS, SLOTS = 1_699_833_600, 300, 12, 5, 30
Life = tuple[float, float | None]
"""Start and end of a pod in slots of the grid; None = it runs."""

values_of_members = arrays(
    np.float32,
    (MEMBERS, SLOTS),
    elements=st.one_of(st.just(np.float32("nan")), st.just(np.float32("nan")), st.integers(0, 2**20)),
)
moments = st.integers(-20, SLOTS + 10).map(float) | st.integers(-20, SLOTS + 10).map(lambda slot: slot + 0.5)
lives_of_names = st.lists(
    st.lists(st.tuples(moments, st.none() | moments), max_size=2), min_size=MEMBERS, max_size=MEMBERS
)
groups_of_names = st.lists(st.sampled_from("abc"), min_size=MEMBERS, max_size=MEMBERS)


def cluster(
    values: FloatMatrix, lives: Sequence[Sequence[Life]], groups: Sequence[str]
) -> tuple[Usage[PodContainerRef], Inventory]:
    """Series of one container a pod name; names without a life are unknown to the inventory."""
    names = [f"pod-{number}" for number in range(len(values))]
    pods = tuple(
        Pod(
            "shop",
            name,
            WorkloadRef("shop", "Deployment", group),
            "node",
            int(START + STEP * begin),
            None if end is None else int(START + STEP * end),
        )
        for name, group, of_name in zip(names, groups, lives, strict=True)
        for begin, end in of_name
    )
    grid = TimeGrid(START, STEP, values.shape[1])
    refs = tuple(PodContainerRef("shop", name, "app") for name in names)
    return Usage(refs, grid, values, Resource.CPU, Statistic.MEAN), Inventory("test", START, (), (), pods)


def group_total(values: FloatMatrix, lives: Sequence[Sequence[Life]]) -> list[float]:
    """The total of one group by the rule at the head of `cotenant.profiler.pool`, one slot after another."""
    totals: list[float] = []
    for slot in range(values.shape[1]):
        if np.isfinite(values[:, slot]).any():
            pairs = zip(values, lives, strict=True)
            totals.append(float(np.float32(sum(told_of_member(row, of_name, slot) for row, of_name in pairs))))
        elif not np.isfinite(values[:, :slot]).any():
            totals.append(np.nan)  # before the first sample of all
        else:
            totals.append(np.nan if any(may_live(of_name, slot) for of_name in lives) else 0.0)
    return totals


def told_of_member(row: FloatMatrix, lives: Sequence[Life], slot: int) -> float:
    if np.isfinite(row[slot]):
        return float(row[slot])
    before, after = np.flatnonzero(np.isfinite(row[:slot])), np.isfinite(row[slot:]).any()
    if not len(before):
        return 0.0
    last = int(before[-1])
    began_anew = bool(lives) and max(begin for begin, _ in lives) >= last + 1
    within_hour = slot - last <= HOLD_SLOTS and slot < end_of(lives)
    return float(row[last]) if (after and not began_anew) or within_hour else 0.0


def end_of(lives: Sequence[Life]) -> float:
    """End of the last pod of a name; of a name that nobody knows it is not known that it ended."""
    return max((np.inf if end is None else end for _, end in lives), default=np.inf)


def may_live(lives: Sequence[Life], slot: int) -> bool:
    begin = min((begin for begin, _ in lives), default=-np.inf)
    return begin < slot + 1 and slot < end_of(lives)


def thin(usage: Usage[PodContainerRef]) -> SparseUsage[PodContainerRef]:
    rows = np.arange(len(usage.refs))
    return of_stretches(usage.refs, usage.grid, [Stretch(rows, 0, usage.values)], usage.resource, usage.statistic)


@given(values_of_members, lives_of_names, groups_of_names)
def test_totals_follow_the_rule_slot_by_slot(values: FloatMatrix, lives: list[list[Life]], groups: list[str]) -> None:
    # A pod that nobody knows stands for itself: its group is its own name.
    usage, inventory = cluster(values, lives, groups)
    members = by_workload(usage.refs, inventory)
    expected = []
    for ref in members.refs:
        rows = [i for i in range(MEMBERS) if (groups[i] if lives[i] else f"pod-{i}") == ref.name]
        expected.append(group_total(values[rows], [lives[i] for i in rows]))
    for series in (usage, thin(usage)):
        np.testing.assert_array_equal(total(series, members).values, np.array(expected, dtype=np.float32))


@given(values_of_members, lives_of_names, groups_of_names)
def test_what_stands_in_is_the_same_where_cells_end_in_gaps(
    values: FloatMatrix, lives: list[list[Life]], groups: list[str]
) -> None:
    """Samples that cannot be usage become gaps, so that the cells of a series may begin and end without a sample."""
    usage, inventory = cluster(values, lives, groups)
    wide = SparseUsage(
        usage.refs,
        usage.grid,
        np.zeros(MEMBERS, dtype=np.int64),
        SLOTS * np.arange(MEMBERS + 1),
        usage.values.ravel(),
        usage.resource,
        usage.statistic,
    )
    members = by_workload(usage.refs, inventory)
    np.testing.assert_array_equal(total(wide, members).values, total(thin(usage), members).values)


def test_many_groups_are_summed_as_each_alone() -> None:
    # 1,300 series are more than are copied at once; group sizes 1..650, so that one group alone is more than that.
    rng = np.random.default_rng(5)
    values = rng.integers(0, 2**20, (1300, SLOTS)).astype(np.float32)
    values[rng.random(values.shape) < 0.3] = np.nan
    sizes = [650, *itertools.repeat(1, 50), *itertools.repeat(40, 15)]
    groups = [f"group-{number:03d}" for number, size in enumerate(sizes) for _ in range(size)]
    order = rng.permutation(1300)
    groups = [groups[place] for place in order]
    lives: list[list[Life]] = [[(float(rng.integers(-5, 5)), None)] for _ in range(1300)]
    usage, inventory = cluster(values, lives, groups)
    members = by_workload(usage.refs, inventory)
    totals, parts = total(thin(usage), members), partial_totals(thin(usage), members)
    assert parts.groups.tolist() == list(range(len(sizes)))
    for place, ref in enumerate(members.refs):
        rows = np.array([i for i, group in enumerate(groups) if group == ref.name])
        alone = by_workload([usage.refs[i] for i in rows], inventory)
        np.testing.assert_array_equal(totals.values[place], total(thin(usage).take(rows), alone).values[0])
        np.testing.assert_array_equal(parts.reported[place], np.isfinite(values[rows]).any(axis=0))
