"""EDGE: joins the driver of devices to the agent: publishes what the node offers, prepares claims, reports CPU owners.

gRPC is imported only when the driver is switched on: an agent without it stays as light as it was.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cotenant.base.allocation.cpu_lists import Cpus, parse_cpus
from cotenant.base.errors import UsageError
from cotenant.base.kube import KubeClient
from cotenant.base.settings.root import SettingSections
from cotenant.enforcer.assembly import Assembled
from cotenant.enforcer.dra.claim import ClaimWire
from cotenant.enforcer.dra.claims import Claims
from cotenant.enforcer.dra.offer import API_VERSION, OfferedDevice, offered_cores
from cotenant.enforcer.dra.publisher import SlicePublisher
from cotenant.enforcer.observe.sysfs import read_topology
from cotenant.enforcer.runtime import INSTALL
from cotenant.enforcer.settings import EnforcerSettings, RuntimeSettings

HEAL_SECONDS: Final = 5.0
ClaimedCpus = Callable[[str, Iterable[str]], Cpus]
"""CPUs of requests of a namespace's claims, by `claim.request_key`."""


def no_cpus(_: str, __: Iterable[str]) -> Cpus:
    """Return no CPUs, as on a node where nothing is claimed."""
    return frozenset()


@contextlib.contextmanager
def device_driver(settings: SettingSections, assembly: Assembled) -> Iterator[ClaimedCpus]:
    """The driver while it is entered, if the settings want it; a dry run prepares nothing. UsageError, SocketTaken."""
    own = settings.section(EnforcerSettings).dra
    if not own.on or settings.section(EnforcerSettings).dry_run:
        yield no_cpus
        return
    if assembly.client is None:
        raise UsageError("enforcer.dra.on needs the API server", fix="Leave enforcer.pods_file empty.")
    if own.cpus and not settings.section(RuntimeSettings).nri:
        raise UsageError("enforcer.dra.cpus needs runtime.nri", fix="Set runtime.nri, or offer no CPUs.")
    try:
        from cotenant.enforcer.runtime.dra_service import DraService
    except ModuleNotFoundError as missing:
        raise UsageError(f"enforcer.dra.on needs {missing.name}, which is missing", fix=INSTALL) from missing
    node = assembly.node
    with contextlib.closing(_ClaimReader(assembly.client)) as reader:
        claims = Claims(Path(settings.section(EnforcerSettings).state_dir), Path(own.cdi_dir), node, reader)

        def offer(devices: Mapping[str, OfferedDevice]) -> None:
            claims.offers = devices

        publisher = SlicePublisher(
            assembly.client, node, own.device_file, lambda: _cores(settings), offer, claims.devices
        )
        service = DraService(claims, Path(own.plugin_dir), Path(own.registry_dir), publisher.wake)
        assembly.agent.parts.metrics.registry.register(
            DraMetrics(lambda: (service.kubelet_knows, not publisher.problem, claims.count))
        )
        publisher.start()
        try:
            with service, _heal_periodically(service.heal):
                yield claims.cpus_of
        finally:
            publisher.stop()


class _ClaimReader:
    """Reads claims with a connection of its own; called by one thread at a time."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client.sibling()

    def __call__(self, namespace: str, name: str) -> ClaimWire | None:
        return self._client.get(f"/apis/{API_VERSION}/namespaces/{namespace}/resourceclaims/{name}", ClaimWire)

    def close(self) -> None:
        self._client.close()


class DraMetrics(Collector):
    """State of the driver, read when Prometheus asks."""

    def __init__(self, read: Callable[[], tuple[bool, bool, int]]) -> None:
        """read: whether the kubelet knows us, whether all is published, and how many claims are prepared."""
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for prometheus_client."""
        registered, published, count = self._read()
        meaning = "1 while the kubelet knows the driver."
        yield GaugeMetricFamily("cotenant_enforcer_dra_registered", meaning, float(registered))
        meaning = "1 while the node's ResourceSlices match its devices."
        yield GaugeMetricFamily("cotenant_enforcer_dra_published", meaning, float(published))
        yield GaugeMetricFamily("cotenant_enforcer_dra_claims", "Claims that are prepared.", float(count))


def _cores(settings: SettingSections) -> list[OfferedDevice]:
    cpus = parse_cpus(settings.section(EnforcerSettings).dra.cpus, "enforcer.dra.cpus")
    return offered_cores(read_topology(Path(settings.section(EnforcerSettings).sysfs_root)), cpus) if cpus else []


@contextlib.contextmanager
def _heal_periodically(heal: Callable[[], None]) -> Iterator[None]:
    """Look after the sockets every few seconds."""
    ended = threading.Event()

    def heal_until_ended() -> None:
        while not ended.wait(HEAL_SECONDS):
            with contextlib.suppress(OSError):
                heal()

    thread = threading.Thread(target=heal_until_ended, name="dra-sockets", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(HEAL_SECONDS)
