"""EDGE: cotenant's taints on nodes: the live node is read, so that its other taints do not change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.intent import Patch
from cotenant.base.kubernetes.models.node import TaintedNode
from cotenant.base.kubernetes.node_taints import NODES, node_address, taint_patch, untaint_patch


@dataclass(frozen=True, slots=True)
class NodeTaints:
    """A writer of the taints with one key on the nodes of a cluster."""

    client: KubeClient
    key: str

    def patch(self, name: str, effect: str, why: str) -> Patch | None:
        """Return the patch that sets the taint, or removes it (effect ""); None if the node is gone or up to date."""
        node = self.client.get(node_address(name).path, TaintedNode)
        if node is None:
            return None
        return taint_patch(node, self.key, why, effect=effect) if effect else untaint_patch(node, (self.key,), why)

    def withdrawn(self, why: str) -> Iterator[Patch]:
        """Yield the patches that remove the taint from every node that has it."""
        for node in self.client.list(NODES, TaintedNode):
            patch = untaint_patch(node, (self.key,), why)
            if patch is not None:
                yield patch
