"""A machine of two sockets of which pods have some CPUs and a GPU, and a service that gives it out."""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.base.allocation.cpu_ownership import DeviceOwnership, NodeTopology, owners, visible_to
from cotenant.base.allocation.cpu_topology import regular_topology
from cotenant.base.allocation.topology_document import NodeCpus, PodCpus
from cotenant.base.errors import CotenantError
from cotenant.base.people import Person

PODS = (PodCpus("shop", "web-0", "u0", frozenset({0, 8})), PodCpus("etl", "join", "u1", frozenset({4, 5, 12, 13})))
CPUS = NodeCpus(regular_topology(2, 4, 2), kubelet_reserved=frozenset({15}), pods=PODS)
GPU = DeviceOwnership("gpu 0", "GPU-a", "NUMA node 0", "60 % free", (("etl/join", 40),))
MACHINE = NodeTopology("n", tuple(owners(CPUS, {}, "n")), (GPU,), (("shop/odd", "left out: shop/odd"),))


@dataclass
class FixedTopologies:
    """The same machine for every node, or an error; counts how often it was asked."""

    trouble: CotenantError | None = None
    questions: int = 0

    def topology(self, who: Person, node: str) -> NodeTopology:  # noqa: ARG002 - the service's signature
        self.questions += 1
        if self.trouble is not None:
            raise self.trouble
        return visible_to(MACHINE, who)
