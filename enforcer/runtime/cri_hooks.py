"""What the proxy does to the few calls that it looks into; every other call passes as bytes.

    request -> Passage(request to send, what to do once the runtime has answered)

Our own decision comes first, then the registered hook servers, who see it and have the last word. Whatever fails here,
the kubelet's request goes on as it came; only a hook server registered with policy Fail can refuse it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from enforcer.container_resources import LEAVE, ContainerResources, skipped
from enforcer.contract import ContainerSpec
from enforcer.runtime.bounded import Bounded
from enforcer.runtime.cri_messages import (
    container_hook_request,
    facts_of_config,
    lay_over,
    merge_environment,
    merge_resources,
    merge_texts,
    sandbox_hook_request,
)
from enforcer.runtime.cri_store import KnownContainer, Store
from enforcer.runtime.facts import Decide, PodFacts, pod_spec
from enforcer.runtime.hook_servers import HookServers, Refused
from enforcer.runtime.messages import cri, hook

log = structlog.get_logger(__name__)

Done = Callable[[bytes], Awaitable[None]]
Recover = Callable[[], Awaitable[None]]
"""Asks the runtime for its sandboxes and containers and puts them into the store."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A call on its way: what to send, and what to do with the runtime's answer (nothing when it is an error)."""

    request: bytes
    done: Done | None = None


@dataclass(slots=True)
class HookCounters:
    """Since the start."""

    adjusted: int = 0
    failed: int = 0
    refused: int = 0


class CriHooks:
    """The hooks by method name. Coroutines of one event loop, except the decision, which has a thread and a limit."""

    def __init__(self, decide: Decide, servers: HookServers, bounded: Bounded) -> None:
        self.store = Store()
        self.counters = HookCounters()
        self.recover: Recover | None = None
        self.cgroup_parent: Callable[[str], Awaitable[str]] | None = None
        """Asks the runtime where a sandbox's cgroup is."""
        self._decide = decide
        self._servers = servers
        self._bounded = bounded
        self._hooks: Final[dict[str, Callable[[bytes], Awaitable[Passage]]]] = {
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
        """Which calls are looked into."""
        return frozenset(self._hooks)

    async def enter(self, method: str, request: bytes) -> Passage:
        """The call as it shall be sent. Refused is the only error."""
        try:
            return await self._hooks[method](request)
        except Refused:
            self.counters.refused += 1
            raise
        except Exception as error:  # noqa: BLE001 - fail open: our faults are not the pod's
            self.counters.failed += 1
            log.warning("a call goes on unchanged", method=method, reason=f"{type(error).__name__}: {error}")
            return Passage(request)

    async def leave(self, method: str, done: Done, response: bytes) -> None:
        """After the runtime's answer; no error of ours gets out."""
        try:
            await done(response)
        except Exception as error:  # noqa: BLE001 - the call itself has succeeded
            self.counters.failed += 1
            log.warning("a call was not noted", method=method, reason=f"{type(error).__name__}: {error}")

    async def _run_pod_sandbox(self, raw: bytes) -> Passage:
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

        if self._asked("PreRunPodSandbox", facts):
            linux = request.config.linux
            await self._servers.ask("PreRunPodSandbox", lambda: sandbox_hook_request(facts, linux), take)

        async def done(response: bytes) -> None:
            found = facts_of_config(cri.SandboxId.FromString(response).pod_sandbox_id, request.config)
            self.store.add_sandbox(replace(found, runtime_handler=request.runtime_handler))

        return Passage(request.SerializeToString() if changed else raw, done)

    async def _create_container(self, raw: bytes) -> Passage:
        request = cri.CreateContainerRequest.FromString(raw)
        facts = facts_of_config(request.pod_sandbox_id, request.sandbox_config)
        name = request.config.metadata.name
        resources = request.config.linux.resources
        held = await self._decided(facts, name)
        answered = hook.Resources()
        changed = lay_over(resources, held)
        self.counters.adjusted += changed

        def take(answer: Any) -> None:
            nonlocal changed
            changed = changed or bool(answer.ByteSize())
            merge_texts(request.config.annotations, answer.container_annotations)
            merge_resources(resources, answer.container_resources)
            merge_resources(answered, answer.container_resources)
            merge_environment(request.config.envs, answer.container_envs)
            if answer.pod_cgroup_parent:
                request.sandbox_config.linux.cgroup_parent = answer.pod_cgroup_parent

        if self._asked("PreCreateContainer", facts):
            await self._servers.ask("PreCreateContainer", lambda: _about_new(facts, request), take)

        async def done(response: bytes) -> None:
            made = cri.ContainerId.FromString(response).container_id
            self.store.sandboxes.setdefault(facts.id, facts)
            self.store.add_container(KnownContainer(made, facts.id, name, held, answered.SerializeToString()))

        return Passage(request.SerializeToString() if changed else raw, done)

    async def _update_container(self, raw: bytes) -> Passage:
        request = cri.UpdateContainerResourcesRequest.FromString(raw)
        found = await self._known(request.container_id)
        if found is None:
            return Passage(raw)
        facts, container = found
        held = await self._decided(facts, container.name, container.held)
        answered = hook.Resources.FromString(container.answered)
        changed = lay_over(request.linux, held) or bool(container.answered)
        merge_resources(request.linux, answered)
        self.counters.adjusted += changed

        def take(answer: Any) -> None:
            nonlocal changed
            changed = changed or bool(answer.ByteSize())
            merge_resources(request.linux, answer.container_resources)
            merge_resources(answered, answer.container_resources)
            merge_texts(request.annotations, answer.container_annotations)

        if self._asked("PreUpdateContainerResources", facts):
            await self._servers.ask(
                "PreUpdateContainerResources",
                lambda: container_hook_request(facts, container.name, container.id, request.linux),
                take,
            )

        async def done(_: bytes) -> None:
            self.store.hold(container.id, held, answered.SerializeToString())

        return Passage(request.SerializeToString() if changed else raw, done)

    async def _start_container(self, raw: bytes) -> Passage:
        container_id = cri.ContainerId.FromString(raw).container_id
        await self._tell_container("PreStartContainer", container_id)
        return Passage(raw, lambda _: self._tell_container("PostStartContainer", container_id))

    async def _stop_container(self, raw: bytes) -> Passage:
        container_id = cri.ContainerId.FromString(raw).container_id
        return Passage(raw, lambda _: self._tell_container("PostStopContainer", container_id))

    async def _remove_container(self, raw: bytes) -> Passage:
        async def done(_: bytes) -> None:
            self.store.drop_container(cri.ContainerId.FromString(raw).container_id)

        return Passage(raw, done)

    async def _stop_pod_sandbox(self, raw: bytes) -> Passage:
        facts = self.store.sandboxes.get(cri.SandboxId.FromString(raw).pod_sandbox_id)

        async def done(_: bytes) -> None:
            if facts is not None and self._asked("PostStopPodSandbox", facts):
                await self._servers.ask("PostStopPodSandbox", lambda: sandbox_hook_request(facts), _nothing)

        return Passage(raw, done)

    async def _remove_pod_sandbox(self, raw: bytes) -> Passage:
        async def done(_: bytes) -> None:
            self.store.drop_sandbox(cri.SandboxId.FromString(raw).pod_sandbox_id)

        return Passage(raw, done)

    async def _tell_container(self, point: str, container_id: str) -> None:
        if not self._servers.wanted(point):
            return
        found = await self._known(container_id)
        if found is not None and self._asked(point, found[0]):
            facts, container = found
            await self._servers.ask(
                point, lambda: container_hook_request(facts, container.name, container_id), _nothing
            )

    def _asked(self, point: str, facts: PodFacts) -> bool:
        return self._servers.wanted(point) and not skipped(pod_spec(facts))

    async def _known(self, container_id: str) -> tuple[PodFacts, KnownContainer] | None:
        found = self.store.pod_of(container_id)
        if found is None and self.recover is not None:
            await self.recover()
            found = self.store.pod_of(container_id)
        if found is None or found[0].cgroup_parent or self.cgroup_parent is None:
            return found
        facts = replace(found[0], cgroup_parent=await self.cgroup_parent(found[0].id))
        self.store.add_sandbox(facts)
        return facts, found[1]

    async def _decided(
        self, facts: PodFacts, container: str, otherwise: ContainerResources = LEAVE
    ) -> ContainerResources:
        """The decision; when it fails or is late, what was held before."""
        spec = pod_spec(facts)
        try:
            wanted = await self._bounded.wait(lambda: self._decide(spec, ContainerSpec(container), facts.cgroup_parent))
        except Exception as error:  # noqa: BLE001 - fail open
            self.counters.failed += 1
            log.warning("no decision", pod=spec.key, container=container, reason=f"{type(error).__name__}: {error}")
            return LEAVE if skipped(spec) else otherwise
        if wanted.broken:
            log.warning("a pod is left alone", pod=spec.key, reason=wanted.broken)
        return wanted


def _about_new(facts: PodFacts, request: Any) -> Any:
    config = request.config
    asked = container_hook_request(facts, config.metadata.name, resources=config.linux.resources)
    asked.container_meta.attempt = config.metadata.attempt
    merge_texts(asked.container_annotations, config.annotations)
    merge_texts(asked.container_envs, {variable.key: variable.value for variable in config.envs})
    asked.pod_resources.CopyFrom(sandbox_hook_request(facts, request.sandbox_config.linux).resources)
    return asked


def _nothing(_: Any) -> None:
    """Answers at these points change no request: CRI's messages there name only an id."""
