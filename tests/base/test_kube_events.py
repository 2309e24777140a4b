"""What happens again and again is one Event whose count grows, told at a measured pace; and what we may do is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import ClusterError, ClusterForbidden, ClusterUnreachable, NotLeader
from cotenant.base.kube import EventRecorder, Regarding, access_review
from cotenant.base.kube.connection import ApiResponse
from cotenant.base.kube.series import BURST, KEPT, REPEAT_SECONDS, Backlog, EventSubject
from cotenant.base.process.clock import FixedClock
from tests.cluster import faults
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import FaultProxy
from tests.cluster.waiting import wait_for

NOW = 1_700_000_000.0
COMPONENT = "cotenant-manager"


@pytest.fixture
def recorder(control_plane: ControlPlane) -> Iterator[Callable[..., EventRecorder]]:
    recorders: list[EventRecorder] = []

    def make(seconds: float = NOW, **more: Any) -> EventRecorder:
        client = more.pop("client", None) or control_plane.admin_client()
        recorders.append(EventRecorder(client, COMPONENT, FixedClock(seconds), **more))
        return recorders[-1]

    yield make
    for event_recorder in recorders:
        event_recorder.close()


def config(namespace: str) -> Regarding:
    return Regarding("v1", "ConfigMap", "slo-controller-config", namespace, "uid-1")


def events(plane: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    return plane.api().items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")


def test_a_first_occurrence_is_an_event_that_kubectl_shows(
    control_plane: ControlPlane, recorder: Any, namespace: str
) -> None:
    event_recorder = recorder()
    event_recorder.record(
        config(namespace), "BadJson", "key colocation-config is no JSON at 17", True, "key colocation-config"
    )
    assert (event_recorder.flush(), event_recorder.flush()) == (1, 0)
    (event,) = events(control_plane, namespace)
    assert event["note"] == "key colocation-config is no JSON at 17"
    assert (event["type"], event["reason"], event["reportingController"]) == ("Warning", "BadJson", COMPONENT)
    assert event["eventTime"] == "2023-11-14T22:13:20.000000Z"
    assert "series" not in event
    shown = control_plane.kubectl("get", "events", "-n", namespace)
    assert "BadJson" in shown
    assert "configmap/slo-controller-config" in shown


def test_an_event_carries_the_annotations_of_what_happened_last(
    control_plane: ControlPlane, recorder: Any, namespace: str
) -> None:
    for number in range(2):
        event_recorder = recorder(NOW + 100 * number)
        event_recorder.record_occurrence(
            EventSubject(config(namespace), "ValueSet", "sets"), f"sets {number}", {"cotenant.dev/act": str(number)}
        )
        assert (event_recorder.flush(), event_recorder.error) == (1, None)
    (event,) = events(control_plane, namespace)
    assert (event["note"], event["metadata"]["annotations"]["cotenant.dev/act"]) == ("sets 0", "1")


def test_what_happens_again_grows_the_count_also_after_a_restart(
    control_plane: ControlPlane, recorder: Any, namespace: str
) -> None:
    for start in range(3):  # three processes, two occurrences each
        event_recorder = recorder(NOW + 100 * start)
        for number in range(2):
            event_recorder.record(config(namespace), "BadJson", f"no JSON at {start}{number}", True, "no JSON at")
        assert event_recorder.flush() == 1
    (event,) = events(control_plane, namespace)
    # 3 x 2 occurrences; the note and time of the first, the time of the last (NOW + 200 s)
    assert event["note"] == "no JSON at 00"
    assert event["series"] == {"count": 6, "lastObservedTime": "2023-11-14T22:16:40.000000Z"}
    assert event["eventTime"] == "2023-11-14T22:13:20.000000Z"


def test_different_objects_reasons_and_notes_are_different_events(
    control_plane: ControlPlane, recorder: Any, namespace: str
) -> None:
    event_recorder = recorder()
    other = Regarding("v1", "ConfigMap", "other", namespace)
    for about, reason, note in [
        (config(namespace), "BadJson", "x"),
        (config(namespace), "BadJson", "y"),
        (config(namespace), "Degraded", "x"),
        (other, "BadJson", "x"),
    ]:
        event_recorder.record(about, reason, note)
    assert event_recorder.flush() == 4
    assert len(events(control_plane, namespace)) == 4


def test_a_long_note_is_cut_to_what_the_server_takes(
    control_plane: ControlPlane, recorder: Any, namespace: str
) -> None:
    event_recorder = recorder()
    event_recorder.record(config(namespace), "BadJson", "ä" * 1000)  # two bytes each
    assert (event_recorder.flush(), event_recorder.error) == (1, None)
    assert events(control_plane, namespace)[0]["note"] == "ä" * 512


def test_an_event_about_a_node_stands_in_the_default_namespace(control_plane: ControlPlane, recorder: Any) -> None:
    event_recorder = recorder()
    event_recorder.record(Regarding("v1", "Node", "node-of-the-event-test"), "NoMetricOfTheTest", "no NodeMetric")
    assert event_recorder.flush() == 1
    nodes = [event["regarding"] for event in events(control_plane, "default") if event["reason"] == "NoMetricOfTheTest"]
    assert [node["name"] for node in nodes] == ["node-of-the-event-test"]


def test_what_could_not_be_told_is_told_later(
    control_plane: ControlPlane, fault_proxy: FaultProxy, recorder: Any, namespace: str
) -> None:
    event_recorder = recorder(client=control_plane.client(fault_proxy.kubeconfig, retries=0))
    event_recorder.record(config(namespace), "BadJson", "x")
    fault_proxy.fault = faults.first(1, faults.CUT)
    assert event_recorder.flush() == 0
    broken = event_recorder.error
    assert isinstance(broken, ClusterUnreachable)
    event_recorder.record(config(namespace), "BadJson", "x")
    assert (event_recorder.flush(), event_recorder.error) == (1, None)
    assert events(control_plane, namespace)[0]["series"]["count"] == 2


def test_who_does_not_lead_and_who_may_not_tells_nobody(
    control_plane: ControlPlane, recorder: Any, namespace: str
) -> None:
    def guard() -> None:
        raise NotLeader("another one leads")

    waiting = recorder(guard=guard)
    waiting.record(config(namespace), "BadJson", "x")
    assert (waiting.flush(), type(waiting.error)) == (0, NotLeader)
    stranger = recorder(client=control_plane.client(control_plane.user("no-events")))
    stranger.record(config(namespace), "BadJson", "x")
    assert (stranger.flush(), type(stranger.error)) == (0, ClusterForbidden)
    assert events(control_plane, namespace) == []


def test_an_event_that_is_refused_holds_up_no_other(control_plane: ControlPlane, recorder: Any, namespace: str) -> None:
    event_recorder = recorder()
    event_recorder.record(config("no-such-namespace"), "BadJson", "x")
    event_recorder.record(config(namespace), "BadJson", "x")
    assert event_recorder.flush() == 1
    assert len(events(control_plane, namespace)) == 1


# --- pace, without a server -------------------------------------------------------------------------------------------
def subject(number: int) -> EventSubject:
    return EventSubject(Regarding("v1", "Node", f"n{number}"), "Degraded", "no NodeMetric")


def test_a_repeated_event_is_told_within_a_minute_after_the_clock_was_set_back() -> None:
    backlog, repeated = Backlog(), subject(1)
    for now in (NOW, NOW - 3600):  # an hour ahead until the machine asked for the time
        backlog.add(repeated, "x", now)
        assert [due for due, _ in backlog.due(now)] == [repeated]
        backlog.told(repeated, 1, now)
        backlog.add(repeated, "x", now + 1)
        assert backlog.due(now + 1) == []


def test_the_same_thing_is_told_once_a_minute() -> None:
    backlog = Backlog()
    backlog.add(subject(1), "x", NOW)
    ((first, series),) = backlog.due(NOW)
    backlog.told(first, series.pending, NOW)
    backlog.add(subject(1), "x", NOW + 1)
    backlog.add(subject(1), "x", NOW + 2)
    assert backlog.due(NOW + REPEAT_SECONDS - 1) == []
    ((_, again),) = backlog.due(NOW + REPEAT_SECONDS)
    assert (again.pending, again.first_seconds, again.last_seconds) == (2, NOW + 1, NOW + 2)


def test_a_storm_is_told_at_the_buckets_pace() -> None:
    backlog = Backlog()
    for number in range(200):
        backlog.add(subject(number), "x", NOW)
    for expected, now in ((BURST, NOW), (0, NOW), (10, NOW + 10)):
        due = backlog.due(now)
        for event_subject, series in due:
            backlog.told(event_subject, series.pending, now)
        assert len(due) == expected


def test_memory_is_bounded_and_what_is_dropped_is_counted() -> None:
    backlog = Backlog()
    for number in range(KEPT + 7):
        backlog.add(subject(number), "x", NOW)
    assert (len(backlog.series), backlog.dropped) == (KEPT, 7)


@settings(max_examples=60)
@given(steps=st.lists(st.tuples(st.integers(0, 3), st.floats(0, 90), st.booleans()), max_size=60))
def test_every_occurrence_is_told_once_or_still_waits(steps: list[tuple[int, float, bool]]) -> None:
    backlog, now, happened, reported = Backlog(), NOW, 0, 0
    for number, passed, look in steps:
        now += passed
        backlog.add(subject(number), "x", now)
        happened += 1
        for event_subject, series in backlog.due(now) if look else ():
            backlog.told(event_subject, series.pending, now)
            reported += series.pending
    assert reported + sum(series.pending for series in backlog.series.values()) == happened


@given(name=st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True))
def test_an_events_name_is_one_that_the_server_takes(name: str) -> None:
    text = EventSubject(Regarding("v1", "Node", name), "Degraded", "x").event_name(COMPONENT)
    assert len(text) <= 253
    assert all(part and part[0] != "-" for part in text.split(".")[-1:])
    assert text == EventSubject(Regarding("v1", "Node", name), "Degraded", "x").event_name(COMPONENT)


# --- reviews ----------------------------------------------------------------------------------------------------------


def test_a_review_that_is_answered_by_something_else_is_an_error_in_words(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = control_plane.admin_client()
    for body in (b"<html>", b"[]", b"\xff"):
        monkeypatch.setattr(client, "request", lambda *_, content=body, **__: ApiResponse(201, {}, content))
        with pytest.raises(ClusterError, match="not the API's"):
            access_review(client, "patch", "configmaps")


def test_our_rights_are_those_that_a_role_grants(control_plane: ControlPlane, namespace: str) -> None:
    user = f"reviewed-{namespace}"
    client, api = control_plane.client(control_plane.user(user)), control_plane.api()
    assert not access_review(client, "patch", "configmaps", namespace=namespace)
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]
    api.create(f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": rules})
    subjects = [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    api.create(f"{rbac}/rolebindings", {"metadata": {"name": "r"}, "roleRef": role, "subjects": subjects})
    # The authorizer learns of a role by a watch of its own.
    wait_for("the role to count", lambda: access_review(client, "patch", "configmaps", namespace=namespace))
    assert not access_review(client, "patch", "configmaps")
    assert not access_review(client, "patch", "nodes", subresource="status")
    assert access_review(control_plane.admin_client(), "patch", "nodes", subresource="status")
    assert access_review(control_plane.admin_client(), "patch", "nodemetrics", "slo.koordinator.sh")
