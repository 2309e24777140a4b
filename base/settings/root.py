"""The root of all settings as a room sees it: sections, each found by its type.

`cotenant.settings` declares which sections there are. A room names the sections that it reads: those of its own, of
the rooms below it, and of `base`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Self, TypeVar

import msgspec

from cotenant.base.settings.base import Section

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
