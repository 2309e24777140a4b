"""Which new pods wait for their quota or their gang; all others are created as they were."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.admission.guard_watchdog import absent_groups, gate_removal_patches
from cotenant.admission.pod_mutation import AdmissionCall, compute_mutation
from cotenant.admission.view import ClusterView
from cotenant.base.kubernetes.protocol import (
    GANG_GATE,
    PLACEHOLDER_NAMESPACE,
    QUOTA_GATE,
    REQUIRED_TERMS,
    RESERVATION_GATE,
)
from cotenant.base.kubernetes.quota_tree import QuotaNode, QuotaTree
from cotenant.scheduler_ext.queues.admission.pod_gates import NativeGangs, add_queue_gates, with_tree_affinity
from cotenant.scheduler_ext.queues.model.gang import NativeGroup, gang_of_pod_group, group_named
from cotenant.scheduler_ext.queues.view import QuotaProfile
from cotenant.scheduler_ext.reservations.guard import LONGEST_PROMISE_SECONDS, served_until

NOW = 1_000.0
QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"
GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"
TREE = QuotaTree(
    {
        quota.name: quota
        for quota in (
            QuotaNode("team", namespace="koordinator-system", namespaces=("annotated",)),
            QuotaNode("shop", namespace="shop"),
            QuotaNode("koordinator-system-quota", namespace="koordinator-system"),
            QuotaNode("koordinator-root-quota", namespace="koordinator-system"),
        )
    }
)


def pod(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    owners = spec.pop("ownerReferences", [])
    meta = {"generateName": "web-", "labels": labels or {}, "annotations": annotations or {}, "ownerReferences": owners}
    return {"metadata": meta, "spec": {"containers": [{"name": "x"}], **spec}}


def gates(pod: Any) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


@pytest.mark.parametrize(
    ("new", "namespace", "expected"),
    [
        (pod({QUOTA_LABEL: "team"}), "other", [QUOTA_GATE]),
        (pod(), "shop", [QUOTA_GATE]),
        (pod(), "annotated", [QUOTA_GATE]),
        (pod({GROUP_LABEL: "job"}), "other", [GANG_GATE, RESERVATION_GATE]),
        (pod({}, {"gang.scheduling.koordinator.sh/name": "job"}), "other", [GANG_GATE, RESERVATION_GATE]),
        (pod({GROUP_LABEL: "job"}), "shop", [QUOTA_GATE, GANG_GATE, RESERVATION_GATE]),
        (pod(schedulingGates=[{"name": "theirs"}]), "shop", ["theirs", QUOTA_GATE]),
        (pod({GROUP_LABEL: "job"}, schedulingGates=[{"name": RESERVATION_GATE}]), "a", [RESERVATION_GATE, GANG_GATE]),
    ],
    ids=[
        "label",
        "namespace",
        "annotation",
        "PodGroup",
        "gang annotation",
        "gang of a quota",
        "theirs",
        "no gate twice",
    ],
)
def test_a_pod_gets_all_gates_that_it_will_need(new: dict[str, Any], namespace: str, expected: list[str]) -> None:
    mutated_pod = add_queue_gates(new, TREE, NOW + 30, namespace, NOW)
    assert gates(mutated_pod) == expected
    quota = mutated_pod["metadata"]["annotations"].get("cotenant.dev/queued")
    assert bool(quota) is (QUOTA_GATE in expected)


@pytest.mark.parametrize(
    "new",
    [
        pod({QUOTA_LABEL: "koordinator-system-quota", GROUP_LABEL: ""}),
        pod({QUOTA_LABEL: "koordinator-root-quota"}),
        pod({QUOTA_LABEL: "nobody-made-it"}),
        pod({QUOTA_LABEL: "team", GROUP_LABEL: "job"}, nodeName="n1"),
        pod({QUOTA_LABEL: "team"}, ownerReferences=[{"kind": "DaemonSet", "name": "d", "apiVersion": "apps/v1"}]),
        pod(),
    ],
    ids=["system quota", "root quota", "no such quota", "has a node", "DaemonSet", "no quota"],
)
def test_no_other_pod_is_touched(new: dict[str, Any]) -> None:
    assert add_queue_gates(new, TREE, NOW + 30, "other", NOW) is new


def test_a_placeholder_waits_for_no_quota_and_its_label_lets_nobody_else_past_one() -> None:
    new = pod({QUOTA_LABEL: "team", "cotenant.dev/placeholder": "true"})
    assert add_queue_gates(new, TREE, NOW + 30, PLACEHOLDER_NAMESPACE, NOW) is new
    assert gates(add_queue_gates(new, TREE, NOW + 30, "other", NOW)) == [QUOTA_GATE]


def test_nobody_waits_for_a_manager_that_is_away() -> None:
    new = pod({QUOTA_LABEL: "team", GROUP_LABEL: "job"})
    assert add_queue_gates(new, TREE, NOW, "other", NOW) is new
    # Nor for one that promises years: its clock is wrong, or somebody has its token.
    assert add_queue_gates(new, TREE, NOW + LONGEST_PROMISE_SECONDS, "other", NOW) is not new
    assert add_queue_gates(new, TREE, NOW + LONGEST_PROMISE_SECONDS + 1, "other", NOW) is new


def test_the_webhook_gates_once_however_often_it_is_called() -> None:
    view, call = (
        ClusterView(quotas=TREE, queues_served_until_seconds=NOW + 30),
        AdmissionCall("CREATE", "shop", "u", NOW),
    )
    once = compute_mutation(pod({GROUP_LABEL: "job"}), view, call).pod
    assert gates(once) == [QUOTA_GATE, GANG_GATE, RESERVATION_GATE]
    assert compute_mutation(once, view, call).pod == once


def waiting(*names: str) -> dict[str, Any]:
    meta = {"name": "p", "namespace": "a", "resourceVersion": "3"}
    return {"metadata": meta, "spec": {"schedulingGates": [{"name": name} for name in names]}}


@pytest.mark.parametrize(
    ("names", "over", "remaining"),
    [
        ((QUOTA_GATE, "theirs"), (QUOTA_GATE, GANG_GATE), ["theirs"]),
        ((QUOTA_GATE, GANG_GATE, RESERVATION_GATE), (RESERVATION_GATE,), None),
        ((QUOTA_GATE, GANG_GATE, RESERVATION_GATE), (QUOTA_GATE, GANG_GATE), [RESERVATION_GATE]),
        ((QUOTA_GATE, RESERVATION_GATE), (RESERVATION_GATE,), [QUOTA_GATE]),
        ((QUOTA_GATE, GANG_GATE, RESERVATION_GATE), (QUOTA_GATE, GANG_GATE, RESERVATION_GATE), []),
        (("theirs",), (QUOTA_GATE, GANG_GATE, RESERVATION_GATE), None),
    ],
    ids=["quota", "its gang still waits", "Reservations are served", "its quota waits", "all", "none of ours"],
)
def test_gates_end_whose_promise_is_over(
    names: tuple[str, ...], over: tuple[str, ...], remaining: list[str] | None
) -> None:
    patches = gate_removal_patches([waiting(*names)], over)
    assert [[gate["name"] for gate in patch.operations[1]["value"]] for patch in patches] == (
        [] if remaining is None else [remaining]
    )


def test_each_gate_has_its_promise() -> None:
    spec = {"servedUntil": "1970-01-01T00:00:10Z", "queuesServedUntil": "1970-01-01T00:00:20Z"}
    assert served_until({"spec": spec}) == {RESERVATION_GATE: 10.0, QUOTA_GATE: 20.0, GANG_GATE: 20.0}
    assert set(served_until(None).values()) == {0.0}


GANG = {"gang.scheduling.koordinator.sh/name": "job", "gang.scheduling.koordinator.sh/min-available": "2"}


def group_of(new: dict[str, Any], natives: NativeGangs | None) -> str:
    return group_named(add_queue_gates(new, TREE, NOW + 30, "other", NOW, natives))


def test_a_member_of_a_gang_that_kubernetes_places_names_its_podgroup_and_waits_in_the_same_gates() -> None:
    mutated_pod = add_queue_gates(pod({}, GANG), TREE, NOW + 30, "other", NOW, NativeGangs())
    assert (group_named(mutated_pod), gates(mutated_pod)) == ("job", [GANG_GATE, RESERVATION_GATE])
    assert group_of(pod({}, GANG), None) == ""
    assert group_of(pod(), NativeGangs()) == ""


def test_a_member_names_none_where_a_podgroup_cannot_say_what_its_gang_wants() -> None:
    policy = {"gang.scheduling.koordinator.sh/match-policy": "only-waiting"}
    assert group_of(pod({}, GANG | policy), NativeGangs()) == ""
    ours = gang_of_pod_group(
        {"metadata": {"namespace": "other", "name": "job", "annotations": policy}, "spec": {"minMember": 2}}
    )
    assert group_of(pod({GROUP_LABEL: "job"}), NativeGangs(pod_groups={"other/job": ours})) == ""


def test_a_replacement_in_a_gang_that_was_placed_once_names_none_so_that_it_need_not_wait_for_others() -> None:
    placed = NativeGangs({"other/job": NativeGroup("other", "job", 2, scheduled=True)})
    assert group_of(pod({}, GANG), placed) == ""
    together = {"gang.scheduling.koordinator.sh/match-policy": "waiting-and-running"}
    assert group_of(pod({}, GANG | together), placed) == "job"


def test_a_pod_that_names_a_podgroup_itself_is_left_to_the_scheduler() -> None:
    own = pod({}, GANG, schedulingGroup={"podGroupName": "theirs"})
    assert add_queue_gates(own, TREE, NOW + 30, "other", NOW, NativeGangs()) is own


def test_pods_that_leave_the_gate_of_a_gang_nobody_looks_after_get_the_podgroup_that_they_name() -> None:
    waiting = pod(schedulingGates=[{"name": GANG_GATE}], schedulingGroup={"podGroupName": "job"})
    waiting["metadata"]["namespace"] = "other"
    assert [str(intent.address) for intent in absent_groups([waiting, waiting], {GANG_GATE})] == ["podgroups/other/job"]
    assert absent_groups([waiting], {QUOTA_GATE}) == []


GPU = QuotaProfile.parse(
    {
        "metadata": {"namespace": "koordinator-system", "name": "gpu"},
        "spec": {
            "quotaName": "gpu-root",
            "nodeSelector": {
                "matchLabels": {"pool": "gpu"},
                "matchExpressions": [{"key": "spot", "operator": "DoesNotExist"}],
            },
        },
    }
)
FOREST = QuotaTree({**TREE.quotas, "gpu-root": QuotaNode("gpu-root"), "train": QuotaNode("train", parent="gpu-root")})
NODES = [{"key": "pool", "operator": "In", "values": ["gpu"]}, {"key": "spot", "operator": "DoesNotExist"}]


def terms(pod: Any) -> list[dict[str, Any]]:
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    node_terms: list[dict[str, Any]] = affinity.get(REQUIRED_TERMS, {}).get("nodeSelectorTerms", [])
    return node_terms


def test_a_pod_of_a_tree_goes_to_the_nodes_of_the_tree() -> None:
    new = pod({QUOTA_LABEL: "train"})
    once = with_tree_affinity(new, FOREST, [GPU], "other")
    assert terms(once) == [{"matchExpressions": NODES}] and terms(new) == []
    assert with_tree_affinity(once, FOREST, [GPU], "other") == once, "the webhook may be called again"
    # What its author requires stays. Each of several terms is enough by itself, so that each gets the tree's nodes.
    zones = [{"key": "zone", "operator": "In", "values": [zone]} for zone in "ab"]
    own = {"nodeSelectorTerms": [{"matchExpressions": [zone]} for zone in zones]}
    picky = pod({QUOTA_LABEL: "train"}, affinity={"nodeAffinity": {REQUIRED_TERMS: own}, "podAffinity": {"x": 1}})
    tree_pod = with_tree_affinity(picky, FOREST, [GPU], "other")
    assert terms(tree_pod) == [{"matchExpressions": [zone, *NODES]} for zone in zones]
    assert tree_pod["spec"]["affinity"]["podAffinity"] == {"x": 1}


@pytest.mark.parametrize(
    ("new", "namespace"),
    [
        (pod({QUOTA_LABEL: "team"}), "other"),  # of the default tree
        (pod(), "elsewhere"),
        (pod({QUOTA_LABEL: "train"}, nodeName="n1"), "other"),
        (pod({QUOTA_LABEL: "train"}, ownerReferences=[{"kind": "DaemonSet", "controller": True}]), "other"),
    ],
    ids=["default tree", "no quota", "placed", "daemon"],
)
def test_pods_of_no_tree_and_those_that_never_wait_go_where_they_would(new: Any, namespace: str) -> None:
    assert with_tree_affinity(new, FOREST, [GPU], namespace) == new


def test_the_webhook_adds_the_nodes_of_the_tree() -> None:
    view = ClusterView(quotas=FOREST, quota_profiles=(GPU,))
    call = AdmissionCall(operation="CREATE", namespace="other", uid="u", now_seconds=NOW)
    assert terms(compute_mutation(pod({QUOTA_LABEL: "train"}), view, call).pod) == [{"matchExpressions": NODES}]
