"""EDGE: metrics of the extender: the scheduler ignores a scorer that fails without a trace, so it is counted here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from cotenant.base.logs.metrics import Metrics

BUCKETS: Final = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.5, 1.0)


class Counts:
    """Counters on the process's registry."""

    def __init__(self, metrics: Metrics) -> None:
        """Register the counters."""
        registry = metrics.registry
        self._answers = Counter(
            "cotenant_extender_answers_total", "Answers by verb and status.", ["verb", "status"], registry=registry
        )
        self._duration = Histogram(
            "cotenant_extender_duration_seconds",
            "Time from a request's head to its answer.",
            ["verb"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._refused = Counter(
            "cotenant_extender_refused_nodes_total", "Nodes refused to pods, by rule.", ["rule"], registry=registry
        )
        self._yielded = Counter(
            "cotenant_extender_rule_yielded_total",
            "Calls in which a rule was ignored, because by its own estimates it would have refused every node.",
            ["rule"],
            registry=registry,
        )
        self._spared = Counter(
            "cotenant_extender_spared_nodes_total", "Nodes taken out of preemption.", registry=registry
        )
        self._nodes = Gauge("cotenant_extender_nodes", "Nodes in the view.", registry=registry)
        self._age = Gauge("cotenant_extender_view_age_seconds", "Age of the view of the cluster.", registry=registry)
        self._off = Gauge(
            "cotenant_extender_load_rules_off", "1 while load rules are inactive, else 0.", registry=registry
        )
        self._expires = Gauge(
            "cotenant_extender_certificate_expiry_timestamp_seconds",
            "Unix time at which the served certificate expires; NaN without one.",
            registry=registry,
        )
        self._expires.set(math.nan)
        # strangers' paths may be any: of those few are kept
        self._of_verb = lru_cache(maxsize=32)(self._verb_metrics)
        self._of_rule = lru_cache(maxsize=32)(self._refusals)

    def _verb_metrics(self, path: str, status: int) -> tuple[Counter, Histogram]:
        """Return a verb's counter and histogram; cached, because a lookup by labels costs as much as the count."""
        verb = path.strip("/") if path in ("/filter", "/prioritize", "/preempt", "/bind", "/why") else "other"
        return self._answers.labels(verb, str(status)), self._duration.labels(verb)

    def _refusals(self, rule: str) -> Counter:
        """Return the counter of nodes that a rule refused."""
        return self._refused.labels(rule)

    def answered(self, path: str, status: int, seconds: float) -> None:
        """A request was answered."""
        answers, duration = self._of_verb(path, status)
        answers.inc()
        duration.observe(seconds)

    def refused(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Nodes were refused to a pod: by (rule, words)."""
        for (rule, _), number in counts.items():
            self._of_rule(rule).inc(number)

    def yielded(self, rule: str) -> None:
        """A rule was ignored in a request."""
        self._yielded.labels(rule).inc()

    def certificate_shown(self, expires_at: float) -> None:
        """A certificate that ends at this Unix time is shown from now on."""
        self._expires.set(expires_at)

    def spared(self, nodes: int) -> None:
        """So many nodes were taken out of a preemption."""
        self._spared.inc(nodes)

    def set_view(self, nodes: int, age_seconds: float, load_rules_off: bool) -> None:
        """Set the gauges of the cluster as the extender knows it: nodes, age of the data in seconds, load rules off."""
        self._nodes.set(nodes)
        self._age.set(age_seconds)
        self._off.set(load_rules_off)
