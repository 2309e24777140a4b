"""An approval is of one spec, ends with it, and is not written for who may not write the policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from cotenant.autopilot.decide.history import Decisions, LedgerNote, folded_notes
from cotenant.autopilot.decide.policy import NamespacedPolicy, parse_policy
from cotenant.autopilot.decide.records import SWITCHING_SECONDS, lapsed_approvals, rows_of
from cotenant.autopilot.model import AutopilotEvent
from cotenant.autopilot.service import ClusterAutopilotService
from cotenant.base.errors import ClusterForbidden
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient
from cotenant.base.people import Person
from cotenant.base.process.clock import SystemClock
from tests.autopilot.scene import APPROVER, AutopilotScene
from tests.cluster.accounts import applier, await_right
from tests.cluster.control_plane import ControlPlane

NOW = 1_800_000_000.0


def policy(mode: str = "Act", at_once: int = 2) -> NamespacedPolicy:
    meta = {"namespace": "shop", "name": "nightly", "uid": "u"}
    return parse_policy({"metadata": meta, "spec": {"mode": mode, "atOnce": at_once}})


def approved() -> LedgerNote:
    return LedgerNote(AutopilotEvent.ACT, "shop/nightly", NOW, "ann", {"digest": policy().digest})


def after_round(notes: list[LedgerNote], live: NamespacedPolicy, seconds: float) -> list[LedgerNote]:
    """Rows of the ledger once a round has read the policy like this."""
    decisions = folded_notes(notes)
    rows = rows_of((), "", (), decisions, seconds, lapsed_approvals([live], decisions.approvals, seconds))
    added = [LedgerNote(e, s, seconds, "manager", {k: str(v) for k, v in body.items()}) for e, s, body in rows]
    return [*notes, *added]


def may_act(decisions: Decisions, live: NamespacedPolicy) -> bool:
    approval = decisions.approvals.get(str(live))
    return approval is not None and approval.digest == live.digest


def test_an_approval_ends_once_a_round_has_seen_another_spec_also_when_the_old_one_returns() -> None:
    notes = after_round([approved()], policy(at_once=9), NOW + 60)
    assert [note.event for note in notes] == [AutopilotEvent.ACT, AutopilotEvent.OBSERVE]
    assert not may_act(folded_notes(notes), policy())
    # written once
    assert after_round(notes, policy(at_once=9), NOW + 120) == notes
    again = [*notes, approved()]
    assert may_act(folded_notes(again), policy())


def test_an_approved_policy_that_still_observes_is_about_to_be_switched_for_two_minutes() -> None:
    assert after_round([approved()], policy("Observe"), NOW + SWITCHING_SECONDS) == [approved()]
    notes = after_round([approved()], policy("Observe"), NOW + SWITCHING_SECONDS + 1)
    assert not may_act(folded_notes(notes), policy())


def test_an_approval_that_came_after_the_round_has_looked_stands() -> None:
    other = policy(at_once=9)
    ended = lapsed_approvals([other], folded_notes([approved()]).approvals, NOW)
    (row,) = rows_of((), "", (), Decisions(), NOW, ended)
    anew = LedgerNote(AutopilotEvent.ACT, "shop/nightly", NOW + 1, "ann", {"digest": other.digest})
    late = LedgerNote(row[0], row[1], NOW + 2, "manager", {k: str(v) for k, v in row[2].items()})
    assert may_act(folded_notes([approved(), anew, late]), other)


@pytest.mark.server
def test_who_may_not_write_the_policy_approves_and_resumes_nothing(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    cluster = AutopilotScene(control_plane, namespace, tmp_path)
    cluster.policy()
    cluster.service().pause(APPROVER, "incident")
    kubeconfig = applier(control_plane, namespace, "bob")  # may change workloads, and no policy and no switch

    @contextmanager
    def access(_who: Person) -> Iterator[KubeClient]:
        with closing(control_plane.client(kubeconfig)) as client:
            yield client

    service = ClusterAutopilotService(
        access, tmp_path / "ledger.db", cluster.settings, SystemClock(), lambda _namespace: []
    )
    before = cluster.events()
    with pytest.raises(ClusterForbidden):
        service.resume(APPROVER)
    with pytest.raises(ClusterForbidden, match="may not patch autopilotpolicies"):
        service.resume(APPROVER, WorkloadRef(namespace, "Deployment", "web"))
    # he may read the policy, and not write it
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": ["cotenant.dev"], "resources": ["autopilotpolicies"], "verbs": ["get"]}]
    path = f"/apis/{group}/v1/namespaces/{namespace}"
    control_plane.api().create(f"{path}/roles", {"metadata": {"name": "reads"}, "rules": rules})
    subject, reference = {"apiGroup": group, "kind": "User", "name": "bob"}, {"kind": "Role", "name": "reads"}
    binding = {"metadata": {"name": "reads"}, "roleRef": {"apiGroup": group, **reference}, "subjects": [subject]}
    control_plane.api().create(f"{path}/rolebindings", binding)
    await_right(control_plane, kubeconfig, ("get", "autopilotpolicies", "cotenant.dev", namespace))
    with pytest.raises(ClusterForbidden):
        service.act(APPROVER, f"{namespace}/nightly")
    assert cluster.events() == before == ["autopilot-paused"]
