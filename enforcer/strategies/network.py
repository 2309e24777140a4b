"""Network: classes of outgoing traffic on the node's uplink, one for each QoS class that is on.

A class gets at least its egressRequest and at most its egressLimit; unused bandwidth goes to LSE and LSR first, then to
LS, and to BE last. Numbers are percent of the node's bandwidth, texts are bits per second; 0 = no guarantee, no limit.
The node's bandwidth is the policy's totalNetworkBandwidth, else the link speed of the network card. A packet belongs to
the class of the pod with its source address; pods on the host's network have no address of their own and are not
shaped, like the node itself. It needs mechanism `tc`. Incoming traffic is not shaped: before it can be delayed it has
already used the link. Source: Koordinator's koordlet, hook `tcnetworkqos`.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.kubernetes.quantity import parse_bytes
from cotenant.enforcer.contract import (
    Observation,
    PodSpec,
    Stateless,
    Step,
    StrategyPlan,
    Surface,
    SurfaceWant,
    Traffic,
    TrafficClass,
    Verdict,
    text_of,
)
from cotenant.enforcer.decide.overrides import class_of, live
from cotenant.enforcer.model.node_policy import NodePolicy

NAME: Final = "network"
LEAST_BITS: Final = 8_000
"""Guaranteed rate of a class without a request: a thousand bytes a second."""
NO_UPLINK: Final = "UplinkUnknown"
UNKNOWN_LINK: Final = "BandwidthUnknown"
_CLASSES: Final = ((QosClass.LSR, 0x10, 0), (QosClass.LS, 0x20, 1), (QosClass.SYSTEM, 0x40, 2), (QosClass.BE, 0x30, 7))
"""(class, number below the root, priority)."""


@dataclass(frozen=True, slots=True)
class Network(Stateless):
    """The strategy that shapes outgoing traffic."""

    name: str = NAME

    def step(self, observation: Observation, policy: NodePolicy, state: None) -> Step[None]:
        """Return the uplink's traffic classes if mechanism `tc` is on; a verdict if its link or speed is unknown."""
        node, link = observation.node.name, observation.node.uplink
        on = [row for row in _CLASSES if policy.classes.of(row[0]).network_qos.enable]
        if not on or policy.classes.policies.net_qos_policy != "tc":
            return Step(StrategyPlan(), state)
        if link is None:
            why = "the agent is not on the host's network, or there is no default route: traffic is not shaped"
            return Step(StrategyPlan(verdicts=(Verdict(node, NO_UPLINK, f"{node}: {why}", warning=True),)), state)
        total = total_bits(policy) or link.bits_per_second
        if total <= 0:
            why = f"{link.device} does not report its speed and the policy has no totalNetworkBandwidth"
            return Step(StrategyPlan(verdicts=(Verdict(node, UNKNOWN_LINK, f"{node}: {why}", warning=True),)), state)
        pods = [p.spec for p in observation.pods if live(p.spec)]
        classes = []
        for name, number, priority in on:
            qos = policy.classes.of(name).network_qos
            most = min(bits(qos.egress_limit, total) or total, total)
            least = min(max(bits(qos.egress_request, total), LEAST_BITS), max(most, LEAST_BITS))
            owned = addresses(pods, name)
            classes.append(TrafficClass(name.value, number, least, max(most, LEAST_BITS), priority, owned))
        value = text_of(Traffic(total, tuple(classes)))
        want = SurfaceWant(Surface.TRAFFIC, link.device, value, NAME, "classes of outgoing traffic")
        return Step(StrategyPlan(surfaces=(want,)), state)


def total_bits(policy: NodePolicy) -> int:
    """Return the node's bandwidth in the policy, in bits per second; 0 if it is not set."""
    bandwidth = policy.system.total_network_bandwidth
    return bandwidth if isinstance(bandwidth, int) else parse_bytes(bandwidth, "totalNetworkBandwidth")


def bits(amount: int | str, total: int) -> int:
    """Return a bandwidth setting in bits per second: an integer is percent of `total`, a text is a quantity."""
    return total * amount // 100 if isinstance(amount, int) else parse_bytes(amount, "network bandwidth")


def addresses(pods: Iterable[PodSpec], qos: QosClass) -> tuple[str, ...]:
    """Return the valid addresses, sorted, of a class's pods that are not on the host's network."""
    valid = set()
    for pod in pods:
        own = QosClass.LSR if class_of(pod) is QosClass.LSE else class_of(pod)
        for address in pod.addresses if own is qos and not pod.host_network else ():
            with contextlib.suppress(ValueError):
                if "%" not in address and ipaddress.ip_address(address):
                    valid.add(address)
    return tuple(sorted(valid))
