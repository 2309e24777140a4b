"""EDGE: asks the container runtime (CRI) to end containers at once, from a thread of its own.

    stop_containers(eviction, because) --> ListPodSandbox, ListContainers --> StopContainer(id, timeout 0) each
    answers() --> stopped, not-stopped, or gone when no container of the pod runs

As Koordinator's agent does: the pod object stays until the API server or the kubelet takes it away, and the kubelet may
start the container again after its back-off. The containers are those that the runtime itself lists for the pod's uid:
the agent's own list may be old, for the API server may be away.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, Final

import grpc

from enforcer.contract import Evict
from enforcer.evicting import Answer
from enforcer.runtime.grpc_options import CHANNEL_OPTIONS
from enforcer.runtime.messages import cri

SERVICE: Final = "/runtime.v1.RuntimeService"
ENDED: Final = (2, 3)
"""CRI's states of a container: exited, unknown."""
WAITING: Final = 50
"""Pods that may wait; more are refused at once."""
ANSWER_SECONDS: Final = 10.0
"""For one call; to end a container the runtime kills its processes and waits until they are gone."""


class ContainerStopper:
    """A queue and its thread. The runtime need not be there yet."""

    def __init__(self, socket: str) -> None:
        """socket: the runtime's CRI socket. Nothing is opened before `start`."""
        self._socket = socket
        self._queue: queue.Queue[tuple[Evict, str] | None] = queue.Queue(WAITING)
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="container-stops", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop_containers(self, eviction: Evict, because: str) -> None:
        """Put a pod into the queue; because: why it is not left to the API server."""
        try:
            self._queue.put_nowait((eviction, because))
        except queue.Full:
            self._answers.put(Answer(eviction, "not-stopped", f"{WAITING} pods wait already"))

    def answers(self) -> list[Answer]:
        """What came back since the last call."""
        found = []
        while not self._answers.empty():
            found.append(self._answers.get())
        return found

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Work no more; what waits is dropped."""
        while not self._queue.empty():
            try:
                self._queue.get_nowait()
            except queue.Empty:
                break
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        with grpc.insecure_channel(f"unix:{self._socket}", CHANNEL_OPTIONS) as channel:
            while (item := self._queue.get()) is not None:
                eviction, because = item
                try:
                    ended = end_containers(channel, eviction.uid)
                except grpc.RpcError as error:
                    why = f"{because}; the runtime: {error.code().name} {error.details()}"
                    self._answers.put(Answer(eviction, "not-stopped", why))
                except Exception as error:  # noqa: BLE001 - a thread's death would stop nobody ever after, in silence
                    why = f"{because}; {type(error).__name__}: {error}"
                    self._answers.put(Answer(eviction, "not-stopped", why))
                else:
                    why = f"{because}; ended: {', '.join(ended)}" if ended else f"{because}; no container of it runs"
                    self._answers.put(Answer(eviction, "stopped" if ended else "gone", why))


def end_containers(channel: grpc.Channel, pod_uid: str) -> list[str]:
    """End every container of a pod that has not ended; their names. RpcError."""
    ended = []
    for container in _running(channel, pod_uid):
        request = cri.StopContainerRequest(container_id=container.id, timeout=0)
        try:
            _call(channel, "StopContainer", request)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:  # it has gone meanwhile
                raise
        ended.append(container.metadata.name)
    return ended


def _running(channel: grpc.Channel, pod_uid: str) -> Iterator[Any]:
    listed = cri.ListPodSandboxResponse.FromString(_call(channel, "ListPodSandbox", cri.ListPodSandboxRequest()))
    sandboxes = {sandbox.id for sandbox in listed.items if sandbox.metadata.uid == pod_uid}
    if sandboxes:
        answer = _call(channel, "ListContainers", cri.ListContainersRequest())
        for container in cri.ListContainersResponse.FromString(answer).containers:
            if container.pod_sandbox_id in sandboxes and container.state not in ENDED:
                yield container


def _call(channel: grpc.Channel, method: str, request: Any) -> bytes:
    send = channel.unary_unary(f"{SERVICE}/{method}")
    answer: bytes = send(request.SerializeToString(), timeout=ANSWER_SECONDS)
    return answer
