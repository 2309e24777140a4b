"""All settings of cotenant: one field per section, each of which is declared in the package that it configures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import msgspec

from cotenant.admission.settings import AdmissionSettings
from cotenant.autopilot.settings import AutopilotSettings
from cotenant.base.settings import sections
from cotenant.base.settings.base import SettingSections
from cotenant.base.settings.clusters import ledger_of
from cotenant.changes.access.settings import AccessSettings
from cotenant.changes.model.settings import ActionSettings, ledger_location
from cotenant.dashboard.settings import DashboardSettings
from cotenant.enforcer.settings import EnforcerSettings, RuntimeSettings
from cotenant.forecasting.settings import ForecastingSettings, NodePeakSettings
from cotenant.profiler.settings import PortraitSettings, ProfilerSettings
from cotenant.recommender.settings import RecommenderSettings
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.load_taints.settings import LoadTaintSettings
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.rebalance.model.settings import DeschedulerSettings
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings, ReservationSettings


class Settings(SettingSections, frozen=True):
    """All settings of cotenant, by section."""

    profiler: ProfilerSettings = msgspec.field(default_factory=ProfilerSettings)
    portrait: PortraitSettings = msgspec.field(default_factory=PortraitSettings)
    forecasting: ForecastingSettings = msgspec.field(default_factory=ForecastingSettings)
    node_peak: NodePeakSettings = msgspec.field(default_factory=NodePeakSettings)
    pipeline: sections.PipelineSettings = msgspec.field(default_factory=sections.PipelineSettings)
    recommender: RecommenderSettings = msgspec.field(default_factory=RecommenderSettings)
    notify: sections.NotifySettings = msgspec.field(default_factory=sections.NotifySettings)
    plans: PlanSettings = msgspec.field(default_factory=PlanSettings)
    dashboard: DashboardSettings = msgspec.field(default_factory=DashboardSettings)
    access: AccessSettings = msgspec.field(default_factory=AccessSettings)
    store: sections.StoreSettings = msgspec.field(default_factory=sections.StoreSettings)
    kube: sections.KubeSettings = msgspec.field(default_factory=sections.KubeSettings)
    manager: sections.ManagerSettings = msgspec.field(default_factory=sections.ManagerSettings)
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
    telemetry: sections.TelemetrySettings = msgspec.field(default_factory=sections.TelemetrySettings)

    def with_ledger_of(self, cluster: str, environment: Mapping[str, str]) -> Self:
        """Return the settings with an audit log (ledger) of this cluster alone, stored next to the common one."""
        place = ledger_of(cluster, ledger_location(self.actions, environment))
        return self.replace_section(msgspec.structs.replace(self.actions, ledger=place))
