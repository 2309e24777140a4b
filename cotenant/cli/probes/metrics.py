"""EDGE: Prometheus: reachable, the metrics that scan needs, scrape interval, how far history goes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cotenant.cli.probes.finding import Finding, Outcome, Probe, State
from cotenant.edges.clock import Clock
from cotenant.model.usage import DAY_SECONDS, HOUR_SECONDS
from cotenant.settings.profiler import ProfilerSettings

if TYPE_CHECKING:
    from profiler.prometheus.client import Client
    from profiler.prometheus.survey import Survey

SLOW_SCRAPE_SECONDS: Final = 120
"""From here on a five-minute slot has few samples and short peaks are not seen."""


def probes(settings: ProfilerSettings, clock: Clock) -> Iterator[Finding]:
    """Without an address nothing is tried; without an answer nothing further is asked."""
    reach = Probe("prometheus", "connect, and list the metric names of the last hour", required=True)
    if not settings.prometheus.url:
        fix = "Name one: cotenant doctor --prometheus http://localhost:9090, or setting profiler.prometheus.url."
        yield reach.run(lambda: Outcome(State.SKIPPED, "no address is set", fix))
        return
    now = int(clock.now_seconds())
    names: set[str] = set()
    found = reach.run(lambda: reachable(settings, now, names))
    yield found
    if found.fatal:
        return
    yield Probe("prometheus metrics", "the metrics that numbers rest on").run(lambda: present(names))
    yield Probe("prometheus scrape interval", "samples of a container's CPU metric in an hour").run(
        lambda: interval(settings, now)
    )
    yield Probe("prometheus history", f"the CPU metric once a day over {settings.window_days} days").run(
        lambda: span(settings, now)
    )


def reachable(settings: ProfilerSettings, now_seconds: int, names: set[str]) -> Outcome:
    """The server answers us; fills `names` with the metrics of the last hour."""
    client = _client(settings)
    try:
        names |= client.names(now_seconds - HOUR_SECONDS, now_seconds)
    finally:
        client.close()
    if not names:
        found = f"{client.url} answers, but holds no metric of the last hour"
        return Outcome(State.FAILED, found, "Check the address and the tenant.")
    return Outcome(State.OK, f"{client.url} answers, {len(names)} metrics")


def present(names: set[str]) -> Outcome:
    """Which needed metrics are missing, and what is lost without them."""
    from profiler.prometheus.survey import NEEDED

    missing = {metric: loss for metric, loss in NEEDED.items() if metric not in names}
    if not missing:
        return Outcome(State.OK, f"all {len(NEEDED)} are there")
    words = "; ".join(f"{metric}: {loss}" for metric, loss in missing.items())
    return Outcome(State.WARNING, words, "Let Prometheus scrape the kubelet's cAdvisor and kube-state-metrics.")


def interval(settings: ProfilerSettings, now_seconds: int) -> Outcome:
    """The scrape interval that scan would work with, and how many containers it would read."""
    found = _survey(settings, now_seconds)
    containers = sum(found.population.containers.values())
    words = f"{found.rates.scrape_seconds} s, {containers} containers in {len(found.population.containers)} namespaces"
    if not containers:
        return Outcome(
            State.WARNING, "no container has a CPU metric", "Check profiler.prometheus.labels and relabelling."
        )
    if found.rates.scrape_seconds >= SLOW_SCRAPE_SECONDS:
        return Outcome(State.WARNING, words, "Scrape the kubelet every 60 s or faster to see short peaks.")
    return Outcome(State.OK, words)


def span(settings: ProfilerSettings, now_seconds: int) -> Outcome:
    """On how many days of the window that scan asks for the CPU metric is there."""
    from profiler.prometheus.decode import described
    from profiler.prometheus.parts import CONTAINERS, CPU
    from profiler.prometheus.promql import named, of_labels, selector

    days = settings.window_days
    query = f"count({selector((named(CPU), *CONTAINERS, *of_labels(settings.prometheus.labels)))})"
    client = _client(settings)
    try:
        answer = client.range(query, now_seconds - (days - 1) * DAY_SECONDS, now_seconds, DAY_SECONDS)
    finally:
        client.close()
    seen = max((len(values) for _, values in described(answer)), default=0)
    words = f"containers are seen at {seen} of {days} daily looks"
    if seen < days:
        return Outcome(State.WARNING, words, "Recommendations rest on less history; raise Prometheus' retention.")
    return Outcome(State.OK, words)


def _client(settings: ProfilerSettings) -> Client:
    from profiler.prometheus.client import Client

    return Client(settings.prometheus)


def _survey(settings: ProfilerSettings, now_seconds: int) -> Survey:
    from profiler.prometheus import PrometheusSource

    source = PrometheusSource(settings.prometheus)
    try:
        return source.survey((now_seconds - DAY_SECONDS, now_seconds))
    finally:
        source.close()
