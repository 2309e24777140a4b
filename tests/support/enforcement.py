"""Acts and lanes for tests of what shows them: a quarter of an hour on three nodes, one of them a dry run."""

from __future__ import annotations

import math
from typing import Any

from cotenant.base.store import Store
from cotenant.enforcer.model.enforcement import AgentAction, EnforcementHistory, Gathering, NodeLanes, lane_of
from cotenant.enforcer.model.enforcement_tables import Retention
from cotenant.profiler.enforcement.collected import keep

TIER = "kubepods/besteffort"
NASTY = "<img src=x onerror=alert(1)>"


def act(at: float, node: str, strategy: str, reason: str, **more: Any) -> AgentAction:
    """One act; what a test does not name is as of suppression by quota."""
    lane = more.pop("lane", lane_of(strategy, reason))
    return AgentAction(at, node, lane, reason, more.pop("why", f"because of {reason}"), strategy, **more)


def quota(at: float, node: str, before: int, after: int, **more: Any) -> AgentAction:
    """A quota of best effort, in cores."""
    reason = "Suppressed" if after < before else "SuppressionEased"
    fields = {"subject": TIER, "knob": "cpu.quota", "before": str(100_000 * before), "after": str(100_000 * after)}
    return act(at, node, "cpu-suppress", reason, **{"outcome": "written", **fields, **more})


def acts(end: float) -> list[AgentAction]:
    """node-000: suppress, burst, eviction, interference; node-001: a dry run; node-002: one act with markup in it."""
    dry = {"outcome": "would-write", "dry": True}
    burst = {"subject": "kubepods/a", "knob": "cpu.quota", "before": "100000", "after": "120000", "outcome": "written"}
    return [
        *(quota(end - 900 + 60 * k, "node-000", 8 - k, 7 - k) for k in range(5)),
        act(end - 700, "node-000", "cpu-burst", "BurstGranted", pod="pay/web-0", **burst),
        act(end - 600, "node-000", "", "Interference", pod="pay/web-0", warning=True),
        act(end - 500, "node-000", "BECPUEvict", "Evicting", pod="etl/job-0", outcome="asked", warning=True),
        act(end - 400, "node-000", "cpu-suppress", "ValueGivenBack", subject=TIER, knob="cpu.quota",
            outcome="restored"),
        *(quota(end - 800 + 60 * k, "node-001", 6, 5 - k, **dry) for k in range(3)),
        act(end - 300, "node-001", "BECPUEvict", "WouldEvict", pod="etl/job-1", outcome="would-ask", dry=True),
        act(end - 200, "node-002", "memory-qos", "MemoryProtected", pod=f"x/{NASTY}", why=NASTY, outcome="written",
            knob="memory.low", after="1", subject="s"),
    ]  # fmt: skip


def lanes(end: float, node: str = "node-000", *, dry: bool = False, steps: int = 900) -> NodeLanes:
    """Second by second: others rise in the middle, the limit of best effort falls."""
    high = [steps // 3 <= k < 2 * steps // 3 for k in range(steps)]
    values = {
        "others": [9000.0 if up else 4000.0 for up in high],
        "best_effort": [1000.0 if up else 6000.0 for up in high],
        "target": [1400.0 if up else 6400.0 for up in high],
        "limit": [1000.0 if up else math.nan for up in high],
        "burst": [500.0 if up else 0.0 for up in high],
    }
    return NodeLanes(node, end - steps, 1.0, 16_000.0, values, dry, "a test")


def fill(store: Store, end: float, **gathered: Any) -> None:
    """Keep all of it in a store."""
    gathering = Gathering(end, sources=("Events of the cluster",), **{"agents": 3, "dry_agents": 1, **gathered})
    both = (lanes(end), lanes(end, "node-001", dry=True))
    keep(store, EnforcementHistory(tuple(acts(end)), both, gathering), Retention(end))
