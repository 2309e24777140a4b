"""Profiles that may match the same pod: what each writes, and which of two has precedence. Pure.

The API server runs policies in no fixed order. The webhook applies matching profiles in the order of their names, the
later value wins, and it translates resources once at the end. For both to give the same result, two profiles that may
match one pod must not write different values to one field, unless the earlier one leaves the pod to the later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotenant.admission.policies.cel import LABELS, NAMESPACE_LABELS, selector_conditions
from cotenant.admission.policies.label_texts import key_texts
from cotenant.admission.policies.patch_fields import leaves, refusal
from cotenant.admission.profile import Profile
from cotenant.base.kubernetes.qos import PRIORITY_CLASS_LABEL, QOS_LABEL
from cotenant.base.kubernetes.selector import LabelSelector, Operator, Requirement

CLASS_NAME: Final = "priorityClassName"
CLASS_FIELD: Final = f"spec.{CLASS_NAME}"
_LABEL: Final = "metadata.labels."
_CLASS_FIELDS: Final = (CLASS_FIELD, f"{_LABEL}{QOS_LABEL}", f"{_LABEL}{PRIORITY_CLASS_LABEL}")
"""Fields by which a pod's class, and with it the names of its resources, is decided."""


class OwnText:
    """The value of a field that is computed from the pod's own labels or annotations; it equals no other value."""


@dataclass(frozen=True, slots=True)
class Writes:
    """The fields that a profile writes, {field: value (None: removed)}, and the fields that the values depend on."""

    fields: Mapping[str, Any]
    reads: frozenset[str]

    @classmethod
    def of(cls, profile: Profile) -> Writes:
        """Return every field that the profile's policy writes, by path; none if the profile is applied to no pod."""
        if not profile.percent:
            return cls({}, frozenset())
        fields: dict[str, Any] = {}
        reads: set[str] = set()
        for texts in key_texts(profile):
            for key, value in texts.texts.items():
                fields[f"metadata.{texts.name}.{key}"] = OwnText() if value.expression else value.constant
                reads |= {f"metadata.{texts.name}.{source}" for source in value.reads}
        fields |= {"spec.schedulerName": profile.scheduler_name} if profile.scheduler_name else {}
        fields |= {CLASS_FIELD: profile.priority_class} if profile.priority_class else {}
        for name, value in (profile.patch.get("spec") or {}).items():
            if name == CLASS_NAME or not refusal(name, value):
                fields |= leaves(value, f"spec.{name}")
        return cls(fields, frozenset(reads))

    @property
    def label_values(self) -> Mapping[str, Any]:
        """The labels that the profile writes, {key: value}."""
        return {path.removeprefix(_LABEL): v for path, v in self.fields.items() if path.startswith(_LABEL)}

    @property
    def class_fields(self) -> dict[str, Any]:
        """The fields that the profile writes and that decide the pod's class, with their values."""
        return {name: self.fields[name] for name in _CLASS_FIELDS if name in self.fields}


def match_condition(profile: Profile) -> str:
    """Return the CEL condition that a profile matches the present pod."""
    conditions = [
        *selector_conditions(profile.namespace_selector, NAMESPACE_LABELS),
        *selector_conditions(profile.selector, LABELS),
    ]
    return "(" + (" && ".join(conditions) or "true") + ")"


@dataclass(frozen=True, slots=True)
class Overlaps:
    """The rules by which a profile's policy gives way to other profiles on pods that match both.

    `yields_to` are profiles whose pods this policy leaves unchanged. `fields` has, by field, profiles that write
    another value to it on their pods. `translates` are profiles on whose pods this policy does not translate resources.
    """

    yields_to: tuple[Profile, ...]
    fields: Mapping[str, tuple[Profile, ...]]
    translates: tuple[Profile, ...]

    @classmethod
    def of(cls, profile: Profile, profiles: Sequence[Profile], writes: Mapping[str, Writes]) -> Overlaps:
        """Return the overlaps of one profile with all others."""
        others = [p for p in profiles if p.name != profile.name and not disjoint(profile, p)]
        later = [p for p in others if p.name > profile.name]
        own = writes[profile.name]
        yields_to = [p for p in later if not _separable(own, writes[p.name])]
        fields = {
            name: tuple(p for p in later if name in writes[p.name].fields and writes[p.name].fields[name] != value)
            for name, value in own.fields.items()
        }
        translates = [
            p for p in others if p.skips_resources or _translates(writes[p.name], own, first=p.name < profile.name)
        ]
        return cls(tuple(yields_to), {name: after for name, after in fields.items() if after}, tuple(translates))

    @property
    def profiles(self) -> list[Profile]:
        """All profiles whose pods the policy has to recognise."""
        return [*self.yields_to, *self.translates, *(p for after in self.fields.values() for p in after)]


def _separable(earlier: Writes, later: Writes) -> bool:
    """Return whether both can run in any order if the earlier leaves out the fields that the later writes."""
    # A field of the spec lies within the other; dots in keys of labels have no meaning
    nested = any(
        a.startswith("spec.") and (a.startswith(f"{b}.") or b.startswith(f"{a}."))
        for a in earlier.fields
        for b in later.fields
    )
    read = not earlier.reads.isdisjoint(later.fields) or not later.reads.isdisjoint(earlier.fields)
    mine, theirs = earlier.class_fields, later.class_fields
    return not nested and not read and (mine.keys() <= theirs.keys() or theirs.items() <= mine.items())


def _translates(other: Writes, own: Writes, *, first: bool) -> bool:
    """Return whether only the other profile translates resources, because it decides the class of pods matching both.

    `first` means that the other profile's name comes first, so that its values are overridden.
    """
    mine, theirs = own.class_fields, other.class_fields
    if not _separable(*((other, own) if first else (own, other))):
        return False
    if first:
        return mine.items() <= theirs.items() and not theirs.keys() <= mine.keys()
    return mine.keys() <= theirs.keys() and mine != theirs


def disjoint(first: Profile, second: Profile) -> bool:
    """Return whether no pod can match both profiles."""
    return are_namespaces_disjoint(first, second) or _contradict(first.selector, second.selector)


def are_namespaces_disjoint(first: Profile, second: Profile) -> bool:
    """Return whether no namespace can match both profiles."""
    return _contradict(first.namespace_selector, second.namespace_selector)


def _contradict(first: LabelSelector | None, second: LabelSelector | None) -> bool:
    pairs = ((a, b) for a in _requirements(first) for b in _requirements(second) if a.key == b.key)
    return any(_exclusive(a, b) for a, b in pairs)


def _requirements(selector: LabelSelector | None) -> Sequence[Requirement]:
    return selector.requirements or () if selector else ()


def _exclusive(first: Requirement, second: Requirement) -> bool:
    for a, b in ((first, second), (second, first)):
        if a.operator is Operator.DOES_NOT_EXIST and b.operator in (Operator.IN, Operator.EXISTS):
            return True
        if a.operator is Operator.IN and b.operator in (Operator.IN, Operator.NOT_IN):
            return not any(b.matches({b.key: value}) for value in a.values)
    return False


def wakes(writer: Writes, profile: Profile) -> Iterator[str]:
    """Yield the labels written by `writer` because of which a pod could newly match `profile`."""
    for key, value in writer.label_values.items():
        requirements = [r for r in _requirements(profile.selector) if r.key == key]
        labels = {} if value is None else {key: value}
        if requirements and (isinstance(value, OwnText) or all(r.matches(labels) for r in requirements)):
            yield key


def unstable(profile: Profile, writers: Iterable[Writes]) -> list[str]:
    """Return the labels in a profile's selector that `writers` write: matching then depends on the writers' order."""
    keys = {r.key for r in _requirements(profile.selector)}
    return sorted({key for writes in writers for key in writes.label_values if key in keys})
