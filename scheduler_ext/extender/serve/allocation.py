"""EDGE: gives a pod its hardware on a node, before it is bound: the one place where allocators meet the API server.

    read the node's ledger -> its pods and documents -> allocators (pure) -> write the ledger if nobody else has

Two replicas that allocate on one node at the same time read the same ledger, and the API server takes the write of one
of them; the other reads again. A process that dies between the ledger and the binding leaves an entry: the pod's next
bind finds it and takes it as it is, unless ResourceSlices have got its devices. What the Binding carries is what the
ledger says. An entry is never taken back by its writer, also not when the binding was refused: another replica may be
binding the same pod by it. It ends with the pod's fate (`ledger`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from cotenant.base.allocation.allocator import (
    Allocator,
    Allotment,
    HardwareClaim,
    Holding,
    NodeHardware,
    NodeLedger,
    PodFate,
    active_holdings,
    all_holdings,
    ledger_address,
    ledger_write,
    new_ledger,
    parse_ledger,
)
from cotenant.base.allocation.device_allocator import COLLECTION as DEVICES
from cotenant.base.allocation.device_allocator import taken_by
from cotenant.base.allocation.device_request import shared_resources_of
from cotenant.base.allocation.devices import DEVICE_ALLOCATED_ANNOTATION, device_name
from cotenant.base.errors import ClusterAbsent, ClusterConflict, UsageError
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Address, Apply, Create
from cotenant.base.kubernetes.models.metadata import LabelledObject
from cotenant.base.kubernetes.models.pod import PodWire
from cotenant.base.kubernetes.protocol import CLAIM_DRIVER, ENDED_PHASES, EXTENDER, RESOURCE_SLICES
from cotenant.scheduler_ext.extender.metric import SliceWire, slice_of
from cotenant.scheduler_ext.extender.pod import NewPod, facts_of
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings

FIELD_MANAGER: Final = EXTENDER
ATTEMPTS: Final = 16
"""Of one allocation against others on the same node; each of the others has then got its own write through."""
CROWDED: Final = "other allocations on this node were faster; the scheduler will retry"
NO_SHARES: Final = "the pod requests {}, and extender.devices.on is false: no program allocates shares of devices"


class HardwareAllocation:
    """Allocates with all allocators in one step; it remembers nothing between calls, and any thread may call."""

    def __init__(self, allocators: Sequence[Allocator]) -> None:
        """Asked in this order."""
        self._allocators = tuple(allocators)
        self._keys = frozenset(key for allocator in allocators for key in (*allocator.wishes, allocator.result))

    def allocate(self, client: KubeClient, pod: NewPod, node: str) -> Allotment:
        """Annotations for the Binding of the pod, or why it gets nothing on this node. ClusterError, UsageError.

        A pod that no allocator concerns gets none and touches no ledger, unless it asks for shares of devices: nobody
        else would give them.
        """
        claim = HardwareClaim(pod.identity, pod.requests)
        concerned = [allocator for allocator in self._allocators if allocator.concerns(claim)]
        shares = shared_resources_of(pod.requests)
        if shares and DEVICE_ALLOCATED_ANNOTATION not in {allocator.result for allocator in concerned}:
            return Allotment(refusal=NO_SHARES.format(" and ".join(shares)))
        if not concerned:
            return Allotment()
        for _ in range(ATTEMPTS):
            ledger = read_ledger(client, node)
            if own := ledger.holdings.get(pod.identity.uid):
                return _of_entry(client, node, own, pod)
            wire = client.get(Address("v1", "nodes", node).path, LabelledObject)
            if wire is None:
                raise UsageError(f"nodes/{node} does not exist any more")
            if not ledger.version:
                _sent(client, new_ledger(node, wire.metadata.uid))
                continue
            on_node = self._pods_on(client, node)
            # Pods that are not on the node are looked up one by one: they may be bound this moment.
            fates = {
                uid: PodFate.HERE if uid in on_node else _fate(client, holding, ledger.node)
                for uid, holding in ledger.holdings.items()
            }
            entries = active_holdings(ledger, fates)
            documents: dict[str, dict[str, Any]] = {}
            for allocator in concerned:
                with suppress(ClusterAbsent):  # of a kind that is not installed
                    if body := client.get(f"{allocator.collection}/{node}"):
                        documents[allocator.collection] = body
            claimed = _resource_slice_devices(client, node) if DEVICES in documents else frozenset[str]()
            meta = wire.metadata
            hardware = NodeHardware(node, meta.labels or {}, meta.annotations or {}, documents, claimed)
            allotment = _allotment(concerned, hardware, claim, all_holdings(entries, on_node.values()))
            if allotment.refusal:
                return allotment
            wishes = (key for allocator in concerned for key in allocator.wishes)  # no results: pods may forge them
            annotations = _of_keys(pod.identity.annotations, wishes) | dict(allotment.annotations)
            entry = Holding(pod.key, pod.identity.uid, annotations)
            if _sent(client, ledger_write(ledger, wire.metadata.uid, [*entries.values(), entry])):
                return allotment
        return Allotment(refusal=CROWDED)

    def _pods_on(self, client: KubeClient, node: str) -> dict[str, Holding]:
        """Pods of the node that have not ended, by uid, with what allocators read of them."""
        wires = client.list("/api/v1/pods", PodWire, limit=None, fieldSelector=f"spec.nodeName={node}")
        pods = (facts_of(wire, LoadAwareSettings()) for wire in wires)
        return {
            pod.identity.uid: Holding(
                pod.key, pod.identity.uid, _of_keys(pod.identity.annotations, self._keys), pod.requests
            )
            for pod in pods
            if not pod.ended
        }


def read_ledger(client: KubeClient, node: str) -> NodeLedger:
    """The node's present ledger. UsageError for one that cannot be read, ClusterError."""
    body: dict[str, Any] | None = client.get(ledger_address(node).path)
    return parse_ledger(node, body)


def _sent(client: KubeClient, intent: Create | Apply) -> bool:
    """Return whether the ledger was written; False when another client wrote that of this node in between."""
    try:
        Writer(client, FIELD_MANAGER).send(intent, full_response=False)
    except ClusterConflict:
        return False
    return True


def _of_entry(client: KubeClient, node: str, entry: Holding, pod: NewPod) -> Allotment:
    """Return what the ledger's entry of the pod has and the pod itself lacks, as annotations.

    The allotment is a refusal when a ResourceClaim may have received the entry's devices since.
    """
    names = {device_name(key) for key in taken_by([entry]).amounts}
    if names and (lost := sorted(names & _resource_slice_devices(client, node))):
        return Allotment(refusal=f"its ResourceSlices have {', '.join(lost)}, which the node's ledger has for the pod")
    own = pod.identity.annotations
    return Allotment({key: text for key, text in entry.annotations.items() if own.get(key) != text})


def _allotment(
    allocators: Sequence[Allocator], hardware: NodeHardware, claim: HardwareClaim, holdings: Sequence[Holding]
) -> Allotment:
    """Return the annotations that all allocators give together, or the first refusal."""
    annotations: dict[str, str] = {}
    for allocator in allocators:
        try:
            allotment = allocator.allocate(hardware, claim, holdings)
        except UsageError as error:
            allotment = Allotment(refusal=error.message)
        if allotment.refusal:
            return allotment
        annotations |= allotment.annotations
    return Allotment(annotations)


def _of_keys(annotations: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    return {key: annotations[key] for key in keys if key in annotations}


def _fate(client: KubeClient, holding: Holding, node: str) -> PodFate:
    namespace, _, name = holding.pod.partition("/")
    wire = client.get(Address("v1", "pods", name, namespace).path, PodWire)
    if wire is None or wire.metadata.uid != holding.uid or wire.status.phase in ENDED_PHASES:
        return PodFate.OVER
    if not wire.spec.node_name:
        return PodFate.WAITING
    return PodFate.HERE if wire.spec.node_name == node else PodFate.OVER


def _resource_slice_devices(client: KubeClient, node: str) -> frozenset[str]:
    """Devices of the node's ResourceSlices, none without the kind; read after the label, which agents read first."""
    selector = f"spec.driver={CLAIM_DRIVER},spec.nodeName={node}"
    try:
        slices = client.list(RESOURCE_SLICES, SliceWire, limit=None, fieldSelector=selector)
    except ClusterAbsent:
        return frozenset()
    return frozenset[str]().union(*(slice_of(slice_object).devices for slice_object in slices))
