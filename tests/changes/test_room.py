"""Guardrails about what the namespace and the nodes allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from cotenant.base.cluster import ContainerRole
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kube.auth import Access
from cotenant.base.kube.client import KubeClient
from cotenant.base.kubernetes.protocol import QUOTA_PREFIX
from cotenant.base.kubernetes.quota_tree import NAMESPACES_ANNOTATION, PARENT_LABEL, QuotaNode, QuotaTree
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, Resource
from cotenant.base.settings.sections import KubeSettings
from cotenant.changes.decide.checks.capacity import uncounted_claim
from cotenant.changes.decide.field_changes import ANNOTATED, annotated, planned
from cotenant.changes.decide.guardrails import Guardrail, GuardrailContext, GuardrailOutcome, judge
from cotenant.changes.decide.rule import ClusterLimits, QuotaClaim
from cotenant.changes.live_context import LiveContext
from cotenant.changes.model.annotated_resources import RESOURCES_ANNOTATION
from cotenant.changes.model.change import Change, ChangeState, ChangeStatus, Write
from cotenant.changes.model.service import Method
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.recommender.model.recommendation import Action, Backtest, Field, Recommendation, Value
from tests.support.api_server import ApiServer

CPU, MEMORY = Resource.CPU, Resource.MEMORY


def live(resources: dict[str, Any], replicas: int = 4) -> dict[str, Any]:
    containers = [{"name": "app", "resources": resources}]
    spec = {"replicas": replicas, "template": {"spec": {"containers": containers}}}
    status = {"observedGeneration": 1, "readyReplicas": replicas, "updatedReplicas": replicas}
    return {"metadata": {"generation": 1}, "spec": spec, "status": status}


BURSTABLE = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
GUARANTEED = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


def recommendation(resource: Resource = CPU, now: int = 1000, amount: int = 1500, **more: Any) -> Recommendation:
    value = Value(resource, Field.REQUEST, now, amount, Action.SET, Reason.OK, inputs={"days": 14.0, "coverage": 1.0})
    ref = ContainerRef(WorkloadRef("shop", "Deployment", "web"), "app")
    return Recommendation(ref, "cotenant", 4, (value,), 14 * 86_400, "d", 0, **more)


def judged(
    recommendation: Recommendation, room: ClusterLimits, resources: dict[str, Any] | None = None, **more: Any
) -> dict[str, Guardrail]:
    around = replace(GuardrailContext(live(resources or BURSTABLE), 1e6, cluster_limits=room), **more)
    return {rule.rule: rule for rule in judge([recommendation], around, GuardrailSettings())}


def failed(guardrails: dict[str, Guardrail]) -> list[str]:
    return [name for name, rule in guardrails.items() if rule.outcome is GuardrailOutcome.FAIL]


def limits(**item: Any) -> ClusterLimits:
    return ClusterLimits(limit_ranges=[{"spec": {"limits": [{"type": "Container", **item}]}}])


@pytest.mark.parametrize(
    ("room", "phrase"),
    [
        (limits(max={"cpu": "1200m"}), "app has 1500m of cpu, and the maximum is 1200m"),
        (limits(min={"cpu": "2"}), "app requests 1500m of cpu, and the minimum is 2"),
        # 2 GiB to 1 GiB is twice.
        (limits(maxLimitRequestRatio={"memory": "1.5"}), "limit of memory is 2 times its request, and the maximum is "
        "1.5"),
        (
            ClusterLimits(limit_ranges=[{"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}]),
            "the pod has 1500m of cpu",
        ),
    ],
)  # fmt: skip
def test_a_limit_range_that_would_refuse_the_pods_stops_it(room: ClusterLimits, phrase: str) -> None:
    guardrails = judged(recommendation(), room)
    assert failed(guardrails) == ["limit-range"] and phrase in guardrails["limit-range"].why
    assert "change the LimitRange" in guardrails["limit-range"].why


def quota(hard: str, used: str) -> ClusterLimits:
    status = {"hard": {"requests.cpu": hard}, "used": {"requests.cpu": used}}
    return ClusterLimits(quotas=[{"metadata": {"name": "team"}, "spec": {}, "status": status}])


def test_a_quota_that_is_too_small_for_all_replicas_stops_it() -> None:
    # Four replicas of 500m more are 2 cores; 1.9 are left.
    guardrails = judged(recommendation(), quota("5900m", "4"))
    assert failed(guardrails) == ["quota"]
    assert "requests.cpu has 1900m left, but this change needs 2" in guardrails["quota"].why
    assert failed(judged(recommendation(), quota("6", "4"))) == []
    scoped = {**quota("1", "1").quotas[0], "spec": {"scopes": ["BestEffort"]}}  # type: ignore[index]
    assert failed(judged(recommendation(), ClusterLimits(quotas=[scoped]))) == []


QUOTAS = {"scheduling": ("6", "root"), "web": ("20", "scheduling"), "other": ("20", "scheduling"), "apart": ("2", "")}
"""max of CPU and parent of ElasticQuotas."""


def elastic(used: Mapping[str, str], namespaces: str = "[]", **more: Any) -> ClusterLimits:
    """ElasticQuotas of which these are used; `web` bounds namespaces."""
    quotas = {
        name: QuotaNode.parse(
            {
                "metadata": {
                    "name": name,
                    "namespace": "kube-system",
                    "labels": {PARENT_LABEL: parent} if parent else {},
                    "annotations": {NAMESPACES_ANNOTATION: namespaces} if name == "web" else {},
                },
                "spec": {"min": {"cpu": "1"}, "max": {"cpu": most}},
                "status": {"used": {"cpu": used.get(name, "0")}},
            }
        )
        for name, (most, parent) in QUOTAS.items()
    }
    return ClusterLimits(tree=QuotaTree(quotas), **more)


def labelled(body: dict[str, Any], **labels: str) -> dict[str, Any]:
    body["spec"]["template"]["metadata"] = {"labels": {QUOTA_PREFIX + key: text for key, text in labels.items()}}
    return body


def test_an_elastic_quota_that_is_too_small_stops_it_and_so_does_one_above_it() -> None:
    # Four replicas of 500m more are 2 cores: of scheduling's 6 1.9 are left, of web's own 16.
    of_web = live(BURSTABLE)
    full = elastic({"scheduling": "4100m", "web": "4"}, '["shop"]')
    guardrails = judged(recommendation(), full, live=of_web)
    assert failed(guardrails) == ["elastic-quota"]
    assert (
        "ElasticQuota scheduling: max of cpu has 1900m left, but this change needs 2" in guardrails["elastic-quota"].why
    )
    assert failed(judged(recommendation(), elastic({"scheduling": "4"}, '["shop"]'), live=of_web)) == []
    # The label of its pods goes before their namespace, and what frees something is not judged.
    assert failed(judged(recommendation(), full, live=labelled(live(BURSTABLE), name="apart"))) == []
    assert failed(judged(recommendation(now=1000, amount=800), elastic({"scheduling": "9"}, '["shop"]'))) == []
    # Pods that may not be preempted stay within min, a core.
    firm = labelled(live(BURSTABLE), name="apart", preemptible="false")
    assert "ElasticQuota apart: min of cpu has 1 left" in judged(recommendation(), full, live=firm)["elastic-quota"].why


def test_others_that_are_reviewed_before_take_of_an_elastic_quota_wherever_they_are() -> None:
    def other(quota: str) -> QuotaClaim:
        more = {(resource, side): 0 for resource in Resource for side in ("requests", "limits")}
        labels = {QUOTA_PREFIX + "name": quota}
        return QuotaClaim(WorkloadRef("bank", "Deployment", "api"), more | {(CPU, "requests"): 1000}, labels)

    # 6 - 3.5 are 2.5 cores, of which somebody below the same quota takes one.
    used = {"scheduling": "3500m"}
    beside = elastic(used, '["shop"]', claims=[other("other")])
    assert (
        "has 1500m left after the 1 that changes of bank/Deployment/api need"
        in judged(recommendation(), beside)["elastic-quota"].why
    )
    assert failed(judged(recommendation(), elastic(used, '["shop"]', claims=[other("apart")]))) == []


def test_what_pods_have_and_not_their_template_is_what_a_quota_counts_now() -> None:
    # Resized in place to 300m, each of four pods takes 500m more with 800m; by the template it would free 200m.
    status = {"name": "app", "resources": {"requests": {"cpu": "300m", "memory": "1Gi"}}}
    small = {"requests": {"cpu": "300m", "memory": "1Gi"}}
    pod = {
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "app", "resources": small}]},
        "status": {"containerStatuses": [status]},
    }
    guardrails = judged(recommendation(now=300, amount=800), quota("3", "1200m"), pods=[pod])
    assert "has 1800m left, but this change needs 2" in guardrails["quota"].why
    assert guardrails["running-pods"].outcome is GuardrailOutcome.WARN


@pytest.mark.parametrize(
    ("state", "updated", "more"),
    [
        # Four pods of 500m more each, as long as the quota cannot count all of them.
        (ChangeState.WAITING, 4, 2000),
        (ChangeState.AWAITING, 4, 2000),
        (ChangeState.UNKNOWN, 4, 2000),
        (ChangeState.APPLIED, 3, 2000),
        (ChangeState.APPLIED, 4, None),
        (ChangeState.VERIFIED, 3, None),
        (ChangeState.CANCELLED, 3, None),
    ],
)
@pytest.mark.parametrize("write", [planned, annotated])
def test_an_accepted_change_claims_a_quota_until_the_quota_counts_its_pods(
    state: ChangeState, updated: int, more: int | None, write: Callable[..., Write | None]
) -> None:
    body, workload = live(BURSTABLE), recommendation().container.workload
    body["metadata"]["uid"], body["status"]["updatedReplicas"] = "u", updated
    new_write = write(body, [recommendation(role=ContainerRole.MAIN)], "c1")
    assert new_write is not None
    where = (workload.namespace, workload.kind, workload.name)
    change = Change("c1", "b", *where, "ann", (), "template", "", (new_write,))
    claim = uncounted_claim(ChangeStatus(change, state, 0.0, 0.0, "ann"), body)
    assert (claim and claim.more[CPU, "requests"]) == more
    # An object that was made anew under that name is another one, which the change never touches.
    again = {**body, "metadata": {**body["metadata"], "uid": "v"}}
    claim = uncounted_claim(ChangeStatus(change, ChangeState.WAITING, 0.0, 0.0, "ann"), again)
    assert claim is not None and claim.more[CPU, "requests"] == 0


def test_what_an_annotation_gives_to_new_pods_is_what_a_quota_counts_now() -> None:
    # Running pods have 800m by the annotation, so that 1 core again is 200m more for each of four.
    body = live(BURSTABLE)
    body["metadata"]["uid"] = "u"
    write = annotated(body, [recommendation(amount=800, role=ContainerRole.MAIN)], "c1")
    assert write is not None
    body["metadata"]["annotations"] = {RESOURCES_ANNOTATION: write.after[ANNOTATED]}
    guardrails = judged(recommendation(now=800, amount=1000), quota("4", "3200m"), live=body)
    assert failed(guardrails) == [] and failed(
        judged(recommendation(now=800, amount=1000), quota("4", "3300m"), live=body)
    )


def test_a_daemon_set_needs_its_quota_on_every_node() -> None:
    daemon = live(BURSTABLE)
    del daemon["spec"]["replicas"]
    daemon["status"] = {"observedGeneration": 1, "desiredNumberScheduled": 4}
    assert "this change needs 2" in judged(recommendation(), quota("5900m", "4"), live=daemon)["quota"].why
    assert judged(recommendation(), quota("6", "4"), live=daemon)["quota"].outcome is not GuardrailOutcome.FAIL


def test_a_quota_without_room_for_a_surge_is_warned_of_and_not_where_nothing_rolls() -> None:
    # A cut needs nothing more in the end, but while it rolls a fifth pod of 800m beside four of 1 core.
    guardrails = judged(recommendation(now=1000, amount=800), quota("4", "4"))
    assert guardrails["quota"].outcome is GuardrailOutcome.WARN and "old pods have to end" in guardrails["quota"].why
    calm = judged(recommendation(now=1000, amount=800), quota("4", "4"), method=Method.IN_PLACE)
    assert calm["quota"].outcome is GuardrailOutcome.PASS


def test_a_pod_that_no_node_could_hold_is_stopped() -> None:
    small = ClusterLimits(nodes=[{CPU: 1400, MEMORY: 8 * GIB}, {CPU: 4000, MEMORY: GIB // 2}])
    guardrails = judged(recommendation(), small)
    assert (
        failed(guardrails) == ["node-fit"]
        and "0 of 2 nodes are big enough for a pod of 1500m of cpu" in guardrails["node-fit"].why
    )
    assert failed(judged(recommendation(), ClusterLimits(nodes=[{CPU: 1500, MEMORY: GIB}]))) == []


def test_a_daemon_has_to_fit_on_each_node_that_it_runs_on() -> None:
    nodes: dict[str, dict[Resource, int]] = {
        "large": {CPU: 64_000, MEMORY: GIB}, "small-b": {CPU: 1000, MEMORY: GIB}, "small-a": {CPU: 1400, MEMORY: GIB},
    }  # fmt: skip
    guardrails = judged(recommendation(), ClusterLimits(nodes=list(nodes.values()), daemon_nodes=nodes))
    assert failed(guardrails) == ["node-fit"]
    assert (
        "2 of 3 nodes that the workload runs on are too small for a pod of 1500m of cpu and 1Gi of memory, "
        "among them small-a" in (guardrails["node-fit"].why)
    )
    fits = judged(recommendation(), ClusterLimits(nodes=[], daemon_nodes={"large": nodes["large"]}))
    assert failed(fits) == [] and "all 1 nodes that the workload runs on" in fits["node-fit"].why


def test_the_nodes_of_a_daemons_pods_are_read_cordoned_ones_too() -> None:
    server = ApiServer(None, None)
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "app"}]}}
    owner = {"kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}
    server.objects["/apis/apps/v1/namespaces/shop/daemonsets/agent"] = {
        "metadata": {"name": "agent", "uid": "u"}, "spec": {"template": template},
    }  # fmt: skip
    server.objects["/api/v1/namespaces/shop/pods"] = [
        {"metadata": {"name": f"agent-{node}", "namespace": "shop", "ownerReferences": [owner]},
         "spec": {"nodeName": node, "containers": [{"name": "app"}]}, "status": {"phase": "Running"}}
        for node in ("large", "cordoned")
    ]  # fmt: skip
    server.objects["/api/v1/nodes"] = [
        {"metadata": {"name": name}, "spec": {"unschedulable": name == "cordoned"},
         "status": {"allocatable": {"cpu": cpu, "memory": "1Gi"}}}
        for name, cpu in (("large", "64"), ("cordoned", "4"), ("empty", "1"))
    ]  # fmt: skip
    ref = WorkloadRef("shop", "DaemonSet", "agent")
    client = KubeClient(Access("test", server.url, lambda: None), KubeSettings(retries=0))
    read = LiveContext(client).read([replace(recommendation(), container=ContainerRef(ref, "app"))])
    client.close()
    server.stop()
    assert read.cluster_limits.daemon_nodes == {
        "large": {CPU: 64_000, MEMORY: GIB},
        "cordoned": {CPU: 4000, MEMORY: GIB},
    }
    assert read.cluster_limits.nodes == [{CPU: 64_000, MEMORY: GIB}, {CPU: 1000, MEMORY: GIB}]


def test_elastic_quotas_are_read_of_the_whole_cluster_and_of_the_namespace_where_others_may_not_be() -> None:
    group = "/apis/scheduling.sigs.k8s.io/v1alpha1"
    for path in (f"{group}/elasticquotas", f"{group}/namespaces/shop/elasticquotas"):
        server = ApiServer(None, None)
        server.objects["/apis/apps/v1/namespaces/shop/deployments/web"] = live(BURSTABLE)
        server.objects[path] = [{"metadata": {"name": "web", "namespace": "shop"}, "spec": {"max": {"cpu": "4"}}}]
        client = KubeClient(Access("test", server.url, lambda: None), KubeSettings(retries=0))
        tree = LiveContext(client).read([recommendation()]).cluster_limits.tree
        client.close()
        server.stop()
        assert tree is not None and tree.quotas["web"].maximum == {"cpu": 4000}


def test_a_kind_that_is_not_served_is_told_from_one_that_may_not_be_listed() -> None:
    server = ApiServer(None, None)
    server.objects["/apis/apps/v1/namespaces/shop/deployments/web"] = live(BURSTABLE)
    server.forbidden = {"/api/v1/namespaces/shop/resourcequotas"}
    client = KubeClient(Access("test", server.url, lambda: None), KubeSettings(retries=0))
    limits = LiveContext(client).read([recommendation()]).cluster_limits
    client.close()
    server.stop()
    assert limits.quotas is None and "resourcequotas" not in limits.absent
    assert limits.scalers is None and "horizontalpodautoscalers" in limits.absent


def test_a_guaranteed_workload_is_not_made_burstable_unasked() -> None:
    guardrails = judged(recommendation(amount=900), ClusterLimits(), GUARANTEED)
    assert failed(guardrails) == ["qos-class"] and "from Guaranteed to Burstable" in guardrails["qos-class"].why


def scaler(*, kind: str = "Utilization", resource: str = "cpu") -> ClusterLimits:
    metric = {"type": "Resource", "resource": {"name": resource, "target": {"type": kind, "averageUtilization": 60}}}
    return ClusterLimits(scalers=[{"metadata": {"name": "web-hpa"}, "spec": {"metrics": [metric]}}])


def test_a_vertical_autoscaler_that_sets_the_requests_stops_it_and_one_that_watches_does_not() -> None:
    why = "VerticalPodAutoscaler web sets pods' requests in mode Auto"
    guardrails = judged(recommendation(), ClusterLimits(vertical=why))
    assert (
        failed(guardrails) == ["autoscaler"]
        and guardrails["autoscaler"].why == f"{why}: set the VPA's updateMode to Off first"
    )
    for mode in ("Off", "Auto"):
        server = ApiServer(None, None)
        spec = {"targetRef": {"kind": "Deployment", "name": "web"}, "updatePolicy": {"updateMode": mode}}
        server.objects |= {
            "/apis/apps/v1/namespaces/shop/deployments/web": live(BURSTABLE),
            "/apis/autoscaling.k8s.io/v1/namespaces/shop/verticalpodautoscalers": [
                {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}
            ],
        }
        client = KubeClient(Access("test", server.url, lambda: None), KubeSettings(retries=0))
        assert LiveContext(client).read([recommendation()]).cluster_limits.vertical == (why if mode == "Auto" else "")
        client.close()
        server.stop()


def test_an_autoscaler_whose_trigger_would_move_unseen_stops_it() -> None:
    guardrails = judged(recommendation(), scaler())
    assert (
        failed(guardrails) == ["autoscaler"]
        and "web-hpa scales by cpu in percent of the request" in guardrails["autoscaler"].why
    )
    assert failed(judged(recommendation(), scaler(kind="AverageValue"))) == []
    assert failed(judged(recommendation(), scaler(resource="memory"))) == []


@pytest.mark.parametrize("others", [0, 1])
def test_a_target_of_one_container_stops_even_what_was_solved_with_a_target_of_the_pod(others: int) -> None:
    # metrics alone cannot tell one from the other; the object can
    target = {"type": "Utilization", "averageUtilization": 60}
    container_metric = {
        "type": "ContainerResource",
        "containerResource": {"name": "cpu", "container": "app", "target": target},
    }
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}] * others + [container_metric]
    trigger: dict[str, float | int | str] = {
        "hpa": "web-hpa",
        "hpa_target_now_percent": 60,
        "hpa_target_percent": 40,
        "hpa_trigger_millicores": 600,
    }
    value = replace(recommendation().values[0], inputs={**recommendation().values[0].inputs, **trigger})
    solved = replace(recommendation(), values=(value,))
    assert failed(judged(solved, scaler())) == []
    room = ClusterLimits(scalers=[{"metadata": {"name": "web-hpa"}, "spec": {"metrics": metrics}}])
    guardrails = judged(solved, room)
    assert failed(guardrails) == ["autoscaler"] and "not for whole pods" in guardrails["autoscaler"].why


def test_kills_in_the_window_ask_for_more_memory_first() -> None:
    killed = Backtest(14.0, 0.0, 0.0, 0, 3, 0, 0, 0)
    guardrails = judged(recommendation(MEMORY, 2 * GIB, int(1.8 * GIB), backtest=killed), ClusterLimits())
    assert "oom" in failed(guardrails) and "app (3)" in guardrails["oom"].why
    raised = judged(recommendation(MEMORY, GIB, int(1.5 * GIB), backtest=killed), ClusterLimits())
    assert failed(raised) == [] and raised["oom"].outcome is GuardrailOutcome.PASS


def test_kills_for_lack_of_memory_do_not_hold_cpu_up() -> None:
    killed = Backtest(14.0, 0.0, 0.0, 0, 3, 0, 0, 0)
    guardrails = judged(recommendation(amount=900, backtest=killed), ClusterLimits())
    assert failed(guardrails) == [] and guardrails["oom"].outcome is GuardrailOutcome.WARN
    assert "app (3)" in guardrails["oom"].why


def test_a_change_that_is_hardly_one_is_left_alone() -> None:
    # 8 % is below 10 %.
    guardrails = judged(recommendation(now=1000, amount=920), ClusterLimits())
    assert failed(guardrails) == ["dead-band"] and "the largest change is 8 %" in guardrails["dead-band"].why


def test_outside_a_window_only_memory_is_raised() -> None:
    closed: dict[str, Any] = {"windows": ["mon 03:00-04:00 UTC"]}  # 1e6 seconds are a Monday at 13:46
    guardrails = judged(recommendation(), ClusterLimits(), **closed)
    assert (
        failed(guardrails) == ["change-window"]
        and "the next one opens Mon 03:00 UTC, in 157.2 hours" in guardrails["change-window"].why
    )
    more = recommendation(MEMORY, GIB, int(1.5 * GIB))
    assert failed(judged(more, ClusterLimits(), **closed)) == []
    assert failed(judged(more, ClusterLimits(), windows_spare_memory=False, **closed)) == ["change-window"]


def test_values_that_only_the_webhook_brings_need_it() -> None:
    guardrails = judged(
        recommendation(), ClusterLimits(), method=Method.ANNOTATE, webhook="no webhook of ours is registered"
    )
    assert failed(guardrails) == ["webhook"]
    assert failed(judged(recommendation(), ClusterLimits(), method=Method.TEMPLATE, webhook="none")) == []


def _ranges(*items: dict[str, Any]) -> ClusterLimits:
    return ClusterLimits(limit_ranges=[{"spec": {"limits": list(items)}}])


@pytest.mark.parametrize(
    ("item", "phrase"),
    [
        ({"type": "Pod", "min": {"cpu": "1600m"}}, "the pod requests 1500m of cpu, and the minimum is 1600m"),
        ({"type": "Pod", "max": {"memory": "1Gi"}}, "the pod has 2Gi of memory, and the maximum is 1Gi"),
        ({"type": "Pod", "maxLimitRequestRatio": {"memory": "1.5"}}, "limit of memory is 2 times its request"),
        # The container has no cpu limit: it gets one by default, below the 1500m that it would request.
        ({"type": "Container", "default": {"cpu": "1200m"}}, "request 1500m of cpu, over its default limit of 1200m"),
    ],
)  # fmt: skip
def test_sums_of_pods_and_default_limits_stop_what_would_break_them(item: dict[str, Any], phrase: str) -> None:
    burstable = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    guardrails = judged(recommendation(), _ranges(item), burstable)
    assert failed(guardrails) == ["limit-range"] and phrase in guardrails["limit-range"].why


def test_a_default_limit_counts_in_the_sum_of_a_pod() -> None:
    default, most = {"type": "Container", "default": {"cpu": "2"}}, {"type": "Pod", "max": {"cpu": "1800m"}}
    burstable = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    # 1500m requested fit; the limit of 2 that the LimitRange adds does not
    guardrails = judged(recommendation(), _ranges(default, most), burstable)
    assert "the pod has 2 of cpu, and the maximum is 1800m" in guardrails["limit-range"].why
    assert failed(judged(recommendation(), _ranges(most), burstable)) == []
