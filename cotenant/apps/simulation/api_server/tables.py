"""Objects of CRDs as a Table: the printer columns of their definition, as `kubectl get` shows them. Pure.

Of JSONPath what printer columns use is understood: names, and `[*]`, of which the first value is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from cotenant.apps.simulation.api_server.schema import Json
from cotenant.core.model.kubernetes.moments import moment_of

MEDIA_TYPE: Final = "as=Table"
"""In the Accept header of who wants one."""
AGE: Final = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
UNITS: Final = ((86_400 * 2, 86_400, "d"), (3600 * 3, 3600, "h"), (120, 60, "m"), (0, 1, "s"))
"""(from so many seconds on, seconds of the unit, its letter): one unit, where kubectl writes up to two."""


def table(body: Json, columns: Sequence[Json], now_seconds: float) -> Json:
    """An object or a list of them; columns: additionalPrinterColumns, none for the age alone."""
    items = body.get("items", [body])
    shown = [*columns] or [AGE]
    definitions = [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}]
    definitions += [
        {"format": "", "description": "", "priority": 0} | {k: v for k, v in one.items() if k != "jsonPath"}
        for one in shown
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": body["metadata"] if "items" in body else {},
        "columnDefinitions": definitions,
        "rows": [
            {
                "cells": [item["metadata"]["name"], *(_cell(item, one, now_seconds) for one in shown)],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": item["metadata"],
                },
            }
            for item in items
        ],
    }


def _cell(item: Json, column: Json, now_seconds: float) -> Any:
    value = next(_values(item, column["jsonPath"].replace("[*]", ".*").strip(".").split(".")), None)
    moment = moment_of(value, column["jsonPath"]) if column["type"] == "date" else None
    if moment is None:
        return value
    seconds = now_seconds - moment
    _, unit, letter = next((one for one in UNITS if seconds >= one[0]), UNITS[-1])
    return f"{max(0, int(seconds // unit))}{letter}"


def _values(value: Any, path: Sequence[str]) -> Iterator[Any]:
    if not path:
        yield value
        return
    first, *rest = path
    if first == "*":
        for one in value if isinstance(value, list) else ():
            yield from _values(one, rest)
    elif isinstance(value, dict) and first in value:
        yield from _values(value[first], rest)
