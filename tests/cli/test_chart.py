"""The Helm chart: the objects of `cotenant install`, with values put over them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cotenant import __version__
from cotenant.apps.cli.cluster.installation.manifests import FEATURES, bodies, features_off, texts
from cotenant.apps.manager.features import NAMES
from tests.cli.charts import (
    CHART,
    EVERYTHING,
    SWITCHES,
    Json,
    every_combination,
    named,
    needs_helm,
    refusal,
    rendered,
    typical_combinations,
    values_of,
)

HELMS_OWN = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
    "helm.sh/resource-policy",
    "imagePullPolicy",
}
FOLDERS = ("templates/objects.yaml",)
"""Templates whose objects are those of `cotenant install`; the others add what takes values to make."""


def name_of(switches: frozenset[str]) -> str:
    return "+".join(sorted(switches)) or "nothing"


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    needs_helm()


def plain(value: Any) -> Any:
    """An object without what Helm and the chart say about their own work."""
    if isinstance(value, list):
        return [plain(member) for member in value]
    if not isinstance(value, dict):
        return value
    own = {key: plain(member) for key, member in value.items() if key not in HELMS_OWN}
    return {key: member for key, member in own.items() if key != "annotations" or member}


def comparable(objects: list[Json]) -> dict[tuple[str, str, str], Json]:
    """Objects by kind, namespace and name; the settings as they are read."""
    by_key = {}
    for body in map(plain, objects):
        if "settings.yaml" in body.get("data", {}):
            settings = yaml.safe_load(body["data"]["settings.yaml"])
            settings["manager"].setdefault("features_off", [])
            body["data"]["settings.yaml"] = settings
        key = (body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"])
        by_key[key] = body
    by_key.pop(("Namespace", "", "cotenant"), None)  # `helm install --create-namespace` makes it
    return by_key


def installed(switches: frozenset[str], *, definitions: bool = False) -> list[Json]:
    components = [name for name in SWITCHES if name in switches]
    return [
        body
        for _, text in texts(components)
        if definitions or "kind: CustomResourceDefinition" not in text
        for body in bodies(text)
    ]


def same_objects(switches: frozenset[str], *, definitions: bool = False) -> None:
    values = values_of(switches, crds={"install": definitions})
    chart = comparable(rendered(values, "--show-only", *FOLDERS)) if switches else {}
    assert chart == comparable(installed(switches, definitions=definitions))


@pytest.mark.parametrize("switches", typical_combinations(), ids=name_of)
def test_chart_and_install_render_the_same_objects(switches: frozenset[str]) -> None:
    same_objects(switches)


def test_chart_and_install_render_the_same_definitions() -> None:
    same_objects(EVERYTHING, definitions=True)


@pytest.mark.soak
@pytest.mark.parametrize("switches", list(every_combination()), ids=name_of)
def test_chart_and_install_render_the_same_objects_in_every_combination(switches: frozenset[str]) -> None:
    same_objects(switches)


def test_the_manager_runs_the_features_of_what_is_on() -> None:
    assert {name for names in FEATURES.values() for name in names} == set(NAMES)
    assert features_off(["recommendations"]) == sorted(set(NAMES) - {"recommendations"})
    assert features_off(SWITCHES) == []


def test_versions_are_those_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    images = {c["image"] for body in installed(EVERYTHING) for c in containers(body)}
    assert images == {f"cotenant/cotenant:{__version__}", f"cotenant/cotenant-node:{__version__}"}


def containers(body: Json) -> list[Json]:
    """Containers of a pod template, none for other objects."""
    spec: Any = body.get("spec") or {}
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    inside = spec.get("template", {}).get("spec", {}) if isinstance(spec.get("template"), dict) else {}
    return [*inside.get("initContainers", ()), *inside.get("containers", ())]


def test_another_namespace_is_refused() -> None:
    assert "in namespace cotenant" in refusal({}, "default")


def test_values_are_put_over_the_objects() -> None:
    settings = {"store": {"url": "s3://bucket/cotenant"}, "enforcer": {"dry_run": False, "tick_seconds": 2}}
    manager = {
        "replicas": 2,
        "container": {"resources": {"limits": {"memory": "3Gi"}}},
        "pod": {"nodeSelector": {"a": "b"}},
    }
    image = {"registry": "registry.example", "digest": "sha256:" + "0" * 64}
    more = {"settings": settings, "image": image, "processes": {"manager": manager}, "clusterName": "prod"}
    objects = rendered(values_of(EVERYTHING, **more))
    deployment = named(objects, "Deployment", "cotenant-manager")["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    assert (deployment["replicas"], pod["nodeSelector"]) == (2, {"a": "b"})
    assert container["image"] == f"registry.example/cotenant/cotenant@sha256:{'0' * 64}"
    assert container["resources"] == {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"memory": "3Gi"}}
    assert {"name": "CLUSTER_NAME", "value": "prod"} in container["env"]
    # The store is elsewhere: no volume, and nothing that keeps the pods on one node.
    assert [v["name"] for v in pod["volumes"]] == ["settings", "tmp"]
    assert "affinity" not in pod
    assert [o for o in objects if o["kind"] == "PersistentVolumeClaim"] == []
    (agent,) = containers(named(objects, "DaemonSet", "cotenant-enforcer"))
    env = {e["name"]: e.get("value") for e in agent["env"]}
    assert (env["COTENANT_ENFORCER__DRY_RUN"], env["COTENANT_ENFORCER__TICK_SECONDS"]) == ("false", "2")
    assert len(env) == len(agent["env"])
    written = yaml.safe_load(named(objects, "ConfigMap", "cotenant-settings")["data"]["settings.yaml"])
    assert written["store"] == {"url": "s3://bucket/cotenant"}
    assert written["telemetry"]["log_format"] == "json"
