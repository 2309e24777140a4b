"""The root of all settings: one field per room."""

from __future__ import annotations

import msgspec

from cotenant.settings.base import Section
from cotenant.settings.dashboard import DashboardSettings
from cotenant.settings.profiler import ProfilerSettings
from cotenant.settings.recommender import RecommenderSettings
from cotenant.settings.store import StoreSettings


class Settings(Section, frozen=True):
    """Every tunable of cotenant, by room."""

    profiler: ProfilerSettings = msgspec.field(default_factory=ProfilerSettings)
    recommender: RecommenderSettings = msgspec.field(default_factory=RecommenderSettings)
    dashboard: DashboardSettings = msgspec.field(default_factory=DashboardSettings)
    store: StoreSettings = msgspec.field(default_factory=StoreSettings)
