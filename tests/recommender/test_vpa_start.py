"""Strategy `vpa` begins with the checkpoints of VerticalPodAutoscalers, and says so."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import SavedHistogram, VpaHistory
from cotenant.base.identity import ContainerRef
from cotenant.base.resource import MIB, Resource
from cotenant.base.usage.histogram import HistogramBatch
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.model.recommendation import Field, Recommendation
from cotenant.recommender.settings import RecommenderSettings
from cotenant.recommender.strategies.settings import VpaSettings
from cotenant.recommender.strategies.vpa import Vpa, VpaStart, cpu_histograms, memory_histograms
from tests.support.evidence import END, STEP, Case, evidence_of

CPU, MEMORY = Resource.CPU, Resource.MEMORY
DAY = 288
OWN = VpaSettings()
DAY_SECONDS = 86_400


def saved(batch: HistogramBatch) -> SavedHistogram:
    """The first histogram as a checkpoint that rounds nothing."""
    weights = {bucket: float(weight) for bucket, weight in enumerate(batch.weights[0]) if weight}
    return SavedHistogram(weights, float(batch.total[0]), int(batch.reference_seconds[0]))


def history(evidence: Evidence, first: int, last: int, samples: int, **histograms: SavedHistogram) -> VpaHistory:
    by_resource = {Resource(name): histogram for name, histogram in histograms.items()}
    return VpaHistory(evidence.containers[0], "web-vpa", first, last, samples, by_resource)


def with_history(evidence: Evidence, *histories: VpaHistory) -> Evidence:
    return replace(evidence, inventory=replace(evidence.inventory, vpa_histories=histories))


def recommended(evidence: Evidence) -> Recommendation:
    return Vpa().recommend(evidence, RecommenderSettings())[0]


def inputs(recommendation: Recommendation, resource: Resource = CPU) -> dict[str, Any]:
    value = recommendation.value(resource, Field.REQUEST)
    assert value is not None
    return dict(value.inputs)


def empty() -> Evidence:
    """A container of which nothing was ever stored."""
    return evidence_of(Case(), slots=DAY)


def test_a_container_without_stored_usage_is_sized_by_its_checkpoint_alone() -> None:
    # CPU bucket 25 ends at 200 (1.05^26 - 1) = 511.13 m -> 511, margin 76: 587 m. Memory bucket 19 ends at
    # 2e8 (1.05^20 - 1) = 330659541 B, margin 49598931: 380258472 B.
    evidence, reference = empty(), END - 2 * DAY_SECONDS
    cpu, memory = SavedHistogram({25: 10_000}, 57.6, reference), SavedHistogram({19: 10_000}, 2.0, reference)
    checkpoint = history(evidence, END - 2 * DAY_SECONDS, END, 2880, cpu=cpu, memory=memory)
    recommendation = recommended(with_history(evidence, checkpoint))
    assert [value.amount for value in recommendation.values] == [587, 380_258_472]
    # 2 days between the first and the last sample, 2,880 samples of a minute: 2 days
    assert inputs(recommendation)["confidence_days"] == 2
    # END is 2023-11-15 00:00 UTC
    assert inputs(recommendation)["note"] == (
        "the estimate starts with 2880 samples since 2023-11-13 00:00 UTC from the checkpoint of "
        "VerticalPodAutoscaler web-vpa"
    )


@settings(max_examples=25, deadline=None)
@given(
    values=st.lists(st.integers(1, 4000) | st.none(), min_size=4, max_size=40),
    split=st.floats(0.1, 0.9),
)
def test_a_checkpoint_and_the_samples_since_give_the_histogram_of_all_samples(
    values: list[int | None], split: float
) -> None:
    series = np.array([[math.nan if value is None else value for value in values]])
    cut = max(1, round(split * len(values)))
    full_evidence = evidence_of(Case(cpu=series), slots=len(values))
    early = evidence_of(Case(cpu=np.where(np.arange(len(values)) < cut, series, math.nan)), slots=len(values))
    times = full_evidence.window.times()
    before = cpu_histograms(early, OWN, VpaStart(CPU, 1))
    if not before.total[0]:
        return
    # The stored history begins one slot after the checkpoint's, so that the checkpoint goes further back.
    checkpoint = history(full_evidence, int(times[0]) - 1, int(times[cut - 1]), cut, cpu=saved(before))
    merged = cpu_histograms(full_evidence, OWN, VpaStart.of(with_history(full_evidence, checkpoint), CPU))
    expected = cpu_histograms(full_evidence, OWN, VpaStart(CPU, 1))
    assert merged.reference_seconds == expected.reference_seconds
    assert merged.weights == pytest.approx(expected.weights)
    assert merged.total == pytest.approx(expected.total)


def test_the_memory_peak_that_a_checkpoint_lacks_is_taken_from_storage() -> None:
    # A peak of 900 MiB ten hours before the checkpoint's end: VPA keeps it out of its checkpoint until the day is over.
    memory = np.full((1, 2 * DAY), 300.0 * MIB)
    memory[0, -DAY // 2 - 120] = 900 * MIB
    evidence = evidence_of(Case(cpu=np.full((1, 2 * DAY), 100.0), memory=memory))
    last = END - DAY // 2 * STEP
    reference = END - 4 * DAY_SECONDS
    checkpoint = history(
        evidence, reference, last, 5000,
        cpu=SavedHistogram({4: 1}, 1.0, reference), memory=SavedHistogram({19: 10_000}, 1.0, reference),
    )  # fmt: skip
    start = VpaStart.of(with_history(evidence, checkpoint), MEMORY)
    # bucket of 900 MiB = 943718400 B: 2e8 (1.05^b - 1), 1.05^b = 5.7186, b = 35.74: 35
    assert memory_histograms(evidence, OWN, start).weights[0, 35] > 0


@pytest.mark.parametrize(
    ("first", "last"),
    [
        pytest.param(END - DAY * STEP, END, id="begins with the stored usage"),
        pytest.param(END - 30 * DAY_SECONDS, END - 8 * DAY_SECONDS, id="no sample for eight days"),
        pytest.param(END - 30 * DAY_SECONDS, END + 301, id="ends in the future"),
    ],
)
def test_a_checkpoint_that_knows_no_more_or_nothing_of_today_is_left_out(first: int, last: int) -> None:
    evidence = evidence_of(Case(cpu=np.full((1, DAY), 100.0)))
    checkpoint = history(evidence, first, last, 100, cpu=SavedHistogram({90: 1}, 1.0, first))
    recommendation = recommended(with_history(evidence, checkpoint))
    assert recommendation == recommended(evidence)
    assert "note" not in inputs(recommendation)


def test_a_checkpoint_of_another_container_changes_nothing() -> None:
    evidence = evidence_of(Case(cpu=np.full((1, DAY), 100.0)))
    checkpoint = history(evidence, 0, END, 100, cpu=SavedHistogram({90: 1}, 1.0, 0))
    other = replace(checkpoint, container=ContainerRef(evidence.workloads[0].ref, "sidecar"))
    assert recommended(with_history(evidence, other)) == recommended(evidence)


def test_a_checkpoint_that_was_written_after_the_window_s_end_is_one_of_now() -> None:
    # The window ends with the newest slot; the inventory was read four minutes later, and the checkpoint between both.
    evidence = empty()
    read = replace(evidence.inventory, time_seconds=END + 240)
    reference = END - 2 * DAY_SECONDS
    checkpoint = history(evidence, reference, END + 200, 2880, cpu=SavedHistogram({25: 10_000}, 57.6, reference))
    recommendation = recommended(with_history(replace(evidence, inventory=read), checkpoint))
    value = recommendation.value(CPU, Field.REQUEST)
    assert value is not None
    assert value.amount == 587  # as above


@pytest.mark.parametrize("resource", [CPU, MEMORY])
def test_a_checkpoint_of_one_resource_leaves_what_is_stored_of_the_other(resource: Resource) -> None:
    other = MEMORY if resource is CPU else CPU
    case = Case(cpu=np.full((1, 2 * DAY), 500.0), memory=np.full((1, 2 * DAY), 300.0 * MIB))
    evidence, reference = evidence_of(case), END - 9 * DAY_SECONDS
    checkpoint = history(evidence, reference, END, 5000, **{resource.value: SavedHistogram({90: 1}, 1.0, reference)})
    merged = recommended(with_history(evidence, checkpoint))
    alone, unchanged = (
        recommendation.value(other, Field.REQUEST) for recommendation in (recommended(evidence), merged)
    )
    assert alone is not None
    assert unchanged is not None
    assert unchanged.amount == alone.amount
    assert inputs(merged, resource)["note"].startswith("the estimate starts with 5000 samples")
    assert "note" not in unchanged.inputs
