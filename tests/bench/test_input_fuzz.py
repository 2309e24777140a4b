"""Inputs that somebody else writes are read, or refused with words: some of each reader's million."""

from __future__ import annotations

import pytest

from bench.platform.fuzz.surfaces import SURFACES, Surface
from bench.platform.input_fuzz import fuzz

INPUTS = 120


@pytest.mark.slow
@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.name)
def test_no_input_raises_what_nobody_documented(surface: Surface) -> None:
    inputs = max(10, round(INPUTS * surface.part))
    fuzzed = fuzz(surface, inputs, seed=2)
    assert dict(fuzzed.faults) == {}
    assert fuzzed.read + fuzzed.refused == inputs
