"""The verbs on objects: get, list, create, apply, patch, replace, delete. No others are served.

An `ApiCall` is a request after routing and authorisation. Each verb reads the state, lets `writes` and `ownership`
compute the new object, and stores it, unless the call has dryRun=All.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from cotenant.base.json_documents.difference import value_at_pointer
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.pod_request import sum_amounts
from cotenant.base.process.clock import Clock
from cotenant_lab.simulation.api_server import admission
from cotenant_lab.simulation.api_server.kinds import ApiKind
from cotenant_lab.simulation.api_server.managed_fields.fields import format_path
from cotenant_lab.simulation.api_server.managed_fields.ownership import (
    FieldConflict,
    FieldManager,
    ManagedWrite,
    Owners,
    apply_configuration,
    managed_fields,
    owners_of,
    update_owners,
)
from cotenant_lab.simulation.api_server.refusal import Refusal, conflict, expired_refusal, not_found
from cotenant_lab.simulation.api_server.schema import Json
from cotenant_lab.simulation.api_server.selectors import by_fields, by_labels
from cotenant_lab.simulation.api_server.state import Key, ObjectState
from cotenant_lab.simulation.api_server.writes import KindWriter

APPLY: Final = "application/apply-patch+yaml"
JSON_PATCH: Final = "application/json-patch+json"


@dataclass(slots=True)
class ApiCall:
    """One request for one kind's objects."""

    kind: ApiKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    agent: str = "unknown"
    warnings: list[str] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """The key of the object in its collection: namespace and name."""
        return self.namespace, self.name

    def manager(self, operation: str) -> FieldManager:
        """Return the field manager that owns what this call writes."""
        name = self.query.get("fieldManager") or self.agent
        return FieldManager(name, operation, self.subresource, self.kind.api_version)

    def selects(self) -> Callable[[Json], bool]:
        """Return a predicate that is true for the objects that the call requests."""
        labels = by_labels(self.query.get("labelSelector", ""))
        fields = by_fields(self.query.get("fieldSelector", ""), self.kind.plural)
        inside, name = self.namespace, self.name
        return lambda item: (
            (not inside or item["metadata"].get("namespace") == inside)
            and (not name or item["metadata"]["name"] == name)
            and labels(item)
            and fields(item)
        )


Stored = Callable[[ApiKind, Json | None, Json | None], None]
"""Called with (kind, before, after) for every stored change, under the state's lock."""


class Verbs:
    """The verbs of the API on the objects of one state."""

    def __init__(self, state: ObjectState, clock: Clock, stored: Stored) -> None:
        """Store the arguments; no verb is carried out yet."""
        self.state = state
        self._clock = clock
        self._stored = stored

    def get(self, call: ApiCall) -> Json:
        """Return one object; raise Refusal (404) if it does not exist."""
        item = self.state.get(call.kind.collection, call.key)
        if item is None:
            raise not_found(call.kind.resource, call.name)
        return _convert_version(call.kind, item)

    def list(self, call: ApiCall) -> Json:
        """Return a page of a collection; its pages have one resource version. Raise 410 if that is no longer kept."""
        limit = int(call.query.get("limit") or 0)
        with self.state.lock:
            version, start = _parse_continue_token(call.query.get("continue", ""), self.state.version)
            items = self.state.at(call.kind.collection, version)
        selects = call.selects()
        keys = sorted(key for key, item in items.items() if key > start and selects(item))
        page = keys[:limit] if limit else keys
        metadata: Json = {"resourceVersion": str(version)}
        if len(page) < len(keys):
            metadata["continue"] = base64.urlsafe_b64encode(json.dumps([version, *page[-1]]).encode()).decode()
            if not (call.query.get("labelSelector") or call.query.get("fieldSelector")):
                metadata["remainingItemCount"] = len(keys) - len(page)
        head = {"kind": f"{call.kind.name}List", "apiVersion": call.kind.api_version, "metadata": metadata}
        return {**head, "items": [_convert_version(call.kind, items[key]) for key in page]}

    def create(self, call: ApiCall) -> Json:
        """Create an object, as a POST does; raise Refusal (409) if it exists."""
        body = _object(call, call.body)
        metadata = body["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{self.state.version:05x}"
        call.name = metadata.get("name", "")
        _named_alike(call, metadata)
        with self.state.lock:
            if self.state.get(call.kind.collection, call.key):
                raise Refusal(409, f'{call.kind.resource} "{call.name}" already exists', reason="AlreadyExists")
            writer = self._writer(call)
            created = writer.created({**body, "metadata": {**metadata, "managedFields": []}})
            write = ManagedWrite(call.kind.schema, call.manager("Update"), writer.now)
            return self._put(call, None, created, update_owners(write, _bare(created), created, {}))

    def apply(self, call: ApiCall, subject: Callable[[], None]) -> tuple[Json, bool]:
        """Apply server-side; return the object and whether it is new. `subject` raises if it may not be created."""
        body = _object(call, call.body)
        if not call.query.get("fieldManager"):
            problem = "fieldManager: Required value: is required for apply patch"
            raise Refusal(422, f'PatchOptions.meta.k8s.io "" is invalid: {problem}')
        if body["metadata"].get("managedFields"):
            raise Refusal(400, "metadata.managedFields must be nil")
        _named_alike(call, body["metadata"])
        with self.state.lock:
            live = self.state.get(call.kind.collection, call.key)
            writer = self._writer(call)
            writer.checked(body, partial=True)
            force = call.query.get("force") == "true"
            write = ManagedWrite(call.kind.schema, call.manager("Apply"), writer.now, force)
            if live is None:
                subject()
                if call.subresource:
                    raise not_found(call.kind.resource, call.name)
                if uid := body["metadata"].get("uid"):
                    problem = f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
                    raise conflict(call.kind.resource, call.name, problem)
                _, owners = apply_configuration(write, _bare(body), body, {})
                return self._put(call, None, writer.created(body), owners), True
            condition = {k: v for k, v in body["metadata"].items() if k in ("resourceVersion", "uid")}
            config = {**body, "metadata": {k: v for k, v in body["metadata"].items() if k not in condition}}
            try:
                result, owners = apply_configuration(write, live, config, owners_of(live))
            except FieldConflict as error:
                raise _field_conflict(error) from error
            new = {**result, "metadata": {**result["metadata"], **condition}}
            return self._put(call, live, writer.changed(live, new, call.subresource), owners), False

    def patch(self, call: ApiCall) -> Json:
        """Apply a JSON patch (RFC 6902): all operations or none."""
        from jsonpatch import JsonPatchException
        from jsonpointer import JsonPointerException

        if not isinstance(call.body, list) or not all(isinstance(step, dict) for step in call.body):
            raise Refusal(400, "error decoding patch: a JSON patch is a list of operations")
        with self.state.lock:
            live = self.get(call)
            try:
                new = _apply_patch(live, call.body)
            except (JsonPatchException, JsonPointerException, TypeError, KeyError) as error:
                message = f"the server rejected our request due to an error in our request: {error}"
                raise Refusal(422, message) from error
            return self._update(call, live, new)

    def replace(self, call: ApiCall) -> Json:
        """Replace an object, as a PUT does."""
        body = _object(call, call.body)
        _named_alike(call, body["metadata"])
        with self.state.lock:
            return self._update(call, self.get(call), body)

    def _update(self, call: ApiCall, live: Json, new: Json) -> Json:
        """Store `new` in the place of `live`; the caller owns every field that it changes. The lock is held."""
        writer = self._writer(call)
        changed = writer.changed(live, new, call.subresource)
        write = ManagedWrite(call.kind.schema, call.manager("Update"), writer.now)
        return self._put(call, live, changed, update_owners(write, _plain(live), _plain(changed), owners_of(live)))

    def bind(self, call: ApiCall) -> Json:
        """Set a pod's node, as a POST of pods/NAME/binding does; 409 if it has one or the uid is another pod's.

        The Binding's annotations become the pod's in the same write.
        """
        body = call.body if isinstance(call.body, dict) else {}
        metadata = body.get("metadata") or {}
        node, uid = (body.get("target") or {}).get("name"), metadata.get("uid")
        if not node:
            raise Refusal(500, "target.name: Required value")  # as the real server has it
        with self.state.lock:
            live = self.get(call)
            if uid and uid != (own_uid := live["metadata"]["uid"]):
                problem = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {own_uid}"
                raise conflict(call.kind.resource, call.name, problem)
            if live["spec"].get("nodeName"):
                problem = f'pod {call.name} is already assigned to node "{live["spec"]["nodeName"]}"'
                raise conflict(call.kind.resource, call.name, problem)
            if not _dry(call):
                own = {**(live["metadata"].get("annotations") or {}), **(metadata.get("annotations") or {})}
                annotated = {**live["metadata"], **({"annotations": own} if own else {})}
                self._store(call, live, {**live, "metadata": annotated, "spec": {**live["spec"], "nodeName": node}})
        return _created_status()

    def evict(self, call: ApiCall) -> Json:
        """Delete a pod, as a POST of pods/NAME/eviction does; disruption budgets are ignored."""
        body = call.body if isinstance(call.body, dict) else {}
        self.delete(replace(call, body=body.get("deleteOptions") or {}))
        return _created_status()

    def delete(self, call: ApiCall) -> Json:
        """Remove an object, or mark it while it has finalizers; raise Refusal (409) if a precondition fails."""
        with self.state.lock:
            live = self.get(call)
            preconditions = (call.body or {}).get("preconditions") or {}
            for name, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
                present = live["metadata"][name]
                if preconditions.get(name, present) != present:
                    why = f"{label} in precondition: {preconditions[name]}, {label} in object meta: {present}"
                    raise conflict(call.kind.resource, call.name, f"Precondition failed: {why}")
            if _dry(call):
                return _deletion_status(call, live)
            if live["metadata"].get("finalizers"):
                marked = {**live["metadata"], "deletionTimestamp": moment(self._clock.now_seconds())}
                return self._store(call, live, {**live, "metadata": marked})
            self.state.remove(call.kind.collection, call.key)
            self._stored(call.kind, live, None)
            return _deletion_status(call, live)

    def _put(self, call: ApiCall, live: Json | None, item: Json, owners: Owners) -> Json:
        if live is None and call.kind.namespaced and not self.state.get(("", "namespaces"), ("", call.namespace)):
            raise not_found("namespaces", call.namespace)
        if call.kind.resource == "pods" and (live is None or call.subresource == "resize"):
            item = self._admit_pod(call, live, item)
        metadata = {**item["metadata"], "managedFields": managed_fields(owners)}
        new = {**item, "metadata": metadata, "apiVersion": call.kind.api_version, "kind": call.kind.name}
        if call.kind.namespaced:
            metadata["namespace"] = call.namespace
        if live is not None:
            metadata["resourceVersion"] = live["metadata"]["resourceVersion"]
            before, after = ({m: o.fields for m, o in owners_of(item).items()} for item in (live, new))
            if before == after and _plain(live) == _plain(new):  # neither the object nor its owners change
                return live
        return new if _dry(call) else self._store(call, live, new)

    def _admit_pod(self, call: ApiCall, live: Json | None, pod: Json) -> Json:
        """The pod with its defaults; 403 when it breaks a LimitRange or passes a quota, which counts it unless dry."""
        ranges = self._inside("limitranges", call.namespace)
        pod = admission.with_default_amounts(pod, ranges) if live is None else pod
        quotas = self._inside("resourcequotas", call.namespace)
        others: dict[str, int] = {}
        if quotas:
            pods = self._inside("pods", call.namespace)
            others = admission.used_by(p for p in pods if p["metadata"]["name"] != call.name)
        refusal = admission.out_of_bounds(pod, ranges) or admission.over_quota(pod, live, others, quotas)
        refusal = refusal or (admission.other_quality(pod, live) if live else None)
        if refusal:
            raise refusal
        if quotas and not _dry(call):
            used = sum_amounts((others, admission.used_by([pod])))
            for quota in quotas:
                key = call.namespace, quota["metadata"]["name"]
                self.state.put(("", "resourcequotas"), key, admission.status_of(quota, used))
        return pod

    def _inside(self, plural: str, namespace: str) -> tuple[Json, ...]:
        return tuple(item for (place, _), item in self.state.items(("", plural)) if place == namespace)

    def _store(self, call: ApiCall, live: Json | None, new: Json) -> Json:
        stored = self.state.put(call.kind.collection, call.key, new)
        self._stored(call.kind, live, stored)
        if stored["metadata"].get("deletionTimestamp") and not stored["metadata"].get("finalizers"):
            self.state.remove(call.kind.collection, call.key)
            self._stored(call.kind, stored, None)
        return stored

    def _writer(self, call: ApiCall) -> KindWriter:
        strict = call.query.get("fieldValidation") == "Strict"
        return KindWriter(call.kind, moment(self._clock.now_seconds()), strict, call.warnings)


def _created_status() -> Json:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _dry(call: ApiCall) -> bool:
    return call.query.get("dryRun") == "All"


def _object(call: ApiCall, body: Any) -> Json:
    """The body as an object of the call's kind; 400 otherwise."""
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        raise Refusal(400, "the body is not an object")
    own = call.kind.api_version, call.kind.name
    version, kind = body.get("apiVersion", own[0]), body.get("kind", own[1])
    if (version, kind) != own:
        problem = f"the API version in the data ({version}, {kind}) does not match the expected API version"
        raise Refusal(400, f"{problem} ({own[0]}, {own[1]})")
    namespace = {"namespace": call.namespace} if call.namespace else {}
    metadata = {**namespace, **(body.get("metadata") or {})}
    return {**body, "apiVersion": version, "kind": kind, "metadata": metadata}


def _named_alike(call: ApiCall, metadata: Json) -> None:
    if metadata.get("namespace", "") != call.namespace:
        raise Refusal(400, "the namespace of the provided object does not match the namespace sent on the request")
    if not call.name:
        problem = "metadata.name: Required value: name or generateName is required"
        raise Refusal(422, f"{call.kind.name} is invalid: {problem}")
    if (name := metadata.setdefault("name", call.name)) != call.name:
        raise Refusal(400, f"the name of the object ({name}) does not match the name on the URL ({call.name})")


def _apply_patch(live: Json, operations: list[Json]) -> Json:
    """The object after a JSON patch; as on a real server, a `test` for null passes where there is nothing."""
    from jsonpatch import JsonPatch, TestOperation

    class AbsenceTest(TestOperation):
        def apply(self, obj: Any) -> Any:
            is_absent = self.operation.get("value", "") is None and value_at_pointer(obj, self.location) is None
            return obj if is_absent else super().apply(obj)

    class ServerPatch(JsonPatch):
        operations = MappingProxyType({**JsonPatch.operations, "test": AbsenceTest})

    patched: Json = ServerPatch(operations).apply(live)
    return patched


def _bare(item: Json) -> Json:
    """Return an object as before its first write: with only its apiVersion, kind, name and namespace."""
    metadata = {name: item["metadata"][name] for name in ("name", "namespace") if name in item["metadata"]}
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": metadata}


def _plain(item: Json) -> Json:
    """Return the object without managedFields."""
    return {**item, "metadata": {k: v for k, v in item["metadata"].items() if k != "managedFields"}}


def _field_conflict(error: FieldConflict) -> Refusal:
    listed = [
        ("FieldManagerConflict", format_path(path), f"conflict with {manager}")
        for manager, paths in sorted(error.conflicts.items())
        for path in sorted(paths)
    ]
    summary = f"{len(listed)} conflict{'s' if len(listed) > 1 else ''}"
    detail = "; ".join(f"{message}: {field}" for _, field, message in listed)
    return Refusal(409, f"Apply failed with {summary}: {detail}", causes=listed)


def _deletion_status(call: ApiCall, live: Json) -> Json:
    details = {"name": call.name, "kind": call.kind.plural, "uid": live["metadata"]["uid"]}
    if call.kind.group:
        details["group"] = call.kind.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _convert_version(kind: ApiKind, item: Json) -> Json:
    """The object in the version that was asked for."""
    return item if item["apiVersion"] == kind.api_version else {**item, "apiVersion": kind.api_version}


def _parse_continue_token(token: str, now: int) -> tuple[int, Key]:
    """The moment and the last key of the page before; of now and the beginning without a token."""
    if not token:
        return now, ("", "")
    try:
        version, namespace, name = json.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise Refusal(400, "continue key is not valid") from error
    if version > now:
        raise expired_refusal(version, now)
    return version, (namespace, name)
