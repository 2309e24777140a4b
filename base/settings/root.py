"""The root of all settings: one field per section."""

from __future__ import annotations

import msgspec

from cotenant.base.settings.base import Section
from cotenant.base.settings.sections.actions import ActionSettings
from cotenant.base.settings.sections.admission import AdmissionSettings
from cotenant.base.settings.sections.autopilot import AutopilotSettings
from cotenant.base.settings.sections.dashboard import AccessSettings, DashboardSettings
from cotenant.base.settings.sections.descheduler import DeschedulerSettings
from cotenant.base.settings.sections.extender import ExtenderSettings, LoadTaintSettings
from cotenant.base.settings.sections.forecasts import ForecastingSettings, NodePeakSettings
from cotenant.base.settings.sections.kube import KubeSettings
from cotenant.base.settings.sections.manager import ManagerSettings
from cotenant.base.settings.sections.node.enforcer import EnforcerSettings
from cotenant.base.settings.sections.node.runtime import RuntimeSettings
from cotenant.base.settings.sections.notify import NotifySettings
from cotenant.base.settings.sections.pipeline import PipelineSettings
from cotenant.base.settings.sections.profiler import PortraitSettings, ProfilerSettings
from cotenant.base.settings.sections.queues import QueueSettings
from cotenant.base.settings.sections.recommender import RecommenderSettings
from cotenant.base.settings.sections.reservations import PlanSettings, ReservationSettings
from cotenant.base.settings.sections.store import StoreSettings
from cotenant.base.settings.sections.telemetry import TelemetrySettings


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
