"""cotenant: online services and batch work on the same Kubernetes nodes, safely.

For analysts this module is the Python API (docs/python-api.md): `cotenant.open_store()` returns the results of a scan
as pandas DataFrames, and `forecast`, `recommend` and `backtest` take your own usage data. To change cotenant, read
`docs/architecture.md`, then `cotenant.base` for the vocabulary that all packages share.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not (Path(__file__).parent / "base").is_dir():  # git with core.symlinks=false and copies by content
    raise ImportError(
        "This checkout lost its symbolic links: cotenant/base and nine more must lead to ../base and so on. "
        "Run `git config core.symlinks true && git checkout -- cotenant cotenant_lab`, "
        "or copy the checkout with `cp -a`."
    )

from cotenant.base.version import __version__

if TYPE_CHECKING:
    from cotenant.base.errors import (
        CotenantError,
        FrameError,
        NoData,
        NotEnoughHistory,
        SettingsError,
        StoreError,
        UsageError,
    )
    from cotenant.base.usage.forecast import LEVELS
    from cotenant.forecasting.base import conform
    from cotenant.forecasting.forecaster_contract import faults
    from cotenant.python_api.cluster_store import Clusters, ClusterStore, open_clusters, open_store
    from cotenant.python_api.own_usage import backtest, forecast, recommend
    from cotenant.python_api.reclaim import reclaim_decisions, reclaim_frontier
    from cotenant.python_api.tables import forecast_paths
    from cotenant_lab.python_api import demo_store, simulate, simulate_incident

_API = "cotenant.python_api."
_ERRORS = "cotenant.base.errors"
_LAB = "cotenant_lab.python_api"
"""Of the extra `demo`: nothing of it is imported before one of its names is asked for."""
_HOMES = {
    **dict.fromkeys(("ClusterStore", "Clusters", "open_clusters", "open_store"), f"{_API}cluster_store"),
    **dict.fromkeys(("backtest", "forecast", "recommend"), f"{_API}own_usage"),
    **dict.fromkeys(("reclaim_decisions", "reclaim_frontier"), f"{_API}reclaim"),
    "forecast_paths": f"{_API}tables",
    **dict.fromkeys(("demo_store", "simulate", "simulate_incident"), _LAB),
    "LEVELS": "cotenant.base.usage.forecast",
    "conform": "cotenant.forecasting.base",
    "faults": "cotenant.forecasting.forecaster_contract",
    **dict.fromkeys(("CotenantError", "FrameError", "NoData", "NotEnoughHistory", "SettingsError"), _ERRORS),
    **dict.fromkeys(("StoreError", "UsageError"), _ERRORS),
}
"""Name -> the module that has it, imported when the name is first used: processes of a node import no pandas."""

__all__ = [
    "LEVELS",
    "ClusterStore",
    "Clusters",
    "CotenantError",
    "FrameError",
    "NoData",
    "NotEnoughHistory",
    "SettingsError",
    "StoreError",
    "UsageError",
    "__version__",
    "backtest",
    "conform",
    "demo_store",
    "faults",
    "forecast",
    "forecast_paths",
    "open_clusters",
    "open_store",
    "reclaim_decisions",
    "reclaim_frontier",
    "recommend",
    "simulate",
    "simulate_incident",
]


if not TYPE_CHECKING:  # a type checker shall name what is not there

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'cotenant' has no attribute {name!r}")
        try:
            value = getattr(import_module(home), name)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package == "cotenant":
                raise
            extra = "demo" if package == "cotenant_lab" else "analytics"
            raise ImportError(
                f"cotenant.{name} needs the package {package}: pip install 'cotenant[{extra}]'", name=error.name
            ) from error
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
