"""What this webhook did to a pod in an earlier call of the same request: annotation `cotenant.dev/profiles`. Pure.

The API server may call a mutating webhook again within a request, with a new uid and with the changes of other webhooks
in between; the pod itself is the only memory that all replicas share. Anybody who creates pods can write annotations,
so the record is signed (HMAC-SHA256) with a key that only this webhook has, over its content and the pod's identity: a
record that somebody else wrote, or copied from another pod, is ignored. `outcome` is a digest of what the applied
profiles left in the pod; if it differs, their changes were undone and they are applied again.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from cotenant.admission.profile import Profile
from cotenant.admission.strategic_merge import apply_strategic_patch
from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.protocol import SUB_PRIORITY_LABEL
from cotenant.base.kubernetes.qos import QOS_LABEL

RECORD_ANNOTATION: Final = "cotenant.dev/profiles"
RECORD_SECONDS: Final = 60
"""Longest time that the API server spends on one request."""
_PURPOSE: Final = b"cotenant.dev/profiles\0"
_PRIORITY_FIELDS: Final = ("priorityClassName", "priority", "preemptionPolicy")

Pod = Mapping[str, Any]
Identity = tuple[str, str, str]
"""Namespace, name, generateName."""


class ProfileRecord(msgspec.Struct):
    """The profiles that a request has applied and skipped. `at` is the Unix time of its first call.

    `outcome` is a digest of what the profiles set. `kept` has the "container/resource" of each cpu or memory amount
    that a container had beside its class's resource at the first call; such amounts that came later are removed.
    """

    at: int = 0
    applied: list[str] = msgspec.field(default_factory=list)
    skipped: list[str] = msgspec.field(default_factory=list)
    outcome: str = ""
    kept: list[str] = msgspec.field(default_factory=list)
    signature: str = ""


def signing_key(private_key_pem: bytes) -> bytes:
    """Return the key of our signatures, derived from the serving certificate's key, which all replicas share."""
    return hashlib.sha256(_PURPOSE + private_key_pem).digest()


def read_record(pod: Pod, key: bytes, namespace: str) -> ProfileRecord | None:
    """Return the record on the pod if we signed it for this pod; None otherwise, or without a key."""
    text = (pod["metadata"].get("annotations") or {}).get(RECORD_ANNOTATION)
    try:
        record = msgspec.json.decode(text if isinstance(text, str) else "", type=ProfileRecord)
    except UNDECODABLE:
        return None
    signature = record.signature.encode("utf-8", "replace")
    signatures = (_signature(record, key, identity).encode() for identity in _identities(pod, namespace))
    return record if key and any(hmac.compare_digest(signature, ours) for ours in signatures) else None


def record_text(record: ProfileRecord, pod: Pod, key: bytes, namespace: str) -> str:
    """Return the record as the annotation's text: JSON with sorted keys, signed for this pod if there is a key."""
    content: dict[str, Any] = {"applied": record.applied, "at": record.at}
    content |= {"skipped": record.skipped} if record.skipped else {}
    content |= {"outcome": record.outcome} if record.outcome else {}
    content |= {"kept": record.kept} if record.kept else {}
    content |= {"signature": _signature(record, key, next(_identities(pod, namespace)))} if key else {}
    return msgspec.json.encode(content, order="deterministic").decode()


def outcome_of(pod: Pod, profiles: Iterable[Profile]) -> str:
    """Return a digest of all values in the pod that these profiles set, and of which of their patches apply."""
    metadata, spec = pod["metadata"], pod["spec"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    values = []
    for profile in profiles:
        label_keys = {*profile.labels, *profile.label_suffixes, QOS_LABEL, SUB_PRIORITY_LABEL}
        label_keys |= {*profile.label_keys, *profile.label_keys.values()}
        keys = {*profile.annotations, *profile.annotation_keys, *profile.annotation_keys.values()}
        try:
            in_effect = not profile.patch or apply_strategic_patch(pod, profile.patch) == pod
        except UsageError:
            in_effect = False
        values.append(
            {
                "profile": profile.name,
                "labels": {key: labels.get(key) for key in label_keys},
                "annotations": {key: annotations.get(key) for key in keys - {RECORD_ANNOTATION}},
                "scheduler": spec.get("schedulerName") if profile.scheduler_name else None,
                "priority": [spec.get(name) for name in _PRIORITY_FIELDS] if profile.priority_class else None,
                "patched": in_effect,
            }
        )
    return hashlib.blake2b(msgspec.json.encode(values, order="deterministic"), digest_size=12).hexdigest()


def _identities(pod: Pod, namespace: str) -> Iterator[Identity]:
    """Yield the identities that may sign this pod's record: a generated name is unknown before the pod is stored."""
    metadata = pod["metadata"]
    name, prefix = str(metadata.get("name") or ""), str(metadata.get("generateName") or "")
    yield (namespace, name, prefix)
    if name and prefix:
        yield (namespace, "", prefix)


def _signature(record: ProfileRecord, key: bytes, identity: Identity) -> str:
    content = [record.at, record.applied, record.skipped, record.outcome, record.kept, *identity]
    return hmac.new(key, msgspec.json.encode(content), hashlib.sha256).hexdigest()
