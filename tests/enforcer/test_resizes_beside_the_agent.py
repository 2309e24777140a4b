"""A kubelet resizes pods of every shape beside every strategy: the kernel refuses none of its writes because of ours.

What the kernel refuses: a quota below what may be saved up (EINVAL on cgroup v1 and v2), shares of an idle cgroup
(both), on cgroup v1 a container's quota above its pod's, or a pod's below a container's. The kubelet (1.35,
`doPodResizeAction`) writes what grows on the pod first, then containers, then what shrinks on the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from cotenant.enforcer.contract import NO_LIMIT, CgroupPath, Knob, Value
from cotenant.enforcer.decide.knobs import Dialect
from cotenant.enforcer.decide.write_order import wider
from tests.enforcer.pod_matrix import MIB, Amounts, Container, PodPlan, after, kubelet_values, plans, requested
from tests.enforcer.test_pod_matrix import EVERYTHING, NORMALISING, RATIO, Agent, Node, changed
from tests.enforcer.v1_kernel import V1, V2

YIELDING: dict[str, Any] = {"resourceQOSStrategy": {"beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}}}}
"""Pods labelled BE that Kubernetes calls Burstable or Guaranteed are idle."""


@cache
def resized() -> tuple[PodPlan, ...]:
    """Pods with a resize that the kubelet carries out: some labelled BE, some of these with a batch container too.

    Its batch CPU is what the kubelet will count for the pod: then both give the pod the same weight.
    """
    kinds_resized = []
    for number, plan in enumerate(p for p in plans(seed=53, count=110) if p.resize == "InProgress"):
        batch = Container("batch", "main", Amounts(batch=(requested(after(plan)), 32 * MIB)))
        kinds = plan, replace(plan, qos="BE"), replace(plan, qos="BE", containers=(*plan.containers, batch))
        kinds_resized.append(kinds[number % 3])
    return tuple(kinds_resized)


def before(plan: PodPlan) -> PodPlan:
    return replace(plan, resize="", containers=tuple(replace(c, after_resize=None) for c in plan.containers))


class Kubelet:
    """Writes as the kernel takes them; `refused` has what it did not take. between: called after each write."""

    def __init__(self, node: Node, dialect: Dialect, between: Callable[[], None]) -> None:
        self.node, self.nested, self.between, self.refused = node, dialect is V1, between, list[str]()

    def carry_out(self, plan: PodPlan) -> None:
        paths, old, new = self.node.paths(plan), kubelet_values(plan), kubelet_values(after(plan))
        pod, containers = paths[""], {name: path for name, path in paths.items() if name}
        if wider(new[""].quota, old[""].quota):
            self.write(pod, Knob.CPU_QUOTA, new[""].quota)
        for name, path in containers.items():
            if new[name] != old[name]:
                self.write(path, Knob.CPU_SHARES, new[name].shares)
                self.write(path, Knob.CPU_QUOTA, new[name].quota)
        self.write(pod, Knob.CPU_SHARES, new[""].shares)
        self.write(pod, Knob.CPU_QUOTA, new[""].quota)

    def write(self, path: CgroupPath, knob: Knob, value: Value) -> None:
        mine = self.node.knobs[path]
        why = next(self._objections(path, knob, value, mine), "")
        if why:
            self.refused.append(f"{path} {knob} {value}: {why}")
        else:
            mine[knob] = value
        self.between()

    def _objections(self, path: CgroupPath, knob: Knob, value: Value, mine: dict[Knob, Value]) -> Iterator[str]:
        if knob is Knob.CPU_SHARES and mine[Knob.CPU_IDLE] == 1:
            yield "idle"
        if knob is Knob.CPU_QUOTA and value != NO_LIMIT and wider(mine[Knob.CPU_BURST], value):
            yield f"{mine[Knob.CPU_BURST]} may be saved up"
        if knob is Knob.CPU_QUOTA and self.nested:
            above = self.node.knobs[path.rpartition("/")[0]][Knob.CPU_QUOTA]
            below = [knobs[knob] for p, knobs in self.node.knobs.items() if p.startswith(f"{path}/")]
            if above != NO_LIMIT and wider(value, above):
                yield f"the pod has {above}"
            if value != NO_LIMIT and any(
                child_value != NO_LIMIT and wider(child_value, value) for child_value in below
            ):
                yield f"a container has more: {below}"


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize("throttled", [False, True], ids=["quiet", "throttled"])
@pytest.mark.parametrize("spec", [EVERYTHING, NORMALISING, YIELDING], ids=["burst", "normalisation", "identity"])
@pytest.mark.parametrize("tick_between", [False, True], ids=["at once", "with ticks between"])
def test_the_kernel_takes_every_write_of_a_resize(
    spec: dict[str, Any], throttled: bool, dialect: Dialect, tick_between: bool
) -> None:
    node = Node([before(plan).phase("running") for plan in resized()], dict(RATIO), throttled=throttled)
    agent = Agent(node, spec, dialect=dialect)
    for _ in range(4):
        agent.tick()
    acted = len(changed(node))
    node.pods = [plan.phase("running") for plan in resized()]  # the spec asks for more or less; the kubelet begins
    agent.tick()
    kubelet = Kubelet(node, dialect, agent.tick if tick_between else lambda: None)
    for plan in node.pods:
        kubelet.carry_out(plan)
    assert kubelet.refused == []
    assert acted > len(resized())

    node.pods = [after(plan).phase("running") for plan in resized()]
    node.settle_kubelet()
    for _ in range(3):
        agent.tick()
    assert len(changed(node)) > len(resized())  # it acts again
    agent.tick(on=False)
    assert changed(node) == []


def test_the_resizes_grow_and_shrink_containers_and_native_sidecars() -> None:
    changes = [
        (c.kind, c.after_resize.cpu_limit > c.granted.cpu_limit)
        for p in resized()
        for c in p.containers
        if c.after_resize
    ]
    assert len(changes) > 10 and set(changes) == {
        ("main", False),
        ("main", True),
        ("sidecar", False),
        ("sidecar", True),
    }
