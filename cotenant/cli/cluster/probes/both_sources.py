"""EDGE: a recorder and a Prometheus of one cluster: whether they measure the same, container by container."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from cotenant.base.progress import Silent
from cotenant.base.usage.usage import HOUR_SECONDS, Signal, Usage
from cotenant.cli.cluster.probes.outcome import Probe, ProbeFinding, ProbeOutcome, ProbeState

if TYPE_CHECKING:
    from cotenant.profiler.prometheus import PrometheusSource
    from cotenant.profiler.recorder.status import RecorderStatus
    from cotenant.profiler.settings import ProfilerSettings

SHOWN: Final = 5
"""Rows that a finding names."""


def probe(
    url: str, statuses: Mapping[str, RecorderStatus], settings: ProfilerSettings, cluster: str | None
) -> ProbeFinding:
    """Compare the newest recorded hour with Prometheus' answer for it.

    url: the store; statuses: of the recorders that run, by cluster; cluster: the kubeconfig's, where several run.
    """
    tried = "the newest recorded hour of each container: CPU means and the highest memory, slot by slot"
    return Probe("recorder and prometheus", tried).run(lambda: _compare(url, statuses, settings, cluster))


def _compare(
    url: str, statuses: Mapping[str, RecorderStatus], settings: ProfilerSettings, cluster: str | None
) -> ProbeOutcome:
    from cotenant.base.store import Store
    from cotenant.cli.cluster.probes.metrics import source_of
    from cotenant.profiler.recorder.comparison import compare_sources
    from cotenant.profiler.recorder.precedence import recorded_time

    name = next(iter(statuses)) if len(statuses) == 1 else cluster
    if name is None or name not in statuses:
        return ProbeOutcome(
            ProbeState.SKIPPED, f"several clusters are recorded: {', '.join(statuses)}", "Give --context."
        )
    if not (status := statuses[name]).until_seconds:
        return ProbeOutcome(ProbeState.SKIPPED, f"{name}: {status.sentence(status.written_seconds)}")
    source = source_of(settings)
    try:
        scraped = _read_prometheus(source, status.until_seconds)
        recorded = recorded_time(status, source.peak_seconds)
    finally:
        source.close()
    if recorded is None:
        return ProbeOutcome(ProbeState.SKIPPED, f"{name}: Prometheus' finer values replace the recorded ones")
    store = Store(url, name)
    pairs = {signal: (store.read(signal, usage.grid), usage) for signal, usage in scraped.items()}
    found = compare_sources(pairs, recorded)
    if not found.rows:
        fix = "Wait for 15 minutes of both; if that does not help, name the Prometheus of this cluster."
        return ProbeOutcome(ProbeState.WARNING, f"{name}: no container has values of both in the same slots", fix)
    said = f"{name}: {found.sentence(SHOWN)}"
    if not found.differing:
        return ProbeOutcome(ProbeState.OK, said)
    fix = "Relabelling that drops or doubles series, or containers that share a name, change Prometheus' values."
    return ProbeOutcome(ProbeState.WARNING, said, fix)


def _read_prometheus(source: PrometheusSource, until_seconds: int) -> dict[Signal, Usage[Any]]:
    """Ask for the hour up to a moment; the answers come in parts, which a store of their own puts together."""
    from cotenant.base.store import Store
    from cotenant.profiler.pull_state import SignalSpan
    from cotenant.profiler.recorder.comparison import LEAST_DIFFERENCE

    spans = [SignalSpan(signal, until_seconds - HOUR_SECONDS, until_seconds) for signal in LEAST_DIFFERENCE]
    with TemporaryDirectory(prefix="cotenant-doctor-") as folder:
        answers = Store(Path(folder).as_uri(), "scraped")
        for block in source.blocks(spans, Silent()):
            for signal, usage in block.usage:
                answers.append(signal, usage)
        return {span.signal: answers.read(span.signal, span.grid) for span in spans}
