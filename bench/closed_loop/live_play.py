"""Plays the world's steps against a live cluster: what node agents report and do, and the pods of batch jobs.

Real: every object, who admits a batch pod, where it goes, what nodes lend, the policy that agents read. Modelled, by
the functions of the simulated loop: what pods use, how far agents hold batch back, which pods they evict, when a job
has ended. Within a step of wall time, as in the loop:

    report usage of the step before -> jobs arrive -> (manager, webhook, scheduler, extender) -> batch works -> account
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench.closed_loop.live_cluster import NAMESPACE, LiveWorld, batch_pod
from cotenant.base.kubernetes.protocol import NODE_AGENT, SLO_GROUP, SUPPRESSED_FRACTION_ANNOTATION
from cotenant.base.kubernetes.quantity import parse_bytes
from cotenant.base.resource import Resource
from cotenant.enforcer.model.node_policy import Thresholds, decode
from cotenant.experiment import agents
from cotenant.experiment.batch_jobs import MEMORY_USED_SHARE, BatchJobs
from cotenant.experiment.loop import HOUR_STEPS, ROUNDING
from cotenant_lab.simulation.node_agents import FIELD_MANAGER, METRICS
from cotenant_lab.simulation.node_reports import metric_status
from tests.cluster.api import Api, ApiError, Json
from tests.cluster.waiting import wait_for

Floats = npt.NDArray[np.float64]

CPU, MEMORY = Resource.CPU, Resource.MEMORY
POLICIES: Final = f"/apis/{SLO_GROUP}/nodeslos"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
LENT: Final = {CPU: "kubernetes.io/batch-cpu", MEMORY: "kubernetes.io/batch-memory"}
STEP_ANNOTATION: Final = "bench.cotenant.dev/step"
LOOK_SECONDS: Final = 300.0
APART_SECONDS: Final = 0.5
"""Of wall time between two jobs that arrive in a step, as they do all through it: the extender has seen the first one's
pod on its node before it is asked about the second. Created together, both would go to the node that was best."""


@dataclass(slots=True)
class LiveJob:
    """A job whose pod waits or runs; tries: pods that it has had; node: None while it waits."""

    number: int
    steps_left: float
    node: int | None = None
    tries: int = 0

    @property
    def name(self) -> str:
        """Of its pod."""
        return f"job-{self.number}-{self.tries}"


@dataclass(slots=True, eq=False)
class LoopRecord:
    """Columns of a run, (n, steps): millicores lent, promised to batch pods that run and used by batch; nodes short.

    ended: jobs that ended, evicted: pods, late: steps whose work took longer than the step.
    """

    lent: Floats
    bound: Floats
    used: Floats
    short: Floats
    ended: int = 0
    evicted: int = 0
    late: int = 0

    @classmethod
    def empty(cls, nodes: int, steps: int) -> LoopRecord:
        """Nothing happened yet."""
        lent, bound, used, short = np.zeros((4, nodes, steps))
        return cls(lent, bound, used, short)


@dataclass(eq=False)
class LivePlay:
    """For one thread; `run` plays so many steps of so many seconds."""

    live: LiveWorld
    jobs: BatchJobs
    api: Api
    active: dict[int, LiveJob] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing runs, nothing is reported."""
        self._cluster, self._nodes = self.live.cluster, len(self.live.nodes)
        self._index = {name: number for number, name in enumerate(self.live.nodes)}
        self._need = {r: self._cluster.need(r) for r in Resource}
        self._request = {r: self.jobs.requests(r) for r in Resource}
        self._pod_use: dict[int, tuple[float, float]] = {}
        self._suppressed = np.zeros(self._nodes)
        self._arrived = 0

    def run(
        self, steps: int, pace: Callable[[int, LoopRecord], None], tell: Callable[[int, LoopRecord], None]
    ) -> LoopRecord:
        """After `begin`. pace: returns when a step is over, tell: is called after it."""
        record = LoopRecord.empty(self._nodes, steps)
        for step in range(steps):
            self._report(self._cluster.first_slot + step - 1)
            self._try_again(step)
            self._arrive(step)
            pace(step, record)
            self._look(step, record)
            tell(step, record)
        return record

    def begin(self, lends: Callable[[], bool]) -> None:
        """First reports; returns when every node lends by them and has its policy. lends: whether amounts are meant."""
        for name in self.live.nodes:
            body = {"apiVersion": SLO_GROUP, "kind": "NodeMetric", "metadata": {"name": name}, "spec": {}}
            self.api.patch(f"{METRICS}/{name}", body, "apply", fieldManager=FIELD_MANAGER)
        self._report(self._cluster.first_slot - 1)
        wait_for("batch-cpu and policies on every node", lambda: self._ready() and lends(), LOOK_SECONDS)

    def _ready(self) -> bool:
        policies = {body["metadata"]["name"] for body in self.api.items(POLICIES)}
        return set(self.live.nodes) <= policies and all(
            LENT[CPU] in node["status"]["allocatable"] for node in self.api.items("/api/v1/nodes")
        )

    # --- node agents ------------------------------------------------------------------------------------------------
    def _report(self, slot: int) -> None:
        """NodeMetrics of what nodes used in a slot, batch included."""
        now = int(time.time())
        for number, name in enumerate(self.live.nodes):
            system = self._system(number, slot)
            pods = [*self._services(number, slot, system), *self._batch(number)]
            total = tuple(system[index] + sum(used[index] for _, _, used in pods) for index in range(2))
            status = metric_status((total[0], total[1]), system, pods, now)
            self.api.patch(f"{METRICS}/{name}/status", {"status": status})

    def _system(self, number: int, slot: int) -> tuple[float, float]:
        cpu, memory = (float(self._cluster.past[r].system[number, slot]) for r in Resource)
        return cpu, memory

    def _services(
        self, number: int, slot: int, system: tuple[float, float]
    ) -> list[tuple[str, str, tuple[float, float]]]:
        """What the world's pods of a node use, shared out by their requests."""
        pods = self.live.pods[self.live.nodes[number]]
        columns = []
        for index, resource in enumerate(Resource):
            requested = np.array([pod.requests.get(resource, 0) for pod in pods], dtype=float) + 1.0
            used = max(float(self._need[resource][number, slot]) - system[index], 0.0)
            columns.append((used * requested / requested.sum()).tolist())
        return [(pod.namespace, pod.name, (cpu, memory)) for pod, cpu, memory in zip(pods, *columns, strict=True)]

    def _batch(self, number: int) -> list[tuple[str, str, tuple[float, float]]]:
        return [
            (NAMESPACE, job.name, self._pod_use[job.number])
            for job in self.active.values()
            if job.node == number and job.number in self._pod_use
        ]

    def _try_again(self, step: int) -> None:
        """Let kube-scheduler look again at pods that the extender refused, as it does after five minutes: a step.

        That wait counts in seconds of the machine. Any event of the cluster ends it for such pods; this is one.
        """
        change = {"metadata": {"annotations": {STEP_ANNOTATION: str(step)}}}
        self.api.patch(f"/api/v1/nodes/{self.live.nodes[0]}", change)

    # --- jobs -------------------------------------------------------------------------------------------------------
    def _arrive(self, step: int) -> None:
        """Pods of the jobs that arrive by now; those that wait and can no longer end in time are withdrawn."""
        while self._arrived < len(self.jobs.arrival) and self.jobs.arrival[self._arrived] <= step:
            job = LiveJob(self._arrived, float(self.jobs.work_steps[self._arrived]))
            self._arrived += 1
            self._create(job)
            time.sleep(APART_SECONDS)
        for job in [job for job in self.active.values() if job.node is None]:
            if step + self.jobs.work_steps[job.number] > self.jobs.deadline[job.number] and self._withdraw(job):
                del self.active[job.number]

    def _create(self, job: LiveJob) -> None:
        self.active[job.number] = job
        amounts = [float(self._request[r][job.number]) for r in Resource]
        self.api.create(PODS, batch_pod(job.name, *amounts))

    def _withdraw(self, job: LiveJob) -> bool:
        """Delete its pod unless the scheduler was faster."""
        pod = self.api.get(f"{PODS}/{job.name}")
        if pod["spec"].get("nodeName"):
            return False
        meta = pod["metadata"]
        try:
            self.api.ask(
                "DELETE", f"{PODS}/{job.name}", {"preconditions": {"resourceVersion": meta["resourceVersion"]}}
            )
        except ApiError as error:
            if error.status != 409:
                raise
            return False
        return True

    # --- the step ---------------------------------------------------------------------------------------------------
    def _look(self, step: int, record: LoopRecord) -> None:
        """Where pods are and what nodes lend, then one step of work."""
        slot, simulated_cluster = self._cluster.first_slot + step, self._cluster
        nodes = self._objects()
        for pod in self.api.items(PODS):
            number = int(pod["metadata"]["name"].split("-")[1])
            job = self.active.get(number)
            if job is not None and job.name == pod["metadata"]["name"] and pod["spec"].get("nodeName"):
                job.node = self._index[pod["spec"]["nodeName"]]
        capacity = {r: simulated_cluster.past[r].capacity.astype(np.float64) for r in Resource}
        bound = self._bound()
        record.lent[:, step] = self._lent(nodes)
        record.bound[:, step] = bound[CPU]
        over = [self._need[r][:, slot] + bound[r] > capacity[r] * (1 + ROUNDING) for r in Resource]
        record.short[:, step] = over[0] | over[1]
        policies = self._policies()
        record.used[:, step] = self._work(slot, bound[CPU], policies, nodes, record)
        record.evicted += self._evict(slot, policies)

    def _policies(self) -> list[Thresholds]:
        """Of each node, as its agent reads them."""
        specs = {body["metadata"]["name"]: body["spec"] for body in self.api.items(POLICIES)}
        return [decode(specs[name]).thresholds for name in self.live.nodes]

    def lent(self) -> Floats:
        """batch-cpu of each node now, (n,) millicores."""
        return self._lent(self._objects())

    def _objects(self) -> dict[str, Json]:
        return {body["metadata"]["name"]: body for body in self.api.items("/api/v1/nodes")}

    def _lent(self, nodes: dict[str, Json]) -> Floats:
        texts = [nodes[name]["status"]["allocatable"].get(LENT[CPU], "0") for name in self.live.nodes]
        return np.array([parse_bytes(text, LENT[CPU]) for text in texts], dtype=np.float64)

    def _placed(self) -> list[LiveJob]:
        return [job for job in self.active.values() if job.node is not None]

    def _where(self) -> npt.NDArray[np.intp]:
        return np.array([job.node for job in self._placed()], dtype=np.intp)

    def _bound(self) -> dict[Resource, Floats]:
        jobs = [job.number for job in self._placed()]
        return {r: np.bincount(self._where(), self._request[r][jobs], self._nodes).astype(np.float64) for r in Resource}

    def _work(
        self, slot: int, bound: Floats, policies: Sequence[Thresholds], nodes: dict[str, Json], record: LoopRecord
    ) -> Floats:
        """One step of every job that runs, as far as agents and other pods leave CPU; millicores used, (n,)."""
        capacity = self._cluster.past[CPU].capacity.astype(np.float64)
        needed = self._need[CPU][:, slot].astype(np.float64)
        room = np.array(
            [agents.batch_cpu_millicores(capacity[[n]], needed[[n]], policies[n])[0] for n in range(self._nodes)]
        )
        room = np.minimum(room, capacity - needed)
        speed = np.divide(room, bound, out=np.ones(self._nodes), where=bound > room)
        self._suppressed += (1.0 - speed - self._suppressed) / HOUR_STEPS
        used = np.zeros(self._nodes)
        self._pod_use.clear()
        for job in self._placed():
            assert job.node is not None
            progress = min(float(speed[job.node]), job.steps_left)
            cpu = progress * float(self._request[CPU][job.number])
            used[job.node] += cpu
            job.steps_left -= progress
            self._pod_use[job.number] = cpu, float(self._request[MEMORY][job.number]) * MEMORY_USED_SHARE
            if job.steps_left <= ROUNDING:
                self._end(job, record)
        self._tell_suppressed(nodes)
        return used

    def _end(self, job: LiveJob, record: LoopRecord) -> None:
        """Its containers have ended, as a kubelet says it."""
        self.api.patch(f"{PODS}/{job.name}/status", {"status": {"phase": "Succeeded"}})
        del self.active[job.number]
        record.ended += 1

    def _tell_suppressed(self, nodes: dict[str, Json]) -> None:
        """The annotation of the node agent, where it changes."""
        for number, name in enumerate(self.live.nodes):
            text = f"{self._suppressed[number]:.2f}"
            annotations: dict[str, Any] = nodes[name]["metadata"].get("annotations") or {}
            if annotations.get(SUPPRESSED_FRACTION_ANNOTATION, "0.00") != text:
                change = {"metadata": {"annotations": {SUPPRESSED_FRACTION_ANNOTATION: text}}}
                self.api.patch(f"/api/v1/nodes/{name}", change, fieldManager=NODE_AGENT)

    def _evict(self, slot: int, policies: Sequence[Thresholds]) -> int:
        """Pods that leave for memory: deleted by their node's agent, their jobs begin anew."""
        capacity, needed = self._cluster.past[MEMORY].capacity, self._need[MEMORY][:, slot]
        count = 0
        for number in range(self._nodes):
            jobs = [job for job in self._placed() if job.node == number]
            pods = [(job.number, float(self._request[MEMORY][job.number]) * MEMORY_USED_SHARE) for job in jobs]
            used = float(needed[number]) + sum(size for _, size in pods)
            size = float(capacity[number])
            if not pods or not len(agents.nodes_short_of_memory(np.array([size]), np.array([used]), policies[number])):
                continue
            for job_number in agents.jobs_to_evict(size, used, pods, policies[number]):
                job = self.active[job_number]
                self.api.delete(f"{PODS}/{job.name}")
                self._pod_use.pop(job_number, None)
                self._create(LiveJob(job_number, float(self.jobs.work_steps[job_number]), tries=job.tries + 1))
                count += 1
        return count
