"""Files for kustomize, Helm and server-side apply hold exactly what is proposed, and tools read them as meant."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.base.cluster import ContainerRole
from cotenant.base.errors import UsageError
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.changes.decide.gitops.manifests import File, as_yaml, helm, kustomize, server_side_apply
from cotenant.changes.decide.patches import kubectl_command, patch, refusal
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.settings import PatchSettings

CPU, MEMORY = Resource.CPU, Resource.MEMORY
VALUES = (
    Value(CPU, Field.REQUEST, 100, 250, Action.SET, Reason.OK),
    Value(CPU, Field.LIMIT, 500, None, Action.UNSET, Reason.OK),
    Value(MEMORY, Field.REQUEST, None, 1150 * MIB, Action.SET, Reason.OK),
    Value(MEMORY, Field.LIMIT, 512 * MIB, None, Action.WITHHELD, Reason.NO_DATA),
)
KEPT = (Value(CPU, Field.REQUEST, 70, 70, Action.SET, Reason.WITHIN_DEAD_BAND),)


def recommendation(
    name: str = "web",
    container: str = "app",
    *,
    kind: str = "Deployment",
    role: ContainerRole = ContainerRole.MAIN,
    values: tuple[Value, ...] = VALUES,
) -> Recommendation:
    ref = ContainerRef(WorkloadRef("shop", kind, name), container)
    return Recommendation(ref, "vpa", 1, values, 0, "d", 0, role=role)


def written(files: Any) -> dict[str, Any]:
    """path -> document, after a trip through the YAML that a user gets."""
    return {f.path: yaml.safe_load(as_yaml(f)) for f in files}


def test_containers_of_one_workload_are_one_patch_and_sidecars_stand_among_the_init_containers() -> None:
    both = (recommendation(), recommendation(container="proxy", role=ContainerRole.SIDECAR))
    spec = patch(*both)["spec"]["template"]["spec"]
    assert [c["name"] for c in spec["containers"]] == ["app"]
    assert [c["name"] for c in spec["initContainers"]] == ["proxy"]
    assert kubectl_command(*both).count("kubectl patch") == 1


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (recommendation(role=ContainerRole.INJECTED), "a webhook injects"),
        (recommendation(kind="Job"), "Job's template cannot be changed"),
        (recommendation(kind="Pod"), "bare pod has no template"),
        (recommendation(kind="Rollout"), "kind Rollout"),
    ],
)
def test_what_cannot_be_patched_is_refused_in_words_and_stands_in_no_file(bad: Recommendation, word: str) -> None:
    assert word in refusal(bad)
    assert refusal(recommendation()) == ""
    assert (patch(bad), kubectl_command(bad)) == ({}, "")
    assert list(kustomize([bad])) == list(server_side_apply([bad])) == list(helm([bad], PatchSettings())) == []


def test_a_kustomize_component_lists_every_patch_of_its_namespace_with_its_target() -> None:
    files = written(kustomize([recommendation(), recommendation("api.v2"), recommendation("db", kind="StatefulSet")]))
    component = files["shop/kustomization.yaml"]
    assert component["kind"] == "Component"
    assert {e["path"] for e in component["patches"]} == {p.removeprefix("shop/") for p in files} - {
        "kustomization.yaml"
    }
    resources = files["shop/deployment-web.yaml"]["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "250m", "memory": "1150Mi"}, "limits": {"cpu": None}}


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl")
def test_kubectl_kustomize_applies_the_component_to_the_right_workload_alone(tmp_path: Path) -> None:
    for file in kustomize(
        [recommendation("web.v1"), recommendation("cron", kind="CronJob"), recommendation("elsewhere")]
    ):
        target = tmp_path / "cotenant" / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(as_yaml(file))
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({"namespace": "shop", "resources": ["all.yaml"], "components": ["cotenant/shop"]})
    )
    container = {"name": "app", "image": "i", "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}}}
    pod = {"spec": {"containers": [container, {"name": "other", "image": "j"}]}}
    objects = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"template": pod}}
        for name in ("web.v1", "web-v1")
    ]
    job = {"jobTemplate": {"spec": {"template": pod}}}
    objects.append({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "cron"}, "spec": job})
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
    done = subprocess.run(
        ["kubectl", "kustomize", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    built = {d["metadata"]["name"]: d["spec"] for d in yaml.safe_load_all(done.stdout)}
    changed = {"limits": {"memory": "512Mi"}, "requests": {"cpu": "250m", "memory": "1150Mi"}}
    containers = built["web.v1"]["template"]["spec"]["containers"]
    assert {c["name"]: c.get("resources") for c in containers} == {"app": changed, "other": None}
    assert built["cron"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["resources"] == changed
    untouched = built["web-v1"]["template"]["spec"]["containers"][0]["resources"]  # "." in the target is no wildcard
    assert untouched == container["resources"]


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl")
def test_kubectl_takes_the_line_and_merges_it_into_the_right_containers(tmp_path: Path) -> None:
    limited = {"limits": {"cpu": "500m", "memory": "512Mi"}}
    pod = {
        "initContainers": [{"name": "proxy", "image": "p", "restartPolicy": "Always"}],
        "containers": [{"name": "app", "image": "i", "resources": limited}, {"name": "other", "image": "j"}],
    }
    head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}
    (tmp_path / "web.yaml").write_text(yaml.safe_dump({**head, "spec": spec}))
    arguments = shlex.split(
        kubectl_command(recommendation(), recommendation(container="proxy", role=ContainerRole.SIDECAR))
    )
    assert arguments[:5] == ["kubectl", "patch", "-n", "shop", "deployment/web"]
    local = ["kubectl", "patch", "--local", "-f", str(tmp_path / "web.yaml"), *arguments[5:], "-o", "yaml"]
    done = subprocess.run(local, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    merged = yaml.safe_load(done.stdout)["spec"]["template"]["spec"]
    requests = {"cpu": "250m", "memory": "1150Mi"}
    assert merged["containers"] == [
        {"name": "app", "image": "i", "resources": {"limits": {"memory": "512Mi"}, "requests": requests}},
        {"name": "other", "image": "j"},
    ]
    assert merged["initContainers"][0]["resources"]["requests"] == requests


def test_helm_values_of_one_container_stand_at_the_root_and_of_several_below_their_names() -> None:
    single = written(helm([recommendation(), recommendation(container="calm", values=KEPT)], PatchSettings()))
    assert single == {
        "shop/deployment-web.values.yaml": {
            "resources": {"requests": {"cpu": "250m", "memory": "1150Mi"}, "limits": {"cpu": None}}
        }
    }
    two = written(helm([recommendation(), recommendation(container="log.v2")], PatchSettings()))[
        "shop/deployment-web.values.yaml"
    ]
    assert set(two) == {"app", "log.v2"}


def test_a_helm_path_of_ones_own_is_followed_and_a_bad_one_refused() -> None:
    own = PatchSettings(helm_path="charts.{workload}.{container}.resources")
    assert set(written(helm([recommendation()], own))["shop/deployment-web.values.yaml"]["charts"]["web"]) == {"app"}
    for bad in ("a..b", "{pod}.resources", "."):
        with pytest.raises(UsageError, match="not a path of Helm values"):
            list(helm([recommendation()], PatchSettings(helm_path=bad)))
    with pytest.raises(UsageError, match="share the Helm path"):
        list(helm([recommendation(), recommendation(container="b")], PatchSettings(helm_path_of_several="resources")))


def test_an_applied_object_keeps_what_is_withheld_and_what_was_not_chosen() -> None:
    # leaving a field out would make the API server remove it where an earlier apply of ours had set it
    calm = recommendation(container="calm", values=KEPT)
    other = recommendation(container="other")
    (file,) = server_side_apply([recommendation(), calm, other], {recommendation().container})
    assert isinstance(file.document, Mapping)
    resources = {c["name"]: c["resources"] for c in file.document["spec"]["template"]["spec"]["containers"]}
    assert resources == {
        "app": {"requests": {"cpu": "250m", "memory": "1150Mi"}, "limits": {"memory": "512Mi"}},
        "calm": {"requests": {"cpu": "70m"}},
        "other": {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m", "memory": "512Mi"}},
    }
    assert file.document["metadata"] == {"name": "web", "namespace": "shop"}
    assert any("app: limits.cpu" in line for line in file.comments)
    assert list(server_side_apply([calm])) == []


@pytest.mark.parametrize("name", ["../../etc", "a\nb", "a/b", "-o", ".."])
def test_a_name_that_is_no_name_never_becomes_a_path(name: str) -> None:
    good, bad = recommendation(), (recommendation(name), recommendation(container=name))
    for make in (kustomize, server_side_apply, lambda r: helm(r, PatchSettings())):
        assert list(make(bad)) == []
        assert list(make([*bad, good])) == list(make([good]))  # the others go on


@pytest.mark.parametrize("text", ["1e3", "0x1f", "y", "no", "null", "12", "1.5", "true", "0o17", "12-30"])
def test_names_that_yaml_could_take_for_numbers_are_quoted(text: str) -> None:
    line = as_yaml(File("x", {"name": text})).strip()
    assert line == f'name: "{text}"'
    assert yaml.safe_load(line) == {"name": text}
