"""Forgotten hand-overs are taken out of the SwapGuard; those that somebody looks after stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jsonpatch import JsonPatch

from cotenant.admission.guard_watchdog import GRACE_SECONDS, RELIST_SECONDS, GuardWatchdog, overdue
from cotenant.base.kube import connect
from cotenant.base.process.clock import FixedClock
from cotenant.base.settings.sections import KubeSettings
from cotenant.scheduler_ext.reservations.pod_gate import OUR_GATES
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.accounts import account, install_rights
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for
from tests.contract.target import embedded_api

PATH = "/apis/cotenant.dev/v1alpha1/swapguards"
BEGIN = 1_000_000  # 1970-01-12T13:46:40Z


def guard(served: str = "1970-01-12T13:46:40Z", expires: str = "1970-01-12T13:46:55Z", **spec: Any) -> dict[str, Any]:
    swap = {
        "id": "i",
        "reservation": "r",
        "reservationUid": "u",
        "node": "n1",
        "placeholders": [],
        "started": served,
        "expires": expires,
    }
    return {
        "apiVersion": "cotenant.dev/v1alpha1",
        "kind": "SwapGuard",
        "metadata": {"name": "swaps", "resourceVersion": "7"},
        "spec": {"servedUntil": served, "nodes": {"n1": ["shop/web-0"]}, "swaps": [swap], **spec},
    }


def test_what_ought_to_have_ended_a_minute_ago_is_taken_out() -> None:
    patch = overdue(guard(), BEGIN + 15 + GRACE_SECONDS)
    assert patch is not None
    guard_left = JsonPatch(list(patch.operations)).apply(guard())
    assert guard_left["spec"] == {"servedUntil": "1970-01-12T13:46:40Z"}
    assert guard_left["metadata"]["resourceVersion"] == "7"


FAR = "2100-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "guard_object",
    [
        # Nobody promises more than half an hour ahead: such an end comes of a wrong clock or a stolen token.
        guard(expires=FAR),
        guard(served=FAR, expires=FAR),
        # A node that is kept for no hand-over at all.
        guard(swaps=[]),
    ],
    ids=["a hand-over of years", "a promise of years", "no hand-over"],
)
def test_what_no_manager_can_have_promised_holds_no_node(guard_object: dict[str, Any]) -> None:
    patch = overdue(guard_object, BEGIN + 15 + GRACE_SECONDS)
    assert patch is not None
    guard_left = JsonPatch(list(patch.operations)).apply(guard_object)
    assert set(guard_left["spec"]) & {"nodes"} == set()


@pytest.mark.parametrize(
    ("guard_object", "at"),
    [
        (guard(), BEGIN + 14 + GRACE_SECONDS),
        (guard(served="1970-01-12T13:48:40Z"), BEGIN + 15 + GRACE_SECONDS),
        (guard(swaps=[], nodes={}), BEGIN + 10_000),
        ({"metadata": {}}, BEGIN),
    ],
    ids=["within the minute", "a manager promises", "none", "empty"],
)
def test_everything_else_stays(guard_object: dict[str, Any], at: float) -> None:
    assert overdue(guard_object, at) is None


@pytest.fixture
def watched(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    api = control_plane.api()
    install_crd(api, "swapguards.cotenant.dev")
    body = guard()
    del body["metadata"]["resourceVersion"]
    api.create(PATH, body)
    yield control_plane
    api.delete(f"{PATH}/swaps")


def _writable(api: Api) -> bool:
    """Whether the API server has connected the guard's policies with the CRD; until then it refuses each update."""
    try:
        api.patch(f"{PATH}/swaps", {"metadata": {"labels": {"a": "b"}}}, dryRun="All")
    except ApiError as error:
        assert "failed to find resource referenced by paramKind" in str(error)
        return False
    return True


def test_the_api_server_takes_it(watched: ControlPlane) -> None:
    install_rights(watched)
    # Where the policies are older than the CRD: kube-apiserver looks for new resources every 30 s.
    wait_for("the guard's policies", lambda: _writable(watched.api()))
    watchdog = GuardWatchdog(watched.client(account(watched, "cotenant-webhook")), FixedClock(BEGIN + 100))
    assert watchdog.free_forgotten()
    assert watched.api().get(f"{PATH}/swaps")["spec"] == {"servedUntil": "1970-01-12T13:46:40Z"}
    assert not watchdog.free_forgotten()


@dataclass
class MovingClock:
    """Stands where a test puts it."""

    now: float = BEGIN

    def now_seconds(self) -> float:
        return self.now

    def monotonic_seconds(self) -> float:
        return self.now


@pytest.mark.server
@pytest.mark.parametrize("gate", OUR_GATES)
def test_a_gate_that_somebody_writes_himself_is_lifted_also_long_after_all_others_went(
    gate: str, tmp_path: Path
) -> None:
    """No manager ever promised anything: a manifest that was copied from a waiting pod carries the gate."""
    with EmbeddedServer() as server:
        api, clock = embedded_api(server), MovingClock()
        client = connect(KubeSettings(kubeconfig=str(server.write_kubeconfig(tmp_path / "k"))))
        watchdog = GuardWatchdog(client, clock)
        for name in ("first", "second"):
            spec = {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": gate}, {"name": "x/y"}]}
            api.create("/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})
            clock.now += RELIST_SECONDS
            assert watchdog.free_forgotten()
            live = api.get(f"/api/v1/namespaces/default/pods/{name}")
            assert live["spec"]["schedulingGates"] == [{"name": "x/y"}]
            assert not watchdog.free_forgotten()
