"""What the admission policies add to a write: every guarded write of an account with and without them, in turn.

One API server, blocks of writes by turns with the bindings of all policies and with none of them, so that both sides
see the same machine. Writes are dry runs, which pass all of admission; the gates of waiting pods are lifted for good.
The goal is asked of the API server's own clock: apiserver_admission_controller_admission_duration_seconds of the
plug-in ValidatingAdmissionPolicy, all policies together, whose first bucket ends at 5 ms. (Its metric of single
policies, apiserver_validating_admission_policy_check_duration_seconds, counts refusals alone.) Beside it the whole
request, as a client sees it, and the CPU time of the API server. Client and servers run at the highest priority where
that is allowed, so that other work on the machine waits; what the scheduler takes from them all the same is in the
numbers.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from bench.extender.extender_throughput import cpu_seconds
from bench.record import Row, above, record
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.base.kubernetes.reservation import Mode
from cotenant.base.settings.root import Settings
from cotenant.scheduler_ext.reservations.placeholder import PlaceholderSpec, placeholder_creation
from tests.cluster.api import Api
from tests.cluster.control_plane import APISERVER, CONTROLLER_MANAGER, ControlPlane, Options
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for
from tests.guards.scene import APPS, CORE, SHOP, Act, furnished, outcome, pod_spec, thief
from tests.scheduler_ext.reservations.builders import reservation

BLOCKS: Final = 6
"""By turns with and without."""
WRITES: Final = 100
"""Of each kind a block."""
WAITING: Final = 3_000
"""Pods whose gates are lifted, half of them with the policies."""
CEILING_SECONDS: Final = "0.005"
"""The bucket, as the API server writes it."""
LEAST_SHARE: Final = 0.99
BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
WARM: Final = 5
LIFTING: Final = f"the lifting of gates of {WAITING:,} waiting pods"
WITNESS: Final = "cotenant-manager-workloads"
"""Its binding is written last: a server that knows it knows all."""
ADMISSION: Final = "apiserver_admission_controller_admission_duration_seconds"
PLUGIN: Final = "ValidatingAdmissionPolicy"
STRATEGIC, JSON_PATCH = "application/strategic-merge-patch+json", "application/json-patch+json"
NODE: Final = "n"
AMOUNTS: Final = {"cpu": "8", "memory": "32Gi", "pods": "110"}


@dataclass(frozen=True)
class Write:
    """A write that an account of ours does, or somebody else to a kind that a policy looks at."""

    title: str
    account: str
    act: Act


def writes(admin: Api) -> list[Write]:
    """One of each kind."""
    manager, hook = "cotenant-manager", "cotenant-uninstall"
    template = {
        "spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "2"}}}]}}}
    }
    mark = {"metadata": {"annotations": {"scheduling.koordinator.sh/reservation-allocated": "{}"}}}
    taint = {"spec": {"taints": [{"key": "cotenant.dev/load", "effect": "PreferNoSchedule"}]}}
    amounts = {"status": {part: {"kubernetes.io/batch-cpu": "1000"} for part in ("capacity", "allocatable")}}
    floor = {
        "metadata": {"annotations": {"cotenant.dev/plan-floor": '{"original":2,"floor":4}'}},
        "spec": {"minReplicas": 4},
    }
    autoscaler = f"/apis/autoscaling/v2/namespaces/{SHOP}/horizontalpodautoscalers/web"
    lift = [{"op": "replace", "path": "/spec/schedulingGates", "value": [{"name": "example.invalid/other"}]}]
    placeholder = dict(
        placeholder_creation(
            reservation(), PlaceholderSpec("held", {"cpu": 500}), Mode.PINNED, {}, Settings().reservations
        ).body
    )
    admin.create(f"{CORE}/pods", {"metadata": {"name": "runs"}, "spec": pod_spec(nodeName=NODE)})
    patches = [
        ("requests of a Deployment", manager, f"{APPS}/deployments/web", template, STRATEGIC),
        ("batch amounts of a node", manager, f"/api/v1/nodes/{NODE}/status", amounts, STRATEGIC),
        ("a taint of a node", manager, f"/api/v1/nodes/{NODE}", taint, STRATEGIC),
        ("floor of an autoscaler", manager, autoscaler, floor, STRATEGIC),
        ("a gate of a waiting pod", manager, f"{CORE}/pods/web", lift, JSON_PATCH),
        ("the same by the webhook", "cotenant-webhook", f"{CORE}/pods/web", lift, JSON_PATCH),
        ("the same by the uninstall hook", hook, f"{CORE}/pods/web", lift, JSON_PATCH),
        ("a mark of a running pod", manager, f"{CORE}/pods/runs", mark, STRATEGIC),
        ("a Deployment by somebody else", "", f"{APPS}/deployments/web", template, STRATEGIC),
        ("a node by somebody else", "", f"/api/v1/nodes/{NODE}", taint, STRATEGIC),
        ("a running pod by somebody else", "", f"{CORE}/pods/runs", mark, STRATEGIC),
    ]
    made = [Write(title, who, Act(title, "PATCH", path, body, kind)) for title, who, path, body, kind in patches]
    pods = f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/pods"
    return [*made, Write("a placeholder", manager, Act("placeholder", "POST", pods, placeholder))]


class Switch:
    """The bindings of all policies: there, or not."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        every = [one for one in plane.api().items(BINDINGS) if one["metadata"]["name"].startswith("cotenant-")]
        self._bodies = [
            {"metadata": {"name": one["metadata"]["name"]}, "spec": one["spec"]}
            for one in sorted(every, key=lambda one: one["metadata"]["name"] == WITNESS)
        ]

    def holds(self) -> bool:
        """Whether the API server refuses what the witness forbids."""
        label = {"metadata": {"labels": {"stolen": "yes"}}}
        return outcome(
            thief(self._plane, "cotenant-manager"), Act("", "PATCH", f"{APPS}/deployments/web", label)
        ).by_policy

    def turn(self, on: bool) -> None:
        """Until the API server has noticed."""
        if self.holds() == on:
            return
        admin = self._plane.api()  # a new connection each time: the server ends those that idle
        for body in self._bodies:
            if on:
                admin.create(BINDINGS, body)
            else:
                admin.delete(f"{BINDINGS}/{body['metadata']['name']}")
        wait_for(f"the policies {'on' if on else 'off'}", lambda: self.holds() == on)


@contextmanager
def scene() -> Iterator[ControlPlane]:
    """With the rights and policies of an install, and one object of each guarded kind."""
    options = Options(frozenset({CONTROLLER_MANAGER}), heartbeats=False)  # nobody else taints the node
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder), options) as plane:
        api = plane.api()
        install_crd(api, "swapguards.cotenant.dev")
        furnished(plane)
        api.create(
            "/api/v1/nodes", {"metadata": {"name": NODE}, "status": {"capacity": AMOUNTS, "allocatable": AMOUNTS}}
        )
        yield plane


def elapsed_ms(api: Api, act: Act) -> float:
    begun = time.perf_counter()
    answer = outcome(api, act)
    spent = 1e3 * (time.perf_counter() - begun)
    if answer.status >= 300:
        raise RuntimeError(f"{act.title} was refused: {answer.message}")
    return spent


@dataclass
class Side:
    """Writes of one kind with the policies, or without. quick: of those admitted, within the ceiling."""

    elapsed_ms: list[float] = field(default_factory=list)
    admitted: float = 0.0
    quick: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @contextmanager
    def watched(self, plane: ControlPlane) -> Iterator[None]:
        """Add what the API server counts meanwhile."""
        before, cpu = admission(plane), cpu_seconds(plane.servers[APISERVER].pid)
        yield
        spent = cpu_seconds(plane.servers[APISERVER].pid) - cpu
        after = admission(plane)
        self.admitted += after["count"] - before["count"]
        self.quick += after["quick"] - before["quick"]
        self.seconds += after["sum"] - before["sum"]
        self.cpu_seconds += spent


def admission(plane: ControlPlane) -> dict[str, float]:
    """count, sum in seconds, and how many were quick: of requests that no policy refused."""
    found = {"count": 0.0, "sum": 0.0, "quick": 0.0}
    names = {f"{ADMISSION}_count": "count", f"{ADMISSION}_sum": "sum", f"{ADMISSION}_bucket": "quick"}
    for family in text_string_to_metric_families(plane.kubectl("get", "--raw", "/metrics")):
        for sample in family.samples if family.name == ADMISSION else ():
            is_other = sample.labels["name"] != PLUGIN or sample.labels["rejected"] != "false"
            if not is_other and sample.labels.get("le", CEILING_SECONDS) == CEILING_SECONDS:
                found[names[sample.name]] += sample.value
    return found


def measured(plane: ControlPlane) -> list[Row]:
    """A row for each write, then the lifting of gates."""
    kinds = writes(plane.api())
    switch = Switch(plane)
    wait_for("the policies", switch.holds)
    sides: dict[tuple[str, bool], Side] = defaultdict(Side)
    names = waiting_pods(plane)
    for block in range(BLOCKS):
        on = block % 2 == 0
        switch.turn(on)
        for one in kinds:
            side, api = sides[one.title, on], thief(plane, one.account) if one.account else plane.api()
            for _ in range(WARM):  # the first of a block connects, and fills caches
                elapsed_ms(api, one.act)
            with side.watched(plane):
                side.elapsed_ms += [elapsed_ms(api, one.act) for _ in range(WRITES)]
        with sides[LIFTING, on].watched(plane):
            sides[LIFTING, on].elapsed_ms += lifted(thief(plane, "cotenant-manager"), names[block::BLOCKS])
    switch.turn(True)
    titles = [*(one.title for one in kinds), LIFTING]
    return [row for title in titles for row in compared(title, sides[title, True], sides[title, False])]


def waiting_pods(plane: ControlPlane) -> list[str]:
    """Names of pods behind our gate."""
    names = [f"waits-{number}" for number in range(WAITING)]
    spec = pod_spec(schedulingGates=[{"name": "cotenant.dev/quota"}])
    api = plane.api()
    for name in names:
        api.create(f"{CORE}/pods", {"metadata": {"name": name}, "spec": spec})
    return names


def lifted(api: Api, names: Sequence[str]) -> list[float]:
    """Milliseconds of each patch, for good."""
    found = []
    for name in names:
        begun = time.perf_counter()
        api.ask("PATCH", f"{CORE}/pods/{name}", [{"op": "remove", "path": "/spec/schedulingGates"}], JSON_PATCH, {})
        found.append(1e3 * (time.perf_counter() - begun))
    return found


def compared(title: str, with_them: Side, without: Side) -> Iterator[Row]:
    """The share of writes to which all policies together add at most 5 ms, and what they add on average."""
    share = with_them.quick / with_them.admitted
    medians = [float(np.median(side.elapsed_ms)) for side in (with_them, without)]
    cpu = [1e3 * side.cpu_seconds / len(side.elapsed_ms) for side in (with_them, without)]
    note = (
        f"whole request, median {medians[0]:.2f} against {medians[1]:.2f} ms; CPU of the API server "
        f"{cpu[0]:.2f} against {cpu[1]:.2f} ms a write; {len(with_them.elapsed_ms)} writes a side, by turns; load of "
        f"the machine {os.getloadavg()[1]:.1f}"
    )
    yield above(f"{title}: writes to which all policies add at most 5 ms", round(share, 4), "share", LEAST_SHARE, note)
    mean = [1e3 * side.seconds / max(side.admitted, 1.0) for side in (with_them, without)]
    yield Row(f"{title}: added by all policies, mean", round(mean[0] - mean[1], 3), "ms")


def main() -> int:
    with suppress(PermissionError):
        os.nice(-20)  # the servers inherit it
    with scene() as plane:
        rows: list[Any] = measured(plane)
    record("guard_latency", ".venv/bin/python -m bench.admission.guard_latency", rows)
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
