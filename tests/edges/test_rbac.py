"""The rights that we publish are those that the code uses: no more, no less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.cli.probes.cluster import needed
from cotenant.edges.kube.client import _resource_of
from cotenant.edges.kube.discovery import SERVICES
from cotenant.edges.kube.live import LISTED, VERSION

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "deploy" / "rbac" / "reader.yaml"


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(MANIFEST.read_text()))


def rules(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [rule for d in documents if d["kind"] == kind for rule in d["rules"]]


def test_the_cluster_role_grants_what_the_code_lists_and_nothing_else(documents: list[dict[str, Any]]) -> None:
    granted = {
        (group, resource)
        for rule in rules(documents, "ClusterRole")
        for group in rule.get("apiGroups", [])
        for resource in rule["resources"]
    }
    assert granted == {_resource_of(path) for path in (*LISTED, SERVICES)}
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


def test_every_binding_gives_a_role_of_the_file_to_its_account(documents: list[dict[str, Any]]) -> None:
    named = {(d["kind"], d["metadata"]["name"]) for d in documents}
    accounts = {(d["metadata"]["name"], d["metadata"]["namespace"]) for d in documents if d["kind"] == "ServiceAccount"}
    bindings = [d for d in documents if d["kind"].endswith("Binding")]
    assert len(bindings) == 2
    for binding in bindings:
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in named
        assert {(s["name"], s["namespace"]) for s in binding["subjects"]} == accounts


def test_every_rule_says_why(documents: list[dict[str, Any]]) -> None:
    lines = [line.strip() for line in MANIFEST.read_text().splitlines()]
    begun = [i for i, line in enumerate(lines) if line.startswith(("- apiGroups", "- nonResourceURLs"))]
    role = lines.index("name: cotenant-prometheus")
    assert len(begun) == 6
    assert all(lines[i - 1].startswith("#") for i in begun if i < role)


def test_the_doctor_tries_the_same_rights_and_the_page_names_them() -> None:
    assert set(needed().values()) == {*LISTED, SERVICES}
    page = (ROOT / "docs" / "install-read-only.md").read_text()
    plain = {kind.partition(".")[0] for kind in needed()}
    assert {kind for kind in plain if kind not in page} == set()
    assert "deploy/rbac/reader.yaml" in page
