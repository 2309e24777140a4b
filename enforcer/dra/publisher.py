"""EDGE: keeps the node's ResourceSlices up to date with its devices and cores, and writes only what differs.

It compares every minute, and whenever the kubelet registers the driver, because the kubelet deletes the slices of a
driver that was away for half a minute.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog

from cotenant.base.allocation.allocator import Holding
from cotenant.base.allocation.device_allocator import COLLECTION
from cotenant.base.allocation.devices import DeviceInventory, DeviceKey, DeviceKind, inventory_of
from cotenant.base.errors import ClusterAbsent, CotenantError, UsageError
from cotenant.base.identity import NodeIdentity
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.pod_identity import PodIdentity
from cotenant.base.kubernetes.pod_wire import requests_of_pod
from cotenant.base.kubernetes.protocol import DEVICES_BY_CLAIMS, DEVICES_LABEL, NODE_AGENT, NOT_ENDED, RESOURCE_SLICES
from cotenant.enforcer.dra.offer import (
    DRIVER,
    GONE,
    ContainerEdits,
    OfferedDevice,
    offered_devices,
    publication,
    unshared_offers,
    with_claimed,
)
from cotenant.enforcer.sources.documents import documents

REFRESH_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 5.0
_log = structlog.get_logger(__name__)


class _EditsWire(msgspec.Struct, rename="camel"):
    """The fields of a device in `enforcer.dra.device_file` that Koordinator's Device object does not have."""

    type: str = ""
    minor: int = 0
    env: dict[str, str] = {}
    device_nodes: list[str] = []


class _EditsSpec(msgspec.Struct):
    devices: list[_EditsWire] | None = None


class _EditsFile(msgspec.Struct):
    spec: _EditsSpec = msgspec.field(default_factory=_EditsSpec)


class SlicePublisher:
    """Publishes the node's ResourceSlices from its own thread; before each publication `offer` gets the devices."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        file: str,
        cores: Callable[[], list[OfferedDevice]],
        offer: Callable[[Mapping[str, OfferedDevice]], None],
        claimed: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Create a publisher; `file` replaces the node's Device object unless ""; `claimed` returns claimed devices."""
        self.problem = "not published yet"
        """Why the last publication failed, or ""."""
        self._client = client.sibling()
        self._writer = Writer(self._client, NODE_AGENT)
        self._warned: set[str] = set()
        self._node, self._file, self._cores, self._offer = node, file, cores, offer
        self._claimed = claimed
        self._awake, self._ended = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="resourceslices", daemon=True)

    def start(self) -> None:
        """Start the thread that publishes ResourceSlices."""
        self._thread.start()

    def stop(self) -> None:
        """Stop publishing; the slices stay until the kubelet finds the driver gone, so a restart changes nothing."""
        self._ended = True
        self._awake.set()
        if self._thread.is_alive():
            self._thread.join(RETRY_SECONDS)
        self.close()

    def close(self) -> None:
        """Close the connection to the API server."""
        self._client.close()

    def wake(self) -> None:
        """Make the thread publish at once, without waiting for the interval."""
        self._awake.set()

    def _run(self) -> None:
        while not self._ended:
            self._awake.clear()
            try:
                self.publish()
                problem = ""
            except CotenantError as error:
                problem = error.message
            except Exception as error:  # noqa: BLE001 - a dead publisher would look like a node without devices
                problem = f"{type(error).__name__}: {error}"
            if problem and problem != self.problem:
                _log.warning("devices are not published", reason=problem)
            self.problem = problem
            self._awake.wait(RETRY_SECONDS if problem else REFRESH_SECONDS)

    def publish(self) -> None:
        """Read the node's devices once and write the slices that differ; raise CotenantError if that fails.

        A device that a claim has stays published until the claim ends, whatever the node's label and Device object say
        meanwhile, so that the extender assigns it to no pod. The claims are read only after the devices were offered to
        new claims, so that no claim on an earlier offer is missed.
        """
        node = self._client.get(f"/api/v1/nodes/{self._node}")
        if node is None:
            raise ClusterAbsent(f"there is no Node {self._node}", fix="Set enforcer.node_name.")
        labels = node["metadata"].get("labels") or {}
        inventory, edits, by_claims = self._describe_devices(labels.get(DEVICES_LABEL) == DEVICES_BY_CLAIMS)
        devices = offered_devices(inventory, edits) if by_claims else []
        # The devices and CPUs that the node's pods have by annotation.
        holdings = []
        for pod in self._client.list("/api/v1/pods", fieldSelector=f"spec.nodeName={self._node},{NOT_ENDED}"):
            identity, requests = PodIdentity.parse(pod), dict[str, int]()
            with contextlib.suppress(CotenantError):  # requests that cannot be read are none: such a pod has nothing
                requests = requests_of_pod(pod)
            key = f"{identity.namespace}/{identity.name}"
            holdings.append(Holding(key, identity.uid, identity.annotations, requests))
        offers, busy = unshared_offers([*devices, *self._cores()], inventory, holdings)
        if busy:
            self._warn(f"pods without a claim already use {', '.join(busy)}")
        self._offer({offer.name: offer for offer in offers})
        claimed = self._claimed()
        listed = with_claimed(offers, offered_devices(inventory, edits, claimed), claimed)
        self._offer({device.name: device for device in listed if device.kind != GONE})
        selector = f"spec.driver={DRIVER},spec.nodeName={self._node}"
        published = self._client.list(RESOURCE_SLICES, fieldSelector=selector)
        for intent in publication(NodeIdentity(self._node, node["metadata"]["uid"]), listed, published):
            self._writer.send(intent, full_response=False)
            _log.info("devices published", slice=intent.address.name, devices=len(listed))

    def _warn(self, reason: str) -> None:
        """Log each reason only once."""
        if reason not in self._warned:
            _log.warning("devices are not offered", reason=reason)
        self._warned.add(reason)

    def _describe_devices(self, labelled: bool) -> tuple[DeviceInventory, dict[DeviceKey, ContainerEdits], bool]:
        """Return the node's devices, what containers get with them, and whether ResourceClaims allocate them.

        `labelled`: whether the node's label says that claims do. Without the label, the devices of a Device object
        belong to the extender; a file may describe the same devices, so the Device object counts then.
        """
        device_object = self._client.get(f"{COLLECTION}/{self._node}")
        if device_object is not None and not labelled:
            self._warn(f"the node has a Device object, but not the label {DEVICES_LABEL}={DEVICES_BY_CLAIMS}")
            with contextlib.suppress(UsageError):
                return inventory_of(device_object), {}, False
            return DeviceInventory(), {}, False
        if not self._file:
            return DeviceInventory() if device_object is None else inventory_of(device_object), {}, True
        fix = "Set enforcer.dra.device_file to a Device object as YAML or JSON."
        try:
            bodies = documents(Path(self._file).read_text(), self._file)
        except (OSError, UnicodeError) as refused:
            raise UsageError(f"{self._file} cannot be read: {refused}", fix=fix) from None
        if len(bodies) != 1 or not isinstance(bodies[0], dict):
            raise UsageError(f"{self._file} does not have exactly one object", fix=fix)
        inventory = inventory_of(bodies[0])
        try:
            edits = msgspec.convert(bodies[0], _EditsFile)
        except msgspec.ValidationError as error:
            raise UsageError(f"{self._file}: {error}", fix="env is a map of strings, deviceNodes a list.") from error
        by_key = {
            (DeviceKind(device.type), device.minor): ContainerEdits(device.env, tuple(device.device_nodes))
            for device in edits.spec.devices or ()
            if device.type in set(DeviceKind)
        }
        return inventory, by_key, True
