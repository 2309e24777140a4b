"""A member that comes again after others of its Job have succeeded: those need no place any more, and it starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cotenant.base.controllers.loop import NOT_MADE
from cotenant.base.kube import EventRecorder, Regarding, connect
from cotenant.base.kubernetes.protocol import (
    GANG_GATE,
    PROFILE_GROUP,
    QUEUED_ANNOTATION,
    QUOTA_GATE,
    QUOTA_GROUP,
    RESERVATION_GATE,
)
from cotenant.base.kubernetes.quota_tree import NAME_LABEL
from cotenant.base.process.clock import FixedClock
from cotenant.scheduler_ext.queues.commands.live_queues import read_report
from cotenant.scheduler_ext.queues.decide import decide
from cotenant.scheduler_ext.queues.gangs.state import gangs_decided
from cotenant.scheduler_ext.queues.model.gang import MATCH_POLICY_ANNOTATION, POD_GROUP_LABEL
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.view import QueueView
from cotenant.settings import Settings
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.crds import install_crd
from tests.scheduler_ext.queues.embedded_cluster import NOW, EmbeddedCluster

GROUP = f"/apis/{QUOTA_GROUP}/namespaces/shop"

pytestmark = [pytest.mark.server]


class Cluster(EmbeddedCluster):
    """A node of 16 cores, and a gang `train` of which three pods start together."""

    kinds = (*EmbeddedCluster.kinds, "podgroups.scheduling.sigs.k8s.io")

    def group(self, policy: str = "once-satisfied") -> None:
        meta = {"name": "train", "annotations": {MATCH_POLICY_ANNOTATION: policy}}
        body = {"apiVersion": QUOTA_GROUP, "kind": "PodGroup", "metadata": meta, "spec": {"minMember": 3}}
        self.api.create(f"{GROUP}/podgroups", body)

    def pod(self, name: str, job: str, phase: str = "Pending", gates: tuple[str, ...] = ()) -> None:
        """A member of the gang that a Job owns, of one core."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job, "controller": True}
        labels = {POD_GROUP_LABEL: "train", NAME_LABEL: "research"}
        meta = {"name": name, "labels": labels, "ownerReferences": [owner]}
        meta |= {"annotations": {QUEUED_ANNOTATION: "research"}} if QUOTA_GATE in gates else {}
        containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "1"}}}]
        spec = {"containers": containers, "schedulingGates": [{"name": gate} for gate in gates]}
        self.api.create("/api/v1/namespaces/shop/pods", {"metadata": meta, "spec": spec})
        ended = [{"op": "add", "path": "/status/phase", "value": phase}]
        self.api.patch(f"/api/v1/namespaces/shop/pods/{name}/status", ended, "json")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with EmbeddedServer() as server:
        yield Cluster(server, tmp_path)


def reserved(view: QueueView) -> int:
    """Members for which capacity is being reserved."""
    creations = (i for i in gangs_decided(view, QueueSettings()).intents if i.address.resource == "reservations")
    return sum(1 for _ in creations)


@pytest.mark.parametrize(
    ("ended", "waiting", "policy", "expected"),
    [
        # two of three have done their work: one is left
        ([("one", "Succeeded"), ("one", "Succeeded"), ("one", "Failed")], 1, "once-satisfied", 1),
        # one has: the other two start together, or wait for each other
        ([("one", "Succeeded"), ("one", "Failed"), ("one", "Failed")], 2, "once-satisfied", 2),
        ([("one", "Succeeded"), ("one", "Failed"), ("one", "Failed")], 1, "once-satisfied", 0),
        # a gang that failed starts as a whole again
        ([("one", "Failed")] * 3, 1, "once-satisfied", 0),
        # so does that of another Job, which bears the same name
        ([("other", "Succeeded")] * 2, 1, "once-satisfied", 0),
        # where every batch has to have the minimum by itself, the others count for nothing
        ([("one", "Succeeded")] * 2, 1, "only-waiting", 0),
    ],
)
def test_members_that_succeeded_for_the_same_job_are_not_waited_for(
    cluster: Cluster, ended: list[tuple[str, str]], waiting: int, policy: str, expected: int
) -> None:
    cluster.group(policy)
    for number, (job, phase) in enumerate(ended):
        cluster.pod(f"ended-{number}", job, phase)
    for number in range(waiting):
        cluster.pod(f"again-{number}", "one", gates=(GANG_GATE, RESERVATION_GATE))
    assert reserved(cluster.view()) == expected


def test_its_quota_admits_it_alone(cluster: Cluster) -> None:
    cluster.group()
    spec = {"min": {"cpu": "4"}, "max": {"cpu": "4"}}
    body = {"apiVersion": QUOTA_GROUP, "kind": "ElasticQuota", "metadata": {"name": "research"}, "spec": spec}
    cluster.api.create(f"{GROUP}/elasticquotas", body)
    for number in range(2):
        cluster.pod(f"ended-{number}", "one", "Succeeded")
    cluster.pod("again", "one", gates=(QUOTA_GATE, GANG_GATE, RESERVATION_GATE))
    patched = [i.address.name for i in decide(cluster.view(), QueueSettings()).intents if i.address.resource == "pods"]
    assert patched == ["again"]


def test_what_could_not_be_made_for_a_gang_or_a_profile_is_said_where_queues_are_explained(cluster: Cluster) -> None:
    install_crd(cluster.api, "elasticquotaprofiles.quota.koordinator.sh")
    cluster.group()
    for number in range(3):
        cluster.pod(f"new-{number}", "one", gates=(GANG_GATE,))
    assert gang_reason(cluster) == "capacity is reserved for 0 of 3 members"
    spec = {"quotaName": "root-a", "nodeSelector": {"matchLabels": {"pool": "a"}}}
    body = {"apiVersion": PROFILE_GROUP, "kind": "ElasticQuotaProfile", "metadata": {"name": "a"}, "spec": spec}
    cluster.api.create(f"/apis/{PROFILE_GROUP}/namespaces/shop/elasticquotaprofiles", body)
    recorder = EventRecorder(connect(cluster.kube), "cotenant-manager", FixedClock(NOW))
    recorder.record(Regarding(QUOTA_GROUP, "PodGroup", "train", "shop"), NOT_MADE, "no Reservation here", warning=True)
    profile = Regarding(PROFILE_GROUP, "ElasticQuotaProfile", "a", "shop")
    recorder.record(profile, NOT_MADE, "no quota here", warning=True)
    recorder.record(profile, "Queue", "something else", warning=True)
    assert recorder.flush() == 3
    recorder.close()
    assert gang_reason(cluster) == "capacity is reserved for 0 of 3 members; no Reservation here"
    with closing(connect(cluster.kube)) as client:
        _, report = read_report(client, Settings(), NOW)
    assert ("elasticquotaprofiles/shop/a", "no quota here") in report.problems
    # Once the root is there, the Event is of the past.
    cluster.api.create(f"{GROUP}/elasticquotas", {"metadata": {"name": "root-a"}, "spec": {"max": {"cpu": "1"}}})
    with closing(connect(cluster.kube)) as client:
        _, report = read_report(client, Settings(), NOW)
    assert "no quota here" not in [why for _, why in report.problems]


def gang_reason(cluster: Cluster) -> str:
    with closing(connect(cluster.kube)) as client:
        _, report = read_report(client, Settings(), NOW)
    (gang,) = report.gangs
    return gang.reason
