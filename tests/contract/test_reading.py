"""List, pages, selectors and watch: the same sentences hold on the embedded server and on the real one."""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

import pytest

from tests.cluster.api import ApiError, Json
from tests.contract.target import Target, config_map, widget


def names(items: list[Json]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


def fill(target: Target, count: int, **labels: str) -> None:
    for index in range(count):
        target.apply(target.path("configmaps", f"c{index}"), config_map(f"c{index}", {"n": str(index)}, labels=labels))


def own(target: Target) -> dict[str, str]:
    """Selects the test's objects among those that the real cluster's controllers put into a namespace."""
    return {"fieldSelector": "metadata.name!=kube-root-ca.crt"}


def events(target: Target, query: Json, count: int) -> list[tuple[str, str]]:
    """The first events of a watch as (type, name)."""
    events_seen = []
    for event in target.api().watch(target.path("configmaps"), timeoutSeconds="60", **query):
        events_seen.append((event["type"], event["object"]["metadata"]["name"]))
        if len(events_seen) == count:
            break
    return events_seen


def test_pages_of_a_list_follow_each_other_without_gap_or_repetition(target: Target) -> None:
    fill(target, 7)
    path, texts, token, sizes = target.path("configmaps"), [], "", []
    while True:
        page = target.admin.get(path, limit="3", **own(target), **({"continue": token} if token else {}))
        texts += names(page["items"])
        sizes.append(len(page["items"]))
        token = page["metadata"].get("continue", "")
        if not token:
            break
    # 7 objects in pages of 3
    assert (texts, sizes) == ([f"c{i}" for i in range(7)], [3, 3, 1])


def test_a_page_says_how_many_remain(target: Target) -> None:
    fill(target, 5)
    all_maps = target.admin.get(target.path("configmaps"))
    page = target.admin.get(target.path("configmaps"), limit="2")
    assert page["metadata"]["remainingItemCount"] == len(all_maps["items"]) - 2


def test_later_pages_show_the_moment_of_the_first(target: Target) -> None:
    fill(target, 4)
    path = target.path("configmaps")
    first = target.admin.get(path, limit="2", **own(target))
    target.apply(f"{path}/c3", config_map("c3", {"n": "changed"}))
    target.admin.delete(f"{path}/c2")
    target.apply(f"{path}/c9", config_map("c9", {}))
    second = target.admin.get(path, limit="9", **own(target), **{"continue": first["metadata"]["continue"]})
    assert [(i["metadata"]["name"], i["data"]["n"]) for i in second["items"]] == [("c2", "2"), ("c3", "3")]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_token_of_a_forgotten_list_is_gone_with_410(target: Target) -> None:
    path = target.path("widgets")
    for name in ("a", "b", "c"):
        target.apply(f"{path}/{name}", widget(name))
    token = target.admin.get(path, limit="1")["metadata"]["continue"]
    target.apply(f"{path}/a", widget("a", {"size": 1}))
    target.forget()
    with pytest.raises(ApiError) as refused:
        target.admin.get(path, limit="1", **{"continue": older(token) if target.name == "real" else token})
    assert (refused.value.status, refused.value.body["reason"]) == (410, "Expired")


def older(token: str) -> str:
    """The real server itself remembers for a while what etcd has forgotten, but nothing from before the kind was."""
    position = json.loads(base64.urlsafe_b64decode(token + "=="))
    return base64.urlsafe_b64encode(json.dumps({**position, "rv": 2}).encode()).decode().rstrip("=")


def test_a_token_that_is_none_is_refused_with_400(target: Target) -> None:
    with pytest.raises(ApiError) as refused:
        target.admin.get(target.path("configmaps"), limit="1", **{"continue": "nonsense"})
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=web", ["a", "b"]),
        ("app==web,tier=front", ["a"]),
        ("app!=web", ["c", "d"]),
        ("tier", ["a", "b"]),
        ("!tier", ["c", "d"]),
        ("app in (web, db)", ["a", "b", "c"]),
        ("app notin (web),app", ["c"]),
        ("app in (web),tier notin (front)", ["b"]),
    ],
)
def test_a_label_selector_selects(target: Target, selector: str, expected: list[str]) -> None:
    labels: dict[str, Any] = {
        "a": {"app": "web", "tier": "front"},
        "b": {"app": "web", "tier": "x"},
        "c": {"app": "db"},
    }
    for name in "abcd":
        target.apply(target.path("configmaps", name), config_map(name, labels=labels.get(name, {})))
    items = target.admin.items(target.path("configmaps"), labelSelector=selector, **own(target))
    assert names(items) == expected


@pytest.mark.parametrize("selector", ["app=web=x", "app in web", "a b", "=x"])
def test_a_label_selector_that_is_none_is_refused_with_400(target: Target, selector: str) -> None:
    with pytest.raises(ApiError) as refused:
        target.admin.items(target.path("configmaps"), labelSelector=selector)
    assert refused.value.status == 400


def test_objects_are_selected_by_name(target: Target) -> None:
    fill(target, 3)
    assert names(target.admin.items(target.path("configmaps"), fieldSelector="metadata.name=c1")) == ["c1"]


def test_a_field_that_cannot_be_selected_by_is_refused_with_400(target: Target) -> None:
    with pytest.raises(ApiError) as refused:
        target.admin.items(target.path("configmaps"), fieldSelector="data.n=1")
    assert refused.value.status == 400


def test_pods_are_selected_by_node_and_phase(target: Target) -> None:
    for name, node in (("p", "nowhere"), ("q", "elsewhere")):
        spec = {"nodeName": node, "containers": [{"name": "app", "image": "x"}], "serviceAccountName": "default"}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        target.apply(target.path("serviceaccounts", "default"), account, "pods", force="true")
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        target.apply(target.path("pods", name), body)
    pods = target.path("pods")
    assert names(target.admin.items(pods, fieldSelector="spec.nodeName=nowhere,status.phase=Pending")) == ["p"]
    assert names(target.admin.items(pods, fieldSelector="status.phase!=Pending")) == []
    for name in "pq":
        target.admin.delete(f"{pods}/{name}", gracePeriodSeconds="0")


@pytest.mark.server
def test_a_watch_from_a_version_tells_each_later_change_in_order_and_once(target: Target) -> None:
    fill(target, 2)
    path = target.path("configmaps")
    since = target.admin.get(path)["metadata"]["resourceVersion"]
    target.apply(f"{path}/c0", config_map("c0", {"n": "5"}))
    target.apply(f"{path}/new", config_map("new", {}))
    target.admin.delete(f"{path}/c1")
    watch_events = events(target, {"resourceVersion": since, **own(target)}, 3)
    assert watch_events == [("MODIFIED", "c0"), ("ADDED", "new"), ("DELETED", "c1")]


@pytest.mark.server
def test_a_watch_without_a_version_begins_with_what_is(target: Target) -> None:
    fill(target, 3)
    assert sorted(events(target, own(target), 3)) == [("ADDED", "c0"), ("ADDED", "c1"), ("ADDED", "c2")]


@pytest.mark.server
def test_a_write_that_changes_nothing_is_not_told(target: Target) -> None:
    path = target.path("configmaps", "c")
    first = target.apply(path, config_map("c", {"n": "1"}))
    again = target.apply(path, config_map("c", {"n": "1"}))
    target.apply(path, config_map("c", {"n": "2"}))
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    since = first["metadata"]["resourceVersion"]
    stream = target.api().watch(target.path("configmaps"), resourceVersion=since, timeoutSeconds="60", **own(target))
    assert next(stream)["object"]["data"] == {"n": "2"}


@pytest.mark.server
def test_a_deletion_carries_the_last_state_under_a_newer_version(target: Target) -> None:
    path = target.path("configmaps", "c")
    live = target.apply(path, config_map("c", {"n": "1"}))
    target.admin.delete(path)
    since = live["metadata"]["resourceVersion"]
    stream = target.api().watch(target.path("configmaps"), resourceVersion=since, timeoutSeconds="60", **own(target))
    event = next(stream)
    assert (event["type"], event["object"]["data"]) == ("DELETED", {"n": "1"})
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(since)


@pytest.mark.server
def test_an_object_that_leaves_the_selection_is_told_as_deleted_and_one_that_enters_as_added(target: Target) -> None:
    path = target.path("configmaps", "c")
    live = target.apply(path, config_map("c", {"n": "1"}, labels={"app": "web"}))
    since = live["metadata"]["resourceVersion"]
    target.apply(path, config_map("c", {"n": "2"}, labels={"app": "db"}))
    target.apply(path, config_map("c", {"n": "3"}, labels={"app": "db"}))
    target.apply(path, config_map("c", {"n": "4"}, labels={"app": "web"}))
    target.apply(path, config_map("c", {"n": "5"}, labels={"app": "web"}))
    stream = target.api().watch(
        target.path("configmaps"), resourceVersion=since, labelSelector="app=web", timeoutSeconds="60"
    )
    versions = [(event["type"], event["object"]["data"]["n"]) for _, event in zip(range(3), stream, strict=False)]
    # the deletion shows the object as it was when it still was selected; "3" happened outside of the selection
    assert versions == [("DELETED", "1"), ("ADDED", "4"), ("MODIFIED", "5")]


@pytest.mark.slow
@pytest.mark.server
def test_a_bookmark_near_the_end_of_a_watch_tells_the_version_that_was_reached(target: Target) -> None:
    fill(target, 2)
    path, done = target.path("configmaps"), threading.Event()
    since = target.admin.get(path)["metadata"]["resourceVersion"]

    def go_on() -> None:
        api, number = target.api(), 0
        while not done.wait(0.1):
            number += 1
            api.patch(f"{path}/c1", config_map("c1", {"n": str(-number)}), "apply", fieldManager="one")

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        query = {"resourceVersion": since, "allowWatchBookmarks": "true", "timeoutSeconds": "5"}
        watch_events = list(target.api().watch(path, fieldSelector="metadata.name=c0", **query))
    finally:
        done.set()
        writer.join()
    # the changes were outside of the selection, so that nothing but the bookmark tells of them
    assert {event["type"] for event in watch_events} == {"BOOKMARK"}
    assert watch_events[-1]["object"]["kind"] == "ConfigMap"
    assert int(watch_events[-1]["object"]["metadata"]["resourceVersion"]) > int(since)


@pytest.mark.server
def test_a_watch_that_did_not_ask_for_bookmarks_gets_none_and_ends_in_time(target: Target) -> None:
    fill(target, 1)
    path = target.path("configmaps")
    since = target.admin.get(path)["metadata"]["resourceVersion"]
    target.apply(f"{path}/c0", config_map("c0", {"n": "changed"}))
    query = {"resourceVersion": since, "timeoutSeconds": "1", "fieldSelector": "metadata.name=nobody"}
    assert list(target.api().watch(path, **query)) == []


@pytest.mark.server
def test_a_watch_from_a_forgotten_version_is_told_410(target: Target) -> None:
    path = target.path("widgets")
    target.apply(f"{path}/a", widget("a"))
    target.forget()
    target.apply(f"{path}/a", widget("a", {"size": 1}))
    event = next(target.api().watch(path, resourceVersion="1", timeoutSeconds="60"))
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_an_object_or_collection_that_is_not_there_is_404(target: Target) -> None:
    for path in (target.path("configmaps", "nobody"), "/apis/nothing.example/v1/things", "/api/v1/nonsense"):
        with pytest.raises(ApiError) as refused:
            target.admin.get(path)
        assert (refused.value.status, refused.value.body.get("reason", "")) in (
            (404, "NotFound"),
            (404, ""),
        )


def test_a_collection_of_all_namespaces_holds_those_of_each(target: Target) -> None:
    fill(target, 1)
    items = target.admin.items("/api/v1/configmaps", fieldSelector="metadata.name=c0")
    assert target.namespace in {item["metadata"]["namespace"] for item in items}


def test_an_event_of_either_group_is_read_from_both_under_each_groups_names(target: Target) -> None:
    """`kubectl describe` asks for `v1`, whoever wrote the Event."""
    about = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": target.namespace}
    head = {"kind": "Event", "reason": "ChangeApplied", "type": "Normal", "action": "ChangeApplied"}
    target.admin.create(
        target.path("events.k8s.io/v1/events"),
        {
            **head, "apiVersion": "events.k8s.io/v1", "metadata": {"name": "new", "namespace": target.namespace},
            "eventTime": "2026-11-21T10:00:00.000000Z", "reportingController": "cotenant-actions",
            "reportingInstance": "cotenant-actions", "regarding": about, "note": "applied by jane",
        },
    )  # fmt: skip
    target.admin.create(
        target.path("events"),
        {
            **head, "metadata": {"name": "old", "namespace": target.namespace}, "involvedObject": about,
            "message": "scaled", "source": {"component": "deployment-controller"}, "count": 3,
        },
    )  # fmt: skip
    chosen = target.admin.items(target.path("events"), fieldSelector="involvedObject.name=web")
    core = {event["metadata"]["name"]: event for event in chosen}
    assert {name: (e["message"], e["involvedObject"]["name"]) for name, e in core.items()} == {
        "new": ("applied by jane", "web"),
        "old": ("scaled", "web"),
    }
    assert core["new"]["reportingComponent"] == "cotenant-actions"
    fresh = target.admin.get(target.path("events.k8s.io/v1/events", "old"))
    assert (fresh["note"], fresh["regarding"]["name"], fresh["deprecatedCount"]) == ("scaled", "web", 3)
    assert fresh["deprecatedSource"]["component"] == "deployment-controller"
