"""What a pod asks for, is allocated, has and would get anew may differ: each surface tells one amount, or both.

One scan of Deployments of one pod each, every one on a node of its own: once by the API server and once by
kube-state-metrics alone, which knows what the spec of a pod asks for and nothing of what its kubelet answered.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

import httpx2
import msgspec
import pytest

from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, connect, send_all
from cotenant.base.kube.live import observe
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.quantity import format_amount
from cotenant.base.people import Grant, Person, Role
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store.store import Store
from cotenant.base.table import Schema
from cotenant.changes.access.configured_service import change_service_of
from cotenant.changes.model.service import ChangeRequest, Method, WorkloadReview
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.pipeline import daily_analysis
from cotenant.recommender.model.recommendation import Action, Field
from cotenant.recommender.model.views import FINDINGS, NODES, PODS, RECOMMENDATIONS, WORKLOADS, Overview
from cotenant.recommender.stored_recommendations import Explanations
from cotenant.scheduler_ext.cluster_size.demand import proposals_of, state_at
from cotenant.scheduler_ext.cluster_size.model import RequestLevel
from cotenant.scheduler_ext.cluster_size.reading import read_cluster
from cotenant.settings import Settings
from cotenant_lab.simulation.api_server import EmbeddedServer
from cotenant_lab.simulation.population import container_status, controller_status, replica_set, set_name
from tests.support import dashboard, kube_series
from tests.support.command_line import cotenant
from tests.support.coroutines import run_coroutine
from tests.support.kube_series import END, Line, PodSpec, link, node, scanned, served

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]

Json = dict[str, Any]
HASH, CORES, CPU = "5c9f7d8b6f", 16, Resource.CPU
STARTED = "2026-11-19T00:00:00Z"


@dataclass(frozen=True)
class Case:
    """Millicores: by the template, by the pod's spec (desired), and as allocated and in force (the kubelet's status).

    now: the right answer of all surfaces; shown: that of kube-state-metrics alone, None where it cannot be known.
    pending: why the kubelet does not carry out the spec. second: of another pod of it, the last by name; host: the case
    on whose node it runs.
    """

    template: int
    desired: int
    has: int
    now: int
    shown: int | None
    pending: str = ""
    is_rolled_out: bool = True
    second: int = 0
    host: str = ""

    @property
    def step(self) -> int:
        """The first step of a cut, which takes 30 % at most of what counts and is in force."""
        return ceil(min(self.now, self.has) * 0.7)


CASES = {
    "equal": Case(1000, 1000, 1000, now=1000, shown=1000),
    # What runs has 600m, whatever its template says; a new pod gets 1000m: both are named.
    "below": Case(1000, 600, 600, now=600, shown=600),
    "above": Case(1000, 2000, 2000, now=2000, shown=2000),
    # Nobody has 100 cores. The exporter shows them on a node of 16: what the pod has is not known there.
    "infeasible": Case(1000, 100_000, 1000, now=1000, shown=None, pending="Infeasible"),
    # kube-scheduler counts the largest of spec, allocated and actual as long as the kubelet tries again: 1500m. These
    # are more than 16 cores with the 14.8 beside, so that the exporter shows a node as no scheduler fills it.
    "deferred": Case(1000, 1500, 1000, now=1500, shown=None, pending="Deferred"),
    # A paused roll-out: the pod is of the template before, with 1000m, and a new one gets 500m.
    "unrolled": Case(500, 1000, 1000, now=1000, shown=1000, is_rolled_out=False),
}
HALF = Case(1000, 600, 600, now=600, shown=600, second=1000)
"""One of two pods is resized: together they count with 1600m."""
NEIGHBOUR = Case(14_800, 14_800, 14_800, now=14_800, shown=None, host="deferred")
PLACED = {**CASES, "half": HALF, "neighbour": NEIGHBOUR}
HOSTS = {name: f"on-{case.host or name}" for name, case in PLACED.items()}
TOTAL = sum(case.now + case.second for case in PLACED.values())


def container(millicores: int) -> Json:
    resources = {"requests": {"cpu": f"{millicores}m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    return {"name": "main", "image": "app", "resources": resources}


def pods_of(name: str, case: Case) -> Iterator[tuple[str, int, int]]:
    """Name, desired and actual amount of each pod of a Deployment."""
    yield f"{set_name(name, HASH)}-bcdfg", case.desired, case.has
    if case.second:
        yield f"{set_name(name, HASH)}-hjklm", case.second, case.second


def series() -> Iterator[Line]:
    """What Prometheus holds: kube-state-metrics tells the spec of a pod. Every pod uses 200m."""
    for name, case in PLACED.items():
        owner = ("ReplicaSet", set_name(name, HASH))
        yield link(*owner, ("Deployment", name))
        yield from () if case.host else node(HOSTS[name], cores=CORES)
        for pod, desired, _ in pods_of(name, case):
            yield from PodSpec(pod, owner, asks=(desired, 1024), node=HOSTS[name]).lines()


def place(client: KubeClient, kind: str, address: Address, body: Json, status: Json | None = None) -> Json:
    """Apply an object and its status, and return it."""
    meta = {"name": address.name} | ({"namespace": address.namespace} if address.namespace else {})
    head = {"apiVersion": address.api_version, "kind": kind}
    manifest = {**head, **body, "metadata": {**body.get("metadata", {}), **meta}}
    intents = [Apply(address, manifest, why="test")]
    if status:
        intents.append(Apply(address, {**head, "metadata": meta, "status": status}, "status", why="test"))
    assert [outcome.error for outcome in send_all(client, intents, "test", workers=1) if outcome.error] == []
    live: Json | None = client.get(address.path)
    return live or {}


def place_pod(client: KubeClient, owner: Json, pod: tuple[str, int, int], where: str, pending: str) -> None:
    """A pod of a controller as its kubelet tells it."""
    name, desired, has = pod
    owned = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
    owned |= {key: owner["metadata"][key] for key in ("name", "uid")}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    running = [container_status(container(has), STARTED)]
    status = {"phase": "Running", "conditions": conditions, "containerStatuses": running}
    meta = {"labels": owner["spec"]["selector"]["matchLabels"], "ownerReferences": [owned]}
    spec = {"containers": [container(desired)], "nodeName": where}
    place(client, "Pod", Address("v1", "pods", name, "shop"), {"metadata": meta, "spec": spec}, status)


def place_all(client: KubeClient) -> None:
    """The same cluster as its API server has it."""
    place(client, "Namespace", Address("v1", "namespaces", "shop"), {})
    size = {"cpu": str(CORES), "memory": "64Gi", "pods": "110"}
    for name, case in PLACED.items():
        place(client, "Node", Address("v1", "nodes", HOSTS[name]), {}, {"capacity": size, "allocatable": size})
        pods, labels = list(pods_of(name, case)), {"app": name}
        before, now = (
            {"metadata": {"labels": labels}, "spec": {"containers": [container(millicores)]}}
            for millicores in (case.template if case.is_rolled_out else case.desired, case.template)
        )
        spec = {"replicas": len(pods), "selector": {"matchLabels": labels}, "template": now}
        status = controller_status("Deployment", len(pods), len(pods) if case.is_rolled_out else 0, len(pods), 1)
        live = place(client, "Deployment", Address("apps/v1", "deployments", name, "shop"), {"spec": spec}, status)
        old_set = replica_set({**live, "spec": {**live["spec"], "template": before}}, HASH, len(pods))
        owner = place(client, "ReplicaSet", Address("apps/v1", "replicasets", set_name(name, HASH), "shop"), old_set)
        for pod in pods:
            place_pod(client, owner, pod, HOSTS[name], case.pending)


@dataclass(frozen=True)
class Scan:
    """Results in a store, and settings by which the cluster is reached."""

    store: Store
    settings: Settings

    def row(self, schema: Schema, **key: str) -> Mapping[str, Any]:
        return row_where(self.store.read_table(schema).rows(), **key)

    @property
    def overview(self) -> Any:
        return self.store.read_document("overview", Overview)

    @cached_property
    def rest(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Rows of the REST API by table."""
        app = dashboard.app_of(dashboard.Results(self.store, END))

        async def ask() -> dict[str, Any]:
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                names = [schema.name for schema in (RECOMMENDATIONS, WORKLOADS, PODS, NODES)]
                return {name: (await client.get(f"/api/v1/{name}")).json()["rows"] for name in names}

        return run_coroutine(ask)

    def explained(self, name: str) -> int | None:
        where = ("--store", self.store.url, "--cluster", "c", "-o", "json")
        done = cotenant("explain", f"shop/Deployment/{name}", *where)
        assert done.returncode == 0, done.stderr
        (explanation,) = json.loads(done.stdout)
        now = row_where(explanation["values"], resource="cpu", field="request")["now"]
        return None if now is None else int(now)

    def notes(self, name: str) -> Sequence[str]:
        return next(r.notes for r in Explanations(self.store).of_workload(f"shop/Deployment/{name}"))

    def review(self, name: str, method: Method = Method.TEMPLATE) -> WorkloadReview:
        service = change_service_of(self.settings, self.store, clock=FixedClock(END))
        person, workload = Person("ann", grants=(Grant(Role.ADMIN),)), WorkloadRef("shop", "Deployment", name)
        (workload_review,) = service.review(person, ChangeRequest((workload,), method=method))
        return workload_review

    def sized(self, level: RequestLevel) -> dict[str, int]:
        """CPU of each pod as `cotenant size` counts it."""
        rows = self.store.read_table(RECOMMENDATIONS).rows()
        state = read_cluster(connect(self.settings.kube), proposals_of(rows))
        return {pod.name: pod.requests["cpu"] for pod in state_at(state, level).pods}

    def amounts_of(self, name: str) -> dict[str, object]:
        """What each table and its endpoint tell of the CPU request of a Deployment of one pod."""
        pod, amounts = f"{set_name(name, HASH)}-bcdfg", {}
        for schema, key in ((RECOMMENDATIONS, "workload"), (WORKLOADS, "workload"), (PODS, "pod"), (NODES, "node")):
            subject = {"workload": name, "pod": pod, "node": f"on-{name}"}[key]
            column = "cpu_request_now" if schema is RECOMMENDATIONS else "cpu_request"
            others = NEIGHBOUR.now if schema is NODES and name == NEIGHBOUR.host else 0
            for surface, rows in (("table", self.store.read_table(schema).rows()), ("REST", self.rest[schema.name])):
                amount = row_where(rows, **{key: subject})[column]
                amounts[f"{surface} {schema.name}"] = None if amount is None else amount - others
        return {**amounts, "explain": self.explained(name)}


def row_where(rows: Any, **key: str) -> Mapping[str, Any]:
    (matched,) = (row for row in rows if all(row[name] == value for name, value in key.items()))
    return matched


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Scan]]:
    """A scan with the API server, and one without."""
    folder, usual = tmp_path_factory.mktemp("amounts"), kube_series.settings()
    with served(folder, {"all": list(series())}) as url, EmbeddedServer() as server:
        limits, kube = GuardrailSettings(minimum_days=0.1), server.write_kubeconfig(folder / "kubeconfig")
        actions = msgspec.structs.replace(usual.actions, ledger=str(folder / "ledger.db"), guardrails=limits)
        settings = msgspec.structs.replace(usual, kube=KubeSettings(kubeconfig=str(kube)), actions=actions)
        client, by_source = connect(settings.kube), {}
        place_all(client)
        for name, live in (("api", observe(client)), ("exporter", None)):
            scanned(url, "all", folder / name, live=live)
            store = Store(f"file://{folder / name}", "c")
            analysis = daily_analysis.analyse(store, settings, FixedClock(END), Silent())
            daily_analysis.publish(analysis, store, settings)
            by_source[name] = Scan(store, settings)
        client.close()
        yield by_source


@pytest.mark.parametrize("name", CASES)
def test_every_surface_tells_what_the_node_counts(name: str, scans: Mapping[str, Scan]) -> None:
    case, scan = CASES[name], scans["api"]
    row, review = scan.row(RECOMMENDATIONS, workload=name), scan.review(name)
    target = row["cpu_request"]
    assert 200 <= target < 300  # 200m are used, whatever is asked for
    amounts = {
        **scan.amounts_of(name),
        "delta": target - row["cpu_delta_total"],
        "size": scan.sized(RequestLevel.NOW)[f"{set_name(name, HASH)}-bcdfg"],
        "review": row_where(msgspec.to_builtins(review.recommendations[0].values), resource=CPU, field=Field.REQUEST)[
            "now"
        ],
        "saving of the review": review.savings.frees.millicores + case.step,
    }
    assert amounts == dict.fromkeys(amounts, case.now)


@pytest.mark.parametrize("name", CASES)
def test_every_surface_has_the_same_first_step_and_both_amounts_are_named(name: str, scans: Mapping[str, Scan]) -> None:
    case, scan = CASES[name], scans["api"]
    review, text = scan.review(name), format_amount(CPU, case.step)
    following = [step for step in review.next_steps if step.resource is CPU]
    line = next(line for line in review.lines if line.pointer == "main cpu request")
    amounts = {
        "table": scan.row(RECOMMENDATIONS, workload=name)["cpu_step"],
        "ladder": following[0].now,
        "size": scan.sized(RequestLevel.READY)[f"{set_name(name, HASH)}-bcdfg"],
    }
    assert amounts == dict.fromkeys(amounts, case.step)
    # The line is of the template, which is written: from what a new pod gets. In place it is of the pod's spec.
    assert (line.now, line.new) == (format_amount(CPU, case.template), text)
    pods = [line for line in scan.review(name, Method.IN_PLACE).lines if line.target.startswith("pods/")]
    assert [(x.now, x.new) for x in pods if "cpu" in x.pointer] == [(format_amount(CPU, case.desired), text)]
    rule = next(rule for rule in review.rules if rule.name == "running-pods")
    both = f"{format_amount(CPU, case.now)} of cpu in running pods, and a new pod gets {line.now}"
    assert (rule.outcome == "warn", both in rule.why) == (case.now != case.template,) * 2
    blocked = [rule.name for rule in review.blocked(())]
    assert blocked == ([] if case.is_rolled_out else ["rollout"])  # 700m would raise the 500m of the new template


def test_sums_and_findings_rest_on_the_same_amounts(scans: Mapping[str, Scan]) -> None:
    scan = scans["api"]
    overview, rows = scan.overview, list(scan.store.read_table(RECOMMENDATIONS).rows())
    assert overview.headline.cpu_requests_commitment == pytest.approx(TOTAL / (len(set(HOSTS.values())) * CORES * 1000))
    # The chart of past hours: of 100 cores on a node of 16, always recorded so, nobody knows what was there instead.
    assert overview.cpu.request[-1] == TOTAL - CASES["infeasible"].now
    targets = sum(row["cpu_request"] * row["replicas"] for row in rows)
    assert overview.savings.all_steps.frees.millicores == TOTAL - targets
    steps = sum(case.step for case in (*CASES.values(), NEIGHBOUR)) + 2 * 700
    assert overview.savings.now.frees.millicores == TOTAL - steps
    assert list(scan.store.read_table(FINDINGS).rows()) == []  # nothing is too large for every node


@pytest.mark.parametrize("name", CASES)
def test_the_exporter_alone_tells_the_specs_or_that_it_is_not_known(name: str, scans: Mapping[str, Scan]) -> None:
    case, scan = CASES[name], scans["exporter"]
    row, amounts = scan.row(RECOMMENDATIONS, workload=name), scan.amounts_of(name)
    assert amounts == dict.fromkeys(amounts, case.shown)
    if case.shown is None:
        assert (row["cpu_action"], row["cpu_reason"]) == (Action.WITHHELD, Reason.AMOUNTS_UNKNOWN)
        assert [row[key] for key in ("cpu_delta_total", "cpu_step", "saving_month")] == [None] * 3
    else:
        assert (case.shown, row["cpu_step"]) == (case.desired, case.step)
        assert row["cpu_delta_total"] == row["cpu_request"] - case.shown


def test_a_wish_that_nobody_has_is_no_finding_and_no_saving(scans: Mapping[str, Scan]) -> None:
    scan, known_cases = scans["exporter"], [case for case in CASES.values() if case.shown is not None]
    assert list(scan.store.read_table(FINDINGS).rows()) == []
    freed = sum(case.now - case.step for case in known_cases) + 1600 - 2 * 700
    assert scan.overview.savings.now.frees.millicores == freed
    # Of each pod 200m are used; the two of the half-resized one request 1600m.
    (waste,) = scan.overview.waste
    assert waste.cpu_millicores == pytest.approx(sum(case.now - 200 for case in known_cases) + 1200, abs=25)


def test_where_one_of_two_pods_is_resized_the_amounts_of_both_are_named(scans: Mapping[str, Scan]) -> None:
    scan = scans["api"]
    assert scan.row(NODES, node="on-half")["cpu_request"] == 1600
    sized = scan.sized(RequestLevel.NOW)
    assert [sized[pod] for pod, _, _ in pods_of("half", HALF)] == [600, 1000]
    rule = next(rule for rule in scan.review("half").rules if rule.name == "running-pods")
    assert rule.outcome == "warn" and "600m to 1 of cpu in running pods, and a new pod gets 1" in rule.why
    # The row is of the pod with most, and its sum of both: a step to 700m frees 200m of 1600m.
    row = scan.row(RECOMMENDATIONS, workload="half")
    assert (row["cpu_request_now"], row["cpu_step"]) == (1000, 700)
    assert row["cpu_delta_total"] == 2 * row["cpu_request"] - 1600
    assert scan.row(WORKLOADS, workload="half")["cpu_request"] == 1600
    assert scan.review("half").savings.frees.millicores == 200
    assert "cpu: the pods request different amounts; 2 pods request 1600m together" in scan.notes("half")
