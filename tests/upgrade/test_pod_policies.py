"""The policies on writes of pods, three of an older version and one of this, in both orders of an upgrade."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.base.kubernetes.protocol import MANAGER, WEBHOOK
from cotenant.cli.cluster.installation.manifests import manifests
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.guards.scene import CORE, Act, furnished, outcome, pod_spec, thief
from tests.upgrade.test_evictions import installed
from tools.guarded_fields import POD_WRITES

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]
OLDER = [*yaml.safe_load_all((Path(__file__).parent / "pod_policies_of_cc4d087.yaml").read_text())]
TODAY = [one.body for one in manifests(("reservations",)) if one.address.name == POD_WRITES]
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
LEFT = sorted({body["metadata"]["name"] for body in OLDER} - {POD_WRITES})
JSON_PATCH = "application/json-patch+json"
GATED = f"{CORE}/pods/upgraded"
LIFT = [{"op": "replace", "path": "/spec/schedulingGates", "value": []}]
TOLERATE = [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}]
ACTS: dict[str, tuple[str, Act, bool]] = {
    "the manager ends our gate": (MANAGER, Act("", "PATCH", GATED, LIFT, JSON_PATCH), True),
    "the webhook ends our gate": (WEBHOOK, Act("", "PATCH", GATED, LIFT, JSON_PATCH), True),
    "the manager's toleration": (MANAGER, Act("", "PATCH", GATED, TOLERATE, JSON_PATCH), False),
    "the webhook's toleration": (WEBHOOK, Act("", "PATCH", GATED, TOLERATE, JSON_PATCH), False),
    "a label by the manager": (MANAGER, Act("", "PATCH", GATED, {"metadata": {"labels": {"app": "x"}}}), False),
    "a mark by the webhook": (
        WEBHOOK,
        Act("", "PATCH", GATED, {"metadata": {"labels": {"cotenant.dev/reservation": "r"}}}),
        False,
    ),
}
"""Title -> whose act it is, and whether both versions let it through."""


def test_both_versions_policies_let_the_same_writes_of_pods_through_together_and_alone(
    control_plane: ControlPlane,
) -> None:
    furnished(control_plane)
    admin = control_plane.api()
    body = {"metadata": {"name": "upgraded"}, "spec": pod_spec(schedulingGates=[{"name": "cotenant.dev/gang"}])}
    admin.create(f"{CORE}/pods", body)
    probe = Act("", "PATCH", GATED, {"metadata": {"labels": {"app": "probe"}}})
    # Today's alone; the older ones put over it, one of which has its name; today's again, with two that are left.
    for bodies, named in (
        (TODAY, "of a pod that waits"),
        (OLDER, "of a pod that waits"),
        (TODAY, "of a pod that waits"),
    ):
        installed(control_plane, bodies)
        wait_for("the policies", lambda named=named: named in outcome(thief(control_plane, MANAGER), probe).message)
        assert let(control_plane) == {title: expected for title, (_, _, expected) in ACTS.items()}
    assert [admin.exists(f"{POLICIES}/{name}") for name in LEFT] == [True, True]
    # As docs/upgrade.md says: without those that are left, nothing is let through that was refused.
    delete(admin)
    assert let(control_plane) == {title: expected for title, (_, _, expected) in ACTS.items()}
    admin.delete(GATED, gracePeriodSeconds="0")


def let(plane: ControlPlane) -> dict[str, bool]:
    """Which of the acts the API server would do; any refusal is a policy's."""
    answers: dict[str, Any] = {title: outcome(thief(plane, who), act) for title, (who, act, _) in ACTS.items()}
    assert all(answer.status == 200 or answer.by_policy for answer in answers.values()), answers
    return {title: answer.status == 200 for title, answer in answers.items()}


def delete(admin: Api) -> None:
    for name in LEFT:
        for path in (POLICIES, POLICIES.replace("policies", "policybindings")):
            admin.delete(f"{path}/{name}")
            wait_for("it is gone", lambda path=path, name=name: not admin.exists(f"{path}/{name}"))
