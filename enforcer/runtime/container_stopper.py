"""EDGE: asks the container runtime (CRI) to end containers at once, from a thread of its own.

    put(eviction, because) --> ListPodSandbox, ListContainers --> StopContainer(id, timeout 0) each
    answers() --> stopped, not-stopped, or gone when no container of the pod runs

As Koordinator's agent does: the pod object stays until the API server or the kubelet takes it away, and the kubelet may
start the container again after its back-off. The containers are those that the runtime itself lists for the pod's uid:
the agent's own list may be old, for the API server may be away.
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
"""For one call; to end a container the runtime kills its processes and waits until they are gone."""


class ContainerStopper(EvictionQueue[str]):
    """Stops containers at the runtime; each request carries the reason why the API server is bypassed."""

    def __init__(self, socket: str) -> None:
        """socket: the runtime's CRI socket, which need not be there yet. Nothing is opened before `start`."""
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
                    what = f"ended: {', '.join(ended)}" if ended else "no container of it runs"
                    self._answer(eviction, "stopped" if ended else "gone", f"{because}; {what}")


def end_containers(channel: grpc.Channel, pod_uid: str) -> list[str]:
    """End every container of a pod that has not ended; their names. RpcError."""
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
