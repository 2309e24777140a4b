from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.base.errors import UsageError
from cotenant.base.http.health import Checks, HealthServer
from cotenant.base.logs.metrics import Metrics
from cotenant.base.settings.sections import (
    ENFORCER_PORT,
    EXTENDER_PORT,
    MANAGER_PORT,
    RECORDER_PORT,
    TelemetrySettings,
)

pytestmark = pytest.mark.server

ANY_PORT = TelemetrySettings(health_port=0)


@pytest.fixture
def checks() -> Checks:
    return Checks()


@pytest.fixture
def server(checks: Checks) -> Iterator[HealthServer]:
    with HealthServer(checks, Metrics("1.2.3", "3.11"), ANY_PORT) as serving:
        yield serving


def ask(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, path)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def test_it_listens_on_an_address_of_version_six_too(checks: Checks) -> None:
    settings = TelemetrySettings(health_host="::1", health_port=0)
    with HealthServer(checks, Metrics("1.2.3", "3.11"), settings) as serving:
        connection = http.client.HTTPConnection("::1", serving.port, timeout=60)
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200
        connection.close()


def test_a_process_without_checks_is_alive_and_ready(server: HealthServer) -> None:
    assert ask(server, "/livez") == (200, "ok\n")
    assert ask(server, "/healthz") == (200, "ok\n")
    assert ask(server, "/readyz") == (200, "ok\n")
    assert ask(server, "/readyz", "HEAD") == (200, "")


def test_each_check_has_its_line_and_a_failed_one_turns_readiness_red(server: HealthServer, checks: Checks) -> None:
    state = {"source": ""}
    checks.ready["store"] = lambda: ""
    checks.ready["source"] = lambda: state["source"]
    assert ask(server, "/readyz?verbose") == (200, "[+]store ok\n[+]source ok\nreadyz check passed\n")
    state["source"] = "no answer for 5 minutes"
    expected = "[+]store ok\n[-]source failed: no answer for 5 minutes\nreadyz check failed\n"
    assert ask(server, "/readyz") == (503, expected)
    assert ask(server, "/livez")[0] == 200


def test_a_check_that_raises_has_failed(server: HealthServer, checks: Checks) -> None:
    checks.alive["loop"] = lambda: str(1 // 0)
    assert ask(server, "/livez") == (
        503,
        "[-]loop failed: ZeroDivisionError: integer division or modulo by zero\nlivez check failed\n",
    )


def test_a_draining_process_is_alive_but_not_ready(server: HealthServer, checks: Checks) -> None:
    checks.draining = True
    assert ask(server, "/readyz") == (503, "[-]draining failed: shutting down\nreadyz check failed\n")
    assert ask(server, "/livez")[0] == 200


def test_metrics_are_served_and_other_paths_are_not(server: HealthServer) -> None:
    status, body = ask(server, "/metrics")
    assert status == 200
    assert 'cotenant_build_info{python="3.11",version="1.2.3"} 1.0' in body
    assert ask(server, "/")[0] == 404
    assert ask(server, "/livez/../metrics")[0] == 404
    assert ask(server, "/livez", "POST")[0] == 501


def test_a_client_that_says_nothing_does_not_block_the_probes(server: HealthServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as silent:
        silent.sendall(b"GET /li")
        assert ask(server, "/livez") == (200, "ok\n")


def test_a_taken_port_is_an_error_at_start_and_a_stopped_server_frees_it(checks: Checks) -> None:
    first = HealthServer(checks, Metrics("1", "3"), ANY_PORT)
    first.start()
    taken = TelemetrySettings(health_port=first.port)
    with pytest.raises(UsageError, match=f"127.0.0.1:{first.port}") as caught:
        HealthServer(checks, Metrics("1", "3"), taken)
    assert "health_port" in caught.value.fix
    first.stop()
    with HealthServer(checks, Metrics("1", "3"), taken) as again:
        assert ask(again, "/livez")[0] == 200


def test_programs_that_share_a_machine_have_ports_of_their_own() -> None:
    """As deploy/ names them."""
    assert len({MANAGER_PORT, EXTENDER_PORT, ENFORCER_PORT, RECORDER_PORT}) == 4
    for name, port in (("extender", EXTENDER_PORT), ("enforcer", ENFORCER_PORT), ("recorder", RECORDER_PORT)):
        text = (Path(__file__).resolve().parents[2] / "deploy" / f"{name}.yaml").read_text()
        assert f"{{name: metrics, containerPort: {port}}}" in text
    checks = Checks()
    with HealthServer(checks, Metrics("1", "3"), ANY_PORT) as first:
        unset = TelemetrySettings()
        assert unset.health_port is None
        with pytest.raises(UsageError, match=str(first.port)):
            HealthServer(checks, Metrics("1", "3"), unset, first.port)
