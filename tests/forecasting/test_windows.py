"""Peak and valley windows, and none where usage is too even."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core.model.usage.forecast import Window, WindowKind
from cotenant.core.model.usage.usage import TimeGrid
from cotenant.core.settings.sections.forecasts import ForecastingSettings
from forecasting.windows import amplitude, windows

GRID = TimeGrid(1_699_833_600, 1800, 48)
DEFAULTS = ForecastingSettings()


def found(path: np.ndarray) -> tuple[Window, ...]:
    return windows(path[None].astype(np.float32), GRID, DEFAULTS)[0]


def test_a_daily_wave_has_one_peak_between_two_valleys() -> None:
    path = 100 - 80 * np.cos(2 * np.pi * np.arange(48) / 48)
    kinds = [w.kind for w in found(path)]
    assert kinds == [WindowKind.VALLEY, WindowKind.PEAK, WindowKind.VALLEY]
    peak = found(path)[1]
    # Above the middle (100) from slot 12 to 36, both on the line; smoothing over three slots leaves symmetry as it is.
    assert (peak.start_seconds, peak.end_seconds) == (GRID.start_seconds + 12 * 1800, GRID.start_seconds + 37 * 1800)
    assert peak.height == pytest.approx(path[12:37].mean())


def test_two_peaks_are_two_windows() -> None:
    path = np.full(48, 10.0)
    path[10:16] = path[30:38] = 100.0
    peaks = [w for w in found(path) if w.kind is WindowKind.PEAK]
    assert [(w.start_seconds - GRID.start_seconds) // 1800 for w in peaks] == [10, 30]
    assert [(w.end_seconds - GRID.start_seconds) // 1800 for w in peaks] == [16, 38]


@pytest.mark.parametrize("path", [np.full(48, 5.0), np.zeros(48), 100 + 10 * np.sin(np.arange(48))])
def test_even_usage_has_no_window(path: np.ndarray) -> None:
    assert found(path) == ()


def test_an_unknown_path_has_no_window() -> None:
    assert found(np.full(48, np.nan)) == ()


def test_one_odd_half_hour_is_no_window() -> None:
    path = np.full(48, 100.0)
    path[20] = 400.0
    # (p95 - p5) / mean is 0: a single slot of 48 lies above the 95th percentile.
    assert found(path) == ()


def test_amplitude_by_hand() -> None:
    # 0..100 in 101 steps: p95 = 95, p5 = 5, mean 50.
    assert amplitude(np.arange(101, dtype=np.float32)[None]) == pytest.approx([1.8])
