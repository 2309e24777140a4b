"""Declaration of a setting: `setting("How long...", ge=1)` gives a type its domain, unit and description in one place.

Example of a section, whose last field is a constant:

    class ProfilerSettings(Section, frozen=True):
        window_days: Annotated[
            int, setting("History that a scan asks for.", when="cycles are longer", unit="days", ge=1, le=90)
        ] = 14
        overlap_seconds: int = 600  # a constant, which no settings file can set; its docstring follows
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Self, TypeVar

import msgspec

from cotenant.base.settings.catalogue import mask_secrets

Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
"""Member of an optional TCP port, as `NotNegative` below."""
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
"""Member of an optional setting, `NotNegative | None`: msgspec wants a limit on the number, not on the union."""


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base class of every section of settings: frozen, refuses unknown keys, and hides secrets when it is printed."""

    def __repr__(self) -> str:
        """Return the text that msgspec writes, with header values and passwords inside URLs hidden."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the fields for rich, which prints local variables in tracebacks, with secrets hidden."""
        return [(name, mask_secrets(name, getattr(self, name))) for name in self.__struct_fields__]


def setting(doc: str, *, when: str = "", unit: str = "", **domain: Any) -> msgspec.Meta:
    """Return the metadata of one setting; `domain` takes msgspec's ge, gt, le, lt, min_length, pattern.

    `when` completes the sentence "change it when ..." for an operator; sections have no `when`.
    """
    extra = {key: text for key, text in (("unit", unit), ("when", when)) if text}
    return msgspec.Meta(
        description=doc, extra=extra, extra_json_schema={f"x-{k}": v for k, v in extra.items()}, **domain
    )


def digest(section: msgspec.Struct) -> str:
    """Return twelve hex digits that change whenever a setting's value changes; every published result has them."""
    return hashlib.sha256(msgspec.json.encode(section, order="deterministic")).hexdigest()[:12]


SectionT = TypeVar("SectionT", bound=Section)


class SettingSections(Section, frozen=True):
    """The root of the effective settings, with one field for each section; every section has its own type."""

    @classmethod
    def of(cls, sections: msgspec.Struct) -> Self:
        """Return `sections` typed as this root class; raise TypeError if it is an instance of another root."""
        if isinstance(sections, cls):
            return sections
        raise TypeError(f"{type(sections).__name__} is not an instance of {cls.__name__}")

    def section(self, kind: type[SectionT]) -> SectionT:
        """Return the section of this type; raise LookupError if these settings have no such section."""
        value: SectionT = getattr(self, _field_of(type(self), kind))
        return value

    def replace_section(self, section: Section) -> Self:
        """Return the same settings with this section in place of the section of the same type."""
        return msgspec.structs.replace(self, **{_field_of(type(self), type(section)): section})

    def with_ledger_of(self, cluster: str, environment: Mapping[str, str]) -> Self:  # noqa: ARG002 - a root with one does
        """Return the settings with this cluster's own ledger path; raise LookupError if the root has no ledger."""
        raise LookupError(f"{type(self).__name__} has no setting of a ledger, so none for cluster {cluster!r}")


@cache
def _field_of(root: type[SettingSections], kind: type[Section]) -> str:
    """Return the name of the root's field of this type; raise LookupError if it has none."""
    for field in msgspec.structs.fields(root):
        if field.type is kind:
            return field.name
    raise LookupError(f"{root.__name__} has no section {kind.__name__}")
