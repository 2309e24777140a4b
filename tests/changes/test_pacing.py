"""How a batch of any size is divided into waves: never more workloads at a time, or CPU, than the guardrails allow."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from cotenant.changes.decide.pacing import waves_of
from cotenant.changes.model.settings import GuardrailSettings

LIMITS = GuardrailSettings()  # 20 workloads, 10 % of all requested CPU


def test_so_many_workloads_go_at_a_time() -> None:
    # 721 in waves of 20: 36 of them and one of a single workload.
    waves = waves_of([0] * 721, 0, LIMITS)
    assert waves[-1] == 36 and max(waves.count(wave) for wave in set(waves)) == 20
    assert waves_of([0] * 20, 0, LIMITS) == [0] * 20
    assert set(waves_of([0] * 721, 0, LIMITS, overridden=["batch-size"])) == {0}


def test_a_wave_moves_no_larger_share_of_the_cpu_than_the_setting() -> None:
    # A tenth of 10,000 is 1,000: 600 and 400, then 700, then 500 and 500.
    assert waves_of([600, 400, 700, 500, 500], 10_000, LIMITS) == [0, 0, 1, 2, 2]
    assert waves_of([600, 400, 700, 500, 500], 10_000, LIMITS, overridden=["batch-share"]) == [0] * 5
    assert waves_of([600, 400, 700, 500, 500], 0, LIMITS) == [0] * 5  # the cluster's requests are not known


def test_a_canary_goes_alone_and_the_rest_is_paced() -> None:
    # A tenth of 30 is 3; the other 27 in 20 and 7.
    waves = waves_of([0] * 30, 0, LIMITS, canary=0.1)
    assert [waves.count(wave) for wave in (0, 1, 2)] == [3, 20, 7]
    assert waves_of([0, 0, 0], 0, LIMITS, canary=0.5) == [0, 0, 1]


@given(st.lists(st.integers(0, 900), max_size=90), st.floats(0, 0.9), st.integers(1, 30))
def test_every_wave_keeps_both_bounds_and_the_order(moved: list[int], canary: float, most: int) -> None:
    limits = GuardrailSettings(most_workloads=most)
    waves = waves_of(moved, 10_000, limits, canary)
    assert waves == sorted(waves) and sorted(set(waves)) == list(range(max(waves, default=-1) + 1))
    for _, pairs in groupby(zip(waves, moved, strict=True), key=lambda pair: pair[0]):
        amounts = [amount for _, amount in pairs]
        assert len(amounts) <= most and sum(amounts) <= 1_000
