"""The root of all settings: one field per room."""

from __future__ import annotations

import msgspec

from cotenant.settings.access import AccessSettings
from cotenant.settings.actions import ActionSettings
from cotenant.settings.admission import AdmissionSettings
from cotenant.settings.base import Section
from cotenant.settings.dashboard import DashboardSettings
from cotenant.settings.enforcer import EnforcerSettings
from cotenant.settings.extender import ExtenderSettings
from cotenant.settings.forecasting import ForecastingSettings
from cotenant.settings.kube import KubeSettings
from cotenant.settings.manager import ManagerSettings
from cotenant.settings.node_peak import NodePeakSettings
from cotenant.settings.notify import NotifySettings
from cotenant.settings.plans import PlanSettings
from cotenant.settings.portrait import PortraitSettings
from cotenant.settings.profiler import ProfilerSettings
from cotenant.settings.recommender import RecommenderSettings
from cotenant.settings.reservations import ReservationSettings
from cotenant.settings.runtime import RuntimeSettings
from cotenant.settings.store import StoreSettings
from cotenant.settings.telemetry import TelemetrySettings


class Settings(Section, frozen=True):
    """Every tunable of cotenant, by room."""

    profiler: ProfilerSettings = msgspec.field(default_factory=ProfilerSettings)
    portrait: PortraitSettings = msgspec.field(default_factory=PortraitSettings)
    forecasting: ForecastingSettings = msgspec.field(default_factory=ForecastingSettings)
    node_peak: NodePeakSettings = msgspec.field(default_factory=NodePeakSettings)
    recommender: RecommenderSettings = msgspec.field(default_factory=RecommenderSettings)
    notify: NotifySettings = msgspec.field(default_factory=NotifySettings)
    plans: PlanSettings = msgspec.field(default_factory=PlanSettings)
    dashboard: DashboardSettings = msgspec.field(default_factory=DashboardSettings)
    access: AccessSettings = msgspec.field(default_factory=AccessSettings)
    store: StoreSettings = msgspec.field(default_factory=StoreSettings)
    kube: KubeSettings = msgspec.field(default_factory=KubeSettings)
    manager: ManagerSettings = msgspec.field(default_factory=ManagerSettings)
    actions: ActionSettings = msgspec.field(default_factory=ActionSettings)
    admission: AdmissionSettings = msgspec.field(default_factory=AdmissionSettings)
    reservations: ReservationSettings = msgspec.field(default_factory=ReservationSettings)
    extender: ExtenderSettings = msgspec.field(default_factory=ExtenderSettings)
    enforcer: EnforcerSettings = msgspec.field(default_factory=EnforcerSettings)
    runtime: RuntimeSettings = msgspec.field(default_factory=RuntimeSettings)
    telemetry: TelemetrySettings = msgspec.field(default_factory=TelemetrySettings)
