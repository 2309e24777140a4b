"""`cotenant get quotas|waiting|gangs` on a real kube-apiserver, with the rights that docs/queues.md names alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from cotenant.base.kubernetes.protocol import QUOTA_GATE
from cotenant.base.kubernetes.quota_tree import IS_PARENT_LABEL
from cotenant.cli.main import root
from tests.cluster.accounts import await_right
from tests.scheduler_ext.queues.gang_scene import GangScene

PAGE = Path(__file__).resolve().parents[3] / "docs" / "queues.md"
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{}/elasticquotas"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def viewer(gangs: GangScene) -> Path:
    """Kubeconfig of a person with the role that the page makes by `kubectl create clusterrole`, and no other right."""
    command = r"kubectl create clusterrole queue-viewer --verb=(\S+) --resource=(\S+)"
    ((verbs, resources),) = re.findall(command, PAGE.read_text())
    names = [name.partition(".") for name in resources.split(",")]
    rules = [{"verbs": verbs.split(","), "apiGroups": [group], "resources": [plural]} for plural, _, group in names]
    name = f"queue-viewer-{gangs.namespace}"
    gangs.api.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]
    gangs.api.create(f"{RBAC}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": subjects})
    file = gangs.plane.user(name)
    await_right(gangs.plane, file, ("list", "pods"))
    return file


def test_a_person_with_the_rights_of_the_page_reads_tree_reason_and_gangs(gangs: GangScene) -> None:
    space, kubeconfig = gangs.namespace, viewer(gangs)

    def shown(*argv: str) -> Any:
        done = CliRunner().invoke(root, [*argv, "-n", space, "-o", "json", "--kubeconfig", str(kubeconfig)])
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    amounts = {"min": {"cpu": "1"}, "max": {"cpu": "2"}}
    body = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "spec": amounts}
    gangs.api.create(QUOTAS.format(space), {**body, "metadata": {"name": space, "labels": {IS_PARENT_LABEL: "false"}}})
    containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "3"}}}]
    spec = {"containers": containers, "schedulingGates": [{"name": QUOTA_GATE}]}
    gangs.api.create(f"/api/v1/namespaces/{space}/pods", {"metadata": {"name": "large"}, "spec": spec})
    gangs.gang("half", 1, "1", {"min-available": "2"})
    (row,) = shown("get", "quotas")
    assert (row["quota"], row["resource"], row["min"], row["max"], row["waiting"]) == (space, "cpu", 1000, 2000, 1)
    explained = shown("explain", "queue", "large")
    assert (explained["pod"]["code"], explained["pod"]["requested"]) == ("above-quota-max", 3000)
    (gang,) = shown("get", "gangs")
    assert (gang["gang"], gang["state"], gang["members"], gang["min_available"]) == ("half", "Incomplete", 1, 2)


def test_explain_says_when_a_pod_is_likely_let_go_by_how_long_others_ran(
    gangs: GangScene, fake_nodes: Callable[..., list[str]]
) -> None:
    fake_nodes(1, cpu="8")
    space = gangs.namespace
    pods = f"/api/v1/namespaces/{space}/pods"
    body = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota"}
    labels = {IS_PARENT_LABEL: "false"}
    amounts = {"min": {"cpu": "1"}, "max": {"cpu": "1"}}
    gangs.api.create(QUOTAS.format(space), {**body, "metadata": {"name": space, "labels": labels}, "spec": amounts})
    containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "1"}}}]
    spec = {"containers": containers, "restartPolicy": "Never", "schedulerName": "nobody"}
    start, hour = datetime.now(UTC).replace(microsecond=0), timedelta(hours=1)
    for name in (*(f"ended-{number}" for number in range(5)), "runs"):
        gangs.api.create(pods, {"metadata": {"name": name}, "spec": spec})
        ended = (
            {"terminated": {"exitCode": 0, "finishedAt": stamp(start + hour)}} if name != "runs" else {"running": {}}
        )
        states = [{"name": "main", "image": "app", "imageID": "", "ready": False, "restartCount": 0, "state": ended}]
        phase = "Running" if name == "runs" else "Succeeded"
        status = {"phase": phase, "startTime": stamp(start), "containerStatuses": states}
        gangs.api.patch(f"{pods}/{name}/status", {"status": status})
    gated = {**spec, "schedulingGates": [{"name": QUOTA_GATE}]}
    gangs.api.create(pods, {"metadata": {"name": "late"}, "spec": gated})
    argv = ["explain", "queue", "late", "-n", space, "-o", "json", "--kubeconfig", str(viewer(gangs))]
    done = CliRunner().invoke(root, argv)
    assert done.exit_code == 0, done.stderr
    row = json.loads(done.stdout)["pod"]
    # All five ran an hour, and the one that runs began when they did.
    assert row["likely_seconds"] == (start + hour).timestamp()
    assert row["likely_basis"] == f"by the run times of 5 ended pods of quota {space}"


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
