"""Pods of every shape under every strategy: nothing looser than the kubelet's, and the kubelet's values in the end.

The decision as the agent takes it, over cgroups in memory that first have what a kubelet sets (`pod_matrix`); the same
pods on a real kubelet are in tests/node/test_matrix_on_kubelet.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import msgspec
import pytest

from cotenant.base.allocation.cpu_topology import Processor
from cotenant.base.kubernetes.models.pod import NodePodWire
from cotenant.enforcer.contract import (
    NO_LIMIT,
    ContainerReading,
    CpuUse,
    GroupReading,
    Knob,
    KubeQos,
    Level,
    MemoryUse,
    NodeReading,
    Observation,
    PodReading,
    StrategyPlan,
    Value,
)
from cotenant.enforcer.decide.changes import Notes
from cotenant.enforcer.decide.knobs import Dialect
from cotenant.enforcer.decide.kubelet_values import lost_notes
from cotenant.enforcer.decide.loop import Ages, Memory, decide
from cotenant.enforcer.decide.registry import strategies
from cotenant.enforcer.decide.settle import Circumstances, settle
from cotenant.enforcer.decide.write_order import wider
from cotenant.enforcer.observe.layout import Layout
from cotenant.enforcer.settings import EnforcerSettings
from cotenant.enforcer.sources.wire import pod_of
from tests.enforcer.pod_matrix import MIB, PodPlan, kubelet_values, largest_moment, plans
from tests.enforcer.readings import policy
from tests.enforcer.v1_kernel import V1, V2

MEMORY_QOS = {"enable": True, "minLimitPercent": 60, "lowLimitPercent": 70, "throttlingPercent": 80, "oomKillGroup": 1}
CLASS = {"memoryQOS": MEMORY_QOS, "cpuQOS": {"enable": True}}
EVERYTHING: dict[str, Any] = {
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cpuset"},
    "cpuBurstStrategy": {"policy": "auto", "cfsQuotaBurstPercent": 300, "sharePoolThresholdPercent": 90},
    "resourceQOSStrategy": {f"{name}Class": CLASS for name in ("lsr", "ls", "be", "system")},
}
NORMALISING = {**EVERYTHING, "cpuBurstStrategy": {"policy": "none"}}
RATIO = {"node.koordinator.sh/cpu-normalization-ratio": "1.5"}
LAYOUT = Layout()
TIERS = {qos: LAYOUT.tier(qos) for qos in (KubeQos.BURSTABLE, KubeQos.BEST_EFFORT)}
LIMITS = (Knob.CPU_QUOTA, Knob.MEMORY_LIMIT, Knob.MEMORY_HIGH)
FRESH: dict[Knob, Value] = {
    Knob.CPU_SHARES: 1024, Knob.CPU_QUOTA: NO_LIMIT, Knob.CPU_BURST: 0, Knob.CPU_IDLE: 0, Knob.CPUSET_CPUS: "0-7",
    Knob.MEMORY_LIMIT: NO_LIMIT, Knob.MEMORY_HIGH: NO_LIMIT, Knob.MEMORY_MIN: 0, Knob.MEMORY_LOW: 0,
    Knob.MEMORY_OOM_GROUP: 0,
}  # fmt: skip
"""Of a new cgroup on cgroup v2, whose kernel has all of them."""


@cache
def matrix() -> tuple[PodPlan, ...]:
    return tuple(plans(seed=45, count=200))


@dataclass
class Node:
    """Cgroups in memory with one kubelet's pods; `throttled`: every container is, in each tick."""

    pods: list[PodPlan]
    annotations: dict[str, str] = field(default_factory=dict)
    throttled: bool = False
    available: int = 1 << 33
    """MemAvailable, of 16 GiB."""
    memory_qos: bool = False
    """Whether the kubelet sets memory.high and memory.min itself (its feature MemoryQoS)."""
    knobs: dict[str, dict[Knob, Value]] = field(default_factory=dict)
    at: float = 0.0

    def __post_init__(self) -> None:
        self.settle_kubelet()

    def settle_kubelet(self) -> None:
        """The kubelet makes what runs now, as it does at a start, and leaves what is there."""
        kubelet_knobs = {LAYOUT.kubepods(): FRESH, **{path: dict(FRESH) for path in TIERS.values()}}
        kubelet_knobs[TIERS[KubeQos.BEST_EFFORT]] = {**FRESH, Knob.CPU_SHARES: 2}
        for plan in self.pods:
            values = kubelet_values(plan)
            for name, path in self.paths(plan).items():
                mine = values[name]
                amounts = {Knob.CPU_SHARES: mine.shares, Knob.CPU_QUOTA: mine.quota, Knob.MEMORY_LIMIT: mine.memory}
                kubelet_knobs[path] = {**FRESH, **amounts}
                if self.memory_qos and plan.kube_qos == "Burstable":
                    kubelet_knobs[path] |= {Knob.MEMORY_MIN: 20 * MIB, Knob.MEMORY_HIGH: 21 * MIB}
        self.knobs = {path: self.knobs.get(path, dict(knobs)) for path, knobs in kubelet_knobs.items()}
        self.kubelets = {path: dict(knobs) for path, knobs in kubelet_knobs.items()}

    def paths(self, plan: PodPlan) -> dict[str, str]:
        """Of the pod ("") and the containers that run, by name."""
        pod = LAYOUT.pod(plan.uid, KubeQos(plan.kube_qos))
        return {"": pod} | {n: f"{pod}/{LAYOUT.container_name(plan.container_id(n))}" for n in plan.running}

    def observation(self) -> Observation:
        self.at += 1.0
        node = NodeReading(
            "n1", tuple(Processor(i, i) for i in range(8)), 1 << 34, self.available, CpuUse(500.0),
            allocatable={"cpu": 8000, "memory": 1 << 34}, capacity={"cpu": 8000, "memory": 1 << 34},
            annotations=self.annotations, kubelet_static_cpus=False,
        )  # fmt: skip
        tiers = {qos: self._group(path, Level.QOS) for qos, path in TIERS.items()}
        root = self._group(LAYOUT.kubepods(), Level.KUBEPODS)
        return Observation(
            self.at, 1.7e9 + self.at, node, root, {KubeQos.GUARANTEED: root, **tiers},
            tuple(map(self._pod, self.pods)), supported=frozenset(FRESH),
        )  # fmt: skip

    def _pod(self, plan: PodPlan) -> PodReading:
        spec, paths = pod_of(msgspec.convert(plan.shown(), NodePodWire)), self.paths(plan)
        readings = tuple(
            ContainerReading(c, self._group(paths[c.name], Level.CONTAINER) if c.name in paths else None)
            for c in spec.every_container
        )
        return PodReading(spec, self._group(paths[""], Level.POD), readings)

    def _group(self, path: str, level: Level) -> GroupReading:
        knobs = dict(self.knobs[path])
        if knobs[Knob.CPU_IDLE] == 1:
            del knobs[Knob.CPU_SHARES]
        cpu = CpuUse(10.0, 10, 9 if self.throttled and knobs[Knob.CPU_QUOTA] != NO_LIMIT else 0)
        return GroupReading(path, level, cpu, MemoryUse(4 * MIB, 4 * MIB), processes=1, knobs=knobs)

    def take(self, path: str, knob: Knob, value: Value) -> None:
        """As the kernel does."""
        if knob is Knob.CPU_IDLE and self.knobs[path][knob] == 1 and value == 0:
            self.knobs[path][Knob.CPU_SHARES] = 1024
        self.knobs[path][knob] = value


@dataclass
class Agent:
    """The agent's decisions; `notes` is what its journal holds."""

    node: Node
    spec: dict[str, Any]
    notes: Notes = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    dialect: Dialect = V2
    evicted: set[str] = field(default_factory=set)
    """Names of pods that were chosen to leave."""

    def tick(self, on: bool = True) -> None:
        observation = self.node.observation()
        ideas = strategies(EnforcerSettings())
        decided, self.memory = decide(observation, policy(self.spec) if on else None, self.memory, ideas, Ages())
        assert not [v for v in decided.verdicts if v.reason == "StrategyFailed"]
        self.evicted |= {act.name for act in decided.evictions}
        around = Circumstances(self.dialect, not_kubelets=lost_notes(observation))
        settled = settle([StrategyPlan(wants=decided.wants)], observation, self.notes, self.dialect, around)
        for write in settled.writes:
            self.node.take(write.path, write.knob, write.value)
        self.notes = settled.notes

    def killed(self) -> Agent:
        """The next one, with its journal."""
        return Agent(self.node, self.spec, self.notes, dialect=self.dialect)


def looser(node: Node, knobs: Iterable[Knob] = LIMITS) -> list[str]:
    """Values that allow more, or protect less, than the kubelet's."""
    texts = []
    for path, kubelets in node.kubelets.items():
        mine = node.knobs[path]
        texts += [f"{path} {k} {mine[k]} > {kubelets[k]}" for k in knobs if wider(mine[k], kubelets[k])]
        for knob in (Knob.MEMORY_MIN, Knob.MEMORY_LOW):
            texts += [f"{path} {knob} {mine[knob]} < {kubelets[knob]}"] if wider(kubelets[knob], mine[knob]) else []
    return texts


def changed(node: Node) -> list[str]:
    """Values that are not the kubelet's."""
    return [
        f"{path} {knob} {value} for {node.kubelets[path][knob]}"
        for path, knobs in node.knobs.items()
        for knob, value in knobs.items()
        if value != node.kubelets[path][knob]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("memory_qos", [False, True], ids=["plain", "memory-qos"])
@pytest.mark.parametrize("phase", ["init", "running"])
def test_a_new_agent_with_nothing_on_changes_no_value(phase: str, memory_qos: bool) -> None:
    """An empty journal, or one of another boot: what the kubelet has set is no leftover of an agent."""
    node = Node([plan.phase(phase) for plan in matrix()], memory_qos=memory_qos)
    assert lost_notes(node.observation()) == {}
    agent = Agent(node, {}, lost_notes(node.observation()))
    for on in (True, True, False):
        agent.tick(on)
    assert changed(node) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("memory_qos", "dialect"),
    [(False, V1), (False, V2), (True, V2)],  # the kubelet's MemoryQoS needs cgroup v2
    ids=["v1", "v2", "v2-memory-qos"],
)
@pytest.mark.parametrize("spec", [EVERYTHING, NORMALISING], ids=["burst", "normalisation"])
def test_with_every_strategy_on_nothing_is_looser_and_all_comes_back(
    spec: dict[str, Any], memory_qos: bool, dialect: Dialect
) -> None:
    """Through the pods' phases, with a kill of the agent between them."""
    node = Node([p.phase("init") for p in matrix()], dict(RATIO), memory_qos=memory_qos)
    agent = Agent(node, spec, lost_notes(node.observation()), dialect=dialect)
    for phase in ("init", "running", "running"):
        node.pods = [plan.phase(phase) for plan in matrix()]
        node.settle_kubelet()
        for _ in range(3):
            agent.tick()
            assert looser(node) == []
        agent = agent.killed()
    assert len(changed(node)) > len(matrix())  # it did act
    agent.tick(on=False)
    assert changed(node) == []


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [V1, V2], ids=["v1", "v2"])
def test_a_burst_stays_within_what_the_policy_makes_of_the_granted_limit_and_comes_back(dialect: Dialect) -> None:
    """cfsQuotaBurstPercent 300: at most three times what the kubelet set, on containers and on their pod."""
    sharing = [plan.phase("running") for plan in matrix() if plan.qos not in ("LSE", "LSR")]  # those leave no CPU
    node = Node(sharing, throttled=True)
    agent = Agent(node, EVERYTHING, dialect=dialect)
    for _ in range(12):
        agent.tick()
        for path, kubelets in node.kubelets.items():
            quota, granted = node.knobs[path][Knob.CPU_QUOTA], kubelets[Knob.CPU_QUOTA]
            assert isinstance(quota, int) and isinstance(granted, int)
            assert not wider(quota, NO_LIMIT if granted == NO_LIMIT else 3 * granted), path
    assert len([text for text in looser(node) if "cpu.quota" in text]) > 50
    agent = agent.killed()
    agent.tick()
    agent.tick(on=False)
    assert changed(node) == []


def test_a_best_effort_pod_is_never_held_below_what_its_containers_may_use_at_once() -> None:
    """Memory limit and quota of each batch pod: the largest moment of its batch limits, or none."""
    node = Node([p.phase("running") for p in matrix()])
    agent = Agent(node, EVERYTHING)
    agent.tick()
    limited_count = 0
    batch = (p for p in matrix() if p.qos == "BE" and any(c.granted.batch[0] for c in p.containers))
    for plan in (p for p in batch if p.kube_qos == "BestEffort"):
        path, each = node.paths(plan)[""], plan.of("main", "sidecar", "init")
        limited = all(c.granted.batch[0] for c in each)
        # millicores * 100 us; one container without a batch limit leaves the pod without
        quota = largest_moment(plan, lambda a: a.batch[0]) * 100 if limited else NO_LIMIT
        memory = largest_moment(plan, lambda a: a.batch[1]) if limited else NO_LIMIT
        assert (node.knobs[path][Knob.CPU_QUOTA], node.knobs[path][Knob.MEMORY_LIMIT]) == (quota, memory), plan
        limited_count += limited
    assert limited_count >= 5


def test_normalisation_divides_what_the_kubelet_has_granted() -> None:
    node = Node([p.phase("running") for p in matrix()], dict(RATIO))
    Agent(node, NORMALISING).tick()
    divided = 0
    for plan in (p for p in matrix() if p.qos in ("LS", "") and p.kube_qos != "BestEffort"):
        values = kubelet_values(plan)
        for name, path in node.paths(plan).items():
            ephemeral = any(c.name == name and c.kind == "ephemeral" for c in plan.containers)
            granted = values[name].quota
            # ceil(limit / 1.5), whole thousandths of a core, at least 1 ms
            value = max(-(-granted * 2 // 3) // 100 * 100, 1000)
            expected = granted if granted == NO_LIMIT or ephemeral else value
            assert node.knobs[path][Knob.CPU_QUOTA] == expected, (plan, name)
            divided += expected != granted
    assert divided > 30


def test_a_node_without_memory_loses_best_effort_pods_alone_and_no_value_is_looser() -> None:
    """15 of 16 GiB are used, and the threshold is 70 %."""
    node = Node([p.phase("running") for p in matrix()], available=1 << 30)
    agent = Agent(node, EVERYTHING)
    for _ in range(4):
        agent.tick()
        node.at += 30  # beyond the cool-down
        assert looser(node) == []
    by_name = {plan.name: plan for plan in matrix()}
    assert agent.evicted and {by_name[name].qos for name in agent.evicted} == {"BE"}
    agent.tick(on=False)
    assert changed(node) == []


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize("throttled", [False, True])
def test_a_kubelet_that_limits_no_cpu_keeps_it_so(throttled: bool, dialect: Dialect) -> None:
    """--cpu-cfs-quota=false: no quota stands anywhere, and none is made of limits but of best effort's own."""
    node = Node([p.phase("running") for p in matrix()], dict(RATIO), throttled=throttled)
    for values in (*node.knobs.values(), *node.kubelets.values()):
        values[Knob.CPU_QUOTA] = NO_LIMIT
    agent = Agent(node, EVERYTHING, lost_notes(node.observation()), dialect=dialect)
    for spec in (EVERYTHING, NORMALISING):
        agent.spec = spec
        agent.tick()
        agent.tick()
        texts = [p for p, knobs in node.knobs.items() if knobs[Knob.CPU_QUOTA] != NO_LIMIT]
        best_effort = [path for p in matrix() if p.qos == "BE" for path in node.paths(p.phase("running")).values()]
        assert set(texts) <= {*best_effort, *TIERS.values()}
    agent.tick(on=False)
    assert changed(node) == []


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize("knob", [Knob.CPU_QUOTA, Knob.MEMORY_LIMIT])
def test_a_stricter_value_of_somebody_else_is_not_loosened(knob: Knob, dialect: Dialect) -> None:
    """A quarter of what the kubelet had granted, by an operator's hand: no strategy takes it away."""
    node = Node([p.phase("running") for p in matrix() if p.qos != "BE"], dict(RATIO))
    for path, knobs in node.knobs.items():
        value, unit = knobs[knob], 100 if knob is Knob.CPU_QUOTA else 4096  # as the kernel rounds
        if isinstance(value, int) and value > 4000 and path.count("pod") > 1:
            knobs[knob] = node.kubelets[path][knob] = value // 4 // unit * unit
    agent = Agent(node, NORMALISING, lost_notes(node.observation()), dialect=dialect)
    for _ in range(3):
        agent.tick()
        assert looser(node, (knob,)) == []
    agent.tick(on=False)
    assert changed(node) == []


def test_what_a_journal_that_was_lost_had_noted_is_given_back_where_only_an_agent_can_have_set_it() -> None:
    node = Node([p.phase("running") for p in matrix()])
    agent = Agent(node, EVERYTHING)
    agent.tick()
    other = Agent(node, EVERYTHING, lost_notes(node.observation()))
    other.tick(on=False)
    assert looser(node) == []
    best_effort = [p for p in matrix() if p.kube_qos == "BestEffort"]
    paths = {path for plan in best_effort for path in node.paths(plan).values()} | {TIERS[KubeQos.BEST_EFFORT]}
    of_cpu_and_limit = [text for text in changed(node) if not text.split()[1].startswith(("memory.min", "memory.low"))]
    unexplained = [text for text in of_cpu_and_limit if text.split()[0] in paths and "oom.group" not in text]
    assert unexplained == []


def test_the_matrix_has_every_kind() -> None:
    pods = matrix()
    assert {p.qos for p in pods} == {"LSE", "LSR", "LS", "SYSTEM", "BE", ""}
    assert {p.kube_qos for p in pods} == {"Guaranteed", "Burstable", "BestEffort"}
    assert {p.resize for p in pods} == {"", "Infeasible", "Deferred", "InProgress"}
    assert {c.kind for p in pods for c in p.containers} == {"main", "sidecar", "init", "ephemeral"}
    assert {bool(p.own) for p in pods} == {True, False} and {any(p.overhead) for p in pods} == {True, False}
    assert replace(pods[0]) == next(plans(seed=45, count=1))
