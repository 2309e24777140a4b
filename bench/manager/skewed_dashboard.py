"""A dashboard of a live cluster that acts: what it shows of the cluster, and a change that another version takes back.

It has the manager's store, in which the manager keeps its results, and the rights of somebody who may accept.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import requests

from bench.closed_loop.live_cluster import CLUSTER
from cotenant.base.errors import NoData
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.protocol import SYSTEM_NAMESPACE
from cotenant.base.store import Store
from cotenant.recommender.model.views import RECOMMENDATIONS
from cotenant_lab.simulation import objects
from cotenant_lab.simulation.cluster_population import PREFIX
from tests.cluster.accounts import applier, await_right
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import create_namespace
from tests.cluster.process import Server, free_port
from tests.cluster.waiting import wait_for
from tests.support.access import Browser

QUOTA: Final = "skewed-team"
QUOTA_VERSION: Final = "scheduling.sigs.k8s.io/v1alpha1"
QUEUES: Final = (
    "pods,nodes,elasticquotas.scheduling.sigs.k8s.io,elasticquotaprofiles.quota.koordinator.sh,"
    "podgroups.scheduling.sigs.k8s.io,reservations.scheduling.koordinator.sh"
)
"""Whoever sees the page of queues may list these (docs/queues.md)."""
PERSON: Final = "ann"
API: Final = "/api/v1"
ADDRESS: Final = re.compile(r"open (http://127\.0\.0\.1:\d+)/\?token=(\S+)")
LENIENT: Final = {
    "actions.soak_minutes": 0,
    "actions.guardrails.cool_down_hours": 0,
    "actions.guardrails.least_change": 0,
    "actions.guardrails.most_cpu_cut": 1,
    "actions.guardrails.most_memory_cut": 1,
    "actions.guardrails.most_requests_share": 1,
}
"""The same small change is accepted and taken back over and over, within minutes."""
PAGE: Final[dict[str, Any]] = {
    "output": "page.children",
    "outputs": {"id": "page", "property": "children"},
    "inputs": [
        {"id": "url", "property": "pathname", "value": "/queues"},
        {"id": "redraw", "property": "data", "value": None},
    ],
    "state": [{"id": "url", "property": "search", "value": ""}],
    "changedPropIds": ["url.pathname"],
}
"""As a browser asks for the page of queues, which is read from the cluster."""


class ActingDashboard:
    """The dashboard as a server; accepted: the change that stands, acts: acceptances and rollbacks so far."""

    def __init__(self, plane: ControlPlane, store_url: str, folder: Path, command: str) -> None:
        """Make the objects that it shows and changes, and start it; returns when the manager's results are stored."""
        self.accepted, self.acts, self._keys = "", 0, 0
        self._plane = plane
        self._workload = _deployed(plane, Store(store_url, CLUSTER))
        head = {"apiVersion": QUOTA_VERSION, "kind": "ElasticQuota", "metadata": {"name": QUOTA}}
        namespace = create_namespace(plane.api(), QUOTA)
        quota = {**head, "spec": {"min": {"cpu": 4}, "max": {"cpu": 8}}}
        plane.api().create(f"/apis/{QUOTA_VERSION}/namespaces/{namespace}/elasticquotas", quota)
        self.ledger = folder / "ledger.db"
        kubeconfig = applier(plane, self._workload.namespace, PERSON, heads_in=SYSTEM_NAMESPACE)
        plane.kubectl("create", "clusterrole", "queue-viewer", "--verb=get,list", f"--resource={QUEUES}")
        plane.kubectl("create", "clusterrolebinding", "queue-viewer", "--clusterrole=queue-viewer", f"--user={PERSON}")
        await_right(plane, kubeconfig, ("list", "podgroups", "scheduling.sigs.k8s.io"))
        options = {**LENIENT, "actions.ledger": self.ledger, "telemetry.health_port": 0}
        flags = [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
        flags += ["dashboard", "--act", "--port", str(free_port()), "--store", store_url, "--cluster", CLUSTER]
        flags += ["--kubeconfig", str(kubeconfig)]
        self.server = Server("dashboard", [command, *flags], folder / "dashboard.log")
        self.server.start()
        self.server.wait_until(lambda: ADDRESS.search(self.server.written()) is not None)

    def why_not_working(self) -> str:
        """What it does not show or do, in words; "" when it showed the cluster, tried a change and made one."""
        match = ADDRESS.search(self.server.written())
        if match is None:
            return "the dashboard does not serve yet"
        browser = Browser(match[1], Authorization=f"Bearer {match[2]}")
        try:
            return self._why_not_shown(browser) or self._why_not_acting(browser)
        except requests.RequestException as error:
            return f"the dashboard: {error}"

    def _why_not_shown(self, browser: Browser) -> str:
        front = browser.get("/", page=True)
        page = browser.post("/_dash-update-component", json=PAGE)
        if front.status_code != 200 or page.status_code != 200 or QUOTA not in page.text:
            return f"the dashboard's page of queues: {front.status_code}, {page.status_code}: {page.text[300:]}"
        return ""

    def _why_not_acting(self, browser: Browser) -> str:
        """Try the change on the server; accept it, or roll back the one that another process accepted."""
        name = str(self._workload)
        tried = browser.post(f"{API}/reviews", json={"workloads": [name], "dry_run": True})
        if tried.status_code != 200 or (not self.accepted and not (tried.json()[0].get("tried") or {}).get("accepted")):
            return f"the dashboard's dry run: {tried.status_code}: {tried.text[:600]}"
        if self.accepted:
            done = browser.post(f"{API}/changes/{self.accepted}/rollback")
        else:
            self._keys += 1
            key = {"Idempotency-Key": f"skewed-{self._keys}"}
            done = browser.post(f"{API}/changes", json={"workloads": [name]}, headers=key)
        expected = "rolled-back" if self.accepted else "applied"
        if done.status_code not in (200, 201) or [change["state"] for change in done.json()["changes"]] != [expected]:
            return f"the dashboard's change is not {expected}: {done.status_code}: {done.text[:600]}"
        self.accepted = "" if self.accepted else done.json()["changes"][0]["change"]
        self.acts += 1
        return self._why_not_kept(browser)

    def _why_not_kept(self, browser: Browser) -> str:
        """Every act of every version stands in the ledger, unbroken: two rows an act."""
        health = browser.get(f"{API}/ledger").json()
        if health["bad_row"] or health["rows"] < 2 * self.acts:
            return f"the ledger: {health} after {self.acts} acts"
        return ""


def _deployed(plane: ControlPlane, store: Store) -> WorkloadRef:
    """A workload for which the manager recommends something, which becomes a Deployment with one pod."""

    def recommended() -> list[WorkloadRef]:
        try:
            rows = list(store.read_table(RECOMMENDATIONS).rows())
        except NoData:
            return []
        changing = [row for row in rows if row["cpu_request"] not in (None, row["cpu_request_now"])]
        changing.sort(key=lambda row: row["cpu_request_now"] or 0)
        return [
            WorkloadRef(row["namespace"], row["kind"], row["workload"])
            for row in changing
            if row["kind"] == "Deployment"
        ]

    chosen = wait_for("the manager's results", recommended)[0]
    inventory = store.read_inventory()
    assert inventory is not None
    (workload,) = (candidate for candidate in inventory.workloads if candidate.ref == chosen)
    bare = WorkloadRef(chosen.namespace.removeprefix(PREFIX), chosen.kind, chosen.name)
    (apply,) = objects.workloads(replace(inventory, workloads=(replace(workload, ref=bare),)))
    path, api = f"/apis/apps/v1/namespaces/{chosen.namespace}/deployments", plane.api()
    api.create(path, {**apply.body, "spec": {**apply.body["spec"], "replicas": 1}})
    wait_for("its pod", lambda: api.get(f"{path}/{chosen.name}")["status"].get("readyReplicas"))
    return chosen
