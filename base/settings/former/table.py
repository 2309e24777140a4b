"""All former settings, by key, and the sections that had them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cotenant.base.settings.former.forecasts import FORECASTS
from cotenant.base.settings.former.group import FormerSetting
from cotenant.base.settings.former.nodes import NODES
from cotenant.base.settings.former.recommender import RECOMMENDER
from cotenant.base.settings.former.services import SERVICES

FORMER: Final[Mapping[str, FormerSetting]] = MappingProxyType(
    {setting.key: setting for group in (*FORECASTS, *RECOMMENDER, *SERVICES, *NODES) for setting in group.settings()}
)
"""Former key -> the constant that took its place."""

FORMER_SECTIONS: Final = frozenset(
    key.rsplit(".", depth)[0] for key in FORMER for depth in range(1, key.count(".") + 1)
)
"""Paths of all sections above a former key, such as "recommender" and "recommender.krr"."""


def former_setting(path: str) -> FormerSetting | None:
    """Return the former setting that a path names, or of which it names an entry; None for every other path."""
    while path not in FORMER and "." in path:
        path = path.rpartition(".")[0]
    return FORMER.get(path)
