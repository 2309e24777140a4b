"""A real Thanos for tests and benches: a sidecar beside each Prometheus, and a querier over the sidecars.

with thanos(folder, {"a": prometheus_url}) as querier:
    requests.get(querier.url + "/api/v1/...")
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.binaries import find
from tests.cluster.process import Server, free_port

REPLICA: Final = "prometheus_replica"
"""Label by which the querier knows two Prometheus of a pair that hold the same."""


@dataclass(frozen=True, slots=True)
class Querier:
    """The querier's address, and the sidecars behind it by the name of their Prometheus."""

    url: str
    sidecars: Mapping[str, Server]


@contextmanager
def thanos(folder: Path, prometheus_urls: Mapping[str, str]) -> Iterator[Querier]:
    """A querier that knows every sidecar; every Prometheus needs an external label. Ended on exit."""
    with ExitStack() as running:
        sidecars, endpoints = {}, []
        for name, url in prometheus_urls.items():
            endpoint, own = f"127.0.0.1:{free_port()}", ("--prometheus.url", url, "--tsdb.path", str(folder))
            sidecars[name] = _start(running, "sidecar", folder / f"sidecar-{name}.log", *own, grpc=endpoint)
            # Strict: a sidecar that is away stays asked for, so that an answer without it is known to be a part.
            endpoints.append(f"--endpoint-strict={endpoint}")
        port = free_port()
        options = (*endpoints, f"--query.replica-label={REPLICA}")
        querier = _start(running, "query", folder / "query.log", *options, port=port)
        querier.wait_until(lambda: _stores(f"http://127.0.0.1:{port}") == len(sidecars))
        yield Querier(f"http://127.0.0.1:{port}", sidecars)


def _start(running: ExitStack, role: str, log: Path, *options: str, port: int = 0, grpc: str = "") -> Server:
    """One process of Thanos, ready."""
    port = port or free_port()
    addresses = (f"--http-address=127.0.0.1:{port}", f"--grpc-address={grpc or f'127.0.0.1:{free_port()}'}")
    server = Server(f"thanos {role}", [str(find("thanos")), role, *addresses, "--log.level=warn", *options], log)
    running.callback(server.stop, 2.0)
    server.start()
    server.wait_until(lambda: _answer(f"http://127.0.0.1:{port}/-/ready") is not None)
    return server


def _stores(url: str) -> int:
    """Sidecars from which the querier has heard what they hold: the rest have no labels yet."""
    return (_answer(f"{url}/api/v1/stores") or b"").count(b'"labelSets":[{')


def _answer(url: str) -> bytes | None:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bytes(answer.read())
    except (urllib.error.URLError, OSError):
        return None
