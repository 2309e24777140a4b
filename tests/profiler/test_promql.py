from __future__ import annotations

import re

import pytest
import requests
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.profiler.prometheus.promql import (
    Matcher,
    at_or_after,
    equal,
    in_values,
    literal,
    metric_name_matcher,
    none_of,
    order,
    quote,
    selector,
    union,
    with_constant_label,
)
from tests.profiler.conftest import Served

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def unquoted(text: str) -> str:
    """An independent reader of Go's interpreted string literals, as far as the builder uses them."""
    assert text[0] == text[-1] == '"'
    out, i, inner = [], 0, text[1:-1]
    while i < len(inner):
        assert inner[i] not in '"\n', "ends the literal early"
        if inner[i] != "\\":
            out.append(inner[i])
            i += 1
        elif inner[i + 1] == "u":
            out.append(chr(int(inner[i + 2 : i + 6], 16)))
            i += 6
        else:
            assert inner[i + 1] in '\\"'
            out.append(inner[i + 1])
            i += 2
    return "".join(out)


@given(TEXT)
@example('"} or vector(1) or {a="')
@example("a\\")
@example("two\nlines\x00")
def test_a_quoted_text_reads_back_as_itself(text: str) -> None:
    assert unquoted(quote(text)) == text


@given(TEXT, TEXT)
def test_a_literal_pattern_matches_its_text_and_nothing_else(text: str, other: str) -> None:
    # Python's and RE2's syntax agree on the characters that the builder escapes.
    assert re.fullmatch(literal(text), text, re.DOTALL)
    assert bool(re.fullmatch(literal(text), other, re.DOTALL)) == (text == other)


@given(st.lists(TEXT.filter(bool), min_size=1, max_size=4), TEXT)
def test_one_of_matches_its_members_only(values: list[str], other: str) -> None:
    pattern = in_values("namespace", values).value
    assert all(re.fullmatch(pattern, v, re.DOTALL) for v in values)
    assert bool(re.fullmatch(pattern, other, re.DOTALL)) == (other in values)


@given(TEXT, TEXT)
@example("\x1f", "\x1fa")
@example("a-b", "a-")
@example("a^", "a]")
@example("\\", "[")
def test_a_bound_matches_what_comes_at_or_after_it(bound: str, other: str) -> None:
    pattern = at_or_after(bound)
    for text in (bound, other, bound + other, bound[:-1], bound[:-1] + other):
        assert bool(re.fullmatch(pattern, text)) == (order(text) >= order(bound)), (pattern, text)


@given(st.lists(st.text("abz-019", min_size=1, max_size=63), min_size=2, max_size=2))
def test_a_bound_is_asked_in_few_characters(names: list[str]) -> None:
    # At most 14 a character of the bound, and one any-text at the end.
    assert all(len(quote(at_or_after(name))) <= 14 * len(name) + 12 for name in names)


def test_a_selector_holds_its_matchers_in_order() -> None:
    text = selector((metric_name_matcher("up"), equal("job", 'a"b'), none_of("namespace", ["x.y"])))
    # The dot is escaped for the pattern (\.), and its backslash again for the string literal (\\).
    assert text == 'up{job="a\\"b",namespace!~"x\\\\.y"}'


def test_a_label_name_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="not a label"):
        equal('a="1",b', "x")


def test_unknown_operators_are_a_programming_error() -> None:
    with pytest.raises(ValueError, match="=="):
        Matcher("a", "==", "b")


@pytest.mark.slow
@pytest.mark.prometheus
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXT.filter(bool))
@example('x"} or vector(1) or {a="')
@example("\\")
@example("\x00\x7f\u2028\U0001f600")
def test_the_server_reads_the_value_that_was_meant(served: Served, text: str) -> None:
    # absent() of a series that does not exist repeats the equality matchers as the server's own parser read them.
    expression = f"absent({selector((metric_name_matcher('no_such_metric'), equal('probe', text)))})"
    response = requests.post(f"{served.server.url}/api/v1/query", {"query": expression}, timeout=10).json()
    assert response["status"] == "success", response
    assert response["data"]["result"][0]["metric"] == {"probe": text}


@pytest.mark.prometheus
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TEXT.filter(bool), min_size=1, max_size=3), TEXT)
def test_marks_and_patterns_survive_the_servers_parser(served: Served, values: list[str], mark: str) -> None:
    # vector(1) has no label, so `unless` with a matcher of any pattern keeps it: only the syntax is at stake.
    rest = selector((metric_name_matcher("no_such_metric"), in_values("namespace", values), none_of("pod", values)))
    between = selector(
        (metric_name_matcher("no_such_metric"), *(Matcher("namespace", "=~", at_or_after(value)) for value in values))
    )
    others = [with_constant_label(f"sum({text})", "mark", "other") for text in (rest, between)]
    expression = union([with_constant_label("vector(1)", "mark", mark), *others])
    response = requests.post(f"{served.server.url}/api/v1/query", {"query": expression}, timeout=10).json()
    assert response["status"] == "success", (expression, response)
    assert response["data"]["result"][0]["metric"] == ({"mark": mark} if mark else {})
