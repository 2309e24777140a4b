"""The demo's load spikes: what the agents of a few nodes would do, decided by the agent's own strategies. Pure.

    scenario(inventory, end, seed) -> Found(acts, lanes): every row comes out of enforcer.loop.decide and settle

Three nodes over eight to ten minutes. On each, online load rises and falls, and a container runs into its CPU limit:
best effort is suppressed, the container gets a burst, best effort gets its CPU back. On `spike` that is all, and nobody
is evicted. On `long` a batch pod that starts late disturbs a service: that is found, best effort is held back, and at
last this pod is evicted; then the load rises and stays, until best effort gets so little that another one leaves.
The agent of `dry` only says what it would do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.apps.simulation.enforced_node import DIALECT, NORMAL_CYCLES, Actor, SecondDemand, SimulatedNode, shares
from cotenant.core.model.cluster import Inventory, Node, Pod
from cotenant.core.model.colocation.enforcement import AgentAction, EnforcementHistory, Gathering, LaneSample, NodeLanes
from cotenant.core.model.colocation.enforcement_tables import gridded
from cotenant.core.model.colocation.node_policy import NodePolicy, decode
from cotenant.core.model.kubernetes.qos import QosClass
from cotenant.core.model.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant.core.settings.sections.enforcer import EnforcerSettings
from enforcer.contract import Observation, Strategy, StrategyPlan
from enforcer.decide.changes import Done, KnobWrite, Notes, WriteOutcome
from enforcer.decide.evictions import EvictionBudget, Rate, admitted
from enforcer.decide.loop import Ages, Memory, TickDecision, decide
from enforcer.decide.registry import strategies
from enforcer.decide.settle import settle
from enforcer.report.acts import act_of, sample_of
from enforcer.report.recount import Verdicts
from enforcer.report.status import ActionRecord, action_of, paths_of, stamp

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
    """How it goes on one node."""

    kind: str
    high: float
    """Online demand at the top, as a share of the node."""
    lasts_seconds: int
    disturbs: float = 0.0
    """Cycles per instruction that one service gains while a noisy batch pod uses all that it wants."""

    @property
    def seconds(self) -> int:
        """From the first tick to the last."""
        return RISE_FROM_SECONDS + RISE_SECONDS + self.lasts_seconds + RISE_SECONDS + QUIET_SECONDS


SCRIPTS: Final = {
    "spike": Script("spike", 0.42, 180),
    "long": Script("long", 0.62, 300, disturbs=5.0),
    "dry": Script("dry", 0.46, 180),
}


def scenario(inventory: Inventory, end_seconds: float, seed: int = 7) -> EnforcementHistory:
    """Reports that agents would have made by the end, and the CPU behind them; the same for the same three arguments.

    Up to three nodes of the inventory play, with the names of pods that run there. Nothing for one without nodes.
    """
    nodes = _stage(inventory)
    longest = max(script.seconds for script in SCRIPTS.values())
    begin = end_seconds - BEFORE_END_SECONDS - longest - LATE_SECONDS * (len(nodes) - 1)
    acts: list[AgentAction] = []
    lanes: list[NodeLanes] = []
    for number, (node, kind) in enumerate(zip(nodes, KINDS, strict=False)):
        random = np.random.default_rng([seed, number])
        play = _Play(node, actors_of(node, inventory.pods), SCRIPTS[kind], begin + LATE_SECONDS * number, random)
        play.run()
        acts += play.acts
        lanes.append(gridded(node.name, play.samples, dry=play.dry, source=SOURCE))
    dry = sum(lane.dry for lane in lanes)
    gathering = Gathering(end_seconds, f"scenario-{seed}", (SOURCE,), len(inventory.nodes) if nodes else 0, dry)
    return EnforcementHistory(tuple(acts), tuple(lanes), gathering)


def _stage(inventory: Inventory) -> list[Node]:
    """Nodes that batch pods run on come first: somebody has to give way."""
    batch = {pod.node for pod in inventory.pods if pod.running and pod.qos is QosClass.BE}
    return sorted(inventory.nodes, key=lambda node: (node.name not in batch, node.name))[: len(KINDS)]


def actors_of(node: Node, pods: Sequence[Pod]) -> list[Actor]:
    """A few online and batch pods that run there, at sizes of the node's; names of our own where there are none."""
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


@dataclass(slots=True)
class _Play:
    """One node second by second; what its agent said and saw."""

    node: Node
    cast: list[Actor]
    script: Script
    begin_seconds: float
    random: np.random.Generator
    acts: list[AgentAction] = field(default_factory=list)
    samples: list[LaneSample] = field(default_factory=list)
    _notes: Notes = field(default_factory=dict)
    _asked: EvictionBudget = field(default_factory=EvictionBudget)
    _told: dict[tuple[str, str], object] = field(default_factory=dict)
    _verdicts: Verdicts = field(default_factory=Verdicts)

    @property
    def dry(self) -> bool:
        """Whether its agent only says what it would do."""
        return self.script.kind == "dry"

    def run(self) -> None:
        """All ticks, and everything given back in the end."""
        cores = self.node.capacity.get(Resource.CPU, 16_000) // MILLICORES_PER_CORE
        machine = SimulatedNode(self.node.name, cores, list(self.cast))
        settings, policy = EnforcerSettings(), decode(POLICY)
        running, memory = strategies(settings), Memory()
        rate = Rate(settings.evictions_per_minute, settings.evictions_burst)
        for second, demand in enumerate(self._demand(cores)):
            observation = machine.look(demand, float(second), self.begin_seconds + second)
            memory = self._tick(machine, observation, policy, (running, memory), rate)

    def _tick(
        self,
        machine: SimulatedNode,
        observation: Observation,
        policy: NodePolicy,
        mind: tuple[Sequence[Strategy[Any]], Memory],
        rate: Rate,
    ) -> Memory:
        decided, memory = decide(observation, policy, mind[1], mind[0], Ages())
        settled = settle([StrategyPlan(wants=decided.wants)], observation, self._notes, DIALECT)
        self.samples.append(sample_of(observation, decided))
        self._say(observation, [*settled.refused, *map(self._done, settled.writes)])
        if not self.dry:
            self._notes = settled.notes
            machine.obey(settled.writes)
        self._evict(machine, observation, decided, rate)
        for action, warning in self._verdicts.news(decided.verdicts, observation):
            self.acts.append(act_of(action, self.node.name, warning))
        return memory

    def _done(self, write: KnobWrite) -> Done:
        outcome = (
            WriteOutcome.RESTORED if write.restores else WriteOutcome.WOULD_WRITE if self.dry else WriteOutcome.WRITTEN
        )
        return Done(
            write.path, write.knob, write.level, write.value, outcome, write.strategy, write.why, before=write.present
        )

    def _say(self, observation: Observation, results: Sequence[Done]) -> None:
        """As the agent reports: what a dry run would write is reported when the value changes."""
        owners = {path: pod.spec.key for pod in observation.pods for path in paths_of(pod)}
        for one in results:
            place = (one.path, one.knob.value)
            if one.outcome not in (WriteOutcome.WRITTEN, WriteOutcome.RESTORED):
                if self._told.get(place) == one.value:
                    continue
                self._told[place] = one.value
            action = action_of(one, stamp(observation.wall_seconds), owners.get(one.path, ""), self.dry)
            self.acts.append(act_of(action, self.node.name))

    def _evict(self, machine: SimulatedNode, observation: Observation, decided: TickDecision, rate: Rate) -> None:
        pods = {pod.spec.uid: pod.spec for pod in observation.pods}
        chosen = admitted(decided.evictions, pods, self._asked, observation.at_seconds, rate)
        self._asked = chosen.asked
        for eviction in chosen.now:
            key = f"{eviction.namespace}/{eviction.name}"
            outcome = "would-ask" if self.dry else "asked"
            action = ActionRecord(
                stamp(observation.wall_seconds),
                "evict",
                key,
                outcome,
                eviction.strategy,
                eviction.why,
                pod=key,
                dry_run=self.dry,
            )
            self.acts.append(act_of(action, self.node.name))
            if not self.dry:
                machine.dismiss(eviction.name, observation.at_seconds)

    # --- what everybody wants ----------------------------------------------------------------------------------------
    def _demand(self, cores: int) -> Iterator[SecondDemand]:
        """Online load rises to the top and falls; one service alone runs into its limit; batch wants all it asked."""
        online = [actor for actor in self.cast if actor.online]
        batch = [actor for actor in self.cast if not actor.online]
        capacity = float(MILLICORES_PER_CORE * cores)
        shape = hill(self.script)
        load = capacity * (0.24 + (self.script.high - 0.24) * shape)
        load *= 1 + 0.01 * self.random.standard_normal(len(shape))
        top = shape > 0.5
        busiest, noisy = online[0], batch[0]
        for second in range(self.script.seconds):
            millicores = shares(float(load[second]), online)
            if top[second] and second % 240 < 100:
                millicores[busiest.name] = 1.4 * busiest.limit_millicores
            millicores |= {actor.name: 1.0 * actor.request_millicores for actor in batch}
            cycles = NORMAL_CYCLES * (1 + 0.03 * float(self.random.standard_normal()))
            if not self.script.disturbs:
                yield SecondDemand(millicores, 0.02 * capacity, quiet_cycles=cycles)
                continue
            calm = QUIET_SHARE if second < RISE_FROM_SECONDS else 1.0
            millicores |= {actor.name: calm * actor.request_millicores for actor in batch}
            millicores[noisy.name] = float(noisy.request_millicores * (second >= NOISY_FROM_SECONDS))
            slows = self.script.disturbs * MILLICORES_PER_CORE / noisy.request_millicores
            yield SecondDemand(millicores, 0.02 * capacity, noisy.name, {busiest.name: slows}, cycles)


def hill(script: Script) -> npt.NDArray[np.float64]:
    """0, a rise from the second minute on, 1 for so long, a fall, 0 again: a value a second of the script."""
    at = np.arange(script.seconds, dtype=np.float64)
    end = script.seconds - QUIET_SECONDS
    up, down = (at - RISE_FROM_SECONDS) / RISE_SECONDS, (end - at) / RISE_SECONDS
    shape: npt.NDArray[np.float64] = np.clip(np.minimum(up, down), 0.0, 1.0)
    return shape
