"""What a tenant wrote wrong is told at the tenant's object, and the feature works on for everybody."""

from __future__ import annotations

import pytest

from cotenant.base.controllers.audit import Audit
from cotenant.base.controllers.contract import ObjectNote
from cotenant.base.kube import EventRecorder
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import FixedClock
from cotenant.manager.feature_status import Board
from tests.cluster.control_plane import ControlPlane

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
