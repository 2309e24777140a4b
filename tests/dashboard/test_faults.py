"""What our own faults and malformed requests become: a record with its traceback and a request id, or a 4xx; bounds."""

from __future__ import annotations

import io
import json
import logging
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from cotenant.base.logs.telemetry import configure_logging
from cotenant.base.settings.sections import TelemetrySettings
from cotenant.dashboard.frame import panels, shell
from cotenant.dashboard.server import connections
from cotenant.dashboard.settings import DashboardSettings
from cotenant.dashboard.sources.source import Snapshot
from tests.dashboard.test_access_gate import CALLBACK, TICK
from tests.support import dashboard as support
from tests.support.access import Browser

pytestmark = pytest.mark.server
BOUNDED = DashboardSettings(port=0, reload_seconds=0.0, body_cap_bytes=65_536, read_seconds=0.5)


class Crossed:
    """A source with a mistake in it."""

    def snapshot(self) -> Snapshot:
        raise RuntimeError("the wires are crossed")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with support.served(support.app_on(Crossed(), BOUNDED)) as address:  # type: ignore[arg-type]
        yield address


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    handlers, level = logging.root.handlers[:], logging.root.level
    stream = io.StringIO()
    configure_logging(TelemetrySettings(log_format="json"), stream)
    yield stream
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def records(log: io.StringIO, message: str) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in log.getvalue().splitlines()]
    return [record for record in entries if record["msg"] == message]


def callback(url: str, body: Any) -> requests.Response:
    browser = Browser(url)
    browser.get("/api/v1/me")
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return browser.post(f"/{CALLBACK}", data=raw, headers={"Content-Type": "application/json"})


def test_a_fault_of_ours_is_one_record_with_traceback_and_the_id_that_the_person_sees(
    url: str, log: io.StringIO
) -> None:
    response = Browser(url).get("/api/v1/workloads")
    id_ = response.headers["X-Request-Id"]
    assert response.status_code == 500 and response.json()["request"] == id_ and id_ in response.json()["fix"]
    (record,) = records(log, "request_failed")
    assert (record["request_id"], record["path"], record["level"]) == (id_, "/api/v1/workloads", "error")
    assert "RuntimeError: the wires are crossed" in record["exception"] and "Traceback" in record["exception"]


def test_a_callback_that_fails_is_a_record_too(url: str, log: io.StringIO) -> None:
    response = callback(url, TICK)
    assert response.status_code == 500
    (record,) = records(log, "request_failed")
    assert record["request_id"] == response.headers["X-Request-Id"] and "wires are crossed" in record["exception"]


@pytest.mark.parametrize("path", ["/", "/_dash-layout", "/_dash-dependencies"])
def test_the_frame_comes_although_no_result_can_be_read(log: io.StringIO, path: str) -> None:
    """To a new server's first request too: Dash finishes itself there, where no record would be written."""
    with support.served(support.app_on(Crossed(), BOUNDED)) as address:  # type: ignore[arg-type]
        assert Browser(address).get(path).status_code == 200
    assert records(log, "request_failed") == []


def test_a_frame_that_cannot_be_drawn_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the first request, which nobody would find in the log."""

    def layout(*_: Any) -> Any:
        raise RuntimeError("the frame is bent")

    monkeypatch.setattr(shell, "layout", layout)
    with pytest.raises(RuntimeError, match="the frame is bent"):
        support.app_on(Crossed(), BOUNDED)  # type: ignore[arg-type]


def test_a_panel_that_fails_has_its_traceback_on_a_console() -> None:
    stream = io.StringIO()
    handlers, level = logging.root.handlers[:], logging.root.level
    configure_logging(TelemetrySettings(log_format="console"), stream)
    try:
        panels.render_guarded(lambda: Crossed().snapshot())
    finally:
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
    (line,) = stream.getvalue().splitlines()
    assert "panel_failed" in line and "test_faults.py" in line and "snapshot <" in line


@pytest.mark.parametrize(
    "body",
    [
        b"nonsense",
        b"",
        b"\xff\xfe",
        b"[" * 100_00,
        [],
        {},
        {**TICK, "output": "no.such"},
        {**TICK, "output": 3},
        {**TICK, "inputs": []},
        {**TICK, "inputs": None},
        {**TICK, "inputs": [{"value": 1}]},
        {**TICK, "state": [*TICK["state"], *TICK["state"]]},
        {**TICK, "outputs": TICK["outputs"][:1]},
        {**TICK, "changedPropIds": [1]},
    ],
    ids=lambda body: str(body)[:40],
)
def test_a_malformed_callback_is_the_senders_mistake(url: str, log: io.StringIO, body: Any) -> None:
    response = callback(url, body)
    assert response.status_code == 400 and response.json()["message"]
    assert records(log, "request_failed") == []


# --- bounds -----------------------------------------------------------------------------------------------------------
def raw(url: str, text: bytes) -> bytes:
    """What comes back until the other side ends the connection."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=60) as connection:
        connection.sendall(text)
        response = b""
        while part := connection.recv(65_536):
            response += part
        return response


def head(url: str, length: str) -> bytes:
    """Of a POST with the session's token, after which its body would come."""
    browser = Browser(url)
    token = browser.get("/api/v1/me").json()["csrf"]
    cookies = "; ".join(f"{c.name}={c.value}" for c in browser.session.cookies)
    lines = [f"POST /{CALLBACK} HTTP/1.1", f"Host: {urlsplit(url).netloc}", f"Cookie: {cookies}"]
    return "\r\n".join([*lines, f"X-CSRFToken: {token}", length, "", ""]).encode()


@pytest.mark.parametrize(
    ("length", "body"),
    [("Content-Length: 200000000", b""), ("Transfer-Encoding: chunked", b"8000\r\n" + b"x" * 0x8000 + b"\r\n")],
)
def test_a_body_above_the_cap_is_refused_before_it_is_read(url: str, length: str, body: bytes) -> None:
    assert b"413" in raw(url, head(url, length) + body * 3).split(b"\r\n")[0]


def test_a_body_that_does_not_come_is_not_waited_for(url: str) -> None:
    assert b"408" in raw(url, head(url, "Content-Length: 100") + b"{").split(b"\r\n")[0]


@pytest.mark.parametrize("text", [b"", b"GET /livez HTTP/1.1\r\nHost: loc"])
def test_a_head_that_does_not_come_ends_the_connection(url: str, monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    assert raw(url, text) == b""


def test_a_head_without_an_end_is_cut_off(url: str) -> None:
    where = urlsplit(url)
    with (
        socket.create_connection((where.hostname or "", where.port or 0), timeout=60) as connection,
        suppress(ConnectionError),  # reset, or a broken pipe while we still send
    ):
        connection.sendall(b"GET /livez HTTP/1.1\r\nX: " + b"x" * 8_000_000)
        assert connection.recv(1) == b""
