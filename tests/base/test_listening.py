"""Servers listen on every address of a pod, whichever kind its cluster gives out."""

from __future__ import annotations

import errno
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.base.http.health import Checks, HealthServer
from cotenant.base.http.http_server import bound
from cotenant.base.http.listening import EVERYWHERE
from cotenant.base.logs.metrics import Metrics
from cotenant.base.settings.sections import TelemetrySettings
from cotenant.dashboard.server.listener import bind_socket

pytestmark = pytest.mark.server

DEPLOY = Path(__file__).parents[2] / "deploy"
LOOPBACKS = ("127.0.0.1", "::1")


@pytest.mark.parametrize("make", [bound, bind_socket])
def test_everywhere_is_reached_by_addresses_of_both_kinds_and_another_address_by_its_own_kind(
    make: Callable[[str, int], socket.socket],
) -> None:
    for host, reached in ((EVERYWHERE, LOOPBACKS), ("0.0.0.0", LOOPBACKS[:1]), ("::1", LOOPBACKS[1:])):
        with make(host, 0) as listener:
            listener.listen()
            port = listener.getsockname()[1]
            for address in LOOPBACKS:
                if address in reached:
                    socket.create_connection((address, port), 30).close()
                else:
                    with pytest.raises(OSError):
                        socket.create_connection((address, port), 30)


def test_probes_are_answered_at_addresses_of_both_kinds() -> None:
    with HealthServer(Checks(), Metrics("1", "3"), TelemetrySettings(health_host=EVERYWHERE)) as server:
        for host in ("127.0.0.1", "[::1]"):
            assert urllib.request.urlopen(f"http://{host}:{server.port}/livez", timeout=30).status == 200


@pytest.mark.parametrize("refusal", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_everywhere_is_all_of_ipv4_on_a_machine_without_ipv6(monkeypatch: pytest.MonkeyPatch, refusal: int) -> None:
    real = socket.socket

    def without(family: Any = -1, *more: Any, **options: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(refusal, "no IPv6 here")
        return real(family, *more, **options)

    monkeypatch.setattr(socket, "socket", without)
    with bound(EVERYWHERE, 0) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"
    with pytest.raises(OSError, match="no IPv6 here"):
        bound("::1", 0)


def test_what_is_installed_listens_everywhere() -> None:
    settings = yaml.safe_load(yaml.safe_load((DEPLOY / "settings.yaml").read_text())["data"]["settings.yaml"])
    hosts = [settings["telemetry"]["health_host"], settings["admission"]["host"], settings["extender"]["host"]]
    assert hosts == [EVERYWHERE] * 3
    agent = next(b for b in yaml.safe_load_all((DEPLOY / "enforcer.yaml").read_text()) if b["kind"] == "DaemonSet")
    env = {e["name"]: e.get("value") for e in agent["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["COTENANT_TELEMETRY__HEALTH_HOST"] == EVERYWHERE
