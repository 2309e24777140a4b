"""Every way of sharing at every setting of its knob on one world. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cotenant.base.progress import Progress
from cotenant.experiment.install import USAGE, install_of
from cotenant.experiment.interference import Interference
from cotenant.experiment.lenders import forecast_peaks
from cotenant.experiment.loop import Experiment
from cotenant.experiment.outcome import Sharing, SharingOutcome
from cotenant.experiment.world import World
from cotenant.forecasting.settings import NodePeakSettings

INSTALLED: Final = {
    Sharing.KOORDINATOR: float(install_of(USAGE).strategy.cpu_reclaim_percent),
    Sharing.COTENANT: NodePeakSettings().risk_percent,
}
"""Default knobs of an installation."""


def run_all_settings(
    world: World, knobs: Mapping[Sharing, Sequence[float]], model: Interference, progress: Progress
) -> list[SharingOutcome]:
    """Every way at every setting of its knob on one world."""
    risks = knobs.get(Sharing.COTENANT, ())
    forecasts = forecast_peaks(world, risks, NodePeakSettings(), progress) if risks else {}
    experiment = Experiment(world, forecasts, model)
    return [experiment.run(sharing, knob, progress) for sharing, settings in knobs.items() for knob in settings]
