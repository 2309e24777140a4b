"""EDGE: sends a write, for real or as a dry run, and lists line by line what it changes in its object."""

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
    """A write that the API server accepted: the object as answered, and every value that the write changed."""

    intent: Intent
    answer: Mapping[str, Any]
    lines: tuple[FieldMove, ...]


def sent(writer: Writer, intent: Intent, *, dry_run: bool = False) -> Sent:
    """Send a write or dry-run it; raise the cluster errors of `Writer.send`.

    A dry run lists the same lines as the write, because both lists are made of the API server's answers.
    """
    before = writer.client.get(intent.address.path)
    answer = writer.send(intent, dry_run=dry_run)
    return Sent(intent, answer, object_lines(str(intent.address), before, answer))


_OF_SERVER: Final = frozenset(
    {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "name", "namespace"}
)
"""Fields of metadata that the server keeps, or that the object's address says."""


def object_lines(target: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> tuple[FieldMove, ...]:
    """Return every value that differs between an object and the result of a write, with the server's defaults.

    `target` is the object as people write it; `before` is None if the object is new. A pointer is the path of keys and
    indices with slashes, such as spec/taints/0/key. Fields that `target` names or that the server maintains are left
    out.
    """
    old, new = dict(_values(before or {})), dict(_values(after))
    moved = [place for place in dict.fromkeys((*new, *old)) if old.get(place) != new.get(place)]
    return tuple(FieldMove(target, "/".join(p), old.get(p, NOTHING), new.get(p, NOTHING)) for p in moved)


def _values(body: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (path, text) of each scalar of an object; empty maps and lists have none."""
    if isinstance(body, Mapping):
        for key, inner in body.items():
            if not ((place == ("metadata",) and key in _OF_SERVER) or (not place and key in ("apiVersion", "kind"))):
                yield from _values(inner, (*place, str(key)))
    elif isinstance(body, Sequence) and not isinstance(body, str):
        for number, inner in enumerate(body):
            yield from _values(inner, (*place, str(number)))
    elif body is not None:
        yield place, body if isinstance(body, str) else msgspec.json.encode(body).decode()
