"""EDGE: adds to the inputs what the kubelet reports by its podresources service.

    WithKubelet(sources, socket, static_cpus)  --read()-->  AgentInputs

The service shows whether the kubelet assigns CPUs (its static CPU manager), and to which pods; no file on the node
shows the former for certain. While the list of pods is recalled from disk, it also shows which pods are new. Without
the socket or grpc the inputs have a note; if the kubelet's configuration does not name the static policy either, the
policy is not known.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cotenant.base.text import agree
from cotenant.enforcer.runtime import INSTALL
from cotenant.enforcer.sources.sources import AgentInputs, Sources
from cotenant.enforcer.sources.wire import NOT_ASKED, Assignments

if TYPE_CHECKING:
    from cotenant.enforcer.runtime.pod_resources import PodResourcesClient

UNKNOWN: Final = (
    "it is not known whether the kubelet assigns CPUs itself: cpusets of Guaranteed pods and of pods without a label"
    " stay as they are"
)


class WithKubelet(Sources):
    """Adds the kubelet's assignments to the inputs of `inner`; one thread uses it, except for `start` and `stop`."""

    inner: Sources

    def __init__(self, inner: Sources, socket: str, static_cpus: bool) -> None:
        """Wrap `inner`; `socket` is the podresources service's, "" = not used; `static_cpus` as in `KubeletConfig`."""
        self.inner, self._socket = inner, Path(socket) if socket else None
        self._kubelet: PodResourcesClient | None = None
        self._missing = ""
        self._before = Assignments(static_cpus=static_cpus or None)

    def start(self) -> None:
        """Start the threads that keep the inputs up to date."""
        self.inner.start()
        self._begin()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until `inner` has every input; return whether it has and the kubelet had been queried before."""
        kubelet_was_asked = self._kubelet is None or self._kubelet.problem != NOT_ASKED
        return self.inner.wait(timeout_seconds) and kubelet_was_asked

    def stop(self) -> None:
        """Stop the threads that keep the inputs up to date."""
        self.inner.stop()
        if self._kubelet:
            self._kubelet.stop()

    def read(self) -> AgentInputs:
        """Return the present inputs, with the kubelet's assignments."""
        inputs = self.inner.read()
        self._begin()
        kubelet = self._kubelet
        problem = f"the kubelet's {self._socket}: {kubelet.problem}" if kubelet and kubelet.problem else self._missing
        merged = add_assignments(_add_note(inputs, problem), kubelet.assignments if kubelet else None, self._before)
        self._before = merged.kubelet
        return _add_note(merged, UNKNOWN) if merged.kubelet.static_cpus is None else merged

    def _begin(self) -> None:
        """Start querying once there is a socket; without one gRPC is not loaded, which takes 13 MiB."""
        if self._kubelet is not None or self._socket is None:
            return
        if not os.path.exists(self._socket):  # noqa: PTH110 - also False for what may not be looked at
            self._missing = f"the kubelet has no socket {self._socket}"
            return
        try:
            from cotenant.enforcer.runtime.pod_resources import PodResourcesClient
        except ModuleNotFoundError as missing:
            self._missing = f"the kubelet is not queried: {missing.name} is missing: {INSTALL}"
            self._socket = None
            return
        self._kubelet, self._missing = PodResourcesClient(self._socket), ""
        self._kubelet.start()


def _add_note(inputs: AgentInputs, note: str) -> AgentInputs:
    return replace(inputs, notes=(*inputs.notes, note)) if note else inputs


def add_assignments(inputs: AgentInputs, assignments: Assignments | None, before: Assignments) -> AgentInputs:
    """Return the inputs with the kubelet's assignments; if they are None, with `before`, those of the previous tick.

    A kubelet that starts while the API server is away lists no pods, although they run. So a pod that it does not list
    keeps its CPUs while the pod is in the inputs; a pod known only from disk leaves the inputs once it has no cgroup.
    Such a kubelet does not report its CPU policy either, so the one in `before` applies.
    """
    if assignments is None:
        return replace(inputs, kubelet=before)
    if assignments.static_cpus is None:
        assignments = replace(assignments, static_cpus=before.static_cpus)
    pod_keys = {pod.key for pod in inputs.pods}
    retained = {key: cpus for key, cpus in before.exclusive.items() if key in pod_keys and key not in assignments.pods}
    strangers = sorted(assignments.pods - pod_keys) if "pods" in inputs.recalled else []
    unknown = agree(len(strangers), "pod that is", "pods that are")
    note = f"the kubelet runs {unknown} not known to the agent: {', '.join(strangers[:3])}"
    assignments = replace(assignments, exclusive={**retained, **assignments.exclusive})
    return _add_note(replace(inputs, kubelet=assignments), note if strangers else "")
