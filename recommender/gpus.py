"""Findings on GPUs that are requested and not used, with the share that would suffice. Pure.

The pipeline passes `find` the GPU requests and usage of the running pods' containers, in percent of one device;
surfaces show the findings beside the others. A share is a part of one device (`gpu-core`, `gpu-memory-ratio`) as
Koordinator's scheduler and cotenant's extender assign it; above one device only whole devices exist.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.base.allocation.devices import WHOLE
from cotenant.base.allocation.gpu_share import GpuShare, GpuShareProposal
from cotenant.base.identity import ContainerRef
from cotenant.base.severity import Severity
from cotenant.recommender.model.finding import ClusterFinding, FindingKind
from cotenant.recommender.money import HOURS_PER_MONTH
from cotenant.recommender.settings import FindingSettings, GpuSettings

CORE_FRACTION: Final = 0.95
"""Quantile of the GPUs' time that one pod used. The quantile that strategy cotenant uses for CPUs in profile
balanced."""
UNMEASURED_HOURS: Final = 2
"""How long GPUs are requested before their missing metrics are told. Two hours are longer than any exporter's
restart."""

_ROUNDING_PERCENT = 1e-6
"""What float arithmetic may add to an amount that is a whole step."""


@dataclass(frozen=True, slots=True)
class GpuContainer:
    """The largest newest GPU request of one container's running pods, and the usage of all its pods in the window.

    NaN means not known. Amounts are percent of one device for one pod: `requested_core` and `requested_memory` of GPUs,
    `instances` of MIG instances (0 = none). `core_quantile`, at CORE_FRACTION, and `core_maximum` are of the device's
    time; `days` is the time from first to last sample; `hourly_price` is for a whole GPU.
    """

    ref: ContainerRef
    pods: int
    requested_core: float = 0.0
    requested_memory: float = 0.0
    instances: float = 0.0
    core_quantile: float = math.nan
    core_maximum: float = math.nan
    memory_maximum: float = math.nan
    days: float = 0.0
    coverage: float = 0.0
    requested_hours: float = 0.0
    hourly_price: float = 0.0

    @property
    def devices(self) -> float:
        """Number of devices, whole or in part, that one pod occupies."""
        return max(self.requested_core, self.requested_memory, self.instances) / WHOLE

    @property
    def measured(self) -> bool:
        """True if any usage of the container's GPUs is known."""
        return not math.isnan(self.core_maximum)

    @property
    def is_steady(self) -> bool:
        """True if a share can be proposed; short-lived pods have only a maximum and no quantile."""
        return not math.isnan(self.core_quantile) and not math.isnan(self.memory_maximum)

    def monthly_price(self, devices: float) -> float:
        """Return the monthly price of this number of devices in each of the container's pods."""
        return devices * self.pods * self.hourly_price * HOURS_PER_MONTH


def share_for(core_percent: float, memory_percent: float, own: GpuSettings) -> GpuShare:
    """Return the smallest GPU share, in steps of one device or whole devices, that covers this usage with the margins.

    `core_percent` and `memory_percent` are finite, >= 0, in percent of one device; more than 100 for several devices.
    """
    core = _rounded_up(core_percent * (1 + own.core_margin_fraction), own.step_percent)
    memory = _rounded_up(memory_percent * (1 + own.memory_margin_fraction), own.step_percent)
    if max(core, memory) > WHOLE:
        core = memory = _rounded_up(max(core, memory), WHOLE)
    return GpuShare(core, memory)


def find(containers: Sequence[GpuContainer], settings: FindingSettings, own: GpuSettings) -> Iterator[ClusterFinding]:
    """Yield at most one finding per container: its GPUs are not measured, idle, or larger than needed."""
    for container in (c for c in containers if c.devices > 0 and c.pods):
        if not container.measured:
            if container.requested_hours >= UNMEASURED_HOURS:
                requested = _requested_figures(container)
                yield ClusterFinding(FindingKind.UNMEASURED_GPU, container.ref, Severity.OK, requested)
        elif container.days >= settings.minimum_days and container.coverage >= settings.minimum_coverage:
            if container.core_maximum <= settings.idle_gpu_percent:
                figures = {**_requested_figures(container), **_usage_figures(container)}
                figures["threshold_percent"] = settings.idle_gpu_percent
                # an instance is a part of a GPU, and which part is not known
                saving = None if container.instances else container.monthly_price(container.devices)
                yield ClusterFinding(FindingKind.IDLE_GPU, container.ref, Severity.WARNING, figures, "no GPU", saving)
            elif container.is_steady and not container.instances:
                yield from _oversized_findings(container, own)


def _rounded_up(amount: float, step: int) -> int:
    return max(1, math.ceil((amount - _ROUNDING_PERCENT) / step)) * step


def _requested_figures(container: GpuContainer) -> dict[str, float | int | str]:
    if container.instances:
        return {"pods": container.pods, "mig_instances_of_a_pod": round(container.instances / WHOLE)}
    return {
        "pods": container.pods,
        "gpu_core_of_a_pod_percent": container.requested_core,
        "gpu_memory_of_a_pod_percent": container.requested_memory,
    }


def _usage_figures(container: GpuContainer) -> dict[str, float | int | str]:
    figures: dict[str, float | int | str] = {"gpu_core_max_percent": round(container.core_maximum, 1)}
    if not math.isnan(container.memory_maximum):
        figures["gpu_memory_max_percent"] = round(container.memory_maximum, 1)
    return {**figures, "days": round(container.days, 1)}


def _oversized_findings(container: GpuContainer, own: GpuSettings) -> Iterator[ClusterFinding]:
    share = share_for(container.core_quantile, container.memory_maximum, own)
    if share.devices >= container.devices:
        return
    figures = {
        **_requested_figures(container),
        f"gpu_core_p{CORE_FRACTION * 100:g}_percent": round(container.core_quantile, 1),
        **_usage_figures(container),
    }
    saving = container.monthly_price(container.devices - share.devices)
    freed = (container.devices - share.devices) * container.pods
    level = Severity.WARNING if freed >= 1 else Severity.OK
    now = GpuShare(round(container.requested_core), round(container.requested_memory))
    proposal = str(GpuShareProposal(share, now))
    yield ClusterFinding(FindingKind.OVERSIZED_GPU, container.ref, level, figures, proposal, saving)
