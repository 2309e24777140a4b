"""The month of the autopilot in simulated time, in a small form."""

from __future__ import annotations

from dataclasses import replace

from bench.autopilot_month import AUTOPILOT, SPEC, Month, rows
from cotenant.core.model.usage.usage import HOUR_SECONDS


def test_a_month_keeps_its_limits_and_kills_nobody() -> None:
    month = Month(7, replace(SPEC, nodes=4, workloads=30))
    month.run()
    assert month.mine.caused_kills == 0 and len(month.mine.freed_millicores) == 28
    # a change soaks for an hour, and a round is an hour: what one hour accepts soaks together
    hours = [(s.accepted_seconds - month.start_seconds) // HOUR_SECONDS for s in month.standings]
    assert max(hours.count(hour) for hour in set(hours)) <= AUTOPILOT.ceiling.at_once
    assert {row.metric for row in rows([month])} >= {"OOM kills caused", "restarts a pod-week"}
