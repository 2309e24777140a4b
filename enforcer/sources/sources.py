"""EDGE: the agent's inputs from other programs: the node's pods, Node, policy and forecast, by API server or files.

    API server: four mirrors, each of own node's objects alone      files: read again when they change
                        `ApiSources`, `FileSources`  --read()-->  AgentInputs  --> observe

`read` sends no request and never fails: it returns the last good value, its age, and notes on problems. An age is
counted by the monotonic clock from the last confirmation; if a policy cannot be read, the one before it stays in force.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.models.own_kinds import UsageForecast
from cotenant.base.kubernetes.models.pod import NodePodWire
from cotenant.base.kubernetes.observed import ObservedNode
from cotenant.base.kubernetes.protocol import ENDED_PHASES, OWN_GROUP, SLO_GROUP
from cotenant.enforcer.contract import NodeForecast, PodSpec
from cotenant.enforcer.model import node_policy
from cotenant.enforcer.model.node_policy import NodePolicy
from cotenant.enforcer.sources import documents
from cotenant.enforcer.sources.documents import NodeInventory
from cotenant.enforcer.sources.wire import Assignments, SloWire, forecast_of, node_of, pod_of

ValueT = TypeVar("ValueT")
Monotonic = Callable[[], float]

NEVER: Final = float("inf")
POLICIES: Final = f"/apis/{SLO_GROUP}/nodeslos"
FORECASTS: Final = f"/apis/{OWN_GROUP}/usageforecasts"


@dataclass(frozen=True, slots=True)
class AgentInputs:
    """The agent's inputs at one moment; the age of an input that was never received is infinite."""

    pods: tuple[PodSpec, ...] = ()
    pods_age_seconds: float = NEVER
    node: ObservedNode = field(default_factory=lambda: ObservedNode("", ""))
    policy: NodePolicy | None = None
    policy_age_seconds: float = NEVER
    policy_origin: str = ""
    """The source of the policy, as text for people."""
    forecast: NodeForecast | None = None
    notes: tuple[str, ...] = ()
    """Problems, one line each."""
    kubelet: Assignments = field(default_factory=Assignments)
    """The kubelet's answer; empty if it was not queried or did not answer."""
    recalled: tuple[str, ...] = ()
    """Inputs that were not received but are known from before this agent started: "policy", "pods"."""


class Sources(ABC):
    """The sources of the agent's inputs; `inner` are the sources to which this class adds, None if there are none."""

    inner: Sources | None = None

    def start(self) -> None:
        """Start the threads that keep the inputs up to date."""
        if self.inner:
            self.inner.start()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until every input was received once; return False on timeout."""
        return self.inner is None or self.inner.wait(timeout_seconds)

    def stop(self) -> None:
        """Stop the threads that keep the inputs up to date."""
        if self.inner:
            self.inner.stop()

    @abstractmethod
    def read(self) -> AgentInputs:
        """Return the present inputs."""


class WatchedFile(Generic[ValueT]):
    """The parsed content of a file, which is parsed again when the file changes; for a single thread."""

    def __init__(self, path: str, parse: Callable[[str, str], ValueT], monotonic: Monotonic = time.monotonic) -> None:
        self.path = path
        self.value: ValueT | None = None
        self.error = ""
        """Why the file's present content is not in force, or empty."""
        self._parse, self._monotonic = parse, monotonic
        self._mark: tuple[int, int, int] | None = None
        self._confirmed_at = -NEVER

    def reload_if_changed(self) -> None:
        """Read the file if it changed; if it cannot be used, the value stays and `error` says why."""
        try:
            status = Path(self.path).stat()
            mark = (status.st_mtime_ns, status.st_size, status.st_ino)
            if mark != self._mark:
                with Path(self.path).open("rb") as stream:
                    raw = stream.read(documents.SIZE_CAP_BYTES + 1)
                self._mark, self.error = mark, ""
                try:
                    self.value = self._parse(raw.decode("utf-8"), self.path)
                except UnicodeDecodeError as error:
                    self.error = f"{self.path} is not UTF-8: byte {error.start}"
                except CotenantError as error:
                    self.error = error.message
        except OSError as error:
            self.error = f"{self.path} cannot be read: {error.strerror}"
            return
        if self.value is not None:
            self._confirmed_at = self._monotonic()

    def age_seconds(self) -> float:
        """Return the seconds since the last check of the file; a check that could not read it does not count."""
        return self._monotonic() - self._confirmed_at


class FileSources(Sources):
    """Pods and policy from files, for a machine without an API server."""

    def __init__(self, node_name: str, pods: str, policy: str, monotonic: Monotonic = time.monotonic) -> None:
        """Create sources that read these files; an empty path means no file."""
        self._node = ObservedNode(node_name, "")
        self._pods = WatchedFile(pods, documents.inventory_of, monotonic) if pods else None
        self._policy = WatchedFile(policy, documents.policy_of, monotonic) if policy else None

    def wait(self, timeout_seconds: float) -> bool:  # noqa: ARG002 - the protocol's signature
        """Return, without waiting, whether both a policy and pods could be read from the files."""
        inputs = self.read()
        return inputs.policy is not None and inputs.pods_age_seconds < NEVER

    def read(self) -> AgentInputs:
        """Return the agent's inputs from the files."""
        pods_file, policy = self._pods, self._policy
        for file in (pods_file, policy):
            if file is not None:
                file.reload_if_changed()
        inventory = pods_file.value if pods_file and pods_file.value else NodeInventory()
        return AgentInputs(
            pods=inventory.pods,
            pods_age_seconds=pods_file.age_seconds() if pods_file else 0.0,
            node=inventory.node or self._node,
            policy=policy.value if policy else None,
            policy_age_seconds=policy.age_seconds() if policy else NEVER,
            policy_origin=policy.path if policy else "no policy",
            notes=tuple(file.error for file in (pods_file, policy) if file is not None and file.error),
        )


class ApiSources(Sources):
    """The node's own pods, Node, NodeSLO and UsageForecast from the API server; a policy file replaces the NodeSLO."""

    def __init__(self, client: KubeClient, node_name: str, policy_file: str = "") -> None:
        self._name = node_name
        by_name = f"metadata.name={node_name}"
        self._pods = Mirror(client, "/api/v1/pods", NodePodWire, pod_of, fieldSelector=f"spec.nodeName={node_name}")
        self._nodes = Mirror(client, "/api/v1/nodes", NodeWire, node_of, fieldSelector=by_name)
        self._slos = Mirror(client, POLICIES, SloWire, lambda wire: wire.spec, fieldSelector=by_name)
        self._forecasts = Mirror(client, FORECASTS, UsageForecast, forecast_of, fieldSelector=by_name)
        self._file = WatchedFile(policy_file, documents.policy_of) if policy_file else None
        self._policy = _Decoded()
        self._seen_pods: Mapping[Any, PodSpec] | None = None
        self._listed: tuple[PodSpec, ...] = ()

    @property
    def _mirrors(self) -> tuple[Mirror[Any], ...]:
        return self._pods, self._nodes, self._slos, self._forecasts

    def start(self) -> None:
        """Start to list and watch the objects."""
        for mirror in self._mirrors:
            mirror.start()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until pods, Node and policy were received once, not for the forecast; return False on timeout."""
        until = time.monotonic() + timeout_seconds
        needed = (self._pods, self._nodes) if self._file else (self._pods, self._nodes, self._slos)
        return all(mirror.wait_synced(max(0.0, until - time.monotonic())) for mirror in needed)

    def stop(self) -> None:
        """Stop all watches."""
        for mirror in self._mirrors:
            mirror.stop()

    def read(self) -> AgentInputs:
        """Return the agent's inputs from watched copies of the objects, and from the policy file if there is one."""
        if self._file is not None:
            self._file.reload_if_changed()
            policy, age = self._file.value, self._file.age_seconds()
            origin, wrong = self._file.path, self._file.error
        else:
            if self._slos.lists:
                self._policy.take(next(iter(self._slos.snapshot().values()), None))
            policy, age = self._policy.value, self._slos.age_seconds() if self._policy.value else NEVER
            origin, wrong = self._policy.origin, self._policy.error
        node = next(iter(self._nodes.snapshot().values()), ObservedNode(self._name, ""))
        notes = [mirror.error.message for mirror in self._mirrors[:3] if mirror.error is not None]
        refused = [f"pod {namespace}/{name} ignored: {why}" for (namespace, name), why in self._pods.refusals.items()]
        # Pods that have not ended; the same tuple while nothing changed.
        snapshot = self._pods.snapshot()
        if snapshot is not self._seen_pods:
            self._seen_pods = snapshot
            self._listed = tuple(pod for pod in snapshot.values() if pod.phase not in ENDED_PHASES)
        return AgentInputs(
            pods=self._listed,
            pods_age_seconds=self._pods.age_seconds(),
            node=node,
            policy=policy,
            policy_age_seconds=age,
            policy_origin=origin,
            forecast=next(iter(self._forecasts.snapshot().values()), None),
            notes=(*notes, *refused, *([wrong] if wrong else [])),
        )


class _Decoded:
    """The last NodeSLO that could be read; without one the built-in values apply, by which everything is off."""

    def __init__(self) -> None:
        self.value: NodePolicy | None = None
        self.origin = "NodeSLO not received yet"
        self.error = ""
        self._spec: Mapping[str, Any] | None = None
        self._any = False

    def take(self, spec: Mapping[str, Any] | None) -> None:
        if self._any and spec == self._spec:
            return
        self._any, self._spec = True, spec
        try:
            self.value = node_policy.decode(spec or {})
        except UsageError as error:
            self.error = f"{error.message}; the previous policy stays"
        else:
            self.error, self.origin = "", "NodeSLO" if spec is not None else "no NodeSLO: all strategies are off"
