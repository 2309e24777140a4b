"""What an install does that switches colocation on and sets nothing else, by the shipped defaults alone. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.colocation.reclaim_policies import BY_FORECAST
from cotenant.base.settings.sections.extender import ExtenderSettings
from cotenant.enforcer.model.node_policy import Thresholds, decode
from cotenant.recommender.colocation.model.slo_config import SloConfig
from cotenant.recommender.colocation.model.slo_forms import FORMS, SloKey
from cotenant.recommender.colocation.strategy import ColocationConfig

USAGE, FORECAST = "usage", "forecast"


@dataclass(frozen=True, slots=True)
class Install:
    """What is in force on every node: the strategy of what is lent, thresholds of its agent, the extender's rules."""

    strategy: ColocationStrategy
    agents: Thresholds
    extender: ExtenderSettings

    @property
    def lends_forecast(self) -> bool:
        """Whether nodes say that their batch CPU is what a forecast leaves."""
        return self.strategy.cpu_policy in BY_FORECAST


def switched_on(policy: str) -> dict[str, str]:
    """Data of slo-controller-config: this policy of CPU and memory, agents on, nothing else."""
    colocation = {"enable": True, "cpuCalculatePolicy": policy, "memoryCalculatePolicy": policy}
    return {
        SloKey.COLOCATION.value: json.dumps(colocation),
        SloKey.THRESHOLDS.value: json.dumps({"clusterStrategy": {"enable": True}}),
    }


@cache
def install_of(policy: str) -> Install:
    """By way of what the manager makes of the ConfigMap, and the node agent of its NodeSLO."""
    data = switched_on(policy)
    config = SloConfig().updated(data)
    part = FORMS[SloKey.THRESHOLDS].part
    spec = {part: config.values(SloKey.THRESHOLDS, None, None)}
    strategy = ColocationConfig.parse(data[SloKey.COLOCATION.value]).resolve({}, {}).strategy
    return Install(strategy, decode(spec).thresholds, ExtenderSettings())
