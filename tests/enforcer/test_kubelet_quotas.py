"""Whether a kubelet sets CPU quotas is seen on its pods: no file on the node says it for certain."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import NO_LIMIT, Knob, KubeQos, PodReading
from cotenant.enforcer.decide.kubelet_values import sets_no_quotas
from tests.enforcer.readings import MIB, container, node, observation_of, pod

LIMIT = {"cpu": 500, "memory": 64 * MIB}


@pytest.mark.parametrize(
    ("quotas", "in_file", "off"),
    [
        ([NO_LIMIT, NO_LIMIT], False, True),  # an option, or a file that is not ours to read
        ([NO_LIMIT, 50_000], False, False),  # somebody took one away
        ([50_000], True, False),  # an option goes before the file
        ([], True, True),
        ([], False, False),
    ],
)
def test_whether_the_kubelet_sets_quotas_is_seen_on_the_pods_with_a_limit(
    quotas: list[int], in_file: bool, off: bool
) -> None:
    def web(name: str, quota: int, **others: Any) -> PodReading:
        return pod(name, container(limits=LIMIT), knobs={Knob.CPU_QUOTA: quota}, **others)

    limited = [web(f"web-{number}", quota) for number, quota in enumerate(quotas)]
    # of these the quota is ours, or none under some kubelets that set quotas, or there is no limit
    others = [
        web("job", 20_000 if off else NO_LIMIT, qos=QosClass.BE),
        web("db", NO_LIMIT, qos=QosClass.LSR, kube=KubeQos.GUARANTEED),
        pod("free", container(), knobs={Knob.CPU_QUOTA: NO_LIMIT}),
    ]
    observation = observation_of(*others, *limited, machine=node(kubelet_quotas_off=in_file))
    assert sets_no_quotas(observation) is off
