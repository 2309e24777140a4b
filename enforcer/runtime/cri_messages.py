"""How a decision, or a hook server's answer, is merged into a CRI request; and CRI's messages as facts. Pure.

Fields without a wanted value stay as the kubelet sent them, also unknown ones. 0 and "" mean "not set" in CRI: a new
container then has no limit, and an update leaves the value unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.enforcer.contract import NO_LIMIT
from cotenant.enforcer.decide.container_resources import ContainerSettings
from cotenant.enforcer.runtime.facts import RuntimePod
from cotenant.enforcer.runtime.messages import cri, hook

PERIOD_MICROSECONDS: Final = 100_000
_NUMBERS: Final = (
    "cpu_period",
    "cpu_quota",
    "cpu_shares",
    "memory_limit_in_bytes",
    "oom_score_adj",
    "memory_swap_limit_in_bytes",
)
_TEXTS: Final = ("cpuset_cpus", "cpuset_mems")


def facts_of_config(sandbox_id: str, config: Any) -> RuntimePod:
    """Return the pod in the SandboxConfig that the kubelet sends with RunPodSandbox and CreateContainer."""
    return _facts(sandbox_id, config, config.linux.cgroup_parent)


def facts_of_listed(sandbox: Any) -> RuntimePod:
    """Return a pod from the runtime's list of sandboxes, which does not have the path of the pod's cgroup."""
    return _facts(sandbox.id, sandbox, "")


def _facts(sandbox_id: str, message: Any, cgroup_parent: str) -> RuntimePod:
    return RuntimePod(
        id=sandbox_id,
        namespace=message.metadata.namespace,
        name=message.metadata.name,
        uid=message.metadata.uid,
        labels=dict(message.labels),
        annotations=dict(message.annotations),
        cgroup_parent=cgroup_parent,
        attempt=message.metadata.attempt,
    )


class _Linux(msgspec.Struct, frozen=True):
    cgroup_parent: str = ""


class _Config(msgspec.Struct, frozen=True):
    linux: _Linux = _Linux()


class _Info(msgspec.Struct, frozen=True):
    config: _Config = _Config()


def cgroup_parent_of(info: str) -> str:
    """Return the pod's cgroup from containerd's verbose sandbox status; "" if it is missing."""
    try:
        return msgspec.json.decode(info or "{}", type=_Info).config.linux.cgroup_parent
    except UNDECODABLE:
        return ""


def lay_over(resources: Any, decision: ContainerSettings) -> bool:
    """Merge the decision into CRI's Resources; return whether anything was changed.

    A decision to remove a limit writes -1, and only where `resources` sets a limit (above 0).
    """
    before = resources.SerializeToString(deterministic=True)
    if decision.cpu_shares is not None:
        resources.cpu_shares = decision.cpu_shares
    if _limits(decision.cpu_quota, resources.cpu_quota):
        resources.cpu_quota = decision.cpu_quota
        resources.cpu_period = resources.cpu_period if decision.cpu_quota == NO_LIMIT else PERIOD_MICROSECONDS
    if _limits(decision.memory_limit, resources.memory_limit_in_bytes):
        resources.memory_limit_in_bytes = decision.memory_limit
    if decision.cpuset_cpus:
        resources.cpuset_cpus = decision.cpuset_cpus
    return bool(before != resources.SerializeToString(deterministic=True))


def _limits(decided: int | None, requested: int) -> bool:
    return decided is not None and (decided != NO_LIMIT or requested > 0)


def merge_resources(resources: Any, answer: Any) -> None:
    """Merge a hook server's resources into the request's: each field that is not zero, and `unified` by key."""
    for name in (*_NUMBERS, *_TEXTS):
        if answered := getattr(answer, name):
            setattr(resources, name, answered)
    for key, value in answer.unified.items():
        resources.unified[key] = value


def merge_texts(target: Any, answer: Mapping[str, str]) -> None:
    """Merge labels or annotations into `target` by key."""
    for key, value in answer.items():
        target[key] = value


def merge_environment(variables: Any, answer: Mapping[str, str]) -> None:
    """Merge environment variables into `variables`; one of the same name is replaced: a process sees only the last."""
    remaining = dict(answer)
    for variable in variables:
        if variable.key in remaining:
            variable.value = remaining.pop(variable.key)
    for key in sorted(remaining):
        variables.append(cri.KeyValue(key=key, value=remaining[key]))


def for_hook(resources: Any) -> Any:
    """Return CRI's Resources as the hook protocol's message, which has the same field numbers."""
    return hook.Resources.FromString(resources.SerializeToString())


def sandbox_hook_request(facts: RuntimePod, linux: Any = None) -> Any:
    """Return the request to hook servers about a sandbox; `linux` is RunPodSandbox's Linux configuration."""
    request = hook.SandboxRequest(
        pod_meta=_pod_meta(facts),
        runtime_handler=facts.runtime_handler,
        labels=dict(facts.labels),
        annotations=dict(facts.annotations),
        cgroup_parent=facts.cgroup_parent,
    )
    if linux is not None:
        request.overhead.CopyFrom(for_hook(linux.overhead))
        request.resources.CopyFrom(for_hook(linux.resources))
    return request


def container_hook_request(facts: RuntimePod, name: str, container_id: str = "", resources: Any = None) -> Any:
    """Return the request to hook servers about a container."""
    request = hook.ContainerRequest(
        pod_meta=_pod_meta(facts),
        container_meta=hook.ContainerMetadata(name=name, id=container_id),
        pod_annotations=dict(facts.annotations),
        pod_labels=dict(facts.labels),
        pod_cgroup_parent=facts.cgroup_parent,
    )
    if resources is not None:
        request.container_resources.CopyFrom(for_hook(resources))
    return request


def _pod_meta(facts: RuntimePod) -> Any:
    return hook.PodMetadata(name=facts.name, uid=facts.uid, namespace=facts.namespace, attempt=facts.attempt)
