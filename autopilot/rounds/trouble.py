"""EDGE: asks the operator's own query whether the cluster is in trouble (`autopilot.trouble_query`)."""

from __future__ import annotations

from typing import Final

import msgspec

from cotenant.autopilot.settings import AutopilotSettings
from cotenant.base.errors import CotenantError
from cotenant.base.settings.root import SettingSections
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.decode import latest
from cotenant.profiler.settings import ProfilerSettings

LONGEST_WAIT_SECONDS: Final = 10.0
"""For one answer: rollbacks, and CPU that starting pods give back, wait for it."""


def asked_trouble(settings: SettingSections, now_seconds: float) -> str:
    """Why the cluster is in trouble, "" when it is not; a query that is not answered is a reason too.

    One value above 0, of whichever series, is trouble; no value, and one that is not a number, is none.
    """
    query = settings.section(AutopilotSettings).trouble_query
    if not query:
        return ""
    source = settings.section(ProfilerSettings).prometheus
    if not source.url:
        return "autopilot.trouble_query is set, and profiler.prometheus.url is not: nobody can say whether all is well"
    try:
        patience_seconds = min(source.timeout_seconds, LONGEST_WAIT_SECONDS)
        client = Client(msgspec.structs.replace(source, timeout_seconds=patience_seconds))
        try:
            answer = latest(client.range(query, int(now_seconds), int(now_seconds), 1))
        finally:
            client.close()
    except CotenantError as error:
        return f"autopilot.trouble_query was not answered: {error.message}"
    labels, value = next((pair for pair in answer if pair[1] > 0), ({}, 0.0))
    if not value:
        return ""
    names = ",".join(f"{name}={text}" for name, text in sorted(labels.items()))
    return f"autopilot.trouble_query says {value:g}{f' for {names}' if names else ''}"
