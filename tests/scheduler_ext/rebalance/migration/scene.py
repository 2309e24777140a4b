"""Moves on a real control plane: workloads that make their pods anew, jobs that people write, and what came first."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import msgspec

from cotenant.base.kubernetes.protocol import SCHEDULING_GROUP
from cotenant.manager.features import NAMES
from cotenant.scheduler_ext.rebalance.model.settings import DeschedulerSettings
from cotenant.settings import Settings
from tests.cluster.api import ApiError, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.rebalance.migration.moments import moment
from tests.scheduler_ext.reservations.scene import RESERVATIONS, Scene, install

JOBS = f"/apis/{SCHEDULING_GROUP}/podmigrationjobs"
MIGRATIONS = ("migrations", "reservations")
LIMITERS_OFF: Json = {"objectLimiters": {"workload": {"duration": "0"}}}


def configuration(load: Json | None = None, emptying: Json | None = None, **migration: Any) -> Json:
    """Koordinator's configuration of its descheduler; emptying: arguments of HighNodeLoad."""
    entries = [
        {"name": "HighNodeLoad", "args": emptying or {}},
        {"name": "LowNodeLoad", "args": load or {}},
        {"name": "MigrationController", "args": {**LIMITERS_OFF, **migration}},
    ]
    return {"kind": "DeschedulerConfiguration", "profiles": [{"pluginConfig": entries}]}


class MigrationScene(Scene):
    """One namespace; `descheduler` are settings of the next manager, `features` those that it runs."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(plane, namespace)
        self.pods_path = f"/api/v1/namespaces/{namespace}/pods"
        self.features: Sequence[str] = MIGRATIONS
        self.descheduler: Json = {"pause_seconds": 0, "churn_percent": 100, "configuration": configuration()}

    def settings(self, kubeconfig: Path | None = None, **reservations: Any) -> Settings:
        """Settings of a manager that moves pods, and deals with the rooms that they go to."""
        settings = super().settings(kubeconfig, **reservations)
        off = [name for name in NAMES if name not in self.features]
        return msgspec.structs.replace(
            settings,
            manager=msgspec.structs.replace(settings.manager, features_off=off),
            descheduler=msgspec.convert({"enabled": True, **self.descheduler}, DeschedulerSettings),
        )

    def workload(self, name: str, replicas: int, cpu: str = "1", **spec: Any) -> list[Json]:
        """A ReplicaSet of the namespace; its pods once they run."""
        labels = {"app": name}
        containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}]
        template = {"terminationGracePeriodSeconds": 0, "containers": containers, **spec}
        body = {
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": template},
            },
        }
        self.api.create(f"/apis/apps/v1/namespaces/{self.namespace}/replicasets", body)
        wait_for(f"{replicas} pods of {name} run", lambda: len(self.ready_pods(name)) == replicas)
        return self.ready_pods(name)

    def workloads_on(self, node: str, nodes: Sequence[str], replicas: dict[str, int], **spec: Any) -> None:
        """Workloads all of whose pods begin on one of the nodes, an hour ago as far as anybody can see."""
        others = [f"/api/v1/nodes/{name}" for name in nodes if name != node]
        for path in others:
            self.api.patch(path, {"spec": {"unschedulable": True}})
        for app, count in replicas.items():
            self.workload(app, count, **spec)
            wait_for(f"all pods of {app} run on {node}", partial(self._gathered, app, count, node))
            for pod in self.ready_pods(app):
                self.age(pod)
        for path in others:
            self.api.patch(path, {"spec": {"unschedulable": None}})

    def _gathered(self, app: str, count: int, node: str) -> bool:
        """Whether all pods run on the node. Those that were placed before the scheduler saw the others closed go."""
        ready = self.ready_pods(app)
        strays = [pod["metadata"]["name"] for pod in ready if pod["spec"]["nodeName"] != node]
        for name in strays:
            self.api.delete(f"{self.pods_path}/{name}")
        return not strays and len(ready) == count

    def age(self, pod: Json, seconds: float = 3600.0) -> None:
        """A pod has been on its node for so long."""
        since = moment(time.time() - seconds)
        conditions = [{**condition, "lastTransitionTime": since} for condition in pod["status"]["conditions"]]
        path = f"{self.pods_path}/{pod['metadata']['name']}/status"
        self.api.patch(path, {"status": {"conditions": conditions}}, kind="strategic")

    def pods_of(self, app: str) -> list[Json]:
        """Pods of a workload that are not being deleted."""
        pods = self.api.items(self.pods_path, labelSelector=f"app={app}")
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def ready_pods(self, app: str) -> list[Json]:
        """Those of them that are ready."""
        conditions = [(pod, pod["status"].get("conditions") or ()) for pod in self.pods_of(app)]
        return [p for p, all_ in conditions if any(c["type"] == "Ready" and c["status"] == "True" for c in all_)]

    def budget(self, app: str, name: str = "", **spec: Any) -> None:
        """A PodDisruptionBudget of a workload, once the control plane has counted it; name: as the workload's."""
        path = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        body = {"metadata": {"name": name or app}, "spec": {"selector": {"matchLabels": {"app": app}}, **spec}}
        self.api.create(path, body)
        wait_for("it is counted", lambda: self.api.get(f"{path}/{name or app}").get("status", {}).get("expectedPods"))

    def job(self, pod: Json, **spec: Any) -> str:
        """A job that a person writes, by the name of its pod; returns its own name, unique in the cluster."""
        meta = pod["metadata"]
        reference = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
        body = {
            "apiVersion": SCHEDULING_GROUP,
            "kind": "PodMigrationJob",
            "metadata": {"generateName": "move-"},
            "spec": {"podRef": reference, **spec},
        }
        return str(self.api.create(JOBS, body)["metadata"]["name"])

    def job_status(self, name: str) -> Json:
        """Status of a job."""
        return self.api.get(f"{JOBS}/{name}").get("status") or {}

    def await_job(self, name: str, phase: str = "Succeeded", seconds: float = 120.0) -> Json:
        """A job's status once it has come to a phase."""
        wait_for(f"{name} {phase}", lambda: self.job_status(name).get("phase") == phase, seconds)
        return self.job_status(name)

    def event_reasons(self, job: str) -> set[str]:
        """Reasons of the Events about a job."""
        return {event["reason"] for event in self._events(job)}

    def event_notes(self, job: str) -> set[str]:
        """What they say."""
        return {str(event.get("note")) for event in self._events(job)}

    def _events(self, job: str) -> list[Json]:
        events = self.api.items("/apis/events.k8s.io/v1/events")
        return [event for event in events if (event.get("regarding") or {}).get("name") == job]

    def rooms(self) -> list[Json]:
        """Reservations of moves that have not ended."""
        reservations = self.api.items(RESERVATIONS, labelSelector="cotenant.dev/migration")
        return [
            reservation
            for reservation in reservations
            if (reservation.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]


def install_migrations(plane: ControlPlane) -> None:
    """Definitions and what Reservations need; rights come with the manager's account."""
    install(plane, kinds=("podmigrationjobs.scheduling.koordinator.sh",))


def cleared_jobs(moves: MigrationScene) -> None:
    """End what a test left of jobs."""
    for job in moves.api.items(JOBS):
        moves.api.delete(f"{JOBS}/{job['metadata']['name']}")


@dataclass
class Chronicle:
    """What happened to pods and rooms, in the order of etcd's revisions.

    deleted_pods: pod uid -> (name, revision at which its deletion began). availability: room -> revisions at which it
    became, and ceased to be, Available for whoever comes. fewest: label `app` -> fewest pods of it that were ready at
    any time.
    """

    moves: MigrationScene
    deleted_pods: dict[str, tuple[str, int]] = field(default_factory=dict)
    availability: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)
    fewest: dict[str, int] = field(default_factory=dict)
    ready: dict[str, set[str]] = field(default_factory=dict)

    @contextmanager
    def recording(self) -> Iterator[Chronicle]:
        """From here to the end of the block."""
        stopping = threading.Event()
        paths = {self.moves.pods_path: self._pod, RESERVATIONS: self._room}
        threads = []
        for path, note in paths.items():
            present = self.moves.api.get(path)
            for pod in present["items"] if path == self.moves.pods_path else ():
                self._count(pod, deleted=False)
            self.fewest = {app: len(uids) for app, uids in self.ready.items()}
            version = present["metadata"]["resourceVersion"]
            threads.append(threading.Thread(target=self._follow, args=(path, version, note, stopping), daemon=True))
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            stopping.set()
            for thread in threads:
                thread.join()

    def _follow(self, path: str, version: str, note: Any, stopping: threading.Event) -> None:
        api = self.moves.plane.api()
        while not stopping.is_set():
            try:
                for event in api.watch(path, resourceVersion=version, timeoutSeconds="1"):
                    note(event)
                    version = event["object"]["metadata"]["resourceVersion"]
            except (OSError, HTTPException, ApiError):
                api.close()
                api = self.moves.plane.api()
        api.close()

    def _pod(self, event: Json) -> None:
        meta = event["object"]["metadata"]
        deleted = bool(event["type"] == "DELETED" or meta.get("deletionTimestamp"))
        app = self._count(event["object"], deleted)
        self.fewest[app] = min(self.fewest.get(app, 0), len(self.ready[app]))
        if deleted:
            self.deleted_pods.setdefault(meta["uid"], (meta["name"], int(meta["resourceVersion"])))

    def _count(self, pod: Json, deleted: bool) -> str:
        """Count a pod among the ready ones of its workload, which is returned."""
        app = str((pod["metadata"].get("labels") or {}).get("app", ""))
        conditions = pod["status"].get("conditions") or ()
        uids = self.ready.setdefault(app, set())
        is_ready = not deleted and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        (uids.add if is_ready else uids.discard)(pod["metadata"]["uid"])
        return app

    def _room(self, event: Json) -> None:
        body = event["object"]
        status = body.get("status") or {}
        stands = event["type"] != "DELETED" and status.get("phase") == "Available" and not status.get("currentOwners")
        self.availability.setdefault(body["metadata"]["name"], []).append(
            (int(body["metadata"]["resourceVersion"]), stands)
        )

    def available_at(self, room: str, revision: int) -> bool:
        """Whether a room was Available at a revision, for whoever came next."""
        before = [stands for at, stands in self.availability.get(room, ()) if at <= revision]
        return bool(before) and before[-1]
