"""Node agents of nodes without kubelets: each reports that its pods use what a test says, as long as a block lasts."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.cluster.api import Api, ApiError, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.scheduler_ext.rebalance.migration.moments import moment

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
SYSTEM_CORES = 0.5
KINDS = ("nodemetrics.slo.koordinator.sh", "usageforecasts.cotenant.dev")


class FakeAgents:
    """Agents of some nodes, with half a core of system usage each.

    cores: what a pod uses in the mean, by its label `app`; noise: how far from it, as a share (standard deviation).
    """

    def __init__(
        self, plane: ControlPlane, namespace: str, nodes: Sequence[str], cores: Mapping[str, float], noise: float = 0.0
    ) -> None:
        self.loads: dict[str, float] = {}
        """Cores in use on each node at the last look."""
        self.samples: dict[str, list[float]] = {name: [] for name in nodes}
        """The same of every look."""
        self._plane, self._namespace, self._nodes = plane, namespace, nodes
        self._cores, self._noise, self._seed = cores, noise, random.Random(3)
        for name in KINDS:
            install_crd(plane.api(), name)

    @contextmanager
    def reporting(self, every_seconds: float = 0.5) -> Iterator[FakeAgents]:
        """From the first complete report to the end of the block."""
        api = self._plane.api()
        for name in self._nodes:
            head = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": name}}
            api.create(METRICS, head)
        self.report(api)
        api.close()
        stopping = threading.Event()
        thread = threading.Thread(target=self._run, args=(stopping, every_seconds), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            stopping.set()
            thread.join()
            api = self._plane.api()  # the first one's connection was idle for too long
            for name in self._nodes:
                api.delete(f"{METRICS}/{name}")
            api.close()

    def report(self, api: Api) -> None:
        """Every node once, from the pods that run there now."""
        pods: dict[str, list[Json]] = {name: [] for name in self._nodes}
        for pod in api.items(f"/api/v1/namespaces/{self._namespace}/pods"):
            node = pod["spec"].get("nodeName")
            if node in pods and pod["status"].get("phase") == "Running":
                pods[node].append(pod)
        for name, own in pods.items():
            self._report_node(api, name, own)

    def _report_node(self, api: Api, name: str, pods: Sequence[Json]) -> None:
        used = [(pod["metadata"], self._used(pod["metadata"]["labels"]["app"])) for pod in pods]
        self.loads[name] = SYSTEM_CORES + sum(cores for _, cores in used)
        self.samples[name].append(self.loads[name])
        status = {
            "updateTime": moment(time.time()),
            "nodeMetric": {"nodeUsage": _usage(self.loads[name]), "systemUsage": _usage(SYSTEM_CORES)},
            "podsMetric": [
                {"namespace": meta["namespace"], "name": meta["name"], "podUsage": _usage(cores)}
                for meta, cores in used
            ],
        }
        api.patch(f"{METRICS}/{name}/status", {"status": status})

    def _used(self, app: str) -> float:
        return max(self._cores[app] * self._seed.gauss(1.0, self._noise), 0.0)

    def _run(self, stopping: threading.Event, every_seconds: float) -> None:
        api = self._plane.api()
        while not stopping.wait(every_seconds):
            try:
                self.report(api)
            except (OSError, ApiError):
                api.close()
                api = self._plane.api()
        api.close()


def _usage(cores: float) -> Json:
    return {"resources": {"cpu": f"{round(cores * 1000)}m", "memory": "64Mi"}}
