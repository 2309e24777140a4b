"""Add label matchers to each selector of a PromQL query that people wrote, and read its selectors. Pure.

The text is edited between its tokens, because the parser's own output does not restore the quoting. The result is
parsed again, and refused if anything but the labels differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.profiler.prometheus.promql import quote

MOST_CHARACTERS: Final = 10_000
"""Longest query of an object that is parsed."""
MOST_STEPS: Final = 80
"""Most brackets and operators; walking an expression takes the cube of its depth: 11 s at a depth of 200."""
_NESTING: Final = frozenset({"(", "+", "-", "*", "/", "%", "^", "and", "or", "unless", "<", ">", "=", "!"})
_TOKENS: Final = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*\\?(?:"|\Z)|'(?:[^'\\]|\\.)*\\?(?:'|\Z)|`[^`]*`)|(?P<comment>\#[^\n]*)"""
    r"""|(?P<range>\[[^\[\]]*\])|(?P<open>\{)|(?P<close>\})|(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<space>\s+)|(?P<other>.)""",
    re.DOTALL,
)
Matchers = tuple[tuple[str, str, str], ...]
"""(label, operator, value) of each matcher."""


@dataclass(frozen=True, slots=True)
class Selector:
    """One selector of a query: the metric's name, "" if there is none, and its label matchers."""

    metric: str
    matchers: Matchers = ()

    def equal(self, label: str) -> str | None:
        """Return the value that the selector requires of a label; None if it requires no single value."""
        return next((value for name, operator, value in self.matchers if (name, operator) == (label, "=")), None)

    @property
    def text(self) -> str:
        """The selector as PromQL."""
        return f"{self.metric}{{{','.join(f'{name}{op}{quote(value)}' for name, op, value in self.matchers)}}}"


def selectors_of(query: str) -> list[Selector]:
    """Return the selectors of a query in order; `query` has its variables filled in; raise UsageError if not PromQL."""
    import promql_parser

    selectors: list[Selector] = []

    def collect(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            selectors.append(_selector(node))

    promql_parser.walk(parse(query), collect)
    return selectors


def parse(query: str) -> Any:
    """Return the parsed expression; raise UsageError if it is not PromQL, too long, or nested too deeply."""
    import promql_parser

    if len(query) > MOST_CHARACTERS:
        raise UsageError(f"the query has {len(query)} characters, at most {MOST_CHARACTERS} are read")
    steps = sum(token.group() in _NESTING for token in _TOKENS.finditer(query))
    if steps > MOST_STEPS:
        raise UsageError(f"the query has {steps} operators and brackets, at most {MOST_STEPS} are read")
    try:
        return promql_parser.parse(query)
    except ValueError as error:
        raise UsageError(f"the query is not valid PromQL: {error}") from error


def selectors_of_now(query: str) -> list[Selector]:
    """Return the selectors of which the query reads only the newest sample, not a range."""
    import promql_parser

    selectors: list[Selector] = []
    parents: list[Any] = [None]

    def collect(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector) and not isinstance(parents[-1], promql_parser.MatrixSelector):
            selectors.append(_selector(node))
        parents.append(node)

    promql_parser.walk(parse(query), collect)
    return selectors


def is_selector(query: str) -> bool:
    """Return whether the query is a single selector without a function."""
    import promql_parser

    return isinstance(parse(query), promql_parser.VectorSelector)


def tidy(query: str) -> str:
    """Return the query on one line without comments, so that it can be part of another query."""
    replacements = {"comment": "", "space": " "}
    return "".join(replacements.get(str(t.lastgroup), t.group()) for t in _TOKENS.finditer(query)).strip()


def put_labels(query: str, labels: Callable[[Selector], str], filled: Callable[[str], str]) -> str:
    """Return the query with further matchers in each selector: those that `labels` returns for it, "" for none.

    `filled` fills in the variables, so that query and matchers can be parsed. Raise UsageError if the result differs
    from the query by more than these matchers.
    """
    before = selectors_of(filled(query))
    bare = {selector.metric for selector in before if not selector.matchers}
    text = "".join(_pieces(query, bare, labels, filled))
    expected = []
    for selector in before:  # the added matchers come before its own
        added = filled(labels(selector))
        more = selectors_of(f"x{{{added}}}")[0].matchers if added else ()
        expected.append((selector.metric, sorted((*more, *selector.matchers))))
    if [(after.metric, sorted(after.matchers)) for after in selectors_of(filled(text))] != expected:
        raise UsageError("the query cannot be narrowed to the namespace", fix="Select the namespace in the query.")
    return text


def _pieces(query: str, bare: set[str], labels: Callable[[Selector], str], fill: Callable[[str], str]) -> Iterator[str]:
    tokens = list(_TOKENS.finditer(query))
    place = 0
    while place < len(tokens):
        token = tokens[place]
        if token.lastgroup == "open":
            end = next((k for k in range(place, len(tokens)) if tokens[k].lastgroup == "close"), len(tokens) - 1)
            inside = "".join(t.group() for t in tokens[place + 1 : end])
            surroundings = [t for t in tokens[:place] if t.lastgroup not in ("space", "comment")]
            metric = surroundings[-1].group() if surroundings and surroundings[-1].lastgroup == "name" else ""
            (selector,) = selectors_of(f"{metric}{{{fill(inside)}}}")
            parts = [part for part in (labels(selector), inside.strip().rstrip(",")) if part]
            yield "{" + ",".join(parts) + "}"
            place = end + 1
            continue
        yield token.group()
        if token.lastgroup == "name" and token.group() in bare:
            marks = (t.group() for t in tokens[place + 1 :] if t.lastgroup not in ("space", "comment"))
            if next(marks, "") not in ("{", "("):
                added = labels(Selector(token.group()))
                yield f"{{{added}}}" if added else ""
        place += 1


def _selector(node: Any) -> Selector:
    import promql_parser

    operators = (
        (promql_parser.MatchOp.Equal, "="),
        (promql_parser.MatchOp.NotEqual, "!="),
        (promql_parser.MatchOp.Re, "=~"),
        (promql_parser.MatchOp.NotRe, "!~"),
    )
    groups = [node.matchers.matchers, *node.matchers.or_matchers]
    matchers = [(m.name, next(text for op, text in operators if op == m.op), m.value) for some in groups for m in some]
    names = [value for label, operator, value in matchers if (label, operator) == ("__name__", "=")]
    rest = tuple(matcher for matcher in matchers if matcher[0] != "__name__" or matcher[1] != "=")
    return Selector(node.name or (names[0] if names else ""), rest)
