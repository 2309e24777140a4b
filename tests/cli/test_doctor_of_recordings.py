"""`cotenant doctor` on what a recorder has written about itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.base.process.clock import SystemClock
from cotenant.base.store import Store
from cotenant.cli.cluster.probes import metrics, storage
from cotenant.cli.cluster.probes.outcome import ProbeState
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, NodeSource, RecorderStatus
from cotenant.profiler.settings import ProfilerSettings

NOW = 1_795_089_600


@pytest.mark.parametrize(
    ("seconds_ago", "sources", "state", "phrase"),
    [
        (60.0, {NodeSource.KUBELET: 3}, ProbeState.OK, "first recommendations from"),
        (60.0, {NodeSource.KUBELET: 2, NodeSource.NONE: 1}, ProbeState.WARNING, "node n: the kubelet answers 403"),
        (7200.0, {NodeSource.KUBELET: 3}, ProbeState.WARNING, "nothing was written since"),
    ],
)
def test_a_recorder_is_described_with_its_sources_and_what_it_lacks(
    tmp_path: Path, seconds_ago: float, sources: dict[NodeSource, int], state: ProbeState, phrase: str
) -> None:
    why = {"n": "the kubelet answers 403"} if NodeSource.NONE in sources else {}
    written = NOW - seconds_ago
    status = RecorderStatus(written - 600, written, int(written), nodes=sources, troubles=why)
    Store(tmp_path.as_uri(), "c").write_document(STATUS_DOCUMENT, status)

    outcome = storage.recordings(tmp_path.as_uri(), NOW)

    assert outcome.state is state
    assert "c: record" in outcome.found and phrase in outcome.found
    assert bool(outcome.fix) is (state is not ProbeState.OK)


@pytest.mark.parametrize("seconds_ago", [60.0, 7200.0, None], ids=["records", "ended", "none ever ran"])
def test_where_a_recorder_measures_no_prometheus_is_required(tmp_path: Path, seconds_ago: float | None) -> None:
    url = tmp_path.as_uri()
    if seconds_ago is not None:
        written = NOW - seconds_ago
        Store(url, "c").write_document(STATUS_DOCUMENT, RecorderStatus(written - 600, written, int(written)))

    recorded = bool(storage.running_recorders(url, NOW))
    (finding,) = metrics.probes(ProfilerSettings(), SystemClock(), recorded=recorded)

    assert recorded is (seconds_ago == 60.0)
    assert finding.state is ProbeState.SKIPPED
    assert finding.required is not recorded and bool(finding.fix) is not recorded
