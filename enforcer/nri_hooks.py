"""EDGE: joins the NRI plugin to the agent: it decides by what the last tick knew, and its events wake the next one.

protobuf is imported only when the plugin is switched on: an agent without it stays as light as it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from cotenant.base.allocation.cpu_lists import format_cpus
from cotenant.base.settings.root import SettingSections
from cotenant.enforcer.agent import Agent
from cotenant.enforcer.apply.handover import AgentStop
from cotenant.enforcer.contract import ContainerSpec, PodSpec
from cotenant.enforcer.decide.container_resources import LEAVE, ContainerSettings, container_resources
from cotenant.enforcer.device_driver import ClaimedCpus, no_cpus
from cotenant.enforcer.runtime import INSTALL
from cotenant.enforcer.runtime.parents import Parents
from cotenant.enforcer.settings import EnforcerSettings, RuntimeSettings

if TYPE_CHECKING:
    from cotenant.enforcer.runtime.nri.plugin import Counters


@contextlib.contextmanager
def run_nri_plugin(
    settings: SettingSections, agent: Agent, waker: AgentStop, claimed_cpus: ClaimedCpus
) -> Iterator[None]:
    """The plugin while it is entered, if the settings want it. A dry run changes no container, so it has none."""
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
    """The counters of the plugin, read when Prometheus scrapes."""

    def __init__(self, read: Callable[[], tuple[bool, Counters]]) -> None:
        """read: whether it is registered, and its counters."""
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for prometheus_client."""
        registered, counters = self._read()
        yield GaugeMetricFamily("cotenant_enforcer_nri_registered", "1 while the runtime asks us.", float(registered))
        meaning = "Answers to the runtime: in all, with a change, too late, failed (the last two change nothing)."
        answers = CounterMetricFamily("cotenant_enforcer_nri_answers", meaning, labels=["kind"])
        for kind in ("answers", "adjusted", "late", "failed"):
            answers.add_metric([kind.replace("answers", "all")], float(getattr(counters, kind)))
        yield answers
        meaning = "Times that the runtime accepted the plugin."
        yield CounterMetricFamily("cotenant_enforcer_nri_registrations", meaning, float(counters.registrations))


@dataclass(frozen=True, slots=True)
class HookDecision:
    """Decides the resources of a container by the last tick, its CPUs by its claims.

    Without a policy, or once the agent stops, claims alone decide: nobody else ever sets their CPUs.
    """

    agent: Agent
    ended: Callable[[], bool]
    """Whether a stop was requested."""
    parents: Parents
    claimed_cpus: ClaimedCpus = no_cpus

    def __call__(self, pod: PodSpec, container: ContainerSpec, cgroup_parent: str) -> ContainerSettings:
        """Return the settings for a container being created, as `facts.Decide`."""
        admitted = self.agent.admitted(pod)
        resources = self._by_policy(admitted, container)
        # a pod that is known to name no claim has written the variable itself
        may_claim = admitted.claims or not admitted.resources_known
        if may_claim and (cpus := self.claimed_cpus(pod.namespace, container.claims)):
            resources = replace(resources, cpuset_cpus=format_cpus(cpus))
        return self.parents.fitted(resources, cgroup_parent, container.id)

    def _by_policy(self, pod: PodSpec, container: ContainerSpec) -> ContainerSettings:
        policy_and_ratio = None if self.ended() else self.agent.container_policy()
        if policy_and_ratio is None:
            return LEAVE
        policy, cpu_ratio = policy_and_ratio
        return container_resources(pod, container, policy, cpu_ratio)
