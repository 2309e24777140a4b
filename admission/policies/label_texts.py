"""What a profile leaves in a pod's labels or annotations, key by key, as JSON patch operations in CEL. Pure.

Steps of a profile are carried out on expressions instead of values: a constant stays a constant, a copy or a suffix of
what the pod has becomes an expression over the pod's own texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from admission.policies.cel import add, pointer, remove, text, when
from cotenant.core.model.errors import UsageError
from cotenant.core.model.kubernetes.selector import LabelSelector

_VALUE: Final = text("^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")
_LONGEST_VALUE: Final = 63


@dataclass(frozen=True, slots=True)
class KeyText:
    """One key's text: `constant`, or the CEL `expression` under the condition `present`; removed when it is neither."""

    constant: str | None = None
    expression: str = ""
    present: str = "true"
    checked: bool = False
    """Whether the expression may give a text that the API server refuses."""

    @property
    def cel(self) -> str:
        """The text as CEL."""
        return text(self.constant) if self.constant is not None else self.expression


REMOVED: Final = KeyText()


@dataclass(slots=True)
class KeyTexts:
    """Texts of one field of the metadata ("labels" or "annotations") that a profile writes, in the order of writing."""

    name: str
    texts: dict[str, KeyText] = field(default_factory=dict)
    unusable: list[str] = field(default_factory=list)
    """Keys whose value the API server would refuse: they stay as the pod has them, as under the webhook."""

    @property
    def variable(self) -> str:
        """CEL of the pod's own texts, {} when it has none."""
        return f"variables.{self.name}"

    def of(self, key: str) -> KeyText:
        """The key's text after what has been written so far."""
        own = KeyText(None, f"{self.variable}[{text(key)}]", f"{text(key)} in {self.variable}")
        return self.texts.get(key, own)

    def update(self, constants: Mapping[str, str]) -> None:
        """Write constants."""
        self.texts |= {key: KeyText(value) for key, value in constants.items()}

    def copy(self, mapping: Mapping[str, str]) -> None:
        """Copy old keys to new ones; a missing source gives an empty text."""
        self.texts |= {new: self._copied(self.of(old)) for old, new in sorted(mapping.items())}

    @staticmethod
    def _copied(source: KeyText) -> KeyText:
        if source.constant is not None:
            return source
        return KeyText(None, f'({source.present} ? {source.expression} : "")')

    def append(self, suffixes: Mapping[str, str]) -> None:
        """Append suffixes to keys that are there."""
        for key, suffix in sorted(suffixes.items()):
            before = self.of(key)
            if before.constant is not None:
                self.texts[key] = KeyText(before.constant + suffix)
            else:
                expression = f"({before.expression} + {text(suffix)})"
                self.texts[key] = KeyText(None, expression, before.present, checked=True)

    def merge(self, patch: Mapping[str, Any]) -> None:
        """A strategic merge of texts: null removes."""
        for key, value in patch.items():
            if value is None:
                self.texts[key] = REMOVED
            elif isinstance(value, str):
                self.texts[key] = KeyText(value)
            else:
                self._leave(key)

    def operations(self) -> Iterator[tuple[str, str]]:
        """(field, list of JSON patch operations in CEL); the operation that makes place for others has no field."""
        for key, value in list(self.texts.items()):
            if value.constant is not None and not self._usable(key, value.constant):
                self._leave(key)
        writes = [value for value in self.texts.values() if value is not REMOVED]
        if writes:
            yield "", when(f"!has(object.metadata.{self.name})", add(pointer("metadata", self.name), "{}"))
        for key, value in self.texts.items():
            yield f"metadata.{self.name}.{key}", self._operation(key, value)

    def _operation(self, key: str, value: KeyText) -> str:
        path = pointer("metadata", self.name, key)
        if value is REMOVED:
            return when(f"{text(key)} in {self.variable}", remove(path))
        if value.constant is not None:
            return add(path, value.cel)
        conditions = [] if value.present == "true" else [value.present]
        if value.checked:
            conditions += [f"size({value.cel}) <= {_LONGEST_VALUE}", f"{value.cel}.matches({_VALUE})"]
        return when(" && ".join(conditions), add(path, value.cel)) if conditions else add(path, value.cel)

    def _leave(self, key: str) -> None:
        self.texts.pop(key, None)
        self.unusable.append(key)

    def _usable(self, key: str, value: str) -> bool:
        try:
            LabelSelector.parse({"matchLabels": {key: value if self.name == "labels" else ""}}, self.name)
        except UsageError:
            return False
        return True
