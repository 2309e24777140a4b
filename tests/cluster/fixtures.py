"""Fixtures for tests on a real Kubernetes control plane, for every folder of tests.

A test that asks for one of them is a cluster test: it is marked so, and with xdist all that share a control plane
run in one worker, which starts it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from _pytest.fixtures import SubRequest

from tests.cluster import binaries, needing
from tests.cluster.groups import BARE_CLUSTER, CLUSTER

if TYPE_CHECKING:  # what a cluster needs is imported by its fixtures: every test file loads this module
    from tests.cluster.control_plane import ControlPlane
    from tests.cluster.faults import FaultProxy

FakeNodes = Callable[..., list[str]]
SHARED: Final = ("control_plane", "next_control_plane", "bare_plane")
_ENDINGS: Final = pytest.StashKey[list[Callable[[], None]]]()
"""What ends each shared control plane that runs in this process."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        planes = set(SHARED) & set(getattr(item, "fixturenames", ()))
        if planes:
            group = BARE_CLUSTER if planes == {"bare_plane"} else CLUSTER
            for mark in (pytest.mark.cluster, pytest.mark.xdist_group(group)):
                item.add_marker(mark)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: SubRequest) -> Generator[None, object, object]:
    """Note how a control plane is ended before its session is."""
    if fixturedef.argname in SHARED:
        request.config.stash.setdefault(_ENDINGS, []).append(partial(fixturedef.finish, request))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """End control planes after the last test of their group; a later test that asks for one gets a new one.

    An idle control plane takes 1.4 to 1.8 CPU seconds a minute, for as long as its worker runs other tests. Only
    pytest-xdist runs a group in one piece: without it tests of a control plane lie among others. This is around
    pytest-rerunfailures, so that a test that is run again still has its control plane.
    """
    outcome = yield
    if getattr(item.config.option, "loadgroup", False) and (nextitem is None or _group(nextitem) != _group(item)):
        for end in item.config.stash.setdefault(_ENDINGS, []):
            end()
        item.config.stash[_ENDINGS].clear()
    return outcome


def _group(item: pytest.Item) -> str:
    """What tests/conftest.py has appended to the test's id."""
    return item.nodeid.rpartition("@")[2]


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, API server, controller-manager, scheduler and kwok on free ports; see `ControlPlane`."""
    from tests.cluster.control_plane import ControlPlane

    needing.kubernetes()
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as plane:
        yield plane


@pytest.fixture(scope="session")
def next_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The same of the next release of Kubernetes, for the full form: its tests are marked `soak`."""
    from tests.cluster.control_plane import ControlPlane, Options

    needing.next_kubernetes()
    with ControlPlane(tmp_path_factory.mktemp("next-cluster"), Options(release=binaries.NEXT)) as plane:
        yield plane


@pytest.fixture(scope="session")
def bare_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server and, for the end of namespaces, the controller-manager: for tests that install and uninstall.

    What they take away, other tests need. A test leaves whatever `cotenant uninstall --crds` leaves.
    """
    from tests.cluster.control_plane import CONTROLLER_MANAGER, ControlPlane, Options

    needing.kubernetes()
    with ControlPlane(tmp_path_factory.mktemp("install"), Options(frozenset({CONTROLLER_MANAGER}))) as plane:
        yield plane


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """Name of a new namespace where pods can be created; its deletion is not waited for."""
    from tests.cluster.namespaces import create_namespace, unique_name

    name = create_namespace(control_plane.api(), unique_name(request.node.originalname))
    yield name
    control_plane.api().delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def fake_nodes(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[FakeNodes]:
    """`fake_nodes(3, cpu="8")` makes three Ready nodes of that NodeShape and gives their names; gone after the test."""
    from tests.cluster.fake_nodes import NodeShape, create_nodes, delete_nodes
    from tests.cluster.namespaces import unique_name

    texts: list[str] = []

    def make(count: int, **shape: Any) -> list[str]:
        prefix = unique_name(request.node.originalname)
        names = create_nodes(control_plane, count, NodeShape(**{"prefix": prefix, **shape}))
        texts.extend(names)
        return names

    yield make
    delete_nodes(control_plane, texts)


@pytest.fixture
def fault_proxy(control_plane: ControlPlane, tmp_path: Path) -> Iterator[FaultProxy]:
    """A proxy to the API server whose `fault` a test sets; clients go through it with its `kubeconfig`.

    It speaks as administrator: tests of what acts define a fixture of this name with `accounts.certified`.
    """
    from tests.cluster.faults import FaultProxy

    with FaultProxy(control_plane, tmp_path, control_plane.admin_kubeconfig) as proxy:
        yield proxy
