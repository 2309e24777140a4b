"""EDGE: assigns hardware of a node to a pod before it is bound; only here do allocators use the API server.

    read the node's ledger -> its pods and documents -> allocators (pure) -> write the ledger if nobody else has

If two replicas allocate on one node at the same time, both read the same ledger, and the API server accepts the write
of one; the other reads again. If a process dies between ledger and binding, its entry stays: the pod's next bind uses
it, unless ResourceSlices have its devices by now. The Binding carries what the ledger says. An entry is not removed
even if the binding was refused, because another replica may be binding the same pod by it. A later allocation on the
node removes the entries of pods that have ended.
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
"""Most attempts of an allocation; after each failed one another allocation on the node has succeeded."""
CROWDED: Final = "other pods were allocated on this node at the same time; the scheduler will retry"
NO_SHARES: Final = "the pod requests {}, and extender.devices.on is false: no program allocates shares of devices"


class HardwareAllocation:
    """Assigns a node's CPUs and devices to a pod with all allocators in one step; keeps no state. Thread-safe."""

    def __init__(self, allocators: Sequence[Allocator]) -> None:
        """`allocators` are called in this order."""
        self._allocators = tuple(allocators)
        self._keys = frozenset(key for allocator in allocators for key in (*allocator.wishes, allocator.result))

    def allocate(self, client: KubeClient, pod: NewPod, node: str) -> Allotment:
        """Return the annotations for the pod's Binding, or why it gets no hardware on this node.

        A pod that needs no hardware gets no annotations and no ledger entry. One that requests shares of devices is
        refused if cotenant does not assign them: nobody else would. Raise ClusterError or UsageError.
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
        """Return the running pods of the node by uid, with what allocators read of them."""
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
    """Return the node's ledger of assigned hardware; raise UsageError if it is invalid, ClusterError if unreadable."""
    body: dict[str, Any] | None = client.get(ledger_address(node).path)
    return parse_ledger(node, body)


def _sent(client: KubeClient, intent: Create | Apply) -> bool:
    """Return whether the ledger was written; False if another client wrote it in between."""
    try:
        Writer(client, FIELD_MANAGER).send(intent, full_response=False)
    except ClusterConflict:
        return False
    return True


def _of_entry(client: KubeClient, node: str, entry: Holding, pod: NewPod) -> Allotment:
    """Return, as annotations, what the pod's ledger entry has and the pod itself lacks.

    The allotment is a refusal if a ResourceClaim may have received the entry's devices since.
    """
    names = {device_name(key) for key in taken_by([entry]).amounts}
    if names and (lost := sorted(names & _resource_slice_devices(client, node))):
        return Allotment(
            refusal=f"the node's ResourceSlices offer {', '.join(lost)}, which the extender allocated to the pod"
        )
    own = pod.identity.annotations
    return Allotment({key: text for key, text in entry.annotations.items() if own.get(key) != text})


def _allotment(
    allocators: Sequence[Allocator], hardware: NodeHardware, claim: HardwareClaim, holdings: Sequence[Holding]
) -> Allotment:
    """Return the annotations of all allocators together, or the first refusal."""
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
    """Return the devices in the node's ResourceSlices, read after the node's label, because agents read that first."""
    selector = f"spec.driver={CLAIM_DRIVER},spec.nodeName={node}"
    try:
        slices = client.list(RESOURCE_SLICES, SliceWire, limit=None, fieldSelector=selector)
    except ClusterAbsent:
        return frozenset()
    return frozenset[str]().union(*(slice_of(slice_object).devices for slice_object in slices))
