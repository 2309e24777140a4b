"""ClusterColocationProfile: which pods it selects, and how it changes them. Pure.

`Profile.parse` reads an object once per change of the mirror; `apply_to` applies one profile to a pod that may be
changed (`admission.pod_mutation` copies it). Steps and their order are those of Koordinator's protocol: labels,
annotations, key mappings, suffixes, schedulerName, QoS label, priority class, sub-priority, patch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant.admission.strategic_merge import apply_strategic_patch
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.protocol import REQUEST_BIND_ANNOTATION, SKIP_RESOURCES_ANNOTATION, SUB_PRIORITY_LABEL
from cotenant.base.kubernetes.qos import QOS_LABEL, QosClass
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.text import format_value

_NOTHING: Final[Mapping[str, str]] = {}
_FIX: Final = "Correct the ClusterColocationProfile; until then the profile is not applied."
INT32: Final = 2**31
_PROTECTED: Final = ("apiVersion", "kind", "status")
_PROTECTED_METADATA: Final = frozenset(
    {"name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"}
)


@dataclass(frozen=True, slots=True)
class PriorityClassEntry:
    """A PriorityClass object: the priority value and the preemption policy that it gives its pods."""

    value: int
    preemption_policy: str = "PreemptLowerPriority"


@dataclass(frozen=True, slots=True)
class Profile:
    """A parsed and valid profile, applied to `percent` % of the matching pods; a selector of None matches all.

    If `skips_resources` (annotation `config.koordinator.sh/skip-update-resources`, any value), its pods keep cpu and
    memory under their own names. If `requests_bind`, pods with CPUs or devices of their own also request BIND_RESOURCE.
    """

    name: str
    namespace_selector: LabelSelector | None = None
    selector: LabelSelector | None = None
    percent: int = 100
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    label_keys: Mapping[str, str] = field(default_factory=dict)
    annotation_keys: Mapping[str, str] = field(default_factory=dict)
    label_suffixes: Mapping[str, str] = field(default_factory=dict)
    scheduler_name: str = ""
    qos_class: str = ""
    priority_class: str = ""
    sub_priority: int | None = None
    patch: Mapping[str, Any] = field(default_factory=dict)
    skips_resources: bool = False
    requests_bind: bool = False

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Profile:
        """Parse a ClusterColocationProfile object; raise UsageError that names the field that cannot be used."""
        metadata, spec = _parse_object(body, "metadata", ""), _parse_object(body, "spec", "")
        name, annotations = str(metadata.get("name", "")), _parse_object(metadata, "annotations", "metadata.")
        where = f"ClusterColocationProfile {name}: spec."
        qos_class = _text(spec, "qosClass", where)
        if qos_class not in set(QosClass):
            raise _refusal(f"{where}qosClass", qos_class, f"is not one of {', '.join(q for q in QosClass if q)}")
        # A profile's koordinatorPriority, None when it sets none; UsageError for what is no int32.
        sub_priority = spec.get("koordinatorPriority")
        if sub_priority is not None and (
            not isinstance(sub_priority, int) or isinstance(sub_priority, bool) or not -INT32 <= sub_priority < INT32
        ):
            raise _refusal(f"{where}koordinatorPriority", sub_priority, "is not a 32-bit whole number")
        labels = _texts(spec, "labels", where)
        LabelSelector.parse({"matchLabels": labels}, where + "labels")
        return cls(
            name=name,
            namespace_selector=_selector(spec, "namespaceSelector", where),
            selector=_selector(spec, "selector", where),
            percent=_percent(spec.get("probability"), where),
            labels=labels,
            annotations=_texts_by_label_key(spec, "annotations", where),
            label_keys=_mapping_of_keys(spec, "labelKeysMapping", where),
            annotation_keys=_mapping_of_keys(spec, "annotationKeysMapping", where),
            label_suffixes=_texts_by_label_key(spec, "labelSuffixes", where),
            scheduler_name=_text(spec, "schedulerName", where),
            qos_class=qos_class,
            priority_class=_text(spec, "priorityClassName", where),
            sub_priority=sub_priority,
            patch=_patch(spec, where),
            skips_resources=SKIP_RESOURCES_ANNOTATION in annotations,
            requests_bind=annotations.get(REQUEST_BIND_ANNOTATION) == "true",
        )

    def matches(self, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Return whether the profile selects a pod with `labels` in a namespace with `namespace_labels`."""
        return (self.namespace_selector is None or self.namespace_selector.matches(namespace_labels)) and (
            self.selector is None or self.selector.matches(labels)
        )

    def drawn(self, seed: str) -> bool:
        """Return whether the pod with this seed gets the profile: fixed for a seed, True for `percent` % of seeds."""
        if self.percent in (0, 100):
            return self.percent == 100
        digest = hashlib.blake2b(f"{self.name}\0{seed}".encode("utf-8", "replace"), digest_size=8).digest()
        return 1 + int.from_bytes(digest) % 100 <= self.percent


@dataclass(frozen=True, slots=True)
class PodUnderProfile:
    """A pod after a profile was applied, and warnings about parts of the profile that could not be used."""

    pod: dict[str, Any]
    warnings: tuple[str, ...] = ()


def apply_to(
    pod: dict[str, Any], profile: Profile, classes: Mapping[str, PriorityClassEntry], *, again: bool = False
) -> PodUnderProfile:
    """Return a copy of the pod with the profile applied; raise UsageError if its PriorityClass or patch cannot be used.

    A label or annotation keeps its old value, with a warning, if the API server would refuse the new one. `again` means
    that an earlier call of this request applied the profile: suffixes are then appended only to labels without them.
    """
    changed = {**pod, "metadata": dict(pod["metadata"]), "spec": dict(pod["spec"])}
    metadata, spec = changed["metadata"], changed["spec"]
    labels, annotations = dict(metadata.get("labels") or {}), dict(metadata.get("annotations") or {})
    labels |= profile.labels
    annotations |= profile.annotations
    _copy_keys(labels, profile.label_keys)
    _copy_keys(annotations, profile.annotation_keys)
    for key, suffix in sorted(profile.label_suffixes.items()):
        if key in labels and not (again and labels[key].endswith(suffix)):
            labels[key] += suffix
    if profile.scheduler_name:
        spec["schedulerName"] = profile.scheduler_name
    if profile.qos_class:
        labels[QOS_LABEL] = profile.qos_class
    if profile.priority_class:
        spec["priorityClassName"] = profile.priority_class
    if profile.sub_priority is not None:
        labels[SUB_PRIORITY_LABEL] = str(profile.sub_priority)
    _put(metadata, "labels", labels)
    _put(metadata, "annotations", annotations)
    if profile.patch:
        changed = apply_strategic_patch(changed, profile.patch)
    settle_priority(changed["spec"], pod["spec"], classes, profile.name)
    return PodUnderProfile(changed, tuple(_without_invalid(changed["metadata"], pod["metadata"], profile.name)))


def settle_priority(
    spec: dict[str, Any], before: Mapping[str, Any], classes: Mapping[str, PriorityClassEntry], profile: str
) -> None:
    """Set the pod's priority and preemptionPolicy to those of its PriorityClass: the API server refuses any others."""
    name = spec.get("priorityClassName")
    if name == before.get("priorityClassName") and spec.get("priority") == before.get("priority"):
        return
    entry = classes.get(name) if isinstance(name, str) else None
    if entry is None:
        raise UsageError(
            f"profile {profile}: there is no PriorityClass {format_value(name)}",
            fix="Create the PriorityClass, or correct its name.",
        )
    spec["priority"], spec["preemptionPolicy"] = entry.value, entry.preemption_policy


def _copy_keys(texts: dict[str, str], mapping: Mapping[str, str]) -> None:
    """Copy the texts of old keys to new keys, in the order of the old ones; a missing source gives an empty text."""
    texts |= {new: texts.get(old, "") for old, new in sorted(mapping.items())}


def _without_invalid(metadata: dict[str, Any], before: Mapping[str, Any], profile: str) -> Iterator[str]:
    """Restore labels and annotations that the API server would refuse (a suffix may be too long); yield warnings."""
    for field_name in ("labels", "annotations"):
        texts = metadata.get(field_name)
        if texts is None:
            continue
        if not isinstance(texts, dict):
            raise _refusal(
                f"ClusterColocationProfile {profile}: spec.patch.metadata.{field_name}", texts, "is no object"
            )
        old = before.get(field_name) or {}
        for key, value in [item for item in texts.items() if old.get(item[0]) != item[1]]:
            if because := why_refused(field_name, key, value):
                yield f"profile {profile}: {field_name[:-1]} {key} was not changed: {because}"
                texts.pop(key)
                texts |= {key: old[key]} if key in old else {}


def why_refused(field_name: str, key: str, value: Any) -> str:
    """Return why the API server would refuse a value in `field_name` ("labels", "annotations"); "" if it would not."""
    try:
        LabelSelector.parse({"matchLabels": {key: value if field_name == "labels" else ""}}, field_name)
    except UsageError as error:
        return error.message
    return "" if isinstance(value, str) else f"{format_value(value)} is not a string"


def _put(metadata: dict[str, Any], key: str, texts: dict[str, str]) -> None:
    if texts or key in metadata:
        metadata[key] = texts


def _selector(spec: Mapping[str, Any], key: str, where: str) -> LabelSelector | None:
    body = spec.get(key)
    return None if body is None else LabelSelector.parse(body, where + key)


def _percent(value: Any, where: str) -> int:
    """Return the percentage of an int-or-string, 30 or "30%"; 100 if absent. Raise UsageError for anything else."""
    if value is None:
        return 100
    text = str(value).removesuffix("%") if isinstance(value, str) else str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= 100):
        raise _refusal(f"{where}probability", value, "is not a percentage between 0% and 100%")
    return int(text)


def _patch(spec: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return the patch; raise UsageError if it would turn the pod into another object."""
    patch = _parse_object(spec, "patch", where)
    metadata = _parse_object(patch, "metadata", f"{where}patch.")
    protected = [key for key in _PROTECTED if key in patch] + [
        f"metadata.{k}" for k in metadata if k in _PROTECTED_METADATA
    ]
    inner = [f"{key}.$patch" for key in ("metadata", "spec") if "$patch" in _parse_object(patch, key, f"{where}patch.")]
    removed = [key for key in ("metadata", "spec") if key in patch and patch[key] is None]
    odd = [key for key in patch if key.startswith("$")]
    if refused := protected + inner + removed + odd:
        raise _refusal(f"{where}patch", ", ".join(refused), "may not be changed by a profile")
    return patch


def _parse_object(body: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = body.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _refusal(where + key, value, "is not an object")
    return value


def _texts(spec: Mapping[str, Any], key: str, where: str) -> Mapping[str, str]:
    texts = _parse_object(spec, key, where)
    for name, value in texts.items():
        if not isinstance(value, str):
            raise _refusal(f"{where}{key}[{name}]", value, "is not a string")
    return texts or _NOTHING


def _texts_by_label_key(spec: Mapping[str, Any], key: str, where: str) -> Mapping[str, str]:
    """Return texts by key, where every key is valid for labels and annotations."""
    texts = _texts(spec, key, where)
    LabelSelector.parse({"matchLabels": dict.fromkeys(texts, "")}, where + key)
    return texts


def _mapping_of_keys(spec: Mapping[str, Any], key: str, where: str) -> Mapping[str, str]:
    """Return {old key: new key}, where the new keys are valid."""
    new_keys = _texts(spec, key, where)
    LabelSelector.parse({"matchLabels": dict.fromkeys(new_keys.values(), "")}, where + key)
    return new_keys


def _text(spec: Mapping[str, Any], key: str, where: str) -> str:
    text = spec.get(key) or ""
    if not isinstance(text, str):
        raise _refusal(where + key, text, "is not a string")
    return text


def _refusal(what: str, value: object, because: str) -> UsageError:
    return UsageError(f"{what}: {format_value(value)} {because}", fix=_FIX)
