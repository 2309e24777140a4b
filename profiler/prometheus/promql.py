"""Builds PromQL text: the only place where a value becomes part of an expression. Pure.

First module in the order `promql` -> `parts` -> `plan` -> `source`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cotenant.base.errors import UsageError

_METRIC: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_REGEX_MARKS: Final = frozenset(r"\.+*?()|[]{}^$")
_CODE_POINTS: Final = 0x110000
_OPERATORS: Final = ("=", "!=", "=~", "!~")


NAME_MARK: Final = "cotenant_name"
"""Label that distinguishes series of several metrics if these are queried one by one."""


@dataclass(frozen=True, slots=True)
class Wording:
    """One PromQL query in two equivalent wordings.

    `usual` selects metrics by a regular expression of their names, `exact` each metric by its full name, for servers
    that find series only that way.
    """

    usual: str
    exact: str


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on one label; for =~ and !~ the value is a regular expression (RE2, anchored by the server)."""

    label: str
    operator: str
    value: str

    def __post_init__(self) -> None:
        if not _LABEL.fullmatch(self.label):
            raise UsageError(
                f"{self.label!r} is not a label's name", fix="Use letters, digits and _, not beginning with a digit."
            )
        if self.operator not in _OPERATORS:
            raise ValueError(self.operator)

    def __str__(self) -> str:
        return f"{self.label}{self.operator}{quote(self.value)}"


def quote(text: str) -> str:
    """Return a PromQL string literal: backslash, quote and control characters escaped as in Go."""
    return '"' + "".join(map(_escape_char, text)) + '"'


def _escape_char(char: str) -> str:
    if char in '\\"':
        return "\\" + char
    return char if char.isprintable() or ord(char) > 0xFFFF else f"\\u{ord(char):04x}"


def literal(text: str) -> str:
    """Return a regular expression (RE2) that matches exactly this text."""
    return "".join("\\" + c if c in _REGEX_MARKS else c for c in text)


def equal(label: str, value: str) -> Matcher:
    """Return the condition that the label has this value."""
    return Matcher(label, "=", value)


def in_values(label: str, values: Iterable[str]) -> Matcher:
    """Return the condition that the label has one of these values."""
    return Matcher(label, "=~", "|".join(map(literal, values)))


def none_of(label: str, values: Iterable[str]) -> Matcher:
    """Return the condition that the label has none of these values."""
    return Matcher(label, "!~", "|".join(map(literal, values)))


def at_or_after(bound: str) -> str:
    """Return a regular expression (RE2) for `bound` and all texts after it in the order of `order`.

    Its length depends only on the bound, so a shard of a thousand names has as short a query as one of two.
    """
    above = "".join(f"({_greater(char)}{literal(char)}" for char in bound)
    return f"{above}{')' * len(bound)}(?s:.*)"


def order(text: str) -> tuple[int, ...]:
    """Return the sorting key of a text for `at_or_after`: by code points, control characters after all others."""
    return tuple(ord(char) + (_CODE_POINTS if char < " " else 0) for char in text)


def _greater(char: str) -> str:
    """Return an alternative for the characters that come after this one."""
    if char >= " ":
        return f"[^ -{_in_class(char)}]|"
    return f"[{_in_class(chr(ord(char) + 1))}-\\x1f]|" if char < "\x1f" else ""


def _in_class(char: str) -> str:
    """Return a character as it is written in a regular expression's character class."""
    if char < " ":
        return f"\\x{ord(char):02x}"
    return f"\\{char}" if char in r"\]^-[" else char


def metric_name_matcher(*metrics: str) -> Matcher:
    """Return the condition that a series is of one of these metrics; for one metric it is a cheaper equality."""
    return equal("__name__", metrics[0]) if len(metrics) == 1 else in_values("__name__", metrics)


def names_of(matcher: Matcher) -> tuple[str, ...]:
    """Return the metrics that a matcher of `metric_name_matcher` selects."""
    return tuple(matcher.value.split("|"))


def selector(matchers: Iterable[Matcher]) -> str:
    """Return a series selector; a full metric name in the first matcher is written before the braces."""
    conditions = tuple(matchers)
    first = conditions[0] if conditions else None
    if first and first.label == "__name__" and first.operator == "=" and _METRIC.fullmatch(first.value):
        return f"{first.value}{{{','.join(map(str, conditions[1:]))}}}"
    return "{" + ",".join(map(str, conditions)) + "}"


def of_labels(labels: Mapping[str, str]) -> tuple[Matcher, ...]:
    """Return an equality matcher for each label, in the labels' order."""
    return tuple(equal(k, v) for k, v in labels.items())


def with_constant_label(expression: str, label: str, value: str) -> str:
    """Return the expression with a constant label on every series, so that several expressions fit in one answer."""
    return f'label_replace({expression}, {quote(label)}, {quote(value.replace("$", "$$"))}, "", "")'


def union(expressions: Iterable[str]) -> str:
    """Return the union of all series of the expressions; the series of different expressions must differ in a label."""
    return " or ".join(expressions)


def marked_union(label: str, expressions: Mapping[str, str]) -> str:
    """Return the union of the expressions, whose series have the expression's name as `label`."""
    return union(with_constant_label(text, label, name) for name, text in expressions.items())
