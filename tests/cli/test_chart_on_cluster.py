"""The Helm chart on a real API server: every object is accepted, and Helm's life cycle leaves what is to stay."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.apps.cli.cluster.installation.manifests import COMPONENTS
from tests.cli.charts import (
    EVERYTHING,
    Json,
    chart,
    every_combination,
    named,
    release,
    rendered,
    typical_combinations,
    values_of,
)
from tests.cli.test_install_on_cluster import run
from tests.cluster import needing
from tests.cluster.accounts import install_rights
from tests.cluster.control_plane import CONTROLLER_MANAGER, ControlPlane, Options

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("cluster")]

FOREIGN = ("cert-manager.io/", "monitoring.coreos.com/")
"""API groups of other products, which a test cluster does not serve."""


@pytest.fixture(autouse=True)
def _helm() -> None:
    needing.helm()


def dry_run(plane: ControlPlane, combinations: Iterable[frozenset[str]]) -> int:
    """Send what these combinations render, each distinct object once, as a server-side dry run; their number."""
    install_rights(plane)
    distinct = {
        json.dumps(body, sort_keys=True): body
        for switches in combinations
        for body in rendered(values_of(switches, applier={"enabled": True}, crds={"install": switches == EVERYTHING}))
        if not body["apiVersion"].startswith(FOREIGN)
    }
    objects = list(distinct.values())
    first = [o for o in objects if o["metadata"]["name"] == "cotenant-test" and o["kind"] == "ServiceAccount"]
    plane.kubectl("apply", "-f", "-", text=stream(first[:1]))  # the server looks for the account of a pod that it tries
    command = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
    return len(plane.kubectl(*command, text=stream(objects)).splitlines())


def stream(objects: Iterable[Json]) -> str:
    return "\n---\n".join(map(json.dumps, objects))


def test_the_api_server_accepts_what_the_chart_renders(control_plane: ControlPlane) -> None:
    assert dry_run(control_plane, typical_combinations()) > 100


@pytest.mark.soak
@pytest.mark.parametrize("release", ["control_plane", "next_control_plane"])
def test_the_api_server_of_either_release_accepts_every_combination(
    release: str, request: pytest.FixtureRequest
) -> None:
    assert dry_run(request.getfixturevalue(release), every_combination()) > 110


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A server of its own: what is uninstalled here, other tests need."""
    needing.kubernetes()
    with ControlPlane(tmp_path_factory.mktemp("chart"), Options(frozenset({CONTROLLER_MANAGER}))) as plane:
        yield plane


def live(plane: ControlPlane, kind: str, namespace: str = "cotenant") -> dict[str, Any]:
    items = json.loads(plane.kubectl("get", kind, "-n", namespace, "-o", "json"))["items"]
    return {item["metadata"]["name"]: item for item in items}


@pytest.mark.soak
def test_helm_installs_upgrades_and_uninstalls_and_leaves_what_people_stored(
    plane: ControlPlane, tmp_path: Path
) -> None:
    # Somebody else's definition and priority class: left as they are.
    (quota,) = (d for d in rendered(values_of(EVERYTHING)) if d["metadata"]["name"].startswith("elasticquotas."))
    notes = {key: text for key, text in quota["metadata"]["annotations"].items() if "helm" not in key}
    theirs: Json = {**quota, "metadata": {"name": quota["metadata"]["name"], "annotations": notes}}
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "koord-batch"},
        "value": 5500,
    }
    plane.kubectl("create", "-f", "-", text=stream([theirs, priority]))
    values = values_of(EVERYTHING, applier={"enabled": True})
    release(plane, "install", "cotenant", str(chart()), "--create-namespace", values=values)
    assert live(plane, "priorityclass")["koord-batch"]["value"] == 5500
    assert "labels" not in live(plane, "crd")[quota["metadata"]["name"]]["metadata"]
    certificate = live(plane, "secret")["cotenant-extender-certificate"]["data"]
    # The webhook fills in what the chart leaves empty; an upgrade keeps it, and the extender's certificate.
    patch = json.dumps({"stringData": {"tls.crt": "its own"}})
    plane.kubectl("patch", "secret", "cotenant-webhook-certificate", "-n", "cotenant", "-p", patch)
    longer = {**values, "settings": {"telemetry": {"log_level": "debug"}}}
    release(plane, "upgrade", "cotenant", str(chart()), values=longer)
    secrets = live(plane, "secret")
    assert secrets["cotenant-extender-certificate"]["data"] == certificate
    assert "tls.crt" in secrets["cotenant-webhook-certificate"]["data"]
    manager = live(plane, "deployment")["cotenant-manager"]
    assert "cotenant.dev/settings-digest" in manager["spec"]["template"]["metadata"]["annotations"]
    # `cotenant install` and `cotenant uninstall` see that Helm owns it.
    _, plan, _ = run(plane, "install", "--components", ",".join(sorted(COMPONENTS)))
    expected = ("foreign", "lacking", "refused")
    missed = {name for name, row in plan.items() if row["state"] not in expected and "monitoring" not in name}
    assert missed == {"networkpolicies/cotenant/cotenant-scan"}  # the manager scans: the chart has no job for it
    # Nothing runs the hook's Job here: Helm says so when its time is over, and the release is gone all the same.
    with pytest.raises(AssertionError, match="post-delete"):
        release(plane, "uninstall", "cotenant", "--timeout", "3s")
    assert "cotenant-uninstall" not in live(plane, "serviceaccount") and "cotenant-uninstall" in live(plane, "job")
    assert live(plane, "deployment") == {}
    assert "cotenant-store" in live(plane, "persistentvolumeclaim")
    definitions = {d["metadata"]["name"] for d in rendered(values) if d["kind"] == "CustomResourceDefinition"}
    assert definitions <= set(live(plane, "crd"))
    # What stayed is taken up again.
    release(plane, "install", "cotenant", str(chart()), values=values)
    assert named(list(live(plane, "persistentvolumeclaim").values()), "PersistentVolumeClaim", "cotenant-store")
