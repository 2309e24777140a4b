"""A real kube-scheduler with our extender, for tests and benches, configured as `--print-config` has it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cotenant.edges.clock import SystemClock
from cotenant.edges.telemetry import Metrics
from cotenant.settings.extender import ExtenderSettings
from scheduler_ext.extender.configuration import Reach, extenders
from scheduler_ext.extender.service import ExtenderService
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for

CRDS = (
    "nodemetrics.slo.koordinator.sh",
    "usageforecasts.cotenant.dev",
    "reservations.scheduling.koordinator.sh",
    "swapguards.cotenant.dev",
)
FOLDER = Path(__file__).resolve().parents[3] / "deploy" / "crds"


def install_crds(plane: ControlPlane) -> None:
    """What the extender watches."""
    for name in CRDS:
        if (FOLDER / f"{name}.yaml").exists():
            install_crd(plane.api(), name)


@contextmanager
def service(plane: ControlPlane, settings: ExtenderSettings) -> Iterator[ExtenderService]:
    """A running extender with a complete view."""
    with ExtenderService(plane.client(), settings, SystemClock(), Metrics("test", "3")) as running:
        wait_for("a complete view", lambda: bool(running.view.snapshot.sources) and not running.view.snapshot.problem())
        yield running


def configured(url: str, settings: ExtenderSettings, **more: Any) -> dict[str, Any]:
    """Fields of a KubeSchedulerConfiguration for `Options.scheduler`."""
    return {"extenders": extenders(Reach(url), settings), **more}


class Recorder:
    """An ASGI application that notes every exchange with the one behind it."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self.app = app
        self.seen: list[tuple[str, bytes, int, bytes]] = []
        """(path, question, status, answer)."""
        self.replace: dict[str, tuple[int, bytes]] = {}
        """Path -> (status, body) that is answered instead."""
        self.delay: dict[str, float] = {}
        """Path -> seconds before an answer."""
        self._lock = threading.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        messages: list[Any] = []
        while not messages or messages[-1].get("more_body"):
            messages.append(await receive())
        question = b"".join(m.get("body", b"") for m in messages)
        answer: list[Any] = []

        async def replay() -> Any:
            return messages.pop(0)

        async def note(message: Any) -> None:
            answer.append(message)

        await self.app(scope, replay, note)
        status, body = answer[0]["status"], b"".join(m.get("body", b"") for m in answer[1:])
        headers = answer[0]["headers"]
        if scope["path"] in self.replace:
            status, body = self.replace[scope["path"]]
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await asyncio.sleep(self.delay.get(scope["path"], 0.0))
        with self._lock:
            self.seen.append((scope["path"], question, status, body))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def of(self, path: str) -> list[tuple[bytes, int, bytes]]:
        """(question, status, answer) of one path so far."""
        with self._lock:
            return [(q, s, a) for p, q, s, a in self.seen if p == path]
