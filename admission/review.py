"""AdmissionReview in, AdmissionReview out: how each path of the webhook server answers. Pure.

`answer(path, body, context)` never raises: a body that is not a review gives 400 with a message, everything that does
not concern us is admitted unchanged. Only what is needed is decoded: the envelope first, the object once.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import msgspec

from cotenant.admission import pod_rules
from cotenant.admission.namespace_limits.demands import quota_warnings, refusals
from cotenant.admission.pod_mutation import AdmissionCall, compute_mutation
from cotenant.admission.values.misread import misread_on_pod, misread_on_quota, small_amounts
from cotenant.admission.values.misspelt import misspelt_keys, misspelt_on_pod
from cotenant.admission.view import ClusterView
from cotenant.base.json_documents.difference import escape_pointer_key
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.models.metadata import ConfigMapObject, ObjectLabels
from cotenant.base.kubernetes.models.pod import AdmittedPod
from cotenant.base.kubernetes.quota_tree import NAME_LABEL
from cotenant.base.problem import Problem, problems_text
from cotenant.base.text import format_value
from cotenant.recommender.colocation.model.slo_config import SloConfig
from cotenant.scheduler_ext.queues.admission import quota_rules

API_VERSION: Final = "admission.k8s.io/v1"
WARNING_CAP: Final = 120
"""Characters that clients show of one warning without cutting it off."""
MOST_WARNINGS: Final = 8

Json = dict[str, Any]


class _Kind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Resource(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    groups: tuple[str, ...] = ()


class AdmissionRequest(
    msgspec.Struct,
    frozen=True,
    rename={"sub_resource": "subResource", "user": "userInfo", "old": "oldObject", "new": "object"},
):
    """The fields of an AdmissionReview's request that we read; its objects are decoded only if they are needed."""

    uid: str
    operation: str = ""
    kind: _Kind = _Kind()
    resource: _Resource = _Resource()
    sub_resource: str | None = None
    name: str | None = None
    namespace: str | None = None
    user: _User = _User()
    new: msgspec.Raw = msgspec.Raw(b"null")
    old: msgspec.Raw = msgspec.Raw(b"null")


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


class _WrittenMetadata(msgspec.Struct, rename="camel"):
    name: str = ""
    generate_name: str = ""
    labels: msgspec.Raw = msgspec.Raw()
    annotations: msgspec.Raw = msgspec.Raw()


class _WrittenObject(msgspec.Struct):
    metadata: _WrittenMetadata = msgspec.field(default_factory=_WrittenMetadata)
    spec: msgspec.Raw = msgspec.Raw()
    data: msgspec.Raw = msgspec.Raw()


class _QuotaSpec(msgspec.Struct):
    min: dict[str, Any] | None = None
    max: dict[str, Any] | None = None


class _QuotaShape(msgspec.Struct):
    metadata: ObjectLabels
    spec: _QuotaSpec | None = None


@dataclass(frozen=True, slots=True)
class ReviewContext:
    """The inputs of an answer besides the body: the cluster's state, the time, and how many pods use a quota.

    `pods_of_quota` is called only when a quota is deleted; it may raise errors of the API server.
    """

    view: ClusterView
    now_seconds: float = 0.0
    translate_overhead: bool = False
    record_key: bytes = b""
    """Key that signs each `ProfileRecord` on a pod."""
    pods_of_quota: Callable[[str], int] = lambda _name: 0
    config_place: tuple[str, str] = ("", "")
    """Namespace and name of the one ConfigMap that is validated."""
    own_namespace: str = ""
    """Namespace of our processes' service accounts."""
    reading: Callable[[str, str, str, str], AbstractContextManager[None]] = lambda *_: nullcontext()
    """Entered while an object is judged, with the webhook and resource, namespace, name and version; may raise
    errors."""


@dataclass(frozen=True, slots=True)
class ReviewResponse:
    """Status and body of an HTTP answer, its label in the metrics (`outcome`), and the applied profiles' names."""

    status: int
    body: bytes
    outcome: str
    profiles: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class AdmissionDecision:
    """The decision about an object: refused if there are `problems`, else admitted with a patch and warnings."""

    problems: tuple[Problem, ...] = ()
    patch: tuple[Json, ...] = ()
    warnings: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    outcome: str = "untouched"


class BadReview(Exception):
    """The body is not an AdmissionReview that we can answer."""


UNTOUCHED: Final = AdmissionDecision()
NOT_READY: Final = AdmissionDecision(outcome="not-ready")


def answer(path: str, body: bytes, context: ReviewContext) -> ReviewResponse:
    """Return the answer to one POST; its status is 404 for a path that we do not serve."""
    judge = ROUTES.get(path)
    if judge is None:
        return ReviewResponse(404, b"no such webhook; try " + ", ".join(ROUTES).encode() + b"\n", "unknown-path")
    try:
        request = decode(body)
        with context.reading(*version_of(path, request)):
            verdict = judge(request, context)
    except BadReview as error:
        return ReviewResponse(400, f"{error}\n".encode("utf-8", "replace"), "bad-review")
    return ReviewResponse(200, encode(request.uid, verdict), verdict.outcome, verdict.profiles)


def decode(body: bytes) -> AdmissionRequest:
    """Return the request of a review; raise BadReview that says what is wrong with it."""
    try:
        review = msgspec.json.decode(body, type=_Review)
    except UNDECODABLE as error:
        raise BadReview(f"the body is not an AdmissionReview in JSON: {error}") from error
    if review.kind != "AdmissionReview" or review.api_version != API_VERSION:
        raise BadReview(
            f"{review.api_version[:80]} {review.kind[:80]} is not supported, only {API_VERSION} AdmissionReview: "
            'set admissionReviewVersions to ["v1"]'
        )
    if review.request is None or not review.request.uid:
        raise BadReview("the review has no request with a uid")
    return review.request


def version_of(path: str, request: AdmissionRequest) -> tuple[str, str, str, str]:
    """Return (webhook and resource, namespace, name, version); an object that is sent again has the same version.

    The API server gives each new review an id, and adds random names of equal length to a pod's volumes, so only the
    length of the spec is part of the version.
    """
    written = _WrittenObject()
    for raw in (request.new, request.old):
        try:
            written = msgspec.json.decode(raw, type=_WrittenObject)
            break
        except UNDECODABLE:
            continue
    meta = written.metadata
    parts = (*map(bytes, (meta.labels, meta.annotations, written.data)), b"%d" % len(bytes(written.spec)))
    version = hashlib.blake2b(b"\0".join(parts), digest_size=8).hexdigest()
    name = request.name or meta.name or meta.generate_name
    return f"{path}/{request.resource.resource}", request.namespace or "", name, version


def encode(uid: str, verdict: AdmissionDecision) -> bytes:
    """Return the AdmissionReview to send to the API server."""
    response: Json = {"uid": uid, "allowed": not verdict.problems}
    if verdict.problems:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": problems_text(verdict.problems)}
    if verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(verdict.patch)).decode()
    if verdict.warnings:
        # Fit for an HTTP header: printable, and not cut off by the API server.
        printable = ("".join(c if c.isprintable() else " " for c in text) for text in verdict.warnings[:MOST_WARNINGS])
        response["warnings"] = [w if len(w) <= WARNING_CAP else f"{w[: WARNING_CAP - 3]}..." for w in printable]
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def mutate_pod(request: AdmissionRequest, context: ReviewContext) -> AdmissionDecision:
    """Answer the mutating webhook for a pod: a JSON patch with warnings, or the refusal of a new pod.

    Two kinds of pods are refused here and not in `validate_pod`: pods of a namespace whose quota has children (the API
    server cannot know such namespaces, so it cannot choose these pods for validation), and pods without a resource that
    a LimitRange requires and their class no longer requests (the API server would refuse them without this reason).
    """
    if not _is(request, "", "pods"):
        return UNTOUCHED
    if not context.view.synced:
        return NOT_READY
    pod = _object(request.new, AdmittedPod)
    if pod is None:
        return UNTOUCHED
    call = AdmissionCall(
        operation=request.operation,
        namespace=request.namespace or "",
        uid=request.uid,
        now_seconds=context.now_seconds,
        translate_overhead=context.translate_overhead,
        key=context.record_key,
    )
    mutation = compute_mutation(pod, context.view, call)
    if request.operation == "CREATE":
        labels = mutation.pod["metadata"].get("labels") or {}
        demands = context.view.demands.get(call.namespace, ())
        problems = list(pod_rules.leaf_quota(call.namespace, labels, context.view.quotas))
        if problems := problems + refusals(mutation.pod, demands):
            return _validation_decision(problems)
        quota = labels.get(NAME_LABEL)
        is_unknown = quota and context.view.quotas_synced and quota not in context.view.quotas.quotas
        more = (
            *quota_warnings(mutation.pod, demands),
            *misread_on_pod(mutation.pod, call.namespace),
            *small_amounts(pod),
            *misspelt_on_pod(mutation.pod),
            *([f"{NAME_LABEL} names the quota {format_value(quota, 40)}, which does not exist"] if is_unknown else []),
        )
        mutation = replace(mutation, warnings=(*mutation.warnings, *more))
    patch = tuple(difference(pod, mutation.pod))
    return AdmissionDecision((), patch, mutation.warnings, mutation.applied, "patched" if patch else "untouched")


def validate_pod(request: AdmissionRequest, context: ReviewContext) -> AdmissionDecision:
    """Validate a pod's QoS and priority class, CPUs, batch resources and labels; for a resize, its use of quota."""
    resize = request.sub_resource == "resize"
    if not resize and not _is(request, "", "pods"):
        return UNTOUCHED
    pod = _object(request.new, AdmittedPod)
    if pod is None:
        return UNTOUCHED
    if request.operation == "UPDATE":
        old = _object(request.old, AdmittedPod)
        if old is None:
            return _validation_decision([])
        if resize:
            namespace = request.namespace or ""
            return _validation_decision(list(pod_rules.problems_of_resize(old, pod, namespace, context.view.quotas)))
        gives = pod_rules.may_give(request.user.username, request.user.groups, context.own_namespace)
        return _validation_decision(pod_rules.problems_of_change(old, pod, gives))
    return _validation_decision(pod_rules.problems_of_new(pod, request.namespace or "", context.view.quotas))


def mutate_quota(request: AdmissionRequest, context: ReviewContext) -> AdmissionDecision:
    """Set the missing fields of a new or changed ElasticQuota: its parent, tree id and shared weights."""
    quota = _object(request.new, _QuotaShape) if _is(request, QUOTA_API, "elasticquotas") else None
    if quota is None:
        return UNTOUCHED
    if not context.view.quotas_synced:
        return NOT_READY
    old = _object(request.old, _QuotaShape)
    patch = tuple(difference(quota, quota_rules.with_defaults(quota, context.view.quotas, old)))
    warnings = (*misread_on_quota(quota), *misspelt_keys(quota["metadata"]))
    return AdmissionDecision((), patch, warnings, outcome="patched" if patch else "untouched")


def validate_quota(request: AdmissionRequest, context: ReviewContext) -> AdmissionDecision:
    """Validate a quota in its tree; refuse it while the tree is unknown, because an invalid quota would harm others."""
    if not _is(request, QUOTA_API, "elasticquotas"):
        return UNTOUCHED
    if not context.view.quotas_synced:
        return _validation_decision(
            [Problem("metadata.name", request.name or "", "the quota tree has not been read yet", "try again")]
        )
    old = _object(request.old, _QuotaShape)
    if request.operation == "DELETE":
        if old is None:
            return _validation_decision([])
        name = str(old["metadata"].get("name") or "")  # of a whole collection the request names none
        return _validation_decision(
            quota_rules.problems_of_deletion(old, context.view.quotas, context.pods_of_quota(name))
        )
    quota = _object(request.new, _QuotaShape)
    return _validation_decision([] if quota is None else quota_rules.problems_of(quota, old, context.view.quotas))


def validate_config(request: AdmissionRequest, context: ReviewContext) -> AdmissionDecision:
    """Validate the ConfigMap that configures colocation, each key with the parser that the manager uses.

    Only changed keys are checked, so that one invalid key never prevents correcting another. A finding that does not
    prevent the use of its key, such as a misspelled field or a value without effect, is a warning.
    """
    if not _is(request, "", "configmaps") or (request.namespace, request.name) != context.config_place:
        return UNTOUCHED
    new, old = _object(request.new, ConfigMapObject), _object(request.old, ConfigMapObject)
    before = (old or {}).get("data") or {}
    data = (new or {}).get("data") or {}
    changed = {key: text for key, text in data.items() if before.get(key) != text}
    findings = SloConfig().updated(changed).findings
    problems = []
    for finding in (finding for finding in findings if finding.fatal):
        wrong = finding.deviation
        value = wrong.value if isinstance(wrong.value, str) else format_value(wrong.value)
        problems.append(Problem(f"data[{finding.key}] {wrong.path}", value, wrong.expected, finding.fix))
    refusal = _validation_decision(problems)
    return replace(refusal, warnings=tuple(finding.advice for finding in findings if not finding.fatal))


QUOTA_API: Final = "scheduling.sigs.k8s.io"
ROUTES: Final[Mapping[str, Callable[[AdmissionRequest, ReviewContext], AdmissionDecision]]] = {
    "/mutate-pod": mutate_pod,
    "/validate-pod": validate_pod,
    "/mutate-quota": mutate_quota,
    "/validate-quota": validate_quota,
    "/validate-config": validate_config,
}


def _validation_decision(problems: list[Problem]) -> AdmissionDecision:
    """Return the decision of a validating review: a refusal that names every problem, or admission if there is none."""
    return AdmissionDecision(tuple(problems), outcome="refused" if problems else "allowed")


def _is(request: AdmissionRequest, group: str, resource: str) -> bool:
    target = request.resource
    return not request.sub_resource and target.group == group and target.resource == resource


def _object(raw: msgspec.Raw, shape: type) -> Any:
    """Return the object as JSON; None if it is missing or lacks the kind's shape (the API server refuses it)."""
    try:
        msgspec.json.decode(raw, type=shape)
        return msgspec.json.decode(raw)
    except UNDECODABLE:
        return None


# The smallest RFC 6902 patch: what other webhooks and the API server wrote stays as they wrote it.
Operation: TypeAlias = dict[str, Any]


def difference(before: Any, after: Any) -> list[Operation]:
    """Return JSON patch operations that turn `before` into `after`, none if equal; lists are compared by index."""
    operations: list[Operation] = []
    _compare(operations, "", before, after)
    return operations


def _compare(operations: list[Operation], path: str, before: Any, after: Any) -> None:
    if before is after:  # what was not touched is still the same object
        return
    if isinstance(before, dict) and isinstance(after, dict):
        removed_keys = before.keys() - after.keys()
        operations += [{"op": "remove", "path": f"{path}/{escape_pointer_key(key)}"} for key in removed_keys]
        for key, value in after.items():
            if key not in before:
                operations.append({"op": "add", "path": f"{path}/{escape_pointer_key(key)}", "value": value})
            elif before[key] is not value:
                _compare(operations, f"{path}/{escape_pointer_key(key)}", before[key], value)
    elif isinstance(before, list) and isinstance(after, list):
        for index, (old, new) in enumerate(zip(before, after, strict=False)):
            _compare(operations, f"{path}/{index}", old, new)
        operations += [{"op": "remove", "path": f"{path}/{len(after)}"}] * (len(before) - len(after))
        operations += [{"op": "add", "path": f"{path}/-", "value": value} for value in after[len(before) :]]
    elif type(before) is not type(after) or before != after:
        operations.append({"op": "replace", "path": path, "value": after})
