"""`cotenant demo --cluster KUBECONFIG`: the demo's workloads on a cluster, their history, and what they use now.

Without `--apply` it shows what it would write. After `--apply` a stand-in for node agents reports what the pods would
use.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
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
    from cotenant.base.cluster import Inventory, Node
    from cotenant.base.kube import KubeClient
    from cotenant.base.kubernetes.intent import Apply
    from cotenant.base.store import Store
    from cotenant.settings import Settings
    from cotenant_lab.simulation.node_agents import AgentRound, NodeAgents
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
        """UsageError for words that mean nothing without a cluster."""
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
        """Between two rounds: a minute of the day, but not more often than every few seconds."""
        return self.interval_seconds or max(INTERVAL_SECONDS / self.speed, SHORTEST_SECONDS)


def run(settings: Settings, spec: SyntheticSpec, options: DemoOptions) -> None:
    """Show, apply and keep alive, or remove; the outcome on stdout, one kind a line."""
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
    from cotenant_lab.simulation import cluster_population, demo, objects, on_cluster

    fake = cluster_population.fake_nodes(spec) if options.fake_nodes else ()
    generated = cluster_population.resident(spec, _nodes(client, fake))
    spaces, workloads = list(objects.namespaces(generated.inventory)), list(objects.workloads(generated.inventory))
    nodes = list(objects.nodes(fake, fake=True))
    _print_object_counts(
        f"{client.access.server}: {'apply' if options.apply else 'would apply'}", [*nodes, *spaces, *workloads]
    )
    if not options.insist:
        require_test_cluster(client)
    on_cluster.require_own_namespaces(client, spaces)
    demo.require_synthetic(store)
    if not options.apply:
        message("Nothing was written. Add --apply to do it.")
        return
    present = cluster_population.present_cluster(generated, store.cluster, spec.end_seconds)
    with bars() as progress:
        for name, intents in _stages(nodes, spaces, workloads):
            on_cluster.apply_all(client, intents, progress, name)
        demo.refill(store, present, progress)
    message(
        f"Done: {counted(spec.days, 'day')} of history of cluster {store.cluster}: in {store.url}.\n"
        "`cotenant demo --cluster FILE --remove --apply` takes the demo out again."
    )
    _live(client, present, options)


def _nodes(client: KubeClient, fake: Sequence[Node]) -> list[Node]:
    """Return the existing nodes and the fake nodes that will be created, sorted by name."""
    from cotenant_lab.simulation import node_agents

    coming = {node.name: node for node in fake}
    try:
        existing = {node.name: node for node in node_agents.nodes_of(client)}
    except UsageError:
        if not coming:
            raise
        existing = {}
    return [node for _, node in sorted({**existing, **coming}.items())]


def _stages(nodes: list[Apply], spaces: list[Apply], workloads: list[Apply]) -> list[tuple[str, list[Apply]]]:
    """Nodes before their status, namespaces before what lies in them."""
    bodies = [intent for intent in nodes if not intent.subresource]
    statuses = [intent for intent in nodes if intent.subresource]
    bare = [intent for intent in workloads if intent.address.resource == "pods"]
    others = [intent for intent in workloads if intent.address.resource != "pods"]
    stages = [("Nodes", bodies), ("Capacity of nodes", statuses), ("Namespaces", spaces), ("Workloads", others)]
    return [(name, intents) for name, intents in [*stages, ("Pods", bare)] if intents]


def _live(client: KubeClient, present: SyntheticCluster, options: DemoOptions) -> None:
    """Report what the pods use: once when they are placed, or until Ctrl-C."""
    from cotenant.base.process.clock import SystemClock
    from cotenant_lab.simulation import node_agents, usage_now

    if not node_agents.has_fake_nodes(client):
        message("No node here is fake, so what pods use is for the nodes' own agents, or for Prometheus, to say.")
        return
    demo_agent = node_agents.NodeAgents(
        client, usage_now.curves(present), SystemClock(), node_agents.ReportPace(options.pause_seconds, options.speed)
    )
    if options.once:
        _await_scheduling(client, present.inventory)
        _report_round(demo_agent)
        return
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    message(f"Reporting what the pods use, every {options.pause_seconds:g} s.   (Ctrl-C ends it; the workloads stay)")
    _rounds(demo_agent, options.pause_seconds, ended.wait)


def _rounds(agent: NodeAgents, pause_seconds: float, wait: Callable[[float], bool]) -> None:
    """Round after round until `wait` says that it is over; one that fails is reported and tried again."""
    while True:
        started = time.monotonic()
        _report_round(agent)
        remaining = started + pause_seconds - time.monotonic()
        while remaining > 0:  # in slices, so that Python runs a signal's handler
            if wait(min(remaining, 1.0)):
                return
            remaining = started + pause_seconds - time.monotonic()
        if wait(0):
            return


def _report_round(agent: NodeAgents) -> None:
    try:
        typer.echo(_line(agent.round()))
    except ClusterAbsent:
        message("NodeMetric is not installed, so nobody is told what the pods use: run `cotenant install --apply`.")
    except ClusterError as error:
        message(f"{error.message} {error.fix}".rstrip())


def _line(summary: AgentRound) -> str:
    from cotenant.base.resource import Resource

    moment = datetime.fromtimestamp(summary.of_day_seconds, UTC)
    cpu, memory = f"{summary.usage[Resource.CPU] / 1000:.1f} cores", human(Kind.BYTES, summary.usage[Resource.MEMORY])
    own = agree(summary.unreported, "has an agent of its own", "have agents of their own")
    others = "" if summary.reported == summary.nodes else f" ({own})"
    nodes, pods = counted(summary.reported, "node"), agree(summary.pods, "pod uses", "pods use")
    return f"{moment:%a %H:%M} UTC  {nodes}{others}, {pods} {cpu}, {memory} memory"


def _await_scheduling(client: KubeClient, inventory: Inventory) -> None:
    """Until every pod that is asked for has a node or cannot get one, or no more come."""
    from cotenant_lab.simulation import on_cluster

    expected = sum(on_cluster.pods_wanted(workload) for workload in inventory.workloads)
    last, since = (0, 0), time.monotonic()
    while time.monotonic() - since < PATIENCE_SECONDS:
        pending = on_cluster.pending(client)
        if sum(pending) >= expected and not pending[0]:
            return
        if pending != last:
            last, since = pending, time.monotonic()
        time.sleep(0.1)


def _remove(client: KubeClient, store: Store, options: DemoOptions) -> None:
    from cotenant_lab.simulation import demo, on_cluster

    if options.remove_store:
        demo.require_synthetic(store)
    if not options.apply:
        message(
            "Would delete every namespace and node labelled cotenant.dev/demo=true, and the NodeMetrics that the demo"
            f" wrote{f', and cluster {store.cluster} from {store.url}' if options.remove_store else ''}."
            " Add --apply to do it."
        )
        return
    with bars() as progress:
        count = on_cluster.remove(client, progress)
        progress.stage("Waiting until they are gone", 1)
        _wait_gone(client)
        progress.advance()
    typer.echo(f"deleted {count} namespaces, nodes and NodeMetrics of the demo")
    if options.remove_store:
        store.remove()
        typer.echo(f"removed cluster {store.cluster} from {store.url}")
    elif store.read_inventory() is not None:
        message(f"The history of cluster {store.cluster} stays in {store.url}; --remove-store removes it.")


def _wait_gone(client: KubeClient) -> None:
    """Until the namespaces are gone: a demo that is created again meanwhile would be refused."""
    from cotenant_lab.simulation import on_cluster

    deadline = time.monotonic() + GONE_SECONDS
    while (leaving := on_cluster.remaining_namespaces(client)) and time.monotonic() < deadline:
        time.sleep(0.2)
    if leaving:
        message(f"The cluster is still deleting {counted(len(leaving), 'namespace')}, such as {leaving[0]}.")


def _print_object_counts(head: str, intents: list[Apply]) -> None:
    from cotenant_lab.simulation.objects import count_objects_by_kind

    message(head)
    for resource, count in count_objects_by_kind(intents).items():
        typer.echo(f"{count:6} {resource}")
