"""What people read is in one catalogue, and its words are the glossary's."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.house.rooms import ON_TREES, PACKAGES, SOURCES, trees_by_path
from tools.write_strings import ROOT, catalogue, sentences_of, texts

pytestmark = ON_TREES
WORDS = {
    r"\bput off\b": "hidden, snoozed or dismissed",
    r"\bpass(es|ed)? over\b": "override",
    r"\b(is|are|was|were|be|been) taken back\b|\b[Tt]ake it back\b": "rolled back",
    r"\bbecame of\b": "the outcome",
    r"\bnobody saw\b": "unknown",
    r"\bsoaked\b": "soak time",
    r"\bit held\b": "no harm",
    r"\b1 (cores|workloads|replicas|recommendations|changes)\b": "the singular",
    r"\bstands in the way\b": "failed guardrails",
    r"\bleads nowhere\b": "page not found",
    r"\btoo even\b": "no pronounced peak",
    r"\b[Rr]ooms?\b": "capacity; reserved capacity; space of a disk or a page",
    r"\b(held|holding) (capacity|pods)\b|\bcapacity (is|was|would be|is being) held\b": "reserved",
    r"\b(what|nothing) is held\b": "what is reserved",
    r"\bjudged\b": "verified, or checked",
    r"^Go on\b": "Resume",
    r"\bchain whole\b": "audit log intact",
    r"\bUsually run\b": "baseline pods",
    r"\bq\d\d\b": "p95 and the like: the names q95, q95_millicores are of columns and fields",
}
"""Words that sentences do not use -> what they say instead (docs/glossary.md)."""


@pytest.mark.parametrize("word", WORDS)
def test_no_sentence_uses_a_word_for_which_the_glossary_has_another(word: str) -> None:
    lines = [(name, text) for name, texts in catalogue().items() for text in texts if re.search(word, text)]
    assert lines == [], f"say: {WORDS[word]}"


PRODUCT = [name for name in PACKAGES if name not in ("admission", "profiler")]
"""Their texts are of profiles and PromQL, which write 20% as Kubernetes and Prometheus read it."""


def product() -> list[Path]:
    """Modules of the rooms of PRODUCT."""
    return [path for path in SOURCES if path.relative_to(ROOT).parts[0] in PRODUCT]


@cache
def product_texts() -> list[tuple[Path, str]]:
    """(module, text) of everything that these modules may show."""
    return [(path, text) for path in product() for text in texts(trees_by_path()[path])]


CLOSE_PERCENT = re.compile(r"(?<![:.\d])(\d[\d.]*|\{…\})%(?![\w;}])")
"""A number with its sign right behind it; `width:50%` of a style is none."""


def test_a_blank_stands_before_every_percent_sign_of_pages_commands_and_docs() -> None:
    close = [(path.name, text) for path, text in product_texts() if CLOSE_PERCENT.search(text)]
    # A quantity of a profile is written as Kubernetes reads it (20%); records keep their words.
    others = ("crds.md", "no-webhook.md", "compare.md")
    prose = [path for path in (ROOT / "docs").glob("*.md") if path.name not in others]
    close += [
        (path.name, line) for path in prose for line in path.read_text().split("\n") if CLOSE_PERCENT.search(line)
    ]
    assert close == []
    assert CLOSE_PERCENT.search("used {…}% of it") and CLOSE_PERCENT.search("coverage 90%, newest")


OWN_PERCENT = re.compile(r"100 \* [^{}]*:[^{}]*f\} %|\* 100:[^{}]*f\} %")


def test_a_ratio_becomes_percent_in_one_place() -> None:
    code = SOURCES
    own = [path.relative_to(ROOT).as_posix() for path in code if OWN_PERCENT.search(path.read_text())]
    assert own == [], "say percent() of cotenant.base.text, or display.percent() where a ratio may be missing"
    assert OWN_PERCENT.search('f"{100 * ratio:.0f} %"') and OWN_PERCENT.search('f"{100 * (a - b):+.1f} %"')


QUANTILE = re.compile(r"(?<![`\w])q(\d\d|\{…\})(?![`\w*])")
"""q95 for people; in backticks it is the name of a field."""


def headings(path: Path) -> list[str]:
    """Titles of the columns that a module declares."""
    calls = [node for node in ast.walk(trees_by_path()[path]) if isinstance(node, ast.Call)]
    columns = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Column"]
    return [ast.literal_eval(c.args[1]) for c in columns if len(c.args) > 1 and isinstance(c.args[1], ast.Constant)]


def test_quantiles_are_called_p95_by_tables_pages_commands_and_docs() -> None:
    """The catalogue has sentences alone: headings of one word and prose are looked at here."""
    titles = [(path.name, text) for path, text in product_texts() if " " in text and QUANTILE.search(text)]
    titles += [(path.name, title) for path in product() for title in headings(path) if QUANTILE.search(title)]
    # The columns of the Python API are named as they are called; records of what was measured keep their words.
    prose = [path for path in (ROOT / "docs").glob("*.md") if path.name != "python-api.md"]
    written = [(path.name, line) for path in prose for line in path.read_text().split("\n") if QUANTILE.search(line)]
    assert titles + written == []
    assert "CPU p95" in headings(ROOT / "recommender" / "model" / "views.py")
    assert QUANTILE.search("q{…} held") and QUANTILE.search("24 h peak (q95)") and not QUANTILE.search("`q50*` are")


def test_sentences_are_texts_f_strings_and_the_help_of_commands_but_no_docstrings() -> None:
    source = '''
"""A module of this test."""
@app.command()
def show(name):
    """Show one thing."""
    html.P(f"{name} is not there", className="panel note")
    re.compile("not a sentence")
    return "one" if name else "Nothing is selected."
'''
    assert sentences_of(ast.parse(source)) == ["Show one thing.", "{…} is not there", "Nothing is selected."]


def test_sentences_that_pages_are_known_by_are_in_the_catalogue() -> None:
    listed = {text for texts in catalogue().values() for text in texts}
    assert {"Nothing is selected.", "Ready to apply", "Verify now"} <= listed
    assert (ROOT / "docs" / "glossary.md").exists()
