"""The operator's own query of trouble, asked of a server that answers as Prometheus does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

from cotenant.autopilot.rounds.reading import asked_trouble
from cotenant.settings import Settings
from tests.support.prometheus import Server, blocks_from

NOW = 1_700_000_000


def settings(query: str, url: str) -> Settings:
    prometheus = {"url": url, "retries": 0, "connect_timeout_seconds": 2, "timeout_seconds": 5}
    body = {"autopilot": {"trouble_query": query}, "profiler": {"prometheus": prometheus}}
    return msgspec.convert(body, Settings)


@contextmanager
def answering(status: int, body: Any) -> Iterator[str]:
    """The URL of a server that gives one answer to every question."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def matrix(*series: tuple[dict[str, str], str]) -> Any:
    result = [{"metric": labels, "values": [[NOW, value]]} for labels, value in series]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sample", "trouble"),
    [
        (matrix(), ""),
        (matrix(({}, "0"), ({"zone": "a"}, "-1"), ({"zone": "b"}, "NaN")), ""),
        (
            matrix(({"zone": "a"}, "0"), ({"zone": "b"}, "2")),
            "autopilot.trouble_query reports trouble, value 2 for zone=b",
        ),
        (matrix(({}, "+Inf")), "autopilot.trouble_query reports trouble, value inf"),
    ],
)
def test_a_value_above_nothing_is_trouble(sample: Any, trouble: str) -> None:
    with answering(200, sample) as url:
        assert asked_trouble(settings("q", url), NOW) == trouble


@pytest.mark.parametrize("status", [403, 422, 503])
def test_a_query_that_is_not_answered_is_trouble_too(status: int) -> None:
    refusal = {"status": "error", "errorType": "bad_data", "error": "no"}
    with answering(status, refusal) as url:
        assert asked_trouble(settings("q", url), NOW).startswith("autopilot.trouble_query failed: ")
    assert "trouble_query failed" in asked_trouble(settings("q", url), NOW)  # the server is gone
    assert "profiler.prometheus.url is not" in asked_trouble(settings("q", ""), NOW)
    assert asked_trouble(settings("", ""), NOW) == ""


@pytest.mark.server
def test_a_real_prometheus_answers_of_now(tmp_path: Any) -> None:
    lines = ["# TYPE burning gauge", *(f'burning{{zone="a"}} {int(t >= NOW)} {t}' for t in (NOW - 60, NOW)), "# EOF"]
    (tmp_path / "m.txt").write_text("\n".join([*lines, ""]))
    blocks_from(tmp_path / "m.txt", tmp_path / "data")
    with Server(tmp_path / "data") as server:
        questions = [("burning > 0", NOW - 60), ("burning", NOW), ("vector(0)", NOW), ("scalar(burning)", NOW)]
        texts = [asked_trouble(settings(query, server.url), at) for query, at in [*questions, ("burn(", NOW)]]
    assert texts[:4] == [
        "",
        "autopilot.trouble_query reports trouble, value 1 for __name__=burning,zone=a",
        "",
        "autopilot.trouble_query reports trouble, value 1",
    ]
    assert "trouble_query failed" in texts[4] and "parse error" in texts[4]
