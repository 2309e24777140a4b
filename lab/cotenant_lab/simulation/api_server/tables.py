"""Objects as a Table, as `kubectl get` shows them: by a CRD's printer columns, or by BUILT_IN. Pure.

Of JSONPath only what printer columns use is supported: names, and `[*]`, of which the first value is shown. A column of
BUILT_IN may have a function of the object (`cell`) instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from cotenant.base.kubernetes.moments import moment_of
from cotenant_lab.simulation.api_server.schema import Json

MEDIA_TYPE: Final = "as=Table"
"""In the Accept header of who wants one."""
AGE: Final = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_SOURCES: Final = ("jsonPath", "cell")
UNITS: Final = ((86_400 * 2, 86_400, "d"), (3600 * 3, 3600, "h"), (120, 60, "m"), (0, 1, "s"))
"""(from so many seconds on, seconds of the unit, its letter): one unit, where kubectl writes up to two."""


def table(body: Json, columns: Sequence[Json], now_seconds: float) -> Json:
    """Return an object or a list of objects as a Table; `columns` are printer columns, by default only the age."""
    items = body.get("items", [body])
    shown = [*columns] or [AGE]
    definitions = [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}]
    definitions += [
        {"format": "", "description": "", "priority": 0} | {k: v for k, v in column.items() if k not in _SOURCES}
        for column in shown
    ]
    head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": body["metadata"] if "items" in body else {}}
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    rows = []
    for metadata, item in ((item["metadata"], item) for item in items):
        cells = [metadata["name"], *(_cell(item, column, now_seconds) for column in shown)]
        rows.append({"cells": cells, "object": {**partial, "metadata": metadata}})
    return {**head, "columnDefinitions": definitions, "rows": rows}


def _cell(item: Json, column: Json, now_seconds: float) -> Any:
    if "cell" in column:
        return column["cell"](item)
    value = next(_values(item, column["jsonPath"].replace("[*]", ".*").strip(".").split(".")), None)
    moment = moment_of(value, column["jsonPath"]) if column["type"] == "date" else None
    if moment is None:
        return value
    seconds = now_seconds - moment
    _, unit, letter = next((unit for unit in UNITS if seconds >= unit[0]), UNITS[-1])
    return f"{max(0, int(seconds // unit))}{letter}"


def _values(value: Any, path: Sequence[str]) -> Iterator[Any]:
    if not path:
        yield value
        return
    first, *rest = path
    if first == "*":
        for item in value if isinstance(value, list) else ():
            yield from _values(item, rest)
    elif isinstance(value, dict) and first in value:
        yield from _values(value[first], rest)


def _of(item: Json, *path: str) -> Any:
    """The value at the path; None where there is none."""
    return next(_values(item, path), None)


def _text(name: str, cell: Callable[[Json], Any]) -> Json:
    return {"name": name, "type": "string", "cell": cell}


def _count(name: str, path: str) -> Json:
    """A number that is 0 where the object has none yet."""
    return {"name": name, "type": "integer", "cell": lambda item: _of(item, *path.split(".")) or 0}


def _part(name: str, path: str, of: str) -> Json:
    """Two numbers: "1/3"."""
    return _text(name, lambda item: f"{_of(item, *path.split('.')) or 0}/{_of(item, *of.split('.')) or 0}")


def _containers_ready(pod: Json) -> str:
    statuses = _of(pod, "status", "containerStatuses") or ()
    return f"{sum(bool(status.get('ready')) for status in statuses)}/{len(pod['spec'].get('containers') or ())}"


def _pod_status(pod: Json) -> str:
    """Why a container waits or has ended, where one does; else the phase."""
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    states = [status.get("state") or {} for status in _of(pod, "status", "containerStatuses") or ()]
    reasons = (body.get("reason") for state in states for kind, body in state.items() if kind != "running" and body)
    return next(filter(None, reasons), None) or _of(pod, "status", "phase") or "Pending"


def _node_status(node: Json) -> str:
    conditions = _of(node, "status", "conditions") or ()
    ready = next((condition["status"] for condition in conditions if condition["type"] == "Ready"), "Unknown")
    word = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
    return f"{word},SchedulingDisabled" if _of(node, "spec", "unschedulable") else word


_READY: Final = _part("Ready", "status.readyReplicas", "spec.replicas")
BUILT_IN: Final[Mapping[str, tuple[Json, ...]]] = {
    "namespaces": ({"name": "Status", "type": "string", "jsonPath": ".status.phase"}, AGE),
    "nodes": (_text("Status", _node_status), AGE),
    "pods": (
        _text("Ready", _containers_ready), _text("Status", _pod_status),
        {"name": "Restarts", "type": "integer", "cell": lambda pod: sum(
            status.get("restartCount") or 0 for status in _of(pod, "status", "containerStatuses") or ()
        )},
        AGE,
        {"name": "Node", "type": "string", "jsonPath": ".spec.nodeName", "priority": 1},
    ),
    "deployments": (
        _READY, _count("Up-to-date", "status.updatedReplicas"), _count("Available", "status.availableReplicas"), AGE,
    ),
    "statefulsets": (_READY, AGE),
    "replicasets": (
        _count("Desired", "spec.replicas"), _count("Current", "status.replicas"),
        _count("Ready", "status.readyReplicas"), AGE,
    ),
    "daemonsets": (
        _count("Desired", "status.desiredNumberScheduled"), _count("Current", "status.currentNumberScheduled"),
        _count("Ready", "status.numberReady"), _count("Available", "status.numberAvailable"), AGE,
    ),
    "jobs": (_part("Completions", "status.succeeded", "spec.completions"), AGE),
    "cronjobs": (
        {"name": "Schedule", "type": "string", "jsonPath": ".spec.schedule"},
        {"name": "Suspend", "type": "boolean", "jsonPath": ".spec.suspend"}, AGE,
    ),
    "horizontalpodautoscalers": (
        _text("Reference", lambda item: "{kind}/{name}".format_map(item["spec"]["scaleTargetRef"])),
        _count("MinPods", "spec.minReplicas"), _count("MaxPods", "spec.maxReplicas"),
        _count("Replicas", "status.currentReplicas"), AGE,
    ),
    "configmaps": ({"name": "Data", "type": "integer", "cell": lambda item: len(item.get("data") or ())}, AGE),
}  # fmt: skip
"""Columns of built-in kinds by plural, as kubectl names them; a kind that is not here has its age alone."""
