"""Lanes: every sample keeps its slot, series of one lane never meet, and no lane holds two groups."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.usage.lanes import Lanes

SIZE = 24
LIVES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, SIZE - 1), st.integers(0, SIZE)), min_size=1, max_size=12)


def values_of(lives: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Groups, and values (m, SIZE) that tell row and slot; a life is (group, first slot, number of slots)."""
    values = np.full((len(lives), SIZE), np.nan, dtype=np.float32)
    for row, (_, first, count) in enumerate(lives):
        slots = np.arange(first, min(SIZE, first + count))
        values[row, slots] = 100 * row + slots
    return np.array([group for group, _, _ in lives]), values


@settings(deadline=None)
@given(LIVES, st.integers(1, 6), st.integers(0, 5))
def test_every_sample_is_in_its_groups_lane_at_its_slot_and_blocks_are_not_shared(
    lives: list[tuple[int, int, int]], width: int, lead: int
) -> None:
    groups, values = values_of(lives)
    lanes = Lanes.of(~np.isnan(values), groups, width, lead)
    packed = lanes.pack(values)
    assert np.isfinite(packed).sum() == np.isfinite(values).sum()
    owners: dict[tuple[int, int], int] = {}
    for row, slot in np.argwhere(~np.isnan(values)).tolist():
        lane = int(lanes.lane[row])
        assert packed[lane, slot] == values[row, slot]
        assert lanes.groups[lane] == groups[row]
        if len(set(groups.tolist())) < len(groups):
            assert owners.setdefault((lane, (slot + lead) // width), row) == row


def test_pods_that_follow_each_other_share_a_row_and_those_at_once_do_not() -> None:
    # Group 7: slots 0-3, 4-7 and 2-5 (the third meets both); group 8: slots 0-7. Two lanes and one.
    groups, values = values_of([(7, 0, 4), (8, 0, 8), (7, 4, 4), (7, 2, 4)])
    lanes = Lanes.of(~np.isnan(values), groups)
    assert lanes.groups.tolist() == [7, 7, 8]
    assert lanes.lane.tolist() == [0, 2, 0, 1]


def test_blocks_of_a_series_come_back_from_its_first_one_on() -> None:
    # Blocks of two slots: the pods have blocks 0-1 and 2-3 of one lane; each gets its own two.
    groups, values = values_of([(1, 0, 4), (1, 4, 4)])
    lanes = Lanes.of(~np.isnan(values), groups, 2)
    sums = lanes.pack(values)[:, :8].reshape(1, 4, 2).sum(axis=2)
    assert lanes.blocks(sums, 2, 0).tolist() == [[0 + 1, 2 + 3], [104 + 105, 106 + 107]]


def test_a_series_without_samples_has_no_block() -> None:
    # The window begins one slot inside a block of two; the second pod of the group has no sample in it.
    groups, values = values_of([(1, 0, 4), (1, 0, 0)])
    lanes = Lanes.of(~np.isnan(values), groups, 2, 1)
    assert lanes.blocks(np.arange(3.0)[None], 2, 1).tolist()[0] == [0, 1, 2]
    assert np.isnan(lanes.blocks(np.arange(3.0)[None], 2, 1)[1]).all()
    nobody = Lanes.of(np.zeros((2, SIZE), dtype=bool), groups, 2, 1)
    assert nobody.blocks(np.zeros((0, 13)), 2, 1).shape == (2, 0)


@settings(deadline=None)
@given(LIVES)
def test_a_group_has_as_many_lanes_as_pods_at_once(lives: list[tuple[int, int, int]]) -> None:
    groups, values = values_of(lives)
    lanes = Lanes.of(~np.isnan(values), groups)
    alive = ~np.isnan(values)
    at_once = [int(alive[groups == group].sum(axis=0).max()) for group in np.unique(groups)]
    assert len(lanes.groups) == (sum(at_once) if len(at_once) < len(groups) else len(groups))
