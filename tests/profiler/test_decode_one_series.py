"""One series of an answer, a value a step."""

from __future__ import annotations

import msgspec
import pytest

from cotenant.base.errors import SourceProtocol
from cotenant.profiler.prometheus.decode import decode_single_series


def test_a_step_without_a_finite_number_is_none() -> None:
    series_body = msgspec.Raw(b'[{"metric":{},"values":[[0,"1.5"],[120,"NaN"],[180,"+Inf"]]}]')
    # steps 0, 60, 120, 180: one number, one gap, no number, no finite one
    assert decode_single_series(series_body, 0, 180, 60) == (1.5, None, None, None)


def test_no_series_is_no_value_and_several_are_refused() -> None:
    assert decode_single_series(msgspec.Raw(b"[]"), 0, 60, 60) == (None, None)
    with pytest.raises(SourceProtocol, match="2 series"):
        decode_single_series(msgspec.Raw(b'[{"values":[]},{"values":[]}]'), 0, 60, 60)
