"""EDGE: adds the kubelet's podresources to the inputs, only where needed: gRPC takes memory.

    WithKubelet(sources, socket, static_cpus)  --read()-->  AgentInputs

It is asked when it gives CPUs out itself (its static CPU manager), and when the list of pods is one that was recalled:
to tell of pods that came since. Without the socket, or without grpc, that is a note and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from cotenant.base.allocation.cpu_lists import Cpus
from cotenant.enforcer.runtime import INSTALL
from cotenant.enforcer.sources.kubelet import Assignments
from cotenant.enforcer.sources.sources import AgentInputs, Sources


class Kubelet(Protocol):
    """The client of the kubelet: `runtime.pod_resources.PodResources`."""

    assignments: Assignments | None
    problem: str

    def start(self) -> None:
        """Start the thread that sends the questions."""
        ...

    def stop(self) -> None:
        """Stop the thread that sends the questions."""
        ...


class WithKubelet:
    """The sources with the kubelet's assignments. For one thread, but for `start` and `stop`."""

    def __init__(self, inner: Sources, socket: str, static_cpus: bool) -> None:
        """socket: of the podresources service; not opened before the first `read` that needs it."""
        self._inner, self._socket, self._needed = inner, socket, static_cpus
        self._kubelet: Kubelet | None = None
        self._missing = ""
        self._exclusive: Mapping[str, Cpus] = {}

    def start(self) -> None:
        """Start the threads that keep the readings fresh."""
        self._inner.start()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until everything was received once; False on timeout. The kubelet is not waited for."""
        return self._inner.wait(timeout_seconds)

    def stop(self) -> None:
        """Stop the threads that keep the readings fresh."""
        self._inner.stop()
        if self._kubelet:
            self._kubelet.stop()

    def read(self) -> AgentInputs:
        """Return the present inputs."""
        inputs = self._inner.read()
        self._needed |= "pods" in inputs.recalled
        if not self._needed:
            return inputs
        if self._kubelet is None and not self._missing:
            self._begin()
        if self._kubelet is None:
            return _add_note(inputs, self._missing)
        problem = f"the kubelet's {self._socket}: {self._kubelet.problem}" if self._kubelet.problem else ""
        merged = add_assignments(_add_note(inputs, problem), self._kubelet.assignments, self._exclusive)
        self._exclusive = merged.kubelet.exclusive
        return merged

    def _begin(self) -> None:
        try:
            from cotenant.enforcer.runtime.pod_resources import PodResources
        except ModuleNotFoundError as missing:
            self._missing = f"the kubelet is not asked: {missing.name} is missing: {INSTALL}"
            return
        self._kubelet = PodResources(self._socket)
        self._kubelet.start()


def _add_note(inputs: AgentInputs, note: str) -> AgentInputs:
    return replace(inputs, notes=(*inputs.notes, note)) if note else inputs


def add_assignments(inputs: AgentInputs, assignments: Assignments | None, before: Mapping[str, Cpus]) -> AgentInputs:
    """The inputs with the kubelet's assignments; before: exclusive CPUs of the tick before.

    A kubelet that starts while the API server is away names no pods, though they run: who is not named keeps what it
    had as long as it is known here, and a recalled pod is judged by its cgroup alone.
    """
    if assignments is None:
        return inputs
    pod_keys = {pod.key for pod in inputs.pods}
    retained = {key: cpus for key, cpus in before.items() if key in pod_keys and key not in assignments.pods}
    strangers = sorted(assignments.pods - pod_keys) if "pods" in inputs.recalled else []
    note = f"the kubelet runs {len(strangers)} pods that are not known here: {', '.join(strangers[:3])}"
    return _add_note(
        replace(inputs, kubelet=replace(assignments, exclusive={**retained, **assignments.exclusive})),
        note if strangers else "",
    )
