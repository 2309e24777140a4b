"""A reserve that outlives the pods: all are replaced, and then a node fails."""

from __future__ import annotations

from typing import Any

from cotenant.scheduler_ext.cluster_size.decide import decide_size
from cotenant.scheduler_ext.cluster_size.model import SizedCluster, SizedNode, SizeOptions
from tests.scheduler_ext.cluster_size.two_nodes import node, pod, state

ONE_NODE = SizeOptions(reserve_nodes=1)


def requesting(cpu: str) -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}]}


def packed_today(*nodes: SizedNode) -> SizedCluster:
    """Node a with a pod of 3 cores, c with four of one core, the others empty."""
    pods = [pod("large", "a", requesting("3")), *(pod(f"small-{n}", "c", requesting("1")) for n in range(4))]
    return state(list(nodes), pods)


def nodes_of_four_cores(names: str) -> list[SizedNode]:
    return [node(name) for name in names]


def test_a_node_stays_that_the_largest_pod_needs_once_the_pods_have_been_replaced() -> None:
    # On a, b and c the reserve is there today: the large pod would go to b, the small ones to b and a. Replaced by a
    # scheduler that levels, the small ones leave 2 cores free on each of two nodes, and the large one waits when its
    # node fails. On four nodes two of them keep 3 cores free.
    assert len(decide_size(packed_today(*nodes_of_four_cores("abcd"))).leaving) == 2  # 7 cores fit on two nodes
    assert decide_size(packed_today(*nodes_of_four_cores("abcd")), ONE_NODE).leaving == ()


def test_a_node_may_leave_that_would_not_help_the_replaced_pods_either() -> None:
    # As above, and the node that could leave has no room for any of the pods: the whole cluster fails the trial too.
    tiny = node("tiny", {"cpu": "500m", "memory": "8Gi", "pods": "10"})
    size = decide_size(packed_today(*nodes_of_four_cores("abc"), tiny), ONE_NODE)
    assert [leaving.name for leaving in size.leaving] == ["tiny"]


def test_a_pod_without_a_controller_is_not_replaced() -> None:
    # The small ones on c, whose controllers nobody knows, stay together there: b has 4 cores for the large pod.
    pods = [pod("large", "a", requesting("3"))]
    pods += [pod(f"small-{n}", "c", requesting("1"), owners=[]) for n in range(4)]
    pods += [pod("kept-a", "a", requesting("500m"), owners=[])]
    size = decide_size(state(nodes_of_four_cores("abcd"), pods), ONE_NODE)
    assert len(size.leaving) == 1
