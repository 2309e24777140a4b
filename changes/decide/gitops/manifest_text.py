"""A manifest as the text of a YAML file: its comments, then the document. Pure."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cotenant.changes.decide.gitops.manifests import File

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]+")
_WORDS: Final = frozenset({"yes", "no", "on", "off", "true", "false", "null"})


def as_yaml(file: File) -> str:
    """Comments, then the document; strings that a YAML reader could take for another type are quoted."""
    import yaml

    head = "".join(f"# {line}\n" for line in file.comments)
    return head + str(yaml.dump(file.document, Dumper=_dumper(), sort_keys=False, allow_unicode=False, width=2**20))


@cache
def _dumper() -> Any:
    """PyYAML's safe dumper that quotes strings a reader could take for another type."""
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    dumper: Any = type("QuotingDumper", (base,), {})
    dumper.add_representer(str, _represent_string)
    return dumper


def _represent_string(dumper: Any, text: str) -> Any:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')
