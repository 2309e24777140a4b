"""The connection to Prometheus on its worst days, before a real HTTP server that answers what a test tells it to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from requests import Response

from cotenant.base.errors import (
    SourceError,
    SourceForbidden,
    SourceLimit,
    SourceProtocol,
    SourceTooLong,
    SourceUnreachable,
)
from cotenant.base.usage.usage import TimeGrid
from cotenant.profiler.prometheus.answers import Overloaded, TooLongSpan, parse_api_response
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.parts import Rates, usage_parts
from cotenant.profiler.prometheus.plan import RangeQuery
from cotenant.profiler.prometheus.questions_in_turn import MOST_FRUITLESS, ask_all
from cotenant.profiler.prometheus.retry import OPEN_SECONDS, retry_after_seconds
from cotenant.profiler.settings import PrometheusSettings
from tests.support.api_server import ApiServer, Handler, Reply, hang_up, make_certificate
from tests.support.timer import LeapingTimer

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
NAMES = "/api/v1/label/__name__/values"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    api_server = ApiServer(None, None)
    api_server.objects[NAMES] = {"status": "success", "data": ["up"]}
    yield api_server
    api_server.stop()


@pytest.fixture
def timer() -> LeapingTimer:
    return LeapingTimer()


@pytest.fixture
def client(server: ApiServer, timer: LeapingTimer) -> Iterator[Client]:
    prometheus_client = Client(PrometheusSettings(url=server.url, retries=0), timer=timer)
    yield prometheus_client
    prometheus_client.close()


def says(body: bytes, code: int = 200) -> Reply:
    def reply(handler: Handler) -> None:
        handler.raw(code, body)

    return reply


def test_a_server_that_was_away_is_asked_again_after_a_while(
    server: ApiServer, client: Client, timer: LeapingTimer
) -> None:
    server.once = [hang_up] * 5
    for _ in range(5):
        with pytest.raises(SourceUnreachable, match="no connection"):
            client.names(0, 1)
    count = len(server.requests)
    with pytest.raises(SourceUnreachable, match="in a row"):
        client.names(0, 1)
    assert len(server.requests) == count
    timer.leap(OPEN_SECONDS)
    assert client.names(0, 1) == {"up"}
    assert client.names(0, 1) == {"up"}, "the circuit is closed again"


def test_a_server_that_is_still_away_is_looked_for_once_in_a_while(
    server: ApiServer, client: Client, timer: LeapingTimer
) -> None:
    server.once = [hang_up] * 6
    for _ in range(5):
        with pytest.raises(SourceUnreachable, match="no connection"):
            client.names(0, 1)
    timer.leap(OPEN_SECONDS)
    with pytest.raises(SourceUnreachable, match="no connection"):
        client.names(0, 1)
    with pytest.raises(SourceUnreachable, match="in a row"):
        client.names(0, 1)
    assert server.once == [], "the second of them was not sent"


def test_credentials_that_expire_are_renewed_once_and_used_from_then_on(server: ApiServer, timer: LeapingTimer) -> None:
    issued = iter(("Bearer second", "Bearer third"))
    settings = PrometheusSettings(url=server.url, retries=0, headers={"Authorization": "Bearer first"})
    client = Client(settings, timer=timer, renew=lambda: next(issued))
    texts: list[str] = []

    def expired(handler: Handler) -> None:
        texts.append(handler.headers["Authorization"])
        handler.raw(401, b"expired")

    def fresh(handler: Handler) -> None:
        texts.append(handler.headers["Authorization"])
        handler.raw(200, b'{"status":"success","data":["up"]}')

    server.once = [expired, fresh, fresh]
    assert client.names(0, 1) == client.names(0, 1) == {"up"}
    assert texts == ["Bearer first", "Bearer second", "Bearer second"]
    server.once = [expired, expired]
    with pytest.raises(SourceForbidden, match="401"):
        client.names(0, 1)
    assert texts[3:] == ["Bearer second", "Bearer third"], "renewed once a question, then told"
    client.close()


@pytest.mark.parametrize(
    "body",
    [b'{"status":"success","data":["up"],"isPartial":true}',
     b'{"status":"success","data":["up"],"warnings":["No StoreAPI answered: rpc error: code = Unavailable"]}'],
)  # fmt: skip
def test_an_answer_without_some_of_the_servers_storage_is_asked_again(
    server: ApiServer, timer: LeapingTimer, body: bytes
) -> None:
    client = patient(server, timer)
    server.once = [says(body)] * 2
    assert client.names(0, 1) == {"up"}
    assert len(timer.pauses) == 2
    client.close()


@pytest.mark.parametrize("more", [b'"warnings":null', b'"warnings":["PromQL warning: limit"]', b'"isPartial":false'])
def test_an_answer_with_nothing_missing_is_taken(server: ApiServer, client: Client, more: bytes) -> None:
    server.once = [says(b'{"status":"success","data":["up"],' + more + b"}")]
    assert client.names(0, 1) == {"up"}


def patient(server: ApiServer, timer: LeapingTimer) -> Client:
    """As a scan asks: a server that was there may be away for a minute and a half."""
    return Client(PrometheusSettings(url=server.url), outage_seconds=90.0, timer=timer)


def busy(code: int, **headers: str) -> Reply:
    def reply(handler: Handler) -> None:
        handler.raw(code, b"later", None, **headers)

    return reply


def test_a_server_that_is_away_for_a_minute_ends_no_question(server: ApiServer, timer: LeapingTimer) -> None:
    client = patient(server, timer)
    client.names(0, 1)
    server.once = [hang_up] * 8
    assert client.names(0, 1) == {"up"}
    assert sum(timer.pauses) > 40, "eight tries without an answer span most of a minute"
    assert max(timer.pauses) <= 10
    client.close()


def test_a_server_that_is_gone_is_given_up_after_the_patience_and_the_rest_soon(
    server: ApiServer, timer: LeapingTimer
) -> None:
    client = patient(server, timer)
    client.names(0, 1)
    server.once = [hang_up] * 1000
    with pytest.raises(SourceUnreachable):
        client.names(0, 1)
    assert 60 <= sum(timer.pauses) <= 90
    timer.pauses.clear()
    for _ in range(20):
        with pytest.raises(SourceUnreachable):
            client.names(0, 1)
    assert sum(timer.pauses) < 30, "the next twenty do not wait as long again"
    client.close()


def test_an_address_where_nobody_ever_answered_fails_soon(server: ApiServer, timer: LeapingTimer) -> None:
    client = patient(server, timer)
    server.once = [hang_up] * 100
    with pytest.raises(SourceUnreachable, match="no connection"):
        client.names(0, 1)
    assert len(server.requests) == 3
    client.close()


@pytest.mark.parametrize("code", [429, 503])
def test_a_servers_retry_after_is_honoured(server: ApiServer, timer: LeapingTimer, code: int) -> None:
    client = patient(server, timer)
    server.once = [busy(code, **{"Retry-After": "17"})] * 2
    assert client.names(0, 1) == {"up"}
    assert timer.pauses == [17.0, 17.0]
    server.once = [busy(code, **{"Retry-After": "3600"})]
    with pytest.raises(SourceUnreachable) as caught:
        client.names(0, 1)
    assert caught.value.fix
    assert timer.pauses == [17.0, 17.0], "nobody waits for an hour"
    client.close()


def test_a_part_that_always_fails_takes_the_patience_once(server: ApiServer, timer: LeapingTimer) -> None:
    client = patient(server, timer)
    for _ in range(10):
        server.once = [busy(500)] * 100
        with pytest.raises(SourceUnreachable, match="500"):
            client.names(0, 1)
        server.once = []
        client.names(0, 1)
    assert sum(timer.pauses) < 90 + 9 * 2
    client.close()


def test_who_waits_for_a_server_is_let_go_when_the_caller_stops(server: ApiServer) -> None:
    client = Client(PrometheusSettings(url=server.url), outage_seconds=3600.0)
    server.once = [busy(503, **{"Retry-After": "3000"})] * 2
    client.stop()
    with pytest.raises(SourceUnreachable, match="503"):
        client.names(0, 1)
    client.close()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("30", 30.0), ("Sat, 21 Nov 2026 12:00:40 GMT", 40.0), ("Sat, 21 Nov 2026 11:00:00 GMT", 0.0), ("soon", 0.0),
     ("²", 0.0), ("", 0.0), (None, 0.0)],
)  # fmt: skip
def test_retry_after_is_a_number_or_a_date(header: str | None, seconds: float) -> None:
    assert retry_after_seconds(header, 1_795_262_400.0) == seconds


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
    with pytest.raises(SourceProtocol, match="without the requested data"):
        client.range("up", 0, 60, 60)


def test_an_https_address_of_a_server_that_speaks_http_is_said_to_be_one(server: ApiServer) -> None:
    client = Client(PrometheusSettings(url=server.url.replace("http:", "https:"), retries=0))
    with pytest.raises(SourceUnreachable, match=r"answers, but not with TLS$") as caught:
        client.names(0, 1)
    client.close()
    assert caught.value.fix == "Use an http:// address."


def test_a_certificate_of_an_unknown_authority_is_said_without_the_layers_of_libraries(tmp_path: Path) -> None:
    for name, signer in (("authority", None), ("server", "authority")):
        make_certificate(tmp_path, name, signer)
    server = ApiServer(tmp_path / "server.pem", tmp_path / "authority.pem")
    client = Client(PrometheusSettings(url=server.url, retries=0))
    with pytest.raises(SourceUnreachable, match=r"certificate of .* cannot be verified") as caught:
        client.names(0, 1)
    client.close()
    server.stop()
    assert "HTTPSConnectionPool" not in caught.value.message
    assert "profiler.prometheus.ca_file" in caught.value.fix


def test_a_refusal_of_the_api_servers_proxy_names_the_manifest_that_grants_it() -> None:
    path = "/api/v1/namespaces/mon/services/prom/proxy"
    server = ApiServer(None, None)
    server.forbidden = {path + NAMES}
    client = Client(PrometheusSettings(url=server.url + path, retries=0))
    with pytest.raises(SourceForbidden) as caught:
        client.names(0, 1)
    client.close()
    server.stop()
    (manifest,) = re.findall(r"deploy/\S+\.yaml", caught.value.fix)
    assert "services/proxy" in (ROOT / manifest).read_text()


SERIES = "the query exceeded the maximum number of series (limit: 9 series) (err-mimir-max-series-per-query). Consider "
REPEATED = 'error when executing query="sum(kube_pod_container_resource_limits{resource=\\"cpu\\"})" '
REPEATED += "on the time range (start=1, end=2, step=300000): "


@pytest.mark.parametrize(
    ("code", "error", "kind"),
    [
        # A limit of what is selected, with advice on the range: cut by time alone it might never pass.
        (422, f"{SERIES}reducing the time range and/or number of series selected by the query.", SourceLimit),
        (422, "cannot exceed 9 samples; possible solutions: reduce time range for the query", SourceLimit),
        (422, f"{REPEATED}the number of matching timeseries exceeds 9", SourceLimit),
        (422, f"{REPEATED}timeout exceeded during query execution", SourceLimit),
        (422, "exceeded maximum resolution of 11,000 points per timeseries", SourceLimit),
        (422, "the total query time range exceeds the limit (query length: 36h, limit: 12h)", TooLongSpan),
        (400, "Please reduce the time range: it must be within 32 days, at maximum", TooLongSpan),
        (422, "query length exceeds the limit of 16384 characters", SourceTooLong),
        # No limit on size: a smaller question fares no better.
        (422, f"{REPEATED}unknown label", SourceProtocol),
        (400, 'parse error: 1:3: duration must be greater than 0, at maximum "1h"', SourceProtocol),
        (429, "the request exceeded the tenant's request rate limit of 9 requests/s", Overloaded),
        (429, "too many outstanding requests", Overloaded),
        (429, "the query exceeds the limit of data that it may read", SourceLimit),
    ],
)
def test_only_what_a_server_says_of_a_questions_size_makes_it_smaller(
    code: int, error: str, kind: type[SourceError]
) -> None:
    response = Response()
    response.status_code, response.url = code, "http://prom/api/v1/query_range"
    body = bytearray(json.dumps({"status": "error", "errorType": "bad_data", "error": error}).encode())
    with pytest.raises(SourceError) as caught:
        parse_api_response(response, body)
    assert type(caught.value) is kind


@pytest.mark.parametrize("error", [b"the query exceeds a limit", b"the time range must be within 0 hours"])
def test_a_query_that_is_refused_in_all_sizes_is_not_cut_into_all_of_its_slots(
    server: ApiServer, client: Client, error: bytes
) -> None:
    server.once = [says(b'{"status":"error","errorType":"execution","error":"' + error + b'"}', 422)] * 1000
    query = RangeQuery((usage_parts(Rates(60), {}, rule=False)[0],), TimeGrid(0, 300, 288))
    (response,) = ask_all(client, [query], 1, lambda raw, _: raw)
    # 16 slots are asked for one by one, below at most as many halves and the nine sizes from 288 to 1; then the other
    # half of each size is asked for once.
    assert len(server.requests) <= 2 * MOST_FRUITLESS + 2 * 9
    assert sum(failed.grid.size for failed, _ in response.failed) == 288
