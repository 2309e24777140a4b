"""A dashboard that acts: real workloads on a real API server, recommendations in a small store, a service between.

    with acting.embedded(tmp_path) as scene, acting.served(scene) as url: ...      # the embedded API server
    with acting.on_plane(control_plane, tmp_path) as scene: ...                    # kube-apiserver, controllers, kwok

Making the store is what takes time: `made = acting.prepared(folder)` once, then `embedded(folder, made)` for each test.

The workloads of the synthetic cluster lie in one namespace (`scene.namespace`), ready, with the requests that the
recommendations start from. On the embedded server nothing makes pods or rolls out: `settle_rollouts` plays that.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cotenant.base.allocation.gpu_share import GpuShare, GpuShareProposal
from cotenant.base.cluster import Event, Inventory, Node, Pod
from cotenant.base.identity import ContainerRef, PodContainerRef, WorkloadRef
from cotenant.base.kube import KubeClient, connect, send_all
from cotenant.base.kubernetes.intent import Address, Apply, Intent, Patch
from cotenant.base.people import Grant, Person, Role
from cotenant.base.process.clock import Clock, FixedClock
from cotenant.base.progress import Silent
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.severity import Severity
from cotenant.base.store import Store
from cotenant.base.table import Table
from cotenant.changes.access.configured_service import change_service_of
from cotenant.changes.access.kubeconfig_access import at_this_machine
from cotenant.changes.decide.field_changes import address_of
from cotenant.changes.decide.patches import kubectl_command
from cotenant.changes.model.service import ChangeRequest
from cotenant.changes.model.settings import ActionSettings, GuardrailSettings
from cotenant.changes.service import ClusterChangeService
from cotenant.dashboard.app import create_app
from cotenant.dashboard.commands.dashboard import manifest
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.sources.source import StoreSource
from cotenant.pipeline import daily_analysis, tables
from cotenant.recommender.model.finding import ClusterFinding, FindingKind
from cotenant.recommender.model.views import FINDINGS, RECOMMENDATIONS
from cotenant.settings import Settings
from cotenant_lab.simulation import cluster_population, demo, objects
from cotenant_lab.simulation.api_server import EmbeddedServer
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec
from tests.cluster.accounts import applier
from tests.cluster.api import ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import FOLDER as CRDS
from tests.cluster.waiting import wait_for
from tests.support import dashboard as support
from tests.support.templates import copy_template

SPEC = SyntheticSpec(nodes=2, workloads=14, days=9, seed=7)
LENIENT = GuardrailSettings(most_cpu_cut=1.0, most_memory_cut=1.0, most_requests_share=1.0, least_change=0.0)
"""Limits under which a whole proposal of the small cluster passes; a test that is about a guardrail says its own."""
ACTIONS = ActionSettings(soak_minutes=0.0, guardrails=LENIENT)


@dataclass(frozen=True)
class Prepared:
    """A store with results about workloads of one namespace, which no server has yet."""

    store: Store
    namespace: str
    inventory: Inventory


@dataclass(frozen=True)
class Scene:
    """A server with workloads, and the store that recommends something about them."""

    prepared: Prepared
    settings: Settings
    server: EmbeddedServer | None = None
    """To give people accounts; None on a real control plane."""

    @property
    def store(self) -> Store:
        """Of the results."""
        return self.prepared.store

    @property
    def namespace(self) -> str:
        """Of all workloads."""
        return self.prepared.namespace

    @property
    def inventory(self) -> Inventory:
        """What is placed on the server."""
        return self.prepared.inventory

    @property
    def end_seconds(self) -> int:
        """Where the history ends and the dashboard's clock stands."""
        return self.inventory.time_seconds

    @property
    def client(self) -> KubeClient:
        """A new client as administrator."""
        return connect(self.settings.kube)

    @property
    def workloads(self) -> tuple[WorkloadRef, ...]:
        """Those for which something would be changed, in the order of their names."""
        table: Table = self.store.read_table(RECOMMENDATIONS)
        changing = {
            WorkloadRef(r["namespace"], r["kind"], r["workload"])
            for r in table.rows()
            if any(r[f"{f}_now"] != r[f"{f}"] and r[f"{f}"] is not None for f in ("cpu_request", "memory_request"))
        }
        return tuple(sorted(ref for ref in changing if ref.kind in ("Deployment", "StatefulSet")))

    def acceptable(self) -> tuple[WorkloadRef, ...]:
        """Those of `workloads` that pass every guardrail now."""
        someone = Person("test", grants=(Grant(Role.ADMIN),))
        reviews = self.service().review(someone, ChangeRequest(self.workloads))
        return tuple(review.workload for review in reviews if not review.error and not review.blocked(()))

    def live(self, ref: WorkloadRef) -> dict[str, Any]:
        """The object as the server has it."""
        client = self.client
        live_object = client.get(address_of(ref).path)
        client.close()
        assert live_object is not None, f"{ref} is not there"
        return live_object

    def resources(self, ref: WorkloadRef) -> list[Any]:
        """Each container's resources in the template."""
        return [c.get("resources") for c in self.live(ref)["spec"]["template"]["spec"]["containers"]]

    def service(self, clock: Clock | None = None) -> ClusterChangeService:
        """A service of its own on the scene's ledger."""
        return change_service_of(self.settings, self.store, clock=clock)


@contextmanager
def embedded(folder: Path, cluster: Prepared | None = None, actions: ActionSettings = ACTIONS) -> Iterator[Scene]:
    """On the embedded API server, ready at once; ledger and kubeconfig in the folder."""
    with EmbeddedServer() as server:
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
        scene_built = Scene(cluster or prepared(folder), settings_of(folder, kubeconfig, actions), server)
        _send_whole(scene_built, list(objects.nodes(scene_built.inventory.nodes, fake=True)))
        _place(scene_built, pods=True)
        settle_rollouts(scene_built)
        yield scene_built


@contextmanager
def on_plane(plane: ControlPlane, folder: Path, actions: ActionSettings = ACTIONS) -> Iterator[Scene]:
    """On a real control plane, in a namespace of its own, on nodes that kwok plays; waits until all is ready.

    Who acts has the documented rights, and no more.
    """
    name = f"act-{secrets.token_hex(4)}"
    scene_built = Scene(prepared(folder, name), settings_of(folder, plane.admin_kubeconfig, actions))
    nodes = list(objects.nodes((_roomy(node, name) for node in scene_built.inventory.nodes), fake=True))
    try:
        _send_whole(scene_built, nodes)
        _place(scene_built, pods=False)
        _await_ready(scene_built)
        yield replace(
            scene_built,
            settings=settings_of(
                folder, applier(plane, scene_built.namespace, heads_in=scene_built.settings.manager.namespace), actions
            ),
        )
    finally:
        client = plane.api()
        for path in (
            f"/api/v1/namespaces/{scene_built.namespace}",
            *(f"/api/v1/nodes/{i.address.name}" for i in nodes),
        ):
            with suppress(ApiError):
                client.delete(path)


def _roomy(node: Node, prefix: str) -> Node:
    """The node with twice its room: the scheduler places pods otherwise than the history has them, and where they just
    fit, whichever of them comes last may fit nowhere for ever."""
    twice = {resource: 2 * amount for resource, amount in node.allocatable.items()}
    return replace(node, name=f"{prefix}-{node.name}", capacity=twice, allocatable=twice)


def app_of(cluster: Scene, people: Callable[[], Person] | None = None, **context: Any) -> Any:
    """The application with a service. people: the administrator at this machine unless said; context: more of it."""
    settings = cluster.settings
    dashboard_context = DashboardContext(
        kubectl_command,
        manifest,
        settings.recommender.prices,
        actions=settings.actions,
        **{"current_user": people or at_this_machine(settings.kube), "changes": cluster.service(), **context},
    )
    source = StoreSource(cluster.store, settings.dashboard)
    return create_app(source, settings.dashboard, FixedClock(cluster.end_seconds), dashboard_context)


def served(cluster: Scene, people: Callable[[], Person] | None = None, **context: Any) -> AbstractContextManager[str]:
    """The same behind a real server; gives its address."""
    return support.served(app_of(cluster, people, **context))


def settle_rollouts(cluster: Scene) -> None:
    """On the embedded server: say that every controller has rolled out what its template asks for."""
    client, statuses = cluster.client, []
    for workload in cluster.inventory.workloads:
        if workload.ref.kind not in ("Deployment", "StatefulSet", "DaemonSet"):
            continue
        address = address_of(workload.ref)
        live = client.get(address.path) or {}
        count = (live.get("spec") or {}).get("replicas", workload.replicas)
        if workload.ref.kind == "DaemonSet":
            numbers = {"desiredNumberScheduled": count, "numberReady": count, "updatedNumberScheduled": count}
            numbers |= {"currentNumberScheduled": count, "numberMisscheduled": 0}
        else:
            numbers = {"replicas": count, "readyReplicas": count, "updatedReplicas": count}
        status = {**numbers, "observedGeneration": live["metadata"]["generation"]}
        head = {"apiVersion": address.api_version, "kind": workload.ref.kind}
        meta = {"name": address.name, "namespace": address.namespace}
        statuses.append(Apply(address, {**head, "metadata": meta, "status": status}, "status", why="test"))
    client.close()
    _send(cluster, statuses)


@contextmanager
def oversized_gpu(cluster: Scene) -> Iterator[ContainerRef]:
    """On the embedded server: a container that asks for a GPU, of which half would do by the stored findings."""
    workload, other = cluster.workloads[:2]
    name = cluster.live(workload)["spec"]["template"]["spec"]["containers"][0]["name"]
    ref, former = ContainerRef(workload, name), cluster.store.read_table(FINDINGS)
    proposal = str(GpuShareProposal(GpuShare(40, 50), GpuShare(100, 100)))
    findings = (
        ClusterFinding(FindingKind.OVERSIZED_GPU, ref, Severity.WARNING, proposal=proposal, monthly_saving=1.0),
        ClusterFinding(FindingKind.IDLE_WORKLOAD, other, Severity.WARNING),
    )
    cluster.store.write_table(tables.findings(findings))
    limits = {"requests": {"cpu": "1"}, "limits": {"memory": "8Gi", "nvidia.com/gpu": "1"}}
    operation = {"op": "add", "path": "/spec/template/spec/containers/0/resources", "value": limits}
    _send(cluster, [Patch(address_of(workload), (operation,), why="test")])
    settle_rollouts(cluster)
    try:
        yield ref
    finally:
        cluster.store.write_table(former)


def offer_gpu(cluster: Scene) -> None:
    """On the embedded server: a node whose Device object lists a healthy GPU."""
    name = "devices.scheduling.koordinator.sh"
    definition = yaml.safe_load((CRDS / f"{name}.yaml").read_text())
    _send(
        cluster, [Apply(Address("apiextensions.k8s.io/v1", "customresourcedefinitions", name), definition, why="test")]
    )
    card = {"type": "gpu", "minor": 0, "health": True, "resources": {"koordinator.sh/gpu-core": "100"}}
    body: dict[str, Any] = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": "gpu-node"},
    }
    device = Address(body["apiVersion"], "devices", "gpu-node")
    _send(cluster, [Apply(device, {**body, "spec": {"devices": [card]}}, why="test")])


def prepared(folder: Path, name: str = "pay") -> Prepared:
    """Generate, store and analyse a small cluster whose workloads all lie in one namespace; made once a run."""

    def make(target: Path) -> None:
        cluster = cluster_population.resident(SPEC, cluster_population.fake_nodes(SPEC))
        standing = cluster_population.present_cluster(
            _in_one(cluster, name), "embedded", SPEC.end_seconds
        )  # puts its prefix before
        store, end = Store((target / "store").as_uri(), "embedded"), standing.inventory.time_seconds
        demo.write(store, standing, Silent())
        daily_analysis.publish(daily_analysis.analyse(store, Settings(), FixedClock(end), Silent()), store, Settings())

    copy_template(f"prepared-{name}", folder, make)
    store = Store((folder / "store").as_uri(), "embedded")
    inventory = store.read_inventory()
    assert inventory is not None
    return Prepared(store, f"{cluster_population.PREFIX}{name}", inventory)


def settings_of(folder: Path, kubeconfig: Path, actions: ActionSettings) -> Settings:
    """Settings of a service: this cluster, a ledger in the folder, its head kept in namespace `kube-system`."""
    base = Settings()
    return msgspec.structs.replace(
        base,
        kube=KubeSettings(kubeconfig=str(kubeconfig)),
        actions=msgspec.structs.replace(actions, ledger=str(folder / "ledger.db")),
        dashboard=support.QUICK,
        manager=msgspec.structs.replace(base.manager, namespace="kube-system"),
    )


def git(folder: Path, *arguments: str) -> str:
    """The output of git in a folder, as somebody with a name."""
    identity = ("-c", "user.name=Jane", "-c", "user.email=jane@example.org")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def git_repository(cluster: Scene, folder: Path, *refs: WorkloadRef) -> Path:
    """A Git repository with the manifests of workloads as they are on the server."""
    folder.mkdir()
    for ref in refs:
        (folder / f"{ref.name}.yaml").write_text(f"# {ref}\n{yaml.safe_dump(cluster.live(ref))}")
    for arguments in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "As it is")):
        git(folder, *arguments)
    git(folder, "config", "user.name", "Jane")
    git(folder, "config", "user.email", "jane@example.org")
    return folder


def _in_one(cluster: SyntheticCluster, name: str) -> SyntheticCluster:
    """The same cluster with everything in one namespace; names get their old namespace in front, so that none meet."""

    def workload(ref: WorkloadRef) -> WorkloadRef:
        return WorkloadRef(name, ref.kind, f"{ref.namespace}-{ref.name}")

    def series(ref: PodContainerRef) -> PodContainerRef:
        return msgspec.structs.replace(ref, namespace=name, pod=f"{ref.namespace}-{ref.pod}")

    def pod(original: Pod) -> Pod:
        pod_name = f"{original.namespace}-{original.name}"
        return replace(original, namespace=name, name=pod_name, workload=workload(original.workload))

    def event(original: Event) -> Event:
        return replace(original, subject=series(original.subject))

    old = cluster.inventory
    inventory = replace(
        old,
        workloads=tuple(replace(w, ref=workload(w.ref)) for w in old.workloads),
        pods=tuple(pod(p) for p in old.pods),
        events=tuple(event(e) for e in old.events),
    )
    usage = {
        signal: original if signal.spec.per_node else replace(original, refs=tuple(series(r) for r in original.refs))
        for signal, original in cluster.usage.items()
    }
    return replace(cluster, inventory=inventory, usage=usage)


def _place(cluster: Scene, *, pods: bool) -> None:
    """Namespaces, then controllers, then what controllers would make where there are none."""
    bare = _unprefixed(cluster.inventory)
    namespaces = list(objects.namespaces(bare))
    _send(cluster, namespaces)
    if not pods:  # controllers make them; whose first try is refused tries again later and later
        for namespace in namespaces:
            account = f"{namespace.address.path}/serviceaccounts/default"
            wait_for(f"{account}", lambda account=account: cluster.client.get(account))
    _send(cluster, list(objects.workloads(bare)))
    if pods:
        _send_whole(cluster, list(objects.pods(bare)))


def _unprefixed(inventory: Inventory) -> Inventory:
    """With namespaces as `objects` takes them."""

    def bare(ref: WorkloadRef) -> WorkloadRef:
        return msgspec.structs.replace(ref, namespace=ref.namespace.removeprefix(cluster_population.PREFIX))

    return replace(
        inventory,
        workloads=tuple(replace(w, ref=bare(w.ref)) for w in inventory.workloads),
        pods=tuple(
            replace(p, namespace=p.namespace.removeprefix(cluster_population.PREFIX), workload=bare(p.workload))
            for p in inventory.pods
        ),
    )


def _send_whole(cluster: Scene, intents: Sequence[Apply]) -> None:
    """Objects first, then their statuses."""
    for subresource in ("", "status"):
        _send(cluster, [intent for intent in intents if intent.subresource == subresource])


def _send(cluster: Scene, intents: Sequence[Intent]) -> None:
    refused = [o for o in send_all(cluster.client, intents, "test", workers=4) if o.error]
    assert not refused, f"{len(refused)} of {len(intents)} were refused: {refused[0]}"


def _await_ready(cluster: Scene) -> None:
    """Until every controller has its pods; AssertionError with those that have not."""
    missing: list[str] = []

    def ready() -> bool:
        missing[:] = _unready(cluster)
        return not missing

    try:
        wait_for("every workload to be ready", ready)
    except AssertionError as error:
        raise AssertionError(f"{error}: {missing}; {_pending(cluster)}") from error


def _unready(cluster: Scene) -> list[str]:
    """Controllers that do not have all their pods yet."""
    client = cluster.client
    waiting = [str(w.ref) for w in cluster.inventory.workloads if not _ready(client, w.ref)]
    client.close()
    return waiting


def _pending(cluster: Scene) -> list[str]:
    """Pods that are not ready, where they are, and what the scheduler and the kubelet say of them."""
    client = cluster.client
    pods = (client.get(f"/api/v1/namespaces/{cluster.namespace}/pods") or {}).get("items", ())
    client.close()
    conditions_of = {pod["metadata"]["name"]: pod.get("status", {}).get("conditions", ()) for pod in pods}
    nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName", "no node") for pod in pods}
    return [
        f"{name} on {nodes[name]}: " + "; ".join(f"{c['type']} {c.get('message', '')}" for c in wrong)
        for name, conditions in conditions_of.items()
        if (wrong := [c for c in conditions if c["status"] != "True"]) or not conditions
    ]


def _ready(client: KubeClient, ref: WorkloadRef) -> bool:
    if ref.kind not in ("Deployment", "StatefulSet", "DaemonSet"):
        return True
    live = client.get(address_of(ref).path) or {}
    status, replicas = live.get("status") or {}, (live.get("spec") or {}).get("replicas")
    count = status.get("desiredNumberScheduled", 1) if replicas is None else replicas
    is_observed = status.get("observedGeneration") == live["metadata"]["generation"]
    return is_observed and status.get("readyReplicas", status.get("numberReady", 0)) >= count
