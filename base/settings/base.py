"""How a setting is declared: `setting("How long...", ge=1)` gives a type with domain, unit and doc in one place.

Example of a section's file, the last field of which is a constant:

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
    """Base of every section's settings: frozen, unknown keys refused, and no secret in what is printed of them."""

    def __repr__(self) -> str:
        """Return the text that msgspec writes, with header values and passwords inside URLs hidden."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The same for rich, which prints local variables in tracebacks."""
        return [(name, mask_secrets(name, getattr(self, name))) for name in self.__struct_fields__]


def setting(doc: str, *, when: str = "", unit: str = "", **domain: Any) -> msgspec.Meta:
    """Metadata of one setting; `domain` takes msgspec's ge, gt, le, lt, min_length, pattern.

    when: the occasion on which an operator changes it, as it follows the word "when". A section has none.
    """
    extra = {key: text for key, text in (("unit", unit), ("when", when)) if text}
    return msgspec.Meta(
        description=doc, extra=extra, extra_json_schema={f"x-{k}": v for k, v in extra.items()}, **domain
    )


def digest(section: msgspec.Struct) -> str:
    """Twelve hex digits that change whenever a value of the settings changes; stamped on every published result."""
    return hashlib.sha256(msgspec.json.encode(section, order="deterministic")).hexdigest()[:12]


SectionT = TypeVar("SectionT", bound=Section)


class SettingSections(Section, frozen=True):
    """Effective settings, by section; each section has a type of its own."""

    @classmethod
    def of(cls, sections: msgspec.Struct) -> Self:
        """Return these settings as the root that they are; TypeError for another one."""
        if isinstance(sections, cls):
            return sections
        raise TypeError(f"{type(sections).__name__} are no {cls.__name__}")

    def section(self, kind: type[SectionT]) -> SectionT:
        """Return the section of this type; LookupError where these settings have none."""
        value: SectionT = getattr(self, _field_of(type(self), kind))
        return value

    def replace_section(self, section: Section) -> Self:
        """Return the same settings with this section in place of the one of its type."""
        return msgspec.structs.replace(self, **{_field_of(type(self), type(section)): section})

    def with_ledger_of(self, cluster: str, environment: Mapping[str, str]) -> Self:  # noqa: ARG002 - a root with one does
        """Return the settings with a ledger for this one of several clusters; LookupError where the root has none."""
        raise LookupError(f"{type(self).__name__} has no ledger, of {cluster!r} or of any other cluster")


@cache
def _field_of(root: type[SettingSections], kind: type[Section]) -> str:
    """Return the name of the root's field of this type; LookupError where it has none."""
    for field in msgspec.structs.fields(root):
        if field.type is kind:
            return field.name
    raise LookupError(f"{root.__name__} has no section {kind.__name__}")
