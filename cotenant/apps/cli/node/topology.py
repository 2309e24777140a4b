"""`cotenant node topology`: sockets, cores and threads of a node, and whose they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cotenant.apps.cli.cluster.install import ContextOption, KubeconfigOption
from cotenant.apps.cli.command import examples, session_of
from cotenant.apps.cli.documents import documents, mapping
from cotenant.apps.cli.output import Format, NoHeadersOption, OutputOption, print_table
from cotenant.core.model.errors import ClusterError, NoData, UsageError
from cotenant.core.model.table import Column, Kind, Schema, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cotenant.core.model.allocation.cpu_ownership import CpuOwner
    from cotenant.core.model.allocation.devices import Allocations
    from cotenant.core.settings.root import Settings

TOPOLOGY: Final = Schema(
    "node-topology",
    (
        Column("cpu", "CPU", Kind.INTEGER, "Number of the thread."),
        Column("core", "Core", Kind.INTEGER, "Number of its core on the machine; empty: it is offline."),
        Column("socket", "Socket", Kind.INTEGER, "Its socket."),
        Column("numa_node", "NUMA node", Kind.INTEGER, "Its NUMA node."),
        Column("state", "State", Kind.TEXT, "shared, pod, reserved, kubelet-reserved, system, isolated or offline."),
        Column("pod", "Pod", Kind.TEXT, "namespace/name of who has it alone."),
    ),
    ("cpu",),
)
EXAMPLES: Final = examples(
    "cotenant node topology worker-3",
    "cotenant node topology worker-3 -o json",
    "cotenant node topology --topology machine.yaml  # a machine that is not at hand",
)


def topology(
    ctx: typer.Context,
    node: Annotated[str, typer.Argument(help="Name of the node.", show_default=False)] = "",
    file: Annotated[
        Path | None,
        typer.Option("--topology", metavar="FILE", help="Description of a machine, in place of a node's own."),
    ] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Draw the CPUs of a node: a cell a core, a letter a thread, and whose they are; list its devices."""
    from cotenant.apps.cli.node.cpu_drawing import drawn

    if bool(node) is (file is not None):
        raise UsageError("give the name of a node, or --topology FILE", fix="cotenant node topology NODE")
    settings = session_of(ctx).load({"kube.kubeconfig": kubeconfig, "kube.context": context}).settings
    cpu_owners = _described(file) if file is not None else _published(settings, node)
    if output is Format.TABLE:
        devices = _devices(settings, node) if node else []
        sys.stdout.writelines(f"{line}\n" for line in (*drawn(cpu_owners), *devices))
        return
    rows = [{column.name: getattr(owner, column.name) for column in TOPOLOGY.columns} for owner in cpu_owners]
    print_table(Table.from_rows(TOPOLOGY, rows), output, headers=not no_headers)


def _described(file: Path) -> list[CpuOwner]:
    from cotenant.core.model.allocation.cpu_ownership import owners
    from cotenant.core.model.allocation.machine_file import described_machine

    body, *more = documents(str(file))
    if more or not isinstance(body, dict):
        raise UsageError(f"{file} is not one machine", fix="Give one object in YAML or JSON.")
    return list(owners(described_machine(body, str(file)), {}, str(file)))


def _published(settings: Settings, node: str) -> list[CpuOwner]:
    """By the node's NodeResourceTopology, which lists the pods too, and the annotations of the Node."""
    from cotenant.core.adapters.kube import connect
    from cotenant.core.model.allocation.cpu_ownership import owners
    from cotenant.core.model.allocation.topology_document import parse_topology, topology_address

    client = connect(settings.kube)
    try:
        body = client.get(f"/api/v1/nodes/{node}")
        document = client.get(topology_address(node).path)
        if body is None or document is None:
            missing = "no NodeResourceTopology" if body else "no such node"
            raise NoData(f"{node}: {missing}", fix="Set enforcer.report_topology on its agent; give its exact name.")
        cpus = parse_topology(document)
    finally:
        client.close()
    return list(owners(cpus, mapping(mapping(body.get("metadata")).get("annotations")), node))


def _devices(settings: Settings, node: str) -> list[str]:
    """Lines of the node's Device object and its pods' annotations, or why there are none; [] without such an object."""
    from cotenant.apps.cli.node.device_list import listed
    from cotenant.core.model.allocation.devices import inventory_of

    try:
        body, pods = _device_objects(settings, node)
        inventory = inventory_of(body) if body is not None else None
    except (ClusterError, UsageError) as error:
        return ["", f"devices: {error.message}"]
    if inventory is None:
        return []
    allocations, unread = _shares(pods)
    return ["", *listed(inventory, allocations), *unread]


def _device_objects(settings: Settings, node: str) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """The node's Device, None = it has none, and its pods. ClusterError."""
    from cotenant.core.adapters.kube import connect
    from cotenant.core.model.allocation.device_allocator import COLLECTION

    client = connect(settings.kube)
    try:
        body = client.get(f"{COLLECTION}/{node}")
        return body, client.list("/api/v1/pods", fieldSelector=f"spec.nodeName={node}") if body else []
    finally:
        client.close()


def _shares(pods: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Allocations], list[str]]:
    """What each pod ("namespace/name") that has not ended has of devices; and lines about those that cannot be read."""
    from cotenant.core.model.allocation.devices import DEVICE_ALLOCATED_ANNOTATION, decoded

    allocations: dict[str, Allocations] = {}
    unread: list[str] = []
    for pod in pods:
        metadata = mapping(pod.get("metadata"))
        name = f"{metadata.get('namespace')}/{metadata.get('name')}"
        text = str(mapping(metadata.get("annotations")).get(DEVICE_ALLOCATED_ANNOTATION, ""))
        if mapping(pod.get("status")).get("phase") not in ("Succeeded", "Failed"):
            try:
                allocations[name] = decoded(text, name)
            except UsageError as error:
                unread.append(f"left out: {error.message}")
    return allocations, unread
