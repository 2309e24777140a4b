"""Health and metrics of the web process: /livez, /readyz, /metrics, and a middleware that times requests."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, Histogram, generate_latest

from cotenant.base.errors import CotenantError
from cotenant.dashboard.frame.view import View

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Health:
    """Probes and metrics of one application, with its own metrics registry."""

    def __init__(self, view: View) -> None:
        """Create the metrics, all at zero."""
        self._view = view
        self._registry = CollectorRegistry()
        self._threads = CapacityLimiter(2)  # of the probe's own: pages may wait in all others
        self._seconds = Histogram(
            "cotenant_dashboard_request_duration_seconds",
            "Time to answer a request, by route and status.",
            ("route", "code"),
            buckets=BUCKETS,
            registry=self._registry,
        )
        age = Gauge(
            "cotenant_dashboard_data_age_seconds",
            "Age of the newest sample shown; NaN without results.",
            registry=self._registry,
        )
        age.set_function(self._age)

    def _age(self) -> float:
        try:
            overview = self._view.source.snapshot().overview
        except CotenantError:
            return float("nan")
        return self._view.now_seconds() - overview.time_seconds if overview else float("nan")

    def add_to(self, app: FastAPI, base: str) -> None:
        """Register /livez, /readyz and /metrics below `base`, and at the root path, where the kubelet asks for them."""
        for prefix in {"/", base}:
            app.add_api_route(f"{prefix}livez", self.livez, include_in_schema=False)
            app.add_api_route(f"{prefix}readyz", self.readyz, include_in_schema=False)
            app.add_api_route(f"{prefix}metrics", self.metrics, include_in_schema=False)

    async def livez(self) -> Response:
        """Answer that the process is alive, even while its threads wait."""
        return Response("ok", media_type="text/plain")

    async def readyz(self) -> Response:
        """Answer whether the source of results can be read; it is ready even before the first results."""
        try:
            await run_sync(self._view.source.snapshot, limiter=self._threads)
        except CotenantError as error:
            return Response(f"source: {error.message}", media_type="text/plain", status_code=503)
        return Response("ok", media_type="text/plain")

    def metrics(self) -> Response:
        """Return the metrics in the Prometheus text format."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    def middleware(self, app: Any) -> Any:
        """Wrap the application to time each request, labelled by its route template so that labels stay few."""

        async def time_request(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            start, status = time.perf_counter(), 500

            async def watch_answer(message: Any) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await app(scope, receive, watch_answer)
            finally:
                route = getattr(scope.get("route"), "path", "other")
                self._seconds.labels(route, str(status)).observe(time.perf_counter() - start)

        return time_request
