"""Durations and moments that tenants write: as Go reads them, and refused in no time where they are too long."""

from __future__ import annotations

import time

import pytest

from cotenant.base.controllers import published
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.moments import duration_seconds, moment_of, seconds_of

EVENING = "2026-11-20T18:00:00"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("24h", 86_400), ("1m30s", 90), ("1.5h", 5400), (".5s", 0.5), ("2.s", 2), ("250ms", 0.25), ("1h0m0s", 3600)],
)
def test_a_duration_is_read_as_go_reads_it(text: str, seconds: float) -> None:
    assert duration_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    # 2,562,048 hours are 2562048 * 3.6e12 = 9.223e18 ns and more than 2^63 - 1, which Go refuses.
    ["", "5", "s", ".s", "1h 2m", "-5s", "٣s", "1e9s", "2562048h", "9" * 62 + "h", "9" * 200_000, "1s" * 100_000],
)
def test_what_is_no_duration_is_refused_with_a_short_message(text: str) -> None:
    assert duration_seconds(text) is None
    if text:
        with pytest.raises(UsageError) as refused:
            seconds_of(text, "ttl of pod shop/web")
        assert refused.value.message.startswith("ttl of pod shop/web: ") and len(refused.value.message) < 200


def test_a_moment_without_a_zone_is_utc_wherever_the_process_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        read = [(moment_of(text, "start"), published.seconds_of(text)) for text in (f"{EVENING}Z", EVENING)]
    finally:
        monkeypatch.undo()
        time.tzset()
    # 2026-11-20 is day 20,777 of Unix time (20,454 to 2026-01-01, 323 more): 20,777 x 86,400 + 18 x 3600.
    assert read == [(1_795_197_600.0, 1_795_197_600)] * 2
    assert published.seconds_of("soon") is published.seconds_of("") is None


@pytest.mark.parametrize("text", ["2026-11-20T18:00:00." + "1" * 200_000, "1" * 200_000, {"a": "b"}, ["[" * 9000]])
def test_a_moment_longer_than_any_is_refused_with_a_short_message(text: object) -> None:
    with pytest.raises(UsageError) as refused:
        moment_of(text, "start of plan shop/nightly")
    assert len(refused.value.message) < 200
