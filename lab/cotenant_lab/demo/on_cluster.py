"""`cotenant demo --cluster KUBECONFIG`: the demo's workloads on a cluster, with their history and their present usage.

Without `--apply` it shows what it would write. After `--apply` a stand-in for node agents reports what the pods would
use.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import typer

from cotenant.base.commands.cells import human
from cotenant.base.commands.output import message
from cotenant.base.commands.progress import bars
from cotenant.base.errors import ClusterAbsent, ClusterError, UsageError
from cotenant.base.table import Kind
from cotenant.base.text import agree, counted

if TYPE_CHECKING:
    from cotenant.base.cluster import Node
    from cotenant.base.kube import KubeClient
    from cotenant.base.store import Store
    from cotenant.settings import Settings
    from cotenant_lab.simulation.node_agents import NodeAgents
    from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec

DEFAULT_WORKLOADS = 40
"""On a cluster a demo of this size shows everything and bothers nobody."""
GONE_SECONDS: Final = 60.0
"""How long `--remove` waits for the cluster to have deleted what was in the namespaces."""
INTERVAL_SECONDS: Final = 60.0
SHORTEST_SECONDS: Final = 5.0
"""Between two rounds when time runs faster, unless the interval is given."""
PATIENCE_SECONDS: Final = 2.0
"""How long `--once` waits for one more pod to be placed before it takes the others for all."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The user's options for the demo on a cluster."""

    apply: bool = False
    remove: bool = False
    insist: bool = False
    fake_nodes: bool = False
    remove_store: bool = False
    once: bool = False
    speed: float = 1.0
    interval_seconds: float | None = None

    def require_cluster(self) -> None:
        """Raise UsageError, called without --cluster, if an option was given that needs it."""
        flags = {
            "--apply": self.apply,
            "--remove": self.remove,
            "--yes": self.insist,
            "--fake-nodes": self.fake_nodes,
            "--remove-store": self.remove_store,
            "--speed": self.speed != 1.0,
            "--interval": self.interval_seconds is not None,
        }
        stray = [word for word, meant in flags.items() if meant]
        if stray:
            raise UsageError(f"{', '.join(stray)} needs --cluster", fix="Add --cluster KUBECONFIG.")

    @property
    def pause_seconds(self) -> float:
        """Seconds between two reports: the option's, else a minute of the demo's day, at least SHORTEST_SECONDS."""
        return self.interval_seconds or max(INTERVAL_SECONDS / self.speed, SHORTEST_SECONDS)


def run(settings: Settings, spec: SyntheticSpec, options: DemoOptions) -> None:
    """Show what would be written, apply it and report usage, or remove it; print one line per kind of object."""
    from cotenant.base.kube import connect
    from cotenant.base.settings.sections import store_url
    from cotenant.base.store import Store

    client = connect(settings.kube)
    store = Store(store_url(settings.store, os.environ), client.access.cluster)
    try:
        if options.remove:
            _remove(client, store, options)
        else:
            _create(client, store, spec, options)
    finally:
        client.close()


def _create(client: KubeClient, store: Store, spec: SyntheticSpec, options: DemoOptions) -> None:
    from cotenant.cli.cluster.real_nodes import require_test_cluster
    from cotenant_lab.simulation import cluster_population, demo, node_agents, objects, on_cluster

    fake = cluster_population.fake_nodes(spec) if options.fake_nodes else ()
    nodes_by_name: dict[str, Node] = {}  # the existing nodes, and the fake ones that will be created
    try:
        nodes_by_name = {node.name: node for node in node_agents.nodes_of(client)}
    except UsageError:
        if not fake:
            raise
    nodes_by_name |= {node.name: node for node in fake}
    generated = cluster_population.resident(spec, [node for _, node in sorted(nodes_by_name.items())])
    spaces, workloads = list(objects.namespaces(generated.inventory)), list(objects.workloads(generated.inventory))
    nodes = list(objects.nodes(fake, fake=True))
    message(f"{client.access.server}: {'apply' if options.apply else 'would apply'}")
    for resource, count in objects.count_objects_by_kind([*nodes, *spaces, *workloads]).items():
        typer.echo(f"{count:6} {resource}")
    if not options.insist:
        require_test_cluster(client)
    on_cluster.require_own_namespaces(client, spaces)
    demo.require_synthetic(store)
    if not options.apply:
        message("Nothing was written. Add --apply to write.")
        return
    present = cluster_population.present_cluster(generated, store.cluster, spec.end_seconds)
    # Nodes before their status, namespaces before what lies in them.
    stages = (
        ("Nodes", [intent for intent in nodes if not intent.subresource]),
        ("Capacity of nodes", [intent for intent in nodes if intent.subresource]),
        ("Namespaces", spaces),
        ("Workloads", [intent for intent in workloads if intent.address.resource != "pods"]),
        ("Pods", [intent for intent in workloads if intent.address.resource == "pods"]),
    )
    with bars() as progress:
        for name, intents in stages:
            if intents:
                on_cluster.apply_all(client, intents, progress, name)
        demo.refill(store, present, progress)
    message(
        f"Done: {counted(spec.days, 'day')} of history of cluster {store.cluster}: in {store.url}.\n"
        "`cotenant demo --cluster FILE --remove --apply` removes the demo again."
    )
    _live(client, present, options)


def _live(client: KubeClient, present: SyntheticCluster, options: DemoOptions) -> None:
    """Report what the pods use: once when they are placed, or until Ctrl-C."""
    from cotenant.base.process.clock import SystemClock
    from cotenant_lab.simulation import node_agents, on_cluster, usage_now

    if not node_agents.has_fake_nodes(client):
        message("No node is fake, so the nodes' own agents or Prometheus must report the usage of the pods.")
        return
    demo_agent = node_agents.NodeAgents(
        client, usage_now.curves(present), SystemClock(), node_agents.ReportPace(options.pause_seconds, options.speed)
    )
    if options.once:
        # Until every pod that is asked for has a node or cannot get one, or no more come.
        expected = sum(on_cluster.pods_wanted(workload) for workload in present.inventory.workloads)
        last, since = (0, 0), time.monotonic()
        while time.monotonic() - since < PATIENCE_SECONDS:
            pending = on_cluster.pending(client)
            if sum(pending) >= expected and not pending[0]:
                break
            if pending != last:
                last, since = pending, time.monotonic()
            time.sleep(0.1)
        _report_round(demo_agent)
        return
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    message(f"Reporting what the pods use, every {options.pause_seconds:g} s.   (Ctrl-C ends it; the workloads stay)")
    while not ended.is_set():  # a round that fails is reported and tried again
        started = time.monotonic()
        _report_round(demo_agent)
        while (seconds_left := started + options.pause_seconds - time.monotonic()) > 0 and not ended.is_set():
            ended.wait(min(seconds_left, 1.0))  # in slices, so that Python runs a signal's handler


def _report_round(agent: NodeAgents) -> None:
    from cotenant.base.resource import Resource

    try:
        summary = agent.round()
        moment, usage = datetime.fromtimestamp(summary.of_day_seconds, UTC), summary.usage
        cpu, memory = f"{usage[Resource.CPU] / 1000:.1f} cores", human(Kind.BYTES, usage[Resource.MEMORY])
        own = agree(summary.unreported, "has its own agent", "have their own agents")
        others = "" if summary.reported == summary.nodes else f" ({own})"
        nodes, pods = counted(summary.reported, "node"), agree(summary.pods, "pod uses", "pods use")
        typer.echo(f"{moment:%a %H:%M} UTC  {nodes}{others}, {pods} {cpu}, {memory} memory")
    except ClusterAbsent:
        message("NodeMetric is not installed, so pod usage is not reported: run `cotenant install --apply`.")
    except ClusterError as error:
        message(f"{error.message} {error.fix}".rstrip())


def _remove(client: KubeClient, store: Store, options: DemoOptions) -> None:
    from cotenant_lab.simulation import demo, on_cluster

    if options.remove_store:
        demo.require_synthetic(store)
    if not options.apply:
        message(
            "Would delete every namespace and node labelled cotenant.dev/demo=true, and the NodeMetrics that the demo"
            f" wrote{f', and cluster {store.cluster} from {store.url}' if options.remove_store else ''}."
            " Add --apply to delete."
        )
        return
    with bars() as progress:
        count = on_cluster.remove(client, progress)
        progress.stage("Wait until the demo's objects are deleted", 1)
        # A demo that is created again meanwhile would be refused.
        deadline = time.monotonic() + GONE_SECONDS
        while (leaving := on_cluster.remaining_namespaces(client)) and time.monotonic() < deadline:
            time.sleep(0.2)
        if leaving:
            message(f"The cluster is still deleting {counted(len(leaving), 'namespace')}, such as {leaving[0]}.")
        progress.advance()
    typer.echo(f"deleted {count} namespaces, nodes and NodeMetrics of the demo")
    if options.remove_store:
        store.remove()
        typer.echo(f"removed cluster {store.cluster} from {store.url}")
    elif store.read_inventory() is not None:
        message(f"The history of cluster {store.cluster} stays in {store.url}; --remove-store removes it.")
