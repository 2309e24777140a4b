"""What the proxy remembers of pods and containers, so that an update that names only an id finds its pod. Pure state.

Filled by the calls that pass, and from the runtime's own lists after a restart; it is never needed to pass a call on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from cotenant.enforcer.decide.container_resources import LEAVE, ContainerSettings
from cotenant.enforcer.runtime.cri_messages import facts_of_listed
from cotenant.enforcer.runtime.facts import RuntimePod


@dataclass(frozen=True, slots=True)
class KnownContainer:
    """A container; what is kept on it when a later decision fails, or a hook server does not answer.

    decided: our own decision; answered: the hook servers' Resources, encoded. undecided: the Resources that it got,
    encoded, while our own decision on it is still missing; None = it was decided on.
    """

    id: str
    sandbox_id: str
    name: str
    decided: ContainerSettings = LEAVE
    answered: bytes = b""
    undecided: bytes | None = None


@dataclass(slots=True)
class SandboxStore:
    """Sandboxes and containers by id."""

    sandboxes: dict[str, RuntimePod] = field(default_factory=dict)
    containers: dict[str, KnownContainer] = field(default_factory=dict)

    def add_sandbox(self, facts: RuntimePod) -> None:
        """Add a sandbox that the runtime has made."""
        self.sandboxes[facts.id] = facts

    def add_container(self, container: KnownContainer) -> None:
        """Add a container that the runtime has made."""
        self.containers[container.id] = container

    def hold(
        self, container_id: str, applied: ContainerSettings, answered: bytes, undecided: bytes | None = None
    ) -> None:
        """Remember what was set."""
        if (container := self.containers.get(container_id)) is not None:
            self.containers[container_id] = replace(container, decided=applied, answered=answered, undecided=undecided)

    def undecided(self) -> tuple[str, ...]:
        """Ids of containers that run without our decision."""
        return tuple(c.id for c in self.containers.values() if c.undecided is not None)

    def pod_of(self, container_id: str) -> tuple[RuntimePod, KnownContainer] | None:
        """A container and its pod, when both are known."""
        container = self.containers.get(container_id)
        facts = self.sandboxes.get(container.sandbox_id) if container is not None else None
        return (facts, container) if facts is not None and container is not None else None

    def drop_sandbox(self, sandbox_id: str) -> None:
        """Forget a sandbox that the runtime has removed, with all its containers."""
        self.sandboxes.pop(sandbox_id, None)
        for container_id in [c.id for c in self.containers.values() if c.sandbox_id == sandbox_id]:
            del self.containers[container_id]

    def drop_container(self, container_id: str) -> None:
        """Forget a container that the runtime has removed."""
        self.containers.pop(container_id, None)

    def recover(self, sandboxes: Iterable[Any], containers: Iterable[Any]) -> None:
        """Take over the runtime's lists; what we know already, which is more, stays."""
        for sandbox in sandboxes:
            self.sandboxes.setdefault(sandbox.id, facts_of_listed(sandbox))
        for container in containers:
            listed = KnownContainer(container.id, container.pod_sandbox_id, container.metadata.name)
            self.containers.setdefault(container.id, listed)
