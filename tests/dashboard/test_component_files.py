"""Addresses below the component libraries' path: the file, or a 404 whatever module or path they name."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from cotenant.changes.access.settings import AccessSettings
from tests.support import access as support
from tests.support.access import Browser

pytestmark = [pytest.mark.slow, pytest.mark.server]
BELOW = "_dash-component-suites/"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with support.dashboard(tmp_path_factory.mktemp("files"), AccessSettings(launch_token=False)) as address:
        yield address


@pytest.mark.parametrize("module", ["os", "sys", "dash", "dashboard", "cotenant", "json", "nowhere", "%00", "é", "a.b"])
@pytest.mark.parametrize("path", ["environ.py", "", "x", "__init__.py", "%00", "a.v1m1.js", "é.js", "%0a", "deps/x.js"])
@pytest.mark.parametrize("page", [False, True])
def test_no_address_is_a_fault(url: str, module: str, path: str, page: bool) -> None:
    assert Browser(url).get(f"/{BELOW}{module}/{path}", page=page).status_code == 404


@pytest.mark.parametrize("path", ["", "/", "os", "os/", "/os/environ.py"])
def test_neither_is_one_that_names_no_file(url: str, path: str) -> None:
    assert Browser(url).get(f"/{BELOW}{path}").status_code == 404


def test_the_files_that_the_pages_name_are_served(url: str) -> None:
    browser = Browser(url)
    files = re.findall(rf'src="(/{BELOW}[^"]+)"', browser.get("/", page=True).text)
    assert files and {browser.get(file).status_code for file in files} == {200}
