"""The labels or annotations that a profile writes to a pod, key by key, as JSON patch operations in CEL. Pure.

The profile's steps run on expressions instead of values: a constant stays a constant, a copy or a suffix of what the
pod has becomes an expression over the pod's own texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant.admission.policies.cel import add, conditional_operations, pointer, remove, text
from cotenant.admission.profile import Profile, why_refused
from cotenant.base.kubernetes.protocol import SUB_PRIORITY_LABEL
from cotenant.base.kubernetes.qos import QOS_LABEL

_VALUE: Final = text("^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")
_LONGEST_VALUE: Final = 63


@dataclass(frozen=True, slots=True)
class KeyText:
    """The value of a label or annotation: a constant, a CEL expression (if `present` holds), or its removal."""

    constant: str | None = None
    expression: str = ""
    present: str = "true"
    checked: bool = False
    """True if the expression may give a text that the API server refuses: then the key keeps its value."""
    reads: frozenset[str] = frozenset()
    """Keys of the pod on which the text depends."""

    @property
    def cel(self) -> str:
        """The text as a CEL expression."""
        return text(self.constant) if self.constant is not None else self.expression


REMOVED: Final = KeyText()


@dataclass(slots=True)
class KeyTexts:
    """The labels or annotations (`name` says which) that a profile writes to a pod, in the order of writing."""

    name: str
    texts: dict[str, KeyText] = field(default_factory=dict)

    @property
    def variable(self) -> str:
        """CEL expression for the pod's present labels or annotations; {} if the pod has none."""
        return f"variables.{self.name}"

    def of(self, key: str) -> KeyText:
        """Return the value of a key after all writes recorded so far."""
        own = f"{self.variable}[{text(key)}]"
        return self.texts.get(key, KeyText(None, own, f"{text(key)} in {self.variable}", reads=frozenset({key})))

    def update(self, constants: Mapping[str, str]) -> None:
        """Set keys to constant values."""
        self.texts |= {key: KeyText(value) for key, value in constants.items()}

    def copy(self, mapping: Mapping[str, str]) -> None:
        """Copy the value of each old key to its new key; "" is written if the pod lacks the old key."""
        copies = {}
        for old, new in sorted(mapping.items()):
            source = self.of(old)
            expression = f'({source.present} ? {source.expression} : "")'
            copies[new] = source if source.constant is not None else KeyText(None, expression, reads=source.reads)
        self.texts |= copies

    def append(self, suffixes: Mapping[str, str]) -> None:
        """Append suffixes to the values of keys that exist."""
        for key, suffix in sorted(suffixes.items()):
            before = self.of(key)
            if before.constant is not None:
                self.texts[key] = KeyText(before.constant + suffix)
            else:
                expression = f"({before.expression} + {text(suffix)})"
                self.texts[key] = KeyText(None, expression, before.present, checked=True, reads=before.reads | {key})

    def merge(self, patch: Mapping[str, Any]) -> None:
        """Apply a strategic merge patch: a string sets the value, null removes the key, other values are ignored."""
        for key, value in patch.items():
            if value is None:
                self.texts[key] = REMOVED
            elif isinstance(value, str):
                self.texts[key] = KeyText(value)
            else:
                self.texts.pop(key, None)

    def leave_refused(self) -> None:
        """Drop constants that the API server would refuse, as the webhook does: these keys keep the pod's values."""
        for key, value in list(self.texts.items()):
            if value.constant is not None and why_refused(self.name, key, value.constant):
                del self.texts[key]

    def operations(self) -> Iterator[tuple[str, str]]:
        """Yield (field, list of JSON patch operations in CEL); field "" creates an empty map if the pod has none."""
        writes = [value for value in self.texts.values() if value is not REMOVED]
        if writes:
            place = add(pointer("metadata", self.name), "{}")
            yield "", conditional_operations(f"!has(object.metadata.{self.name})", place)
        for key, value in self.texts.items():
            path = pointer("metadata", self.name, key)
            conditions = []
            if value is REMOVED:
                conditions.append(f"{text(key)} in {self.variable}")
            elif value.constant is None:
                conditions += [] if value.present == "true" else [value.present]
                if value.checked:
                    conditions += [f"size({value.cel}) <= {_LONGEST_VALUE}", f"{value.cel}.matches({_VALUE})"]
            operation = remove(path) if value is REMOVED else add(path, value.cel)
            condition = " && ".join(conditions)
            yield (
                f"metadata.{self.name}.{key}",
                conditional_operations(condition, operation) if conditions else operation,
            )


def key_texts(profile: Profile) -> tuple[KeyTexts, KeyTexts]:
    """Return the labels and the annotations that a profile writes, with the steps in `profile.apply_to`'s order."""
    labels, annotations = KeyTexts("labels"), KeyTexts("annotations")
    labels.update(profile.labels)
    annotations.update(profile.annotations)
    labels.copy(profile.label_keys)
    annotations.copy(profile.annotation_keys)
    labels.append(profile.label_suffixes)
    if profile.qos_class:
        labels.update({QOS_LABEL: profile.qos_class})
    if profile.sub_priority is not None:
        labels.update({SUB_PRIORITY_LABEL: str(profile.sub_priority)})
    patch = profile.patch.get("metadata") or {}
    for texts in (labels, annotations):
        texts.merge(patched_texts(patch.get(texts.name)))
        texts.leave_refused()
    return labels, annotations


def patched_texts(patch: Any) -> Mapping[str, Any]:
    """Return the labels or annotations in a patch; empty if `patch` is not an object or has merge directives."""
    odd = not isinstance(patch, Mapping) or any(key.startswith("$") for key in patch)
    return {} if odd else patch
