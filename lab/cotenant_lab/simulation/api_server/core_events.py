"""Events of API group `v1`: the same objects as those of `events.k8s.io/v1`, with other names of fields. Pure.

As in Kubernetes both groups show one stored object, so that an Event written to either is found by `kubectl describe`,
which requests `v1`. Source of field names: `k8s.io/kubernetes/pkg/apis/events/v1/conversion.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from cotenant_lab.simulation.api_server.kinds import ApiKind
from cotenant_lab.simulation.api_server.schema import Json
from cotenant_lab.simulation.api_server.verbs import ApiCall
from cotenant_lab.simulation.api_server.watches import Stream

CORE_NAMES: Final[Mapping[str, str]] = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
}
"""Field of `events.k8s.io/v1` -> field of `v1`; all others are named alike."""
EVENTS_NAMES: Final = {core: name for name, core in CORE_NAMES.items()}


def is_core_event(kind: ApiKind) -> bool:
    """Return whether a kind is `v1` Event, the view that this module provides."""
    return (kind.group, kind.plural) == ("", "events")


def to_events_group(call: ApiCall, kind: ApiKind) -> ApiCall:
    """Return a call on `v1` Events as one on `events.k8s.io/v1`, of which `kind` is the kind."""
    selector = call.query.get("fieldSelector", "")
    for core, name in EVENTS_NAMES.items():
        selector = selector.replace(core, name)
    body = call.body
    if isinstance(body, dict) and body.get("apiVersion", "v1") == "v1":
        body = {EVENTS_NAMES.get(name, name): value for name, value in body.items()} | {"apiVersion": kind.api_version}
    query = {**call.query, **({"fieldSelector": selector} if selector else {})}
    return replace(call, kind=kind, query=query, body=body)


def to_core(event: Json) -> Json:
    """Return a stored Event in the form of `v1`."""
    return {CORE_NAMES.get(name, name): value for name, value in event.items()} | {"apiVersion": "v1"}


def listed_as_core(body: Json) -> Json:
    """Return the answer to a call with Events in the form of `v1`: one Event, a list of them, or a status."""
    if body.get("kind") == "EventList":
        return {**body, "apiVersion": "v1", "items": [to_core(event) for event in body["items"]]}
    return to_core(body) if body.get("kind") == "Event" else body


def streamed_as_core(stream: Stream) -> Iterator[Json | None]:
    """Yield the answer to a watch with Events in the form of `v1`."""
    for event in stream:
        yield event and {**event, "object": listed_as_core(event["object"])}
