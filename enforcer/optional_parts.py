"""EDGE: the optional parts of the agent: the driver of devices, and the runtime's NRI plugin.

The driver publishes the node's devices and prepares claims. The plugin decides by the inputs of the last tick, and its
events start the next tick. gRPC and protobuf are imported only if a part is enabled, so that the agent stays small.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from cotenant.base.allocation.cpu_topology import Cpus, format_cpus, parse_cpus
from cotenant.base.errors import UsageError
from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.intent import Address
from cotenant.base.settings.base import SettingSections
from cotenant.enforcer.agent import Agent
from cotenant.enforcer.apply.handover import AgentStop
from cotenant.enforcer.assembly import Assembled, repeat_in_background
from cotenant.enforcer.contract import ContainerSpec, PodSpec
from cotenant.enforcer.decide.container_resources import LEAVE, ContainerSettings, container_resources
from cotenant.enforcer.dra.claim import ClaimWire
from cotenant.enforcer.dra.claims import Claims
from cotenant.enforcer.dra.offer import API_VERSION, OfferedDevice, offered_cores
from cotenant.enforcer.dra.publisher import SlicePublisher
from cotenant.enforcer.observe.sysfs import read_topology
from cotenant.enforcer.runtime import INSTALL
from cotenant.enforcer.runtime.parents import Parents
from cotenant.enforcer.settings import EnforcerSettings, RuntimeSettings

if TYPE_CHECKING:
    from cotenant.enforcer.runtime.nri.plugin import Counters

HEAL_SECONDS: Final = 5.0
ClaimedCpus = Callable[[str, Iterable[str]], Cpus]
"""Returns the CPUs of requests of ResourceClaims, given the namespace and the requests' keys (`claim.request_key`)."""


def no_cpus(_: str, __: Iterable[str]) -> Cpus:
    """Return no CPUs; it replaces the lookup of claimed CPUs on a node without the device driver."""
    return frozenset()


@contextlib.contextmanager
def device_driver(settings: SettingSections, assembly: Assembled) -> Iterator[ClaimedCpus]:
    """Run the device driver inside the context if enabled, but not in a dry run; raise UsageError or SocketTaken."""
    own = settings.section(EnforcerSettings).dra
    if not own.on or settings.section(EnforcerSettings).dry_run:
        yield no_cpus
        return
    if assembly.client is None:
        raise UsageError("enforcer.dra.on needs the API server", fix="Leave enforcer.pods_file empty.")
    if own.cpus and not settings.section(RuntimeSettings).nri:
        raise UsageError("enforcer.dra.cpus needs runtime.nri", fix="Set runtime.nri, or clear enforcer.dra.cpus.")
    try:
        from cotenant.enforcer.runtime.dra_service import DraService
    except ModuleNotFoundError as missing:
        raise UsageError(f"enforcer.dra.on needs {missing.name}, which is not installed", fix=INSTALL) from missing
    with contextlib.closing(_ClaimReader(assembly.client)) as reader:
        claims = Claims(Path(settings.section(EnforcerSettings).state_dir), Path(own.cdi_dir), assembly.node, reader)

        def offer(devices: Mapping[str, OfferedDevice]) -> None:
            claims.offers = devices

        def heal() -> None:
            with contextlib.suppress(OSError):
                service.heal()

        def cores() -> list[OfferedDevice]:
            cpus = parse_cpus(own.cpus, "enforcer.dra.cpus")
            return (
                offered_cores(read_topology(Path(settings.section(EnforcerSettings).sysfs_root)), cpus) if cpus else []
            )

        publisher = SlicePublisher(assembly.client, assembly.node, own.device_file, cores, offer, claims.devices)
        service = DraService(claims, Path(own.plugin_dir), Path(own.registry_dir), publisher.wake)
        registry = assembly.agent.parts.metrics.registry
        registry.register(DraMetrics(lambda: (service.kubelet_knows, not publisher.problem, claims.count)))
        publisher.start()
        try:
            with service, repeat_in_background("dra-sockets", HEAL_SECONDS, heal):
                yield claims.cpus_of
        finally:
            publisher.stop()


class _ClaimReader:
    """Reads claims through its own connection; for one thread at a time."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client.sibling()

    def __call__(self, namespace: str, name: str) -> ClaimWire | None:
        return self._client.get(Address(API_VERSION, "resourceclaims", name, namespace).path, ClaimWire)

    def close(self) -> None:
        self._client.close()


class DraMetrics(Collector):
    """Metrics of the device driver, read when Prometheus scrapes."""

    def __init__(self, read: Callable[[], tuple[bool, bool, int]]) -> None:
        """Keep `read`: whether the driver is registered, whether devices are published, and the number of claims."""
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for prometheus_client."""
        registered, published, count = self._read()
        meaning = "1 while the driver is registered with the kubelet."
        yield GaugeMetricFamily("cotenant_enforcer_dra_registered", meaning, float(registered))
        meaning = "1 while the node's ResourceSlices match its devices."
        yield GaugeMetricFamily("cotenant_enforcer_dra_published", meaning, float(published))
        yield GaugeMetricFamily("cotenant_enforcer_dra_claims", "ResourceClaims that are prepared.", float(count))


@contextlib.contextmanager
def run_nri_plugin(
    settings: SettingSections, agent: Agent, waker: AgentStop, claimed_cpus: ClaimedCpus
) -> Iterator[None]:
    """Run the NRI plugin inside the context if enabled; not in a dry run, which must not change containers."""
    if not settings.section(RuntimeSettings).nri or settings.section(EnforcerSettings).dry_run:
        yield
        return
    try:
        from cotenant.enforcer.runtime.nri.plugin import NriPlugin
    except ModuleNotFoundError as missing:
        structlog.get_logger(__name__).error("no NRI plugin", reason=f"{missing.name} is missing", fix=INSTALL)
        yield
        return

    parents = Parents(Path(settings.section(EnforcerSettings).cgroup_root))
    decision = HookDecision(agent, lambda: waker.asked, parents, claimed_cpus)
    plugin = NriPlugin(settings.section(RuntimeSettings), decision, lambda _: waker.wake())
    agent.parts.metrics.registry.register(NriMetrics(lambda: (plugin.registered, plugin.counters)))
    plugin.start()
    try:
        yield
    finally:
        plugin.stop()


class NriMetrics(Collector):
    """Metrics of the NRI plugin, read when Prometheus scrapes."""

    def __init__(self, read: Callable[[], tuple[bool, Counters]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for prometheus_client."""
        registered, counters = self._read()
        meaning = "1 while the NRI plugin is registered with the runtime."
        yield GaugeMetricFamily("cotenant_enforcer_nri_registered", meaning, float(registered))
        meaning = "NRI plugin answers: all, adjusted (with a change), late and failed (both change nothing)."
        answers = CounterMetricFamily("cotenant_enforcer_nri_answers", meaning, labels=["kind"])
        for kind in ("answers", "adjusted", "late", "failed"):
            answers.add_metric([kind.replace("answers", "all")], float(getattr(counters, kind)))
        yield answers
        meaning = "Times that the runtime registered the NRI plugin."
        yield CounterMetricFamily("cotenant_enforcer_nri_registrations", meaning, float(counters.registrations))


@dataclass(frozen=True, slots=True)
class HookDecision:
    """Decides a new container's resources by the inputs of the last tick, and its CPUs by its ResourceClaims.

    Without a policy, or once the agent stops, only claims decide: nothing else ever sets the CPUs of a claim.
    """

    agent: Agent
    ended: Callable[[], bool]
    """Returns whether a stop was requested."""
    parents: Parents
    claimed_cpus: ClaimedCpus = no_cpus

    def __call__(self, pod: PodSpec, container: ContainerSpec, cgroup_parent: str) -> ContainerSettings:
        """Return the settings for a container being created; this call has the type `facts.Decide`."""
        admitted = self.agent.admitted(pod)
        policy_and_ratio = None if self.ended() else self.agent.container_policy()
        resources = container_resources(admitted, container, *policy_and_ratio) if policy_and_ratio else LEAVE
        # a pod that is known to name no claim has written the variable itself
        may_claim = admitted.claims or not admitted.resources_known
        if may_claim and (cpus := self.claimed_cpus(pod.namespace, container.claims)):
            resources = replace(resources, cpuset_cpus=format_cpus(cpus))
        return self.parents.fitted(resources, cgroup_parent, container.id)
