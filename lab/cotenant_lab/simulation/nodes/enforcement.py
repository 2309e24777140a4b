"""The demo's load spikes: the actions of the agents of a few nodes, decided by the agent's own strategies. Pure.

    scenario(inventory, end, seed) -> EnforcementHistory: every action comes from enforcer.loop.decide and settle

Three nodes over eight to ten minutes. On each, online load rises and falls, and a container reaches its CPU limit: best
effort is suppressed, the container gets a burst, best effort gets its CPU back. On node `spike` nothing else happens.
On `long` a batch pod that starts late disturbs a service: the agent detects that, limits best effort, and at last
evicts this pod; then the load rises and stays, until best effort gets so little that another pod is evicted. The agent
of `dry` only reports what it would do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Inventory, Node, Pod
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant.enforcer.model.enforcement import AgentAction, EnforcementHistory, Gathering, NodeLanes
from cotenant.enforcer.model.enforcement_tables import grid_samples
from cotenant.enforcer.model.node_policy import decode
from cotenant_lab.simulation.nodes.agent_play import AgentPlay
from cotenant_lab.simulation.nodes.enforced_node import NORMAL_CYCLES, Actor, SecondDemand, shares

BEFORE_END_SECONDS: Final = 600
"""The longest story's last tick is so long before the history's end."""
SOURCE: Final = "scenario of load spikes"
KINDS: Final = ("spike", "long", "dry")
ONLINE_PODS: Final = 5
BATCH_PODS: Final = 3
LATE_SECONDS: Final = 60
RISE_SECONDS: Final = 40
NOISY_FROM_SECONDS: Final = 30
RISE_FROM_SECONDS: Final = 120
QUIET_SECONDS: Final = 80
"""After the fall: best effort has its CPU back within half of it, and then nothing happens."""
QUIET_SHARE: Final = 0.15
"""Of what the other batch pods asked for, while the noisy one is found out."""
POLICY: Final[dict[str, Any]] = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressPolicy": "cfsQuota",
        "cpuSuppressThresholdPercent": 65,
        "cpuEvictTimeWindowSeconds": 60,
        "cpuEvictBESatisfactionLowerPercent": 10,
        "cpuEvictBESatisfactionUpperPercent": 30,
    },
    "resourceQOSStrategy": {
        "lsClass": {"memoryQOS": {"enable": True, "lowLimitPercent": 60}},
        "beClass": {"memoryQOS": {"enable": True, "throttlingPercent": 80}},
    },
    "cpuBurstStrategy": {
        "policy": "auto",
        "cfsQuotaBurstPercent": 200,
        "cfsQuotaBurstPeriodSeconds": 60,
        "sharePoolThresholdPercent": 80,
    },
}


@dataclass(frozen=True, slots=True)
class Script:
    """The course of the load on one node."""

    kind: str
    high: float
    """Online demand at the top, as a share of the node."""
    lasts_seconds: int
    disturbs: float = 0.0
    """Cycles per instruction that one service gains while a noisy batch pod uses all that it wants."""

    @property
    def seconds(self) -> int:
        """Duration from the first tick to the last, seconds."""
        return RISE_FROM_SECONDS + RISE_SECONDS + self.lasts_seconds + RISE_SECONDS + QUIET_SECONDS


SCRIPTS: Final = {
    "spike": Script("spike", 0.42, 180),
    "long": Script("long", 0.62, 300, disturbs=5.0),
    "dry": Script("dry", 0.46, 180),
}


def scenario(inventory: Inventory, end_seconds: float, seed: int = 7) -> EnforcementHistory:
    """Return the reports of agents up to `end_seconds`, with the CPU series behind them; deterministic.

    It uses up to three nodes of the inventory, with the names of their running pods; it is empty without nodes.
    """
    # Nodes that batch pods run on come first: somebody has to give way.
    batch = {pod.node for pod in inventory.pods if pod.running and pod.qos is QosClass.BE}
    nodes = sorted(inventory.nodes, key=lambda node: (node.name not in batch, node.name))[: len(KINDS)]
    longest = max(script.seconds for script in SCRIPTS.values())
    begin = end_seconds - BEFORE_END_SECONDS - longest - LATE_SECONDS * (len(nodes) - 1)
    acts: list[AgentAction] = []
    lanes: list[NodeLanes] = []
    for number, (node, kind) in enumerate(zip(nodes, KINDS, strict=False)):
        random = np.random.default_rng([seed, number])
        cores = node.capacity.get(Resource.CPU, 16_000) // MILLICORES_PER_CORE
        cast = actors_of(node, inventory.pods)
        play = AgentPlay(node.name, cores, cast, begin + LATE_SECONDS * number, decode(POLICY), dry=kind == "dry")
        play.run(demands(SCRIPTS[kind], cast, cores, random))
        acts += play.acts
        lanes.append(grid_samples(node.name, play.samples, dry=play.dry, source=SOURCE))
    dry = sum(lane.dry for lane in lanes)
    gathering = Gathering(end_seconds, f"scenario-{seed}", (SOURCE,), len(inventory.nodes) if nodes else 0, dry)
    return EnforcementHistory(tuple(acts), tuple(lanes), gathering)


def actors_of(node: Node, pods: Sequence[Pod]) -> list[Actor]:
    """Return a few online and batch pods of the node, sized by its capacity; names are made up if too few pods run."""
    here = [pod for pod in pods if pod.running and pod.node == node.name]
    online = [p for p in here if p.qos in (QosClass.LS, QosClass.NONE)][:ONLINE_PODS]
    batch = [p for p in here if p.qos is QosClass.BE][:BATCH_PODS]
    cpu = node.capacity.get(Resource.CPU, 16 * MILLICORES_PER_CORE)
    online_names = [(p.namespace, p.name) for p in online] or [("shop", "web-0"), ("pay", "checkout-0")]
    lent = [(p.namespace, p.name) for p in batch]
    lent += [("batch", f"etl-{n}") for n in range(BATCH_PODS - len(lent))]
    request = int(0.4 * cpu / len(online_names)) // 100 * 100
    online_actors = [
        Actor(ns, name, True, request, int(1.35 * request) // 100 * 100, 2 * GIB) for ns, name in online_names
    ]
    batch_request = int(0.45 * cpu / len(lent)) // 100 * 100
    return online_actors + [Actor(ns, name, False, batch_request, batch_request, GIB) for ns, name in lent]


def demands(script: Script, cast: Sequence[Actor], cores: int, random: np.random.Generator) -> Iterator[SecondDemand]:
    """Yield each second's demand: online load rises and falls, one service reaches its limit, batch uses its share."""
    online = [actor for actor in cast if actor.online]
    batch = [actor for actor in cast if not actor.online]
    capacity = float(MILLICORES_PER_CORE * cores)
    shape = hill(script)
    load = capacity * (0.24 + (script.high - 0.24) * shape)
    load *= 1 + 0.01 * random.standard_normal(len(shape))
    top = shape > 0.5
    busiest, noisy = online[0], batch[0]
    for second in range(script.seconds):
        millicores = shares(float(load[second]), online)
        if top[second] and second % 240 < 100:
            millicores[busiest.name] = 1.4 * busiest.limit_millicores
        millicores |= {actor.name: 1.0 * actor.request_millicores for actor in batch}
        cycles = NORMAL_CYCLES * (1 + 0.03 * float(random.standard_normal()))
        if not script.disturbs:
            yield SecondDemand(millicores, 0.02 * capacity, quiet_cycles=cycles)
            continue
        calm = QUIET_SHARE if second < RISE_FROM_SECONDS else 1.0
        millicores |= {actor.name: calm * actor.request_millicores for actor in batch}
        millicores[noisy.name] = float(noisy.request_millicores * (second >= NOISY_FROM_SECONDS))
        slows = script.disturbs * MILLICORES_PER_CORE / noisy.request_millicores
        yield SecondDemand(millicores, 0.02 * capacity, noisy.name, {busiest.name: slows}, cycles)


def hill(script: Script) -> npt.NDArray[np.float64]:
    """Return the load's course, one value 0..1 per second: 0, a rise from the second minute, then 1, a fall, and 0."""
    at = np.arange(script.seconds, dtype=np.float64)
    end = script.seconds - QUIET_SECONDS
    up, down = (at - RISE_FROM_SECONDS) / RISE_SECONDS, (end - at) / RISE_SECONDS
    shape: npt.NDArray[np.float64] = np.clip(np.minimum(up, down), 0.0, 1.0)
    return shape
