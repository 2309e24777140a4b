"""Random days of a cluster under quotas: pods come, are resized and go, nodes and quotas change, rounds are decided.

The cluster keeps its own plain sums. After each round: nobody was let go beyond what its quota may use, what quotas may
use is never more than there is, nobody waits who fits, and every sentence's figures are the cluster's.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from cotenant.base.kubernetes.protocol import QUOTA_GATE, ROOT_QUOTA
from cotenant.base.kubernetes.quota_tree import QuotaNode, amounts_of
from cotenant.scheduler_ext.queues.model.gang import Gang
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.quota_admission import QuotaAdmission, quota_admission
from cotenant.scheduler_ext.queues.view import QueueNode, QueueView

RESOURCES = ("cpu", "memory")
FIGURES = re.compile(r"(\w+): (\S+) used \+ (\S+) <= (\S+) (?:runtime|max)")


@dataclass
class World:
    """A cluster. flat: all quotas hang right under the root."""

    rng: random.Random
    settings: QueueSettings
    flat: bool
    quotas: dict[str, QuotaNode] = field(default_factory=dict)
    nodes: dict[str, QueueNode] = field(default_factory=dict)
    pods: dict[str, QueuePod] = field(default_factory=dict)
    gangs: dict[str, Gang] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    count: int = 0

    def act(self) -> None:
        """One thing happens."""
        rng = self.rng
        match rng.choice(["pod", "pod", "pod", "gang", "delete", "resize", "node", "lost node", "quota", "mirror"]):
            case "pod":
                self.create()
            case "gang":
                self.create_gang()
            case "delete" if self.pods:
                self.pods.pop(rng.choice(sorted(self.pods)))
            case "resize" if self.pods:
                name = rng.choice(sorted(self.pods))
                self.pods[name] = replace(self.pods[name], requests=self.amounts(6))
            case "node":
                name = f"n{len(self.nodes)}"
                self.nodes[name] = QueueNode(name, {**self.amounts(20), "pods": 100})
            case "lost node" if len(self.nodes) > 1:
                self.nodes.pop(rng.choice(sorted(self.nodes)))
            case "quota":
                self.set_quota(rng.choice(sorted(self.quotas)))
            case "mirror":
                self.show()

    def amounts(self, most: int) -> dict[str, int]:
        return {r: self.rng.randint(0, most) for r in RESOURCES if self.rng.random() < 0.9}

    def set_quota(self, name: str) -> None:
        """Other figures at the same place of the tree."""
        rng = self.rng
        maximum = {r: rng.randint(1, 40) for r in RESOURCES}
        minimum = {r: rng.randint(0, m // 2) for r, m in maximum.items() if rng.random() < 0.7}
        if name in self.quotas:
            parent = self.quotas[name].parent
        else:
            parent = ROOT_QUOTA if self.flat else rng.choice([ROOT_QUOTA, *self.quotas])
        weight = {r: rng.randint(1, 5) for r in RESOURCES} if rng.random() < 0.5 else {}
        self.quotas[name] = QuotaNode(
            name,
            parent=parent,
            minimum=minimum,
            maximum=maximum,
            shared_weight=weight,
            lends=rng.random() < 0.8,
        )

    def leaves(self) -> list[str]:
        parents = {q.parent for q in self.quotas.values()}
        return sorted(set(self.quotas) - parents)

    def create(self, gang: str = "", quota: str = "") -> None:
        """A pod behind the gate of a leaf's quota; one in ten of no quota, and running."""
        self.count += 1
        name, rng = f"p{self.count}", self.rng
        quota = quota or ("" if rng.random() < 0.1 else rng.choice(self.leaves()))
        self.pods[name] = QueuePod(
            "shop",
            name,
            name,
            gates=(QUOTA_GATE,) if quota else (),
            node="" if quota else "n0",
            requests=self.amounts(8),
            priority=rng.randint(0, 2),
            preemptible=rng.random() < 0.9,
            created_seconds=float(self.count),
            quota=quota,
            gang=gang,
        )

    def create_gang(self) -> None:
        key, needed = f"shop/g{self.count}", self.rng.randint(1, 3)
        self.gangs[key] = Gang("shop", key.partition("/")[2], needed, needed)
        quota = self.rng.choice(self.leaves())
        for _ in range(self.rng.randint(1, needed + 1)):
            self.create(key, quota)

    def show(self) -> None:
        """The mirror catches up with the gates that answers took away."""
        for uid in self.released & self.pods.keys():
            self.pods[uid] = replace(self.pods[uid], gates=())
        self.released.clear()

    def view(self) -> QueueView:
        pods = list(self.pods.values())
        self.rng.shuffle(pods)
        quotas = list(self.quotas.items())
        self.rng.shuffle(quotas)
        return QueueView(
            100.0,
            dict(quotas),
            gangs=self.gangs,
            pods=tuple(pods),
            nodes=tuple(self.nodes.values()),
            released=frozenset(self.released),
        )

    def below(self, name: str) -> set[str]:
        """A quota and all below it."""
        return {name}.union(*(self.below(q.name) for q in self.quotas.values() if q.parent == name))

    def used(self, name: str, resource: str, *, firm: bool = False) -> int:
        quotas = self.below(name)
        return sum(
            p.requests.get(resource, 0)
            for p in self.pods.values()
            if p.quota in quotas and (not p.gates or p.uid in self.released) and not (firm and p.preemptible)
        )

    def total(self, resource: str) -> int:
        plain = sum(p.requests.get(resource, 0) for p in self.pods.values() if not p.quota)
        return max(0, sum(n.allocatable.get(resource, 0) for n in self.nodes.values()) - plain)


def judge_sums(cluster: World, admission: QuotaAdmission) -> None:
    """What quotas may use is never more than there is, at no parent."""
    for resource in RESOURCES:
        for parent in [ROOT_QUOTA, *cluster.quotas]:
            pool = cluster.total(resource) if parent == ROOT_QUOTA else admission.uses[parent].limit[resource]
            shares = [admission.uses[q.name].limit[resource] for q in cluster.quotas.values() if q.parent == parent]
            assert sum(shares) <= pool, (parent, resource)


def judge_let_go(cluster: World, admission: QuotaAdmission) -> None:
    """Nobody was let go beyond its quota's runtime, min or parents, and each sentence's figures are the cluster's."""
    before: set[str] = set()
    for admitted_pod in admission.admitted_pods:
        if admitted_pod.why not in before:
            before.add(admitted_pod.why)
            for resource, *figures in FIGURES.findall(admitted_pod.why):
                used, requested, limit = (amounts_of({resource: text}, "why")[resource] for text in figures)
                assert used == cluster.used(admitted_pod.pod.quota, resource) and used + requested <= limit
                together = [p for p in admission.admitted_pods if p.why == admitted_pod.why]
                assert requested == sum(p.pod.requests.get(resource, 0) for p in together)
            cluster.released |= {p.pod.uid for p in admission.admitted_pods if p.why == admitted_pod.why}
    for admitted_pod in admission.admitted_pods:
        quota = cluster.quotas[admitted_pod.pod.quota]
        for resource in [r for r, amount in admitted_pod.pod.requests.items() if amount]:
            names = [quota.name]
            while cluster.settings.check_parents and cluster.quotas[names[-1]].parent != ROOT_QUOTA:
                names.append(cluster.quotas[names[-1]].parent)
            for name in names:
                assert cluster.used(name, resource) <= admission.uses[name].limit[resource], (admitted_pod.why, name)
            if not admitted_pod.pod.preemptible and resource in quota.minimum:
                assert cluster.used(quota.name, resource, firm=True) <= quota.minimum[resource]


def judge_waiting(cluster: World, admission: QuotaAdmission) -> None:
    """Nobody waits who fits; what is said to be missing is missing."""
    for waiting_pod in admission.waiting_pods:
        name, resource = waiting_pod.obstacle.quota, waiting_pod.obstacle.resource
        if waiting_pod.obstacle.code in ("quota-exceeded", "parent-quota-exceeded"):
            assert waiting_pod.obstacle.missing > 0, waiting_pod
            together = [
                p
                for p in admission.waiting_pods
                if p.position == waiting_pod.position and p.pod.quota == waiting_pod.pod.quota
            ]
            requested = sum(p.pod.requests.get(resource, 0) for p in together)
            needed = cluster.used(name, resource) + requested - admission.uses[name].limit[resource]
            assert waiting_pod.obstacle.missing == needed
        if waiting_pod.obstacle.code == "quota-exceeded" and cluster.flat and cluster.settings.runtime:
            assert not idle_for(cluster, admission, waiting_pod.pod.quota, waiting_pod.position), waiting_pod


def idle_for(cluster: World, admission: QuotaAdmission, name: str, position: int) -> bool:
    """Whether what others neither use nor are guaranteed would do for the unit of a quota, with all that it uses."""
    if any(h.pod.quota == name and h.position < position for h in admission.waiting_pods):
        return False
    unit = [h.pod for h in admission.waiting_pods if h.pod.quota == name and h.position == position]
    for resource in RESOURCES:
        needed = cluster.used(name, resource) + sum(p.requests.get(resource, 0) for p in unit)
        minima = sum(q.minimum.get(resource, 0) for q in cluster.quotas.values())
        others = sum(modest(cluster, admission, q, resource) for q in cluster.quotas if q != name)
        if needed > cluster.quotas[name].maximum[resource] or others + needed > cluster.total(resource):
            return False
        if minima > cluster.total(resource):
            return False
    return True


def modest(cluster: World, admission: QuotaAdmission, name: str, resource: str) -> int:
    """What a quota uses or is guaranteed."""
    quota = cluster.quotas[name]
    least, used = quota.minimum.get(resource, 0), cluster.used(name, resource)
    waiting = sum(h.pod.requests.get(resource, 0) for h in admission.waiting_pods if h.pod.quota == name)
    return max(used, min(used + waiting, least) if quota.lends else least)


def days(seeds: range) -> Iterator[tuple[int, World]]:
    for seed in seeds:
        rng = random.Random(seed)
        settings = QueueSettings(check_parents=rng.random() < 0.5, min_scaling=rng.random() < 0.9)
        cluster = World(rng, settings, flat=rng.random() < 0.5)
        for i in range(rng.randint(1, 6)):
            cluster.set_quota(f"q{i}")
        cluster.nodes["n0"] = QueueNode("n0", {**{r: rng.randint(5, 60) for r in RESOURCES}, "pods": 100})
        yield seed, cluster


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds", [range(120), pytest.param(range(120, 10_000), marks=pytest.mark.soak)], ids=["small", "full"]
)
def test_no_round_of_a_random_day_lets_go_too_much_or_too_little(seeds: range) -> None:
    admitted_pods = waiting = 0
    for seed, cluster in days(seeds):
        for step in range(8):
            for _ in range(cluster.rng.randint(1, 4)):
                cluster.act()
            admission = quota_admission(cluster.view(), cluster.settings)
            try:
                judge_let_go(cluster, admission)
                judge_sums(cluster, admission)
                judge_waiting(cluster, admission)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, step {step}: {error}") from error
            admitted_pods, waiting = admitted_pods + len(admission.admitted_pods), waiting + len(admission.waiting_pods)
    assert admitted_pods > 4 * len(seeds) and waiting > 4 * len(seeds), "the days are busy"
