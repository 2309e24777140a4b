"""Fixtures of the tests with a real container runtime: one containerd a session, a proxy before it a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.cluster import binaries

if TYPE_CHECKING:  # gRPC and protobuf are imported by the fixtures: every test file loads this module
    from tests.node.containerd import Containerd

CONTAINER_FIXTURES = ("containerd", "containerd_with_nri")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = frozenset(getattr(item, "fixturenames", ()))
        if fixtures & set(CONTAINER_FIXTURES):
            if "containerd_with_nri" in fixtures:  # Debian's is older: this one is built
                item.add_marker(pytest.mark.cluster)
            if "control_plane" not in fixtures:  # which has a group of its own
                item.add_marker(pytest.mark.xdist_group("containerd"))


@pytest.fixture(scope="session")
def containers_here() -> None:
    """Skip where no container can run."""
    from tests.node.containerd import impossible

    if reason := impossible():
        pytest.skip(f"NO CONTAINERS HERE: {reason}")


@pytest.fixture(scope="session")
def _debian_containerd(containers_here: None) -> Iterator[Containerd]:
    from tests.node.containerd import Containerd

    with Containerd() as runtime:
        yield runtime


@pytest.fixture
def containerd(_debian_containerd: Containerd) -> Iterator[Containerd]:
    """Debian's containerd without NRI; its pods are gone after the test."""
    yield _debian_containerd
    if not _debian_containerd.server.running:
        _debian_containerd.start()
    _debian_containerd.client().remove_all()


@pytest.fixture(scope="session")
def _built_containerd() -> Iterator[Containerd]:
    from tests.node.containerd import Containerd, impossible

    if reason := impossible(with_nri=True):
        pytest.skip(f"NO CONTAINERS HERE: {reason}")
    if not binaries.installed(binaries.CONTAINERD):
        if not os.environ.get("CI"):
            pytest.skip(
                "containerd 2.4 is not built: python -m tests.cluster.binaries " + " ".join(binaries.CONTAINERD)
            )
        binaries.ensure(binaries.CONTAINERD)
    with Containerd(with_nri=True) as runtime:
        yield runtime


@pytest.fixture
def containerd_with_nri(_built_containerd: Containerd) -> Iterator[Containerd]:
    """A current containerd with NRI; its pods are gone after the test."""
    yield _built_containerd
    if not _built_containerd.server.running:
        _built_containerd.start()
    _built_containerd.client().remove_all()


@pytest.fixture(scope="session")
def kubelet_binary() -> None:
    """The kubelet is there: it is built only by who asks for it."""
    if not binaries.installed(("kubelet",)):
        if not os.environ.get("CI"):
            pytest.skip("the kubelet is not built: python -m tests.cluster.binaries kubelet")
        binaries.ensure(("kubelet",))
