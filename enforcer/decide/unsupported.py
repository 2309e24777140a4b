"""Fields of the policy that have no effect on this node, for the status. Pure.

Switches of vendor kernels are accepted and published for every node; if the kernel lacks the file, nothing is written,
and the field is listed here, with those that this agent does not implement.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from cotenant.enforcer.contract import Knob, Observation
from cotenant.enforcer.model.node_policy import ClassPolicy, IoLimits, MemoryQos, NodePolicy
from cotenant.enforcer.strategies.system import switches_of

MEMORY_KNOBS: Final[dict[str, Knob]] = {
    "min_limit_percent": Knob.MEMORY_MIN,
    "low_limit_percent": Knob.MEMORY_LOW,
    "throttling_percent": Knob.MEMORY_HIGH,
    "oom_kill_group": Knob.MEMORY_OOM_GROUP,
    "wmark_ratio": Knob.MEMORY_WMARK_RATIO,
    "wmark_min_adj": Knob.MEMORY_WMARK_MIN_ADJ,
    "priority_enable": Knob.MEMORY_USE_PRIORITY_OOM,
    "page_cache_enable": Knob.PAGE_CACHE_LIMIT_ENABLE,
    "page_cache_limit_bytes": Knob.PAGE_CACHE_LIMIT,
    "page_cache_limit_percent": Knob.PAGE_CACHE_LIMIT,
    "page_cache_reclaim_sync": Knob.PAGE_CACHE_LIMIT_SYNC,
}
"""Fields of memoryQOS that have no effect while they are unset, 0 or false, and the knob that each is written to."""
IO_FIELDS: Final = tuple(
    name
    for name in IoLimits.__struct_fields__
    if name.startswith(("model_", "enable_user_model", "read_latency", "write_latency"))
)
"""Names of IoLimits' fields for latency targets and cost models of disks."""


class Unsupported(msgspec.Struct, frozen=True):
    """A field of the NodeSLO's spec that has no effect on this node, and why."""

    field: str
    why: str


def find_unsupported(policy: NodePolicy, observation: Observation, switches_on: bool) -> tuple[Unsupported, ...]:
    """Return the policy's fields without effect; `switches_on`: whether the agent may change kernel settings."""
    unsupported = []
    for switch in switches_of(policy.system):
        if not switches_on:
            unsupported.append(Unsupported(switch.field, "not written: enforcer.kernel_reserves is off on this node"))
        elif switch.key not in observation.node.kernel_switches:
            why = f"unsupported: this kernel has no {switch.key}, or the agent cannot read it"
            unsupported.append(Unsupported(switch.field, why))
    unsupported += _classes(policy, observation)
    for application in policy.host_applications:
        if application.strategy:
            field = f"hostApplications[{application.name}].strategy"
            why = "unsupported: a host application's usage is counted, but no strategy is applied to it"
            unsupported.append(Unsupported(field, why))
    return tuple(unsupported)


def _classes(policy: NodePolicy, observation: Observation) -> Iterator[Unsupported]:
    classes = policy.classes
    parts: dict[str, ClassPolicy | None] = {
        "lsrClass": classes.lsr_class,
        "lsClass": classes.ls_class,
        "beClass": classes.be_class,
        "systemClass": classes.system_class,
        "cgroupRoot": classes.cgroup_root,
    }
    for name, of_class in parts.items():
        if of_class is None:
            continue
        prefix, memory = f"resourceQOSStrategy.{name}", of_class.memory_qos
        for info in msgspec.structs.fields(MemoryQos) if memory.enable and observation.supported else ():
            knob = MEMORY_KNOBS.get(info.name)
            if knob is not None and getattr(memory, info.name) and knob not in observation.supported:
                why = f"unsupported: cgroups of this kernel have no {knob.value}"
                yield Unsupported(f"{prefix}.memoryQOS.{info.encode_name}", why)
        cpu, network, disks = of_class.cpu_qos, of_class.network_qos, of_class.blkio_qos
        if cpu.enable and cpu.core_expeller and classes.policies.cpu_policy == "coreSched":
            why = "unsupported: this agent sets no core-scheduling cookies"
            yield Unsupported(f"{prefix}.cpuQOS.coreExpeller", why)
        if network.enable and classes.policies.net_qos_policy != "tc":
            yield Unsupported(f"{prefix}.networkQOS", "unsupported: this agent only supports netQOSPolicy tc")
        elif network.enable and (network.ingress_request or network.ingress_limit):
            yield Unsupported(f"{prefix}.networkQOS.ingressLimit", "unsupported: incoming traffic is not shaped")
        limits = [block.limits for block in disks.blocks if block.limits is not None] if disks.enable else []
        if any(getattr(limit, name) for limit in limits for name in IO_FIELDS):
            why = "unsupported: the agent writes neither latency targets nor cost models of disks"
            yield Unsupported(f"{prefix}.blkioQOS", why)
