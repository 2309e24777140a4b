"""A store of one synthetic cluster for each file that names its SPEC."""

from __future__ import annotations

import pytest

from cotenant.base.progress import Silent
from cotenant.base.store import Store
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.synthetic import SyntheticCluster


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store").as_uri(), CLUSTER)


@pytest.fixture(scope="module")
def cluster(store: Store, request: pytest.FixtureRequest) -> SyntheticCluster:
    """The history that the file's SPEC describes, in the store."""
    return fill(store, request.module.SPEC, Silent())
