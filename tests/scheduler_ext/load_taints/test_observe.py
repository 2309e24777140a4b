"""What is read of a node's taints: whether it takes pods, and how strictly ours keeps them away."""

from __future__ import annotations

import pytest

from cotenant.scheduler_ext.extender.metric import ExtenderNode
from cotenant.scheduler_ext.load_taints.decide import LoadEffect, effect_of, takes_pods

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "", "NoSchedule")
UNREADY = ("node.kubernetes.io/not-ready", "", "NoExecute")
DEDICATED = ("example.com/gpu", "yes", "NoSchedule")


@pytest.mark.parametrize(
    ("node", "takes"),
    [
        (ExtenderNode("n"), True),
        (ExtenderNode("n", unschedulable=True), False),
        (ExtenderNode("n", taints=(CONTROL_PLANE,)), False),
        (ExtenderNode("n", taints=(UNREADY,)), False),
        (ExtenderNode("n", taints=((*CONTROL_PLANE[:2], "PreferNoSchedule"),)), True),
        (ExtenderNode("n", taints=(DEDICATED, ("cotenant.dev/load", "", "NoSchedule"))), True),
    ],
)
def test_cordoned_unready_and_control_plane_nodes_take_no_pods_and_dedicated_ones_do(
    node: ExtenderNode, takes: bool
) -> None:
    assert takes_pods(node) is takes


@pytest.mark.parametrize(
    ("effects", "strictest"),
    [
        ((), LoadEffect.NONE),
        (("PreferNoSchedule",), LoadEffect.AVOIDED),
        (("PreferNoSchedule", "NoSchedule"), LoadEffect.REFUSED),
        (("NoExecute",), LoadEffect.REFUSED),  # by hand: it goes when the load does
    ],
)
def test_of_several_effects_of_our_taint_the_strictest_counts(effects: tuple[str, ...], strictest: LoadEffect) -> None:
    assert (
        effect_of(ExtenderNode("n", taints=tuple(("cotenant.dev/load", "", effect) for effect in effects))) is strictest
    )
