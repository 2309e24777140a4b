"""EDGE: creates an agent from the settings: its node, its cgroup tree, its sources, and the HTTP server.

with assemble_agent(settings, os.environ) as made: made.agent.run(wait)
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import structlog

from cotenant.base.allocation.cpu_topology import Cpus, parse_cpus
from cotenant.base.errors import NodeUnreadable, UsageError
from cotenant.base.http.health import Checks, HealthServer
from cotenant.base.kube import EventRecorder, KubeClient
from cotenant.base.kube.incluster import AccountFiles, service_account
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import SystemClock
from cotenant.base.settings.base import SettingSections
from cotenant.base.settings.sections import ENFORCER_PORT, KubeSettings, TelemetrySettings
from cotenant.base.version import __version__
from cotenant.enforcer.agent import Agent, AgentComponents
from cotenant.enforcer.apply.apply import Applier
from cotenant.enforcer.apply.eviction_worker import FIELD_MANAGER, EvictionQueue, Evictor
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.apply.pod_evictions import PodEvictions
from cotenant.enforcer.apply.resctrlfs import ResctrlKeeper, read_resctrl, tasks_in
from cotenant.enforcer.apply.sysctl import SwitchFiles, SysctlKeeper
from cotenant.enforcer.apply.traffic import TrafficKeeper, read_uplink
from cotenant.enforcer.contract import NodeReading, Observation, ResctrlReading, Uplink
from cotenant.enforcer.decide.changes import Place
from cotenant.enforcer.decide.registry import strategies
from cotenant.enforcer.model.node_policy import NodePolicy
from cotenant.enforcer.observe.cgroupfs import Hierarchy, raise_file_limit
from cotenant.enforcer.observe.cpusets import beside_static_kubelet
from cotenant.enforcer.observe.cycles import CycleReader
from cotenant.enforcer.observe.layout import Driver, Layout, checked_path, host_application_path
from cotenant.enforcer.observe.nvml import Nvml
from cotenant.enforcer.observe.observe import HostApplicationSpec, Observer
from cotenant.enforcer.report.action_log import ActionReporter, AgentMetrics
from cotenant.enforcer.report.device_writer import DeviceMetrics, DevicePublisher
from cotenant.enforcer.report.node_metric_writer import Reporter, Whose
from cotenant.enforcer.report.recorder import TickRecorder
from cotenant.enforcer.report.topology_writer import TopologyPublisher
from cotenant.enforcer.runtime import INSTALL
from cotenant.enforcer.settings import EnforcerSettings, RuntimeSettings
from cotenant.enforcer.sources.kubelet_client import WithKubelet
from cotenant.enforcer.sources.last_known import LastInputsFile, Recalling
from cotenant.enforcer.sources.sources import AgentInputs, ApiSources, FileSources, Sources
from cotenant.enforcer.sources.wire import SIZE_CAP_BYTES, KubeletConfig, kubelet_config

RECORD_CAP_BYTES: Final = 64 * 1024**2
"""Size from which on a recording is renamed to FILE.1 and a new one begins, to limit the disk that it uses."""
NVML_LIBRARY: Final = "libnvidia-ml.so.1"
"""NVIDIA's management library, as the loader finds it or as a path. The name that NVIDIA's container toolkit and
driver install."""
BOOT_ID: Final = "sys/kernel/random/boot_id"
FLUSH_SECONDS: Final = 1.0
AROUND_SECONDS: Final = 60.0


class KubeletTreeReader:
    """Reads the node; it first detects the kubelet's cgroup tree, and tries again as long as there is none."""

    def __init__(self, hierarchy: Hierarchy, settings: EnforcerSettings, kubelet: KubeletConfig) -> None:
        self._around: tuple[Uplink | None, ResctrlReading | None, Mapping[str, str]] = (None, None, {})
        """What is read again every AROUND_SECONDS: uplink, resctrl, the kernel's switches."""
        self._kernel = SwitchFiles(Path(settings.sysctl_root), Path(settings.sysfs_root))
        self._looked_seconds = -AROUND_SECONDS
        self._hierarchy, self._settings, self._kubelet = hierarchy, settings, kubelet
        self._offered_cpus = _offered_cpus(settings)
        self._observer: Observer | None = None
        self._layout = Layout()
        self._policy: NodePolicy | None = None
        self._applications: tuple[HostApplicationSpec, ...] = ()

    def read(self, inputs: AgentInputs, fresh: frozenset[Place]) -> Observation:
        """Return one tick's observation; raise NodeUnreadable as long as there is no kubelet's cgroup tree."""
        observer = self._observer
        if observer is None:
            self._layout = layout_of(self._hierarchy, self._settings, self._kubelet)
            self._observer = observer = Observer(self._hierarchy, self._layout, Path(self._settings.proc_root))
            if self._settings.count_cycles:
                observer.cycles = CycleReader(self._hierarchy, range(os.cpu_count() or 1))
        if inputs.policy is not self._policy:
            self._policy, self._applications = inputs.policy, applications(inputs.policy, self._layout)
        now_seconds = time.monotonic()
        if now_seconds - self._looked_seconds >= AROUND_SECONDS:
            self._looked_seconds = now_seconds
            proc = Path(self._settings.proc_root)
            resctrl = read_resctrl(cpuinfo=proc / "cpuinfo")
            self._around = read_uplink(host=proc / "1"), resctrl, self._kernel.present()
        uplink, resctrl, switches = self._around
        static = inputs.kubelet.static_cpus
        facts = NodeReading(
            name=inputs.node.name,
            allocatable=inputs.node.allocatable,
            capacity=inputs.node.capacity,
            labels=inputs.node.labels,
            annotations=inputs.node.annotations,
            kubelet_static_cpus=static,
            kubelet_quotas_off=self._kubelet.quotas_off,
            kubelet_cpus=inputs.kubelet.exclusive,
            offered_cpus=self._offered_cpus,
            uplink=uplink,
            resctrl=resctrl,
            kernel_switches=switches,
        )
        pods = tuple(map(beside_static_kubelet, inputs.pods)) if static else inputs.pods
        return observer.read(pods, self._applications, facts, fresh)

    def close(self) -> None:
        """Close all open files."""
        if self._observer is not None:
            self._observer.close()
        self._hierarchy.close()


def layout_of(hierarchy: Hierarchy, settings: EnforcerSettings, kubelet: KubeletConfig) -> Layout:
    """Return the layout of cgroups from the settings, from the detected tree, or else from the kubelet's configuration.

    A kubelet from 1.31 on gets its cgroup driver from the container runtime, whatever its configuration says. Raises
    NodeUnreadable if the layout cannot be detected.
    """
    base = tuple(checked_path(settings.cgroup_base).split("/")) if settings.cgroup_base else kubelet.base
    detection = hierarchy.detect(base, kubelet.cgroup_driver)
    if settings.cgroup_driver != "auto":
        shown = detection.layout or Layout(base=base)
        return replace(shown, driver=Driver(settings.cgroup_driver))
    if detection.layout is None:
        raise NodeUnreadable(detection.problem, fix="Set enforcer.cgroup_base and enforcer.cgroup_driver.")
    return detection.layout


def applications(policy: NodePolicy | None, layout: Layout) -> tuple[HostApplicationSpec, ...]:
    """Return the policy's host applications whose cgroup path is valid."""
    specs = []
    for app in policy.host_applications if policy else ():
        with contextlib.suppress(UsageError):  # the manager's webhook tells who wrote it
            path = host_application_path(app, layout)
            specs.append(HostApplicationSpec(app.name, QosClass(app.qos), PriorityClass(app.priority), path))
    return tuple(specs)


@dataclass(slots=True)
class Assembled:
    """An agent with its HTTP server, its client of the API server if it has one, its reporter, and its node's name."""

    agent: Agent
    server: HealthServer
    client: KubeClient | None
    reporter: Reporter | None
    node: str


@contextlib.contextmanager
def assemble_agent(settings: SettingSections, env: Mapping[str, str]) -> Iterator[Assembled]:
    """Yield the agent and close all its parts at the end; raise UsageError or ClusterError if a part cannot be made."""
    own = settings.section(EnforcerSettings)
    node = node_name(own, env)
    folder = Path(own.state_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be created: {error.strerror}", fix="Set enforcer.state_dir to a writable folder."
        ) from error
    running = strategies(own)
    with contextlib.ExitStack() as stack:
        client = None if own.pods_file else _client(settings, env)
        metrics = Metrics(__version__, platform.python_version())
        boot_id = _text(Path(own.proc_root) / BOOT_ID).strip()
        originals = OriginalValues(folder, boot_id)
        stack.callback(originals.close)
        for complaint in originals.complaints:
            structlog.get_logger(__name__).warning("journal", problem=complaint)
        raise_file_limit()
        hierarchy = Hierarchy(Path(own.cgroup_root))
        clock = SystemClock()
        recorder = EventRecorder(client, FIELD_MANAGER, clock) if client and not own.dry_run else None
        measured = AgentMetrics(metrics)
        action_reporter = ActionReporter(folder, measured, recorder, node, own.dry_run)
        kubelet = kubelet_config(_text(Path(own.kubelet_config)))
        if client is None:
            inputs: Sources = FileSources(node, own.pods_file, own.policy_file)
        else:
            inputs = Recalling(ApiSources(client, node, own.policy_file), LastInputsFile(folder, boot_id, node))
        parts = AgentComponents(
            settings=own,
            clock=clock,
            sources=WithKubelet(inputs, own.pod_resources_socket, kubelet.static_cpus),
            node_reader=KubeletTreeReader(hierarchy, own, kubelet),
            knob_writer=Applier(hierarchy, originals, own.dry_run),
            originals=originals,
            strategies=running,
            metrics=measured,
            reporter=action_reporter,
            evictions=PodEvictions(
                own,
                action_reporter.evicted,
                evictor=Evictor(client) if client and not own.dry_run else None,
                stopper=_stopper(settings),
            ),
            recorder=TickRecorder(Path(own.record_file), RECORD_CAP_BYTES) if own.record_file else None,
            surfaces=(
                ResctrlKeeper(folder, boot_id, tasks_in(hierarchy)),
                SysctlKeeper(folder, boot_id, Path(own.sysctl_root), Path(own.sysfs_root)),
                TrafficKeeper(),
            ),
        )
        agent = Agent(parts)
        reporter = _reporter(own, node, client, agent, kubelet)
        checks = Checks(ready={"agent": agent.not_ready}, alive={"ticks": agent.dead})
        if reporter:
            checks.ready["nodemetric"] = lambda: "" if reporter.error.startswith("not reported yet") else reporter.error
        server = HealthServer(checks, metrics, settings.section(TelemetrySettings), ENFORCER_PORT)
        server.pages["/status"] = lambda: (msgspec.json.encode(agent.status()), "application/json")
        stack.enter_context(server)
        if recorder:
            stack.callback(recorder.close)
            stack.callback(recorder.flush)  # once more in the end
            stack.enter_context(repeat_in_background("events", FLUSH_SECONDS, recorder.flush))
        yield Assembled(agent, server, client, reporter, node)


def node_name(settings: EnforcerSettings, env: Mapping[str, str]) -> str:
    """Return the node's name: from the settings, the variable NODE_NAME, or the host's name in lower case."""
    return settings.node_name or env.get("NODE_NAME", "") or socket.gethostname().lower()


def _client(settings: SettingSections, env: Mapping[str, str]) -> KubeClient:
    own = settings.section(EnforcerSettings)
    files, kube = AccountFiles(own.token_file, own.ca_file, own.api_server), settings.section(KubeSettings)
    return KubeClient(service_account(files, env), kube, reload=lambda: service_account(files, env))


def _stopper(settings: SettingSections) -> EvictionQueue[str] | None:
    """Return the queue that stops containers if it is enabled; None in a dry run. Raise UsageError without gRPC."""
    if not settings.section(EnforcerSettings).stop_containers or settings.section(EnforcerSettings).dry_run:
        return None
    try:
        from cotenant.enforcer.runtime.container_stopper import ContainerStopper
    except ModuleNotFoundError as missing:
        raise UsageError(f"enforcer.stop_containers: {missing.name} is not installed", fix=INSTALL) from missing
    return ContainerStopper(settings.section(RuntimeSettings).cri_upstream)


def _reporter(
    settings: EnforcerSettings, node: str, client: KubeClient | None, agent: Agent, kubelet: KubeletConfig
) -> Reporter | None:
    """Return the reporter of the NodeMetric; None in a dry run, which writes nothing."""
    if client is None or settings.dry_run or not settings.report_node_metric:
        return None
    whose = Whose(node, agent.node_uid)
    publishers: list[DevicePublisher | TopologyPublisher] = []
    if settings.report_topology:
        reserved = parse_cpus(kubelet.reserved_cpus, f"{settings.kubelet_config}: reservedSystemCPUs")
        reserved |= _offered_cpus(settings)
        publishers.append(TopologyPublisher(node, agent.node_uid, agent.cpus, Path(settings.sysfs_root), reserved))
    if settings.report_devices:
        devices = DevicePublisher(node, agent.node_uid, Nvml(NVML_LIBRARY), Path(settings.sysfs_root))
        registry = agent.parts.metrics.registry
        registry.register(DeviceMetrics(lambda: (devices.state, devices.healthy, devices.unhealthy)))
        publishers.append(devices)
    return Reporter(client, whose, agent.report, settings.report_interval_seconds, agent.note, publishers)


def _offered_cpus(settings: EnforcerSettings) -> Cpus:
    """Return the CPUs whose cores may be allocated to ResourceClaims; raise UsageError if the setting is invalid."""
    return parse_cpus(settings.dra.cpus, "enforcer.dra.cpus") if settings.dra.on else frozenset()


@contextlib.contextmanager
def repeat_in_background(name: str, seconds: float, work: Callable[[], object]) -> Iterator[None]:
    """Call `work` every `seconds` in a thread inside the context, and wait for that thread at its end."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            work()

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5.0)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(SIZE_CAP_BYTES).decode(errors="replace")
    except OSError:
        return ""
