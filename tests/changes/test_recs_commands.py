"""`cotenant recs` as people use it, on a server with workloads and stored results about them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.ledger.ledger import Ledger
from cotenant.changes.change_ledger import ANCHOR
from cotenant.changes.decide.gitops.bundle import PULL_REQUEST
from cotenant.cli.main import root
from tests.support import acting
from tests.support.api_server import ApiServer

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> acting.Prepared:
    return acting.prepared(tmp_path_factory.mktemp("store"))


@pytest.fixture
def cluster(tmp_path: Path, prepared: acting.Prepared) -> Iterator[acting.Scene]:
    with acting.embedded(tmp_path, prepared) as embedded:
        yield embedded


def run(cluster: acting.Scene, *arguments: str) -> Result:
    return command(cluster, "recs", *arguments)


def command(cluster: acting.Scene, *arguments: str) -> Result:
    rails = ["most_cpu_cut=1", "most_memory_cut=1", "most_requests_share=1", "least_change=0"]
    sets = {
        "actions.ledger": cluster.settings.actions.ledger,
        "actions.soak_minutes": "0",
        "manager.namespace": "kube-system",
        "kube.kubeconfig": cluster.settings.kube.kubeconfig,
        "store.url": cluster.store.url,
    }
    flags = [f"{key}={value}" for key, value in sets.items()] + [f"actions.guardrails.{rail}" for rail in rails]
    return CliRunner().invoke(root, [*(word for flag in flags for word in ("--set", flag)), *arguments])


def names(result: Result) -> set[str]:
    assert result.exit_code == 0, result.output
    return {row["workload"] for row in json.loads(result.stdout)}


def events(cluster: acting.Scene) -> list[str]:
    ledger = Ledger(Path(cluster.settings.actions.ledger), reading=True)
    texts = [entry.event for entry in ledger.entries()]
    ledger.close()
    return texts


def test_a_batch_that_does_not_exist_is_not_verified_as_harmless(cluster: acting.Scene) -> None:
    refused = run(cluster, "verify", "77ab10cd")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "error: no change or batch id begins with '77ab10cd'" in refused.stderr
    assert run(cluster, "verify").exit_code == 0  # of nothing at all nothing is due


def test_a_batch_that_does_not_exist_is_not_taken_for_rolled_back(cluster: acting.Scene) -> None:
    refused = run(cluster, "rollback", "--batch", "77ab10cd")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "error: no change has the batch '77ab10cd'" in refused.stderr


def test_what_nobody_wants_to_see_is_hidden_until_it_is_recalled(cluster: acting.Scene) -> None:
    ref, other = cluster.workloads[:2]
    assert {ref.name, other.name} <= names(run(cluster, "list", "-o", "json"))
    assert "reason" in run(cluster, "dismiss", str(ref), "--reason", " ").output
    dismissal = run(cluster, "dismiss", str(ref), "--reason", "a load test")
    assert (
        dismissal.exit_code == 0
        and f"hidden: {ref} for good by" in dismissal.output
        and "a load test" in dismissal.output
    )
    assert run(cluster, "snooze", str(other), "--days", "3", "--reason", "after the sale").exit_code == 0
    left_names = names(run(cluster, "list", "-o", "json"))
    assert ref.name not in left_names and other.name not in left_names
    assert ref.name in names(run(cluster, "list", "--all", "-o", "json"))
    assert "a load test" in run(cluster, "explain", str(ref)).output
    back = run(cluster, "recall", str(ref), str(other))
    assert back.output.count("shown again") == 2 and ref.name in names(run(cluster, "list", "-o", "json"))
    assert events(cluster) == ["postponed", "postponed", "recalled", "recalled"]


def test_a_canary_waits_and_the_watcher_does_the_rest(cluster: acting.Scene) -> None:
    first, rest = cluster.acceptable()[:2]
    before = cluster.resources(rest)
    tried = run(cluster, "apply", str(first), str(rest), "--canary", "0.5")
    assert tried.exit_code == 0 and "the API server would accept the change" in tried.output and events(cluster) == []
    rows = run(cluster, "apply", str(first), str(rest), "-o", "json")
    # of a dry run there are no rows; what a person reads stands beside them
    assert json.loads(rows.stdout) == [] and "pass  history" in rows.stderr and "dry run: 2 workloads" in rows.stderr
    done = run(cluster, "apply", str(first), str(rest), "--canary", "0.5", "--dry-run", "none", "--yes", "-o", "json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert sorted(row["state"] for row in rows) == ["applied", "waiting"]
    assert "cotenant recs watch" in done.output and cluster.resources(rest) == before
    acting.settle_rollouts(cluster)
    # They soak for no time here: one look does what waited, the next one, after its rollout, judges it.
    for states in ({first.name: "verified", rest.name: "applied"}, {rest.name: "verified"}):
        moved = json.loads(run(cluster, "watch", "--once", "-o", "json").stdout)
        assert {row["workload"]: row["state"] for row in moved} == states
        acting.settle_rollouts(cluster)
    assert cluster.resources(rest) != before
    # Changed a moment ago: the list says that the next cut waits for the cool-down.
    assert f"waiting: {rest} was changed lately" in " ".join(run(cluster, "list").stderr.split())


@pytest.mark.parametrize("form", ["kustomize", "helm", "ssa", "kubectl"])
def test_a_bundle_holds_files_and_the_numbers_and_touches_nothing(
    cluster: acting.Scene, tmp_path: Path, form: str
) -> None:
    ref = cluster.workloads[0]
    before, folder = cluster.live(ref), tmp_path / "out"
    done = run(cluster, "bundle", str(ref), "-o", str(folder), "--form", form)
    assert done.exit_code == 0, done.output
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    text = files.pop(PULL_REQUEST)
    assert f"## {ref}" in text.replace("\\", "")
    assert "highest seen" in text and "Over all pods: " in text and files
    if form == "kubectl":
        assert files["commands.sh"].startswith("kubectl patch")
    else:
        assert all(yaml.safe_load(file) for file in files.values())
    assert cluster.live(ref) == before and events(cluster) == ["bundled"]


def test_what_a_filter_shows_becomes_a_commit_once_it_is_said_twice(cluster: acting.Scene, tmp_path: Path) -> None:
    ref, other = cluster.acceptable()[:2]
    before, folder = cluster.live(ref), acting.git_repository(cluster, tmp_path / "deploy", ref)
    filter_arguments = ("bundle", "-n", cluster.namespace, "--filter", f"workload={ref.name},{other.name}")
    arguments = (*filter_arguments, "--branch", "smaller/pay", "--repo", str(folder))
    tried = run(cluster, *arguments)
    assert tried.exit_code == 3, tried.output
    assert tried.stdout.startswith("    Set requests and limits of 1 workload by usage\n") and events(cluster) == []
    assert f"\n--- a/{ref.name}.yaml\n+++ b/{ref.name}.yaml\n@@ " in tried.stdout
    patch = tmp_path / "shown.patch"
    patch.write_text(tried.stdout)
    assert acting.git(folder, "apply", "--check", "--verbose", str(patch)) == ""
    text = " ".join(tried.stderr.split())
    assert f"left out: {other}: no manifest of the workload was found" in text and "--yes makes the commit" in text
    shown = acting.git(folder, "branch")
    assert shown == "* main\n"
    done = run(cluster, *arguments, "--yes")
    assert done.exit_code == 3 and done.stdout == tried.stdout and "nothing is pushed; to push: git -C" in done.stderr
    diff = acting.git(folder, "diff", "main..smaller/pay")
    assert [line for line in diff.splitlines() if line[:1] in ("+", "-")] == [
        line for line in done.stdout.splitlines() if line[:1] in ("+", "-")
    ]
    assert cluster.live(ref) == before and events(cluster) == ["bundled"]
    ledger = Ledger(Path(cluster.settings.actions.ledger), reading=True)
    (row,) = (json.loads(entry.body) for entry in ledger.entries())
    ledger.close()
    assert (row["form"], row["workloads"], row["branch"]) == ("git", [str(ref)], "smaller/pay")
    assert done.stderr.split("commit ")[1].startswith(row["commit"][:12])
    again = run(cluster, *arguments, "--yes")
    assert again.exit_code == 2 and "the branch smaller/pay exists already" in again.stderr
    nothing = run(cluster, "bundle", str(other), "--branch", "b", "--repo", str(folder), "--yes")
    assert nothing.exit_code == 1 and "no file of the repository was found for" in nothing.stderr


def test_a_bundle_takes_one_place_and_one_way_to_choose(cluster: acting.Scene, tmp_path: Path) -> None:
    ref = str(cluster.workloads[0])
    for arguments, why in (
        ((ref,), "give either --output-dir or --branch"),
        ((ref, "-o", str(tmp_path), "--branch", "b"), "give either --output-dir or --branch"),
        (("--branch", "b"), "give either workloads or filters"),
        ((ref, "-n", cluster.namespace, "--branch", "b"), "give either workloads or filters"),
        ((ref, "--branch", "b", "--repo", str(tmp_path / "none")), "is not a folder"),
    ):
        refused = run(cluster, "bundle", *arguments)
        assert refused.exit_code == 2 and why in " ".join(refused.stderr.split()), refused.output


def test_a_workload_that_is_not_known_is_said(cluster: acting.Scene) -> None:
    unknown = WorkloadRef(cluster.namespace, "Deployment", "nobody")
    result = run(cluster, "dismiss", str(unknown), "--reason", "x")
    assert result.exit_code == 1 and "no recommendation for" in result.output


def test_what_may_not_be_read_is_left_out_with_the_right_that_is_missing(cluster: acting.Scene, tmp_path: Path) -> None:
    ref = next(ref for ref in cluster.workloads if ref.kind == "Deployment")
    server = ApiServer(None, None)
    server.objects["/apis/authentication.k8s.io/v1/selfsubjectreviews"] = {"status": {"userInfo": {"username": "jane"}}}
    server.forbidden = {f"/apis/apps/v1/namespaces/{ref.namespace}/deployments/{ref.name}"}
    config = yaml.safe_load(Path(cluster.settings.kube.kubeconfig).read_text())
    config["clusters"][0]["cluster"] = {"server": server.url}
    other = tmp_path / "other"
    other.write_text(yaml.safe_dump(config))
    for verb in ("show", "apply"):
        result = run(cluster, verb, str(ref), "--kubeconfig", str(other))
        assert result.exit_code == 3, result.output
        assert "left out: cannot get deployments.apps" in result.output
        assert f'Grant the right in a Role of namespace {ref.namespace}: apiGroups: ["apps"]' in result.output
        assert "nothing to do" not in result.output
    server.stop()


@pytest.mark.parametrize(
    ("arguments", "code"), [(("settle",), 0), (("verify",), 0), (("rollback", "77ab10cd"), 2)], ids=str
)
def test_a_head_that_may_not_be_kept_is_told_with_the_right_that_is_missing(
    cluster: acting.Scene, arguments: tuple[str, ...], code: int
) -> None:
    server = ApiServer(None, None)
    try:
        server.objects["/apis/authentication.k8s.io/v1/selfsubjectreviews"] = {
            "status": {"userInfo": {"username": "jane"}}
        }
        server.forbidden = {f"/api/v1/namespaces/kube-system/configmaps/{ANCHOR}"}
        path = Path(cluster.settings.kube.kubeconfig)
        config = yaml.safe_load(path.read_text())
        config["clusters"][0]["cluster"] = {"server": server.url}
        path.write_text(yaml.safe_dump(config))
        result = run(cluster, *arguments)
    finally:
        server.stop()
    assert result.exit_code == code, result.output
    lines = result.stderr.splitlines()
    head = next(at for at, line in enumerate(lines) if "the ledger's head is not stored in the cluster" in line)
    assert "cannot get configmaps" in lines[head]
    assert lines[head + 1].startswith("fix: ") and "Role of namespace kube-system" in lines[head + 1]


@pytest.fixture
def ranker(cluster: acting.Scene) -> Iterator[ContainerRef]:
    with acting.oversized_gpu(cluster) as ref:
        yield ref


def test_a_proposed_share_of_a_gpu_is_applied_alone_and_rolled_back(
    cluster: acting.Scene, ranker: ContainerRef
) -> None:
    ref, before = ranker.workload, cluster.resources(ranker.workload)
    stopped = run(cluster, "apply", str(ref), "--gpu-shares")
    # no Device object is on this server
    assert stopped.exit_code == 3 and f"{ref}: stopped by gpu-devices;" in stopped.output
    terms = ("--gpu-shares", "--override", "gpu-devices", "--yes", "-o", "json")
    done = run(cluster, "apply", str(ref), *terms)
    assert done.exit_code == 0 and "the API server would accept the change" in done.output, done.output
    share = {"koordinator.sh/gpu-core": "40", "koordinator.sh/gpu-memory-ratio": "50"}
    # its CPU and memory, for which something else is recommended, stay
    expected = {"requests": {"cpu": "1", **share}, "limits": {"memory": "8Gi", **share}}
    assert cluster.resources(ref)[0] == expected and cluster.resources(ref)[1:] == before[1:]
    (row,) = json.loads(done.stdout)
    shown = run(cluster, "rollback", row["change"])
    # without --yes it is a dry run, as of every verb that acts
    assert shown.exit_code == 0 and "dry run: 1 change would be rolled back; --yes rolls back" in shown.stderr
    assert cluster.resources(ref)[0] == expected and events(cluster) == ["accepted", "applied"]
    assert run(cluster, "rollback", row["change"], "--yes").exit_code == 0 and cluster.resources(ref) == before
    assert events(cluster) == ["accepted", "applied", "rollback-accepted", "rolled-back"]
    none = run(cluster, "show", str(cluster.workloads[2]), "--gpu-shares")
    assert none.exit_code == 1 and "no GPU share is proposed for" in none.output


def test_a_proposed_share_of_a_gpu_is_printed_as_a_patch_and_as_a_kustomize_component(
    cluster: acting.Scene, ranker: ContainerRef, tmp_path: Path
) -> None:
    printed = command(cluster, "get", "findings", "-o", "patch")
    (line,) = printed.stdout.splitlines()
    arguments = shlex.split(line)
    kind, name = ranker.workload.kind.lower(), ranker.workload.name
    assert arguments[:5] == ["kubectl", "patch", "-n", cluster.namespace, f"{kind}/{name}"]
    (container,) = json.loads(arguments[7])["spec"]["template"]["spec"]["containers"]
    assert container["name"] == ranker.container
    assert container["resources"]["limits"]["koordinator.sh/gpu-core"] == "40"
    assert "1 finding is left out" in printed.stderr
    folder = tmp_path / "out"
    assert command(cluster, "get", "findings", "-o", "kustomize", "--output-dir", str(folder)).exit_code == 0
    names = {path.name for path in folder.rglob("*.yaml")}
    assert names == {"kustomization.yaml", f"{kind}-{name}.yaml"}
    wrong = command(cluster, "get", "findings", "-o", "patch", "--output-dir", str(folder))
    assert wrong.exit_code != 0 and "needs -o kustomize" in wrong.output
