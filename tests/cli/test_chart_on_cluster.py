"""The Helm chart on a real API server: every object is accepted, and Helm's life cycle leaves what is to stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cotenant.cli.cluster.installation.manifests import COMPONENTS
from tests.cli.charts import (
    EVERYTHING,
    Json,
    chart,
    every_combination,
    object_of,
    release,
    rendered,
    typical_combinations,
    values_of,
)
from tests.cli.test_install_on_cluster import run
from tests.cluster import needing
from tests.cluster.accounts import install_rights
from tests.cluster.control_plane import APISERVER, CONTROLLER_MANAGER, ControlPlane, Options
from tests.cluster.fixtures import FakeNodes
from tests.cluster.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("cluster")]

ADMISSION_API = "apiserver.config.k8s.io/v1"
ENFORCE = "pod-security.kubernetes.io/enforce"
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


def test_helm_test_names_what_has_no_pods_and_a_label_lets_the_agents_pods_in(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes
) -> None:
    """Where a level of Pod Security refuses the agent's folders of the node, there is no pod that could be unready."""
    (node,) = fake_nodes(1)
    control_plane.kubectl("label", "namespace", namespace, f"{ENFORCE}=baseline")
    objects = rendered(values_of(frozenset({"enforcement"}), crds={"install": False}))
    parts = [object_of(objects, kind, "cotenant-enforcer") for kind in ("ServiceAccount", "DaemonSet")]
    rights = [o for o in objects if o["metadata"]["name"] == "cotenant-test" and o["kind"].startswith("Role")]
    parts[1]["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    for body in (*parts, *rights):
        body["metadata"]["namespace"] = namespace
    rights[-1]["subjects"] = [{"kind": "User", "name": "helm-test", "apiGroup": "rbac.authorization.k8s.io"}]
    control_plane.kubectl("apply", "-f", "-", text=stream([*parts, *rights]))
    _, _, code, _, _, *names = object_of(objects, "Pod", "cotenant-test")["spec"]["containers"][0]["command"]
    assert names == ["deployments/cotenant-manager", "daemonsets/cotenant-enforcer"]

    def helm_test(seconds: int, *names: str) -> str:
        """Why it fails; empty when it passes."""
        command = [sys.executable, "-c", code, namespace, str(seconds), *names]
        env = {**os.environ, "KUBECONFIG": str(control_plane.user("helm-test"))}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert bool(done.returncode) == bool(done.stderr)
        return done.stderr

    refused = "daemonsets/cotenant-enforcer: 1 pods desired, 0 available"
    message = wait_for("a DaemonSet that was seen", lambda: (why := helm_test(0, *names)) * (refused in why))
    assert "deployments/cotenant-manager: does not exist" in message
    events = "involvedObject.name=cotenant-enforcer,reason=FailedCreate"
    assert "violates PodSecurity" in control_plane.kubectl("get", "events", "-n", namespace, "--field-selector", events)
    control_plane.kubectl("label", "--overwrite", "namespace", namespace, f"{ENFORCE}=privileged")
    control_plane.kubectl("rollout", "restart", "daemonset/cotenant-enforcer", "-n", namespace)
    assert helm_test(120, names[1]) == ""


def test_all_other_pods_keep_the_strictest_level_of_pod_security(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.kubectl("label", "namespace", namespace, f"{ENFORCE}=restricted")
    templates = {
        body["metadata"]["name"]: body["spec"].get("jobTemplate", body)["spec"]["template"]
        for body in rendered(values_of(EVERYTHING)) + rendered({})
        if body["kind"] in ("Deployment", "DaemonSet", "CronJob")
    }
    refused = set()
    for name, template in templates.items():
        pod: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": dict(template["spec"]),
        }
        pod["spec"].pop("serviceAccountName")
        try:
            control_plane.kubectl("create", "-n", namespace, "--dry-run=server", "-f", "-", text=json.dumps(pod))
        except subprocess.CalledProcessError as error:
            assert "violates PodSecurity" in error.stderr
            refused.add(name)
    assert refused == {"cotenant-enforcer"} and len(templates) == 7


@pytest.mark.soak
def test_critical_pods_are_let_in_where_their_class_must_be_allowed_by_a_quota(tmp_path: Path) -> None:
    needing.kubernetes()
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
    settings = {
        "kind": "ResourceQuotaConfiguration",
        "limitedResources": [{"resource": "pods", "matchScopes": [scope]}],
    }
    plugin = {"name": "ResourceQuota", "configuration": {"apiVersion": ADMISSION_API, **settings}}
    file = tmp_path / "admission.json"
    file.write_text(json.dumps({"apiVersion": ADMISSION_API, "kind": "AdmissionConfiguration", "plugins": [plugin]}))
    objects = rendered(values_of(frozenset({"enforcement"}), crds={"install": False}))
    template = object_of(objects, "DaemonSet", "cotenant-enforcer")["spec"]["template"]["spec"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent", "namespace": "cotenant"}, "spec": template}
    (tmp_path / "plane").mkdir()
    extra = {APISERVER: [f"--admission-control-config-file={file}"]}
    with ControlPlane(tmp_path / "plane", Options(frozenset({CONTROLLER_MANAGER}), extra)) as plane:

        def refusal() -> str:
            """Why the pod is not created; empty when it would be."""
            try:
                plane.kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(pod))
            except subprocess.CalledProcessError as error:
                return str(error.stderr)
            return ""

        plane.kubectl("create", "namespace", "cotenant")
        plane.kubectl("apply", "-f", "-", text=stream([object_of(objects, "ServiceAccount", "cotenant-enforcer")]))
        assert "insufficient quota to match these scopes" in refusal()
        plane.kubectl("apply", "-f", "-", text=stream([object_of(objects, "ResourceQuota", "cotenant-critical-pods")]))
        wait_for("a pod that is let in", lambda: not refusal())


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A server of its own: what is uninstalled here, other tests need."""
    needing.kubernetes()
    with ControlPlane(tmp_path_factory.mktemp("chart"), Options(frozenset({CONTROLLER_MANAGER}))) as plane:
        yield plane


def live(plane: ControlPlane, kind: str, namespace: str = "cotenant") -> dict[str, Any]:
    items = json.loads(plane.kubectl("get", kind, "-n", namespace, "-o", "json"))["items"]
    return {item["metadata"]["name"]: item for item in items}


def hook_pods(plane: ControlPlane) -> list[str]:
    return [name for name in live(plane, "pod") if name.startswith("cotenant-uninstall")]


def switch_off(plane: ControlPlane, part: str, feature: str) -> None:
    """Upgrade without the part; the hook's pod ends when the test says so, as no node runs it."""
    values = values_of(EVERYTHING - {part}, applier={"enabled": True})
    with ThreadPoolExecutor(1) as pool:
        upgrade = pool.submit(release, plane, "upgrade", "cotenant", str(chart()), values=values)
        wait_for("the hook's pod", lambda: upgrade.done() or hook_pods(plane))
        # Its Job begins once the settings in force switch the part off, with rights that are gone again after it.
        settings = live(plane, "configmap")["cotenant-settings"]["data"]["settings.yaml"]
        assert feature in settings and "cotenant-uninstall" in live(plane, "serviceaccount")
        for name in hook_pods(plane):
            ended = json.dumps({"status": {"phase": "Succeeded"}})
            plane.kubectl("patch", "pod", name, "-n", "cotenant", "--subresource=status", "--type=merge", "-p", ended)
        assert feature in upgrade.result()
    assert "cotenant-uninstall" not in live(plane, "serviceaccount")


@pytest.mark.soak
def test_the_notes_say_that_no_image_is_published_until_a_registry_is_named(control_plane: ControlPlane) -> None:
    def notes(values: Json) -> str:
        return release(control_plane, "install", "notes", str(chart()), "--dry-run=client", values=values)

    assert "no pod starts" in notes({}) and "image.registry=REGISTRY" in notes({})
    text = notes({"image": {"registry": "r.example"}})
    assert "is installed in namespace cotenant" in text and "no pod starts" not in text


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
    values = values_of(EVERYTHING, applier={"enabled": True}, devices={"enabled": True})
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
    # Without their part nobody is left who would take away what it wrote: the hook does, once for each such upgrade.
    both = "helm.sh/hook: post-delete,post-upgrade"
    for off, ended in (("tainting", "off: load-taints."), ("enforcement", "off."), ("colocation", "off: colocation.")):
        fewer = values_of(EVERYTHING - {off}, applier={"enabled": True})
        text = release(plane, "upgrade", "cotenant", str(chart()), "--dry-run=server", values=fewer)
        assert both in text and f"Something is switched {ended}" in text, off
    text = release(
        plane, "upgrade", "cotenant", str(chart()), "--dry-run=server", values=values_of(frozenset({"scan"}))
    )
    assert both in text and "name: cotenant-uninstall-scheduling" in text
    text = release(plane, "upgrade", "cotenant", str(chart()), "--dry-run=server", values=values)
    assert "switched off" not in text and "post-upgrade" not in text
    switch_off(plane, "tainting", "load-taints")
    release(plane, "upgrade", "cotenant", str(chart()), values=values)
    manager = live(plane, "deployment")["cotenant-manager"]
    assert "cotenant.dev/settings-digest" in manager["spec"]["template"]["metadata"]["annotations"]
    # `cotenant install` and `cotenant uninstall` see that Helm owns it.
    _, plan, _ = run(plane, "install", "--components", ",".join(sorted(COMPONENTS)))
    expected = ("foreign", "lacking", "refused")
    missed = {name for name, row in plan.items() if row["state"] not in expected and "monitoring" not in name}
    assert missed == {"networkpolicies/cotenant/cotenant-scan"}  # the manager scans: the chart has no job for it
    # Nothing runs the hook's Job here: Helm says so when its time is over, and the release is gone all the same.
    with pytest.raises(AssertionError, match="uninstallation completed with 1 error"):
        release(plane, "uninstall", "cotenant", "--timeout", "3s")
    assert "cotenant-uninstall" not in live(plane, "serviceaccount") and "cotenant-uninstall" in live(plane, "job")
    assert live(plane, "deployment") == {}
    assert "cotenant-store" in live(plane, "persistentvolumeclaim")
    definitions = {d["metadata"]["name"] for d in rendered(values) if d["kind"] == "CustomResourceDefinition"}
    assert definitions <= set(live(plane, "crd"))
    # What stayed is taken up again.
    release(plane, "install", "cotenant", str(chart()), values=values)
    assert object_of(list(live(plane, "persistentvolumeclaim").values()), "PersistentVolumeClaim", "cotenant-store")
