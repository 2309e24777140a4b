"""Classes of outgoing traffic: promises, limits, members."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.models.pod import NodePodWire
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import KubeQos, PodReading, StrategyPlan, Surface, Traffic, Uplink, values_of
from cotenant.enforcer.sources.wire import pod_of
from cotenant.enforcer.strategies.network import Network, addresses
from tests.enforcer.readings import node, observation_of, pod, policy

GIGABIT = Uplink("eth0", 1_000_000_000)


def rules(total: int | str = 0, how: str | None = "tc", **classes: dict[str, Any]) -> Any:
    of = {f"{name}Class": {"networkQOS": {"enable": True, **values}} for name, values in classes.items()}
    mechanisms = {"netQOSPolicy": how} if how else {}
    return policy(
        {
            "resourceQOSStrategy": {"policies": mechanisms, **of},
            "systemStrategy": {"totalNetworkBandwidth": total},
        }
    )


def decided(of: Any, *pods: PodReading, link: Uplink | None = GIGABIT) -> StrategyPlan:
    return Network().step(observation_of(*pods, machine=node(uplink=link)), of, None).plan


def traffic(plan: StrategyPlan) -> Traffic:
    ((device, traffic_surface),) = values_of(plan.surfaces, Surface.TRAFFIC, Traffic)
    assert device == "eth0"
    return traffic_surface


def test_numbers_are_percent_and_texts_bits_per_second() -> None:
    of = rules(ls={"egressRequest": 40}, be={"egressRequest": "50M", "egressLimit": 30})
    limits = traffic(decided(of))
    assert limits.total == 1_000_000_000
    # LS: 40 % of 1 Gbit/s promised, no limit; BE: 50 Mbit/s promised, 30 % at most, served last.
    assert [(c.name, c.least, c.most) for c in limits.classes] == [
        ("LS", 400_000_000, 1_000_000_000),
        ("BE", 50_000_000, 300_000_000),
    ]
    assert limits.classes[0].priority < limits.classes[1].priority


@pytest.mark.parametrize(("total", "bits"), [("100M", 100_000_000), (5000000, 5_000_000), ("0", 1_000_000_000)])
def test_the_policys_total_beats_the_cards(total: int | str, bits: int) -> None:
    assert traffic(decided(rules(total, be={"egressLimit": 50}))).total == bits


def test_a_promise_is_never_above_the_limit_and_a_limit_never_above_the_link() -> None:
    of = rules(be={"egressRequest": 80, "egressLimit": 20}, ls={"egressLimit": "9G"})
    assert [(c.least, c.most) for c in traffic(decided(of)).classes] == [
        (8_000, 1_000_000_000),
        (200_000_000, 200_000_000),
    ]


def test_members_are_pods_with_addresses_of_their_own() -> None:
    pods = [
        pod("a", qos=QosClass.LSE, addresses=("10.0.0.3",)),
        pod("b", qos=QosClass.LSR, addresses=("10.0.0.2", "fd00::2")),
        pod("c", qos=QosClass.LSR, addresses=("10.1.1.1",), host_network=True),
        pod("d", qos=QosClass.LSR, addresses=("10.0.0.9",), phase="Succeeded"),
        pod("e", kube=KubeQos.BEST_EFFORT, addresses=("10.0.0.4",)),
    ]
    limits = traffic(decided(rules(lsr={}, be={}), *pods))
    assert {c.name: c.addresses for c in limits.classes} == {
        "LSR": ("10.0.0.2", "10.0.0.3", "fd00::2"),
        "BE": ("10.0.0.4",),
    }


def test_addresses_come_from_the_pods_status() -> None:
    wire = {
        "metadata": {"name": "a", "uid": "u-a", "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {"hostNetwork": False},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}]},
    }
    assert addresses([pod_of(msgspec.convert(wire, NodePodWire))], QosClass.BE) == ("10.0.0.7", "fd00::7")


@pytest.mark.parametrize("how", [None, "terway-qos"])
def test_only_by_tc(how: str | None) -> None:
    assert decided(rules(how=how, be={"egressLimit": 20})) == StrategyPlan()


def test_off_no_link_and_no_speed_are_different_answers() -> None:
    assert decided(rules()) == StrategyPlan()
    assert decided(rules(), link=None) == StrategyPlan()
    assert [v.reason for v in decided(rules(be={}), link=None).verdicts] == ["UplinkUnknown"]
    plan = decided(rules(be={}), link=Uplink("eth0"))
    assert (plan.surfaces, [v.reason for v in plan.verdicts]) == ((), ["BandwidthUnknown"])


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=20) | st.sampled_from(["10.0.0.1", "fe80::1%eth0", "10.0.0.1; drop", "::ffff:1.2.3.4"]))
def test_only_addresses_become_members(text: str) -> None:
    texts = addresses([pod("a", qos=QosClass.BE, addresses=(text,)).spec], QosClass.BE)
    assert all(set(a) <= set("0123456789abcdefABCDEF:.") for a in texts)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 400 * 10**9))
def test_rates_are_ones_that_htb_takes(request: int, limit: int, total: int) -> None:
    (traffic_class,) = traffic(decided(rules(total, be={"egressRequest": request, "egressLimit": limit}))).classes
    assert 8_000 <= traffic_class.least <= traffic_class.most <= max(total, 8_000)
