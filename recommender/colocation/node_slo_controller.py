"""EDGE: the controller of NodeSLO: reads mirrors, calls `node_slo.decide`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cotenant.base.controllers.contract import ControllerDecision
from cotenant.base.controllers.loop import Changes, Feature
from cotenant.base.controllers.watched import WatchedNode
from cotenant.base.kube import Mirror
from cotenant.base.kubernetes.intent import Outcome
from cotenant.base.kubernetes.models.metadata import ConfigMapObject
from cotenant.base.kubernetes.protocol import NETWORK_BANDWIDTH_ANNOTATION, SLO_CONFIG_MAP
from cotenant.recommender.colocation.model.slo_config import SloConfig
from cotenant.recommender.colocation.node_slo import LabelledNode, NodeSloView, decide


def config_data(configs: Mirror[ConfigMapObject]) -> dict[str, str] | None:
    """The texts of slo-controller-config; None when there is no such ConfigMap."""
    config = next((c for (_, name), c in configs.snapshot().items() if name == SLO_CONFIG_MAP), None)
    return (config.data or {}) if config else None


class NodeSloController(Feature):
    """Feature `node-slo`."""

    name = "node-slo"
    needs: tuple[str, ...] = ("config", "nodes", "nodeslos")

    def __init__(
        self, mirrors: Mapping[str, Mirror[Any]], interval_seconds: float, take_over: Collection[str] = ()
    ) -> None:
        """Create a controller that knows nothing of the cluster yet.

        take_over: field managers that no longer write, so that their values are replaced.
        """
        self.interval_seconds = interval_seconds
        self._mirrors = mirrors
        self._take_over = frozenset(take_over)
        self._config = SloConfig()

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - the loop's signature
        """One NodeSLO a node, where it differs from what the ConfigMap says for it."""
        self._config = self._config.updated(config_data(self._mirrors["config"]))
        nodes: Mapping[tuple[str, str], WatchedNode] = self._mirrors["nodes"].snapshot()
        slos = {name: slo for (_, name), slo in self._mirrors["nodeslos"].snapshot().items()}
        labelled = tuple(
            LabelledNode(n.owned, n.node.labels, n.node.annotations.get(NETWORK_BANDWIDTH_ANNOTATION, ""))
            for n in nodes.values()
        )
        return decide(NodeSloView(self._config, labelled, slos, self._take_over))

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        """The mirror shows what was written."""
