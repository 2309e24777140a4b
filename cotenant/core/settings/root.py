"""The root of all settings: one field per section."""

from __future__ import annotations

import msgspec

from cotenant.core.settings.base import Section
from cotenant.core.settings.sections.actions import ActionSettings
from cotenant.core.settings.sections.admission import AdmissionSettings
from cotenant.core.settings.sections.autopilot import AutopilotSettings
from cotenant.core.settings.sections.dashboard import AccessSettings, DashboardSettings
from cotenant.core.settings.sections.descheduler import DeschedulerSettings
from cotenant.core.settings.sections.extender import ExtenderSettings, LoadTaintSettings
from cotenant.core.settings.sections.forecasts import ForecastingSettings, NodePeakSettings
from cotenant.core.settings.sections.kube import KubeSettings
from cotenant.core.settings.sections.manager import ManagerSettings
from cotenant.core.settings.sections.node.enforcer import EnforcerSettings
from cotenant.core.settings.sections.node.runtime import RuntimeSettings
from cotenant.core.settings.sections.notify import NotifySettings
from cotenant.core.settings.sections.pipeline import PipelineSettings
from cotenant.core.settings.sections.profiler import PortraitSettings, ProfilerSettings
from cotenant.core.settings.sections.queues import QueueSettings
from cotenant.core.settings.sections.recommender import RecommenderSettings
from cotenant.core.settings.sections.reservations import PlanSettings, ReservationSettings
from cotenant.core.settings.sections.store import StoreSettings
from cotenant.core.settings.sections.telemetry import TelemetrySettings


class Settings(Section, frozen=True):
    """Every tunable of cotenant, by section."""

    profiler: ProfilerSettings = msgspec.field(default_factory=ProfilerSettings)
    portrait: PortraitSettings = msgspec.field(default_factory=PortraitSettings)
    forecasting: ForecastingSettings = msgspec.field(default_factory=ForecastingSettings)
    node_peak: NodePeakSettings = msgspec.field(default_factory=NodePeakSettings)
    pipeline: PipelineSettings = msgspec.field(default_factory=PipelineSettings)
    recommender: RecommenderSettings = msgspec.field(default_factory=RecommenderSettings)
    notify: NotifySettings = msgspec.field(default_factory=NotifySettings)
    plans: PlanSettings = msgspec.field(default_factory=PlanSettings)
    dashboard: DashboardSettings = msgspec.field(default_factory=DashboardSettings)
    access: AccessSettings = msgspec.field(default_factory=AccessSettings)
    store: StoreSettings = msgspec.field(default_factory=StoreSettings)
    kube: KubeSettings = msgspec.field(default_factory=KubeSettings)
    manager: ManagerSettings = msgspec.field(default_factory=ManagerSettings)
    actions: ActionSettings = msgspec.field(default_factory=ActionSettings)
    autopilot: AutopilotSettings = msgspec.field(default_factory=AutopilotSettings)
    admission: AdmissionSettings = msgspec.field(default_factory=AdmissionSettings)
    reservations: ReservationSettings = msgspec.field(default_factory=ReservationSettings)
    queues: QueueSettings = msgspec.field(default_factory=QueueSettings)
    descheduler: DeschedulerSettings = msgspec.field(default_factory=DeschedulerSettings)
    extender: ExtenderSettings = msgspec.field(default_factory=ExtenderSettings)
    load_taints: LoadTaintSettings = msgspec.field(default_factory=LoadTaintSettings)
    enforcer: EnforcerSettings = msgspec.field(default_factory=EnforcerSettings)
    runtime: RuntimeSettings = msgspec.field(default_factory=RuntimeSettings)
    telemetry: TelemetrySettings = msgspec.field(default_factory=TelemetrySettings)
