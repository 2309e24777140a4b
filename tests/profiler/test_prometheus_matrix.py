"""A scan of other people's Prometheus gives the same numbers, or says in one sentence why it does not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.base.process.clock import FixedClock
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS
from cotenant.cli.cluster.probes import metrics
from cotenant.cli.cluster.probes.outcome import ProbeFinding, ProbeState
from cotenant.profiler.settings import ProfilerSettings, PrometheusSettings
from cotenant_lab.synthetic import generate
from tests.cluster import needing
from tests.profiler.conftest import store_in
from tests.support import victoria_metrics
from tests.support.prometheus import Server
from tests.support.prometheus_matrix import (
    END,
    LABEL,
    SPEC,
    VARIANTS,
    Scene,
    Variant,
    blocks,
    served,
    served_by_thanos,
    served_by_victoria_metrics,
)
from tests.support.thanos import REPLICA, thanos
from tests.support.timer import LeapingTimer

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]
TESTED = [variant for variant in VARIANTS if not variant.bench_only]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "prometheus-servers.md"


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with served(tmp_path_factory.mktemp("matrix"), TESTED) as served_matrix:
        yield served_matrix


@pytest.mark.parametrize("variant", TESTED, ids=lambda variant: variant.name)
def test_a_server_is_read_as_the_reference_or_refused_by_name(matrix: Scene, variant: Variant, tmp_path: Path) -> None:
    outcome = matrix.outcome(variant, store_in(tmp_path))
    if not variant.same:
        assert variant.says in outcome.refusal
        assert outcome.fix
    else:
        assert outcome.refusal == ""
        assert outcome.differences == ()
        assert outcome.interval_seconds == variant.dresses[0].interval_seconds * variant.dresses[0].every
        assert {name: e for name, e in outcome.errors.items() if e > variant.tolerance} == {}
        lagging = [n for n in outcome.notes if "silent since" in n or "newest usage" in n or "honor_labels" in n]
        assert [n for n in outcome.notes if variant.says in n] if variant.says else not lagging
    assert outcome.row(variant) in PAGE.read_text()


@pytest.mark.skipif(not victoria_metrics.installed(), reason=victoria_metrics.MISSING)
def test_victoria_metrics_gives_the_same_answers(tmp_path: Path) -> None:
    names = (TESTED[0].name, "scraped every 15 minutes", "two clusters, told apart by the label cluster")
    variants = [variant for variant in TESTED if variant.name in names]
    with served_by_victoria_metrics(tmp_path, variants) as matrix:
        for number, variant in enumerate(variants):
            outcome = matrix.outcome(variant, store_in(tmp_path / str(number)))
            assert variant.is_met(outcome), (variant.name, outcome)
            assert outcome.row(variant) in PAGE.read_text()


@pytest.mark.soak
def test_thanos_gives_the_same_answers(tmp_path: Path) -> None:
    needing.thanos()
    with served_by_thanos(tmp_path, TESTED) as matrix:
        for number, variant in enumerate(TESTED):
            outcome = matrix.outcome(variant, store_in(tmp_path / str(number)))
            assert variant.is_met(outcome), (variant.name, outcome)
            assert outcome.row(variant) in PAGE.read_text()


@pytest.mark.soak
def test_a_pair_that_thanos_puts_together_is_one_cluster_and_half_of_it_is_no_answer(tmp_path: Path) -> None:
    needing.thanos()
    cluster = generate(SPEC)
    data = blocks(cluster, tmp_path, TESTED[:1])
    shutil.copytree(data, tmp_path / "copy")
    with (
        Server(data, labels={REPLICA: "a"}) as first,
        Server(tmp_path / "copy", labels={REPLICA: "b"}) as second,
        thanos(tmp_path, {"a": first.url, "b": second.url}) as querier,
    ):
        matrix = Scene(cluster, querier.url)
        assert TESTED[0].is_met(matrix.outcome(TESTED[0], store_in(tmp_path / "whole")))
        querier.sidecars["b"].kill()
        half = matrix.outcome(TESTED[0], store_in(tmp_path / "half"), LeapingTimer())
        assert "code = Unavailable" in half.refusal
        assert "Restore the storage" in half.fix


def doctor_of(matrix: Scene, variant: Variant) -> list[ProbeFinding]:
    server = PrometheusSettings(url=matrix.url, labels={LABEL: variant.name})
    clock = FixedClock(END + variant.late_seconds)
    return list(metrics.probes(ProfilerSettings(window_days=2, prometheus=server), clock))


@pytest.mark.parametrize(
    ("name", "late_seconds", "says"),
    [
        (TESTED[0].name, 3 * HOUR_SECONDS, "3 hours ago"),
        (TESTED[0].name, DAY_SECONDS, "24 hours ago"),
        ("kube-state-metrics absent", 0, "every pod counts as a bare pod"),
    ],
)
def test_the_doctor_passes_where_a_scan_does_and_says_what_lags(
    matrix: Scene, name: str, late_seconds: int, says: str, tmp_path: Path
) -> None:
    variant = replace(next(v for v in TESTED if v.name == name), late_seconds=late_seconds)
    findings = doctor_of(matrix, variant)
    assert [f for f in findings if f.fatal] == []
    assert any(says in f.found for f in findings if f.state is ProbeState.WARNING)
    (answered,) = (f.found for f in findings if f.probe == "prometheus usage")
    assert " 0 values" not in answered
    outcome = matrix.outcome(variant, store_in(tmp_path))
    assert outcome.refusal == ""
    assert any(says in note for note in outcome.notes)


def test_the_doctor_fails_where_a_scan_finds_nothing(matrix: Scene) -> None:
    ended = replace(TESTED[0], late_seconds=3 * DAY_SECONDS)
    assert any(f.fatal for f in doctor_of(matrix, ended)), "the window of the scan is two days long"


def test_the_doctor_looks_at_the_chosen_cluster_alone(matrix: Scene) -> None:
    absent = next(v for v in TESTED if v.name == "kube-state-metrics absent")
    (missing,) = (f for f in doctor_of(matrix, absent) if f.probe == "prometheus metrics")
    # Other clusters of this server have kube-state-metrics.
    assert "every pod counts as a bare pod" in missing.found
    (complete,) = (f for f in doctor_of(matrix, TESTED[0]) if f.probe == "prometheus metrics")
    assert complete.state is ProbeState.OK


@pytest.mark.parametrize("variant", [v for v in TESTED if not v.same], ids=lambda variant: variant.name)
def test_the_doctor_says_what_a_scan_would_refuse(matrix: Scene, variant: Variant) -> None:
    refused = next(f for f in doctor_of(matrix, variant) if variant.says in f.found)
    assert refused.state in (ProbeState.WARNING, ProbeState.FAILED)
    assert refused.fix
