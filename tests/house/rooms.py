"""The rooms of the house, from the ground up, as `.importlinter` has them, and the modules in them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = (
    *("base", "enforcer", "forecasting", "recommender", "profiler", "changes", "scheduler_ext", "admission"),
    *("autopilot", "dashboard"),
)
PACKAGES: Final = (*ROOMS, "cotenant")
SOURCES: Final = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
