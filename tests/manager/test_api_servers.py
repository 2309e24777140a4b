"""Which hand-overs every API server knows: who does not listen, who does not answer, and nobody to ask."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cotenant.base.kube import Access, KubeClient
from cotenant.base.settings.sections import KubeSettings
from cotenant.scheduler_ext.reservations import api_servers
from cotenant.scheduler_ext.reservations.api_servers import POLICY, ApiServers
from tests.cluster.waiting import wait_for


def client() -> KubeClient:
    return KubeClient(Access("test", "http://127.0.0.1:1", lambda: None), KubeSettings())


@contextmanager
def answering(why: str) -> Iterator[tuple[str, list[str]]]:
    """URL of a server that refuses every patch as Kubernetes 1.35.4 does, with these words of a policy; "": accepts.

    The second is the path of every question so far.
    """
    message = (
        f'swapguards.cotenant.dev "swaps" is forbidden: ValidatingAdmissionPolicy {POLICY!r} denied request: {why}'
    )
    refusal = {"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "message": message}

    class Answer(BaseHTTPRequestHandler):
        def do_PATCH(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            questions.append(self.path)  # before the answer: whoever has read it may count at once
            body = json.dumps(refusal if why else {}).encode()
            self.send_response(422 if why else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    questions: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", questions
        server.shutdown()


def test_without_addresses_nobody_is_asked() -> None:
    servers = ApiServers(client(), ())
    assert servers.confirmed(["a", "b"]) == {"a", "b"}
    assert servers.problems == {}


def test_a_server_that_nobody_listens_on_holds_no_hand_over_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    servers = ApiServers(client(), [url])
    wait_for("it counts as knowing", lambda: servers.confirmed(["a"]) == {"a"}, every=0.005)
    assert servers.problems == {}


def test_a_server_that_does_not_answer_holds_them_up_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_servers, "ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        servers = ApiServers(client(), [url])
        assert servers.confirmed(["a"]) == frozenset()
        wait_for("it is named", lambda: servers.problems, every=0.005)
        assert servers.problems.keys() == {url}
        assert servers.confirmed(["a"]) == frozenset()
        assert servers.confirmed([]) == frozenset()


def test_a_server_that_has_not_configured_its_guard_yet_is_named() -> None:
    # Watched on a server that had just started: for up to 30 s it does not know the CRD, and its guard refuses nothing.
    unconfigured = "failed to configure policy: failed to find resource referenced by paramKind: 'SwapGuard'"
    with answering(unconfigured) as (url, questions):
        servers = ApiServers(client(), [url])
        assert servers.confirmed(["a"]) == frozenset()
        problem = wait_for("it is named", lambda: servers.problems.get(url), every=0.005)
        assert unconfigured in problem
        assert servers.confirmed(["a"]) == frozenset()
        assert questions


def test_a_server_whose_copy_is_older_is_asked_again_and_is_no_problem() -> None:
    with answering("this API server does not know the hand-over yet") as (url, questions):
        servers = ApiServers(client(), [url])

        def answered_again() -> bool:
            assert servers.confirmed(["a"]) == frozenset()
            assert servers.problems == {}
            return len(questions) > 3

        wait_for("it is asked again", answered_again, every=0.005)


def test_a_server_without_the_policy_confirms_nothing_and_is_named() -> None:
    # Watched right after an installation: a server that has not loaded the policy yet accepts any question.
    with answering("") as (url, questions):
        servers = ApiServers(client(), [url])
        assert servers.confirmed(["a"]) == frozenset()
        problem = wait_for("it is named", lambda: servers.problems.get(url), every=0.005)
        assert "does not enforce the policy cotenant-reservation-known" in problem
        assert servers.confirmed(["a"]) == frozenset()
        assert questions
