"""What the manager keeps of pods and nodes for queues, which quota a pod counts against, and the promise it makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from structlog.testing import CapturingLogger

from cotenant.base.controllers import audit
from cotenant.base.errors import QuantityError
from cotenant.base.kubernetes.intent import Address, Create, Outcome, Patch
from cotenant.base.kubernetes.models.node import QueueNodeWire
from cotenant.base.kubernetes.models.pod import QueuePodWire
from cotenant.base.kubernetes.pod_identity import Taint, Toleration
from cotenant.base.kubernetes.protocol import GANG_GATE, QUOTA_GATE, RESERVATION_GATE
from cotenant.base.kubernetes.quota_tree import QuotaNode, QuotaTree
from cotenant.base.logs.metrics import Metrics
from cotenant.manager.features import enabled_features
from cotenant.scheduler_ext.queues.decide import renew_promise, renewal_seconds, withdraw_queue_promise
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.queue_objects import WatchedQueuePod, queue_node, queue_pod, resolve_quota
from cotenant.scheduler_ext.reservations.guard import Guard
from cotenant.settings import Settings

NAME_LABEL = "quota.scheduling.koordinator.sh/name"
TREE = QuotaTree({"team": QuotaNode("team", namespace="n"), "shop": QuotaNode("shop", namespace="shop")})


def read(metadata: dict[str, Any] | None = None, **spec: Any) -> WatchedQueuePod:
    meta = {
        "namespace": "shop",
        "name": "p",
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "1970-01-01T00:01:40Z",
    }
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi", "gpu": "2"}}}]
    body = {"metadata": meta | (metadata or {}), "spec": {"containers": containers, **spec}, "status": {}}
    return queue_pod(msgspec.convert(body, QueuePodWire))


def test_a_waiting_pod_is_kept_with_its_gates_and_where_it_may_go() -> None:
    labels = {
        "koordinator.sh/priority": "5",
        "quota.scheduling.koordinator.sh/preemptible": "false",
        NAME_LABEL: "team",
    }
    gates = [{"name": QUOTA_GATE}, {"name": "theirs"}]
    toleration = {"key": "gpu", "effect": "NoSchedule"}
    selector = {"disk": "ssd"}
    watched = read(
        {"labels": labels}, schedulingGates=gates, priority=9, nodeSelector=selector, tolerations=[toleration]
    )
    pod = watched.pod
    assert (pod.version, pod.created_seconds, pod.phase, pod.node) == ("7", 100.0, "Pending", "")
    assert (pod.priority, pod.sub_priority, pod.preemptible) == (9, 5, False)
    assert pod.requests == {"cpu": 1500, "memory": 1 << 30, "gpu": 2}
    assert (pod.gates, pod.waits_for_quota, pod.waits_for_gang) == ((QUOTA_GATE, "theirs"), True, False)
    assert pod.placement is not None
    assert (pod.placement.node_selector, pod.placement.tolerations) == (
        selector,
        (Toleration("gpu", "Equal", "", "NoSchedule"),),
    )
    assert watched.quota_label == "team"


def test_of_a_pod_on_a_node_nothing_is_kept_about_where_it_may_go() -> None:
    assert read(nodeName="n1", nodeSelector={"a": "b"}).pod.placement is None


def test_a_member_names_its_gang_and_declares_it() -> None:
    annotations = {"gang.scheduling.koordinator.sh/name": "job", "gang.scheduling.koordinator.sh/min-available": "3"}
    pod = read({"annotations": annotations}).pod
    assert pod.gang == "shop/job"
    assert pod.declared_gang is not None and pod.declared_gang.min_available == 3
    assert read({"labels": {"pod-group.scheduling.sigs.k8s.io": "job"}}).pod.gang == "shop/job"
    assert read().pod.gang == "" and read().pod.declared_gang is None


def test_a_request_that_cannot_be_read_names_the_pod() -> None:
    body = {
        "metadata": {"namespace": "shop", "name": "p"},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "lots"}}}]},
    }
    with pytest.raises(QuantityError, match="pod shop/p"):
        queue_pod(msgspec.convert(body, QueuePodWire))


def test_a_node_is_kept_with_its_taints() -> None:
    body = {
        "metadata": {"name": "n1", "labels": {"zone": "a"}},
        "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "gpu": "2"}},
    }
    node = queue_node(msgspec.convert(body, QueueNodeWire))
    assert (node.allocatable, node.unschedulable) == ({"cpu": 4000, "memory": 8 << 30, "gpu": 2}, True)
    assert (node.labels, node.taints) == ({"zone": "a"}, (Taint("gpu", "", "NoSchedule"),))


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "DiskPressure", "status": "True"}, {"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "False"}], False),
        # no word from its kubelet any more
        ([{"type": "Ready", "status": "Unknown"}], False),
        ([{"type": "DiskPressure", "status": "True"}], False),
        # never a word
        ([], False),
        (None, False),
    ],
)
def test_a_node_is_ready_where_its_kubelet_says_so(conditions: list[dict[str, str]] | None, ready: bool) -> None:
    body = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4"}, "conditions": conditions}}
    assert queue_node(msgspec.convert(body, QueueNodeWire)).ready is ready


@pytest.mark.parametrize(
    ("metadata", "quota", "missed"),
    [
        ({"labels": {NAME_LABEL: "team"}, "annotations": {"cotenant.dev/queued": "team"}}, "team", False),
        ({"labels": {NAME_LABEL: "team"}}, "team", True),
        ({}, "shop", True),
        ({"namespace": "other"}, "", False),
        ({"ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": True}]}, "shop", False),
    ],
    ids=["gated", "missed by the webhook", "by namespace", "no quota", "DaemonSet"],
)
def test_a_pod_counts_against_its_quota(metadata: dict[str, Any], quota: str, missed: bool) -> None:
    pod = resolve_quota(read(metadata), TREE)
    assert (pod.quota, pod.missed) == (quota, missed)


def test_a_placeholder_counts_against_no_quota() -> None:
    watched = read()
    assert resolve_quota(replace(watched, pod=replace(watched.pod, placeholder=True)), TREE).quota == ""


def test_a_tree_addresses_pods_alike_while_only_its_figures_change() -> None:
    written = {
        name: replace(quota, used={"cpu": 5}, published={"runtime": "{}"}) for name, quota in TREE.quotas.items()
    }
    assert QuotaTree(written).addressing == TREE.addressing
    for changed in (replace(written["team"], namespaces=("lab",)), replace(written["team"], namespace="team")):
        other = QuotaTree({**written, "team": changed})
        assert other.addressing != TREE.addressing
        place = changed.namespaces[0] if changed.namespaces else changed.namespace
        assert (TREE.of_pod(place, {}), other.of_pod(place, {})) == (None, changed)


def test_a_routine_write_is_told_at_debug_level_and_counted_like_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, log = Metrics("test", "3"), CapturingLogger()
    monkeypatch.setattr(audit, "log", log)  # a command that ran in this process before may have set a level
    promise = Patch(Address("v1", "pods", "p", "n"), (), routine=True)
    audit.Audit(metrics).sent("queues", [Outcome(promise), Outcome(replace(promise, routine=False))], {})
    assert [call.method_name for call in log.calls] == ["debug", "info"]
    labels = {"feature": "queues", "outcome": "ok"}
    assert metrics.registry.get_sample_value("cotenant_writes_total", labels) == 2


def test_the_promise_is_made_and_renewed_in_its_last_two_thirds() -> None:
    (promise,) = renew_promise(Guard(), 30.0, 1000.0)
    assert isinstance(promise, Create) and promise.body["spec"] == {"queuesServedUntil": "1970-01-01T00:17:10.000000Z"}
    (again,) = renew_promise(Guard(version="7", queues_served_until_seconds=1019.0), 30.0, 1000.0)
    assert isinstance(again, Patch) and [op["path"] for op in again.operations] == ["/spec/queuesServedUntil"]
    (late,) = renew_promise(Guard(version="7", queues_served_until_seconds=999.0), 30.0, 1000.0)
    assert isinstance(late, Patch) and (again.routine, late.routine) == (True, False)
    assert renew_promise(Guard(version="7", queues_served_until_seconds=1021.0), 30.0, 1000.0) == ()
    assert renewal_seconds(Guard(version="7", queues_served_until_seconds=1021.0), 30.0, 1000.0) == 1.0
    assert (
        renew_promise(Guard(version="7", queues_served_until_seconds=9000.0), 30.0, 1000.0) != ()
    )  # of a clock that was wrong


def test_reservations_write_nothing_over_the_promise_of_queues() -> None:
    body = {"spec": {"servedUntil": "1970-01-01T00:00:10Z", "queuesServedUntil": "1970-01-01T00:00:20Z"}}
    guard = Guard.parse(body)
    assert (guard.served_until_seconds, guard.queues_served_until_seconds) == (10.0, 20.0)
    assert set(guard.intent("a hand-over").body["spec"]) == {"servedUntil"}


def test_what_is_withdrawn() -> None:
    alone = QueuePod("shop", "alone", "1", "3", gates=(QUOTA_GATE, "theirs"))
    member = QueuePod("shop", "member", "2", "4", gates=(QUOTA_GATE, GANG_GATE, RESERVATION_GATE))
    bound = QueuePod("shop", "bound", "3", "5", node="n1")
    owner = QueuePod("shop", "owner", "4", "6", gates=(RESERVATION_GATE,))
    promise, *lifted = withdraw_queue_promise(
        Guard(version="7", queues_served_until_seconds=1000.0), (alone, member, bound, owner), 900.0
    )
    assert isinstance(promise, Patch)
    gates = {p.address.name: p.operations[1]["value"] for p in lifted if isinstance(p, Patch)}
    assert gates == {"alone": [{"name": "theirs"}], "member": []}
    assert withdraw_queue_promise(Guard(version="7", queues_served_until_seconds=800.0), (bound, owner), 900.0) == ()


def test_queues_run_only_where_they_are_switched_on() -> None:
    assert "queues" not in enabled_features(Settings())
    on = msgspec.structs.replace(Settings(), queues=QueueSettings(enabled=True))
    assert enabled_features(on) == [*enabled_features(Settings()), "queues"]
