"""What an install does that switches colocation on and sets nothing else, by the shipped defaults alone. Pure."""

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
    """The installation on every node.

    strategy: of what is lent; agents: thresholds of the node's agent; extender: the extender's rules.
    """

    strategy: ColocationStrategy
    agents: Thresholds
    extender: ExtenderSettings

    @property
    def lends_forecast(self) -> bool:
        """True if nodes declare that their batch CPU is what a forecast leaves."""
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
    """Return the install that switches this policy on, with the shipped defaults for everything else.

    The ConfigMap is evaluated as the manager does, and its NodeSLO as the node agent does.
    """
    data = switched_on(policy)
    config = SloConfig().updated(data)
    part = FORMS[SloKey.THRESHOLDS].part
    spec = {part: config.values(SloKey.THRESHOLDS, None, None)}
    strategy = ColocationConfig.parse(data[SloKey.COLOCATION.value]).resolve({}, {}).strategy
    return Install(strategy, decode(spec).thresholds, ExtenderSettings())
