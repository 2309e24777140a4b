"""An allocated ResourceClaim, prepared: its devices, and what the runtime adds to its containers. Pure.

Source of the forms: resource.k8s.io/v1 ResourceClaim, and the Container Device Interface specification 0.6; of the
variable for GPUs that a pod has by annotation: Koordinator's koordlet, hook `gpu`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from cotenant.base.allocation.cpu_topology import Cpus, format_cpus, parse_cpus
from cotenant.base.allocation.devices import DEVICE_ALLOCATED_ANNOTATION, DeviceKind, decode_allocations
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.kubernetes.models.metadata import ObjectIdentity
from cotenant.base.kubernetes.protocol import SKIP_HOOKS_LABEL
from cotenant.enforcer.dra.offer import DRIVER, OfferedDevice

CDI_KIND: Final = f"{DRIVER}/claim"
CDI_VERSION: Final = "0.6.0"
CLAIM_VARIABLE: Final = "COTENANT_CLAIM_"
"""Prefix of the variable that shows which request of a claim a container uses; the rest is `request_key`."""
VISIBLE_GPUS: Final = "NVIDIA_VISIBLE_DEVICES"
"""Variable that lists a container's GPUs; NVIDIA's container runtime gives the container these devices."""


class ClaimRefused(CotenantError):
    """A claim cannot be prepared on this node."""


class _AllocationResult(msgspec.Struct, rename="camel"):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None


class _AllocatedDevices(msgspec.Struct):
    results: list[_AllocationResult] | None = None


class _ClaimAllocation(msgspec.Struct):
    devices: _AllocatedDevices = msgspec.field(default_factory=_AllocatedDevices)


class _ClaimStatus(msgspec.Struct):
    allocation: _ClaimAllocation | None = None


class ClaimWire(msgspec.Struct):
    """The fields of a ResourceClaim that the driver needs."""

    metadata: ObjectIdentity = msgspec.field(default_factory=ObjectIdentity)
    status: _ClaimStatus = msgspec.field(default_factory=_ClaimStatus)


class _CdiWire(msgspec.Struct):
    annotations: dict[str, str] = {}


class ClaimDevice(msgspec.Struct, frozen=True):
    """One device of a claim; `shared`: used with admin access, in addition to the claim that owns the device."""

    pool: str
    device: str
    shared: bool = False


class ClaimRequest(msgspec.Struct, frozen=True):
    """A request of a claim: its devices, and the variables, device nodes and CPUs ("2-3") of containers that use it."""

    name: str
    devices: tuple[ClaimDevice, ...]
    env: dict[str, str] = {}
    device_nodes: tuple[str, ...] = ()
    cpus: str = ""


class PreparedClaim(msgspec.Struct, frozen=True):
    """A prepared claim; it is kept until it is unprepared, even if the node no longer offers its devices."""

    namespace: str
    name: str
    uid: str
    requests: tuple[ClaimRequest, ...] = ()

    @property
    def exclusive(self) -> set[str]:
        """The names of the devices that no other claim may use."""
        return {device.device for request in self.requests for device in request.devices if not device.shared}

    def cdi_id(self, request: ClaimRequest) -> str:
        """Return the CDI name by which a runtime refers to the devices of a request."""
        return f"{CDI_KIND}={request_key(self.uid, request.name)}"

    def cpus(self) -> dict[str, Cpus]:
        """Return the CPUs of each request of the claim, by `request_key`."""
        with_cpus = (request for request in self.requests if request.cpus)
        return {request_key(self.uid, request.name): parse_cpus(request.cpus) for request in with_cpus}


def request_key(uid: str, request: str) -> str:
    """Return the key of a request of a claim; its characters are valid in names of variables and CDI devices."""
    return f"{uid}_{request}".replace("-", "_")


def prepare_claim(
    claim: ClaimWire, node: str, offers: Mapping[str, OfferedDevice], others: Iterable[PreparedClaim]
) -> PreparedClaim:
    """Return the prepared claim: its devices, and what its containers get.

    `offers`: the node's devices by name; `others`: claims that are prepared on this node. Raises ClaimRefused for a
    claim without an allocation, a device that is not offered, or, without admin access, one that another claim has.
    """
    meta, key = claim.metadata, f"claim {claim.metadata.namespace}/{claim.metadata.name}"
    if claim.status.allocation is None:
        raise ClaimRefused(f"{key} is not allocated", fix="The scheduler allocates the claim when it places the pod.")
    allocated = claim.status.allocation.devices.results or ()
    results = [result for result in allocated if (result.driver, result.pool) == (DRIVER, node)]
    for result in results:
        if result.device not in offers:
            raise ClaimRefused(
                f"{key} has device {result.device}, which node {node} does not offer",
                fix="Delete the pod, so that its claim is allocated again.",
            )
        owner = next((o for o in others if result.device in o.exclusive and o.uid != meta.uid), None)
        if owner is not None and not result.admin_access:
            raise ClaimRefused(
                f"{key} has device {result.device}, which claim {owner.namespace}/{owner.name} still has",
                fix="Wait until the pod of the other claim has ended.",
            )
    by_request: dict[str, list[_AllocationResult]] = {}
    for result in results:  # of one alternative among several, the request that lists them
        by_request.setdefault(result.request.partition("/")[0], []).append(result)
    requests = tuple(_request(meta.uid, name, members, offers) for name, members in sorted(by_request.items()))
    return PreparedClaim(meta.namespace, meta.name, meta.uid, requests)


def _request(
    uid: str, name: str, results: list[_AllocationResult], offers: Mapping[str, OfferedDevice]
) -> ClaimRequest:
    chosen = [offers[result.device] for result in results]
    cpus = format_cpus(frozenset[int]().union(*(offer.cpus for offer in chosen)))
    env = {f"{CLAIM_VARIABLE}{request_key(uid, name)}": cpus or ",".join(offer.name for offer in chosen)}
    for kind in sorted({offer.kind for offer in chosen if offer.id}):
        ids = ",".join(offer.id for offer in chosen if offer.kind == kind)
        env[f"COTENANT_{kind.upper()}_IDS"] = ids
        if kind == "gpu":
            env[VISIBLE_GPUS] = ids
    for offer in chosen:
        env |= offer.edits.env
    nodes = tuple(dict.fromkeys(path for offer in chosen for path in offer.edits.device_nodes))
    devices = tuple(ClaimDevice(result.pool, result.device, bool(result.admin_access)) for result in results)
    return ClaimRequest(name, devices, env, nodes, cpus)


def cdi_spec(claim: PreparedClaim) -> dict[str, Any]:
    """Return the CDI file of a claim: one CDI device per request, and the claim itself for `claim_in`."""
    return {
        "cdiVersion": CDI_VERSION,
        "kind": CDI_KIND,
        "annotations": {CDI_KIND: msgspec.json.encode(claim).decode()},
        "devices": [
            {
                "name": request_key(claim.uid, request.name),
                "containerEdits": {
                    "env": [f"{key}={value}" for key, value in sorted(request.env.items())],
                    **({"deviceNodes": [{"path": p} for p in request.device_nodes]} if request.device_nodes else {}),
                },
            }
            for request in claim.requests
        ],
    }


def claim_in(cdi_file: bytes) -> PreparedClaim:
    """Return the claim in a CDI file; raise msgspec.MsgspecError or UnicodeError if there is none."""
    annotations = msgspec.json.decode(cdi_file, type=_CdiWire).annotations
    return msgspec.json.decode(annotations.get(CDI_KIND, ""), type=PreparedClaim)


def keys_in(env: Iterable[str]) -> tuple[str, ...]:
    """Return the `request_key` of each claim's request that a container uses, from its variables ("NAME=value")."""
    names = (variable.partition("=")[0] for variable in env)
    return tuple(name.removeprefix(CLAIM_VARIABLE) for name in names if name.startswith(CLAIM_VARIABLE))


def device_environment(labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that lists the GPUs in a pod's annotation: their ids, or minor numbers if it has no ids.

    Return {} for a pod without such GPUs, for a pod that hooks must not change, and for an unreadable annotation.
    """
    if DEVICE_ALLOCATED_ANNOTATION not in annotations or labels.get(SKIP_HOOKS_LABEL) == "true":
        return {}
    try:
        shares = decode_allocations(annotations[DEVICE_ALLOCATED_ANNOTATION]).get(DeviceKind.GPU, ())
    except UsageError:
        return {}
    return {VISIBLE_GPUS: ",".join(share.id or str(share.minor) for share in shares)} if shares else {}
