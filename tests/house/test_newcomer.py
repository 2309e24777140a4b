"""Ten questions of a newcomer: each is answered within two clicks from the README, on a page at most a screen long.

The README's link is the first click, a link of that page the second. A page answers where its heading or its text has
the words of the answer, not only of the question.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path

import pytest

from tests.house.rooms import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
README = "README.md"
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
QUESTIONS = {
    "What is it for, and can I see it now?": ("docs/demo.md", "make demo"),
    "Can it break my production?": ("docs/production.md", "It never"),
    "What does it cost in memory, CPU, queries and writes?": (
        "docs/costs.md",
        "manager, 5,000 nodes, 50,000 pods: memory",
    ),
    "How do I try it on my cluster without writing anything?": (
        "docs/getting-started.md",
        "cotenant doctor --prometheus",
    ),
    "Which rights does it take?": ("docs/rights.md", "| verbs |"),
    "Can it come as a pull request?": ("docs/pull-request.md", "cotenant recs bundle"),
    "We have VPA, in place: beside it or instead of it?": ("docs/beside-vpa.md", "updateMode"),
    "How do I undo a change, and how do I take it all out?": ("docs/install.md", "cotenant uninstall --yes"),
    "How good are the forecasts and the recommendations?": ("bench/README.md", "What missed its goal"),
    "How does it compare with what I know?": ("docs/compare.md", "From KRR"),
}
"""Question -> the page, and words of its answer."""
SCREENS = ("docs/production.md", "docs/costs.md", "docs/pull-request.md", "docs/beside-vpa.md")


def links_of(page: str) -> set[str]:
    """Files of the repository that a page leads to, without anchors."""
    if not page.endswith(".md"):
        return set()
    folder = posixpath.dirname(page)
    return {posixpath.normpath(posixpath.join(folder, link)) for link in LINK.findall((ROOT / page).read_text())}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_of_a_newcomer_is_answered_within_two_clicks_of_the_readme(question: str) -> None:
    page, phrase = QUESTIONS[question]
    first = links_of(README)
    second = {link for near in first if (ROOT / near).is_file() for link in links_of(near)}
    assert page in first | second
    assert phrase in (ROOT / page).read_text()


@pytest.mark.parametrize("page", SCREENS)
def test_a_page_for_newcomers_is_one_click_away_and_at_most_a_screen_long(page: str) -> None:
    assert page in links_of(README)
    lines = (ROOT / page).read_text().splitlines()
    # A screen of a browser shows some forty lines; rows of a table are one line each there.
    assert len([line for line in lines if line.strip()]) <= 40


def test_the_readme_begins_with_a_sentence_and_a_button_before_its_picture() -> None:
    text = (ROOT / README).read_text()
    assert text.index("[Try the demo](docs/demo.md)") < text.index("![")


def test_the_outage_that_production_is_told_of_is_the_recorded_one() -> None:
    rows = json.loads((ROOT / "bench/results/components_down.json").read_text())["rows"]
    metrics = {row["metric"]: row["value"] for row in rows}
    text = (ROOT / "docs/production.md").read_text()
    assert f"after {metrics['until the cgroups of best effort are as the kubelet set them']} s" in text
    # "killed for ten minutes, a pod created each second": 600 pods. "None could not be created or bound, none evicted".
    assert metrics["pods created, one a second"] == 600
    assert [
        metrics[f"pods that {fate}"] for fate in ("could not be created", "were not bound", "were evicted or deleted")
    ] == [0, 0, 0]


def test_the_owners_of_the_code_are_named_for_every_room() -> None:
    owned = set(re.findall(r"^/(\w+)/", (ROOT / ".github/CODEOWNERS").read_text(), re.MULTILINE))
    assert {*PACKAGES, "bench"} <= owned


def test_the_modules_that_contributors_read_first_exist_and_are_ten() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    steps = re.findall(r"^\d+\. (\[.*)", text.partition("## Read ten")[2].partition("## Run one")[0], re.MULTILINE)
    assert len(steps) == 10
    assert all((ROOT / link).exists() for step in steps for link in LINK.findall(step))
