"""Incidents on one node, second by second: the node agent's own strategies react to abnormal demand. Pure.

A node of 16 cores runs services, and batch pods in the capacity that its forecast left. In a flash crowd the services
want 1.8 times the forecast for a quarter of an hour; in a leak one service grows to its memory limit, where the kernel
kills it and the kubelet restarts it. Batch wants all that it may use. p99 is that of the model of interference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.colocation.reclaim_policies import AMPLE_PERCENT
from cotenant.base.resource import GIB, MILLICORES_PER_CORE
from cotenant.enforcer.model.enforcement import AgentAction
from cotenant.enforcer.model.node_policy import decode
from cotenant.experiment.interference import Interference, latency_ratio
from cotenant.experiment.outcome import Incident
from cotenant_lab.simulation.nodes.agent_play import AgentPlay
from cotenant_lab.simulation.nodes.enforced_node import Actor, SecondDemand, shares

Floats = npt.NDArray[np.float64]

ON_A_NODE: Final = frozenset({Incident.FLASH_CROWD, Incident.MEMORY_LEAK})
"""What is replayed second by second; the others are away, and nodes go on."""
CORES: Final = 16
CAPACITY: Final = float(MILLICORES_PER_CORE * CORES)
NODE: Final = "node-1"
POLICY: Final[dict[str, Any]] = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressThresholdPercent": AMPLE_PERCENT,
        "cpuEvictBESatisfactionLowerPercent": 10,
        "cpuEvictBESatisfactionUpperPercent": 30,
        "cpuEvictTimeWindowSeconds": 60,
    }
}
"""The threshold that follows policy `forecast`; suppression by CPUs, the default, and eviction of starved pods."""
FORECAST_SHARE: Final = 0.5
"""Of the node: the highest use that its forecast expects of everybody but batch."""
USUAL_SHARE: Final = 0.45
SYSTEM_SHARE: Final = 0.02
CROWD_FACTOR: Final = 1.8
BEGIN_SECONDS: Final = 180
RAMP_SECONDS: Final = 30
CROWD_SECONDS: Final = 900
AFTER_SECONDS: Final = 900
LEAK_BYTES_PER_SECOND: Final = GIB // 16
LEAK_LIMIT_BYTES: Final = 32 * GIB
SERVICES: Final = tuple(Actor("shop", f"web-{number}", True, 1600, 4000, 4 * GIB) for number in range(5))
BATCH: Final = tuple(Actor("batch", f"etl-{number}", False, 2000, 2000, 4 * GIB) for number in range(4))
EVICTING: Final = "Evicting"
SLOWED: Final = 1.1
"""p99 over that without colocation from which on a service counts as slowed."""
BACK: Final = 0.95
"""Of what best effort was allowed before: from then on it has it back."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeReplay:
    """The course of an incident on the node; arrays have one entry per second, times are seconds since its start.

    `demand_cores`: what the services wanted; `online_cores`, `batch_cores`: used; `target_cores`: what the agent
    allowed batch; `latency_ratio`: p99 divided by that of the same second without batch; `unix_seconds`: of the first
    second; `begins_seconds`, `ends_seconds`: of the incident.
    """

    incident: Incident
    demand_cores: Floats
    online_cores: Floats
    batch_cores: Floats
    target_cores: Floats
    latency_ratio: Floats
    acts: tuple[AgentAction, ...]
    unix_seconds: float
    begins_seconds: int
    ends_seconds: int

    @property
    def evicted(self) -> list[str]:
        """Evicted pods, as namespace/name, in order."""
        return [act.pod for act in self.acts if act.reason == EVICTING]

    @property
    def evicted_services(self) -> list[str]:
        """Evicted pods that are latency-sensitive services; it should be empty."""
        services = {f"{actor.namespace}/{actor.name}" for actor in SERVICES}
        return [pod for pod in self.evicted if pod in services]

    @property
    def slowed_seconds(self) -> int:
        """Seconds in which batch slowed the services by more than `SLOWED`."""
        return int((self.latency_ratio > SLOWED).sum())

    @property
    def normal_after_seconds(self) -> float:
        """Seconds from the incident's end until the node is normal again; inf = never.

        It is normal if services are not slowed, and batch may use about as much as before.
        """
        usual = float(np.median(self.target_cores[: self.begins_seconds][-60:]))
        normal = (self.latency_ratio <= SLOWED) & (self.target_cores >= BACK * usual)
        wrong = np.flatnonzero(~normal)
        last = int(wrong[-1]) + 1 if len(wrong) else 0
        return float("inf") if last == len(normal) else float(max(last - self.ends_seconds, 0))

    @property
    def lost_core_hours(self) -> float:
        """Core-hours of batch work lost relative to its rate before the incident."""
        usual = float(np.median(self.batch_cores[: self.begins_seconds][-60:]))
        return float(np.maximum(usual - self.batch_cores[self.begins_seconds :], 0.0).sum()) / 3600


def replay_incident(incident: Incident, model: Interference, begin_seconds: float) -> NodeReplay:
    """Simulate a flash crowd or a memory leak on the node; `begin_seconds` is the Unix time of the first second."""
    demands = list(_crowd() if incident is Incident.FLASH_CROWD else _leak())
    play = AgentPlay(NODE, CORES, [*SERVICES, *BATCH], begin_seconds, decode(POLICY))
    play.run(demands)
    online, batch, target = (
        np.array([getattr(sample, name) or 0.0 for sample in play.samples]) / MILLICORES_PER_CORE
        for name in ("others", "best_effort", "target")
    )
    services = {actor.name for actor in SERVICES}
    demand = np.array([sum(v for name, v in d.millicores.items() if name in services) for d in demands])
    lasts = CROWD_SECONDS if incident is Incident.FLASH_CROWD else LEAK_LIMIT_BYTES // LEAK_BYTES_PER_SECOND
    # Memory has no influence on the latency, because the agent keeps it free.
    cores, empty = np.full(len(online), float(CORES)), np.zeros(len(online))
    latency = np.asarray(latency_ratio(model, cores, online / CORES, batch / CORES, (empty, empty)), dtype=np.float64)
    demand, target, acts = demand / MILLICORES_PER_CORE, np.maximum(target, 0.0), tuple(play.acts)
    times = begin_seconds, BEGIN_SECONDS, BEGIN_SECONDS + lasts
    return NodeReplay(incident, demand, online, batch, target, latency, acts, *times)


def _crowd() -> Iterator[SecondDemand]:
    seconds = np.arange(BEGIN_SECONDS + CROWD_SECONDS + AFTER_SECONDS, dtype=np.float64)
    rise = (seconds - BEGIN_SECONDS) / RAMP_SECONDS
    fall = (BEGIN_SECONDS + CROWD_SECONDS - seconds) / RAMP_SECONDS
    height = np.clip(np.minimum(rise, fall), 0.0, 1.0)
    usual = USUAL_SHARE * CAPACITY
    for load in usual + (CROWD_FACTOR * FORECAST_SHARE * CAPACITY - usual) * height:
        yield _demand(float(load))


def _leak() -> Iterator[SecondDemand]:
    leaks = LEAK_LIMIT_BYTES // LEAK_BYTES_PER_SECOND
    name = SERVICES[0].name
    for second in range(BEGIN_SECONDS + leaks + AFTER_SECONDS):
        since = second - BEGIN_SECONDS
        leaked = LEAK_BYTES_PER_SECOND * since if 0 <= since < leaks else 0
        yield _demand(USUAL_SHARE * CAPACITY, {name: float(SERVICES[0].memory_bytes + leaked)})


def _demand(millicores: float, memory_bytes: Mapping[str, float] | None = None) -> SecondDemand:
    millicores_wanted = shares(millicores, SERVICES) | {actor.name: float(actor.request_millicores) for actor in BATCH}
    return SecondDemand(millicores_wanted, SYSTEM_SHARE * CAPACITY, memory_bytes=memory_bytes or {})
