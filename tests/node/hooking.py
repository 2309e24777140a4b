"""A hook server of Koordinator's protocol that a test plays: it notes what it is asked and answers what it is told."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cotenant.enforcer.runtime.messages import hook
from tests.node.upstreams import PlayedServer

SERVICE = "/runtime.v1alpha1.RuntimeHookService"
SANDBOX_POINTS = ("PreRunPodSandbox", "PostStopPodSandbox")
CONTAINER_POINTS = (
    "PreCreateContainer",
    "PreStartContainer",
    "PostStartContainer",
    "PostStopContainer",
    "PreUpdateContainerResources",
)
POINTS = SANDBOX_POINTS + CONTAINER_POINTS


class HookServer:
    """`asked`: (point, request) in order. `answers`: by point; others get an empty answer. `hold` makes it hang."""

    def __init__(self, socket: Path, answers: Mapping[str, Any] | None = None) -> None:
        self.socket = socket
        self.asked: list[tuple[str, Any]] = []
        self.answers = dict(answers or {})
        self.hold = threading.Event()
        self.hold.set()
        methods = {f"{SERVICE}/{point}Hook": self._method(point) for point in POINTS}
        self._server = PlayedServer(socket, methods)

    def points(self) -> list[str]:
        return [point for point, _ in self.asked]

    def of(self, point: str) -> Any:
        """The last request at that point."""
        return next(request for at, request in reversed(self.asked) if at == point)

    def _method(self, point: str) -> Any:
        kind = hook.SandboxRequest if point in SANDBOX_POINTS else hook.ContainerRequest

        def answer(body: bytes, _: Any) -> bytes:
            self.asked.append((point, kind.FromString(body)))
            self.hold.wait(30)
            live = self.answers.get(point)
            return live.SerializeToString() if live is not None else b""

        return answer

    def __enter__(self) -> HookServer:
        self._server.start()
        return self

    def stop(self) -> None:
        self.hold.set()
        self._server.stop()

    def start(self) -> None:
        self._server.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
