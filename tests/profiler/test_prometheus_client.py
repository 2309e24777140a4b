"""The connection to Prometheus on its worst days, before a real HTTP server that answers what a test tells it to."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from cotenant.model.errors import SourceError, SourceProtocol, SourceUnreachable
from cotenant.settings.profiler import PrometheusSettings
from profiler.prometheus import client as connection
from profiler.prometheus.client import Client
from tests.support.api_server import ApiServer, Handler, Reply, hang_up

pytestmark = pytest.mark.server

NAMES = "/api/v1/label/__name__/values"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    made = ApiServer(None, None)
    made.objects[NAMES] = {"status": "success", "data": ["up"]}
    yield made
    made.stop()


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    made = Client(PrometheusSettings(url=server.url, retries=0))
    yield made
    made.close()


def says(body: bytes) -> Reply:
    def reply(handler: Handler) -> None:
        handler.raw(200, body)

    return reply


def test_a_server_that_was_away_is_asked_again_after_a_while(
    server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.once = [hang_up] * 5
    for _ in range(5):
        with pytest.raises(SourceUnreachable, match="no connection"):
            client.names(0, 1)
    asked = len(server.requests)
    with pytest.raises(SourceUnreachable, match="in a row"):
        client.names(0, 1)
    assert len(server.requests) == asked
    now = time.monotonic
    monkeypatch.setattr(connection.time, "monotonic", lambda: now() + connection.OPEN_SECONDS)
    assert client.names(0, 1) == {"up"}
    monkeypatch.undo()
    assert client.names(0, 1) == {"up"}, "the circuit is closed again"


def test_a_server_that_is_still_away_is_looked_for_once_in_a_while(
    server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.once = [hang_up] * 6
    for _ in range(5):
        with pytest.raises(SourceUnreachable, match="no connection"):
            client.names(0, 1)
    now = time.monotonic
    monkeypatch.setattr(connection.time, "monotonic", lambda: now() + connection.OPEN_SECONDS)
    with pytest.raises(SourceUnreachable, match="no connection"):
        client.names(0, 1)
    with pytest.raises(SourceUnreachable, match="in a row"):
        client.names(0, 1)
    assert server.once == [], "the second of them was not sent"


@pytest.mark.parametrize(
    "body",
    [
        b'{"status":"success"}',
        b'{"status":"success","data":{}}',
        b'{"status":"success","data":[1]}',
        b'{"status":"success","data":["\xff"]}',
        b'{"status":"error","error":"\xff"}',
        b'{"status":"success","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=["no data", "object", "numbers", "no UTF-8", "error without UTF-8", "nested"],
)
def test_an_answer_that_is_no_list_of_names_is_a_typed_error(server: ApiServer, client: Client, body: bytes) -> None:
    server.once = [says(body)]
    with pytest.raises(SourceError) as caught:
        client.names(0, 1)
    assert isinstance(caught.value, SourceProtocol)
    assert caught.value.message


@pytest.mark.parametrize("data", [None, [], {}, {"resultType": "matrix"}], ids=["null", "list", "empty", "no result"])
def test_an_answer_without_a_result_is_a_typed_error(server: ApiServer, client: Client, data: object) -> None:
    server.objects["/api/v1/query_range"] = {"status": "success", "data": data}
    with pytest.raises(SourceProtocol, match="without the data"):
        client.range("up", 0, 60, 60)
