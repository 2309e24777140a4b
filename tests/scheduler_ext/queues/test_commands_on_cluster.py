"""`cotenant quota` and `cotenant gang` on a real kube-apiserver, with the rights that docs/queues.md names alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from cotenant.apps.cli.main import root
from cotenant.core.model.kubernetes.protocol import QUOTA_GATE
from cotenant.core.model.kubernetes.quota_tree import IS_PARENT_LABEL
from tests.cluster.accounts import await_right
from tests.scheduler_ext.queues.gang_scene import GangScene

PAGE = Path(__file__).resolve().parents[3] / "docs" / "queues.md"
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{}/elasticquotas"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def viewer(scene: GangScene) -> Path:
    """Kubeconfig of a person with the role that the page makes by `kubectl create clusterrole`, and no other right."""
    command = r"kubectl create clusterrole queue-viewer --verb=(\S+) --resource=(\S+)"
    ((verbs, resources),) = re.findall(command, PAGE.read_text())
    names = [name.partition(".") for name in resources.split(",")]
    rules = [{"verbs": verbs.split(","), "apiGroups": [group], "resources": [plural]} for plural, _, group in names]
    name = f"queue-viewer-{scene.namespace}"
    scene.api.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]
    scene.api.create(f"{RBAC}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": subjects})
    file = scene.plane.user(name)
    await_right(scene.plane, file, ("list", "pods"))
    return file


def test_a_person_with_the_rights_of_the_page_reads_tree_reason_and_gangs(gangs: GangScene) -> None:
    space, kubeconfig = gangs.namespace, viewer(gangs)

    def shown(*words: str) -> Any:
        done = CliRunner().invoke(root, [*words, "-n", space, "-o", "json", "--kubeconfig", str(kubeconfig)])
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    amounts = {"min": {"cpu": "1"}, "max": {"cpu": "2"}}
    body = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "spec": amounts}
    gangs.api.create(QUOTAS.format(space), {**body, "metadata": {"name": space, "labels": {IS_PARENT_LABEL: "false"}}})
    containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "3"}}}]
    spec = {"containers": containers, "schedulingGates": [{"name": QUOTA_GATE}]}
    gangs.api.create(f"/api/v1/namespaces/{space}/pods", {"metadata": {"name": "large"}, "spec": spec})
    gangs.gang("half", 1, "1", {"min-available": "2"})
    (row,) = shown("quota", "tree")
    assert (row["quota"], row["resource"], row["min"], row["max"], row["waiting"]) == (space, "cpu", 1000, 2000, 1)
    explained = shown("quota", "explain", "large")
    assert (explained["pod"]["code"], explained["pod"]["requested"]) == ("above-quota-max", 3000)
    (gang,) = shown("gang", "list")
    assert (gang["gang"], gang["state"], gang["members"], gang["min_available"]) == ("half", "Incomplete", 1, 2)
