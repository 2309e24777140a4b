"""The variables by which a container learns which GPUs its pod has shares of. Pure.

Source: Koordinator's koordlet, hook `gpu`: NVIDIA's container runtime gives a container the devices that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cotenant.base.allocation.devices import DEVICE_ALLOCATED_ANNOTATION, DeviceKind, decode_allocations
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.protocol import SKIP_HOOKS_LABEL

VISIBLE_GPUS: Final = "NVIDIA_VISIBLE_DEVICES"


def device_environment(labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the variable with a pod's GPUs by annotation: their ids, or minors where it names none.

    {} for a pod without such GPUs, for a pod that hooks must leave alone, and for an annotation that cannot be read.
    """
    if DEVICE_ALLOCATED_ANNOTATION not in annotations or labels.get(SKIP_HOOKS_LABEL) == "true":
        return {}
    try:
        shares = decode_allocations(annotations[DEVICE_ALLOCATED_ANNOTATION]).get(DeviceKind.GPU, ())
    except UsageError:
        return {}
    return {VISIBLE_GPUS: ",".join(share.id or str(share.minor) for share in shares)} if shares else {}
