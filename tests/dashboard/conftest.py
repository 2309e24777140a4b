"""Fixtures of the dashboard's tests: one analysed synthetic cluster for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import dashboard as support


@pytest.fixture(scope="session")
def demo_results(tmp_path_factory: pytest.TempPathFactory) -> support.Results:
    return support.results(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def address(demo_results: support.Results) -> Iterator[str]:
    with support.served(support.app_of(demo_results)) as url:
        yield url
