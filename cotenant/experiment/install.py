"""The configuration of an installation with only colocation enabled and defaults for everything else. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.colocation.reclaim_policies import BY_FORECAST
from cotenant.enforcer.model.node_policy import Thresholds, decode
from cotenant.recommender.colocation.model.slo_config import SloConfig
from cotenant.recommender.colocation.model.slo_forms import FORMS, SloKey
from cotenant.recommender.colocation.strategy import ColocationConfig
from cotenant.scheduler_ext.extender.settings import ExtenderSettings

USAGE, FORECAST = "usage", "forecast"


@dataclass(frozen=True, slots=True)
class Install:
    """The configuration of every node: `strategy` of lending, thresholds of node agents, and rules of the extender."""

    strategy: ColocationStrategy
    agents: Thresholds
    extender: ExtenderSettings

    @property
    def lends_forecast(self) -> bool:
        """True if the amounts lent to batch are computed from a forecast of CPU usage."""
        return self.strategy.cpu_policy in BY_FORECAST


def switched_on(policy: str) -> dict[str, str]:
    """Return the data of ConfigMap slo-controller-config that enables only this reclaim policy and the node agents."""
    colocation = {"enable": True, "cpuCalculatePolicy": policy, "memoryCalculatePolicy": policy}
    return {
        SloKey.COLOCATION.value: json.dumps(colocation),
        SloKey.THRESHOLDS.value: json.dumps({"clusterStrategy": {"enable": True}}),
    }


@cache
def install_of(policy: str) -> Install:
    """Return the configuration with this reclaim policy enabled and defaults for everything else.

    The ConfigMap is evaluated as by the manager, and its NodeSLO as by the node agent.
    """
    data = switched_on(policy)
    config = SloConfig().updated(data)
    part = FORMS[SloKey.THRESHOLDS].part
    spec = {part: config.values(SloKey.THRESHOLDS, None, None)}
    strategy = ColocationConfig.parse(data[SloKey.COLOCATION.value]).resolve({}, {}).strategy
    return Install(strategy, decode(spec).thresholds, ExtenderSettings())
