"""What the admission policies add to a write: each guarded write beside its twin that no policy matches.

One API server, one connection for each account. Of every kind of write there are two that differ in one label:
bindings of policies leave out what has it, so that the API server judges one of the two and not the other. The two are
sent in turn, the first of a pair now the one, now the other: what else the machine does meanwhile meets both alike. A
round is PAIRS of each kind; its number is the 99th percentile of the guarded writes less that of their twins, and the
row is the median of the rounds. Writes are dry runs, which pass all of admission.

Beside it what the API server's own clock says of the policies, which does not wait for a client or the store:
apiserver_admission_controller_admission_duration_seconds of the plug-in ValidatingAdmissionPolicy, whose first bucket
ends at 5 ms. All that is slower is counted as a guarded write's; of writes of one kind alone, its mean is the time that
policies took of each. And what does not depend on the load at all: the CPU time of the API server for so many guarded
writes, and for so many of their twins. At the end, the 99th percentile of all validation of writes as the API server
says it (apiserver_admission_step_admission_duration_seconds_summary), guarded writes and others.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from bench.extender.extender_throughput import cpu_seconds
from bench.record import Row, above, below, record
from cotenant.base.kubernetes.intent import Address, eviction_of
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.scheduler_ext.reservations.model.reservation import Mode
from cotenant.scheduler_ext.reservations.placeholder import PlaceholderSpec, placeholder_creation
from cotenant.settings import Settings
from tests.cluster.api import Api
from tests.cluster.control_plane import APISERVER, CONTROLLER_MANAGER, ControlPlane, Options
from tests.cluster.crds import install_crd
from tests.cluster.namespaces import create_namespace
from tests.cluster.waiting import wait_for
from tests.guards.scene import APPS, CORE, SHOP, Act, furnished, outcome, pod_spec, thief
from tests.scheduler_ext.reservations.builders import reservation

ROUNDS, PAIRS = 7, 100
CEILING_MS: Final = 5.0
CEILING_SECONDS: Final = "0.005"
"""The same as the API server writes it in a bucket's name."""
PERCENTILE: Final = 99
LEAST_SHARE: Final = 0.99
WARM: Final = 3
CROWD, PODS_OF_CROWD = "crowd", 300
"""A namespace with many pods: the policy on evictions looks through all of them."""
IMAGES: Final = 50
"""Of a node's status, as kubelets report at most."""
TWIN: Final = "bench-unguarded"
"""Label of what no policy judges, and the name of its object."""
BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
SWAPS: Final = "/apis/cotenant.dev/v1alpha1/swapguards"
ADMISSION: Final = "apiserver_admission_controller_admission_duration_seconds"
PLUGIN: Final = "ValidatingAdmissionPolicy"
STEP: Final = "apiserver_admission_step_admission_duration_seconds_summary"
STRATEGIC, JSON_PATCH = "application/strategic-merge-patch+json", "application/json-patch+json"
AMOUNTS: Final = {"cpu": "8", "memory": "32Gi", "pods": "110"}


@dataclass(frozen=True)
class Pair:
    """One kind of write by an account (""; somebody else, to a kind that a policy looks at), and its twin."""

    title: str
    account: str
    guarded: Act
    twin: Act
    is_slow: bool = False
    """By design: tried a tenth as often, and without a goal."""


@dataclass
class Times:
    """Milliseconds of one round, as a client sees them: of each guarded write and of its twin."""

    guarded: list[float] = field(default_factory=list)
    twin: list[float] = field(default_factory=list)
    cpu_ms: float = 0.0
    """Of the API server for a guarded write, beyond that for its twin, milliseconds."""
    plugin_ms: float = 0.0
    """In the plug-in by the API server's clock, the same difference, milliseconds."""

    def added(self, percentile: float) -> float:
        """By the policies, milliseconds; below zero where the twins were slower."""
        return float(np.percentile(self.guarded, percentile) - np.percentile(self.twin, percentile))


@dataclass(frozen=True)
class Admitted:
    """What the API server counts of the plug-in: requests that no policy refused, and those within the ceiling."""

    count: float
    quick: float
    seconds: float
    """Of all of them together."""

    def __sub__(self, before: Admitted) -> Admitted:
        """What was counted since."""
        return Admitted(self.count - before.count, self.quick - before.quick, self.seconds - before.seconds)


def spare_the_twins(plane: ControlPlane) -> None:
    """Let every binding of a policy leave out what has the label."""
    api = plane.api()
    spared = {"objectSelector": {"matchExpressions": [{"key": TWIN, "operator": "DoesNotExist"}]}}
    for binding in api.items(BINDINGS):
        if binding["metadata"]["name"].startswith("cotenant-"):
            api.patch(f"{BINDINGS}/{binding['metadata']['name']}", {"spec": {"matchResources": spared}})
    stolen = {"metadata": {"labels": {"stolen": "yes"}}}
    manager = thief(plane, "cotenant-manager")

    def judged(name: str) -> bool:
        return outcome(manager, Act("", "PATCH", f"{APPS}/deployments/{name}", stolen)).by_policy

    wait_for("the policies to judge one of the twins", lambda: judged("web") and not judged(TWIN))


def make_twins(plane: ControlPlane) -> None:
    """A twin of each object that the scene has, a pair of nodes as kubelets report them, and a crowd."""
    api = plane.api()
    paths = [f"{APPS}/deployments", f"{CORE}/pods", f"/apis/autoscaling/v2/namespaces/{SHOP}/horizontalpodautoscalers"]
    for path in paths:
        live = api.get(f"{path}/web")
        metadata = {"name": TWIN, "labels": {TWIN: "yes"}, "annotations": {"team": "shop"}}
        api.create(path, {"metadata": metadata, "spec": _as_written(live["spec"])})
    images = [{"names": [f"registry.invalid/image@sha256:{n:064x}", f"registry.invalid/image:{n}"], "sizeBytes": n + 1}
              for n in range(IMAGES)]  # fmt: skip
    for name, labels in (("guarded", {}), (TWIN, {TWIN: "yes"})):
        status = {"capacity": AMOUNTS, "allocatable": AMOUNTS, "images": images}
        api.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "status": status})
        api.create(
            f"{CORE}/pods", {"metadata": {"name": f"runs-{name}", "labels": labels}, "spec": pod_spec(nodeName=name)}
        )
        api.create(f"{CORE}/pods", {"metadata": {"name": f"ready-{name}", "labels": labels}, "spec": pod_spec()})
    create_namespace(api, CROWD)
    for number in range(PODS_OF_CROWD):
        api.create(f"/api/v1/namespaces/{CROWD}/pods", {"metadata": {"name": f"p-{number}"}, "spec": pod_spec()})
    head = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "SwapGuard", "metadata": {"name": "swaps"}}
    api.create(SWAPS, {**head, "spec": {"nodes": {"elsewhere": ["shop/web"]}}})


def _as_written(spec: dict[str, Any]) -> dict[str, Any]:
    """A spec without the token's volume, which the API server adds to pods."""
    spec = {key: value for key, value in deepcopy(spec).items() if key not in ("volumes", "serviceAccount")}
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        container.pop("volumeMounts", None)
    return spec


def pairs() -> Iterator[Pair]:
    """One of each kind."""
    manager, hook, webhook = "cotenant-manager", "cotenant-uninstall", "cotenant-webhook"
    template = {
        "spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "2"}}}]}}}
    }
    mark = {"metadata": {"annotations": {"scheduling.koordinator.sh/reservation-allocated": "{}"}}}
    taint = {"spec": {"taints": [{"key": "cotenant.dev/load", "effect": "PreferNoSchedule"}]}}
    amounts = {"status": {part: {"kubernetes.io/batch-cpu": "1000"} for part in ("capacity", "allocatable")}}
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Bench"}]}}
    floor = {
        "metadata": {"annotations": {"cotenant.dev/plan-floor": '{"original":2,"floor":4}'}},
        "spec": {"minReplicas": 4},
    }
    autoscaler = f"/apis/autoscaling/v2/namespaces/{SHOP}/horizontalpodautoscalers/"
    lift = [{"op": "replace", "path": "/spec/schedulingGates", "value": [{"name": "example.invalid/other"}]}]
    deployments, pods, nodes = f"{APPS}/deployments/", f"{CORE}/pods/", "/api/v1/nodes/"
    patches = [
        ("requests of a Deployment", manager, deployments, "web", "", template, STRATEGIC),
        ("batch amounts of a node", manager, nodes, "guarded", "/status", amounts, STRATEGIC),
        ("a taint of a node", manager, nodes, "guarded", "", taint, STRATEGIC),
        ("floor of an autoscaler", manager, autoscaler, "web", "", floor, STRATEGIC),
        ("a gate of a waiting pod", manager, pods, "web", "", lift, JSON_PATCH),
        ("the same by the webhook", webhook, pods, "web", "", lift, JSON_PATCH),
        ("the same by the uninstall hook", hook, pods, "web", "", lift, JSON_PATCH),
        ("a mark of a running pod", manager, pods, "runs-guarded", "", mark, STRATEGIC),
        ("a Deployment by somebody else", "", deployments, "web", "", template, STRATEGIC),
        ("a node by somebody else", "", nodes, "guarded", "", taint, STRATEGIC),
        ("a node's status by somebody else", "", nodes, "guarded", "/status", ready, STRATEGIC),
        ("a running pod by somebody else", "", pods, "runs-guarded", "", mark, STRATEGIC),
        ("a pod's status by somebody else", "", pods, "runs-guarded", "/status", ready, STRATEGIC),
    ]
    for title, who, path, name, part, body, kind in patches:
        twin = name.replace("guarded", TWIN) if "guarded" in name else TWIN
        yield Pair(
            title,
            who,
            Act(title, "PATCH", f"{path}{name}{part}", body, kind),
            Act(title, "PATCH", f"{path}{twin}{part}", body, kind),
        )
    placeholder = placeholder_creation(
        reservation(), PlaceholderSpec("held", {"cpu": 500}), Mode.PINNED, {}, Settings().reservations
    )
    yield _created("a placeholder", manager, f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/pods", dict(placeholder.body))
    eviction = dict(eviction_of(Address("v1", "pods", "p-0", CROWD), "", "").body) | {"deleteOptions": {}}
    others = {**eviction, "metadata": {"name": "p-0", "namespace": CROWD}}
    path = f"/api/v1/namespaces/{CROWD}/pods/p-0/eviction"
    yield _created(f"an eviction by somebody else, {PODS_OF_CROWD:,} pods there", "", path, others)
    yield replace(
        _created(f"an eviction by the manager, {PODS_OF_CROWD:,} pods there", manager, path, eviction), is_slow=True
    )
    for by, who in (("the extender", "cotenant-extender"), ("somebody else", "")):
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "ready-guarded", "namespace": SHOP},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "guarded"},
        }
        yield _created(f"a binding by {by}", who, f"{CORE}/pods/ready-guarded/binding", binding)


def _created(title: str, who: str, path: str, body: dict[str, Any]) -> Pair:
    """Two creations of which one has the label."""
    twin = deepcopy(body)
    twin["metadata"].setdefault("labels", {})[TWIN] = "yes"
    return Pair(title, who, Act(title, "POST", path, body), Act(title, "POST", path, twin))


@contextmanager
def guarded_plane() -> Iterator[ControlPlane]:
    """With the rights and policies of an install, and twins of each guarded kind."""
    options = Options(frozenset({CONTROLLER_MANAGER}), heartbeats=False)  # nobody else taints the nodes
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder), options) as plane:
        install_crd(plane.api(), "swapguards.cotenant.dev")
        furnished(plane)
        make_twins(plane)
        spare_the_twins(plane)
        yield plane


def elapsed_ms(api: Api, act: Act) -> float:
    start = time.perf_counter()
    response = outcome(api, act)
    spent = 1e3 * (time.perf_counter() - start)
    if response.status >= 300:
        raise RuntimeError(f"{act.title} was refused: {response.message}")
    return spent


def round_of(plane: ControlPlane, api: Api, pair: Pair, number: int) -> Times:
    """Both of a pair, `number` times in turn; then each as often by itself."""
    times = Times()
    for _ in range(WARM):  # the first connects, and fills caches
        elapsed_ms(api, pair.guarded)
        elapsed_ms(api, pair.twin)
    for turn in range(number):
        if turn % 2:
            times.twin.append(elapsed_ms(api, pair.twin))
            times.guarded.append(elapsed_ms(api, pair.guarded))
        else:
            times.guarded.append(elapsed_ms(api, pair.guarded))
            times.twin.append(elapsed_ms(api, pair.twin))
    guarded, twin = (_alone(plane, api, act, number) for act in (pair.guarded, pair.twin))
    times.cpu_ms, times.plugin_ms = guarded[0] - twin[0], guarded[1] - twin[1]
    return times


def _alone(plane: ControlPlane, api: Api, act: Act, number: int) -> tuple[float, float]:
    """(CPU time of the API server, time in the plug-in by its clock) for one such write, means, milliseconds."""
    counted, before = admitted(plane), cpu_seconds(plane.servers[APISERVER].pid)
    for _ in range(number):
        elapsed_ms(api, act)
    spent = cpu_seconds(plane.servers[APISERVER].pid) - before
    return 1e3 * spent / number, 1e3 * (admitted(plane) - counted).seconds / number


def admitted(plane: ControlPlane) -> Admitted:
    """Counts since the API server's start."""
    totals = {"count": 0.0, "quick": 0.0, "seconds": 0.0}
    names = {f"{ADMISSION}_count": "count", f"{ADMISSION}_bucket": "quick", f"{ADMISSION}_sum": "seconds"}
    for family in text_string_to_metric_families(plane.kubectl("get", "--raw", "/metrics")):
        for sample in family.samples if family.name == ADMISSION else ():
            is_other = sample.labels["name"] != PLUGIN or sample.labels["rejected"] != "false"
            is_bound = sample.name in names and sample.labels.get("le", CEILING_SECONDS) == CEILING_SECONDS
            if not is_other and is_bound:
                totals[names[sample.name]] += sample.value
    return Admitted(totals["count"], totals["quick"], totals["seconds"])


def step_row(plane: ControlPlane) -> Row:
    """All validation of updates, of guarded writes and of others, by the API server's own quantile."""
    matching = [
        (1e3 * sample.value, sample.labels)
        for family in text_string_to_metric_families(plane.kubectl("get", "--raw", "/metrics"))
        for sample in family.samples
        if sample.name == STEP and sample.labels.get("quantile") == "0.99" and sample.labels["operation"] == "UPDATE"
        if (sample.labels["type"], sample.labels["rejected"]) == ("validate", "false")
    ]
    ((value, _),) = matching
    title = "every update: validation as a whole by the API server's clock, p99"
    return below(title, round(value, 2), "ms", CEILING_MS, "of all updates of the run, with policies and without")


def measured(plane: ControlPlane, rounds: int, number: int) -> Iterator[Row]:
    """The rows of each kind of write, and one of all."""
    kinds = list(pairs())
    times: dict[str, list[Times]] = {kind.title: [] for kind in kinds}
    counts: dict[str, list[Admitted]] = {kind.title: [] for kind in kinds}
    loads: dict[str, list[float]] = {kind.title: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            api = thief(plane, kind.account) if kind.account else plane.api()
            before = admitted(plane)
            times[kind.title].append(round_of(plane, api, kind, max(1, number // 10) if kind.is_slow else number))
            counts[kind.title].append(admitted(plane) - before)
            loads[kind.title].append(os.getloadavg()[0])
    for kind in kinds:
        kind_rows = rows(kind.title, times[kind.title], counts[kind.title], loads[kind.title])
        yield from (replace(row, goal="", met=None) for row in kind_rows) if kind.is_slow else kind_rows
    yield step_row(plane)


def rows(title: str, times: Sequence[Times], counts: Sequence[Admitted], loads: Sequence[float]) -> Iterator[Row]:
    """Of one kind: what policies add at the 99th percentile, and how many were quick by the API server's clock."""
    added = [turn.added(PERCENTILE) for turn in times]
    guarded_ms, twin_ms = [turn.guarded for turn in times], [turn.twin for turn in times]
    medians = [float(np.median([np.percentile(side, 50) for side in sides])) for sides in (guarded_ms, twin_ms)]
    note = (
        f"rounds from {min(added):.2f} to {max(added):.2f}; median {np.median([turn.added(50) for turn in times]):.2f} "
        f"(whole request {medians[0]:.2f} against {medians[1]:.2f}); "
        f"{len(times)} rounds of {len(times[0].guarded)} pairs; "
        f"load of the machine {min(loads):.1f} to {max(loads):.1f}"
    )
    yield below(f"{title}: added by all policies, p99", round(float(np.median(added)), 2), "ms", CEILING_MS, note)
    pairwise = np.percentile([np.percentile(np.subtract(turn.guarded, turn.twin), PERCENTILE) for turn in times], 50)
    yield Row(f"{title}: p99 of the differences within pairs", round(float(pairwise), 2), "ms")
    cpu = round(float(np.median([turn.cpu_ms for turn in times])), 2)
    yield below(f"{title}: CPU time of the API server, added by all policies", cpu, "ms", CEILING_MS)
    plugin = round(float(np.median([turn.plugin_ms for turn in times])), 2)
    yield below(f"{title}: mean time in policies by the API server's clock", plugin, "ms", CEILING_MS)
    guarded = sum(2 * len(turn.guarded) + WARM for turn in times)
    slow = sum(turn.count - turn.quick for turn in counts)
    yield above(f"{title}: policies within 5 ms by the API server's clock", round(1 - slow / guarded, 4), "share",
                LEAST_SHARE)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="fewer record nothing")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    options = parser.parse_args()
    with suppress(PermissionError):
        os.nice(-20)  # the servers inherit it
    with guarded_plane() as plane:
        kind_rows = list(measured(plane, options.rounds, options.pairs))
    is_kept = options.rounds >= ROUNDS and options.pairs >= PAIRS
    record("guard_latency", ".venv/bin/python -m bench.admission.guard_latency", kind_rows, is_kept=is_kept)
    return int(any(row.met is False for row in kind_rows))


if __name__ == "__main__":
    sys.exit(main())
