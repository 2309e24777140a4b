"""Each test of this folder that asks for `target` runs on the embedded server and on a real kube-apiserver.

`make soak` runs them on the next release of Kubernetes too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.namespaces import unique_name
from tests.contract.target import Target, embedded_target, real_target, serve_widgets

REAL = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("cluster")]
SERVERS = ["embedded", pytest.param("real", marks=REAL), pytest.param("next", marks=[*REAL, pytest.mark.soak])]


@pytest.fixture(scope="session")
def embedded() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


@pytest.fixture(scope="session", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Target:
    """One server with the test's CRD."""
    if request.param == "embedded":
        contract_target = embedded_target(request.getfixturevalue("embedded"))
    else:
        plane = "control_plane" if request.param == "real" else "next_control_plane"
        contract_target = real_target(request.getfixturevalue(plane))
    serve_widgets(contract_target.admin)
    return contract_target


@pytest.fixture
def target(server: Target, request: pytest.FixtureRequest) -> Iterator[Target]:
    """The server with an empty namespace for this test."""
    server.namespace = unique_name(request.node.originalname)
    server.admin.create("/api/v1/namespaces", {"metadata": {"name": server.namespace}})
    yield server
    server.admin.delete(f"/api/v1/namespaces/{server.namespace}")


@pytest.fixture
def kubeconfig(tmp_path: Path, embedded: EmbeddedServer) -> Path:
    return embedded.write_kubeconfig(tmp_path / "kubeconfig")
