"""The documentation site: every page has a place in mkdocs.yml, and a strict build needs nothing from a network."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.site_hooks import OUTSIDE, ROOT, expanded, relinked

MKDOCS = ROOT / ".venv-docs" / "bin" / "mkdocs"
EXTERNAL = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=["']?(?:https?:)?//[^"'\s>]+""")


class Plain(yaml.SafeLoader):
    """Reads mkdocs.yml; what a tag such as !ENV makes of its value is of no interest here."""


Plain.add_multi_constructor("!", lambda loader, _suffix, node: loader.construct_sequence(node))


def pages_of(nav: Any) -> Iterator[str]:
    """The pages of an expanded navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from pages_of(entry)


def test_every_page_has_one_place_in_the_navigation() -> None:
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(), Plain)["nav"]
    placed = list(pages_of(expanded(nav, ROOT / "docs")))
    existing = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(placed) == sorted(existing | set(OUTSIDE))
    assert all((ROOT / file).is_file() for file in OUTSIDE.values())


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("index.md", "[a](docs/install.md#rights)", "[a](install.md#rights)"),
        ("index.md", "![a](docs/images/x.png)", "![a](images/x.png)"),
        ("index.md", "[all](bench/README.md)", "[all](benchmarks.md)"),
        ("install.md", "[all](../bench/README.md#scale)", "[all](benchmarks.md#scale)"),
        ("decisions/0001-x.md", "[a](../filters.md) [b](#c)", "[a](../filters.md) [b](#c)"),
        ("ci.md", "[rights](../deploy/rbac)", "[rights](https://host/r/deploy/rbac)"),
        ("ci.md", "[nowhere](../deploy/none)", "[nowhere](../deploy/none)"),
        ("ci.md", "[else](https://koordinator.sh)", "[else](https://koordinator.sh)"),
    ],
)
def test_a_link_is_turned_into_what_the_site_needs(page: str, text: str, expected: str) -> None:
    assert relinked(text, page, "https://host/r") == expected


def test_without_a_repository_a_link_to_the_source_is_text() -> None:
    assert relinked("see [rights](../deploy/rbac).", "ci.md", "") == "see rights."


@pytest.mark.soak
@pytest.mark.server
def test_the_site_is_built_strictly_without_a_network(tmp_path: Path) -> None:
    build = [str(MKDOCS), "build", "--strict", "-f", str(ROOT / "mkdocs.yml"), "-d", str(tmp_path / "site")]
    offline = ["unshare", "--net", "--map-root-user"]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run([*offline, *build], capture_output=True, text=True, timeout=300, check=False, env=env)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr[-3000:]
    html = {str(p.relative_to(tmp_path)): p.read_text(encoding="utf-8") for p in tmp_path.rglob("*.html")}
    assert {"site/index.html", "site/cli/index.html", "site/benchmarks/index.html"} <= set(html)
    assert {name: EXTERNAL.findall(text) for name, text in html.items() if EXTERNAL.search(text)} == {}
