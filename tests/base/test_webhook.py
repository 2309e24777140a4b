"""A summary is posted once, to the one origin that was named, and its address stays a secret."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.errors import NotDelivered, UsageError
from cotenant.base.http.webhook import origin_of, post
from cotenant.base.settings.sections import NotifySettings
from tests.support.api_server import make_certificate

pytestmark = pytest.mark.server

SETTINGS = NotifySettings(timeout_seconds=30.0)
SECRET = "T000/B000/not-to-be-seen"
Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers as the test says; remembers what it got."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, body, dict(self.headers)))  # type: ignore[attr-defined]
        self.server.answers[self.path.split("?")[0]](self)  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        self.server.got.append((f"GET {self.path}", b"", {}))  # type: ignore[attr-defined]
        status(200)(self)

    def log_message(self, *_: Any) -> None:
        pass


def status(code: int, body: bytes = b"", **headers: str) -> Answer:
    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


class Receiver:
    """A real server on a free loopback port."""

    def __init__(self, answers: dict[str, Answer], context: ssl.SSLContext | None = None) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.got = []  # type: ignore[attr-defined]
        self.server.answers = answers  # type: ignore[attr-defined]
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.scheme = "https" if context else "http"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def got(self) -> list[tuple[str, bytes, dict[str, str]]]:
        return self.server.got  # type: ignore[attr-defined]

    def url(self, path: str = f"/{SECRET}") -> str:
        return f"{self.scheme}://127.0.0.1:{self.server.server_port}{path}"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    webhook_receiver = Receiver({f"/{SECRET}": status(200, b"ok")})
    yield webhook_receiver
    webhook_receiver.server.shutdown()
    webhook_receiver.server.server_close()


def refused(url: str, settings: NotifySettings = SETTINGS) -> NotDelivered:
    with pytest.raises(NotDelivered) as caught:
        post(url, b"{}", settings)
    assert SECRET not in caught.value.message + caught.value.fix + repr(caught.value.__cause__)
    return caught.value


def test_the_document_arrives_as_json_once(receiver: Receiver) -> None:
    post(receiver.url(), b'{"text": "h\xc3\xa9"}', SETTINGS)
    ((path, body, headers),) = receiver.got
    assert (path, body) == (f"/{SECRET}", b'{"text": "h\xc3\xa9"}')
    assert headers["Content-Type"] == "application/json"
    assert "Authorization" not in headers


def test_a_password_of_netrc_is_not_sent(receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password hush\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    post(receiver.url(), b"{}", SETTINGS)
    assert "Authorization" not in receiver.got[0][2]


@pytest.mark.slow
@pytest.mark.parametrize("code", [400, 404, 500, 503])
def test_a_refusal_is_told_with_the_receivers_words_and_not_tried_again(receiver: Receiver, code: int) -> None:
    receiver.server.answers[f"/{SECRET}"] = status(code, b"invalid_blocks" + b"x" * 5000)  # type: ignore[attr-defined]
    message = refused(receiver.url()).message
    assert f"127.0.0.1 answered {code}: invalid_blocks" in message
    assert len(message) < 300
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    "body", [f"Cannot POST /{SECRET}", "<pre>%2FT000%2FB000%2Fnot-to-be", "no hook not-to-be-seen"]
)
def test_a_refusal_that_repeats_the_address_is_told_without_its_words(receiver: Receiver, body: str) -> None:
    receiver.server.answers[f"/{SECRET}"] = status(404, body.encode())  # type: ignore[attr-defined]
    assert refused(receiver.url()).message == "127.0.0.1 answered 404"


def test_an_answer_that_breaks_off_while_it_is_read_is_not_delivered(receiver: Receiver) -> None:
    def broken(handler: Handler) -> None:
        handler.send_response(500)
        handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", "9")
        handler.end_headers()
        handler.wfile.write(b"not gzip!")

    receiver.server.answers[f"/{SECRET}"] = broken  # type: ignore[attr-defined]
    assert "no answer from 127.0.0.1" in refused(receiver.url()).message


def test_a_redirect_within_the_origin_is_followed_with_the_same_document(receiver: Receiver) -> None:
    receiver.server.answers |= {"/old": status(308, Location="/new"), "/new": status(204)}  # type: ignore[attr-defined]
    post(receiver.url("/old"), b'{"a": 1}', SETTINGS)
    assert [(path, body) for path, body, _ in receiver.got] == [("/old", b'{"a": 1}'), ("/new", b'{"a": 1}')]


def test_a_redirect_to_another_origin_gets_nothing(receiver: Receiver) -> None:
    other = Receiver({"/x": status(200)})
    try:
        away = status(307, Location=other.url("/x"))
        receiver.server.answers["/away"] = away  # type: ignore[attr-defined]
        assert "another origin; not followed" in refused(receiver.url("/away")).message
        assert other.got == []
    finally:
        other.server.shutdown()
        other.server.server_close()


@pytest.mark.parametrize("code", [301, 302, 303, 304])
def test_a_redirect_that_would_turn_the_post_into_a_get_is_not_followed(receiver: Receiver, code: int) -> None:
    receiver.server.answers["/old"] = status(code, Location="/new")  # type: ignore[attr-defined]
    assert f"answered {code} instead" in refused(receiver.url("/old")).message
    assert len(receiver.got) == 1


def test_a_circle_of_redirects_ends(receiver: Receiver) -> None:
    receiver.server.answers["/loop"] = status(307, Location="/loop")  # type: ignore[attr-defined]
    assert "more than 3 times" in refused(receiver.url("/loop")).message
    assert len(receiver.got) == 4


def test_a_server_that_never_answers_is_given_up(receiver: Receiver) -> None:
    receiver.server.answers["/slow"] = lambda _: time.sleep(10)  # type: ignore[attr-defined]
    start = time.monotonic()
    assert "did not answer in time" in refused(receiver.url("/slow"), NotifySettings(timeout_seconds=0.3)).message
    assert time.monotonic() - start < 30


def test_an_answer_that_trickles_in_is_given_up_too(receiver: Receiver) -> None:
    def trickle(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for _ in range(100):
            handler.wfile.write(b"X-Slow: 1\r\n")
            handler.wfile.flush()
            time.sleep(0.1)

    receiver.server.answers["/drip"] = trickle  # type: ignore[attr-defined]
    start = time.monotonic()
    assert "longer than 1 seconds" in refused(receiver.url("/drip"), NotifySettings(timeout_seconds=0.5)).message
    assert time.monotonic() - start < 30


def test_nobody_listening_is_told_without_the_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "no answer from 127.0.0.1: no connection" in refused(f"http://127.0.0.1:{port}/{SECRET}").message


def test_a_certificate_must_verify_and_a_private_authority_can_be_named(tmp_path: Path) -> None:
    make_certificate(tmp_path, "authority", None)
    make_certificate(tmp_path, "server", "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    secure = Receiver({f"/{SECRET}": status(200)}, context)
    try:
        patient = NotifySettings(timeout_seconds=30)
        assert "certificate cannot be verified" in refused(secure.url(), patient).message
        assert secure.got == []
        post(secure.url(), b"{}", NotifySettings(timeout_seconds=30, ca_file=str(tmp_path / "authority.pem")))
        assert len(secure.got) == 1
    finally:
        secure.server.shutdown()
        secure.server.server_close()


@pytest.mark.parametrize(
    "url", ["", "hooks.example", "ftp://h/x", "file:///etc/passwd", "http://", "http://h:99999/", "http://h/\nx", "h t"]
)
def test_what_is_no_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        origin_of(url)
    assert caught.value.message == "the receiver's address is not http://HOST or https://HOST"
