"""How the tables of former settings are written: one group per section, one line per key. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FormerSetting:
    """A key that no settings file can set any more, and the constant that took its place."""

    key: str
    """Path as it was in a settings file: "section.key"."""
    constant: str
    """Dotted name of the constant: of a module's variable, or of a class's field with that default."""
    value: Any
    why: str
    """The source of the value, or why no operator has to choose it."""

    @property
    def warning(self) -> str:
        """The sentence for somebody who still sets the key."""
        return f"{self.key} is no setting any more: its value is ignored, the constant {self.constant} takes its place"


@dataclass(frozen=True, slots=True)
class FormerGroup:
    """The former keys of one section whose constants have the same holder.

    The holder is a class, whose fields have the keys' names, or a module, whose constants have them in capitals.
    """

    section: str
    holder: str
    constants: Mapping[str, tuple[Any, str]]
    """Key within the section -> value of the constant, and why it is one."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Key -> name of the constant, where it has another than the key's."""

    def settings(self) -> Iterator[FormerSetting]:
        """Yield one former setting per key, in the order of the table."""
        of_class = any(part[:1].isupper() for part in self.holder.split("."))
        for key, (value, why) in self.constants.items():
            name = self.names.get(key, key if of_class else key.upper())
            yield FormerSetting(f"{self.section}.{key}", f"{self.holder}.{name}", value, why)
