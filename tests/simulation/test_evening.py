"""Who gets what capacity in the demo's evening: nodes of a hand-over, and the batch work that fills all others."""

from __future__ import annotations

from typing import Any

from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.protocol import RESERVATION_LABEL
from cotenant_lab.simulation.batch_load import Evening, ended_pods, filling_pods
from cotenant_lab.simulation.controllers.scheduler import NodeCapacity, assign_nodes

Json = dict[str, Any]
EVENING = 1_795_104_000  # 2026-11-19 16:00 UTC
TEN_TO_FORTY = Evening(EVENING, EVENING + 7 * 3600.0, 10, 40)


def pod(name: str, minute: int, **status: str) -> Json:
    """Asks for four cores; created in this minute of the evening."""
    labels = {RESERVATION_LABEL: "rank"} if status else {}
    meta = {"namespace": "feed", "name": name, "creationTimestamp": moment(EVENING + 60 * minute), "labels": labels}
    requests = {"resources": {"requests": {"cpu": "4"}}}
    return {"metadata": meta, "spec": {"containers": [{"name": "x", **requests}]}, "status": status}


def node(name: str, *only: str) -> NodeCapacity:
    """Has room for one pod of four cores."""
    return NodeCapacity(name, {}, {"cpu": 5000, "pods": 100}, only or None)


def placements(*places: NodeCapacity) -> dict[str, str]:
    """Of an elder pod and of the younger one that reserved capacity on node-1 is handed over to, which has no gate."""
    pods = [pod("elder", 0), pod("owner", 1, nominatedNodeName="node-1")]
    return {pod_body["metadata"]["name"]: where for pod_body, where in assign_nodes(pods, list(places))}


def test_while_capacity_is_handed_over_its_node_takes_no_other_pod() -> None:
    assert placements(node("node-1", "feed/owner")) == {"owner": "node-1", "elder": ""}
    assert placements(node("node-1", "feed/other")) == {"owner": "", "elder": ""}


def test_the_owner_of_reserved_capacity_goes_first_and_to_the_node_that_it_is_nominated_for() -> None:
    assert placements(node("node-1"), node("node-2")) == {"owner": "node-1", "elder": "node-2"}


def test_batch_work_leaves_the_capacity_alone_that_is_being_handed_over() -> None:
    pods = filling_pods([node("node-1", "feed/owner"), node("node-2")], EVENING)
    assert [pod_body["spec"]["nodeName"] for pod_body in pods] == ["node-2"]


def test_batch_pods_that_begin_together_end_one_by_one() -> None:
    pods = filling_pods([node(f"node-{i:03}") for i in range(16)], EVENING)
    for pod_body in pods:
        pod_body["metadata"]["creationTimestamp"] = moment(EVENING)
    done = [len(ended_pods(pods, EVENING + 60 * minute, TEN_TO_FORTY)) for minute in (9, 20, 30, 40)]
    # They take 10 to 40 minutes: of 16 about 5 end in every third of that, the first after the tenth minute.
    assert (done[0], done[3]) == (0, 16)
    assert done[1] >= 2
    assert done[2] - done[1] >= 2
    assert done[3] - done[2] >= 2
