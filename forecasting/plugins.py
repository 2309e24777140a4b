"""Third-party forecast models: loaded by name, guarded, and added to the built-in members. Pure, except for the import.

A plug-in is a class without arguments that keeps the contract of `Forecaster`; the entry point group is
`cotenant.forecasters`, and `forecasting.plugins` in the settings names those that compete. They are back-tested,
chosen, blended and calibrated like the members. A plug-in that fails only affects itself: `Guarded` returns the
history's own quantiles in its place and logs it once, and selection prefers other members.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any, Final

import numpy as np
import structlog

from cotenant.base.errors import CotenantError, SettingsError, UsageError
from cotenant.base.text import closest_name
from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix, TimeGrid
from cotenant.forecasting.base import Array, Forecaster, conform
from cotenant.forecasting.members import MEMBERS

GROUP: Final = "cotenant.forecasters"
MODEL_FIX: Final = (
    "Give a list of objects with a text `name` and a method `quantiles`, such as models=[MyModel()]. "
    f"{', '.join(member.name for member in MEMBERS)} and the plug-ins in forecasting.plugins are compared anyway."
)


class Guarded:
    """A forecaster that keeps the contract of `Forecaster` even if the wrapped forecaster does not."""

    def __init__(self, inner: Forecaster, name: str) -> None:
        """Wrap a forecaster; `name` is the entry point's, so that no two plug-ins have the same."""
        self.name = name
        self._inner = inner
        self._told = False

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Return the wrapped forecast made valid; the history's own quantiles if it raises or has a wrong shape."""
        shape = (len(history), horizon, len(LEVELS))
        frozen_history = history.copy()
        frozen_history.flags.writeable = False
        try:
            raw = np.asarray(self._inner.quantiles(frozen_history, grid, horizon), dtype=np.float32)
            if raw.shape != shape:
                raise ValueError(f"the answer has shape {raw.shape}, not {shape}")
        except Exception as error:  # noqa: BLE001 - whatever it stumbles over, the others go on
            was_told, self._told = self._told, True  # before the log is written: another thread may fail meanwhile
            if not was_told:
                structlog.get_logger(__name__).error("forecaster failed", forecaster=self.name, error=repr(error))
            raw = np.full(shape, np.nan, dtype=np.float32)
        return conform(np.where(np.isfinite(raw), raw, np.float32(np.nan)), history)


@lru_cache(maxsize=8)
def members(names: tuple[str, ...]) -> tuple[Forecaster, ...]:
    """Return the built-in forecast models (members) and the named plug-ins.

    Raises SettingsError for a name that is not installed, in use or repeated; CotenantError if a plug-in does not load.
    """
    installed = {point.name: point for point in entry_points(group=GROUP)} if names else {}
    taken = {member.name for member in MEMBERS}
    added: list[Forecaster] = []
    for name in names:
        if name in taken:
            raise SettingsError(
                f"forecasting.plugins: the name {name!r} is used twice", fix="Name each model only once."
            )
        if name not in installed:
            near = closest_name(name, installed)
            all_names = ", ".join(sorted(installed)) or f"none: no package offers entry points of group {GROUP}"
            raise SettingsError(
                f"forecasting.plugins: no forecaster is named {name!r}",
                fix=f"{f'Did you mean {near}? ' if near else ''}Installed are {all_names}.",
            )
        taken.add(name)
        # An instance of a plug-in's class; CotenantError naming the plug-in when its import or constructor fails.
        point = installed[name]
        try:
            forecaster: Forecaster = point.load()()
        except Exception as error:
            raise CotenantError(
                f"forecaster {point.name} ({point.value}) fails to load: {error}", fix="Update or remove the plug-in."
            ) from error
        added.append(Guarded(forecaster, name))
    return (*MEMBERS, *added)


def with_models(members: Sequence[Forecaster], models: Iterable[Any]) -> tuple[Forecaster, ...]:
    """Return the members, and a caller's models in `Guarded`, which keeps the `Forecaster` contract for each of them.

    Raises UsageError for an object that is not a model, and for a name that another model has.
    """
    competing = list(members)
    for model in models:
        name = getattr(model, "name", None)
        if isinstance(model, type) or not isinstance(name, str) or not callable(getattr(model, "quantiles", None)):
            raise UsageError(f"models holds {model!r}, which is not a forecast model", fix=MODEL_FIX)
        if name in {member.name for member in competing}:
            raise UsageError(f"models: another model has the name {name!r}", fix="Give each model another name.")
        competing.append(Guarded(model, name))
    return tuple(competing)
