"""Fixtures of the dashboard's tests: one analysed synthetic cluster for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import dashboard as support


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> support.Results:
    return support.results(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def address(made: support.Results) -> Iterator[str]:
    with support.served(support.app_of(made)) as url:
        yield url
