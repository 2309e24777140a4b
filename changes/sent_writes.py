"""EDGE: a write with what it makes of its object, line by line, for good or as a dry run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cotenant.base.kube import Writer
from cotenant.base.kubernetes.intent import Intent
from cotenant.changes.model.service import FieldMove
from cotenant.changes.model.tables import NOTHING


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


_OF_SERVER: Final = frozenset(
    {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "name", "namespace"}
)
"""Fields of metadata that the server keeps, or that the object's address says."""


def object_lines(target: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> tuple[FieldMove, ...]:
    """Every value that differs between an object and what a write makes of it, which the server defaulted.

    target: the object as people write it; before: None = there is none yet. A pointer is the keys and places down to
    the value with slashes between, such as spec/taints/0/key. Left out is what the target says, and what the server
    keeps for itself.
    """
    old, new = dict(_values(before or {})), dict(_values(after))
    moved = [place for place in dict.fromkeys((*new, *old)) if old.get(place) != new.get(place)]
    return tuple(FieldMove(target, "/".join(p), old.get(p, NOTHING), new.get(p, NOTHING)) for p in moved)


def _values(body: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each scalar of an object by its place, as text; an empty map or list sets nothing."""
    if isinstance(body, Mapping):
        for key, inner in body.items():
            if not ((place == ("metadata",) and key in _OF_SERVER) or (not place and key in ("apiVersion", "kind"))):
                yield from _values(inner, (*place, str(key)))
    elif isinstance(body, Sequence) and not isinstance(body, str):
        for number, inner in enumerate(body):
            yield from _values(inner, (*place, str(number)))
    elif body is not None:
        yield place, body if isinstance(body, str) else msgspec.json.encode(body).decode()
