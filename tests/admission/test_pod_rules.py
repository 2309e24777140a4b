"""Every cell of the QoS x priority table, whole CPUs, batch resources, fixed labels, leaf quotas."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cotenant.admission.pod_rules import (
    FIXED_ANNOTATIONS,
    MARKS,
    may_give,
    problems_of_change,
    problems_of_new,
    problems_of_resize,
)
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.kubernetes.quota_tree import QuotaNode, QuotaTree
from cotenant.base.problem import problems_text

VALUES = {"koord-prod": 9500, "koord-mid": 7500, "koord-batch": 5500, "koord-free": 3500, "": 0}
# koordinator's table: LSR goes with prod alone, BE with neither prod nor none; everything else passes
REFUSED = {("LSR", c) for c in ("", "koord-mid", "koord-batch", "koord-free")} | {("BE", "koord-prod"), ("BE", "")}


def pod(qos: str = "", priority: int | None = None, labels: dict[str, str] | None = None, **requests: str) -> Any:
    all_labels = dict(labels or {})
    if qos:
        all_labels["koordinator.sh/qosClass"] = qos
    amounts = {name.replace("batch_", "kubernetes.io/batch-"): value for name, value in requests.items()}
    return {
        "metadata": {"labels": all_labels},
        "spec": {"priority": priority, "containers": [{"name": "main", "resources": {"requests": amounts}}]},
    }


def fields(body: Any, tree: QuotaTree | None = None, namespace: str = "shop") -> list[str]:
    return [p.field for p in problems_of_new(body, namespace, tree or QuotaTree())]


@pytest.mark.parametrize("priority", [c.value for c in PriorityClass])
@pytest.mark.parametrize("qos", [q.value for q in QosClass])
def test_the_table_of_qos_and_priority_class(qos: str, priority: str) -> None:
    refused = ["metadata.labels[koordinator.sh/qosClass]"] if (qos, priority) in REFUSED else []
    assert fields(pod(qos, VALUES[priority], cpu="2")) == refused
    by_label = {"koordinator.sh/priority-class": priority} if priority else {}
    assert fields(pod(qos, None, by_label, cpu="2")) == refused


@pytest.mark.parametrize("qos", ["LSE", "LSR"])
@pytest.mark.parametrize(
    ("cpu", "good"), [("2", True), ("2000m", True), ("1500m", False), ("0", False), ("1e99", False)]
)
def test_bound_cpus_are_whole_and_not_none(qos: str, cpu: str, good: bool) -> None:
    assert fields(pod(qos, 9500, cpu=cpu)) == ([] if good else ["spec.containers[*].resources.requests.cpu"])


def test_a_priority_label_of_unknown_text_gives_no_class() -> None:
    odd = {"koordinator.sh/priority-class": "gold"}
    assert fields(pod("LSR", 9500, odd, cpu="2")) == ["metadata.labels[koordinator.sh/qosClass]"]
    assert fields(pod("BE", 5500, odd)) == ["metadata.labels[koordinator.sh/qosClass]"]
    assert fields(pod("LS", 9500, odd)) == []


def test_a_larger_init_container_decides_and_sidecars_add_up() -> None:
    lsr_pod = pod("LSR", 9500, cpu="1500m")
    lsr_pod["spec"]["initContainers"] = [
        {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}
    ]
    assert fields(lsr_pod) == []  # 1500m + 500m
    lsr_pod["spec"]["initContainers"].append({"name": "once", "resources": {"requests": {"cpu": "2200m"}}})
    # 2200m beside the sidecar that started before it: 2700m
    assert fields(lsr_pod) == ["spec.containers[*].resources.requests.cpu"]


def test_batch_resources_belong_to_be() -> None:
    assert fields(pod("BE", 5500, batch_cpu="1000")) == []
    assert fields(pod("LS", 5500, batch_cpu="1000")) == ["spec.containers[0].resources.requests"]
    assert fields(pod("", None, batch_memory="1Gi")) == ["spec.containers[0].resources.requests"]


def test_all_problems_are_told_at_once_with_their_fix() -> None:
    text = problems_text(problems_of_new(pod("LSR", 5500, cpu="500m", batch_cpu="1"), "shop", QuotaTree()))
    assert "priority class koord-batch" in text
    assert "'500m' is not a whole number of CPUs" in text
    assert "kubernetes.io/batch-cpu" in text
    assert text.count("(fix: ") == 3


@pytest.mark.parametrize("qos", list(QosClass))
def test_a_refusal_shows_values_as_the_manifest_has_them(qos: QosClass) -> None:
    pods = [pod(qos, value, cpu=cpu, batch_cpu="1") for value in (*VALUES.values(), None) for cpu in ("500m", "1e99")]
    messages = [problems_text(problems_of_new(new_pod, "shop", QuotaTree())) for new_pod in pods]
    messages.append(problems_text(problems_of_change(pod("", 9500), pod(qos, 5500))))
    assert not [m for m in messages if re.search(r"<\w+\.\w+|\bNone\b|\bTrue\b|[{\[]'", m)]
    assert not qos or any(repr(qos.value) in m for m in messages)


def test_a_pod_may_not_use_a_parent_quota() -> None:
    tree = QuotaTree(
        {"top": QuotaNode("top", is_parent=True, namespaces=("shop",)), "leaf": QuotaNode("leaf", parent="top")}
    )
    label = "quota.scheduling.koordinator.sh/name"
    assert fields(pod(labels={label: "top"}), tree, "other") == [f"metadata.labels[{label}]"]
    assert fields(pod(), tree, "shop") == [f"metadata.labels[{label}]"]
    assert fields(pod(labels={label: "leaf"}), tree, "shop") == []
    assert "use one of: leaf" in problems_text(problems_of_new(pod(labels={label: "top"}), "x", tree))


@pytest.mark.parametrize(
    "label",
    [
        "koordinator.sh/qosClass",
        "koordinator.sh/priority-class",
        "koordinator.sh/priority",
        "runtimeproxy.koordinator.sh/skip-hookserver",
        "quota.scheduling.koordinator.sh/name",
        "quota.scheduling.koordinator.sh/tree-id",
        "quota.scheduling.koordinator.sh/preemptible",
        "pod-group.scheduling.sigs.k8s.io",
        "pod-group.scheduling.sigs.k8s.io/name",
        "pod-group.scheduling.sigs.k8s.io/min-available",
        "scheduling.koordinator.sh/operating-mode",
        "cotenant.dev/placeholder",
    ],
)
def test_labels_that_limits_rest_on_are_for_life(label: str) -> None:
    old, new = pod(labels={label: "koord-mid"}), pod(labels={label: "koord-batch"})
    assert [p.field for p in problems_of_change(old, new)] == [f"metadata.labels[{label}]"]
    assert [p.field for p in problems_of_change(pod(), new)] == [f"metadata.labels[{label}]"]
    assert problems_of_change(old, old) == []


def annotated(**annotations: str) -> Any:
    annotated_pod = pod(cpu="1")
    annotated_pod["metadata"]["annotations"] = annotations
    return annotated_pod


@pytest.mark.parametrize(
    "key", [*FIXED_ANNOTATIONS, "gang.scheduling.koordinator.sh/name", "gang.scheduling.koordinator.sh/min-available"]
)
def test_annotations_that_decide_who_pays_are_for_life(key: str) -> None:
    for old, new in ((annotated(), annotated(**{key: "b"})), (annotated(**{key: "a"}), annotated())):
        assert [p.field for p in problems_of_change(old, new, gives=True)] == [f"metadata.annotations[{key}]"]
    assert problems_of_change(annotated(other="a"), annotated(other="b")) == []


@pytest.mark.parametrize("key", MARKS[1:])
def test_what_a_pod_was_given_is_said_by_who_gives_it(key: str) -> None:
    old, new = annotated(), annotated(**{key: "x"})
    assert [p.field for p in problems_of_change(old, new)] == [f"metadata.annotations[{key}]"]
    assert problems_of_change(old, new, gives=True) == []


@pytest.mark.parametrize(
    ("username", "groups", "gives"),
    [
        ("system:serviceaccount:cotenant:cotenant-manager", (), True),
        ("system:serviceaccount:koordinator-system:koord-scheduler", (), True),
        ("system:kube-scheduler", (), True),
        ("admin", ("system:masters",), True),
        ("system:serviceaccount:cotenant-shop:app", (), False),
        ("jane", ("developers",), False),
    ],
)
def test_our_accounts_schedulers_and_admins_give_capacity(username: str, groups: tuple[str, ...], gives: bool) -> None:
    assert may_give(username, groups, "cotenant") is gives


def test_every_fixed_key_and_mark_reaches_the_webhook() -> None:
    text = (Path(__file__).resolve().parents[2] / "deploy/webhooks.yaml").read_text()
    annotations = [*FIXED_ANNOTATIONS, *MARKS[1:]]  # labels are compared as a whole
    assert [key for key in annotations if f"'{key}'" not in text] == []


QUOTA = QuotaNode("team", parent="all", minimum={"cpu": 2000}, maximum={"cpu": 4000}, used={"cpu": 3000})
ABOVE = QuotaNode("all", is_parent=True, maximum={"cpu": 10_000}, used={"cpu": 9000})
NAMED = {"quota.scheduling.koordinator.sh/name": "team"}


def resized(before: str, after: str, labels: dict[str, str] = NAMED, quota: QuotaNode = QUOTA) -> str:
    tree = QuotaTree({"team": quota, "all": ABOVE})
    sides = [pod(labels=labels, cpu=cpu) for cpu in (before, after)]
    return problems_text(list(problems_of_resize(sides[0], sides[1], "shop", tree)))


def test_a_resize_takes_no_more_than_its_quota_and_those_above_have_left() -> None:
    assert resized("1", "2") == ""  # 3 used + 1 = 4 of 4
    assert "3 used + 1001m more is above max 4 of quota team" in resized("1", "2001m")
    assert "3 used + 19 more" in resized("1", "20")
    assert resized("1", "20", labels={}) == ""  # no quota
    wide = replace(QUOTA, maximum={"cpu": 9000})
    assert "9 used + 2 more is above max 10 of quota all" in resized("1", "3", quota=wide)
    # While nobody has published what is used, the pod alone is judged.
    unused = replace(QUOTA, used={}, parent="koordinator-root-quota")
    assert resized("1", "4", quota=unused) == ""
    assert "above max 4" in resized("1", "5", quota=unused)


def test_a_pod_with_cpus_of_its_own_keeps_as_many() -> None:
    before, after, same = (pod("LSR", 9500, cpu=cpu, memory="1Gi") for cpu in ("2", "3", "2"))
    for each in (before, after, same):
        each["metadata"]["annotations"] = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"2-3"}'}
    (problem,) = problems_of_resize(before, after, "shop", QuotaTree())
    assert problem.value == "3" and "keeps the 2 exclusive CPUs" in problems_text([problem])
    # Its memory may be resized, and so may the CPU of one that was given none.
    same["spec"]["containers"][0]["resources"]["requests"]["memory"] = "2Gi"
    assert list(problems_of_resize(before, same, "shop", QuotaTree())) == []
    for each in (before, after):
        each["metadata"]["annotations"] = {"scheduling.koordinator.sh/resource-status": '{"numaNodeResources":[]}'}
    assert list(problems_of_resize(before, after, "shop", QuotaTree())) == []


def test_less_and_what_is_not_bounded_is_always_taken() -> None:
    over = replace(QUOTA, used={"cpu": 9000})
    assert resized("8", "7", quota=over) == ""
    assert resized("1", "2", quota=replace(QUOTA, maximum={"memory": 1})) == ""


def test_a_pod_that_may_not_be_preempted_grows_within_min() -> None:
    key = "quota.scheduling.koordinator.sh/non-preemptible-used"
    firm = replace(QUOTA, maximum={"cpu": 9000}, published={key: '{"cpu":"1500m"}'})
    labels = {**NAMED, "quota.scheduling.koordinator.sh/preemptible": "false"}
    assert resized("1", "1500m", labels, firm) == ""  # 1.5 + 0.5 = 2 of min 2
    assert "1500m used + 600m more is above min 2" in resized("1", "1600m", labels, firm)


def test_a_pod_is_judged_by_the_quota_behind_whose_gate_it_was_created() -> None:
    tree = QuotaTree({"team": QUOTA, "large": QuotaNode("large", maximum={"cpu": 99_000})})
    sides = [pod(labels={"quota.scheduling.koordinator.sh/name": "large"}, cpu=cpu) for cpu in ("1", "9")]
    assert list(problems_of_resize(sides[0], sides[1], "shop", tree)) == []
    for side in sides:
        side["metadata"]["annotations"] = {"cotenant.dev/queued": "team"}
    assert "quota team" in problems_text(list(problems_of_resize(sides[0], sides[1], "shop", tree)))


def test_a_living_pod_that_breaks_the_table_can_still_change_otherwise() -> None:
    old = pod("BE", 9500)
    assert problems_of_change(old, pod("BE", 9500, {"note": "x"})) == []
