"""Proposed shares hold what was used and are what the extender serves; findings need a history that carries them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.allocation.device_request import NVIDIA_GPU, demand_of
from cotenant.base.allocation.devices import GPU_CORE, GPU_MEMORY_RATIO, DeviceKind
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.severity import Severity
from cotenant.base.usage.usage import Signal
from cotenant.recommender.findings import rows
from cotenant.recommender.gpus import GpuContainer, find, share_for
from cotenant.recommender.incomplete import founded_findings
from cotenant.recommender.model.finding import FindingKind
from cotenant.recommender.settings import FindingSettings, GpuSettings

OWN, SETTINGS = GpuSettings(), FindingSettings()
REF = ContainerRef(WorkloadRef("ml", "Deployment", "serve"), "main")
SERVE = GpuContainer(
    REF, 2, requested_core=100, requested_memory=100, core_quantile=30, core_maximum=45, memory_maximum=40,
    days=7, coverage=0.99, requested_hours=168, hourly_price=2.0,
)  # fmt: skip
STEPS = st.sampled_from([1, 2, 5, 10, 20, 25, 50, 100])
USE = st.floats(0, 800)


def amounts(text: str) -> dict[str, int]:
    """A proposal as requests."""
    return {name: int(value) for name, value in (part.split(": ") for part in text.split(", "))}


@given(USE, USE, STEPS, st.floats(0, 2))
def test_a_share_holds_the_use_with_its_margin_and_the_extender_serves_it(
    core: float, memory: float, step: int, margin: float
) -> None:
    own = GpuSettings(step_percent=step, core_margin_fraction=margin)  # type: ignore[arg-type]
    share = share_for(core, memory, own)
    assert share.core_percent >= core * (1 + margin) - 1e-5
    assert share.memory_percent >= memory * 1.15 - 1e-5
    request = demand_of(amounts(str(share)), {}).requests[DeviceKind.GPU]
    assert request.count == math.ceil(share.devices)
    # what each device gives adds up to the share: nothing is lost in the division by devices
    assert request.share[GPU_CORE] * request.count == share.core_percent
    assert request.share[GPU_MEMORY_RATIO] * request.count == share.memory_percent


@given(USE, USE, STEPS)
def test_a_share_is_at_most_a_step_more_than_needed(core: float, memory: float, step: int) -> None:
    share = share_for(core, memory, GpuSettings(step_percent=step))  # type: ignore[arg-type]
    needed = max(core, memory) * 1.15
    # beyond one device the step is a whole one
    assert (
        max(share.core_percent, share.memory_percent) < max(needed, 0) + (step if needed <= 100 - step else 100) + 1e-5
    )


@given(USE, USE, USE, USE)
def test_more_use_never_gives_a_smaller_share(core: float, more: float, memory: float, more_memory: float) -> None:
    low, high = share_for(core, memory, OWN), share_for(core + more, memory + more_memory, OWN)
    assert (low.core_percent, low.memory_percent) <= (high.core_percent, high.memory_percent)
    assert low.memory_percent <= high.memory_percent


def test_a_gpu_that_is_used_by_a_third_gets_a_share_proposed_with_its_worth() -> None:
    (finding,) = find([SERVE], SETTINGS, OWN)
    assert (finding.kind, finding.subject) == (FindingKind.OVERSIZED_GPU, REF)
    # 30 % x 1.15 = 34.5 -> 40; 40 % x 1.15 = 46 -> 50
    assert finding.proposal == f"{GPU_CORE}: 40, {GPU_MEMORY_RATIO}: 50 instead of {NVIDIA_GPU}: 1"
    # two pods free half a device each (memory is the larger part): 1 device x 2.0 an hour x 730 h
    assert finding.monthly_saving == pytest.approx(1460)
    assert finding.severity is Severity.WARNING
    (row,) = rows([finding])
    assert (row["proposal"], row["saving_month"]) == (finding.proposal, finding.monthly_saving)
    assert "gpu core p95 30 %; gpu core max 45 %; gpu memory max 40 %" in row["evidence"]


def test_fewer_whole_gpus_are_proposed_where_a_share_is_too_little() -> None:
    four = replace(SERVE, requested_core=400, requested_memory=400, core_quantile=140, memory_maximum=150)
    (finding,) = find([four], SETTINGS, OWN)
    # 150 % x 1.15 = 172.5 % of memory: two devices
    assert finding.proposal == f"{NVIDIA_GPU}: 2 instead of {NVIDIA_GPU}: 4"
    assert finding.monthly_saving == pytest.approx(2 * 2 * 2.0 * 730)


def test_a_busy_gpu_a_fitting_share_and_a_mig_instance_are_left_alone() -> None:
    busy = replace(SERVE, core_quantile=90, core_maximum=99)
    fitting = replace(SERVE, requested_core=40, requested_memory=50)
    instance = replace(SERVE, requested_core=0, requested_memory=0, instances=100)
    for container in (busy, fitting, instance):
        assert list(find([container], SETTINGS, OWN)) == []


def test_a_gpu_that_never_computed_is_idle_whatever_memory_it_holds() -> None:
    notebook = replace(SERVE, core_quantile=0.2, core_maximum=0.4, memory_maximum=90)
    (finding,) = find([notebook], SETTINGS, OWN)
    assert (finding.kind, finding.proposal) == (FindingKind.IDLE_GPU, "no GPU")
    assert finding.monthly_saving == pytest.approx(2 * 2.0 * 730)
    at_threshold = replace(notebook, core_maximum=SETTINGS.idle_gpu_percent)
    assert [f.kind for f in find([at_threshold], SETTINGS, OWN)] == [FindingKind.IDLE_GPU]
    assert [f.kind for f in find([replace(notebook, core_maximum=3.1)], SETTINGS, OWN)] == []


def test_an_idle_mig_instance_is_told_without_the_price_of_the_whole_gpu() -> None:
    idle = replace(SERVE, requested_core=0, requested_memory=0, instances=100, core_maximum=0.4)
    (finding,) = find([idle], SETTINGS, OWN)
    assert (finding.kind, finding.monthly_saving) == (FindingKind.IDLE_GPU, None)


def test_a_request_without_metrics_is_told_once_it_has_lasted() -> None:
    dark = replace(SERVE, core_quantile=math.nan, core_maximum=math.nan, memory_maximum=math.nan, days=0, coverage=0)
    (finding,) = find([dark], SETTINGS, OWN)
    assert (finding.kind, finding.severity) == (FindingKind.UNMEASURED_GPU, Severity.OK)
    assert finding.monthly_saving is None
    assert list(find([replace(dark, requested_hours=1)], SETTINGS, OWN)) == []


@pytest.mark.parametrize(
    "change",
    [{"days": 4.9}, {"coverage": 0.4}, {"pods": 0}, {"requested_core": 0, "requested_memory": 0},
     {"memory_maximum": math.nan}, {"core_quantile": math.nan}],
)  # fmt: skip
def test_nothing_is_said_on_thin_ground(change: dict[str, float]) -> None:
    assert list(find([replace(SERVE, **change)], SETTINGS, OWN)) == []  # type: ignore[arg-type]


def test_no_gpu_is_called_idle_or_dark_while_its_history_could_not_be_read() -> None:
    dark = replace(SERVE, core_maximum=math.nan)
    findings = list(find([SERVE, dark, replace(SERVE, core_maximum=0.1)], SETTINGS, OWN))
    assert len(findings) == 3
    assert founded_findings(findings, {Signal.GPU_CORE_MEAN: 3600}) == ()
    assert len(founded_findings(findings, {Signal.CPU_USAGE_MEAN: 3600})) == 3
