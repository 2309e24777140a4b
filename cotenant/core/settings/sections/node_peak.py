"""Settings of the calibrated 24-hour peak of nodes: the risk knob and the evidence behind it."""

from __future__ import annotations

from typing import Annotated

from cotenant.core.model.resource import Resource
from cotenant.core.settings.base import Section, setting


class NodePeakSettings(Section, frozen=True):
    """How high usage of a node may get in the next 24 hours, at a risk that back-tests hold."""

    risk_percent: Annotated[
        float,
        setting(
            "Share of decisions whose forecast CPU peak may be passed within 24 hours, mean over nodes and time.",
            unit="percent",
            gt=0,
            le=50,
        ),
    ] = 1.0
    memory_risk_percent: Annotated[
        float, setting("The same for memory, where passing it means evictions.", unit="percent", gt=0, le=50)
    ] = 0.5
    calibration_days: Annotated[
        int,
        setting(
            "Most days of past decisions that the risk is calibrated on, as far as totals of nodes go back. They are "
            "kept from scan to scan, so after a first scan they go back profiler.window_days, later further.",
            unit="days",
            ge=2,
        ),
    ] = 90
    prior_days: Annotated[
        float,
        setting(
            "Days of a cluster's own past decisions that count as much as the shipped tail of public traces; "
            "the risk is lowered by the share days / (days + this).",
            unit="days",
            ge=0,
        ),
    ] = 10.0
    node_tolerance: Annotated[
        float,
        setting("Times the risk that one node may have passed its peak before its own past decides alone.", ge=1),
    ] = 4.0
    minimum_days: Annotated[
        int,
        setting("Days of record below which a node gets Koordinator's formula.", unit="days", ge=2, le=14),
    ] = 7

    def risk(self, resource: Resource) -> float:
        """Of one resource, as a share."""
        return (self.risk_percent if resource is Resource.CPU else self.memory_risk_percent) / 100
