"""A patch of requests that were solved with an autoscaler carries its target; a real server takes every form."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.cluster import Autoscaler, Container, ContainerRole, Workload
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, Resource
from cotenant.changes.decide.autoscaler_targets import moves
from cotenant.changes.decide.gitops.manifests import as_yaml, helm, kustomize, server_side_apply
from cotenant.changes.decide.patches import kubectl_command
from cotenant.changes.decide.steps import first_step
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.dashboard.commands.dashboard import manifest
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.settings import PatchSettings
from cotenant.recommender.strategies.cotenant import autoscaler
from cotenant.recommender.strategies.cotenant.draft import Draft, Slot
from tests.cluster.binaries import find, installed
from tests.cluster.control_plane import ControlPlane

CPU, MEMORY = Resource.CPU, Resource.MEMORY
WEB = WorkloadRef("shop", "Deployment", "web")


def solved(resource: Resource, now: int, amount: int, percents: tuple[int, int], trigger: int) -> Value:
    """A request of a pod whose autoscaler moves from one target to the other at this trigger."""
    inputs: dict[str, float | int | str] = {
        "hpa": "web",
        "hpa_target_now_percent": percents[0],
        "hpa_target_percent": percents[1],
        f"hpa_trigger_{resource.unit}": trigger,
    }
    return Value(resource, Field.REQUEST, now, amount, Action.SET, Reason.HPA_SOLVED, inputs=inputs)


def recommendation(*values: Value, container: str = "app", of: WorkloadRef = WEB, **more: Any) -> Recommendation:
    return Recommendation(ContainerRef(of, container), "cotenant", 3, values, 0, "d", 0, **more)


# 1000 m at 50 % add a pod at 500 m; so do 625 m at 80 %.
LOWERED = recommendation(solved(CPU, 1000, 625, (50, 80), 500))


def test_the_target_of_a_first_step_keeps_the_trigger_with_the_step() -> None:
    stepped = first_step([LOWERED], GuardrailSettings(most_cpu_cut=0.2))
    # 1000 m may be cut to 800 m; a pod is added at 500 m as before: 500 / 800 = 62.5 %, rounded to even 62.
    (move,) = moves(stepped)
    assert (stepped[0].values[0].amount, move.before, move.after) == (800, 50, 62)


@pytest.mark.parametrize(("most_cpu_cut", "amount", "target"), [(1.0, 625, 80), (0.2, 800, 62)])
def test_a_target_moves_from_the_limit_where_no_request_is_set(most_cpu_cut: float, amount: int, target: int) -> None:
    # As above: the pods count with 1000 m, their limit.
    unset = recommendation(replace(LOWERED.values[0], now=None), present_limits={CPU: 1000})
    stepped = first_step([unset], GuardrailSettings(most_cpu_cut=most_cpu_cut))
    (move,) = moves(stepped)
    assert (stepped[0].values[0].amount, move.before, move.after) == (amount, 50, target)


def test_the_command_moves_the_target_after_requests_that_fall_and_before_requests_that_rise() -> None:
    requests, target = kubectl_command(LOWERED).split(" && ")
    assert "deployment/web" in requests
    arguments = shlex.split(target)
    assert arguments[:5] == ["kubectl", "patch", "-n", "shop", "horizontalpodautoscalers.v1.autoscaling"]
    where = "/spec/targetCPUUtilizationPercentage"
    assert (arguments[5], arguments[6]) == ("web", "--type=json")
    # tested first: an autoscaler that has no such target is given none
    assert json.loads(arguments[8]) == [
        {"op": "test", "path": where, "value": 50},
        {"op": "replace", "path": where, "value": 80},
    ]
    raised = recommendation(solved(CPU, 500, 1000, (80, 40), 400))
    assert [("horizontalpod" in part) for part in kubectl_command(raised).split(" && ")] == [True, False]


@pytest.mark.parametrize(
    ("cpu", "memory", "expected"),
    [
        ((50, 80), (40, 80), ["web", "memory", "cpu"]),
        ((80, 40), (80, 40), ["memory", "cpu", "web"]),
        ((50, 80), (80, 40), ["memory", "web", "cpu"]),
        ((80, 40), (40, 80), ["cpu", "web", "memory"]),
    ],
)
def test_no_target_is_higher_before_the_requests_are_lower_and_memory_is_looked_for_where_cpu_leaves_it(
    cpu: tuple[int, int], memory: tuple[int, int], expected: list[str]
) -> None:
    # The trigger stays: request x target / 100 before is the same after.
    both = recommendation(
        solved(CPU, 1000 * cpu[1], 1000 * cpu[0], cpu, 10 * cpu[0] * cpu[1]),
        solved(MEMORY, 1000 * memory[1], 1000 * memory[0], memory, 10 * memory[0] * memory[1]),
    )
    parts = kubectl_command(both).split(" && ")
    assert ["web" if "deployment" in p else "memory" if ".v2." in p else "cpu" for p in parts] == expected
    # autoscaling/v1 has the CPU target beside all other metrics, and the server puts it behind them
    place = 0 if expected.index("cpu") < expected.index("memory") else 1
    assert f"/spec/metrics/{place}/resource/name" in parts[expected.index("memory")]


def test_a_memory_target_is_replaced_where_it_stands_or_not_at_all() -> None:
    both = recommendation(solved(CPU, 1000, 625, (50, 80), 500), solved(MEMORY, 2 * GIB, GIB, (40, 80), 8 * GIB // 10))
    cpu, memory = moves([both])
    assert (cpu.place, memory.place, memory.scalar) == (0, 1, {})
    assert [o["op"] for o in memory.operations] == ["test", "test", "replace"]
    assert moves([recommendation(*both.values[1:])])[0].place == 0


@pytest.mark.parametrize(
    "still",
    [
        recommendation(solved(CPU, 1000, 1000, (50, 50), 500)),
        recommendation(replace(LOWERED.values[0], action=Action.WITHHELD)),
        recommendation(replace(LOWERED.values[0], inputs={})),
        recommendation(replace(LOWERED.values[0], inputs={**LOWERED.values[0].inputs, "hpa": "x; rm -rf /"})),
        recommendation(*LOWERED.values, role=ContainerRole.INIT),
    ],
)
def test_no_target_moves_where_no_request_does_or_nothing_was_solved_or_the_name_is_none(still: Recommendation) -> None:
    assert moves([still]) == ()
    assert "horizontalpod" not in kubectl_command(still) and len(list(server_side_apply([still]))) <= 1


def test_patching_some_of_the_containers_keeps_the_trigger_with_the_others_as_they_are() -> None:
    # app 1000 and proxy 500 at 40 %: the trigger is 600 m. Both lowered to 400 + 350 = 750 m: 80 %.
    app, proxy = (recommendation(solved(CPU, now, to, (40, 80), 600), container=c)
                  for c, now, to in (("app", 1000, 400), ("proxy", 500, 350)))  # fmt: skip
    assert moves([app, proxy])[0].after == 80
    # App alone: 400 + 500 = 900 m; 600 / 900 = 67 %.
    assert moves([app])[0].after == 67
    written = {f.path: f for f in server_side_apply([app, proxy], {app.container})}
    scaler = written["shop/deployment-web.autoscaler.yaml"].document
    assert isinstance(scaler, Mapping) and scaler["spec"] == {"targetCPUUtilizationPercentage": 67}


@given(
    now=st.lists(st.integers(10, 8000), min_size=1, max_size=4),
    target=st.integers(5, 95),
    lower=st.lists(st.integers(1, 100), min_size=4, max_size=4),
)
def test_what_the_strategy_solved_is_what_the_patch_carries(now: list[int], target: int, lower: list[int]) -> None:
    parts = tuple(Container(f"c{k}", {CPU: amount}) for k, amount in enumerate(now))
    of = Workload(WEB, 2, parts, autoscaler=Autoscaler("web", 1, 9, {CPU: target}))
    places = {part.name: k for k, part in enumerate(parts)}
    drafts = {
        Slot(k, CPU, Field.REQUEST): Draft(now=a, amount=max(1, a * lower[k] // 100), reason=Reason.OK, formula="")
        for k, a in enumerate(now)
    }
    drafts, solution = autoscaler.solve(drafts, of, places, CPU, 90)
    assert solution is not None
    solution = autoscaler.finalize_target(solution, drafts, of, places)
    recommendations = [
        recommendation(Value(CPU, Field.REQUEST, now[k], drafts[Slot(k, CPU, Field.REQUEST)].amount, Action.SET,
                             Reason.OK, inputs=solution.inputs), container=f"c{k}") for k in range(len(now))
    ]  # fmt: skip
    moved = moves(recommendations)
    changed = any(v.amount != v.now for r in recommendations for v in r.values)
    assert [m.after for m in moved] == ([solution.target] if changed and solution.target != target else [])


def test_files_for_every_tool_hold_the_target() -> None:
    component = {f.path: f for f in kustomize([LOWERED])}
    kustomization = component["shop/kustomization.yaml"].document
    assert isinstance(kustomization, Mapping)
    assert [p["target"]["kind"] for p in kustomization["patches"]] == ["Deployment", "HorizontalPodAutoscaler"]
    assert component["shop/deployment-web.cpu-target.yaml"].document == moves([LOWERED])[0].operations
    (values,) = helm([LOWERED], PatchSettings())
    assert isinstance(values.document, Mapping)
    assert values.document["autoscaling"] == {"targetCPUUtilizationPercentage": 80}
    documents = list(yaml.safe_load_all(manifest(LOWERED)))
    assert [d["kind"] for d in documents] == ["Deployment", "HorizontalPodAutoscaler"]


def of_resource(name: str, percent: int) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": name, "target": target}}


RATE = {"type": "AverageValue", "averageValue": "9"}
HPA: dict[str, Any] = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web"},
    "spec": {
        "minReplicas": 1,
        "maxReplicas": 9,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [
            of_resource("cpu", 50),
            of_resource("memory", 40),
            {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": RATE}},
        ],
    },
}  # fmt: skip
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "app", "image": "example.invalid/web", "resources": {
                "requests": {"cpu": "1", "memory": "2Gi"}}}]},
        },
    },
}  # fmt: skip


def on_server(plane: ControlPlane, namespace: str) -> tuple[dict[str, str], list[Any]]:
    """The pod template's requests and the autoscaler's metrics, as the server has them."""
    items = json.loads(plane.kubectl("get", "deployment/web", "hpa.v2.autoscaling/web", "-n", namespace, "-o", "json"))
    deployment, hpa = items["items"]
    return deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"], hpa["spec"]["metrics"]


def percents(metrics: list[Any]) -> dict[str, int]:
    return {
        m["resource"]["name"]: m["resource"]["target"]["averageUtilization"] for m in metrics if m["type"] == "Resource"
    }


def created(plane: ControlPlane, namespace: str) -> WorkloadRef:
    for document in (DEPLOYMENT, HPA):
        plane.kubectl("create", "-n", namespace, "-f", "-", text=json.dumps(document))
    return WorkloadRef(namespace, "Deployment", "web")


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        (solved(CPU, 1000, 625, (50, 80), 500), ("625m", {"cpu": 80, "memory": 80})),
        (solved(CPU, 1000, 1250, (50, 40), 500), ("1250m", {"cpu": 40, "memory": 80})),
    ],
)
def test_a_server_takes_the_commands_and_keeps_the_other_metrics(
    control_plane: ControlPlane, namespace: str, cpu: Value, expected: tuple[str, dict[str, int]]
) -> None:
    of = created(control_plane, namespace)
    both = recommendation(cpu, solved(MEMORY, 2 * GIB, GIB, (40, 80), 8 * GIB // 10), of=of)
    environment = {**os.environ, "KUBECONFIG": str(control_plane.admin_kubeconfig),
                   "PATH": f"{find('kubectl').parent}:{os.environ['PATH']}"}  # fmt: skip
    subprocess.run(["sh", "-c", kubectl_command(both)], env=environment, check=True, timeout=120, capture_output=True)
    requests, metrics = on_server(control_plane, namespace)
    assert requests == {"cpu": expected[0], "memory": "1Gi"}
    assert percents(metrics) == expected[1]
    assert [m["pods"]["metric"]["name"] for m in metrics if m["type"] == "Pods"] == ["rps"]


def test_a_server_takes_the_objects_by_server_side_apply(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    of = created(control_plane, namespace)
    for number, file in enumerate(server_side_apply([recommendation(*LOWERED.values, of=of)])):
        path = tmp_path / f"{number}.yaml"
        path.write_text(as_yaml(file))
        control_plane.kubectl(
            "apply", "--server-side", "--field-manager=cotenant", "--force-conflicts", "-f", str(path)
        )
    requests, metrics = on_server(control_plane, namespace)
    assert requests == {"cpu": "625m", "memory": "2Gi"}
    assert percents(metrics) == {"cpu": 80, "memory": 40}
    assert len(metrics) == 3


@pytest.mark.cluster
@pytest.mark.skipif(not installed(["kubectl"]), reason="no kubectl: make cluster-binaries")
def test_kustomize_moves_the_target_where_it_stands_and_fails_where_another_metric_does(tmp_path: Path) -> None:
    for file in kustomize([LOWERED]):
        (tmp_path / file.path).parent.mkdir(exist_ok=True)
        (tmp_path / file.path).write_text(as_yaml(file))
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([DEPLOYMENT, HPA]))
    (tmp_path / "kustomization.yaml").write_text("resources: [all.yaml]\ncomponents: [shop]\n")
    command = [str(find("kubectl")), "kustomize", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    hpa = next(d for d in yaml.safe_load_all(done.stdout) if d["kind"] == "HorizontalPodAutoscaler")
    assert percents(hpa["spec"]["metrics"]) == {"cpu": 80, "memory": 40}
    turned = {**HPA, "spec": {**HPA["spec"], "metrics": HPA["spec"]["metrics"][::-1]}}
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([DEPLOYMENT, turned]))
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode != 0
