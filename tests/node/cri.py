"""A CRI client for tests: raw gRPC with our own message tables, and pods as the kubelet would ask for them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from cotenant.enforcer.runtime.messages import cri
from tests.node.image import IMAGE

RUNTIME = "runtime.v1.RuntimeService"
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
SECONDS = 60.0
NODE_NETWORK = 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended, as its caller sees it."""

    code: grpc.StatusCode
    details: str
    body: bytes = b""
    trailing: tuple[tuple[str, Any], ...] = ()


class Cri:
    """One connection to a CRI socket."""

    def __init__(self, socket: Path, service: str = RUNTIME, options: tuple[tuple[str, Any], ...] = ()) -> None:
        self.channel = grpc.insecure_channel(f"unix:{socket}", (*OPTIONS, *options))
        self.service = service

    def call(self, method: str, request: Any = None, seconds: float = SECONDS) -> bytes:
        """The raw answer; grpc.RpcError."""
        body = request.SerializeToString() if request is not None else b""
        return self.channel.unary_unary(f"/{self.service}/{method}")(body, timeout=seconds)

    def outcome(self, method: str, body: bytes = b"", seconds: float | None = SECONDS) -> Outcome:
        """How a call ends, error or not."""
        try:
            response, call = self.channel.unary_unary(f"/{self.service}/{method}").with_call(body, timeout=seconds)
        except grpc.RpcError as error:
            return Outcome(error.code(), error.details(), trailing=_plain(error.trailing_metadata()))
        return Outcome(call.code(), call.details(), response, _plain(call.trailing_metadata()))

    def version(self) -> Any:
        return cri.VersionResponse.FromString(self.call("Version"))

    def ready(self) -> bool:
        return self.outcome("Version", seconds=5.0).code is grpc.StatusCode.OK

    def run_sandbox(self, pod: Pod) -> str:
        request = cri.RunPodSandboxRequest(config=pod.config())
        return cri.SandboxId.FromString(self.call("RunPodSandbox", request)).pod_sandbox_id

    def create(self, sandbox: str, pod: Pod, container: Any) -> str:
        request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=container, sandbox_config=pod.config())
        return cri.ContainerId.FromString(self.call("CreateContainer", request)).container_id

    def start(self, container: str) -> None:
        self.call("StartContainer", cri.ContainerId(container_id=container))

    def run(self, pod: Pod, name: str = "main", **resources: Any) -> str:
        """A started container in a sandbox of its own; its id."""
        text = self.create(self.run_sandbox(pod), pod, container(name, **resources))
        self.start(text)
        return text

    def update(self, container: str, **resources: Any) -> None:
        linux = cri.Resources(**resources)
        self.call("UpdateContainerResources", cri.UpdateContainerResourcesRequest(container_id=container, linux=linux))

    def exec(self, container: str, *command: str) -> Any:
        request = cri.ExecSyncRequest(container_id=container, cmd=command)
        return cri.ExecSyncResponse.FromString(self.call("ExecSync", request))

    def sandboxes(self) -> list[Any]:
        return list(cri.ListPodSandboxResponse.FromString(self.call("ListPodSandbox")).items)

    def remove_all(self) -> None:
        for sandbox in self.sandboxes():
            self.call("StopPodSandbox", cri.SandboxId(pod_sandbox_id=sandbox.id))
            self.call("RemovePodSandbox", cri.SandboxId(pod_sandbox_id=sandbox.id))

    def close(self) -> None:
        self.channel.close()


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod on the host's network; `base` is the cgroup that all of a test's pods are below."""

    base: str
    tier: str = "besteffort"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def cgroup_parent(self) -> str:
        tier = f"{self.tier}/" if self.tier else ""
        return f"/{self.base}/kubepods/{tier}pod{self.uid}"

    def config(self) -> Any:
        return cri.SandboxConfig(
            metadata=cri.PodMetadata(name=f"pod-{self.uid[:8]}", uid=self.uid, namespace="default"),
            labels=dict(self.labels),
            annotations=dict(self.annotations),
            linux=cri.SandboxLinux(
                cgroup_parent=self.cgroup_parent,
                security_context=cri.SandboxSecurity(namespaces=cri.Namespaces(network=NODE_NETWORK)),
            ),
        )


def container(name: str = "main", command: tuple[str, ...] = ("/bin/sleep", "100000"), **resources: Any) -> Any:
    """A ContainerConfig; resources by CRI's field names."""
    return cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=name),
        image=cri.ImageSpec(image=IMAGE),
        command=command,
        linux=cri.ContainerLinux(resources=cri.Resources(**resources)),
    )


def _plain(metadata: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((str(key), value) for key, value in metadata or ()))
