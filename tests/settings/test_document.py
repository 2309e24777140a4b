"""Settings files: what is read, and what is refused before anything is built."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import SettingsError
from cotenant.base.settings.document import DEPTH_CAP, SIZE_CAP_BYTES, VALUE_CAP, Tree, parse, plain


def test_scalars_stay_text_whatever_yaml_would_guess() -> None:
    tree = parse("room:\n  a: off\n  b: 1:30\n  c: 012\n  d: 2026-11-20\n  e: '14'\n  f: 1_000", "s.yaml")
    assert plain(tree) == {"room": {"a": "off", "b": "1:30", "c": "012", "d": "2026-11-20", "e": "14", "f": "1_000"}}


@pytest.mark.parametrize("written", ["", "~", "null", "Null"])
def test_a_plain_null_is_nothing_and_a_quoted_one_is_text(written: str) -> None:
    assert plain(parse(f"room: {written}", "s.yaml")) == {"room": None}
    assert plain(parse(f'room: "{written}"', "s.yaml")) == {"room": written}


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "null", "{}"])
def test_an_empty_file_sets_nothing(text: str) -> None:
    assert plain(parse(text, "s.yaml")) == {}


def test_every_key_knows_its_line() -> None:
    tree = parse("# first\nroom:\n  key: 1\n\n  other: 2\n", "s.yaml")
    room = tree.children["room"]
    assert tree.lines == {"room": 2}
    assert isinstance(room, Tree)
    assert room.lines == {"key": 3, "other": 5}


def test_the_header_is_optional_but_never_another() -> None:
    assert plain(parse("apiVersion: cotenant.dev/v1alpha1\nkind: Settings\nroom: {}", "s.yaml")) == {"room": {}}
    with pytest.raises(SettingsError, match=r"s.yaml line 2: kind is 'Deployment', this version reads 'Settings'"):
        parse("apiVersion: cotenant.dev/v1alpha1\nkind: Deployment", "s.yaml")


def test_a_duplicate_key_is_refused_with_both_lines() -> None:
    with pytest.raises(SettingsError, match=r"s.yaml line 4 sets 'key' again \(first in line 2\)"):
        parse("room:\n  key: 1\n  other: 2\n  key: 3\n", "s.yaml")


def test_an_alias_bomb_is_refused_while_it_is_small() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    with pytest.raises(SettingsError, match="line 1 uses an anchor or alias"):
        parse("\n".join(levels), "s.yaml")


def test_more_values_than_anybody_writes_are_refused_before_they_are_built() -> None:
    zeros = ["0"] * (VALUE_CAP - 1)  # and the word `room`
    assert plain(parse(f"room: [{','.join(zeros)}]", "s.yaml")) == {"room": zeros}
    with pytest.raises(SettingsError, match="has more than 5,000 values"):
        parse(f"room: [{'0,' * VALUE_CAP}]", "s.yaml")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused_without_recursion(opening: str) -> None:
    with pytest.raises(SettingsError, match=f"nested deeper than {DEPTH_CAP}"):
        parse(opening * 5000, "s.yaml")


def test_a_large_file_is_refused_by_its_size_alone() -> None:
    with pytest.raises(SettingsError, match="larger than 262144 bytes"):
        parse("#" * (SIZE_CAP_BYTES + 1), "s.yaml")


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!binary", "!!int", "!own"])
def test_a_tag_is_refused(tag: str) -> None:
    with pytest.raises(SettingsError, match=r"s.yaml line 2 uses the tag"):
        parse(f"room:\n  key: {tag} x", "s.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b: c", "line 1 is not YAML"),
        ("a: [1", "is not YAML"),
        ("- a", "is not a mapping of sections"),
        ("just words", "is not a mapping of sections"),
        ("{}\n---\n{}", "line 2 begins a second document"),
        ("{[a]: 1}", "line 1 has a list or mapping as a key"),
        ("a: \x00", "is not YAML"),
        ('a: "\\ud800\\U00110000"', "is not YAML"),
    ],
)
def test_what_is_no_settings_file_is_named(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse(text, "s.yaml")


@given(st.text(max_size=200))
def test_any_text_is_a_tree_or_a_settings_error(text: str) -> None:
    try:
        tree = parse(text, "s.yaml")
    except SettingsError as error:
        assert "s.yaml" in error.message
    else:
        assert isinstance(tree, Tree)


_leaves = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=20)
_trees = st.recursive(_leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_leaves, inner, max_size=3))


@pytest.mark.slow
@given(st.dictionaries(_leaves.filter(lambda k: k not in ("apiVersion", "kind")), _trees, max_size=4))
def test_what_yaml_writes_is_read_back_as_text(content: dict[str, object]) -> None:
    """Every scalar quoted, so that nothing is null: the same tree comes back."""
    assert plain(parse(yaml.safe_dump(content, default_style='"'), "s.yaml")) == content
