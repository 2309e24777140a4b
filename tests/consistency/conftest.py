"""Settings in turn, on a small cluster: those that combine several ways to differ; in `make soak` each alone too."""

from __future__ import annotations

import os
import time

import pytest

from tests.consistency.settings import ONE_BY_ONE, SETTINGS, Scene, analysed_cluster


@pytest.fixture(
    scope="module",
    params=[
        *(pytest.param(setting, id=setting.name) for setting in SETTINGS),
        *(pytest.param(setting, id=setting.name, marks=pytest.mark.soak) for setting in ONE_BY_ONE),
    ],
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
    return analysed_cluster(request.param, tmp_path_factory.mktemp("consistency"))
