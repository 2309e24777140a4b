"""The node's own kernel settings: memory reserves (how early the kernel starts to reclaim), vendor kernels' switches.

    vm.min_free_kbytes       = memory of the machine in KiB * minFreeKbytesFactor // 10000
    vm.watermark_scale_factor = watermarkScaleFactor
    memcgReapBackGround, pageCacheLimitEnabled, schedGroupIdentityEnabled, schedIdleSaverWmark, schedFeatures:
        as they are, where the kernel has them; what is not set (memcgReapBackGround: 0) leaves the kernel as it is

It is off by default, and then writes nothing, because it changes the machine and not pods. A reserve of more than a
twentieth of the memory is not written: it would leave the machine too little to run, and is a mistake. Source:
Koordinator's koordlet, `sysreconcile` (its gate is off by default as well).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cotenant.base.resource import KIB
from cotenant.enforcer.contract import Observation, Stateless, Step, StrategyPlan, Surface, SurfaceWant, Verdict
from cotenant.enforcer.model import node_policy
from cotenant.enforcer.model.node_policy import NodePolicy

NAME: Final = "system"
MIN_FREE: Final = "vm/min_free_kbytes"
SCALE: Final = "vm/watermark_scale_factor"
FACTOR_WHOLE: Final = 10_000
LARGEST_PART: Final = 20
TOO_MUCH: Final = "ReserveTooLarge"


@dataclass(frozen=True, slots=True)
class KernelSettings(Stateless):
    """The strategy that sets the machine's kernel settings; `on`: whether the node's settings enable it."""

    on: bool = False
    name: str = NAME

    def step(self, observation: Observation, policy: NodePolicy, state: None) -> Step[None]:
        """Return the kernel settings if enabled; report a reserve that is too large, skip what this kernel lacks."""
        if not self.on:
            return Step(StrategyPlan(), state)
        node, system = observation.node, policy.system
        total = node.memory_total_bytes // KIB
        switches = (switch for switch in switches_of(system) if switch.key in node.kernel_switches)
        wants = [_want(SCALE, system.watermark_scale_factor, "policy's watermark scale")]
        wants += [_want(switch.key, switch.value, f"policy's {switch.field}") for switch in switches]
        reserve = total * system.min_free_kbytes_factor // FACTOR_WHOLE
        if reserve * LARGEST_PART > total:
            message = f"{node.name}: {reserve} KiB, over a twentieth of the memory of {total} KiB, are not reserved"
            verdict = Verdict(node.name, TOO_MUCH, message, warning=True)
            return Step(StrategyPlan(surfaces=tuple(wants), verdicts=(verdict,)), state)
        why = f"{system.min_free_kbytes_factor} / {FACTOR_WHOLE} of the machine's memory, {total} KiB"
        return Step(StrategyPlan(surfaces=(_want(MIN_FREE, reserve, why), *wants)), state)


@dataclass(frozen=True, slots=True)
class KernelSwitch:
    """A vendor kernel's switch that the policy sets: its key in `apply.sysctl`, and its field of the NodeSLO."""

    key: str
    value: int | str
    field: str


def switches_of(system: node_policy.System) -> tuple[KernelSwitch, ...]:
    """Return the kernel switches that a policy sets, keyed as in `apply.sysctl`, whether this kernel has them or not.

    A field that is not set makes no switch, and neither does memcgReapBackGround if it is 0, its default.
    """
    policy_values = {
        "memcgReapBackGround": ("sysfs/kernel/mm/memcg_reaper/reap_background", system.memcg_reap_back_ground or None),
        "pageCacheLimitEnabled": ("sysfs/kernel/mm/pagecache_limit/enabled", system.page_cache_limit_enabled),
        "schedGroupIdentityEnabled": ("kernel/sched_group_identity_enabled", system.sched_group_identity_enabled),
        "schedIdleSaverWmark": ("kernel/sched_idle_saver_wmark", system.sched_idle_saver_wmark),
    }
    numbers = (
        KernelSwitch(key, value, f"systemStrategy.{name}")
        for name, (key, value) in policy_values.items()
        if value is not None
    )
    features = (
        KernelSwitch(f"sched_features/{name}", name if on else f"NO_{name}", f"systemStrategy.schedFeatures.{name}")
        for name, on in sorted((system.sched_features or {}).items())
    )
    return (*numbers, *features)


def _want(key: str, value: int | str, why: str) -> SurfaceWant:
    return SurfaceWant(Surface.SYSCTL, key, str(value), NAME, why)
