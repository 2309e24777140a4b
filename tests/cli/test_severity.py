"""--fail-on: what it accepts, and what counts as a finding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.severity import Severity
from cotenant.cli.analysis.findings import FailOn


@pytest.mark.parametrize("text", ["severity=critical", " severity = critical "])
def test_a_level_is_read(text: str) -> None:
    assert FailOn.parse(text) == FailOn(Severity.CRITICAL)


@pytest.mark.parametrize(
    "text", ["", "critical", "severity", "severity=", "severity=bad", "severity=unknown", "cpu=ok", "="]
)
def test_anything_else_is_refused_with_the_levels(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        FailOn.parse(text)
    assert "good, ok, warning, critical" in caught.value.fix
    assert caught.value.exit_code == 2


def test_the_threshold_and_everything_worse_is_a_finding() -> None:
    texts = ["unknown", "good", "ok", "warning", "critical", "critical"]
    # at or above: critical 2, warning 3, ok 4, good 5; unknown never
    assert [FailOn.parse(f"severity={s}").findings(texts) for s in ("critical", "warning", "ok", "good")] == [
        2,
        3,
        4,
        5,
    ]


@given(st.lists(st.sampled_from([s.value for s in Severity])))
def test_a_lower_threshold_never_finds_less(severities: list[str]) -> None:
    counts = [FailOn(s).findings(severities) for s in (Severity.GOOD, Severity.OK, Severity.WARNING, Severity.CRITICAL)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == len(severities) - severities.count("unknown")


@given(st.text())
def test_any_text_is_a_threshold_or_a_usage_error(text: str) -> None:
    try:
        assert FailOn.parse(text).threshold is not Severity.UNKNOWN
    except UsageError as error:
        assert "--fail-on" in error.message
