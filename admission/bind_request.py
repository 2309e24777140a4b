"""The request by which a pod asks that the extender binds it, for pods that get CPUs or devices of their own. Pure.

A profile says by its annotation that its pods shall ask; the pod's class and resources say whether there is anything to
bind. Where nothing of ours runs such a pod would wait for ever, so that no pod asks without a profile or its author.
"""

from __future__ import annotations

from typing import Any, Final

from cotenant.admission.resources import SIDES, containers
from cotenant.base.allocation.allocator import HardwareClaim
from cotenant.base.allocation.cpu_allocator import CpuAllocator
from cotenant.base.allocation.device_allocator import DeviceAllocator
from cotenant.base.allocation.device_request import shared_resources_of
from cotenant.base.errors import CotenantError
from cotenant.base.kubernetes.pod_identity import PodIdentity
from cotenant.base.kubernetes.pod_wire import requests_of
from cotenant.base.kubernetes.protocol import BIND_RESOURCE

_ALLOCATORS: Final = (CpuAllocator(), DeviceAllocator())


def with_bind_request(pod: dict[str, Any], namespace: str) -> list[str]:
    """Put one BIND_RESOURCE on the first container of a pod that an allocator concerns; warnings.

    Not where the pod has it, and not for shares of devices, which the extender binds by their own names.
    """
    try:
        requests = requests_of(pod["spec"])
    except CotenantError as error:
        return [f"{BIND_RESOURCE} was not requested: {error.message}"]
    claim = HardwareClaim(PodIdentity.parse(pod, namespace), requests)
    concerned = any(allocator.concerns(claim) for allocator in _ALLOCATORS)
    first = next(containers(pod, "containers"), None)
    if first is None or not concerned or BIND_RESOURCE in requests or shared_resources_of(requests):
        return []
    resources = first.get("resources") or {}
    first["resources"] = resources | {side: {**(resources.get(side) or {}), BIND_RESOURCE: "1"} for side in SIDES}
    return []
