from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
import yaml

from tests.support.api_server import ApiServer, make_certificate


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificate(folder, "authority")
    make_certificate(folder, "server", "authority")
    make_certificate(folder, "named", "authority", host="kubernetes.example")
    make_certificate(folder, "jane", "authority")
    make_certificate(folder, "stranger")
    return folder


@pytest.fixture
def api(certificates: Path) -> Iterator[ApiServer]:
    server = ApiServer(certificates / "server.pem", certificates / "authority.pem")
    yield server
    server.stop()


@pytest.fixture
def kubeconfig(tmp_path: Path, certificates: Path) -> Callable[..., str]:
    """Write a kubeconfig for a server and give its path."""

    def write(url: str, user: dict | None = None, **cluster: object) -> str:
        entry = {"server": url, "certificate-authority": str(certificates / "authority.pem"), **cluster}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "arn:aws:eks:eu-1:1:cluster/shop",
            "clusters": [{"name": "c", "cluster": {k: v for k, v in entry.items() if v is not None}}],
            "users": [{"name": "u", "user": user or {"token": "secret"}}],
            "contexts": [
                {"name": "arn:aws:eks:eu-1:1:cluster/shop", "context": {"cluster": "c", "user": "u"}},
                {"name": "other", "context": {"cluster": "c", "user": "u"}},
            ],
        }
        path = tmp_path / "kubeconfig.yaml"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return write


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel answers each lock as it does on NFS mounted with `nolock`, which no test machine offers."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty place for a store, on each kind of file system."""
    if request.param == "file":
        yield tmp_path.as_uri()
        return
    yield f"memory://store-{tmp_path.name}"
    fsspec.filesystem("memory").store.clear()
