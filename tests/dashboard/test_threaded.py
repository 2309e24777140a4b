"""Callbacks over real HTTP: one that waits holds up neither probes nor other callbacks, and knows who asks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import requests
from dash import Input, Output, ctx, html, set_props
from fastapi import FastAPI

from cotenant.dashboard.access.gate import Gate
from cotenant.dashboard.server.threaded_dash import ThreadedDash
from tests.support import access as support
from tests.support.dashboard import served

pytestmark = pytest.mark.server


@dataclass
class Slow:
    """An application whose callback waits until it is let go."""

    inside: threading.Event = field(default_factory=threading.Event)
    leave: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def ask(self, output: str, **headers: str) -> requests.Response:
        id_, prop = output.split(".")
        body: dict[str, Any] = {
            "output": output,
            "outputs": {"id": id_, "property": prop},
            "inputs": [{"id": "in", "property": "children", "value": 1}],
            "changedPropIds": ["in.children"],
        }
        return requests.post(f"{self.url}/_dash-update-component", json=body, headers=headers, timeout=60)


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow_server, app = Slow(), FastAPI()
    gate = Gate(support.by_proxy("127.0.0.1/32"), "/")
    dash = ThreadedDash("slow", server=app)
    dash.layout = html.Div([html.Div(id=name) for name in ("in", "waits", "quick", "said")])

    @dash.callback(Output("waits", "children"), Input("in", "children"))
    def _wait(_value: Any) -> str:
        slow_server.inside.set()
        return "left" if slow_server.leave.wait(60) else "given up"

    @dash.callback(Output("quick", "children"), Input("in", "children"))
    def _quick(_value: Any) -> str:
        set_props("said", {"children": f"by {ctx.triggered_id}"})
        return gate.current_user().name

    @app.get("/livez")
    async def _live() -> str:
        return "ok"

    with served(app) as url:
        slow_server.url = url
        yield slow_server
        slow_server.leave.set()


def test_a_callback_that_waits_holds_up_nobody(slow: Slow) -> None:
    answers: list[requests.Response] = []
    asker = threading.Thread(target=lambda: answers.append(slow.ask("waits.children")))
    asker.start()
    assert slow.inside.wait(60)
    assert requests.get(f"{slow.url}/livez", timeout=60).text == '"ok"'
    assert slow.ask("quick.children").status_code == 200
    slow.leave.set()
    asker.join(60)
    assert answers[0].json()["response"] == {"waits": {"children": "left"}}


def test_in_its_thread_a_callback_knows_what_was_triggered_and_writes_elsewhere(slow: Slow) -> None:
    body = slow.ask("quick.children").json()
    assert body["sideUpdate"] == {"said": {"children": "by in"}}


def test_in_its_thread_a_callback_knows_who_asks() -> None:
    app, gate = FastAPI(), Gate(support.by_proxy("127.0.0.1/32"), "/")
    dash, names = ThreadedDash("who", server=app), list[tuple[str, bool]]()
    dash.layout = html.Div([html.Div(id="in"), html.Div(id="out")])

    @dash.callback(Output("out", "children"), Input("in", "children"))
    def _who(_value: Any) -> str:
        names.append((gate.current_user().name, "worker" in threading.current_thread().name))
        return ""

    app.add_middleware(gate.middleware)
    with served(app) as url:
        for name in ("ann", "bob"):
            browser = support.Browser(url, **{"X-Forwarded-User": name})
            browser.get("/", page=True)
            body = {"output": "out.children", "outputs": {"id": "out", "property": "children"}}
            inputs = [{"id": "in", "property": "children", "value": 1}]
            browser.post("/_dash-update-component", json={**body, "inputs": inputs, "changedPropIds": ["in.children"]})
    assert names == [("ann", True), ("bob", True)]
    assert gate.current_user().name == "" and gate.current_user().grants == ()
