"""EDGE: requests the container runtime (CRI) to stop containers at once, from its own thread.

    put(eviction, because) --> ListPodSandbox, ListContainers --> StopContainer(id, timeout 0) each
    answers() --> stopped, not-stopped, or gone when no container of the pod runs

As with Koordinator's agent, the pod object stays until the API server or the kubelet deletes it, and the kubelet may
restart the container after its back-off. The runtime's own list of the pod's containers is used, because the agent's
list may be old while the API server is away.
"""

from __future__ import annotations

from typing import Any, Final

import grpc

from cotenant.enforcer.apply.eviction_worker import EvictionQueue
from cotenant.enforcer.runtime import CHANNEL_OPTIONS
from cotenant.enforcer.runtime.messages import cri

SERVICE: Final = "/runtime.v1.RuntimeService"
ENDED: Final = (2, 3)
"""CRI's states of a container: exited, unknown."""
ANSWER_SECONDS: Final = 10.0
"""Timeout of one call; to end a container the runtime kills its processes and waits until they are gone."""


class ContainerStopper(EvictionQueue[str]):
    """Stops containers through the runtime; each request has the reason why the API server is bypassed."""

    def __init__(self, socket: str) -> None:
        """Create a stopper; `socket` is the runtime's CRI socket, which is not opened before `start`."""
        super().__init__("container-stops", "not-stopped")
        self._socket = socket

    def _run(self) -> None:
        with grpc.insecure_channel(f"unix:{self._socket}", CHANNEL_OPTIONS) as channel:
            for eviction, because in self._requests():
                try:
                    ended = end_containers(channel, eviction.uid)
                except grpc.RpcError as error:
                    self._refuse(eviction, f"{because}; the runtime: {error.code().name} {error.details()}")
                except Exception as error:  # noqa: BLE001 - see EvictionQueue._run
                    self._refuse(eviction, f"{because}; {type(error).__name__}: {error}")
                else:
                    what = f"ended: {', '.join(ended)}" if ended else "the pod has no running container"
                    self._answer(eviction, "stopped" if ended else "gone", f"{because}; {what}")


def end_containers(channel: grpc.Channel, pod_uid: str) -> list[str]:
    """Stop every running container of a pod, without a grace period, and return their names; raise RpcError."""
    listed = cri.ListPodSandboxResponse.FromString(_call(channel, "ListPodSandbox", cri.ListPodSandboxRequest()))
    sandboxes = {sandbox.id for sandbox in listed.items if sandbox.metadata.uid == pod_uid}
    if not sandboxes:
        return []
    answer, ended = _call(channel, "ListContainers", cri.ListContainersRequest()), []
    for container in cri.ListContainersResponse.FromString(answer).containers:
        if container.pod_sandbox_id not in sandboxes or container.state in ENDED:
            continue
        request = cri.StopContainerRequest(container_id=container.id, timeout=0)
        try:
            _call(channel, "StopContainer", request)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:  # it has gone meanwhile
                raise
        ended.append(container.metadata.name)
    return ended


def _call(channel: grpc.Channel, method: str, request: Any) -> bytes:
    send = channel.unary_unary(f"{SERVICE}/{method}")
    answer: bytes = send(request.SerializeToString(), timeout=ANSWER_SECONDS)
    return answer
