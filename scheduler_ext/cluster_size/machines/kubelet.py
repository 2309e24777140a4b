"""The amounts that a provider's node offers to pods: the machine's capacity less its kubelet's reserve. Pure.

Sources: eksctl and the AMI of EKS (60 m of the first core, 10 m of the second, 5 m of the third and fourth, 2.5 m of
each further one; 255 MiB and 11 MiB a pod), "Plan GKE Standard node sizes", "Resource reservations in AKS" (Kubernetes
1.29 and later). Each reserves 100 MiB as eviction threshold. Amounts are in millicores and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from cotenant.base.resource import GIB, MIB

EVICTION: Final = 100 * MIB
GKE_PODS: Final = 110  # pods a node beyond which GKE keeps 400 millicores more
_AKS_CPU: Final = ((1, 60), (2, 100), (4, 140), (8, 180), (16, 260), (32, 420), (64, 740))


class Machine(NamedTuple):
    """A machine's capacity: millicores, bytes and pods."""

    cpu: int
    memory: int
    pods: int


def allocatable_of(provider: str, machine: Machine) -> Machine | None:
    """Return what a node on this machine offers to pods, never below 0; None if the provider's rule is unknown."""
    rule = _RULES.get(provider)
    if rule is None:
        return None
    cpu, memory = rule(machine)
    return Machine(max(machine.cpu - cpu, 0), max(machine.memory - memory - EVICTION, 0), machine.pods)


def _shared_cpu(millicores: int) -> int:
    """Return the millicores that EKS and GKE reserve: 6 % of the first core, 1 %, 0.5 % of two, then 0.25 %."""
    parts = ((1_000, 60), (1_000, 10), (2_000, 5))
    reserved, rest = 0.0, millicores
    for size, per_core in parts:
        reserved += min(rest, size) / 1_000 * per_core
        rest -= min(rest, size)
    return round(reserved + rest / 1_000 * 2.5)


def _eks(machine: Machine) -> tuple[int, int]:
    return _shared_cpu(machine.cpu), (255 + 11 * machine.pods) * MIB


def _gke(machine: Machine) -> tuple[int, int]:
    """Reserved memory: 25 % of the first 4 GiB, 20 % of the next 4, 10 % of 8, 6 % of 112, 2 % of the rest."""
    if machine.memory < GIB:
        return _shared_cpu(machine.cpu), 255 * MIB
    reserved, rest = 0.0, machine.memory
    for size, share in ((4, 0.25), (4, 0.20), (8, 0.10), (112, 0.06)):
        reserved += min(rest, size * GIB) * share
        rest -= min(rest, size * GIB)
    return _shared_cpu(machine.cpu) + (400 if machine.pods > GKE_PODS else 0), round(reserved + rest * 0.02)


def _aks(machine: Machine) -> tuple[int, int]:
    """Reserved CPU by a table, rounded up to its next row; memory: 20 MB a pod and 50 MB, at most a quarter."""
    cpu = next((reserved for cores, reserved in _AKS_CPU if machine.cpu <= cores * 1_000), _AKS_CPU[-1][1])
    return cpu, round(min(20e6 * machine.pods + 50e6, machine.memory / 4))


_RULES: Final[Mapping[str, Callable[[Machine], tuple[int, int]]]] = {"eks": _eks, "gke": _gke, "aks": _aks}
PROVIDERS: Final = tuple(_RULES)
PROVIDER_LABELS: Final = {
    "eks.amazonaws.com/nodegroup": "eks",
    "k8s.io/cloud-provider-aws": "eks",
    "cloud.google.com/gke-nodepool": "gke",
    "kubernetes.azure.com/cluster": "aks",
}
"""Labels of nodes that indicate their provider."""


def provider_of(labels: Mapping[str, str]) -> str:
    """Return the provider that a node's labels indicate; "" if they indicate none."""
    return next((provider for label, provider in PROVIDER_LABELS.items() if label in labels), "")
