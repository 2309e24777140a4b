"""What the proxy does to the few calls that it decodes; every other call passes as bytes.

    request -> ForwardedCall(request to send, action on the runtime's answer)

cotenant's decision is applied first, then the registered hook servers see it and may override it. If anything fails,
the kubelet's request is forwarded unchanged; only a hook server registered with policy Fail can refuse it. A container
that was created without it is updated by `repair`, which the proxy calls repeatedly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import structlog

from cotenant.enforcer.contract import ContainerSpec
from cotenant.enforcer.decide.container_resources import LEAVE, ContainerSettings, has_skip_hooks_label
from cotenant.enforcer.dra.claim import device_environment
from cotenant.enforcer.runtime.bounded import Bounded, Late
from cotenant.enforcer.runtime.cri_messages import (
    container_hook_request,
    facts_of_config,
    facts_of_listed,
    lay_over,
    merge_environment,
    merge_resources,
    merge_texts,
    sandbox_hook_request,
)
from cotenant.enforcer.runtime.facts import Decide, RuntimePod, pod_spec
from cotenant.enforcer.runtime.hook_servers import HookServerRefused, HookServers
from cotenant.enforcer.runtime.messages import cri, hook

log = structlog.get_logger(__name__)

Done = Callable[[bytes], Awaitable[None]]
Recover = Callable[[float], Awaitable[None]]
"""Queries the runtime, for at most this many seconds, for sandboxes and containers, and puts them into the store."""
Update = Callable[[str, Any], Awaitable[None]]
"""Sends CRI's Resources of a container, by its id, to the runtime."""
BORNE_SHARE: Final = 0.25
"""Share of the kubelet's remaining time for a call that one hook may use."""


@dataclass(frozen=True, slots=True)
class ForwardedCall:
    """A call to forward: the request to send, and an action that runs if the runtime answers without an error."""

    request: bytes
    done: Done | None = None


@dataclass(slots=True)
class HookCounters:
    """The numbers of changed, failed, refused and repaired calls since the start."""

    adjusted: int = 0
    failed: int = 0
    refused: int = 0
    repaired: int = 0
    """Containers that were created without cotenant's decision and have it now."""


def patience(limit_seconds: float, left_seconds: float | None) -> float:
    """Return for how many seconds a hook may delay a call whose caller waits `left_seconds`; None = no deadline."""
    return limit_seconds if left_seconds is None else min(limit_seconds, max(left_seconds, 0.0) * BORNE_SHARE)


class CriHooks:
    """The hooks by CRI method name, for one event loop; `decide` runs in the thread of `bounded`, with a time limit."""

    def __init__(self, decide: Decide, servers: HookServers, bounded: Bounded) -> None:
        self.store = SandboxStore()
        self.counters = HookCounters()
        self.recover: Recover | None = None
        self.cgroup_parent: Callable[[str, float], Awaitable[str]] | None = None
        """Asks the runtime for the cgroup of a sandbox (its id), waiting at most so many seconds."""
        self._decide = decide
        self._servers = servers
        self._bounded = bounded
        self._hooks: Final[dict[str, Callable[[bytes, float], Awaitable[ForwardedCall]]]] = {
            "RunPodSandbox": self._run_pod_sandbox,
            "StopPodSandbox": self._stop_pod_sandbox,
            "RemovePodSandbox": self._remove_pod_sandbox,
            "CreateContainer": self._create_container,
            "StartContainer": self._start_container,
            "UpdateContainerResources": self._update_container,
            "StopContainer": self._stop_container,
            "RemoveContainer": self._remove_container,
        }

    @property
    def methods(self) -> frozenset[str]:
        """The names of the CRI methods whose calls are decoded; all others are only forwarded."""
        return frozenset(self._hooks)

    async def enter(self, method: str, request: bytes, left_seconds: float | None = None) -> ForwardedCall:
        """Return the call to forward; `left_seconds` is the time to the caller's deadline. Raise HookServerRefused."""
        try:
            return await self._hooks[method](request, patience(self._bounded.seconds, left_seconds))
        except HookServerRefused:
            self.counters.refused += 1
            raise
        except Exception as error:  # noqa: BLE001 - fail open: our faults are not the pod's
            self.counters.failed += 1
            log.warning("a CRI call is forwarded unchanged", method=method, reason=f"{type(error).__name__}: {error}")
            return ForwardedCall(request)

    async def leave(self, method: str, done: Done, response: bytes) -> None:
        """Run the action of a CRI call (`done`) on the runtime's answer; its errors are logged, not raised."""
        try:
            await done(response)
        except Exception as error:  # noqa: BLE001 - the call itself has succeeded
            self.counters.failed += 1
            log.warning("a CRI call was not recorded", method=method, reason=f"{type(error).__name__}: {error}")

    async def _run_pod_sandbox(self, raw: bytes, seconds: float) -> ForwardedCall:
        request = cri.RunPodSandboxRequest.FromString(raw)
        facts = replace(facts_of_config("", request.config), runtime_handler=request.runtime_handler)
        changed = False

        def take(answer: Any) -> None:
            nonlocal changed
            changed = changed or bool(answer.ByteSize())
            merge_texts(request.config.labels, answer.labels)
            merge_texts(request.config.annotations, answer.annotations)
            linux = request.config.linux
            linux.cgroup_parent = answer.cgroup_parent or linux.cgroup_parent
            if answer.HasField("resources"):
                merge_resources(linux.resources, answer.resources)

        if self._hooks_apply("PreRunPodSandbox", facts):
            linux = request.config.linux
            await self._servers.ask("PreRunPodSandbox", lambda: sandbox_hook_request(facts, linux), take, seconds)

        async def done(response: bytes) -> None:
            sandbox_facts = facts_of_config(cri.SandboxId.FromString(response).pod_sandbox_id, request.config)
            started = replace(sandbox_facts, runtime_handler=request.runtime_handler)
            self.store.sandboxes[started.id] = started

        return ForwardedCall(request.SerializeToString() if changed else raw, done)

    async def _create_container(self, raw: bytes, seconds: float) -> ForwardedCall:
        request = cri.CreateContainerRequest.FromString(raw)
        facts = facts_of_config(request.pod_sandbox_id, request.sandbox_config)
        name = request.config.metadata.name
        resources = request.config.linux.resources
        decided = await self._decide_in_time(facts, name, seconds)
        applied = LEAVE if decided is None else decided
        answered = hook.Resources()
        changed = lay_over(resources, applied)
        self.counters.adjusted += changed
        if environment := device_environment(facts.labels, facts.annotations):
            merge_environment(request.config.envs, environment)
            changed = True

        def take(answer: Any) -> None:
            nonlocal changed
            changed = changed or bool(answer.ByteSize())
            merge_texts(request.config.annotations, answer.container_annotations)
            merge_resources(resources, answer.container_resources)
            merge_resources(answered, answer.container_resources)
            merge_environment(request.config.envs, answer.container_envs)
            if answer.pod_cgroup_parent:
                request.sandbox_config.linux.cgroup_parent = answer.pod_cgroup_parent

        if self._hooks_apply("PreCreateContainer", facts):
            await self._servers.ask("PreCreateContainer", lambda: _about_new(facts, request), take, seconds)

        async def done(response: bytes) -> None:
            container_id = cri.ContainerId.FromString(response).container_id
            self.store.sandboxes.setdefault(facts.id, facts)
            undecided = resources.SerializeToString() if decided is None else None
            container = KnownContainer(container_id, facts.id, name, applied, answered.SerializeToString(), undecided)
            self.store.containers[container_id] = container

        return ForwardedCall(request.SerializeToString() if changed else raw, done)

    async def _update_container(self, raw: bytes, seconds: float) -> ForwardedCall:
        request = cri.UpdateContainerResourcesRequest.FromString(raw)
        entry = await self._known_container(request.container_id, seconds)
        if entry is None:
            return ForwardedCall(raw)
        facts, container = entry
        decided = await self._decide_in_time(facts, container.name, seconds, container.id)
        # a memory limit of earlier may be below what is used now; without ours the present one stays
        applied = replace(container.decided, memory_limit=None) if decided is None else decided
        answered = hook.Resources.FromString(container.answered)
        changed = lay_over(request.linux, applied) or bool(container.answered)
        merge_resources(request.linux, answered)
        self.counters.adjusted += changed

        def take(answer: Any) -> None:
            nonlocal changed
            changed = changed or bool(answer.ByteSize())
            merge_resources(request.linux, answer.container_resources)
            merge_resources(answered, answer.container_resources)
            merge_texts(request.annotations, answer.container_annotations)

        if self._hooks_apply("PreUpdateContainerResources", facts):
            await self._servers.ask(
                "PreUpdateContainerResources",
                lambda: container_hook_request(facts, container.name, container.id, request.linux),
                take,
                seconds,
            )

        async def done(_: bytes) -> None:
            waits = decided is None and container.undecided is not None
            undecided = request.linux.SerializeToString() if waits else None
            self.store.hold(container.id, applied, answered.SerializeToString(), undecided)

        return ForwardedCall(request.SerializeToString() if changed else raw, done)

    async def _start_container(self, raw: bytes, seconds: float) -> ForwardedCall:
        container_id = cri.ContainerId.FromString(raw).container_id
        await self._notify_container_hook("PreStartContainer", container_id, seconds)
        limit = self._bounded.seconds
        return ForwardedCall(raw, lambda _: self._notify_container_hook("PostStartContainer", container_id, limit))

    async def _stop_container(self, raw: bytes, _: float) -> ForwardedCall:
        container_id = cri.ContainerId.FromString(raw).container_id
        limit = self._bounded.seconds
        return ForwardedCall(raw, lambda _: self._notify_container_hook("PostStopContainer", container_id, limit))

    async def _remove_container(self, raw: bytes, _: float) -> ForwardedCall:
        async def done(_: bytes) -> None:
            self.store.containers.pop(cri.ContainerId.FromString(raw).container_id, None)

        return ForwardedCall(raw, done)

    async def _stop_pod_sandbox(self, raw: bytes, _: float) -> ForwardedCall:
        facts = self.store.sandboxes.get(cri.SandboxId.FromString(raw).pod_sandbox_id)

        async def done(_: bytes) -> None:
            if facts is not None and self._hooks_apply("PostStopPodSandbox", facts):
                await self._servers.ask("PostStopPodSandbox", lambda: sandbox_hook_request(facts), _ignore_response)

        return ForwardedCall(raw, done)

    async def _remove_pod_sandbox(self, raw: bytes, _: float) -> ForwardedCall:
        async def done(_: bytes) -> None:
            self.store.drop_sandbox(cri.SandboxId.FromString(raw).pod_sandbox_id)

        return ForwardedCall(raw, done)

    async def repair(self, update: Update) -> None:
        """Decide on containers that were created without cotenant's decision, and set the values that they lack.

        A container that still lacks a decision (Late), or whose `update` fails, is tried again the next time. The last
        such error is raised after all containers.
        """
        failure: Exception | None = None
        for container_id in self.store.undecided():
            if (entry := self.store.pod_of(container_id)) is None:
                continue
            facts, container = entry
            try:
                decision = await self._decide_in_time(facts, container.name, self._bounded.seconds, container.id)
                if decision is None:
                    raise Late(f"there is no decision on {container.name} of {facts.namespace}/{facts.name} yet")
                resources = cri.Resources.FromString(container.undecided or b"")
                if lay_over(resources, decision):
                    merge_resources(resources, hook.Resources.FromString(container.answered))
                    await update(container.id, resources)
                    log.info("a container that started without a decision got its values now", container=container.id)
                self.store.hold(container.id, decision, container.answered)
                self.counters.repaired += 1
            except Exception as error:  # noqa: BLE001 - one container's fault keeps no other from its limits
                failure = error
        if failure is not None:
            raise failure

    async def _notify_container_hook(self, point: str, container_id: str, seconds: float) -> None:
        if not self._servers.wanted(point):
            return
        entry = await self._known_container(container_id, seconds)
        if entry is not None and self._hooks_apply(point, entry[0]):
            facts, container = entry
            await self._servers.ask(
                point, lambda: container_hook_request(facts, container.name, container_id), _ignore_response, seconds
            )

    def _hooks_apply(self, point: str, facts: RuntimePod) -> bool:
        return self._servers.wanted(point) and not has_skip_hooks_label(pod_spec(facts))

    async def _known_container(self, container_id: str, seconds: float) -> tuple[RuntimePod, KnownContainer] | None:
        entry = self.store.pod_of(container_id)
        if entry is None and self.recover is not None:
            await self.recover(seconds)
            entry = self.store.pod_of(container_id)
        if entry is None or entry[0].cgroup_parent or self.cgroup_parent is None:
            return entry
        facts = replace(entry[0], cgroup_parent=await self.cgroup_parent(entry[0].id, seconds))
        self.store.sandboxes[facts.id] = facts
        return facts, entry[1]

    async def _decide_in_time(
        self, facts: RuntimePod, container: str, seconds: float, container_id: str = ""
    ) -> ContainerSettings | None:
        """Return the decision, or None if it fails or is late (LEAVE if the pod skips hooks); "" is a new container."""
        spec = pod_spec(facts)
        try:
            decision = await self._bounded.wait(
                lambda: self._decide(spec, ContainerSpec(container, container_id), facts.cgroup_parent), seconds
            )
        except Exception as error:  # noqa: BLE001 - fail open
            self.counters.failed += 1
            log.warning("no decision", pod=spec.key, container=container, reason=f"{type(error).__name__}: {error}")
            return LEAVE if has_skip_hooks_label(spec) else None
        if decision.broken:
            log.warning("a pod's containers are not changed", pod=spec.key, reason=decision.broken)
        return decision


def _about_new(facts: RuntimePod, request: Any) -> Any:
    config = request.config
    hook_request = container_hook_request(facts, config.metadata.name, resources=config.linux.resources)
    hook_request.container_meta.attempt = config.metadata.attempt
    merge_texts(hook_request.container_annotations, config.annotations)
    merge_texts(hook_request.container_envs, {variable.key: variable.value for variable in config.envs})
    hook_request.pod_resources.CopyFrom(sandbox_hook_request(facts, request.sandbox_config.linux).resources)
    return hook_request


def _ignore_response(_: Any) -> None:
    """Ignore the response: at these hook points CRI's messages have only an id, so nothing can be changed."""


@dataclass(frozen=True, slots=True)
class KnownContainer:
    """A container with the values that stay if a later decision fails or a hook server does not answer.

    `decided` is cotenant's decision, `answered` the hook servers' encoded Resources. `undecided` has the encoded
    Resources of a container that still lacks cotenant's decision, else None.
    """

    id: str
    sandbox_id: str
    name: str
    decided: ContainerSettings = LEAVE
    answered: bytes = b""
    undecided: bytes | None = None


@dataclass(slots=True)
class SandboxStore:
    """The sandboxes (pods) and containers of the runtime, by id."""

    sandboxes: dict[str, RuntimePod] = field(default_factory=dict)
    containers: dict[str, KnownContainer] = field(default_factory=dict)

    def hold(
        self, container_id: str, applied: ContainerSettings, answered: bytes, undecided: bytes | None = None
    ) -> None:
        """Record what was set on a container, if it is known; the parameters are as in KnownContainer."""
        if (container := self.containers.get(container_id)) is not None:
            self.containers[container_id] = replace(container, decided=applied, answered=answered, undecided=undecided)

    def undecided(self) -> tuple[str, ...]:
        """Return the ids of containers that run without cotenant's decision."""
        return tuple(c.id for c in self.containers.values() if c.undecided is not None)

    def pod_of(self, container_id: str) -> tuple[RuntimePod, KnownContainer] | None:
        """Return a container and its pod; None unless both are known."""
        container = self.containers.get(container_id)
        facts = self.sandboxes.get(container.sandbox_id) if container is not None else None
        return (facts, container) if facts is not None and container is not None else None

    def drop_sandbox(self, sandbox_id: str) -> None:
        """Forget a sandbox that the runtime has removed, with all its containers."""
        self.sandboxes.pop(sandbox_id, None)
        for container_id in [c.id for c in self.containers.values() if c.sandbox_id == sandbox_id]:
            del self.containers[container_id]

    def recover(self, sandboxes: Iterable[Any], containers: Iterable[Any]) -> None:
        """Add the sandboxes and containers of the runtime's lists; known ones keep their more complete entries."""
        for sandbox in sandboxes:
            self.sandboxes.setdefault(sandbox.id, facts_of_listed(sandbox))
        for container in containers:
            listed = KnownContainer(container.id, container.pod_sandbox_id, container.metadata.name)
            self.containers.setdefault(container.id, listed)
