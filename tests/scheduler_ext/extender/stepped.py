"""Bind verbs that go on by one request at a time, in the order that a test wants, on an API server in this process."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from cotenant.base.kube import KubeClient
from cotenant.base.kube.auth import Access
from cotenant.base.kube.connection import ApiRequest, ApiResponse
from cotenant.base.settings.sections import KubeSettings
from cotenant_lab.simulation.api_server.refusal import Refusal
from cotenant_lab.simulation.api_server.rights import ADMINISTRATOR
from cotenant_lab.simulation.api_server.routes import Api, EmbeddedRequest


class Killed(BaseException):
    """The process that made the call is gone."""


@dataclass
class Act:
    """Something that talks to the API server, in a thread that stops before each request until `step` or `kill`."""

    work: Callable[..., object]
    result: object = None
    killed: bool = False
    finished: bool = False
    _go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _stopped: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _thread: threading.Thread | None = None

    def step(self) -> None:
        """Send one request and go on to the next; the first step goes to the first request."""
        if self.finished:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        else:
            self._go.release()
        self._stopped.acquire()

    def kill(self) -> None:
        """It sends nothing any more."""
        self.killed = True
        self.step()

    def wait(self) -> None:
        """Of the thread: until it may send the next request."""
        self._stopped.release()
        self._go.acquire()
        if self.killed:
            raise Killed

    def _run(self) -> None:
        try:
            self.result = None if self.killed else self.work(self)
        except Killed:
            pass
        finally:
            self.finished = True
            self._stopped.release()


class SteppedClient(KubeClient):
    """Asks the API in this process, one request a step."""

    _api: Api
    _act: Act | None = None

    @staticmethod
    @cache
    def unconnected() -> SteppedClient:
        """For copies: to make a connection ready takes longer than all requests."""
        return SteppedClient(Access("in-process", "https://127.0.0.1:1", lambda: None), KubeSettings(retries=0))

    @classmethod
    def of(cls, api: Api, act: Act | None = None) -> SteppedClient:
        """In the steps of an act, or at once."""
        client = copy.copy(cls.unconnected())
        client._api, client._act = api, act
        return client

    def request(
        self,
        verb: str,  # noqa: ARG002 - as KubeClient has it
        request: ApiRequest,
        *,
        repeatable: bool = False,  # noqa: ARG002
        before: Callable[[], None] | None = None,  # noqa: ARG002
    ) -> ApiResponse:
        if self._act is not None:
            self._act.wait()
        parts = urlsplit(request.path)
        body: Any = json.loads(request.body) if request.body else None
        query = dict(parse_qsl(parts.query))
        embedded_request = EmbeddedRequest(
            request.method, parts.path, ADMINISTRATOR, query, request.content_type, body, "cotenant-extender"
        )
        try:
            response = self._api.answer(embedded_request)
        except Refusal as refusal:
            return ApiResponse(refusal.code, {}, json.dumps(refusal.status()).encode())
        return ApiResponse(response.code, {}, json.dumps(response.body).encode())
