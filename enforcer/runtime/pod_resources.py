"""EDGE: the kubelet's podresources service (v1): which pods it runs, and which CPUs its static policy assigned to them.

A thread queries it every ASK_SECONDS with a deadline, so that a kubelet that hangs delays no tick. The last answer is
used until there is a newer one: a kubelet that is down starts no pod and assigns no CPU. The service names pods and
containers, but has neither uids nor the runtime's ids.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import grpc

from cotenant.base.allocation.cpu_topology import LARGEST_CPU
from cotenant.enforcer.runtime.messages import pod_resources
from cotenant.enforcer.sources.wire import NOT_ASKED, Assignments

ASK_SECONDS: Final = 10.0
DEADLINE_SECONDS: Final = 5.0
LARGEST_ANSWER_BYTES: Final = 16 << 20
SERVICE: Final = "/v1.PodResourcesLister"
_OPTIONS: Final = (("grpc.max_receive_message_length", LARGEST_ANSWER_BYTES), ("grpc.max_reconnect_backoff_ms", 1000))


class PodResourcesClient:
    """Queries the kubelet's podresources service; any thread may read its newest `assignments`, and `problem`."""

    def __init__(self, socket: Path) -> None:
        self.assignments: Assignments | None = None
        """The newest answer; None before the first one."""
        self.problem = NOT_ASKED
        """Why the last query had no answer, or empty."""
        self._socket = socket
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="podresources", daemon=True)

    def start(self) -> None:
        """Start the thread that queries the service."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread that queries the service."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(2 * DEADLINE_SECONDS)

    def _run(self) -> None:
        with grpc.insecure_channel(f"unix:{self._socket}", _OPTIONS) as channel:
            while True:
                problem = objection(self._socket)
                try:
                    if not problem:
                        self.assignments = read_assignments(channel)
                except grpc.RpcError as error:
                    problem = f"{error.code().name}: {error.details()}"
                except ValueError as error:
                    problem = str(error)
                self.problem = problem
                if self._ended.wait(ASK_SECONDS):
                    return


def objection(socket: Path) -> str:
    """Return why the agent must not query a socket's path; "" if it is a socket of root or of this user."""
    try:
        status = socket.lstat()
    except OSError as refused:
        return str(refused.strerror)
    if not stat.S_ISSOCK(status.st_mode):
        return "the path is not a socket"
    return "" if status.st_uid in (0, os.geteuid()) else f"the socket belongs to user {status.st_uid}, not to root"


def read_assignments(channel: Any) -> Assignments:
    """Query the service once; raise RpcError, or ValueError for CPU numbers that no machine has."""
    listed = _call(channel, "List", pod_resources.ListRequest(), pod_resources.ListResponse)
    request = pod_resources.AllocatableRequest()
    offered = _call(channel, "GetAllocatableResources", request, pod_resources.AllocatableResponse)
    pods = [(f"{pod.namespace}/{pod.name}", pod.containers) for pod in listed.pod_resources]
    cpus_by_pod = {key: _cpus(cpu for container in containers for cpu in container.cpu_ids) for key, containers in pods}
    exclusive = {key: cpus for key, cpus in cpus_by_pod.items() if cpus}
    allocatable = _cpus(offered.cpu_ids)
    static = True if allocatable else False if pods else None
    return Assignments(frozenset(key for key, _ in pods), exclusive, allocatable, static)


def _cpus(ids: Iterable[int]) -> frozenset[int]:
    cpus = frozenset(ids)
    wrong = next((cpu for cpu in cpus if not 0 <= cpu <= LARGEST_CPU), None)
    if wrong is not None:
        raise ValueError(f"the kubelet names CPU {wrong}, which no machine has")
    return cpus


def _call(channel: Any, method: str, request: Any, answer: Any) -> Any:
    send = channel.unary_unary(f"{SERVICE}/{method}", type(request).SerializeToString, answer.FromString)
    return send(request, timeout=DEADLINE_SECONDS)
