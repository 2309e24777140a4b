"""The life of a container, found for many pods at once, against what is known of each of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cotenant.base.cluster import Inventory, Pod
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.usage.lives import Lives, SourceSilence
from cotenant.base.usage.samples import Members, longest_stretch
from cotenant.base.usage.sparse_usage import Stretch, of_stretches
from cotenant.base.usage.usage import FloatMatrix, Signal, Statistic, TimeGrid

START, PODS, HOURS = 1_699_833_600, 4, 4
SLOTS = 12 * HOURS
GRID, HOURLY = TimeGrid(START, 300, SLOTS), TimeGrid(START, 3600, HOURS)
GAPS = st.one_of(st.just(np.float32("nan")), st.just(np.float32("nan")), st.integers(1, 9))


@given(
    arrays(np.float32, (PODS, SLOTS), elements=GAPS),
    arrays(np.bool_, (PODS, HOURS)),
    st.booleans(),
    st.lists(st.sampled_from(["Deployment", "StatefulSet", "Job", "Pod"]), min_size=PODS, max_size=PODS),
    st.lists(st.tuples(st.integers(-12, SLOTS), st.none() | st.integers(0, SLOTS)), min_size=PODS, max_size=PODS),
    st.lists(st.booleans(), min_size=PODS, max_size=PODS),
)
def test_gaps_that_are_found_at_once_are_those_of_each_pod(
    values: FloatMatrix,
    listed: np.ndarray,
    has_listing: bool,
    kinds: list[str],
    spans: list[tuple[int, int | None]],
    gapless: list[bool],
) -> None:
    values[np.array(gapless)] = np.nan_to_num(values[np.array(gapless)], nan=1.0)
    pods = tuple(
        Pod(
            "shop",
            f"pod-{number}",
            WorkloadRef("shop", kind, "web"),
            "node",
            START + 300 * begin,
            None if end is None else START + 300 * end,
        )
        for number, (kind, (begin, end)) in enumerate(zip(kinds, spans, strict=True))
    )
    refs = tuple(PodContainerRef("shop", pod.name, "main") for pod in pods)
    usage = of_stretches(refs, GRID, [Stretch(np.arange(PODS), 0, values)], Resource.CPU, Statistic.MEAN)
    marks = np.where(listed, np.float32(0), np.float32(np.nan)).astype(np.float32)
    listing = of_stretches(refs, HOURLY, [Stretch(np.arange(PODS), 0, marks)], None, Statistic.SUM)
    by = (Signal.RESTARTS,) if has_listing else ()
    nothing = np.zeros(SLOTS, dtype=bool)
    silence = SourceSilence(GRID, nothing, nothing, HOURLY, np.logical_not(listed.any(axis=0)), by)
    lives = Lives.of(silence, Inventory("test", START, (), (), pods), {Signal.RESTARTS: listing} if by else {})

    members = Members.of(lives, usage, ["web"] * PODS, lambda _: "web")
    present = np.isfinite(values)
    parts = [(present_refs, lives.unseen(ref, present_refs)) for ref, present_refs in zip(refs, present, strict=True)]
    unseen = sum((part[2].astype(int) for _, part in parts if part), np.zeros(SLOTS, dtype=int))
    if not present.any():
        assert not members.own
        return
    life = members.life("web")
    if life is None:  # complete, and one pod follows another
        assert not unseen.any()
        return
    inside = slice(life.first_slot, life.first_slot + len(life.seen))
    assert life.seen.tolist() == present.sum(axis=0)[inside].tolist()
    assert life.unseen.tolist() == unseen[inside].tolist()
    assert int(present.sum()) == int(life.seen.sum())
    assert int(unseen.sum()) == int(life.unseen.sum())
    # the longest stretch of any one pod, not of two that follow each other
    longest = max(longest_stretch(part[2]) for _, part in parts if part is not None)
    assert life.longest == max(longest, longest_stretch(life.unknown))
    # of a slot that nobody can judge as many samples were due as on average, of the others as many as lived
    lived = life.seen + life.unseen
    assert life.due[~life.unknown].tolist() == lived[~life.unknown].tolist()
