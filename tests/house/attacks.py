"""The worst texts for a regular expression: runs of what it repeats, with an end that it refuses."""

from __future__ import annotations

import re
import re._constants as op  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import string
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

ENDS: Final = ("", "\x00", "\n")
"""Of a text, so that an expression that has taken all of a run has to look again for another way."""
MOST_PUMPS: Final = 120
_ALPHABET: Final = string.ascii_letters[:6] + "xyzXYZ2590" + string.punctuation + " \tµ\n"
_REPEATS: Final = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
_ENOUGH: Final = 16
"""A part that repeats at least so often makes a run."""


def attacks(expression: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """(before, run, after): what leads to a part that repeats, the text that it repeats, what comes behind."""
    source = expression.pattern if isinstance(expression.pattern, str) else expression.pattern.decode("latin-1")
    tree = parser.parse(source, expression.flags & ~(re.UNICODE if isinstance(expression.pattern, bytes) else 0))
    yield from dict.fromkeys(islice(_runs(list(tree)), MOST_PUMPS))


def _runs(parts: Sequence[Any], before: str = "") -> Iterator[tuple[str, str, str]]:
    for place, (kind, argument) in enumerate(parts):
        lead = before + _first(parts[:place])
        if kind in _REPEATS:
            if argument[1] is op.MAXREPEAT or argument[1] >= _ENOUGH:
                for run in _samples(list(argument[2])):
                    yield lead, run, ""
                    if place:
                        yield before, _first(parts[:place]) + run, ""
                        yield before, run, ""
                    yield lead, run, _first(parts[place + 1 :])
            yield from _runs(list(argument[2]), lead)
        for inner in _inside(kind, argument):
            yield from _runs(inner, lead)


def _inside(kind: Any, argument: Any) -> list[list[Any]]:
    if kind is op.BRANCH:
        return [list(branch) for branch in argument[1]]
    if kind is op.SUBPATTERN:
        return [list(argument[3])]
    if kind is op.ATOMIC_GROUP:
        return [list(argument)]
    return [list(argument[1])] if kind in (op.ASSERT, op.ASSERT_NOT) else []


def _first(parts: Sequence[Any]) -> str:
    return next(iter(_samples(parts)), "")


def _samples(parts: Sequence[Any]) -> Iterator[str]:
    """Texts that the parts match: one for each branch, and for each character that a part of them may be."""
    samples: dict[str, None] = {}
    for character in _ALPHABET:
        for branch in range(4):
            samples.setdefault("".join(_sample(part, character, branch) for part in parts), None)
    yield from (text for text in samples if text)


def _sample(part: tuple[Any, Any], character: str, branch: int) -> str:
    kind, argument = part
    if kind is op.LITERAL:
        return chr(argument)
    if kind in (op.ANY, op.NOT_LITERAL, op.IN):
        items = {op.ANY: [(op.NOT_LITERAL, 10)], op.NOT_LITERAL: [part]}.get(kind, argument)
        return next((c for c in (character, *_ALPHABET, *map(chr, range(128))) if _is_in(items, c)), "")
    if kind in _REPEATS:
        least = argument[0] or (1 if branch % 2 else 0)
        return "".join(_sample(inner, character, branch) for inner in argument[2]) * min(least, _ENOUGH)
    inside = _inside(kind, argument)
    if kind in (op.ASSERT, op.ASSERT_NOT) or not inside:
        return ""
    return "".join(
        _sample(inner, character, branch // 2 if kind is op.SUBPATTERN else branch)
        for inner in inside[branch % len(inside)]
    )


def _is_in(items: Any, character: str) -> bool:
    code, negated, is_listed = ord(character), False, False
    for kind, argument in items:
        if kind is op.NEGATE:
            negated = True
        elif kind in (op.LITERAL, op.NOT_LITERAL):
            is_listed |= (code == argument) is (kind is op.LITERAL)
        elif kind is op.RANGE:
            is_listed |= argument[0] <= code <= argument[1]
        elif kind is op.CATEGORY:
            is_listed |= bool(re.match(_CATEGORIES[argument], character))
    return is_listed != negated


_CATEGORIES: Final = {
    op.CATEGORY_DIGIT: r"\d",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w",
    op.CATEGORY_NOT_WORD: r"\W",
}
