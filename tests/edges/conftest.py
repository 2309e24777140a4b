from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml


def _module() -> ModuleType:
    """The server's module, found beside this file (tests are no package)."""
    name = "cotenant_tests_api_server"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("api_server.py"))
        assert spec
        assert spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def server_module() -> ModuleType:
    return _module()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make = _module().make_certificate
    make(folder, "authority")
    make(folder, "server", "authority")
    make(folder, "named", "authority", host="kubernetes.example")
    make(folder, "jane", "authority")
    make(folder, "stranger")
    return folder


@pytest.fixture
def api(certificates: Path) -> Iterator[object]:
    server = _module().ApiServer(certificates / "server.pem", certificates / "authority.pem")
    yield server
    server.stop()


@pytest.fixture
def kubeconfig(tmp_path: Path, certificates: Path):
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
