"""EDGE: checks of Prometheus: connection, metrics that a scan needs, length of the history, and a parallel recorder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from cotenant.base import measures
from cotenant.base.inventory.partial_inventory import LISTED_AFTER_SECONDS, unmeasured_pods
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.base.process.clock import Clock
from cotenant.base.progress import Silent
from cotenant.base.reasons import SENTENCES
from cotenant.base.text import agree, counted
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HOUR_SECONDS, Signal, TimeWindow, Usage
from cotenant.cli.cluster.probes.outcome import Probe, ProbeFinding, ProbeOutcome, ProbeState
from cotenant.profiler.settings import ProfilerSettings

if TYPE_CHECKING:
    from cotenant.profiler.history import UsageBlock
    from cotenant.profiler.prometheus import PrometheusSource
    from cotenant.profiler.prometheus.client import Client
    from cotenant.profiler.recorder.status import RecorderStatus

SLOW_SCRAPE_SECONDS: Final = 120
"""Scrape interval from which on a five-minute slot has so few samples that short peaks are not seen."""
_SHOWN: Final = 10
"""Namespaces that a finding names."""
_TRIED_SECONDS: Final = {FIVE_MINUTES_SECONDS: 3 * FIVE_MINUTES_SECONDS, HOUR_SECONDS: 2 * HOUR_SECONDS}
"""How much usage is asked for on trial, by a signal's step: at least one whole slot."""


def probes(
    settings: ProfilerSettings, clock: Clock, *, alone: bool = False, recorded: bool = False
) -> Iterator[ProbeFinding]:
    """Yield findings about Prometheus; `alone` is True if no Kubernetes API can supply what Prometheus lacks.

    Without an address the only finding is SKIPPED; it is not `required` if a recorder measures usage (`recorded`). If
    Prometheus does not answer, the other checks are left out. The checks read what a scan reads: its window, up to the
    newest sample if the server lags behind.
    """
    days = settings.window_days
    reach = Probe("prometheus", f"connect, and list the metric names of {days} days", required=True)
    if not settings.prometheus.url and recorded:
        explanation = "no Prometheus is configured, and none is needed: a recorder measures usage"
        yield Probe(reach.name, reach.tried).run(lambda: ProbeOutcome(ProbeState.SKIPPED, explanation))
        return
    if not settings.prometheus.url:
        explanation = "no Prometheus was checked: no address is set, and none was found in a cluster"
        fix = "Name a Prometheus: cotenant doctor --prometheus URL, or by setting profiler.prometheus.url."
        yield reach.run(lambda: ProbeOutcome(ProbeState.SKIPPED, explanation, fix))
        return
    now = int(clock.now_seconds())
    names: set[str] = set()
    finding = reach.run(lambda: reachable(settings, now, names))
    yield finding
    if finding.fatal:
        return
    yield Probe("prometheus metrics", "the metrics that results are computed from", required=True).run(
        lambda: probe_metric_names(names)
    )
    with closing(source_of(settings)) as source:
        yield from _of_samples(source, settings, now, alone=alone)


def _of_samples(
    source: PrometheusSource, settings: ProfilerSettings, now_seconds: int, *, alone: bool
) -> Iterator[ProbeFinding]:
    """Yield findings about the samples, from one source, so that it is surveyed once.

    If no container is found, the rest is skipped: empty answers would look as if all were well.
    """
    window = TimeWindow(now_seconds - settings.window_days * DAY_SECONDS, now_seconds)
    finding = Probe("prometheus scrape interval", "samples of a container's CPU metric in an hour", required=True).run(
        lambda: interval(source, window)
    )
    yield finding
    if finding.fatal:
        return
    yield Probe("prometheus newest sample", "a scan's queries for the inventory", required=True).run(
        lambda: freshness(source, window)
    )
    yield Probe("prometheus inventory", "whether kube-state-metrics reports every pod with usage").run(
        lambda: coverage(source, window)
    )
    if alone:
        yield Probe("prometheus bounds", "whether kube-state-metrics reports annotations, classes and LimitRanges").run(
            lambda: bounds(source, window)
        )
    yield Probe("prometheus usage", "a scan's queries for the 15 minutes up to the newest sample", required=True).run(
        lambda: usage(source, window)
    )
    yield Probe("prometheus history", f"CPU usage at one time of each of {settings.window_days} days").run(
        lambda: span(source, settings, window)
    )


def reachable(settings: ProfilerSettings, now_seconds: int, names: set[str]) -> ProbeOutcome:
    """Check that the server answers; add to `names` the names of its metrics in the window."""
    from cotenant.profiler.prometheus import metric_names

    with closing(_client(settings)) as client:
        window = TimeWindow(now_seconds - settings.window_days * DAY_SECONDS, now_seconds)
        names |= metric_names.present(client, settings.prometheus.labels, window)
    if not names:
        problem = f"{client.url} answers, but has no metric of the last {settings.window_days} days"
        return ProbeOutcome(ProbeState.FAILED, problem, "Check the address and the tenant of the server.")
    return ProbeOutcome(ProbeState.OK, f"{client.url} answers, {len(names)} metrics")


def probe_metric_names(names: set[str]) -> ProbeOutcome:
    """Check which needed metrics are missing, and what is lost without them."""
    from cotenant.profiler.prometheus.parts import CPU
    from cotenant.profiler.prometheus.survey import NEEDED, losses

    missing = losses(names)
    if not missing:
        return ProbeOutcome(ProbeState.OK, f"all {len(NEEDED)} needed metrics are present")
    detail = "; ".join(f"{metric}: {loss}" for metric, loss in missing.items())
    state = ProbeState.FAILED if CPU in missing else ProbeState.WARNING  # a scan without CPU usage ends with an error
    return ProbeOutcome(state, detail, "Let Prometheus scrape the kubelet's cAdvisor and kube-state-metrics.")


def interval(source: PrometheusSource, window: TimeWindow) -> ProbeOutcome:
    """Report the scrape interval that a scan would use, and the number of containers that it would read."""
    server = source.survey_of_intervals(window)
    containers = server.population.containers_count
    among = f"{containers} containers in {len(server.population.containers)} namespaces"
    detail = f"every {server.rates.scrape_seconds} s, {among}"
    if not containers:
        fix = "Check profiler.prometheus.labels and relabelling."
        return ProbeOutcome(ProbeState.FAILED, "no container has a CPU metric", fix)
    others = sorted({s.interval_seconds for s in server.scrapes} - {server.rates.scrape_seconds})
    if others:
        detail += f"; some series every {', '.join(map(str, others))} s, which are read at that interval"
    if server.slowest.scrape_seconds >= SLOW_SCRAPE_SECONDS:
        return ProbeOutcome(ProbeState.WARNING, detail, "Scrape the kubelet every 60 s or faster to see short peaks.")
    return ProbeOutcome(ProbeState.OK, detail)


def freshness(source: PrometheusSource, window: TimeWindow) -> ProbeOutcome:
    """Check how far usage and kube-state-metrics lag; a lag only warns, because a scan can read an earlier time."""
    inventory = source.inventory(window[1], window)
    if source.lateness:
        fix = "Check that Prometheus scrapes and that the clocks agree; a scan reads samples up to the newest one."
        return ProbeOutcome(ProbeState.WARNING, "; ".join(source.lateness), fix)
    running = measures.matching_count(pod.running for pod in inventory.pods)
    if not running:
        fix = "Let Prometheus scrape kube-state-metrics; until then a scan knows pods only by their usage."
        return ProbeOutcome(ProbeState.WARNING, "no running pod is known", fix)
    return ProbeOutcome(
        ProbeState.OK,
        f"{counted(len(inventory.nodes), 'node')} and {counted(running, 'running pod')}, no metric lags behind",
    )


def coverage(source: PrometheusSource, window: TimeWindow) -> ProbeOutcome:
    """Check how many of the pods with usage are also in kube-state-metrics, with owners, requests and phases.

    A pod that started less than half an hour before the newest sample may not be listed yet and does not count as
    missing.
    """
    end = source.survey(window).visible_end(window[1])
    inventory, used = source.inventory(window[1], window), source.pods_in_use(end)
    settled = used & source.pods_in_use(max(window[0], end - LISTED_AFTER_SECONDS))
    named_pods = {(pod.namespace, pod.name) for pod in inventory.pods}
    lost = sorted(key for key in settled if key not in named_pods and key[0] != PLACEHOLDER_NAMESPACE)
    gaps = Counter(
        reason for w in inventory.workloads for reason in {*w.gaps, *(g for c in w.containers for g in c.gaps)}
    )
    unowned = measures.matching_count(not pod.owner_known for pod in inventory.pods)
    troubles = []
    if lost:
        where = Counter(namespace for namespace, _ in lost).most_common(_SHOWN)
        names = ", ".join(f"{namespace} {count}" for namespace, count in where)
        verb = "is" if len(lost) == 1 else "are"
        troubles.append(f"{len(lost)} of {len(settled)} pods with usage {verb} not reported (by namespace: {names})")
    idle = list(unmeasured_pods(inventory, used, end))
    if idle:
        by_node = Counter(pod.node for pod in idle).most_common(_SHOWN)
        nodes = ", ".join(f"{node or 'no node'} {count}" for node, count in by_node)
        run = agree(len(idle), "running pod has", "running pods have")
        troubles.append(f"{run} no usage, as if the node were not scraped (by node: {nodes})")
    if unowned:
        troubles.append(f"the owners of {counted(unowned, 'pod')} cannot be traced to a workload")
    troubles += [f"{SENTENCES[reason]} ({counted(count, 'workload')})" for reason, count in sorted(gaps.items())]
    troubles += [note for note in inventory.notes if "has no series of" in note]
    if troubles:
        fix = (
            "Let Prometheus scrape every node's cAdvisor, and every shard of kube-state-metrics, for all namespaces "
            "and with the resources pods, replicasets, replicationcontrollers, jobs and horizontalpodautoscalers; "
            "do not relabel these metrics."
        )
        return ProbeOutcome(ProbeState.WARNING, "; ".join(troubles), fix)
    all_named = agree(
        len(settled), "pod with usage is reported, with its owner", "pods with usage are reported, with their owners"
    )
    return ProbeOutcome(ProbeState.OK, f"all {all_named}")


def bounds(source: PrometheusSource, window: TimeWindow) -> ProbeOutcome:
    """Check whether annotations, classes, LimitRanges and autoscalers are read from the API or kube-state-metrics."""
    from cotenant.profiler.prometheus.kube_state.declared import BLIND

    blind = [note for note in source.inventory(window[1], window).notes if BLIND in note]
    if not blind:
        return ProbeOutcome(ProbeState.OK, "annotations, classes, LimitRanges and autoscalers are reported")
    fix = (
        "Let scans read the Kubernetes API (deploy/rbac/reader.yaml); or let kube-state-metrics export annotations, "
        "classes, LimitRanges and autoscalers (--metric-annotations-allowlist, --metric-labels-allowlist, --resources "
        "with limitranges and horizontalpodautoscalers), and let Prometheus scrape the API server, which counts these."
    )
    return ProbeOutcome(ProbeState.WARNING, "; ".join(blind), fix)


def usage(source: PrometheusSource, window: TimeWindow) -> ProbeOutcome:
    """Check that the server answers every usage query of a scan, for a few time slots."""
    from cotenant.profiler.pull_state import SignalSpan

    end = source.survey(window).visible_end(window[1])
    spans = [SignalSpan(signal, end - _TRIED_SECONDS[signal.spec.step_seconds], end) for signal in Signal]
    blocks = list(source.blocks(spans, Silent()))
    errors = source.errors
    values = answered_values_count(blocks)
    if errors:
        lost = {hole.signal for block in blocks for hole in block.holes}
        state = ProbeState.FAILED if Signal.CPU_USAGE_MEAN in lost else ProbeState.WARNING
        return ProbeOutcome(state, "; ".join(error.message for error in errors), errors[0].fix)
    return ProbeOutcome(ProbeState.OK, f"all queries are answered, with {values} values")


def answered_values_count(blocks: Sequence[UsageBlock]) -> int:
    """Count the values in all series of these blocks."""
    return sum(series.values.size for block in blocks for _, series in block.usage)


def span(source: PrometheusSource, settings: ProfilerSettings, window: TimeWindow) -> ProbeOutcome:
    """Check on how many days of a scan's window the CPU metric has samples."""
    from cotenant.profiler.prometheus.decode import decode_series
    from cotenant.profiler.prometheus.survey import containers

    days, end = settings.window_days, source.survey(window).visible_end(window[1])
    with closing(_client(settings)) as client:
        query = f"count({containers(settings.prometheus.labels)})"
        answer = client.range(query, end - (days - 1) * DAY_SECONDS, end, DAY_SECONDS)
    days_covered = max((len(values) for _, values in decode_series(answer)), default=0)
    detail = f"containers are seen at {days_covered} of {days} daily checks"
    if days_covered < days:
        fix = "Recommendations are based on less history than possible; raise Prometheus' retention."
        return ProbeOutcome(ProbeState.WARNING, detail, fix)
    return ProbeOutcome(ProbeState.OK, detail)


def _client(settings: ProfilerSettings) -> Client:
    from cotenant.profiler.prometheus.client import Client

    return Client(settings.prometheus)


def source_of(settings: ProfilerSettings) -> PrometheusSource:
    """Return the source that a scan would query, but without retries, because a person waits."""
    from cotenant.profiler.prometheus import PrometheusSource

    return PrometheusSource(replace(settings.prometheus, outage_seconds=0.0))


SHOWN: Final = 5
"""Most rows that a finding names."""


def probe_recorder(
    url: str, statuses: Mapping[str, RecorderStatus], settings: ProfilerSettings, cluster: str | None
) -> ProbeFinding:
    """Compare the newest recorded hour with Prometheus' answer for it.

    `url` is that of the store, `statuses` are those of running recorders by cluster, `cluster` is the kubeconfig's.
    """
    tried = "the newest recorded hour of each container: CPU means and the highest memory, slot by slot"
    return Probe("recorder and prometheus", tried).run(lambda: _compare(url, statuses, settings, cluster))


def _compare(
    url: str, statuses: Mapping[str, RecorderStatus], settings: ProfilerSettings, cluster: str | None
) -> ProbeOutcome:
    from cotenant.base.store import Store
    from cotenant.profiler.recorder.comparison import compare_sources
    from cotenant.profiler.recorder.precedence import recorded_time

    name = next(iter(statuses)) if len(statuses) == 1 else cluster
    if name is None or name not in statuses:
        fix = "Give --context."
        return ProbeOutcome(ProbeState.SKIPPED, f"several clusters are recorded: {', '.join(statuses)}", fix)
    if not (status := statuses[name]).until_seconds:
        return ProbeOutcome(ProbeState.SKIPPED, f"{name}: {status.sentence(status.written_seconds)}")
    with closing(source_of(settings)) as source:
        scraped = _read_prometheus(source, status.until_seconds)
        recorded = recorded_time(status, source.peak_seconds)
    if recorded is None:
        return ProbeOutcome(ProbeState.SKIPPED, f"{name}: finer values of Prometheus replace the recorded ones")
    store = Store(url, name)
    pairs = {signal: (store.read(signal, usage.grid), usage) for signal, usage in scraped.items()}
    comparison = compare_sources(pairs, recorded)
    if not comparison.rows:
        fix = "Wait until recorder and Prometheus have 15 minutes of data, or name the Prometheus of this cluster."
        return ProbeOutcome(ProbeState.WARNING, f"{name}: no container has values of both sources at one time", fix)
    sentence = f"{name}: {comparison.sentence(SHOWN)}"
    if not comparison.differing:
        return ProbeOutcome(ProbeState.OK, sentence)
    fix = "Look for relabelling that drops or doubles series, and for containers that share a name."
    return ProbeOutcome(ProbeState.WARNING, sentence, fix)


def _read_prometheus(source: PrometheusSource, until_seconds: int) -> dict[Signal, Usage[Any]]:
    """Return the usage of the hour before `until_seconds`; the answer comes in parts, which a temporary store joins."""
    from cotenant.base.settings.sections import folder_url
    from cotenant.base.store import Store
    from cotenant.profiler.pull_state import SignalSpan
    from cotenant.profiler.recorder.comparison import LEAST_DIFFERENCE

    spans = [SignalSpan(signal, until_seconds - HOUR_SECONDS, until_seconds) for signal in LEAST_DIFFERENCE]
    with TemporaryDirectory(prefix="cotenant-doctor-") as folder:
        answers = Store(folder_url(Path(folder)), "scraped")
        for block in source.blocks(spans, Silent()):
            for signal, usage in block.usage:
                answers.append(signal, usage)
        return {span.signal: answers.read(span.signal, span.grid) for span in spans}
