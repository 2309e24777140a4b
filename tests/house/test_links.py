"""Links of the documentation lead somewhere, to a heading where they name one."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md"), *ROOT.glob("examples/**/*.md")]
)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Names that headings of a page give, as viewers of Markdown make them: lower case, no punctuation, hyphens."""
    headings = re.findall(r"^#+ +(.+?) *$", FENCED.sub("", page.read_text()), re.MULTILINE)
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return frozenset(re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts)


def broken(page: Path, text: str) -> list[str]:
    """Relative links of the text that lead to no file or to no heading."""
    wrong = []
    for link in LINK.findall(FENCED.sub("", text)):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_of_a_page_leads_to_a_file_and_heading(page: Path) -> None:
    assert broken(page, page.read_text()) == []


def test_a_link_that_leads_nowhere_is_seen() -> None:
    text = (
        "[a](docs/install.md#rights) [b](docs/install.md#none) [c](none.md) [d](#two-commands) [e](#three) [f](LICENSE)"
    )
    assert broken(ROOT / "README.md", text) == ["docs/install.md#none", "none.md", "#three"]
