"""Every setting in turn, in every run: what is small is the cluster, not the number of settings or surfaces."""

from __future__ import annotations

import os
import time

import pytest

from tests.consistency.settings import SETTINGS, Scene, scene


@pytest.fixture(
    scope="module",
    params=[pytest.param(one, id=one.name) for one in SETTINGS],
)
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Results under one setting, in the zone that it names."""
    before = os.environ.get("TZ")

    def restore() -> None:
        os.environ.pop("TZ", None) if before is None else os.environ.update(TZ=before)
        time.tzset()

    os.environ["TZ"] = request.param.zone
    time.tzset()
    request.addfinalizer(restore)
    return scene(request.param, tmp_path_factory.mktemp("consistency"))
