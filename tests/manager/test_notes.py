"""What a tenant wrote wrong is told at the tenant's object, and the feature works on for everybody."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from cotenant.base.controllers.audit import Audit
from cotenant.base.controllers.contract import ObjectNote
from cotenant.base.kube import EventRecorder, Mirror
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import FixedClock
from cotenant.manager.feature_status import Board
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for

GROUPS = {"Pod": "v1", "PodGroup": "scheduling.sigs.k8s.io/v1alpha1", "ReservationPlan": "cotenant.dev/v1alpha1"}


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("subject", "kind"),
    [
        ("pods/{}/train-0", "Pod"),
        ("podgroups/{}/train", "PodGroup"),
        ("reservationplans/{}/nightly", "ReservationPlan"),
    ],
)
def test_a_note_on_a_tenants_object_is_an_event_in_its_namespace(
    control_plane: ControlPlane, namespace: str, subject: str, kind: str
) -> None:
    recorder = EventRecorder(control_plane.admin_client(), "cotenant-manager", FixedClock(1_700_000_000.0))
    board = Board("default", Audit(Metrics("test", "3")), recorder)
    note = ObjectNote(subject.format(namespace), "Queue", "waiting-time 'soon' is not a waiting time", warning=True)
    try:
        board.report_notes([note])
        recorder.flush()
    finally:
        recorder.close()
    (event,) = control_plane.api().items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    assert event["note"] == note.message
    regarding = {name: event["regarding"][name] for name in ("apiVersion", "kind", "name", "namespace")}
    assert regarding == {
        "apiVersion": GROUPS[kind],
        "kind": kind,
        "name": subject.rpartition("/")[2],
        "namespace": namespace,
    }


class _ShortTexts(msgspec.Struct):
    data: dict[str, Annotated[str, msgspec.Meta(max_length=8)]]


@pytest.mark.cluster
def test_an_object_that_cannot_be_read_is_told_at_the_object_once_and_the_others_count(
    control_plane: ControlPlane, namespace: str
) -> None:
    api, path = control_plane.api(), f"/api/v1/namespaces/{namespace}/configmaps"
    for name, text in (("good", "short"), ("bad", "longer than eight")):
        api.create(path, {"metadata": {"name": name, "labels": {"read": "yes"}}, "data": {"text": text}})
    mirror: Mirror[Any] = Mirror(control_plane.admin_client(), path, _ShortTexts, labelSelector="read=yes")
    recorder = EventRecorder(control_plane.admin_client(), "cotenant-manager", FixedClock(1_700_000_000.0))
    board = Board(namespace, Audit(Metrics("test", "3")), recorder, {"texts": mirror})
    mirror.start()
    try:
        assert mirror.wait_synced(60)
        for _ in range(3):  # rounds of the board
            board.decide({}, 0.0)
        recorder.flush()
        assert mirror.snapshot().keys() == {(namespace, "good")}
        (event,) = api.items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
        assert (event["reason"], event["type"], event["regarding"]["name"]) == ("LeftOut", "Warning", "bad")
        assert f"configmaps/{namespace}/bad is ignored until it changes; all other objects are used" in event["note"]
        # mended, it is read again by itself
        api.patch(f"{path}/bad", {"data": {"text": "short"}})
        wait_for("the mended object", lambda: (namespace, "bad") in mirror.snapshot())
    finally:
        mirror.stop()
        recorder.close()
