"""The configuration of an installation that only enables colocation, with the shipped defaults. Pure."""

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
    """The configuration that applies to every node.

    `strategy`: what nodes lend; `agents`: thresholds of the node agent; `extender`: the extender's rules.
    """

    strategy: ColocationStrategy
    agents: Thresholds
    extender: ExtenderSettings

    @property
    def lends_forecast(self) -> bool:
        """True if nodes declare that their batch CPU is computed from a forecast."""
        return self.strategy.cpu_policy in BY_FORECAST


def switched_on(policy: str) -> dict[str, str]:
    """Return the data of slo-controller-config that only enables this policy for CPU and memory, and the agents."""
    colocation = {"enable": True, "cpuCalculatePolicy": policy, "memoryCalculatePolicy": policy}
    return {
        SloKey.COLOCATION.value: json.dumps(colocation),
        SloKey.THRESHOLDS.value: json.dumps({"clusterStrategy": {"enable": True}}),
    }


@cache
def install_of(policy: str) -> Install:
    """Return the configuration with this policy enabled and the shipped defaults for everything else.

    The ConfigMap is evaluated as by the manager, and its NodeSLO as by the node agent.
    """
    data = switched_on(policy)
    config = SloConfig().updated(data)
    part = FORMS[SloKey.THRESHOLDS].part
    spec = {part: config.values(SloKey.THRESHOLDS, None, None)}
    strategy = ColocationConfig.parse(data[SloKey.COLOCATION.value]).resolve({}, {}).strategy
    return Install(strategy, decode(spec).thresholds, ExtenderSettings())
