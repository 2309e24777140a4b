"""A scan of other people's Prometheus gives the same numbers, or says in one sentence why it does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.cli.probes import metrics
from cotenant.cli.probes.finding import Finding, State
from cotenant.edges.clock import FixedClock
from cotenant.settings.profiler import ProfilerSettings, PrometheusSettings
from tests.profiler.conftest import store_in
from tests.support.prometheus import MISSING, installed
from tests.support.prometheus_matrix import END, LABEL, VARIANTS, Scene, Variant, served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.prometheus,
    pytest.mark.skipif(not installed(), reason=MISSING),
]
TESTED = [variant for variant in VARIANTS if not variant.bench_only]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "prometheus.md"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with served(tmp_path_factory.mktemp("matrix"), TESTED) as scene:
        yield scene


@pytest.mark.parametrize("variant", TESTED, ids=lambda variant: variant.name)
def test_a_server_is_read_as_the_reference_or_refused_by_name(scene: Scene, variant: Variant, tmp_path: Path) -> None:
    outcome = scene.outcome(variant, store_in(tmp_path))
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


def doctor_of(scene: Scene, variant: Variant) -> list[Finding]:
    server = PrometheusSettings(url=scene.server.url, labels={LABEL: variant.name})
    return list(metrics.probes(ProfilerSettings(window_days=2, prometheus=server), FixedClock(END)))


def test_the_doctor_looks_at_the_chosen_cluster_alone(scene: Scene) -> None:
    absent = next(v for v in TESTED if v.name == "kube-state-metrics absent")
    (missing,) = (f for f in doctor_of(scene, absent) if f.probe == "prometheus metrics")
    # Other clusters of this server have kube-state-metrics.
    assert "every pod counts as a bare pod" in missing.found
    (whole,) = (f for f in doctor_of(scene, TESTED[0]) if f.probe == "prometheus metrics")
    assert whole.state is State.OK


@pytest.mark.parametrize("variant", [v for v in TESTED if not v.same], ids=lambda variant: variant.name)
def test_the_doctor_says_what_a_scan_would_refuse(scene: Scene, variant: Variant) -> None:
    refused = next(f for f in doctor_of(scene, variant) if variant.says in f.found)
    assert refused.state in (State.WARNING, State.FAILED)
    assert refused.fix
