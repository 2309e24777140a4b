"""Every setting as one flat catalogue: path, type, default, unit, domain, doc. Pure; read from the sections' types.

`load` finds keys in it, `docs` prints it, `cotenant config show` joins it with the values in force.
"""

from __future__ import annotations

import enum
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

ENV_PREFIX: Final = "COTENANT_"
MASK: Final = "********"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting; `path` is "section.key" or "section.group.key", `type` its annotation with domain."""

    path: str
    type: Any
    default: Any
    doc: str
    unit: str
    domain: str
    when: str = ""
    """The occasion on which an operator changes it, as it follows the word "when"."""

    @property
    def env(self) -> str:
        """Name of the setting's environment variable: section.key -> COTENANT_SECTION__KEY."""
        return ENV_PREFIX + self.path.upper().replace(".", "__")

    @property
    def container(self) -> type | None:
        """The type list or dict if a text must be split into several values, otherwise None."""
        return next((c for t in _parts(self.type) if (c := _container(t))), None)


@cache
def catalogue(root: type[msgspec.Struct]) -> Mapping[str, Setting]:
    """Return the settings of a root by path, in the order of declaration; cached, because this takes 0.1 seconds.

    Constants, which no settings file can set, are left out: fields without a description, or marked `constant`.
    """
    return types.MappingProxyType({setting.path: setting for setting in _walk(root, "", {})})


_fields = cache(msgspec.structs.fields)  # evaluates all annotations, each time it is asked


def sections(root: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Yield ("section", its class) and ("section.group", its class) for every section below the root, parents first."""
    for info in _fields(root):
        if section := section_of(info.type):
            path = f"{prefix}{info.encode_name}"
            yield path, section
            yield from sections(section, f"{path}.")


def section_of(annotation: Any) -> type[msgspec.Struct] | None:
    """Return the Struct class of a field that is a section, or None for a plain setting."""
    bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return bare if isinstance(bare, type) and issubclass(bare, msgspec.Struct) else None


_PARAMETER: Final = re.compile(r"(?P<name>[?&][^=&#?]*=)[^&#]*")
_SECRET: Final = re.compile(r"key|token|secret|passw|auth|sig|credential", re.IGNORECASE)
"""In the name of a parameter of an address: its value is a secret."""


def mask_secrets(path: str, value: Any) -> Any:
    """Return a setting's value with header values, and passwords and keys inside URLs, hidden (in lists and maps too).

    No setting is itself a secret: passwords and tokens are given as files, which a test enforces.
    """
    if isinstance(value, Mapping) and "header" in path:
        return dict.fromkeys(value, MASK)
    if isinstance(value, Mapping):
        return {key: mask_secrets(path, member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(mask_secrets(path, member) for member in value)
    if isinstance(value, str) and "://" in value:
        scheme, rest = value.split("://", 1)
        authority, slash, tail = rest.partition("/")
        user = f"{MASK}@" if "@" in authority else ""
        shown = _PARAMETER.sub(lambda p: p["name"] + MASK if _SECRET.search(p["name"]) else p[0], tail)
        return f"{scheme}://{user}{authority.rpartition('@')[2]}{slash}{shown}"
    return value


def _walk(cls: type[msgspec.Struct], prefix: str, defaults: Mapping[str, Any]) -> Iterator[Setting]:
    """Yield the settings of a section; `defaults` are the values that the parent section gives it."""
    for info in _fields(cls):
        is_made = info.default is msgspec.NODEFAULT and info.default_factory is not msgspec.NODEFAULT
        default = defaults.get(info.name, info.default_factory() if is_made else info.default)
        path = f"{prefix}{info.encode_name}"
        metas = [meta for part in _parts(info.type) for meta in _metas(part)]
        if any(m.extra and m.extra.get("constant") for m in metas):
            continue
        if section := section_of(info.type):
            section_defaults = msgspec.structs.asdict(default) if isinstance(default, msgspec.Struct) else {}
            yield from _walk(section, f"{path}.", section_defaults)
        elif doc := next((m.description for m in metas if m.description), ""):
            unit, when = (
                next((m.extra[key] for m in metas if m.extra and m.extra.get(key)), "") for key in ("unit", "when")
            )
            yield Setting(path, info.type, default, doc, unit, _domain(info.type, metas), when)


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the annotation, the type that it annotates, and the members of a union."""
    yield annotation
    if get_origin(annotation) is Annotated:
        yield from _parts(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _parts(member)


def _container(annotation: Any) -> type | None:
    origin = get_origin(annotation) or annotation
    if not isinstance(origin, type) or issubclass(origin, (str, bytes)):
        return None
    if issubclass(origin, Mapping):
        return dict
    return list if issubclass(origin, (list, tuple, set, frozenset)) else None


def _domain(annotation: Any, metas: list[msgspec.Meta]) -> str:
    """Return the values that a setting may take, in words: "whole number >= 1, <= 90", "one of a, b"."""
    names = [name for part in _parts(annotation) if (name := _type_words(part))]
    limits = [
        phrase.format(limit) for m in metas for key, phrase in _LIMITS.items() if (limit := getattr(m, key)) is not None
    ]
    return ", ".join([" or ".join(dict.fromkeys(names)), *limits])


_LIMITS: Final = {
    "ge": ">= {}",
    "gt": "> {}",
    "le": "<= {}",
    "lt": "< {}",
    "multiple_of": "a multiple of {}",
    "min_length": "at least {} long",
    "max_length": "at most {} long",
    "pattern": "matching `{}`",
}
_WORDS: Final[dict[Any, str]] = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    type(None): "null",
}


def _metas(annotation: Any) -> list[msgspec.Meta]:
    return [m for m in getattr(annotation, "__metadata__", ()) if isinstance(m, msgspec.Meta)]


def _type_words(annotation: Any) -> str:
    """Return the description of one unannotated member of a type, or "" for a wrapper described by its members."""
    if annotation in _WORDS:
        return _WORDS[annotation]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "one of " + ", ".join(map(str, args))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return "one of " + ", ".join(str(member.value) for member in annotation)
    inner = [_domain(a, _metas(a)) for a in args if a is not Ellipsis]
    if _container(annotation) is dict:
        return f"map of {' to '.join(inner)}"
    if _container(annotation) is list:
        return f"list of {inner[0] if len(set(inner)) == 1 else ', '.join(inner)}"
    return annotation.__name__ if isinstance(annotation, type) and not args else ""
