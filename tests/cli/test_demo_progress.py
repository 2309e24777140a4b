"""What the demo's address answers while its cluster is made, and that the dashboard takes the same socket over."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
import requests

from cotenant.base.progress import Silent
from cotenant.cli.demo.progress_page import ProgressPage

pytestmark = pytest.mark.server


class Stages(Silent):
    """A Progress that remembers."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def stage(self, name: str, total: int) -> None:
        self.names.append(f"{name} {total}")


class Dashboard(BaseHTTPRequestHandler):
    """Stands in for the server that comes next."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


def test_the_address_shows_the_stage_until_the_dashboard_takes_it_over(listener: socket.socket) -> None:
    url = "http://{}:{}/any".format(*listener.getsockname())
    page, terminal = ProgressPage(listener), Stages()
    assert "It begins." in requests.get(url, timeout=30).text
    progress = page.following(terminal)
    progress.stage("Forecasts <8>", 8)
    progress.advance(3)
    answer = requests.get(url, timeout=30)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert "Forecasts &lt;8&gt;: 3 of 8" in answer.text and 'http-equiv="refresh"' in answer.text
    assert terminal.names == ["Forecasts <8> 8"]
    page.stop()
    following = HTTPServer(listener.getsockname(), Dashboard, bind_and_activate=False)
    following.socket.close()
    following.socket = listener
    following.server_activate()
    thread = Thread(target=following.handle_request)
    thread.start()
    assert requests.get(url, timeout=30).status_code == 200
    thread.join(30)


def test_an_error_while_the_cluster_is_made_ends_the_page_and_stays_an_error(listener: socket.socket) -> None:
    address = "http://{}:{}/".format(*listener.getsockname())
    with pytest.raises(OSError, match="disk full"), ProgressPage(listener) as page:
        assert requests.get(address, timeout=30).status_code == 503
        raise OSError("disk full")
    page.stop()  # a second time: nothing happens
    listener.close()
    with pytest.raises(requests.ConnectionError):
        requests.get(address, timeout=30)
