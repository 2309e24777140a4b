"""What the demo's address answers while its cluster is made, and that the dashboard takes the same socket over."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
import requests

from cotenant.base.commands.progress import LineProgress
from cotenant_lab.demo.progress_page import ProgressPage
from cotenant_lab.demo.time_left import COPY_STAGE, STAGE_SECONDS, WHOLE_SIZE, MakingTime

pytestmark = pytest.mark.server


class Stages(LineProgress):
    """Progress of a terminal that remembers."""

    def __init__(self) -> None:
        super().__init__(silent=True)
        self.names: list[str] = []
        self.left: list[str] = []

    def stage(self, name: str, total: int) -> None:
        self.names.append(f"{name} {total}")

    def expect(self, done_ratio: float, left_text: str) -> None:
        assert 0.0 <= done_ratio <= 1.0
        self.left.append(left_text)


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
    assert "It begins" in requests.get(url, timeout=30).text
    progress = page.following(terminal, WHOLE_SIZE)
    progress.stage("Forecasts <8>", 8)
    progress.advance(3)
    response = requests.get(url, timeout=30)
    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
    assert "Forecasts &lt;8&gt;: 3 of 8" in response.text and 'http-equiv="refresh"' in response.text
    assert terminal.names == ["Forecasts <8> 8"] and terminal.left[-1].endswith(" s")
    assert "<progress value=" in response.text and "left; the dashboard appears here by itself" in response.text
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


def test_the_time_left_is_there_from_the_first_second_and_follows_the_speed_of_the_machine() -> None:
    total_seconds = sum(STAGE_SECONDS.values())  # 47 s
    assert (MakingTime().left_seconds(0.0), MakingTime().done_ratio(0.0)) == (total_seconds, 0.0)
    # Programs are read for 9 s, and the first stage takes 32 s in place of 4: (10 + 32) / (10 + 4) = 3 times as long.
    slow = MakingTime().stage("Generate cluster", 1, 9.0).stage("Store history", 16, 41.0)
    assert slow.left_seconds(41.0) == pytest.approx(3 * 43.0)
    # Half of the steps of a stage of 7 s: 4 + 3.5 of 47 s are done.
    assert slow.with_steps(8).done_ratio(41.0) == pytest.approx(7.5 / 47)
    # A stage without steps moves with the time, and waits just before its end for the next one.
    last = MakingTime().stage("Generate cluster", 1, 0.0).stage("Start the cluster", 1, 39.0)
    assert last.done_ratio(43.0) == pytest.approx(43 / 47) and last.done_ratio(900.0) == pytest.approx(46.6 / 47)
    # 97 s after a stage of 8 s began: (10 + 136) / (10 + 46.6) times as long, for the 0.4 s that are left.
    assert last.left_seconds(136.0) == pytest.approx(0.4 * 146 / 56.6)
    # A demo that was kept is copied in 2 s and started in 8 s; nothing before them counts as done or as left.
    making_time = MakingTime().stage(COPY_STAGE, 1, 3.0)
    assert (making_time.left_seconds(3.0), making_time.done_ratio(3.0)) == (10.0, 0.0)
    # A demo of half the workloads takes half the time.
    assert MakingTime(WHOLE_SIZE / 2).left_seconds(0.0) == pytest.approx(total_seconds / 2)
