"""Half an hour in which nothing goes wrong, written down as a cluster does: what violations are planted in.

The audit log is JSON lines as kube-apiserver writes them; ledger, notes and action log are written by the product's own
code. One node of 16 cores lends to batch; a manager is replaced by another, a Reservation is handed to its owner, pods
get CPUs and half a device each, a quota gives back what is too much, and a change is accepted, applied and verified.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from cotenant.base.ledger.ledger import Ledger
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.contract import Knob, Level
from cotenant.enforcer.decide.changes import OriginalValue
from cotenant.enforcer.report.status import ActionRecord
from tests.support.invariants.reading import CREDENTIAL, AgentFiles, recording
from tests.support.invariants.records import MANAGER, NODE_AGENT, Recording

Json = dict[str, Any]
BEGIN = 1_800_000_000.0
SCHEDULER, KUBELET, PERSON = "system:kube-scheduler", "system:node:n1", "ann"
FIRST, SECOND = "JTI=first", "JTI=second"
BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
CPUS, DEVICES = "scheduling.koordinator.sh/resource-status", "scheduling.koordinator.sh/device-allocated"
RUNTIME = "quota.scheduling.koordinator.sh/runtime"
GATE = "cotenant.dev/reservation"
BATCH_GROUP, LIMITED = "kubepods/besteffort", "250000"
MINUTES = 30
LEASE_SECONDS = 15.0
HANDED_OVER = 600.0
"""Second of the run in which the second manager takes the Lease that the first one has let expire."""


@dataclass
class Written:
    """What a run leaves: lines of the audit log, rows of the ledger, notes, actions and cgroup files of the agent."""

    events: list[Json] = field(default_factory=list)
    ledger: list[tuple[float, str, str]] = field(default_factory=list)
    notes: list[OriginalValue] = field(default_factory=list)
    actions: list[ActionRecord] = field(default_factory=list)
    cgroups: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, second: float, who: str, verb: str, what: str, name: str, **more: Any) -> None:
        """An answered request. more: stored, sent, namespace, credential, code."""
        resource, _, subresource = what.partition("/")
        response = more.get("stored") or {"kind": "Status", "status": "Success"}
        user: Json = {"username": who}
        if credential := more.get("credential"):
            user["extra"] = {CREDENTIAL: [credential]}
        target = {
            "resource": resource,
            "subresource": subresource,
            "name": name,
            "namespace": more.get("namespace", ""),
        }
        self.events.append(
            {
                "kind": "Event",
                "stage": "ResponseComplete",
                "requestURI": f"/{what}/{name}",
                "verb": verb,
                "user": user,
                "objectRef": {key: value for key, value in target.items() if value},
                "responseStatus": {"code": more.get("code", 200)},
                "requestObject": more.get("sent"),
                "responseObject": response,
                "requestReceivedTimestamp": stamp(second),
                "stageTimestamp": stamp(second + 0.01),
            }
        )

    def managed(self, second: float, verb: str, what: str, name: str, **more: Any) -> None:
        """A write of the manager that holds the Lease in that second."""
        credential = FIRST if second < HANDED_OVER else SECOND
        self.add(second, MANAGER, verb, what, name, **{"credential": credential, **more})

    def without(self, drop: Callable[[Json], bool]) -> None:
        """Leave events out."""
        self.events = [event for event in self.events if not drop(event)]

    def stored(self, folder: Path) -> Recording:
        """Written to files and read again."""
        log, ledger, state = folder / "audit.log", folder / "ledger.db", folder / "agent"
        lines = sorted(self.events, key=lambda event: event["stageTimestamp"])
        log.write_text("".join(f"{json.dumps(event)}\n" for event in lines))
        with closing(Ledger(ledger)) as rows:
            for second, event, subject in self.ledger:
                rows.append(BEGIN + second, "ann", [(event, subject, {})])
        with OriginalValues(state, "boot") as journal:
            journal.begin({note.place: note for note in self.notes})
        (state / "actions.jsonl").write_bytes(b"".join(msgspec.json.encode(action) + b"\n" for action in self.actions))
        agent = AgentFiles("n1", state, lambda path, knob: self.cgroups.get((path, knob)))
        return recording(log, ledger, [agent])


def stamp(second: float) -> str:
    """A moment of the run as the API server writes it."""
    return datetime.fromtimestamp(BEGIN + second, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def pod(name: str, requests: Json, labels: Json | None = None, annotations: Json | None = None, **spec: Any) -> Json:
    """A pod of the namespace shop as the API server stores it."""
    meta = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "labels": labels or {}}
    container = {"name": "main", "resources": {"requests": requests}}
    body = {"priority": 9000, "containers": [container], **spec}
    return {"kind": "Pod", "metadata": {**meta, "annotations": annotations or {}}, "spec": body, "status": {}}


def run_pod(run: Written, second: float, body: Json) -> None:
    """Create a pod and bind it to n1 a second later."""
    name = body["metadata"]["name"]
    run.add(second, PERSON, "create", "pods", name, namespace="shop", stored=body)
    bind(run, second + 1, name)


def bind(run: Written, second: float, name: str) -> None:
    """The scheduler binds a pod to n1."""
    run.add(second, SCHEDULER, "create", "pods/binding", name, namespace="shop", sent={"target": {"name": "n1"}})


def delete(run: Written, second: float, body: Json, who: str = MANAGER) -> None:
    """A pod is deleted, and gone at once."""
    status = {
        **body,
        "metadata": {**body["metadata"], "deletionTimestamp": stamp(second), "deletionGracePeriodSeconds": 0},
    }
    more = {"namespace": "shop", "stored": status}
    name = body["metadata"]["name"]
    if who == MANAGER:
        run.managed(second, "delete", "pods", name, **more)
    else:
        run.add(second, who, "delete", "pods", name, **more)


def node(lent: Json | None = None) -> Json:
    """n1 of 16 cores, 64 GiB and 110 pods, with what it lends."""
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": {**amounts, **(lent or {})}}
    return {"kind": "Node", "metadata": {"name": "n1"}, "status": status}


def report(second: float, system_cpu: str = "1") -> Json:
    """A NodeMetric: the system uses 2 GiB and, unless given, 1 core; web 3 cores and 4 GiB; batch 2 cores."""
    used = {"systemUsage": {"resources": {"cpu": system_cpu, "memory": "2Gi"}}}
    pods = [
        {"name": "web", "priority": "koord-prod", "podUsage": {"resources": {"cpu": "3", "memory": "4Gi"}}},
        {"name": "sort", "priority": "koord-batch", "podUsage": {"resources": {"cpu": "2", "memory": "1Gi"}}},
    ]
    return {"kind": "NodeMetric", "status": {"updateTime": stamp(second), "nodeMetric": used, "podsMetric": pods}}


def lend(run: Written, second: float, cpu: str = "5600", memory: str = "38225838080") -> None:
    """The manager publishes what batch may have.

    CPU: 16 cores less 40 % less 1 of the system less 3 of pods = 5.6 cores. Memory: 64 GiB less 35 % less 2 less 4
    GiB = 35.6 GiB = 38,225,205,657 bytes and a fraction; less is always allowed, so 35 GiB would do as well.
    """
    run.managed(second, "patch", "nodes/status", "n1", stored=node({BATCH_CPU: cpu, BATCH_MEMORY: memory}))


def quota(run: Written, second: float, used: str) -> None:
    """The manager writes that quota team uses so much of its runtime of two cores."""
    meta = {"name": "team", "namespace": "shop", "annotations": {RUNTIME: json.dumps({"cpu": "2"})}}
    body = {"kind": "ElasticQuota", "metadata": meta, "status": {"used": {"cpu": used}}}
    run.managed(second, "patch", "elasticquotas/status", "team", namespace="shop", stored=body)


def reservation(
    run: Written, second: float, name: str = "peak", allocated: str = "4", owner: str = "uid-owner"
) -> None:
    """The manager writes a Reservation's status: it holds 4 cores."""
    owners = [{"name": owner.removeprefix("uid-"), "namespace": "shop", "uid": owner}] if owner else []
    status = {"phase": "Available", "allocatable": {"cpu": "4"}, "allocated": {"cpu": allocated}}
    body = {"kind": "Reservation", "metadata": {"name": name}, "status": {**status, "currentOwners": owners}}
    run.managed(second, "patch", "reservations/status", name, stored=body)


def cpus(text: str) -> Json:
    """The annotation that gives a pod CPUs of its own."""
    return {CPUS: json.dumps({"cpuset": text})}


def gpu(percent: str) -> Json:
    """The annotation that gives a pod a part of the first GPU."""
    share = {"minor": 0, "resources": {"koordinator.sh/gpu-core": percent, "koordinator.sh/gpu-memory": "8Gi"}}
    return {DEVICES: json.dumps({"gpu": [share]})}


def allocation(run: Written, second: float, first: str, other: str) -> None:
    """The extender writes to which two pods it has given CPUs."""
    pods = [{"uid": f"uid-{i}", "name": f"{i}", "annotations": cpus(text)} for i, text in enumerate((first, other))]
    body = {"kind": "NodeAllocation", "metadata": {"name": "n1"}, "spec": {"pods": pods}}
    run.add(second, "system:serviceaccount:cotenant:cotenant-extender", "patch", "nodeallocations", "n1", stored=body)


def hold(run: Written, second: float, credential: str, holder: str) -> None:
    """A manager takes or renews the Lease."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": int(LEASE_SECONDS)}
    more = {"namespace": "koordinator-system", "credential": credential}
    run.add(second, MANAGER, "update", "leases", "cotenant-manager", stored={"kind": "Lease", "spec": spec}, **more)


def clean_run() -> Written:
    """Everything, and nothing wrong."""
    run = Written()
    _cluster(run)
    _pods(run)
    _handover(run)
    allocation(run, 20, "0-1", "2-3")
    for second, used in ((700, "1"), (760, "4"), (860, "2")):  # over for 100 s, which is less than its delay
        quota(run, second, used)
    run.ledger += [(10, "accepted", "c1"), (11, "applied", "c1"), (500, "verified", "c1")]
    run.ledger += [(12, "accepted", "c2"), (12, "awaited", "c2"), (800, "confirmed", "c2"), (801, "refused", "c2")]
    group = (BATCH_GROUP, Knob.CPU_QUOTA.value)
    run.cgroups[group] = "-1"
    run.actions += [_action("written", "-1", LIMITED), _action("restored", LIMITED, "-1")]
    return run


def _action(outcome: str, before: str, value: str) -> ActionRecord:
    done = "restore" if outcome == "restored" else "write"
    return ActionRecord(stamp(30), done, BATCH_GROUP, outcome, "cpu-suppress", knob=Knob.CPU_QUOTA.value, before=before,
                        value=value, node="n1")  # fmt: skip


def limited() -> OriginalValue:
    """The note of a quota that the agent has set."""
    return OriginalValue(BATCH_GROUP, Knob.CPU_QUOTA, Level.QOS, "-1", (LIMITED,), "cpu-suppress")


def _cluster(run: Written) -> None:
    """The node, its reports every minute, the strategy, the Lease and what is lent."""
    run.add(0, KUBELET, "create", "nodes", "n1", stored=node())
    strategy = {"enable": True, "cpuReclaimThresholdPercent": 60, "degradeTimeMinutes": 15}
    data = {"colocation-config": json.dumps(strategy)}
    more = {"namespace": "koordinator-system", "stored": {"kind": "ConfigMap", "data": data}}
    run.add(1, PERSON, "create", "configmaps", "slo-controller-config", **more)
    for second in range(2, 580, 5):
        hold(run, second, FIRST, "first")
    for second in range(int(HANDED_OVER), 60 * MINUTES, 5):
        hold(run, second, SECOND, "second")
    for minute in range(MINUTES):
        run.add(60 * minute + 3, NODE_AGENT, "patch", "nodemetrics/status", "n1", stored=report(60 * minute + 3))
    for second in (4, 304, 604, 904):
        lend(run, second, memory="38225205657")
    run.add(60 * MINUTES, KUBELET, "patch", "nodes/status", "n1", stored=node({BATCH_CPU: "5600"}))


def _pods(run: Written) -> None:
    """Pods that fill the node to its last core, with those that leave it."""
    run_pod(run, 6, pod("web", {"cpu": "8", "memory": "8Gi"}, {"koordinator.sh/qosClass": "LS"}))
    run_pod(run, 7, pod("pinned-a", {"cpu": "2"}, {"koordinator.sh/qosClass": "LSR"}, cpus("0-1")))
    run_pod(run, 8, pod("pinned-b", {"cpu": "2"}, {"koordinator.sh/qosClass": "LSR"}, cpus("2-3")))
    run_pod(run, 9, pod("half-a", {}, None, gpu("50")))
    run_pod(run, 10, pod("half-b", {}, None, gpu("50")))
    batch = pod("sort", {BATCH_CPU: "5000"}, {"koordinator.sh/qosClass": "BE"}, priority=5000)
    run_pod(run, 11, batch)
    run.add(100, NODE_AGENT, "create", "pods/eviction", "sort", namespace="shop")
    delete(run, 130, batch, KUBELET)
    moved = pod("moved", {"memory": "1Gi"}, {"koordinator.sh/qosClass": "LS"})
    run_pod(run, 40, moved)
    job = {"kind": "PodMigrationJob", "spec": {"podRef": {"namespace": "shop", "name": "moved"}}}
    run.add(640, PERSON, "create", "podmigrationjobs", "move-1", stored=job)
    run.managed(641, "create", "pods/eviction", "moved", namespace="shop")
    delete(run, 650, moved, KUBELET)


def _handover(run: Written) -> None:
    """A placeholder of four cores makes way for the Reservation's owner, whose gate is then lifted."""
    placeholder = pod("placeholder", {"cpu": "4"}, {"cotenant.dev/placeholder": "true"})
    run_pod(run, 12, placeholder)
    gated = pod("owner", {"cpu": "4"}, {"koordinator.sh/qosClass": "LS"}, schedulingGates=[{"name": GATE}])
    run.add(20, PERSON, "create", "pods", "owner", namespace="shop", stored=gated)
    delete(run, 22, placeholder)
    open_gate(run, 22.5)
    bind(run, 23, "owner")
    reservation(run, 24)


def open_gate(run: Written, second: float) -> None:
    """The manager takes the owner's gate away."""
    free = pod("owner", {"cpu": "4"}, {"koordinator.sh/qosClass": "LS"})
    run.managed(second, "patch", "pods", "owner", namespace="shop", stored=free)
