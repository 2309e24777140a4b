"""Commits in real Git repositories: the changed values alone, in the file that decides them, or a refusal in words."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from cotenant.base.cluster import ContainerRole
from cotenant.base.errors import UsageError
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.changes.access.git_repository import GitRefusal, GitRepository
from cotenant.changes.decide.gitops.commit import decide_commit
from cotenant.changes.decide.gitops.yaml_edit import apply_edits, below, edits_of, read_documents
from cotenant.changes.decide.review import Review
from cotenant.changes.model.service import BundleCommit, CommitBundle
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.settings import RecommenderSettings
from tests.cluster.binaries import find

CPU, MEMORY = Resource.CPU, Resource.MEMORY
CUT = Value(CPU, Field.REQUEST, 500, 300, Action.SET, Reason.OK)
"""requests.cpu 500m -> 300m."""
UNSET = Value(CPU, Field.LIMIT, 1000, None, Action.UNSET, Reason.OK)
RAISED = Value(MEMORY, Field.REQUEST, None, 640 * MIB, Action.SET, Reason.OK)


def proposal(
    name: str = "checkout", *values: Value, container: str = "app", namespace: str = "pay", kind: str = "Deployment"
) -> Recommendation:
    ref = ContainerRef(WorkloadRef(namespace, kind, name), container)
    return Recommendation(ref, "cotenant", 1, values or (CUT,), 21 * 86_400, "d", 0, role=ContainerRole.MAIN)


def deployment(name: str, *containers: str, meta: str = "", head: str = "") -> str:
    """A manifest whose containers have the text after their name."""
    listed = "".join(f"        - name: {text}" for text in containers)
    return (
        f"{head}apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n{meta}spec:\n"
        f"  template:\n    spec:\n      containers:\n{listed}"
    )


HALF = "app\n          resources:\n            requests:\n              cpu: 500m\n"
NAMESPACE = "  namespace: pay\n"
PATCHED = "app\n          resources:\n            requests:\n              cpu: 500m  # peak of May\n"


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def repository(folder: Path, files: Mapping[str, str]) -> GitRepository:
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "Jane")
    git(folder, "config", "user.email", "jane@example.org")
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text.encode())
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "As it was")
    return GitRepository(folder)


def make_commit(repository: GitRepository, *recommendations: Recommendation, branch: str = "smaller") -> BundleCommit:
    """What is planned for these, and the branch with it where anything is."""
    tree = repository.read_tree()
    repository.require_new_branch(branch)
    by_workload: dict[WorkloadRef, list[Recommendation]] = {}
    for recommendation in recommendations:
        by_workload.setdefault(recommendation.container.workload, []).append(recommendation)
    reviewed = [Review(ref, "", recommendations=tuple(own)) for ref, own in by_workload.items()]
    bundle = CommitBundle(branch, str(repository.folder), write=True)
    plan, texts = decide_commit(bundle, tree.commit, tree.files, reviewed, RecommenderSettings())
    if texts:
        repository.make_branch(branch, repository.commit(tree, texts, plan.message))
    return plan


def changed_lines(repository: GitRepository, branch: str = "smaller") -> list[str]:
    """Lines that go and come, as Git itself tells them."""
    text = git(repository.folder, "diff", "-U0", f"main..{branch}")
    return [line for line in text.splitlines() if line[:1] in ("+", "-") and line[:3] not in ("+++", "---")]


def refusal_of(plan: BundleCommit) -> str:
    """Why the one workload was left out, and what to do."""
    assert not plan.files and not plan.diff
    (out,) = plan.refused
    return f"{out.workload}: {out.why}. {out.fix}"


# --- plain YAML ---
def test_a_commit_has_the_changed_value_alone_and_leaves_comments_order_and_quotes(tmp_path: Path) -> None:
    text = deployment(
        "checkout",
        "proxy\n          image: proxy:1\n",
        "app  # the shop's\n          resources:  # see ADR 7\n            limits: {memory: 1Gi,  cpu: '1'}\n"
        "            requests: {\"cpu\": '500m'}\n",
        meta=NAMESPACE,
        head="# who to ask: team pay\n",
    )
    git_repository = repository(tmp_path, {"apps/checkout.yaml": text, "README.md": "no manifest\n"})
    plan = make_commit(git_repository, proposal())
    assert changed_lines(git_repository) == [
        "-            requests: {\"cpu\": '500m'}",
        "+            requests: {\"cpu\": '300m'}",
    ]
    assert git(tmp_path, "log", "-1", "--format=%an <%ae> %P", "smaller").split() == [
        "Jane", "<jane@example.org>", git(tmp_path, "rev-parse", "main").strip()
    ]  # fmt: skip
    message = git(tmp_path, "log", "-1", "--format=%B", "smaller")
    assert message.startswith("Set requests and limits of 1 workload by usage\n\n")
    assert "**pay/Deployment/checkout**" in message and "| 0.5 cores | 0.3 cores |" in message
    assert "Changed: `apps/checkout.yaml`." in message
    assert plan.diff.splitlines()[:2] == ["--- a/apps/checkout.yaml", "+++ b/apps/checkout.yaml"]


def test_the_diff_that_a_dry_run_shows_is_one_that_git_applies_to_the_same_end(tmp_path: Path) -> None:
    text = deployment("checkout", HALF.rstrip("\n"), meta=NAMESPACE)  # no line end at the end of the file
    git_repository = repository(tmp_path, {"a.yaml": text})
    plan = make_commit(git_repository, proposal("checkout", CUT, RAISED))
    subprocess.run(["git", "-C", str(tmp_path), "apply", "-"], input=plan.diff, text=True, check=True)
    assert git(tmp_path, "diff", "smaller") == ""


def test_the_checkout_the_index_and_uncommitted_changes_stay_as_they_are(tmp_path: Path) -> None:
    git_repository = repository(tmp_path, {"a.yaml": deployment("checkout", HALF, meta=NAMESPACE)})
    (tmp_path / "a.yaml").write_text("# half written\n")
    (tmp_path / "b.yaml").write_text("# staged\n")
    git(tmp_path, "add", "b.yaml")
    hook = tmp_path / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    before = git(tmp_path, "status", "--porcelain=v2", "--branch"), git(tmp_path, "rev-parse", "HEAD")
    assert make_commit(git_repository, proposal()).files == ("a.yaml",)
    assert (git(tmp_path, "status", "--porcelain=v2", "--branch"), git(tmp_path, "rev-parse", "HEAD")) == before
    assert (tmp_path / "a.yaml").read_text() == "# half written\n" and not (tmp_path / "ran").exists()
    assert git(tmp_path, "show", "--stat", "--format=", "smaller").split()[0] == "a.yaml"


def test_a_branch_that_is_there_or_has_no_name_of_one_is_refused(tmp_path: Path) -> None:
    git_repository = repository(tmp_path, {"a.yaml": deployment("checkout", HALF, meta=NAMESPACE)})
    with pytest.raises(UsageError, match="the branch main exists already"):
        make_commit(git_repository, proposal(), branch="main")
    for bad in ("", "-x", "a b", "a..b", "a\0b", "x.lock"):
        with pytest.raises(UsageError, match="is not a valid branch name"):
            git_repository.require_new_branch(bad)
    make_commit(git_repository, proposal())
    tip = git(tmp_path, "rev-parse", "smaller").strip()
    with pytest.raises(GitRefusal, match="update-ref"):  # somebody was faster
        git_repository.make_branch("smaller", tip)
    with pytest.raises(UsageError, match="not a git repository"):
        GitRepository(Path(os.devnull).parent).read_tree()


def test_what_cannot_be_placed_is_named_and_the_rest_is_committed(tmp_path: Path) -> None:
    git_repository = repository(tmp_path, {"a.yaml": deployment("checkout", HALF, meta=NAMESPACE)})
    plan = make_commit(git_repository, proposal(), proposal("nowhere"))
    assert plan.workloads == (WorkloadRef("pay", "Deployment", "checkout"),)
    assert [str(out.workload) for out in plan.refused] == ["pay/Deployment/nowhere"]
    assert "1 workload left out" in plan.sentence and "Left out: no manifest of the workload was found" in plan.message
    assert ".cotenant.yaml" in plan.refused[0].fix


def test_a_workload_in_two_files_is_refused_with_both_and_a_mapping_says_which(tmp_path: Path) -> None:
    text = deployment("checkout", HALF, meta=NAMESPACE)
    git_repository = repository(tmp_path, {"eu/a.yaml": text, "us/a.yaml": text})
    why = refusal_of(make_commit(git_repository, proposal()))
    assert "the workload is in 2 places: eu/a.yaml and us/a.yaml" in why and "`file: PATH`" in why
    (tmp_path / ".cotenant.yaml").write_text('workloads:\n- workload: "pay/*/*"\n  file: us/a.yaml\n')
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "Say where")
    assert make_commit(git_repository, proposal()).files == ("us/a.yaml",)


def test_one_document_of_a_file_with_several_and_containers_in_another_order(tmp_path: Path) -> None:
    api = deployment("api", "b\n          image: x\n", HALF, meta=NAMESPACE)
    web = deployment("web", HALF, "b\n          resources:\n            requests: {cpu: 500m}\n", meta=NAMESPACE)
    git_repository = repository(tmp_path, {"all.yaml": f"---\n{api}---\n# the second\n{web}...\n"})
    plan = make_commit(git_repository, proposal("web", container="b"), proposal("web"), proposal("api"))
    assert plan.refused == ()
    # api/app, web/app, web/b, in the order of the file
    assert changed_lines(git_repository) == [
        "-              cpu: 500m", "+              cpu: 300m",
        "-              cpu: 500m", "+              cpu: 300m",
        "-            requests: {cpu: 500m}", "+            requests: {cpu: 300m}",
    ]  # fmt: skip


def test_a_missing_block_is_written_with_the_indentation_and_the_line_ends_of_the_file(tmp_path: Path) -> None:
    text = (
        "kind: Deployment\nmetadata:\n    name: checkout\n    namespace: pay\nspec:\n    template:\n        spec:\n"
        "            containers:\n            -   name: app\n                args:\n                - a # last\n"
        "            # behind\n"
    ).replace("\n", "\r\n")
    git_repository = repository(tmp_path, {"a.yaml": text})
    assert make_commit(git_repository, proposal("checkout", RAISED)).files == ("a.yaml",)
    new = git(tmp_path, "diff", "-U0", "main..smaller").split("\n", 5)[5]
    # git() reads with universal line ends; the bytes are looked at below
    assert (
        new == "+                resources:\n+                    requests:\n+                        memory: 640Mi\n"
    )
    blob = subprocess.run(
        ["git", "-C", str(tmp_path), "show", "smaller:a.yaml"], capture_output=True, check=True
    ).stdout
    # 12 lines were there, 3 came
    assert blob.count(b"\r\n") == blob.count(b"\n") == 15 and blob.endswith(b"            # behind\r\n")


def test_an_unset_limit_goes_with_its_line_and_an_empty_block_with_it(tmp_path: Path) -> None:
    text = HALF.replace("            requests", "            limits:\n              cpu: 1\n            requests")
    git_repository = repository(tmp_path, {"a.yaml": deployment("checkout", text, meta=NAMESPACE)})
    make_commit(git_repository, proposal("checkout", UNSET))
    assert changed_lines(git_repository) == ["-            limits:", "-              cpu: 1"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (HALF.replace("500m", "2"), r"a.yaml has requests cpu 2 for app, the cluster has 500m"),
        (HALF.replace("app\n", "api\n"), "a.yaml has no container app"),
        (HALF + "        - name: " + HALF, r"a.yaml:\d+ is a second container app"),
        (HALF + "              cpu: 700m\n", r"a.yaml:\d+: the key cpu is there twice"),
        ("app\n          resources: &r\n            requests: {cpu: 500m}\n        - {name: b, resources: *r}\n",
         r"a.yaml:\d+ is used in several places by an alias"),
        ("b\n          resources: &r\n            requests: {cpu: 500m}\n        - name: app\n          resources:\n"
         "            <<: *r\n", "takes requests from elsewhere by a merge key"),
        (HALF.replace("500m", "{{ .Values.cpu }}"), "is not a plain value|no manifest of the workload was found"),
        (HALF.replace("500m", "|-\n                500m"), "is not a plain value"),
    ],
)  # fmt: skip
def test_a_value_that_is_not_this_workloads_alone_is_refused(tmp_path: Path, text: str, why: str) -> None:
    git_repository = repository(tmp_path, {"a.yaml": deployment("checkout", text, meta=NAMESPACE)})
    plan = make_commit(git_repository, proposal())
    with pytest.raises(UsageError, match=why):
        raise UsageError(refusal_of(plan))


def test_other_anchors_stay_and_one_that_nobody_uses_is_no_obstacle(tmp_path: Path) -> None:
    text = HALF.replace("500m", "&cpu 500m").replace("app\n", "app\n          env: &env [{name: A, value: b}]\n")
    git_repository = repository(
        tmp_path, {"a.yaml": deployment("checkout", text + "        - {name: b, env: *env}\n", meta=NAMESPACE)}
    )
    assert make_commit(git_repository, proposal()).refused == ()
    assert changed_lines(git_repository) == ["-              cpu: &cpu 500m", "+              cpu: &cpu 300m"]


def test_an_object_whose_name_is_generated_is_refused(tmp_path: Path) -> None:
    text = deployment("x", HALF).replace("  name: x", "  generateName: checkout-")
    git_repository = repository(tmp_path, {"made.yaml": text})
    assert "made.yaml has a matching generateName" in refusal_of(make_commit(git_repository, proposal("checkout-x7k2")))


def test_a_manifest_of_another_namespace_is_not_taken_for_it(tmp_path: Path) -> None:
    git_repository = repository(tmp_path, {"a.yaml": deployment("checkout", HALF, meta="  namespace: shop\n")})
    assert "a.yaml has this workload in namespace shop" in refusal_of(make_commit(git_repository, proposal()))


def test_two_workloads_that_one_manifest_makes_are_both_refused(tmp_path: Path) -> None:
    git_repository = repository(
        tmp_path, {"a.yaml": deployment("checkout", HALF)}
    )  # its namespace comes from who applies it
    plan = make_commit(git_repository, proposal(), proposal(namespace="shop"))
    assert len(plan.refused) == 2 and not plan.files
    assert "a.yaml has one value for this workload and shop/Deployment/checkout" in plan.refused[0].why
    assert make_commit(git_repository, proposal()).files == ("a.yaml",)


def test_a_workload_whose_autoscalers_target_moves_with_the_request_is_refused(tmp_path: Path) -> None:
    inputs: dict[str, float | int | str] = {
        "hpa": "checkout",
        "hpa_target_now_percent": 50,
        "hpa_target_percent": 80,
        "hpa_trigger_millicores": 250,
    }
    value = Value(CPU, Field.REQUEST, 500, 300, Action.SET, Reason.OK, inputs=inputs)
    git_repository = repository(tmp_path, {"a.yaml": deployment("checkout", HALF, meta=NAMESPACE)})
    why = refusal_of(make_commit(git_repository, proposal("checkout", value)))
    assert "its cpu target moves from 50 % to 80 %" in why and "a commit changes no autoscaler" in why
    assert "cotenant recs apply" in why


@pytest.mark.parametrize(
    ("container", "value"),
    [
        ("app\n          resources: {requests: {cpu: 500m}}\n", RAISED),  # a key more
        ("app\n          resources: {requests: {memory: 1Gi}, limits: {cpu: 1}}\n", UNSET),  # a key less
    ],
)
def test_a_key_that_comes_or_goes_in_a_mapping_in_braces_is_refused(
    tmp_path: Path, container: str, value: Value
) -> None:
    git_repository = repository(tmp_path, {"a.yaml": deployment("checkout", container, meta=NAMESPACE)})
    why = refusal_of(make_commit(git_repository, proposal("checkout", value)))
    assert "is a mapping in braces" in why and "Write the mapping with one key per line first." in why


# --- Kustomize ---
OVERLAYS = {
    "base/deployment.yaml": deployment("checkout", HALF),
    "base/kustomization.yaml": "resources: [deployment.yaml]\n",
    "overlays/prod/kustomization.yaml": (
        "namespace: pay\nresources:\n- ../../base\npatches:\n- path: size.yaml\n  target: {kind: Deployment}\n"
    ),
    "overlays/prod/size.yaml": deployment("checkout", PATCHED),
    "overlays/staging/kustomization.yaml": "namespace: pay-staging\nresources: [../../base]\nnamePrefix: st-\n",
}


def test_the_overlay_that_gives_the_namespace_gets_the_value_and_its_base_stays(tmp_path: Path) -> None:
    git_repository = repository(tmp_path, OVERLAYS)
    plan = make_commit(git_repository, proposal())
    assert plan.files == ("overlays/prod/size.yaml",)
    assert changed_lines(git_repository) == [
        "-              cpu: 500m  # peak of May",
        "+              cpu: 300m  # peak of May",
    ]


def test_a_value_that_only_the_shared_base_sets_is_refused_with_who_else_takes_it(tmp_path: Path) -> None:
    git_repository = repository(tmp_path, OVERLAYS)
    why = refusal_of(make_commit(git_repository, proposal("st-checkout", namespace="pay-staging")))
    assert "base/deployment.yaml also makes pay/checkout of overlays/prod/kustomization.yaml" in why
    assert "Give overlays/staging a strategic-merge patch" in why


def test_a_limit_that_the_base_sets_is_taken_away_by_a_null_in_the_overlays_patch(tmp_path: Path) -> None:
    limited = HALF + "            limits: {cpu: 1}\n"
    git_repository = repository(tmp_path, {**OVERLAYS, "base/deployment.yaml": deployment("checkout", limited)})
    make_commit(git_repository, proposal("checkout", UNSET))
    assert changed_lines(git_repository) == ["+            limits:", "+              cpu: null"]


def test_a_base_of_one_overlay_is_edited_itself(tmp_path: Path) -> None:
    base_files = {path: text for path, text in OVERLAYS.items() if "staging" not in path and "size" not in path}
    git_repository = repository(
        tmp_path, {**base_files, "overlays/prod/kustomization.yaml": "namespace: pay\nresources: [../../base]\n"}
    )
    assert make_commit(git_repository, proposal()).files == ("base/deployment.yaml",)


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ("- target: {kind: Deployment, name: check.*}\n  patch: |-\n    - op: replace\n"
         "      path: /spec/template/spec/containers/0/resources/requests/cpu\n      value: 500m\n",
         r"changes the values by a JSON patch \(RFC 6902\)"),
        ("- patch: |\n    kind: Deployment\n    metadata: {name: checkout}\n    spec:\n      template:\n        spec:\n"
         "          containers:\n          - name: app\n            resources: {requests: {cpu: 500m}}\n",
         "overlays/prod/kustomization.yaml sets the resources in an inline patch"),
        ("- path: size.yaml\n  target: {labelSelector: app=checkout}\n", "selects by labelSelector"),
    ],
)  # fmt: skip
def test_patches_that_cannot_be_edited_are_refused_in_words(tmp_path: Path, patch: str, why: str) -> None:
    kustomization = f"namespace: pay\nresources: [../../base]\npatches:\n{patch}"
    git_repository = repository(tmp_path, {**OVERLAYS, "overlays/prod/kustomization.yaml": kustomization})
    with pytest.raises(UsageError, match=why):
        raise UsageError(refusal_of(make_commit(git_repository, proposal())))


def test_a_json_patch_of_something_else_and_a_component_are_no_obstacle(tmp_path: Path) -> None:
    kustomization = (
        "namespace: pay\nresources: [../../base]\ncomponents: [../../big]\npatchesJson6902:\n"
        "- target: {kind: Deployment, name: checkout}\n  patch: '[{op: replace, path: /spec/replicas, value: 3}]'\n"
    )
    files = {
        **OVERLAYS,
        "overlays/prod/kustomization.yaml": kustomization,
        "big/kustomization.yaml": "kind: Component\npatchesStrategicMerge: [size.yaml]\n",
        "big/size.yaml": deployment("checkout", PATCHED),
    }
    del files["overlays/prod/size.yaml"]
    git_repository = repository(tmp_path, files)
    assert make_commit(git_repository, proposal()).files == ("big/size.yaml",)


def test_one_overlay_of_two_with_the_same_namespace_is_chosen_by_the_mapping(tmp_path: Path) -> None:
    other = {path.replace("prod", "us"): text for path, text in OVERLAYS.items() if "prod" in path}
    git_repository = repository(tmp_path, {**OVERLAYS, **other})
    assert "overlays/prod/kustomization.yaml and overlays/us/kustomization.yaml" in refusal_of(
        make_commit(git_repository, proposal())
    )
    (tmp_path / ".cotenant.yaml").write_text("workloads: [{workload: pay/*/*, file: overlays/us/}]\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "Say where")
    assert make_commit(git_repository, proposal()).files == ("overlays/us/size.yaml",)


def resources_given_out(folder: Path, *overlays: str) -> dict[tuple[str, str], dict[str, dict[str, str]]]:
    """Namespace and name of each object that kustomize makes -> the resources of its container."""
    resources = {}
    for overlay in overlays:
        command = [str(find("kubectl")), "kustomize", str(folder / overlay)]
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        for document in yaml.safe_load_all(text):
            sides = document["spec"]["template"]["spec"]["containers"][0].get("resources") or {}
            amounts = {side: {k: str(v) for k, v in inner.items() if v is not None} for side, inner in sides.items()}
            resources[document["metadata"]["namespace"], document["metadata"]["name"]] = {
                s: a for s, a in amounts.items() if a
            }
    return resources


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize(
    ("patch", "part", "base", "values", "file"),
    [
        (HALF, False, True, (CUT, UNSET), "prod/p.yaml"),  # the limit is the base's
        ("app\n          resources: {limits: {cpu: 1}}\n", False, True, (UNSET,), "prod/p.yaml"),
        ("app\n          resources: {limits: {cpu: 1}}\n", False, False, (UNSET,), "prod/p.yaml"),
        ("app\n          env: [{name: A, value: b}]\n", False, True, (CUT,), "prod/p.yaml"),
        ("app\n          env: [{name: A, value: b}]\n", False, False, (RAISED,), "prod/p.yaml"),
        ("", True, True, (CUT, RAISED), "part/p.yaml"),  # a component that one overlay has
    ],
)
def test_kustomize_gives_out_the_new_values_and_everything_else_as_before(
    tmp_path: Path, patch: str, part: bool, base: bool, values: tuple[Value, ...], file: str
) -> None:
    sized = "app\n          image: x\n" + (
        "          resources: {limits: {cpu: 1}, requests: {cpu: 0.5}}\n" if base else ""
    )
    web = deployment("web", sized).replace("spec:\n", "spec:\n  selector: {matchLabels: {a: b}}\n", 1)
    top = "resources: [../base]\nnamePrefix: a-\n"
    more = "components: [../part]\n" if part else "patches: [{path: p.yaml}]\n"
    git_repository = repository(
        tmp_path,
        {
            "base/kustomization.yaml": "resources: [web.yaml, other.yaml]\n",
            "base/web.yaml": web,
            "base/other.yaml": web.replace("name: web", "name: other"),
            "part/kustomization.yaml": "kind: Component\npatches: [{path: p.yaml}]\n",
            "part/p.yaml": deployment("web", HALF),
            "prod/kustomization.yaml": f"namespace: prod\n{top}{more}",
            "prod/p.yaml": deployment("web", patch) if patch else "",
            "test/kustomization.yaml": f"namespace: test\n{top}patches: [{{path: p.yaml}}]\n",
            "test/p.yaml": deployment("web", HALF),
        },
    )
    before = resources_given_out(tmp_path, "prod", "test")
    assert make_commit(git_repository, proposal("a-web", *values, namespace="prod")).files == (file,)
    git(tmp_path, "checkout", "-q", "smaller")
    after, expected = resources_given_out(tmp_path, "prod", "test"), before.pop(("prod", "a-web"))
    for value in values:
        side = "requests" if value.field is Field.REQUEST else "limits"
        expected.setdefault(side, {}).pop(value.resource.value, None)
        if value.amount is not None:
            expected[side][value.resource.value] = "300m" if value.resource is CPU else "640Mi"
    assert after.pop(("prod", "a-web")) == {side: amounts for side, amounts in expected.items() if amounts}
    assert after == before and len(after) == 3


# --- Helm ---
VALUES = """\
# one chart, several components
global: {tag: v7}
components:
  checkout:
    replicas: 3

    resources:
      # asked for in May
      requests: {cpu: "500m"}
      limits:
        cpu: 1
  basket:
    replicas: 2
"""
CHART = {
    "shop/Chart.yaml": "name: shop\n",
    "shop/templates/all.yaml": "{{- range $k, $v := .Values.components }}\nkind: Deployment\n{{- end }}\n",
    "shop/values.yaml": VALUES,
    "prod.yaml": VALUES,
}


def test_values_of_a_chart_of_another_shape_are_found_by_the_mapping(tmp_path: Path) -> None:
    mapping = "workloads:\n- workload: pay/Deployment/*\n  file: prod.yaml\n  path: components.{workload}.resources\n"
    git_repository = repository(tmp_path, {**CHART, ".cotenant.yaml": mapping})
    plan = make_commit(git_repository, proposal("checkout", CUT, UNSET), proposal("basket", RAISED))
    assert plan.refused == () and plan.files == ("prod.yaml",)
    # A null takes a chart's default away; "basket" had no resources.
    assert changed_lines(git_repository) == [
        '-      requests: {cpu: "500m"}', '+      requests: {cpu: "300m"}',
        "-        cpu: 1", "+        cpu: null",
        "+    resources:", "+      requests:", "+        memory: 640Mi",
    ]  # fmt: skip


def test_a_chart_that_is_called_as_the_workload_is_found_by_the_path_of_the_settings(tmp_path: Path) -> None:
    files = {
        "charts/checkout/Chart.yaml": "name: checkout\n",
        "charts/checkout/values.yaml": "resources: {requests: {cpu: 0.5}}\n",
    }
    git_repository = repository(tmp_path, files)
    assert make_commit(git_repository, proposal()).files == ("charts/checkout/values.yaml",)
    assert changed_lines(git_repository)[1] == "+resources: {requests: {cpu: 300m}}"
    second = repository(tmp_path, {**files, "charts/checkout/values-prod.yaml": "resources: {requests: {cpu: 0.5}}\n"})
    why = refusal_of(make_commit(second, proposal(), branch="other"))
    assert (
        "values-prod.yaml and charts/checkout/values.yaml all have the keys resources" in why
        and "`path: resources`" in why
    )


@pytest.mark.parametrize(
    ("mapping", "why"),
    [
        ("- {workload: pay/*/*, file: none.yaml, path: a}", "none.yaml is not a YAML file of the repository"),
        ("- {workload: pay/*/*, file: prod.yaml, path: a.b}", "prod.yaml has 0 documents with a.b"),
        ("- {workload: pay/*/*, file: prod.yaml}", "prod.yaml, named in .cotenant.yaml, lacks pay/"),
    ],
)  # fmt: skip
def test_a_mapping_that_leads_nowhere_is_said(tmp_path: Path, mapping: str, why: str) -> None:
    git_repository = repository(tmp_path, {**CHART, ".cotenant.yaml": f"workloads:\n{mapping}\n"})
    assert why in refusal_of(make_commit(git_repository, proposal()))


def test_a_mapping_file_that_is_no_yaml_stops_the_whole_commit(tmp_path: Path) -> None:
    git_repository = repository(tmp_path, {**CHART, ".cotenant.yaml": "workloads: [\n"})
    with pytest.raises(UsageError, match=r"\.cotenant\.yaml is not valid YAML"):
        make_commit(git_repository, proposal())


def test_an_entry_without_a_file_stops_the_whole_commit(tmp_path: Path) -> None:
    git_repository = repository(tmp_path, {**CHART, ".cotenant.yaml": "workloads:\n- workload: checkout\n"})
    with pytest.raises(UsageError, match=r"\.cotenant\.yaml:2 has no workload or no file"):
        make_commit(git_repository, proposal())


# --- bytes outside the changed values ---
QUOTES = st.sampled_from(["", "'", '"'])
SPACE = st.sampled_from(["", " # why", "   # 500m"])
SIDES = st.dictionaries(
    st.sampled_from(["requests", "limits"]),
    st.dictionaries(st.sampled_from(["cpu", "memory"]), st.tuples(QUOTES, SPACE), min_size=1),
)


def _keeps_its_keys(present: Mapping[str, object], changed_amounts: Mapping[str, str | None]) -> bool:
    """Return whether a mapping is left with the keys that it has, or with none, so that its own line goes."""
    remaining = {name for name in present if changed_amounts.get(name, "stays") is not None}
    comes = {name for name, amount in changed_amounts.items() if amount is not None} - set(present)
    return not comes and remaining in (set(present), set())


@given(
    sides=SIDES,
    flow=st.booleans(),
    indent=st.integers(1, 5),
    end=st.sampled_from(["\n", "\r\n"]),
    bom=st.booleans(),
    tail=st.sampled_from(["", "  z: 1 # ü", "# end"]),
    changed_sides=st.dictionaries(
        st.sampled_from(["requests", "limits"]),
        st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from([None, "300m", "7"]), min_size=1),
        min_size=1,
    ),
)
@example(
    sides={"limits": {"cpu": ("", "")}},
    flow=False,
    indent=2,
    end="\n",
    bom=True,
    tail="",
    changed_sides={"limits": {"cpu": None}},
)
def test_every_byte_outside_the_changed_values_stays(
    sides: dict[str, dict[str, tuple[str, str]]],
    flow: bool,
    indent: int,
    end: str,
    bom: bool,
    tail: str,
    changed_sides: dict[str, dict[str, str | None]],
) -> None:
    pad, lines = " " * indent, ["# ünder", "a:", "  app:"]
    base = f"  {pad}"
    if sides:
        lines.append(f"{base}resources: # r")
    for side, amounts in sides.items():
        if flow:
            inner = ", ".join(f"{name}: {quote}500m{quote}" for name, (quote, _) in amounts.items())
            lines.append(f"{base}{pad}{side}: {{ {inner} }}  # {side}")
        else:
            lines.append(f"{base}{pad}{side}:")
            lines += [f"{base}{pad * 2}{name}: {q}500m{q}{space}" for name, (q, space) in amounts.items()]
    lines += [f"{base}name: app", *([tail] if tail else [])]
    text = ("\ufeff" if bom else "") + end.join(lines) + end
    [document] = read_documents("a.yaml", text)
    if flow and any(
        side in sides and not _keeps_its_keys(sides[side], side_amounts) for side, side_amounts in changed_sides.items()
    ):
        with pytest.raises(UsageError, match="is a mapping in braces"):
            edits_of(document, below(document, document.root, ("a", "app")), {"resources": changed_sides})
        return
    new = apply_edits(
        text, edits_of(document, below(document, document.root, ("a", "app")), {"resources": changed_sides})
    )
    expected = {side: dict.fromkeys(amounts, "500m") for side, amounts in sides.items()}
    for side, side_amounts in changed_sides.items():
        own = expected.setdefault(side, {})
        for name, amount in side_amounts.items():
            if amount is None:
                own.pop(name, None)
            else:
                own[name] = amount
    loaded = yaml.load(new.lstrip("\ufeff"), Loader=yaml.BaseLoader)["a"]["app"]
    assert {s: a for s, a in (loaded.get("resources") or {}).items() if a} == {s: a for s, a in expected.items() if a}
    # A line of the file stays, or is one of a changed, removed or emptied key.
    touched = {*changed_sides, *(name for amounts in changed_sides.values() for name in amounts), "resources"}
    new_lines = new.split(end)
    for line in text.split(end):
        key = line.strip().partition(":")[0]
        assert line in new_lines or key in touched, line
    assert new.count("\n") == new.count(end) and new.startswith("\ufeff") == bom
    # Values back again: of a value that was there and still is, every byte is as it was.
    if all(name in sides.get(s, {}) and amount for s, a in changed_sides.items() for name, amount in a.items()):
        [again] = read_documents("a.yaml", new)
        before = {side: dict.fromkeys(amounts, "500m") for side, amounts in changed_sides.items()}
        assert apply_edits(new, edits_of(again, below(again, again.root, ("a", "app")), {"resources": before})) == text
