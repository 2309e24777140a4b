"""What a review, a rollback and a bundle list is what a real API server holds afterwards, for every kind of change."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cotenant.base.allocation.gpu_share import GpuShare, GpuShareProposal
from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import MIB, Resource
from cotenant.base.runtimes.heap import HeapProposal
from cotenant.changes.accept import AcceptanceTerms, to_workload_review
from cotenant.changes.decide.gitops.bundle import bundle, file_lines
from cotenant.changes.decide.review import Review
from cotenant.changes.model.annotated_resources import CHANGE_ANNOTATION
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.service import BundleForm, FieldMove, Method
from cotenant.changes.model.tables import CHANGE_ID, NOT_READ, rollback_lines
from cotenant.recommender.model.recommendation import Field, Recommendation
from cotenant.recommender.settings import PatchSettings
from tests.changes.conftest import Make
from tests.changes.test_written_lines import differences
from tests.changes.world import Kubelet, created, ready, recommended
from tests.cluster.api import Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.shell import Shell, environment_of

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
Line = tuple[str, str, str, str]
"""Object, field, before, after."""
OBJECTS: Final = {
    "deployments": "/apis/apps/v1",
    "horizontalpodautoscalers": "/apis/autoscaling/v2",
    "pods": "/api/v1",
}
OF_OTHERS: Final = re.compile(
    r"/status/.*|/metadata/(generation|resourceVersion|managedFields/.*|annotations/deployment.kubernetes.io/revision)"
)
"""Fields that the server and its controllers write."""
OPTIONS: Final = {"name": "JAVA_TOOL_OPTIONS", "value": "-Xmx900m"}
GPU: Final = {"nvidia.com/gpu": "1"}
CONTAINER: Final = {
    "env": [{"name": "A", "value": "b"}, OPTIONS],
    "resources": {"requests": {"cpu": "1", "memory": "1000Mi"}, "limits": {"memory": "1200Mi"}},
}
WITH_GPU: Final = {
    "resources": {"requests": {"cpu": "1", **GPU}, "limits": {"memory": "1200Mi", **GPU}},
}
# 1000m x 50 % = 800m x 62.5 %
SOLVED: Final[Mapping[str, float | int | str]] = {
    "hpa": "web",
    "hpa_target_now_percent": 50,
    "hpa_target_percent": 62,
    "hpa_trigger_millicores": 500,
}


def plain(workload: WorkloadRef) -> Recommendation:
    return recommended(workload)


def autoscaled(workload: WorkloadRef) -> Recommendation:
    recommendation = recommended(workload)
    (value,) = recommendation.values
    return replace(recommendation, values=(replace(value, inputs={**value.inputs, **SOLVED}),))


def heap(workload: WorkloadRef) -> Recommendation:
    """900 MiB of a heap that 720 would do for, in 850 MiB of memory in place of 1,000."""
    recommendation = recommended(workload)
    inputs = {"days": 14.0, "coverage": 1.0, "observed_max": 980.0 * MIB}
    memory = replace(
        recommendation.values[0], resource=Resource.MEMORY, now=1000 * MIB, amount=850 * MIB, inputs=inputs
    )
    limit = replace(memory, field=Field.LIMIT, now=1200 * MIB, amount=1100 * MIB)
    return replace(recommendation, values=(memory, limit), heap=HeapProposal("jvm", 900 * MIB, 720 * MIB, 120 * MIB))


def share_of_a_gpu(workload: WorkloadRef) -> Recommendation:
    proposal = GpuShareProposal(GpuShare(40, 50), GpuShare(100, 100))
    return replace(recommended(workload), values=(), gpu=proposal)


KINDS: Final = {one.__name__: one for one in (plain, autoscaled, heap, share_of_a_gpu)}
EXPECTED: Final[Mapping[str, tuple[str, str, str]]] = {
    "plain": ("app cpu request", "1", "800m"),
    "autoscaled": ("cpu target/averageUtilization", "50", "62"),
    "heap": ("app env/1/value", "-Xmx900m", "-Xmx720m"),
    "share_of_a_gpu": ("app koordinator.sh/gpu-core limit", "not set", "40"),
}
"""One line that only a list of this kind has."""
REVIEWED: Final = (
    *((kind, Method.TEMPLATE) for kind in KINDS),
    ("plain", Method.ANNOTATE),
    ("autoscaled", Method.ANNOTATE),
    ("plain", Method.IN_PLACE),
    ("autoscaled", Method.IN_PLACE),
)


def deployed(
    plane: ControlPlane, namespace: str, kind: str, *, scaled_by: Sequence[str] = ("cpu",), **spec: Any
) -> WorkloadRef:
    """A Deployment with what this kind is about, and an autoscaler of these resources in this order."""
    own = WITH_GPU if kind == "share_of_a_gpu" else CONTAINER
    workload = created(plane, namespace, "web", 2, container=own, **spec)
    if kind == "autoscaled":
        target = {"type": "Utilization", "averageUtilization": 50}
        metrics = [{"type": "Resource", "resource": {"name": name, "target": target}} for name in scaled_by]
        of = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        scaler = {"minReplicas": 2, "maxReplicas": 4, "scaleTargetRef": of, "metrics": metrics}
        path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        plane.api().create(path, {"metadata": {"name": "web"}, "spec": scaler})
    return workload


def written_objects(plane: ControlPlane, namespace: str) -> dict[str, Json]:
    """The objects of a namespace that changes write, by how people write them."""
    return {
        f"{kind}/{namespace}/{body['metadata']['name']}": body
        for kind, root in OBJECTS.items()
        for body in plane.api().items(f"{root}/namespaces/{namespace}/{kind}")
    }


def pointer_of(body: Json, path: str) -> str:
    """A field as a list of a review names it: containers and metrics by their names."""
    if match := re.fullmatch(r".*/containers/(\d+)/(.+)", path):
        spec = body["spec"].get("template", body)["spec"]
        side = re.fullmatch(r"resources/(request|limit)s/(.+)", match[2])
        return f"{spec['containers'][int(match[1])]['name']} " + (f"{side[2]} {side[1]}" if side else match[2])
    if match := re.fullmatch(r"/spec/metrics/(\d+)/resource/(.+)", path):
        return f"{body['spec']['metrics'][int(match[1])]['resource']['name']} {match[2]}"
    return re.sub("^/metadata/(annotations|labels)/", "", path)


def changed(before: Mapping[str, Json], after: Mapping[str, Json]) -> list[Line]:
    """Every value that differs; pods that controllers make and end meanwhile are no change of ours."""
    names = [name for name in before if name in after or not name.startswith("pods/")]
    return sorted(
        (name, pointer_of(after[name], path), old, new)
        for name in names
        for path, old, new in differences(before[name], after[name])
        if not OF_OTHERS.fullmatch(path)
    )


def listed(lines: tuple[FieldMove, ...] | list[FieldMove], change: str) -> list[Line]:
    """Lines as the server's values; a note that nobody has read is not there in a namespace of the test's own."""
    now = {NOT_READ: "not set"}
    return sorted((line.target, line.pointer, now.get(line.now, line.now), {CHANGE_ID: change}.get(line.new, line.new))
                  for line in lines)  # fmt: skip


@pytest.mark.usefixtures("webhook")
@pytest.mark.parametrize("case", REVIEWED, ids=str)
def test_what_a_review_and_a_rollback_list_is_what_the_server_then_holds(
    control_plane: ControlPlane, namespace: str, make: Make, kubelet: Kubelet, case: tuple[str, Method]
) -> None:
    kind, method = case
    in_place = method is Method.IN_PLACE
    own = {"nodeSelector": {"test/own": kubelet.node if in_place else "nowhere"}}
    # a live autoscaler has its metrics in whatever order somebody has written them
    workload, actions = deployed(control_plane, namespace, kind, scaled_by=("memory", "cpu"), **own), make()
    if in_place:
        ready(control_plane, workload)
    (review,) = actions.review([KINDS[kind](workload)], method=method)
    lines = listed(to_workload_review(review).lines, review.id)
    assert review.error == "" and (EXPECTED[kind] in {line[1:] for line in lines} or method is Method.ANNOTATE)
    before = written_objects(control_plane, namespace)
    terms = AcceptanceTerms(overridden=tuple(rule.rule for rule in review.blocked(())), batch="w")
    (done,) = actions.accept([review], terms)
    after = written_objects(control_plane, namespace)
    assert done.state is ChangeState.APPLIED and lines == changed(before, after)

    # a second change finds the note of the first one
    back = rollback_lines([done.change])
    assert actions.roll_back(done).state is ChangeState.ROLLED_BACK
    undone = written_objects(control_plane, namespace)
    assert listed(back, "") == changed(after, undone)
    (again,) = actions.review([KINDS[kind](workload)], method=method)
    notes = [line for line in to_workload_review(again).lines if line.pointer == CHANGE_ANNOTATION]
    assert [line.now for line in notes] == [done.change.rollback_note] * len(notes) and notes


def applied(shell: Shell, files: Mapping[str, str], form: BundleForm) -> None:
    """Bring the files of a bundle to the cluster, each form by the tool that it is for."""
    for path, text in files.items():
        (shell.working / path).parent.mkdir(parents=True, exist_ok=True)
        (shell.working / path).write_text(text)
    if form is BundleForm.KUBECTL:
        done = shell.run("bash commands.sh")
    elif form is BundleForm.SSA:
        done = shell.run("".join(f"{line.removeprefix('# ')}\n" for text in files.values()
                                 for line in text.splitlines() if line.startswith("# kubectl apply")))  # fmt: skip
    else:
        (space,) = {path.partition("/")[0] for path in files if "/" in path}
        root = {"resources": ["all.yaml"], "components": [space]}
        (shell.working / "kustomization.yaml").write_text(yaml.safe_dump(root))
        # without the version that was read: a controller may write before one of the objects is replaced
        read = f"kubectl get -n {space} deployments,horizontalpodautoscalers.v2.autoscaling -o yaml"
        done = shell.run(f"{read} | sed '/resourceVersion:/d' > all.yaml\nkubectl kustomize . | kubectl replace -f -")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("form", [BundleForm.KUSTOMIZE, BundleForm.SSA, BundleForm.KUBECTL])
@pytest.mark.parametrize("kind", ["autoscaled", "share_of_a_gpu"])
def test_what_a_bundle_lists_is_what_its_files_make_of_the_cluster(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, kind: str, form: BundleForm
) -> None:
    workload = deployed(control_plane, namespace, kind, nodeSelector={"test/own": "nowhere"})
    recommendation = KINDS[kind](workload)
    lines = file_lines([recommendation], form)
    files = bundle([Review(workload, "", recommendations=(recommendation,))], form, PatchSettings())
    before = written_objects(control_plane, namespace)
    if not lines:  # a share takes fields away, which server-side apply cannot: no file has it
        assert (kind, form) == ("share_of_a_gpu", BundleForm.SSA) and list(files) == ["PULL_REQUEST.md"]
        return
    applied(Shell(environment_of(control_plane, tmp_path), tmp_path, tmp_path), files, form)
    # the files of a repository name objects by their kind, the server's lists by their collection
    names = {str(workload): f"deployments/{namespace}/web"}
    scaler = f"HorizontalPodAutoscaler {namespace}/web", f"horizontalpodautoscalers/{namespace}/web"
    names |= dict([scaler])
    got = [(names[line.target], line.pointer.replace("cpu average", "cpu target/average"), line.now, line.new)
           for line in lines]  # fmt: skip
    assert sorted(got) == changed(before, written_objects(control_plane, namespace))
