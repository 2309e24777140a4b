"""What is written onto quotas, and when nothing is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cotenant.base.kubernetes.intent import Apply, Create, Patch
from cotenant.base.kubernetes.quota_tree import QuotaNode
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.scheduler_ext.queues.quota_status import published_since
from cotenant.scheduler_ext.queues.view import QueueNode, QueueView, QuotaProfile
from tests.scheduler_ext.queues.quota_scene import NOW, decided, node, pod, queue_view, quota

PREFIX = "quota.scheduling.koordinator.sh/"


def written(view: QueueView) -> dict[str, dict[str, Any]]:
    return {i.address.name: dict(i.body) for i in decided(view).intents if isinstance(i, Apply)}


def stored(quota_: QuotaNode, body: dict[str, Any]) -> QuotaNode:
    """The quota as the API server has it after the apply."""
    spec = {"min": {"cpu": f"{quota_.minimum['cpu']}m"}, "max": {"cpu": f"{quota_.maximum['cpu']}m"}}
    return QuotaNode.parse({**body, "spec": spec})


def test_a_quota_gets_its_figures_as_koordinator_writes_them() -> None:
    pods = [pod("runs", "a", 1500, waits=False, preemptible=False), pod("waits", "a", 4000)]
    body = written(queue_view([quota("top", 0, 8000, is_parent=True), quota("a", 1500, 4000, "top")], pods))["a"]
    assert body["metadata"]["annotations"] == {
        PREFIX + "runtime": '{"cpu":"4"}',
        PREFIX + "request": '{"cpu":"5500m"}',
        PREFIX + "child-request": '{"cpu":"5500m"}',
        PREFIX + "non-preemptible-request": '{"cpu":"1500m"}',
        PREFIX + "non-preemptible-used": '{"cpu":"1500m"}',
    }
    assert body["status"] == {"used": {"cpu": "1500m"}}


def test_nothing_is_written_where_nothing_changed() -> None:
    quotas = [quota("a", 1000, 4000), quota("idle", 0, 4000)]
    view = queue_view(quotas, [pod("runs", "a", 1500, waits=False)])
    first = written(view)
    assert first.keys() == {"a"}, "zeros and what is missing are equal"
    again = {"a": stored(quotas[0], first["a"]), "idle": quotas[1]}
    assert written(replace(view, quotas=again)) == {}
    assert written(replace(view, quotas=again, pods=())).keys() == {"a"}


def test_since_when_a_quota_borrows_and_is_over_its_runtime_is_written_and_taken_away() -> None:
    # a may use 4 of the 10 cores while b asks for its 6; it uses 8, 6 more than its min of 2.
    quotas = [quota("a", 2000, 10_000), quota("b", 6000, 10_000)]
    pods = [pod("x", "a", 8000, waits=False), pod("y", "b", 6000)]
    body = written(queue_view(quotas, pods))["a"]
    moments = {key: text for key, text in body["metadata"]["annotations"].items() if key.startswith("cotenant.dev/")}
    # NOW is 1,000 seconds after the epoch.
    assert moments == {
        "cotenant.dev/over-since": "1970-01-01T00:16:40Z",
        "cotenant.dev/borrows-since": "1970-01-01T00:16:40Z",
    }
    then = queue_view([stored(quotas[0], body), quotas[1]], pods[1:])
    assert published_since(then.quotas, "cotenant.dev/over-since") == {"a": NOW}
    annotations = written(then)["a"]["metadata"]["annotations"]
    assert not any(key.startswith("cotenant.dev/") for key in annotations)


def test_an_annotation_that_nobody_can_read_is_written_anew() -> None:
    broken = quota("a", 0, 4000, published={PREFIX + "runtime": "{"})
    assert written(queue_view([broken], [])).keys() == {"a"}


def test_the_quota_that_a_profile_names_gets_its_tree_s_total() -> None:
    nodes = (node(10_000, "n1", labels={"pool": "x"}), node(4000, "n2", labels={"pool": "x"}, unschedulable=True))
    selector = LabelSelector.parse({"matchLabels": {"pool": "x"}})
    profile = QuotaProfile("root-x", "x", selector, 0.5, "kube-system", "pool-x")
    root = quota("root-x", 0, 100_000)
    view = queue_view([root], [], nodes=nodes, profiles=(profile,))
    body = written(view)["root-x"]
    annotations = body["metadata"]["annotations"]
    assert annotations[PREFIX + "total-resource"] == '{"cpu":"7","pods":"100"}'
    assert annotations[PREFIX + "unschedulable-resource"] == '{"cpu":"2","pods":"50"}'
    then = replace(view, quotas={"root-x": stored(root, body)})
    assert written(then) == {} and "root-x" in written(replace(then, nodes=nodes[:1]))


def test_a_tree_keeps_its_last_total_while_its_profile_cannot_be_read() -> None:
    # The pool of the tree has 14 cores, of which the profile gave the half: 7. The other pool's 100 are none of it.
    total = {PREFIX + "total-resource": '{"cpu":"7"}', PREFIX + "unschedulable-resource": "{}"}
    labelled: dict[str, Any] = {"tree_id": "x", "heads_tree": True, "profile": "pool-x", "namespace": "kube-system"}
    root = quota("root-x", 0, 100_000, published=total, **labelled)
    nodes = (node(14_000, "n1", labels={"pool": "x"}), node(100_000, "n2"))
    unread = (("elasticquotaprofiles/kube-system/pool-x", "spec.nodeSelector: ..."),)
    view = queue_view([root], [pod("large", "root-x", 50_000)], nodes=nodes, unreadable=unread)
    body = written(view)["root-x"]
    assert total.items() <= body["metadata"]["annotations"].items()
    spec = {"min": {"cpu": "0"}, "max": {"cpu": "100"}}
    again = replace(QuotaNode.parse({**body, "spec": spec}), **labelled)
    assert not [i for i in decided(replace(view, quotas={"root-x": again})).intents if i.address.resource == "pods"]
    # Of a profile that is gone nothing is kept: its quotas divide what the default tree has.
    assert not total.keys() & written(replace(view, unreadable=()))["root-x"]["metadata"]["annotations"].keys()


def test_unschedulable_is_what_is_cordoned_or_not_ready_once_each() -> None:
    states = {"n1": (False, True), "n2": (True, True), "n3": (False, False), "n4": (True, False)}
    nodes = tuple(
        node(1000 * 2**power, name, labels={"pool": "x"}, unschedulable=cordoned, ready=ready)
        for power, (name, (cordoned, ready)) in enumerate(states.items())
    )
    selector = LabelSelector.parse({"matchLabels": {"pool": "x"}})
    profile = QuotaProfile("root-x", "x", selector, 1.0, "kube-system", "pool-x")
    root = quota("root-x", 0, 100_000)
    view = queue_view([root], [], nodes=nodes, profiles=(profile,))
    annotations = written(view)["root-x"]["metadata"]["annotations"]
    # 1 + 2 + 4 + 8 cores in all; n2 is cordoned, n3 not ready, n4 both: 2 + 4 + 8
    assert annotations[PREFIX + "total-resource"] == '{"cpu":"15","pods":"400"}'
    assert annotations[PREFIX + "unschedulable-resource"] == '{"cpu":"14","pods":"300"}'
    # n3 is ready again: 2 + 8
    then = replace(view, nodes=(*nodes[:2], replace(nodes[2], ready=True), nodes[3]))
    assert written(then)["root-x"]["metadata"]["annotations"][PREFIX + "unschedulable-resource"] == (
        '{"cpu":"10","pods":"200"}'
    )


def test_a_profile_whose_quota_does_not_exist_yet_is_a_problem() -> None:
    view = queue_view([], [], profiles=(QuotaProfile("root-x", "x"),))
    assert decided(view).notes == (
        (
            "elasticquotas/root-x",
            "an ElasticQuotaProfile names this quota as the root of tree x, but it does not exist yet",
        ),
    )


def test_a_profile_s_root_quota_is_made_and_kept_as_large_as_its_nodes() -> None:
    nodes = (
        QueueNode("n1", {"cpu": 10_000, "memory": 40}, {"pool": "x"}),
        QueueNode("n2", {"cpu": 4000}, {"pool": "y"}),
    )
    selector = LabelSelector.parse({"matchLabels": {"pool": "x"}})
    profile = QuotaProfile("root-x", "7", selector, 0.5, "kube-system", "pool-x", {"team": "a"})
    view = queue_view([], [], nodes=nodes, profiles=(profile,))
    (create,) = [i for i in decided(view).intents if isinstance(i, Create)]
    # Half of the 10 cores and 40 bytes of n1; n2 is of another pool.
    assert create.body["spec"] == {"min": {"cpu": "5", "memory": "20"}, "max": {"cpu": "5", "memory": "20"}}
    assert create.body["metadata"]["labels"] == {
        "team": "a",
        PREFIX + "profile": "pool-x",
        PREFIX + "is-root": "true",
        PREFIX + "tree-id": "7",
        PREFIX + "is-parent": "true",
    }
    root = QuotaNode.parse(dict(create.body))
    then = replace(view, quotas={"root-x": root})
    assert not any(isinstance(i, Create | Patch) for i in decided(then).intents)
    grown = replace(then, nodes=(replace(nodes[0], allocatable={"cpu": 20_000, "memory": 40}),))
    (patch,) = [i for i in decided(grown).intents if isinstance(i, Patch)]
    assert [op.get("value") for op in patch.operations] == ["pool-x", *[{"cpu": "10", "memory": "20"}] * 2]


def test_a_quota_that_people_made_stays_as_it_is_whatever_a_profile_says() -> None:
    profile = QuotaProfile("root-x", "x", namespace="kube-system", name="pool-x")
    view = queue_view([quota("root-x", 1000, 2000)], [], profiles=(profile,))
    assert not any(isinstance(i, Create | Patch) for i in decided(view).intents)
