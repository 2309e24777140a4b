"""Guardrails for a share of a GPU in a template, beside the other guardrails. Pure.

Only the scheduler extender assigns shares, from Device objects; a share is reserved, but it isolates nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from cotenant.base.allocation.device_request import NVIDIA_GPU, demand_of
from cotenant.base.allocation.devices import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, DeviceKind, inventory_of
from cotenant.base.allocation.gpu_share import GPU_RESOURCES, GpuShare, GpuShareProposal
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.pod_wire import requests_of
from cotenant.changes.decide.field_changes import template_containers
from cotenant.changes.decide.rule import Guardrail, GuardrailContext, GuardrailOutcome, made
from cotenant.recommender.model.recommendation import Recommendation

_NO_ISOLATION = (
    "a share is reserved, not enforced: a process can use more of the device's time or memory, so share only among "
    "workloads that trust each other"
)


def gpu_rules(recommendations: Sequence[Recommendation], context: GuardrailContext) -> Iterator[Guardrail]:
    """Yield the results of the rules for GPU shares; none if no GPU share changes."""
    kind = recommendations[0].container.workload.kind
    template = template_containers(context.live, kind)
    proposals = {r.container.container: r.gpu for r in recommendations if r.gpu}
    if not proposals:
        return
    whys = [why for name, proposal in proposals.items() if (why := _against(template.get(name) or {}, name, proposal))]
    yield made("gpu-request", not whys, "; ".join(whys) or "the template has the request that the proposal replaces")
    if not all(proposal.share.is_whole for proposal in proposals.values()):
        # Fails where no Device object lists a healthy GPU: no share could be given out, and new pods would wait.
        gpus = 0
        for body in context.cluster_limits.devices or ():
            with suppress(UsageError):
                gpus += sum(d.kind is DeviceKind.GPU and d.healthy for d in inventory_of(body).devices)
        if gpus:
            why = f"{gpus} GPUs are listed in Device objects; the extender shares them if extender.devices.on is set"
        elif context.cluster_limits.devices is None:
            why = context.cluster_limits.unread("gpu-devices", "Devices").why
        else:
            why = "no Device object lists a healthy GPU on a node whose devices the extender assigns"
        waits = "" if gpus else ": new pods would wait for a share (docs/devices.md)"
        yield made("gpu-devices", gpus > 0, f"{why}{waits}")
        yield Guardrail("gpu-isolation", GuardrailOutcome.WARN, _NO_ISOLATION)


def _against(container: Mapping[str, Any], name: str, proposal: GpuShareProposal) -> str:
    """Return why the proposal does not match the container's present GPU request; "" if it matches."""
    try:
        requests = requests_of({"containers": [container]}, name)
        requested = {name for name in GPU_RESOURCES if requests.get(name)}
        if not requested:
            return f"{name} requests no GPU any more: scan again"
        if GPU_MEMORY in requested:
            return f"{name} requests {GPU_MEMORY} in bytes, which cotenant does not compare with usage"
        if proposal.share.is_whole and NVIDIA_GPU not in requested:
            return f"{name} requests {min(requested)}, but the proposal requests {proposal.share}"
        demand = demand_of(requests, {}, name).requests[DeviceKind.GPU]
    except UsageError as error:
        return str(error)
    core, memory = ((demand.count or 0) * demand.share.get(r, 0) for r in (GPU_CORE, GPU_MEMORY_RATIO))
    now = GpuShare(core, memory)
    return "" if now == proposal.now else f"{name} requests {now}, but the proposal replaces {proposal.now}"
