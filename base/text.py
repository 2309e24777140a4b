"""Text that is safe on a terminal or in a spreadsheet; ratios as text. Pure, without numpy: every message uses it.

Names come from clusters and metric labels, so a text may have anything: escape sequences that control a terminal, marks
that reverse the reading order, or a formula that a spreadsheet would run. All of these are made harmless.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
MOST_DIGITS: Final = 6
_ALMOST: Final = 0.99
LONGEST_VALUE: Final = 60
_COMPARED: Final = 80  # characters of a name that are compared: the time grows with the square of the length
_COMPARED_TEXT: Final = 8_000
"""Characters of a message that are compared: no sentence is longer, and a page of a proxy begins like the next."""
_ALIKE: Final = 0.6  # least ratio of `difflib` for a guess, its own default: about every third letter may differ
_CHANGING: Final = re.compile(
    r"0x[0-9a-f]+"  # Python's text of an object
    r"|\b(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?(?:[num\u00b5\u03bc]?s)\b|\b\d+h\d+m\b"  # a duration of Prometheus, etcd: Go's
    r"|\b\d+(?:\.\d+)? (?:ms|milliseconds?|s|seconds?|min)\b"  # curl's, and ours
)
_MONTH: Final = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
_IDENTIFIER: Final = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"  # Envoy's x-request-id
    r"|\b\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\b"  # RFC 3339; nginx
    rf"|(?:\b[a-z]{{3}}, )?\b\d\d[ /]{_MONTH}[ /]\d{{4}}[ :]\d\d:\d\d:\d\d(?: GMT| [+-]\d{{4}})"  # HTTP; nginx
    r"|\b1-[0-9a-f]{8}-[0-9a-f]{24}\b"  # Root= of Amazon's load balancers
    r"|\b(?=[a-z-]*\d)[0-9a-f]{16,}\b"  # a trace of Thanos and Mimir
    r"|\b\d{9,}(?:\.\d+)?\b"  # Unix time, as of an expired token
    r"|(?<=:)\d{1,5}(?=->)"  # the port that a connection of a Go program was opened from
    r"|(?<=\bretry-after: )\d+|(?<=\bterm )\d+|(?<=\bindex )\d+"  # HTTP's; etcd's
    # An API server's: the address of a watch, and where it goes on
    r"|[?&]\w+=\d+(?:\.\d+)?(?=[&\s)'\"]|$)|(?<=\bresource version: )\d+(?: \(\d+\))?",
    re.IGNORECASE,
)
_RANDOM: Final = re.compile(r"\b(?=[\w+/]*[A-Z])(?=[\w+/]*(?:[A-Z]{2}|\d))[\w+/]{12,200}={1,2}(?!\w)")
"""A request's identifier as S3 (HostId) and API Gateway write it: no name of Kubernetes is written so."""


def stable_text(text: str) -> str:
    """Return the part of a text that is the same each time its event recurs, with "#" for the rest.

    Replaced are durations and memory addresses and, in a sentence, the times and request identifiers that proxies add
    to their responses. A text of one word is unchanged: it may be the name of an object.
    """
    steady_text = _CHANGING.sub("#", text[:_COMPARED_TEXT])
    return _RANDOM.sub("#", _IDENTIFIER.sub("#", steady_text)) if " " in steady_text else steady_text


def visible(text: str) -> str:
    r"""Return the text with control, direction and other invisible characters as escapes: `\x1b`, `\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape_character(c) if unicodedata.category(c) in _UNSAFE_CATEGORIES else c for c in text)


def visible_lines(text: str) -> str:
    """Return the text with invisible characters as escapes, except line breaks, which a settings file has."""
    return "\n".join(visible(line) for line in text.split("\n"))


def csv_text(text: str) -> str:
    """Return text for a CSV cell, with invisible characters as escapes; it never starts a spreadsheet formula."""
    return f"'{visible(text)}" if text.startswith(_FORMULA_STARTS) else visible(text)


def percent(ratio: float, digits: int = 0, *, signed: bool = False) -> str:
    """Return a finite ratio in percent: 0.413 -> "41 %", with one digit "41.3 %", signed "+41 %".

    A ratio below 1 is never written as "100 %": 0.996 -> "99.6 %".
    """
    if _ALMOST <= abs(ratio) < 1 - 1e-9:
        digits = digits_beside(100.0, 100 * abs(ratio), digits)
    return f"{100 * ratio:{'+' if signed else ''}z.{digits}f} %"


def digits_beside(limit: float, value: float, fewest: int = 0) -> int:
    """Return the number of decimals with which a value does not look like its limit: 6.97 days are not "7.0 of 7"."""
    return next(
        (d for d in range(fewest, MOST_DIGITS) if value == limit or f"{value:.{d}f}" != f"{limit:.{d}f}"), MOST_DIGITS
    )


def small_percent(ratio: float) -> str:
    """Return a finite ratio in percent with two decimals, or with more if it would be near 0: 0.00006 -> "0.006 %"."""
    return percent(ratio, digits_beside(0.0, 10 * ratio, 2))


def share(ratio: float) -> str:
    """Return a finite share of a whole in tenths of a percent, never rounded up: "99.9 %"."""
    return percent(math.floor(1000 * ratio + 1e-9) / 1000, 1)


def format_value(value: object, longest: int = LONGEST_VALUE) -> str:
    """Return a value for a message: a text in quotes, anything else as JSON, cut at `longest` characters.

    A member of a StrEnum is its text. Never a Python repr, because the reader wrote YAML or JSON.
    """
    if isinstance(value, str):
        text = str(value)
        return repr(text if len(text) <= longest else f"{text[: longest - 3]}...")
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a very deep nesting
        text = f"a very large {type(value).__name__}"
    return visible(text if len(text) <= longest else f"{text[: longest - 3]}...")


def _escape_character(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in singular or plural: "1 entry", "2 entries", "2 days"."""
    plural = f"{noun[:-1]}ies" if noun[-2:-1] not in "aeiou" and noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def agree(number: int, singular: str, plural: str) -> str:
    """Return a number with the phrase for singular or plural: "1 node was read", "2 nodes were read"."""
    return f"{number:,} {singular if number == 1 else plural}"


def duration(seconds: float) -> str:
    """Return a duration in days or hours (from two on), else minutes or seconds: "42 s", "4 min", "3 h", "2 d"."""
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit or (seconds >= unit and name == "min"):
            return f"{seconds // unit:.0f} {name}"
    return f"{max(0, seconds):.0f} s"


def in_time(seconds: float) -> str:
    """Return a text for an event that many seconds ahead: "in 42 s", "in 4 min"; "at once" for 0 or less."""
    return f"in {duration(math.ceil(seconds))}" if seconds > 0 else "at once"


def moment(seconds: float) -> str:
    """Return a Unix time in UTC: "Thu 12 Nov 18:00 UTC"."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%a %d %b %H:%M UTC")


def closest_name(name: str, candidates: Iterable[str]) -> str:
    """Return the known name that is most similar to `name`; "" if none is similar enough."""
    near = difflib.get_close_matches(name[:_COMPARED], list(candidates), n=1, cutoff=_ALIKE)
    return near[0] if near else ""


def ask_for_closest(name: str, addresses: Iterable[str]) -> str:
    """Return a question that suggests the address with the most similar last part; "" if there is none."""
    by_name = {address.rpartition("/")[2]: address for address in sorted(addresses)}
    near = closest_name(name, by_name)
    return f"Did you mean {by_name[near]}?" if near else ""
