"""The rights that we publish are those that the code uses: no more, no less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.base.kube.client import _resource_of
from cotenant.base.kube.discovery import SERVICES
from cotenant.base.kube.live import CHECKPOINTS, LISTED, VERSION, VPAS
from cotenant.changes.objectives.declared import INDICATORS, KINDS, POLICIES, SOURCES
from cotenant.cli.cluster.probes.cluster import scan_resource_paths
from cotenant.enforcer.model.agents import EVENTS

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "deploy" / "rbac" / "reader.yaml"
PROXY = ROOT / "deploy" / "rbac" / "prometheus.yaml"


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    return [d for path in (MANIFEST, PROXY) for d in yaml.safe_load_all(path.read_text())]


def rules(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [rule for d in documents if d["kind"] == kind for rule in d["rules"]]


def test_the_cluster_role_grants_what_the_code_lists_and_nothing_else(documents: list[dict[str, Any]]) -> None:
    granted = {
        (group, resource)
        for rule in rules(documents, "ClusterRole")
        for group in rule.get("apiGroups", [])
        for resource in rule["resources"]
    }
    declared = [f"/apis/{kind}" for kind in (POLICIES, INDICATORS, SOURCES, *KINDS.values())]
    assert granted == {_resource_of(path) for path in (*LISTED, VPAS, CHECKPOINTS, SERVICES, EVENTS, *declared)}
    urls = [url for rule in rules(documents, "ClusterRole") for url in rule.get("nonResourceURLs", [])]
    assert urls == [VERSION]


def test_no_rule_can_write_read_secrets_or_use_a_wildcard(documents: list[dict[str, Any]]) -> None:
    every = [*rules(documents, "ClusterRole"), *rules(documents, "Role")]
    assert every
    for rule in every:
        assert set(rule["verbs"]) <= {"get", "list"}
        assert "*" not in str(rule)
        assert "secrets" not in str(rule)
    assert [r["resources"] for r in rules(documents, "Role")] == [["services/proxy"]]


FILES = sorted((ROOT / "deploy" / "rbac").glob("*.yaml"))
POWERS = {"*", "escalate", "bind", "impersonate", "deletecollection", "update"}
"""Verbs that no component has: `update` would overwrite what others wrote, we apply and patch."""
NEVER = {"*", "nodes/proxy", "pods/exec", "pods/attach", "pods/portforward", "serviceaccounts/token", "nodes", "pods"}
"""Resources that no component may write."""
HELD_BACK = {
    ("reservations", "pods"): "cotenant-reservation-writer",
    ("queues", "pods"): "cotenant-reservation-writer",
    ("queues", "elasticquotas"): "cotenant-queue-writer",
    ("queues", "podgroups"): "cotenant-queue-writer",
    ("uninstall", "pods"): "cotenant-uninstall-pods",
    ("manager", "nodes/status"): "cotenant-manager-node-amounts",
    ("manager", "noderesourcetopologies"): "cotenant-manager-zone-amounts",
    ("plans", "horizontalpodautoscalers"): "cotenant-manager-autoscalers",
    ("uninstall", "nodes/status"): "cotenant-uninstall-node-amounts",
    ("uninstall", "noderesourcetopologies"): "cotenant-uninstall-zone-amounts",
    ("uninstall", "horizontalpodautoscalers"): "cotenant-uninstall-autoscalers",
    ("descheduler", "nodes"): "cotenant-emptying",
    ("load-taints", "nodes"): "cotenant-emptying",
    ("uninstall", "nodes"): "cotenant-uninstall-nodes",
    ("enforcer", "nodes"): "cotenant-enforcer-own-node",
    ("webhook", "mutatingwebhookconfigurations"): "cotenant-webhook-registration",
    ("webhook", "validatingwebhookconfigurations"): "cotenant-webhook-registration",
    ("webhook", "secrets"): "cotenant-webhook-certificate",
}
"""(file, resource) that RBAC must grant as a whole -> the admission policy that lets a part of it through."""
FURTHER = {"prometheus": "cotenant-reader", "devices": "cotenant-enforcer"}
"""File without an account of its own -> the account that it gives more to; the manager's unless named here."""
GATE_LIFTER = "cotenant-gate-lifter"
"""Role and binding of the one change that the webhook makes to pods."""


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_no_role_holds_a_power_that_reaches_beyond_its_work(path: Path) -> None:
    for body in yaml.safe_load_all(path.read_text()):
        for rule in body.get("rules", []):
            verbs, resources = set(rule["verbs"]), set(rule.get("resources", []))
            assert not verbs & POWERS
            assert "*" not in (*rule.get("apiGroups", []), *resources, *rule.get("nonResourceURLs", []))
            exempt = {resource for file, resource in HELD_BACK if file == path.stem}
            placed = body["kind"] == "Role"  # in a namespace of our own
            assert verbs <= {"get", "list", "watch"} or placed or not (resources - exempt) & NEVER
            assert not resources & (NEVER - {"nodes", "pods"})
            if "secrets" in resources:  # by name, in the component's own namespace, never listed
                assert body["kind"] == "Role"
                assert rule["resourceNames"]
                assert not verbs & {"list", "watch"}
            if resources & {"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "leases", "configmaps"}:
                assert rule["resourceNames"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_no_role_grants_the_same_twice(path: Path) -> None:
    """Whoever takes a rule away takes the right away."""
    for body in yaml.safe_load_all(path.read_text()):
        rights = [
            (verb, group, resource, name)
            for rule in body.get("rules", [])
            for group in rule.get("apiGroups", [])
            for resource in rule["resources"]
            for name in rule.get("resourceNames", [""])
            for verb in rule["verbs"]
        ]
        assert len(set(rights)) == len(rights), body["metadata"]["name"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_role_is_given_to_the_account_of_its_file(path: Path) -> None:
    bodies = list(yaml.safe_load_all(path.read_text()))
    accounts = {(d["metadata"]["name"], d["metadata"]["namespace"]) for d in bodies if d["kind"] == "ServiceAccount"}
    roles = {(d["kind"], d["metadata"]["name"]) for d in bodies if d["kind"] in ("Role", "ClusterRole")}
    bindings = [d for d in bodies if d["kind"].endswith("Binding")]
    # What further features of a component need comes in files of their own.
    accounts = accounts or {(FURTHER.get(path.stem, "cotenant-manager"), "cotenant")}
    assert len(accounts) == 1
    assert {(b["roleRef"]["kind"], b["roleRef"]["name"]) for b in bindings} == roles
    lifting = [b for b in bindings if b["metadata"]["name"] == GATE_LIFTER]
    assert [s["name"] for b in lifting for s in b["subjects"]] == ["cotenant-webhook"] * (path.stem == "reservations")
    others = [b for b in bindings if b not in lifting]
    assert {(s["name"], s["namespace"]) for b in others for s in b["subjects"]} == accounts


def test_what_rbac_grants_as_a_whole_is_held_back_by_a_policy() -> None:
    shipped = [d for path in (ROOT / "deploy").glob("*.yaml") for d in yaml.safe_load_all(path.read_text())]
    policies = {d["metadata"]["name"]: d["spec"] for d in shipped if d["kind"] == "ValidatingAdmissionPolicy"}
    for (_, resource), name in HELD_BACK.items():
        rules_ = policies[name]["matchConstraints"]["resourceRules"]
        assert any(resource in rule["resources"] and "UPDATE" in rule["operations"] for rule in rules_)
        assert policies[name]["failurePolicy"] == "Fail"


@pytest.mark.parametrize("path", [p for p in FILES if p not in (MANIFEST, PROXY)], ids=lambda p: p.stem)
def test_every_rule_of_a_component_says_why(path: Path) -> None:
    lines = [line.strip() for line in path.read_text().splitlines()]
    rule_lines = [i for i, line in enumerate(lines) if line.startswith(("- apiGroups", "- nonResourceURLs"))]
    assert rule_lines
    assert [lines[i] for i in rule_lines if not lines[i - 1].startswith("#")] == []


def test_the_manager_reads_what_a_scan_reads_and_what_it_mirrors() -> None:
    """Read rights of the ClusterRole, against the paths that the code lists and watches."""
    bodies = list(yaml.safe_load_all((ROOT / "deploy" / "rbac" / "manager.yaml").read_text()))
    reading = {
        (group, resource): set(rule["verbs"])
        for rule in rules(bodies, "ClusterRole")
        for group in rule.get("apiGroups", [])
        for resource in rule["resources"]
    }
    # But Services: only a person's scan looks for Prometheus by itself.
    assert {_resource_of(path) for path in LISTED} <= {r for r, verbs in reading.items() if "list" in verbs}
    watched = {r for r, verbs in reading.items() if "watch" in verbs}
    mirrored = {("", "nodes"), ("", "pods"), ("slo.koordinator.sh", "nodemetrics"), ("slo.koordinator.sh", "nodeslos")}
    published = {("analysis.koordinator.sh", "recommendations"), ("cotenant.dev", "usageforecasts")}
    zones = {("topology.node.k8s.io", "noderesourcetopologies")}
    assert watched == mirrored | published | zones | {_resource_of(EVENTS)}


def test_every_binding_gives_a_role_of_the_file_to_its_account(documents: list[dict[str, Any]]) -> None:
    roles = {(d["kind"], d["metadata"]["name"]) for d in documents}
    accounts = {(d["metadata"]["name"], d["metadata"]["namespace"]) for d in documents if d["kind"] == "ServiceAccount"}
    bindings = [d for d in documents if d["kind"].endswith("Binding")]
    assert len(bindings) == 2
    for binding in bindings:
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in roles
        assert {(s["name"], s["namespace"]) for s in binding["subjects"]} == accounts


def test_every_rule_says_why(documents: list[dict[str, Any]]) -> None:
    lines = [line.strip() for line in MANIFEST.read_text().splitlines()]
    rule_lines = [i for i, line in enumerate(lines) if line.startswith(("- apiGroups", "- nonResourceURLs"))]
    assert len(rule_lines) == 11
    assert all(lines[i - 1].startswith("#") for i in rule_lines)


def test_the_doctor_tries_the_same_rights_and_the_page_names_them() -> None:
    assert set(scan_resource_paths().values()) == {*LISTED, SERVICES, EVENTS}
    page = (ROOT / "docs" / "install-read-only.md").read_text()
    plain = {kind.partition(".")[0] for kind in scan_resource_paths()}
    assert {kind for kind in plain if kind not in page} == set()
    assert "deploy/rbac/reader.yaml" in page
