"""Which hand-overs every API server knows: who does not listen, who does not answer, and nobody to ask."""

from __future__ import annotations

import socket

import pytest

from cotenant.apps.manager import api_servers
from cotenant.apps.manager.api_servers import ApiServers
from cotenant.core.adapters.kube import Access, KubeClient
from cotenant.core.settings.sections.kube import KubeSettings
from tests.cluster.waiting import wait_for


def client() -> KubeClient:
    return KubeClient(Access("test", "http://127.0.0.1:1", lambda: None), KubeSettings())


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
