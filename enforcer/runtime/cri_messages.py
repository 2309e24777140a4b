"""How a decision, or a hook server's answer, is laid over a CRI request; and CRI's messages as facts. Pure.

Fields that nobody wants otherwise stay as the kubelet sent them, those that we do not know among them. 0 and "" mean
"not said" in CRI: for a new container there is no limit then, for an update the value stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from enforcer.container_resources import ContainerResources
from enforcer.contract import NO_LIMIT
from enforcer.runtime.facts import PodFacts
from enforcer.runtime.messages import cri, hook

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


def facts_of_config(sandbox_id: str, config: Any) -> PodFacts:
    """A pod from the SandboxConfig that the kubelet sends with RunPodSandbox and CreateContainer."""
    return _facts(sandbox_id, config, config.linux.cgroup_parent)


def facts_of_listed(sandbox: Any) -> PodFacts:
    """A pod from the runtime's list, which does not say where its cgroup is."""
    return _facts(sandbox.id, sandbox, "")


def _facts(sandbox_id: str, message: Any, cgroup_parent: str) -> PodFacts:
    return PodFacts(
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
    """The pod's cgroup in what containerd adds to a verbose sandbox status; "" when it does not say."""
    try:
        return msgspec.json.decode(info or "{}", type=_Info).config.linux.cgroup_parent
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return ""


def lay_over(resources: Any, wanted: ContainerResources) -> bool:
    """Put the decision into CRI's Resources; whether it changed something.

    A limit is taken away (-1) only where the request sets one: what has none needs no change.
    """
    before = resources.SerializeToString(deterministic=True)
    if wanted.cpu_shares is not None:
        resources.cpu_shares = wanted.cpu_shares
    if _limits(wanted.cpu_quota, resources.cpu_quota):
        resources.cpu_quota = wanted.cpu_quota
        resources.cpu_period = resources.cpu_period if wanted.cpu_quota == NO_LIMIT else PERIOD_MICROSECONDS
    if _limits(wanted.memory_limit, resources.memory_limit_in_bytes):
        resources.memory_limit_in_bytes = wanted.memory_limit
    if wanted.cpuset_cpus:
        resources.cpuset_cpus = wanted.cpuset_cpus
    return bool(before != resources.SerializeToString(deterministic=True))


def _limits(wanted: int | None, asked: int) -> bool:
    return wanted is not None and (wanted != NO_LIMIT or asked > 0)


def merge_resources(resources: Any, answer: Any) -> None:
    """Lay a hook server's resources over the request's: field by field where they are not zero, `unified` by key."""
    for name in (*_NUMBERS, *_TEXTS):
        if found := getattr(answer, name):
            setattr(resources, name, found)
    for key, value in answer.unified.items():
        resources.unified[key] = value


def merge_texts(target: Any, answer: Mapping[str, str]) -> None:
    """Labels or annotations by key."""
    for key, value in answer.items():
        target[key] = value


def merge_environment(variables: Any, answer: Mapping[str, str]) -> None:
    """Environment by name: the last of a name is the one a process sees."""
    left = dict(answer)
    for variable in variables:
        if variable.key in left:
            variable.value = left.pop(variable.key)
    for key in sorted(left):
        variables.append(cri.KeyValue(key=key, value=left[key]))


def for_hook(resources: Any) -> Any:
    """CRI's Resources as the hook protocol's, which has the same numbers."""
    return hook.Resources.FromString(resources.SerializeToString())


def sandbox_hook_request(facts: PodFacts, linux: Any = None) -> Any:
    """What hook servers are asked about a sandbox; `linux` = the SandboxLinux of RunPodSandbox."""
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


def container_hook_request(facts: PodFacts, name: str, container_id: str = "", resources: Any = None) -> Any:
    """What hook servers are asked about a container."""
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


def _pod_meta(facts: PodFacts) -> Any:
    return hook.PodMetadata(name=facts.name, uid=facts.uid, namespace=facts.namespace, attempt=facts.attempt)
