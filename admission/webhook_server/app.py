"""EDGE: the HTTP application of the webhook process: routes by path; `base.http.http_connection` does the transport.

Paths: the five webhooks of `admission.review` (POST), /healthz, /readyz, /metrics (GET). After an error in our own code
a pod is admitted unchanged and counted; a quota is refused with 500, because other quotas rely on its webhook. The same
happens to an object at which this process or its predecessor hung: it is not read a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final

import structlog
from prometheus_client import Counter, Gauge, Histogram

from cotenant.admission import review
from cotenant.admission.settings import AdmissionSettings
from cotenant.admission.view import ClusterView
from cotenant.base.errors import ClusterError
from cotenant.base.http.health import Checks
from cotenant.base.http.http_connection import Request, Response
from cotenant.base.kubernetes.protocol import SLO_CONFIG_MAP
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import Clock
from cotenant.base.process.in_hand import LeftOut, ObjectVersion, in_hand

LATENCY_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
ASKS_THE_SERVER: Final = frozenset({"/validate-quota"})
"""Webhooks that may ask the API server."""
_PROBES: Final = {"/healthz": "livez", "/livez": "livez", "/readyz": "readyz"}
_log = structlog.get_logger(__name__)


class WebhookMetrics:
    """The metrics of the webhooks."""

    def __init__(self, metrics: Metrics) -> None:
        """Register the metrics on the process's registry."""
        registry = metrics.registry
        self.reviews = Counter(
            "cotenant_webhook_reviews_total", "Reviews answered.", ["webhook", "outcome"], registry=registry
        )
        self.duration = Histogram(
            "cotenant_webhook_duration_seconds",
            "Time from a review's last byte to its answer, without the time to send it.",
            ["webhook"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.applied = Counter(
            "cotenant_webhook_profiles_applied_total", "Pods that a profile changed.", ["profile"], registry=registry
        )
        self.expires = Gauge(
            "cotenant_webhook_certificate_expiry_timestamp_seconds",
            "Unix time at which the served certificate expires.",
            registry=registry,
        )


class WebhookApp:
    """The application that answers the webhooks' HTTP requests."""

    def __init__(
        self,
        view: Callable[[], ClusterView],
        pods_of_quota: Callable[[str], int],
        settings: AdmissionSettings,
        clock: Clock,
        metrics: Metrics,
        config_namespace: str = "",
    ) -> None:
        """Store the arguments; slo-controller-config is validated in the namespace `config_namespace`."""
        self.checks = Checks()
        self._view, self._pods_of_quota, self._settings, self._clock = view, pods_of_quota, settings, clock
        self.metrics = metrics
        self._counts = WebhookMetrics(metrics)
        self._config_place = (config_namespace, SLO_CONFIG_MAP)
        self._record_key = b""

    def answer(self, request: Request) -> Response:
        """Return the response to one request."""
        if request.path in review.ROUTES:
            if request.method != "POST":
                return Response(405, b"webhooks take POST\n")
            began = perf_counter()
            answer = self._review_response(request.path, request.body)
            self._counts.duration.labels(request.path).observe(perf_counter() - began)
            self._counts.reviews.labels(request.path, answer.outcome).inc()
            for name in answer.profiles:
                self._counts.applied.labels(name).inc()
            return Response(answer.status, answer.body, "application/json" if answer.status == 200 else "text/plain")
        if request.method not in ("GET", "HEAD"):
            return Response(404, b"not found\n")
        if request.path == "/metrics":
            body, kind = self.metrics.exposition(request.headers.get(b"accept", b"").decode("latin-1"))
            return Response(200, body, kind)
        endpoint = _PROBES.get(request.path)
        if endpoint is None:
            return Response(404, b"not found: try /healthz, /readyz or /metrics\n")
        passed, report = self.checks.report(endpoint)
        return Response(200 if passed else 503, report.encode("utf-8", "replace"))

    def asks_elsewhere(self, path: str) -> bool:
        """Return whether an answer on this path may have to wait for the API server."""
        return path in ASKS_THE_SERVER

    def refused(self, path: str) -> None:
        """Count a review that was rejected before it was read."""
        if path in review.ROUTES:
            self._counts.reviews.labels(path, "bad-request").inc()

    def shown(self, expires_at: float, record_key: bytes = b"") -> None:
        """Record when the served certificate expires (Unix time), and the key that signs each `ProfileRecord`."""
        self._counts.expires.set(expires_at)
        self._record_key = record_key

    def _review_response(self, path: str, body: bytes) -> review.ReviewResponse:
        """Return the answer; an error of our own admits pods and refuses quotas."""
        try:
            context = review.ReviewContext(
                self._view(),
                self._clock.now_seconds(),
                self._settings.translate_overhead,
                self._record_key,
                self._pods_of_quota,
                self._config_place,
                self._settings.namespace,
                lambda *version: in_hand(ObjectVersion(*version)),
            )
            return review.answer(path, body, context)
        except ClusterError as error:
            return review.ReviewResponse(500, f"{error.message}\n".encode("utf-8", "replace"), "cluster-error")
        except LeftOut as error:
            _log.warning("an object was not checked", webhook=path, why=error.message)
            return _answer_unjudged(path, body, f"cotenant does not check this object: {error.message}", "left-out")
        except Exception:  # noqa: BLE001 - a fault of our own must not stop the cluster's pods
            _log.exception("review failed", webhook=path)
            return _answer_unjudged(path, body, "the webhook failed; its log says why", "failed")


def _answer_unjudged(path: str, body: bytes, why: str, outcome: str) -> review.ReviewResponse:
    """Return the answer about an object that was not checked: a quota is refused, others admitted with a warning."""
    if path in ASKS_THE_SERVER:
        return review.ReviewResponse(500, f"{why}\n".encode("utf-8", "replace"), outcome)
    verdict = review.AdmissionDecision(warnings=(why,))
    return review.ReviewResponse(200, review.encode(review.decode(body).uid, verdict), outcome)
