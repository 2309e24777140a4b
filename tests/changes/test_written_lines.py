"""What stands in a confirmation is what is written: for every kind of change, object by object and field by field."""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import jsonpatch
import pytest
import yaml

from cotenant.base.allocation.gpu_share import GPU_RESOURCES, GpuShare, GpuShareProposal
from cotenant.base.errors import UsageError
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.base.runtimes.heap import HeapProposal
from cotenant.changes.decide.field_changes import hpa_writes
from cotenant.changes.decide.gitops.bundle import bundle, file_lines
from cotenant.changes.decide.methods import MethodContext, writes
from cotenant.changes.decide.review import Review
from cotenant.changes.model.annotated_resources import CHANGE_ANNOTATION
from cotenant.changes.model.change import Write
from cotenant.changes.model.service import BundleForm, Method
from cotenant.changes.model.tables import CHANGE_ID, write_lines
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.settings import PatchSettings

CPU, MEMORY = Resource.CPU, Resource.MEMORY
WEB = WorkloadRef("shop", "Deployment", "web")
RESOURCES: Final = {
    "requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"},
    "limits": {"memory": "2Gi", "nvidia.com/gpu": "1"},
}


def value(resource: Resource, field: Field, now: int | None, then: int | None, **inputs: Any) -> Value:
    return Value(resource, field, now, then, Action.UNSET if then is None else Action.SET, Reason.OK, inputs=inputs)


def proposal(*values: Value, **more: Any) -> Recommendation:
    return Recommendation(ContainerRef(WEB, "app"), "cotenant", 2, values, 0, "d", 0, **more)


def deployment(**meta: Any) -> dict[str, Any]:
    env = [{"name": "A", "value": "b"}, {"name": "JAVA_TOOL_OPTIONS", "value": "-Xmx1g"}]
    app = {"name": "app", "resources": RESOURCES, "env": env}
    spec = {"containers": [{"name": "proxy", "resources": {}}, app]}
    return {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", **meta},
        "spec": {"template": {"spec": spec}},
    }


def pod(name: str) -> dict[str, Any]:
    body = copy.deepcopy(deployment())
    meta = {"name": name, "namespace": "shop", "uid": f"u-{name}"}
    return {
        "metadata": meta,
        "spec": {**body["spec"]["template"]["spec"], "nodeName": "n"},
        "status": {"phase": "Running"},
    }


SCALER: Final = {
    "metadata": {"name": "web", "uid": "u-hpa"},
    "spec": {"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}}]},
}
SOLVED: Final = {"hpa": "web", "hpa_target_now_percent": 50, "hpa_target_percent": 80, "hpa_trigger_millicores": 500}
PLAIN = proposal(value(CPU, Field.REQUEST, 1000, 400), value(MEMORY, Field.LIMIT, 2048 * MIB, None))
WITH_HPA = proposal(value(CPU, Field.REQUEST, 1000, 625, **SOLVED))
WITH_HEAP = proposal(
    value(MEMORY, Field.REQUEST, 1024 * MIB, 700 * MIB), value(MEMORY, Field.LIMIT, 2048 * MIB, 900 * MIB),
    heap=HeapProposal("jvm", 1024 * MIB, 512 * MIB, 100 * MIB),
)  # fmt: skip
WITH_GPU = proposal(gpu=GpuShareProposal(GpuShare(25, 25), GpuShare(100, 100)))
MARKED = {"annotations": {"team": "a"}, "labels": {"app": "web"}}
CHANGED = {"annotations": {CHANGE_ANNOTATION: "c0"}}
"""By an earlier change."""
CASES: Final = {
    f"{name}, {method.value}, {of_object}": (recommendation, method, meta)
    for name, recommendation, methods in (
        ("plain", PLAIN, (Method.TEMPLATE, Method.ANNOTATE)),
        ("in place", proposal(value(CPU, Field.REQUEST, 1000, 400)), (Method.IN_PLACE,)),
        ("autoscaler", WITH_HPA, (Method.TEMPLATE, Method.ANNOTATE, Method.IN_PLACE)),
        ("heap", WITH_HEAP, (Method.TEMPLATE,)),
        ("share of a GPU", WITH_GPU, (Method.TEMPLATE,)),
    )
    for method in methods
    for of_object, meta in (("bare", {}), ("marked", MARKED), ("changed before", CHANGED))
}


def leaves(body: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every scalar of an object with its place; containers and metrics by their names, as people know them."""
    if isinstance(body, Mapping):
        for key, inner in body.items():
            yield from leaves(inner, f"{path}/{key}")
    elif isinstance(body, Sequence) and not isinstance(body, str):
        for index, inner in enumerate(body):
            yield from leaves(inner, f"{path}/{index}")
    else:
        yield path, str(body)


def differences(before: Any, after: Any) -> set[tuple[str, str, str]]:
    """(old, new) of every leaf that differs; "not set" for one that is not there."""
    old, new = dict(leaves(before)), dict(leaves(after))
    return {
        (path, old.get(path, "not set"), new.get(path, "not set"))
        for path in {*old, *new}
        if old.get(path) != new.get(path)
    }


def sent(write: Write, bodies: Mapping[str, Any]) -> set[tuple[str, str]]:
    """What the server's object differs by once the write is applied by another program's JSON patch."""
    before = bodies[write.uid]
    after = jsonpatch.apply_patch(copy.deepcopy(before), [dict(op) for op in write.operations])
    edits = differences(before, after)
    return {
        (
            old,
            CHANGE_ID if path.endswith(CHANGE_ANNOTATION) else new,
        )
        for path, old, new in edits
    }


@pytest.mark.parametrize("case", CASES)
def test_the_lines_of_a_confirmation_are_the_leaves_that_its_writes_change(case: str) -> None:
    recommendation, method, meta = CASES[case]
    live, pods = deployment(**meta), [pod("web-a"), pod("web-b")]
    subject = MethodContext(live, (recommendation,), pods)
    planned = hpa_writes([recommendation], {"web": SCALER}, writes(subject, method, "c1"))
    bodies = {"u-1": live, "u-hpa": SCALER, **{live_pod["metadata"]["uid"]: live_pod for live_pod in pods}}
    assert planned
    for write in planned:
        lines = write_lines([write], live)
        assert {line.target for line in lines} == {str(write.address)}
        assert {(line.now, line.new) for line in lines} == sent(write, bodies), write.address
        assert len(lines) == len(differences(bodies[write.uid], jsonpatch.apply_patch(
            copy.deepcopy(bodies[write.uid]), [dict(op) for op in write.operations])))  # fmt: skip


@pytest.mark.parametrize(
    ("cpu", "memory", "order"),
    [
        ((50, 80), (80, 40), "memory web cpu"),
        ((80, 40), (40, 80), "cpu web memory"),
        ((50, 80), (40, 80), "web cpu memory"),
        ((80, 40), (80, 40), "cpu memory web"),
    ],
)
def test_a_lower_target_is_written_before_the_requests_and_a_higher_one_after_them(
    cpu: tuple[int, int], memory: tuple[int, int], order: str
) -> None:
    values, metrics = [], []
    for resource, (now, new) in ((CPU, cpu), (MEMORY, memory)):
        # 1000 x the new target in units, times the target of now in percent: the trigger, before and after
        solved = SOLVED | {"hpa_target_now_percent": now, "hpa_target_percent": new}
        solved[f"hpa_trigger_{resource.unit}"] = 10 * now * new
        values.append(value(resource, Field.REQUEST, 1000 * new, 1000 * now, **solved))
        metrics.append({"resource": {"name": resource.value, "target": {"averageUtilization": now}}})
    both, live = proposal(*values), deployment()
    subject = MethodContext(live, (both,))
    planned = hpa_writes(
        [both], {"web": {**SCALER, "spec": {"metrics": metrics}}}, writes(subject, Method.TEMPLATE, "c")
    )
    names = [
        next((op["value"] for op in w.operations if str(op["path"]).endswith("resource/name")), "web") for w in planned
    ]
    assert " ".join(names) == order


def test_an_autoscaler_s_target_and_a_heap_s_flag_are_named_as_people_know_them() -> None:
    subject = MethodContext(deployment(**MARKED), (WITH_HEAP,))
    (write,) = writes(subject, Method.TEMPLATE, "c1")
    (scaler,) = hpa_writes([WITH_HPA], {"web": SCALER}, ())
    lines = write_lines([scaler, write], deployment(**MARKED))
    line_changes = [(line.pointer, line.now, line.new) for line in lines]
    assert line_changes[0] == ("cpu target/averageUtilization", "50", "80")
    assert ("app env/1/value", "-Xmx1g", "-Xmx512m") in line_changes
    assert ("app memory limit", "2Gi", "900Mi") in line_changes
    assert line_changes[-1] == (CHANGE_ANNOTATION, "not set", CHANGE_ID)


@pytest.mark.parametrize(
    ("metric", "why", "fix"),
    [
        ({}, "has no target for cpu any more", "Scan again"),
        ({"resource": {"name": "cpu", "target": {"averageValue": "500m"}}}, "has no target for cpu any more", "Scan"),
        # kube-state-metrics reports it as a target of cpu, so that another scan finds the same
        (
            {"containerResource": {"name": "cpu", "container": "app", "target": {"averageUtilization": 50}}},
            "follows the cpu of container app alone, not of whole pods",
            "by hand",
        ),
    ],
    ids=["none", "an amount", "of a container"],
)
def test_an_autoscaler_without_the_target_is_named_and_not_somebody_who_changed_it(
    metric: dict[str, Any], why: str, fix: str
) -> None:
    with pytest.raises(UsageError, match=rf"autoscaler .*/web {why}") as refused:
        hpa_writes([WITH_HPA], {"web": {**SCALER, "spec": {"metrics": [metric]}}}, ())
    assert fix in refused.value.fix


GPU_AND_CPU = proposal(value(CPU, Field.REQUEST, 1000, 400), gpu=GpuShareProposal(GpuShare(25, 25), GpuShare(100, 100)))
IN_FILES: Final = {"plain": PLAIN, "autoscaler": WITH_HPA, "share of a GPU": WITH_GPU, "share and CPU": GPU_AND_CPU,
                   "heap": WITH_HEAP}  # fmt: skip


def documents_of(files: Mapping[str, str]) -> Iterator[Any]:
    """What the files of a bundle hold, read by other programs: YAML, and the JSON of shell lines."""
    for path, text in files.items():
        if path.endswith(".yaml"):
            yield from yaml.safe_load_all(text)
        elif path == "commands.sh":
            for word in shlex.split(text.replace("&&", " ").replace(";", " ")):
                if word.startswith(("{", "[")):
                    yield json.loads(word)


def amounts_of(body: Any) -> Iterator[tuple[str, str]]:
    """(name and side of an amount of resources, the amount), and (autoscaler's target, its number), anywhere."""
    if isinstance(body, Mapping):
        for key, inner in body.items():
            if key in ("requests", "limits"):
                for name, amount in inner.items():
                    yield f"{name} {key.removesuffix('s')}", "not set" if amount is None else str(amount)
            elif (str(key).startswith("target") and isinstance(inner, int)) or (
                body.get("op") == "replace" and key == "value"
            ):
                yield "averageUtilization", str(inner)
            else:
                yield from amounts_of(inner)
    elif isinstance(body, list):
        for inner in body:
            yield from amounts_of(inner)


@pytest.mark.parametrize("form", list(BundleForm))
@pytest.mark.parametrize("name", IN_FILES)
def test_the_lines_of_a_bundle_are_what_its_files_of_each_form_change(name: str, form: BundleForm) -> None:
    recommendation = IN_FILES[name]
    files = bundle([Review(WEB, "", recommendations=(recommendation,))], form, PatchSettings())
    present = {(f"{name} {side.removesuffix('s')}", amount) for side in RESOURCES for name, amount in
               RESOURCES[side].items()}  # fmt: skip
    # Files may repeat what is there, and take away what is not: neither changes anything.
    absent = {(f"{name} {side}", "not set") for side in ("request", "limit") for name in GPU_RESOURCES
              if f"{name} {side}" not in dict(present)}  # fmt: skip
    changed_amounts = {pair for document in documents_of(files) for pair in amounts_of(document)} - present - absent
    lines = {(line.pointer.removeprefix("app "), line.new) for line in file_lines([recommendation], form)}
    assert {
        (pointer.rpartition(" ")[2] if "average" in pointer else pointer, new) for pointer, new in lines
    } == changed_amounts
    left_out = name == "heap" or (form is BundleForm.SSA and recommendation.gpu is not None)
    assert bool(lines) is not left_out and ("Not in the files: app: " in files["PULL_REQUEST.md"]) is left_out


def test_nothing_of_a_container_that_files_leave_out_is_in_the_lines_of_a_bundle() -> None:
    assert file_lines([WITH_HEAP]) == []
