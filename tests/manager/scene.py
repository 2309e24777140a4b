"""A manager before a real API server: what people write, what it made of it, and who wrote how often."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from cotenant.base.identity import WorkloadRef
from cotenant.base.logs.metrics import Metrics
from cotenant.base.resource import Resource
from cotenant.base.settings.sections import KubeSettings, ManagerSettings, StoreSettings
from cotenant.manager.decisions.results import ContainerAdvice, NodeOutlook, RunResults, SeriesOutlook, WorkloadAdvice
from cotenant.manager.run import Manager, Options
from cotenant.settings import Settings
from tests.cluster.accounts import account
from tests.cluster.api import Api, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.fake_nodes import each
from tests.cluster.waiting import wait_for
from tests.support.settings_files import document

BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
SLO = "/apis/slo.koordinator.sh/v1alpha1"
RECOMMENDATIONS = "/apis/analysis.koordinator.sh/v1alpha1"
FORECASTS = "/apis/cotenant.dev/v1alpha1/usageforecasts"
KINDS = (
    "nodemetrics.slo.koordinator.sh",
    "nodeslos.slo.koordinator.sh",
    "recommendations.analysis.koordinator.sh",
    "reservationplans.cotenant.dev",
    "reservations.scheduling.koordinator.sh",
    "swapguards.cotenant.dev",
    "usageforecasts.cotenant.dev",
)
QUICK = {
    "coalesce_seconds": 0.05,
    "resync_seconds": 1.0,
    "feature_retry_seconds": 1.0,
    "lease_seconds": 6.0,
}
"""Waits of the manager that tests sit through."""


class Scene:
    """One test's cluster: its namespace holds the Lease and the ConfigMap.

    People and agents write as administrator; managers have the rights of the documented account.
    """

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path) -> None:
        self.plane, self.namespace, self.folder = plane, namespace, folder
        self.api: Api = plane.api()
        for name in KINDS:
            install_crd(self.api, name)

    @cached_property
    def account(self) -> Path:
        """Kubeconfig of the manager's account."""
        return account(self.plane, "cotenant-manager", self.namespace)

    # --- what people and agents write ---------------------------------------------------------------------------------
    def configure(self, **keys: Any) -> None:
        """slo-controller-config; underscores stand for dashes, a text is taken as it is."""
        data = {k.replace("_", "-"): v if isinstance(v, str) else json.dumps(v) for k, v in keys.items()}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slo-controller-config"}, "data": data}
        path = f"/api/v1/namespaces/{self.namespace}/configmaps/slo-controller-config"
        self.api.patch(path, body, kind="apply", fieldManager="person", force="true")

    def report(self, nodes: Sequence[str], system_cpu: str = "1", pods: Sequence[Json] = ()) -> None:
        """NodeMetrics made just now."""
        head = {"apiVersion": SLO.removeprefix("/apis/"), "kind": "NodeMetric"}
        usage = {
            "nodeUsage": {"resources": {"cpu": "3", "memory": "8Gi"}},
            "systemUsage": {"resources": {"cpu": system_cpu, "memory": "2Gi"}},
        }
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"updateTime": now, "nodeMetric": usage, "podsMetric": list(pods)}

        def report_node(api: Api, node: str) -> None:
            path, apply = f"{SLO}/nodemetrics/{node}", {"kind": "apply", "fieldManager": "agent", "force": "true"}
            uid = api.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
            owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
            api.patch(path, {**head, "metadata": {"name": node, "ownerReferences": [owner]}, "spec": {}}, **apply)
            api.patch(f"{path}/status", {**head, "metadata": {"name": node}, "status": status}, **apply)

        each(self.plane.api, nodes, report_node)

    # --- what is there ------------------------------------------------------------------------------------------------
    def allocatable(self, nodes: Sequence[str]) -> dict[str, dict[str, str]]:
        """status.allocatable of these nodes, extended resources only."""
        by_node = {n: self.api.get(f"/api/v1/nodes/{n}")["status"]["allocatable"] for n in nodes}
        return {n: {k: v for k, v in amounts.items() if "/" in k} for n, amounts in by_node.items()}

    def lent(self, nodes: Sequence[str]) -> bool:
        """Whether each of these nodes carries both batch resources."""
        return all({BATCH_CPU, BATCH_MEMORY} <= amounts.keys() for amounts in self.allocatable(nodes).values())

    def writes_of(self, paths: Sequence[str], manager: str = "cotenant-manager") -> dict[str, str]:
        """When the manager last changed each of these objects: the API server's own account of it."""
        times_by_path = {}
        for path in paths:
            fields = self.api.get(path)["metadata"].get("managedFields", [])
            times_by_path[path] = " ".join(sorted(f["time"] for f in fields if f["manager"] == manager))
        return times_by_path

    def state(self, feature: str) -> dict[str, str]:
        """A feature's condition in the ConfigMap cotenant-status; empty while there is none."""
        path = f"/api/v1/namespaces/{self.namespace}/configmaps/cotenant-status"
        data = self.api.get(path)["data"] if self.api.exists(path) else {}
        return json.loads(data.get(feature, "{}"))

    def events(self, reason: str) -> list[Json]:
        """Events of the namespace with a reason."""
        items = self.api.items(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [event for event in items if event.get("reason") == reason]

    # --- managers -----------------------------------------------------------------------------------------------------
    def settings(self, kubeconfig: Path | None = None, **manager: Any) -> Settings:
        """Settings of a manager of this namespace; publishing features are off unless `features_off` says otherwise."""
        own: dict[str, Any] = {
            "namespace": self.namespace,
            "write": True,
            "features_off": ["recommendations", "forecasts"],
        }
        own |= manager  # Reservations have their own scene in tests/scheduler_ext, plans in test_planning
        own["features_off"] = sorted({*own["features_off"], "reservations", "plans"})
        return msgspec.structs.replace(
            Settings(),
            manager=msgspec.convert({**QUICK, **own}, ManagerSettings),
            kube=KubeSettings(kubeconfig=str(kubeconfig or self.account), watch_backoff_seconds=2.0),
            store=StoreSettings(url=self.folder.as_uri()),
        )

    def manager(self, kubeconfig: Path | None = None, elect: bool = True, **manager: Any) -> Manager:
        """One in this process, not started; it watches with the settings' own patience."""
        settings = self.settings(kubeconfig, **manager)
        patience = {"watch_backoff_seconds": settings.kube.watch_backoff_seconds}
        client = self.plane.client(kubeconfig or self.account, **patience)
        return Manager(client, settings, Metrics("test", "3"), Options("test", elect))

    @contextmanager
    def process(self, kubeconfig: Path | None = None, **manager: Any) -> Iterator[Process]:
        """One in a process of its own, killed at the end."""
        process = Process(self.settings(kubeconfig, **manager), self.folder)
        try:
            yield process
        finally:
            process.kill()


def deployed(cluster: Scene, name: str = "web") -> WorkloadRef:
    """A Deployment without pods in the cluster's namespace."""
    labels = {"app": name}
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "app", "image": "example.invalid/a:1"}]},
        },
    }
    cluster.api.create(
        f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments", {"metadata": {"name": name}, "spec": spec}
    )
    return WorkloadRef(cluster.namespace, "Deployment", name)


def results_of(workload: WorkloadRef, node: str, cpu_millicores: int = 250) -> RunResults:
    """What a run just now would say about one workload and one node."""
    now = int(time.time()) // 1800 * 1800
    container = ContainerAdvice("app", {Resource.CPU: cpu_millicores, Resource.MEMORY: 300 << 20})
    rest: dict[str, Any] = {"start_seconds": now - 14 * 86_400, "end_seconds": now}
    rest |= {"settings_digest": "aaaabbbbcccc", "record_digest": "111122223333"}
    advice = WorkloadAdvice(workload.namespace, workload.kind, workload.name, (container,), **rest)
    series = {
        Resource.CPU: SeriesOutlook([1000] * 48, [1500] * 48, 2000, now + 3600, "seasonal", "ok"),
        Resource.MEMORY: SeriesOutlook([1 << 30] * 48, [2 << 30] * 48, 3 << 30, None, "naive", "no-peak"),
    }
    outlook = NodeOutlook(node, now, 1800, series, "aaaabbbbcccc", now - 28 * 86_400, now)
    return RunResults(now, (advice,), (outlook,))


class Process:
    """`cotenant serve manager` as people start it."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        number = len(list(folder.glob("manager-*.log")))
        self.log = folder / f"manager-{number}.log"
        file = folder / f"manager-{number}.json"  # JSON is YAML
        config: Mapping[str, Any] = {
            **document(settings, "manager"),
            "kube": {"kubeconfig": settings.kube.kubeconfig},
            "store": {"url": settings.store.url},
            "telemetry": {"health_port": 0, "log_format": "json"},
        }
        file.write_text(json.dumps(config))
        command = [
            sys.executable,
            "-c",
            "from cotenant.cli.main import run; run()",
            "--config",
            str(file),
            "serve",
            "manager",
        ]
        with self.log.open("wb") as out:
            self._child = subprocess.Popen(command, stderr=out, env=dict(os.environ))

    def lines(self) -> list[dict[str, Any]]:
        """Its log lines so far; other text on stderr is left out, and so is a line still being written."""
        complete_lines, _, _ = self.log.read_text().rpartition("\n")
        return [json.loads(line) for line in complete_lines.splitlines() if line.startswith("{")]

    def wait_state(self, feature: str, state: str, after: int = 0) -> None:
        """Until it has said, after that many log lines, that a feature stands so."""

        def has_reported() -> bool:
            assert self._child.poll() is None, self.log.read_text()[-2000:]
            return any(
                x["msg"] == "feature" and (x["feature"], x["state"]) == (feature, state) for x in self.lines()[after:]
            )

        wait_for(f"{feature} {state}", has_reported)

    def pause(self) -> None:
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._child.send_signal(signal.SIGCONT)

    def terminate(self) -> int:
        """SIGTERM; its exit code."""
        self._child.terminate()
        return self._child.wait(60)

    def kill(self) -> None:
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()
