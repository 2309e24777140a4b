"""The root of all settings: one field per room."""

from __future__ import annotations

import msgspec

from cotenant.settings.base import Section
from cotenant.settings.dashboard import DashboardSettings
from cotenant.settings.forecasting import ForecastingSettings
from cotenant.settings.kube import KubeSettings
from cotenant.settings.notify import NotifySettings
from cotenant.settings.portrait import PortraitSettings
from cotenant.settings.profiler import ProfilerSettings
from cotenant.settings.recommender import RecommenderSettings
from cotenant.settings.store import StoreSettings
from cotenant.settings.telemetry import TelemetrySettings


class Settings(Section, frozen=True):
    """Every tunable of cotenant, by room."""

    profiler: ProfilerSettings = msgspec.field(default_factory=ProfilerSettings)
    portrait: PortraitSettings = msgspec.field(default_factory=PortraitSettings)
    forecasting: ForecastingSettings = msgspec.field(default_factory=ForecastingSettings)
    recommender: RecommenderSettings = msgspec.field(default_factory=RecommenderSettings)
    notify: NotifySettings = msgspec.field(default_factory=NotifySettings)
    dashboard: DashboardSettings = msgspec.field(default_factory=DashboardSettings)
    store: StoreSettings = msgspec.field(default_factory=StoreSettings)
    kube: KubeSettings = msgspec.field(default_factory=KubeSettings)
    telemetry: TelemetrySettings = msgspec.field(default_factory=TelemetrySettings)
