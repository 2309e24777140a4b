"""The answers to NRI messages: the decision as adjustment of a new container, or as update of an existing one. Pure.

NO_LIMIT is sent only if the container has a limit: else nothing needs to change, and an empty answer cannot fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from cotenant.enforcer.contract import NO_LIMIT, ContainerSpec
from cotenant.enforcer.decide.container_resources import LEAVE, ContainerSettings
from cotenant.enforcer.dra.claim import device_environment, keys_in
from cotenant.enforcer.runtime.facts import Decide, RuntimePod, pod_spec
from cotenant.enforcer.runtime.messages import nri

PERIOD_MICROSECONDS: Final = 100_000
CREATED, PAUSED, RUNNING = 1, 2, 3
"""States of a container whose resources can be changed."""


def facts_of(pod: Any) -> RuntimePod:
    """Convert a pod of an NRI message to a RuntimePod."""
    return RuntimePod(
        id=pod.id,
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        labels=dict(pod.labels),
        annotations=dict(pod.annotations),
        cgroup_parent=pod.linux.cgroup_parent,
    )


def answer_creation(request: Any, decide: Decide) -> Any:
    """Return the answer to CreateContainer; it is empty if nothing must be changed."""
    answer = nri.CreateContainerResponse()
    facts = facts_of(request.pod)
    decision = decide(pod_spec(facts), _spec(request.container), facts.cgroup_parent)
    changes = changes_to(request.container.linux.resources, decision)
    if changes is not None:
        answer.adjust.linux.resources.CopyFrom(changes)
    for key, value in device_environment(facts.labels, facts.annotations).items():
        if f"{key}={value}" not in request.container.env:  # two plugins may not set one variable
            answer.adjust.env.add(key=key, value=value)
    return answer


def answer_update(request: Any, decide: Decide) -> Any:
    """Return the answer to UpdateContainer: the caller's values, changed by the decision."""
    answer = nri.UpdateContainerResponse()
    decision = _resources_of(facts_of(request.pod), request.container, decide)
    changes = changes_to(request.resources, decision)
    if changes is not None:
        _add_update(answer, request.container.id, changes)
    return answer


def answer_synchronize(pods: Iterable[Any], containers: Iterable[Any], decide: Decide) -> Any:
    """Return the answer to the last Synchronize: an update of every container that differs from its decision."""
    answer = nri.SynchronizeResponse()
    facts_by_sandbox = {pod.id: facts_of(pod) for pod in pods}
    for container in (c for c in containers if c.state in (CREATED, PAUSED, RUNNING)):
        facts = facts_by_sandbox.get(container.pod_id)
        decision = _resources_of(facts, container, decide) if facts is not None else LEAVE
        changes = changes_to(container.linux.resources, decision)
        if changes is not None:
            _add_update(answer, container.id, changes)
    return answer


def changes_to(current: Any, decision: ContainerSettings) -> Any | None:
    """Return NRI's Resources with only the fields that the decision changes; None if it changes no field."""
    changes = nri.Resources()
    if decision.cpu_shares is not None and current.cpu.shares.value != decision.cpu_shares:
        changes.cpu.shares.value = decision.cpu_shares
    if _differs(current.cpu.quota.value, decision.cpu_quota):
        changes.cpu.quota.value = decision.cpu_quota
        if decision.cpu_quota != NO_LIMIT:
            changes.cpu.period.value = PERIOD_MICROSECONDS
    if _differs(current.memory.limit.value, decision.memory_limit):
        changes.memory.limit.value = decision.memory_limit
    if decision.cpuset_cpus and current.cpu.cpus != decision.cpuset_cpus:
        changes.cpu.cpus = decision.cpuset_cpus
    return changes if changes.ByteSize() else None


def _differs(current: int, decided: int | None) -> bool:
    """Return whether the values differ; 0 means "not set", which for a new container is no limit."""
    return decided is not None and (max(current, 0) if decided == NO_LIMIT else current) != max(decided, 0)


def _resources_of(facts: RuntimePod, container: Any, decide: Decide) -> ContainerSettings:
    return decide(pod_spec(facts), _spec(container, container.id), facts.cgroup_parent)


def _spec(container: Any, container_id: str = "") -> ContainerSpec:
    return ContainerSpec(container.name, container_id, claims=keys_in(container.env))


def _add_update(answer: Any, container_id: str, changes: Any) -> None:
    update = answer.updates.add(container_id=container_id, ignore_failure=True)
    update.linux.resources.CopyFrom(changes)
