"""Messages for a chat with Slack's incoming webhooks: text without effective markup, and blocks. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from cotenant.base.text import visible

HEADER_CHARACTERS: Final = 150
SECTION_CHARACTERS: Final = 2900
"""Slack's limits are 150 and 3,000."""
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "`": "'"}


def escape_slack_text(text: str, most: int = HEADER_CHARACTERS) -> str:
    """Return text of at most `most` characters that Slack shows without link, mention or code; no escape is cut.

    Source: Slack's "Formatting text for app surfaces", escaping text.
    """
    pieces: list[str] = []
    remaining = most - 1
    for piece in (_ESCAPES.get(c, c) for c in visible(text)):
        remaining -= len(piece)
        if remaining < 0:
            return "".join(pieces) + "…"
        pieces.append(piece)
    return "".join(pieces)


def header(text: str) -> dict[str, Any]:
    """Return a title as a block of a Slack message."""
    return {"type": "header", "text": {"type": "plain_text", "text": text, "emoji": False}}


def section(lines: Iterable[str]) -> dict[str, Any]:
    """Return a block with as many of the lines, each complete, as Slack accepts."""
    fitting, remaining = [], SECTION_CHARACTERS
    for line in lines:
        remaining -= len(line) + 1
        if remaining < 0:
            break
        fitting.append(line)
    return {"type": "section", "text": {"type": "mrkdwn", "text": "\n".join(fitting), "verbatim": True}}
