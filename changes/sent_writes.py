"""EDGE: a write with what it makes of its object, line by line, for good or as a dry run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cotenant.base.kube import Writer
from cotenant.base.kubernetes.intent import Intent
from cotenant.changes.model.object_lines import object_lines
from cotenant.changes.model.service import FieldMove


@dataclass(frozen=True, slots=True)
class Sent:
    """A write that the server took: its object as the server answered, and every line of it that the write changed."""

    intent: Intent
    answer: Mapping[str, Any]
    lines: tuple[FieldMove, ...]


def sent(writer: Writer, intent: Intent, *, dry_run: bool = False) -> Sent:
    """Send a write, or only ask the server; errors of the cluster as of `Writer.send`.

    What a dry run lists is what the same write changes afterwards: both lists are made of the server's answers.
    """
    before = writer.client.get(intent.address.path)
    answer = writer.send(intent, dry_run=dry_run)
    return Sent(intent, answer, object_lines(str(intent.address), before, answer))
