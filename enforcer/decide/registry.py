"""All strategies of the agent in order of precedence: of two values for a knob, the earlier strategy's applies.

A new strategy needs one line here. `strategies` returns those that the settings enable; an unknown name among the
disabled ones is a UsageError, because the strategy that was meant would continue to run.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from cotenant.base.errors import UsageError
from cotenant.enforcer.contract import Strategy
from cotenant.enforcer.settings import EnforcerSettings
from cotenant.enforcer.strategies.be_totals import BeTotals
from cotenant.enforcer.strategies.best_effort import BestEffort
from cotenant.enforcer.strategies.burst import Burst
from cotenant.enforcer.strategies.cpuset_pools import CpusetPools
from cotenant.enforcer.strategies.identity import GroupIdentity
from cotenant.enforcer.strategies.io import DiskLimits
from cotenant.enforcer.strategies.memory_qos import MemoryProtection
from cotenant.enforcer.strategies.network import Network
from cotenant.enforcer.strategies.normalisation import Normalisation
from cotenant.enforcer.strategies.resctrl import Resctrl
from cotenant.enforcer.strategies.system import KernelSettings

AnyStrategy: TypeAlias = Strategy[Any]


def every(settings: EnforcerSettings) -> tuple[AnyStrategy, ...]:
    """Return all strategies, configured by the settings, in order of precedence."""
    return (
        BestEffort(settings.best_effort),
        CpusetPools(settings.best_effort_pools),
        BeTotals(),
        Normalisation(),
        Burst(),
        GroupIdentity(),
        MemoryProtection(),
        DiskLimits(),
        Resctrl(),
        Network(),
        KernelSettings(settings.kernel_reserves),
    )


def strategies(settings: EnforcerSettings) -> tuple[AnyStrategy, ...]:
    """Return the enabled strategies; raise UsageError if `strategies_off` names an unknown strategy."""
    all_strategies = every(settings)
    names = {strategy.name for strategy in all_strategies}
    if unknown := sorted(set(settings.strategies_off) - names):
        raise UsageError(
            f"enforcer.strategies_off names {unknown[0]!r}: no such strategy",
            fix=f"The strategies are: {', '.join(sorted(names))}.",
        )
    return tuple(strategy for strategy in all_strategies if strategy.name not in settings.strategies_off)
