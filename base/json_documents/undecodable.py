"""What decoding raises when a text is not what it should be. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""Errors of msgspec, and two that it lets pass: of bytes or characters that are no UTF-8, and of a text that is nested
deeper than the interpreter allows. Who may annotate a pod can write the last."""
