"""`cotenant node topology`: the sockets, cores and threads of a node, and which pod or pool owns each."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cotenant.base.commands.files import documents
from cotenant.base.commands.output import Format, NoHeadersOption, OutputOption, print_table
from cotenant.base.commands.results import Context, Kubeconfig, settings_of
from cotenant.base.commands.session import examples
from cotenant.base.errors import UsageError
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.base.tables.quantity import Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cotenant.base.allocation.cpu_ownership import CpuOwner, DeviceOwnership

CORES_A_LINE: Final = 16
TOPOLOGY: Final = Schema(
    "node-topology",
    (
        Column("cpu", "CPU", Kind.INTEGER, "Number of the logical CPU.", unit=Unit.NUMBER),
        Column("core", "Core", Kind.INTEGER, "The CPU's core; empty if the CPU is offline.", unit=Unit.NUMBER),
        Column("socket", "Socket", Kind.INTEGER, "Socket of the CPU.", unit=Unit.NUMBER),
        Column("numa_node", "NUMA node", Kind.INTEGER, "NUMA node of the CPU.", unit=Unit.NUMBER),
        Column("state", "State", Kind.TEXT, "Use: shared, pod, reserved, kubelet-reserved, system, isolated, offline."),
        Column("pod", "Pod", Kind.TEXT, "namespace/name of the pod that has the CPU exclusively."),
    ),
    ("cpu",),
)
EXAMPLES: Final = examples(
    "cotenant node topology worker-3",
    "cotenant node topology worker-3 -o json",
    "cotenant node topology --topology machine.yaml  # a machine from a file",
)


def topology(
    ctx: typer.Context,
    node: Annotated[str, typer.Argument(help="Name of the node.", show_default=False)] = "",
    file: Annotated[
        Path | None,
        typer.Option("--topology", metavar="FILE", help="File that describes a machine, in place of a node."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputOption = Format.TABLE,
    no_headers: NoHeadersOption = False,
) -> None:
    """Draw a node's CPUs, one cell per core and one letter per thread, with their owners; list its devices."""
    if bool(node) is (file is not None):
        raise UsageError("give the name of a node, or --topology FILE", fix="cotenant node topology NODE")
    settings = settings_of(ctx, None, kubeconfig, context)
    if file is not None:
        from cotenant.base.allocation.cpu_ownership import NodeTopology, owners
        from cotenant.base.allocation.topology_document import described_machine

        body, *more = documents(str(file))
        if more or not isinstance(body, dict):
            raise UsageError(f"{file} does not describe one machine", fix="Give one object in YAML or JSON.")
        machine = NodeTopology(str(file), tuple(owners(described_machine(body, str(file)), {}, str(file))))
    else:
        from cotenant.base.kube import connect
        from cotenant.enforcer.model.topology_reading import read_topology

        with contextlib.closing(connect(settings.section(KubeSettings))) as client:
            machine = read_topology(client, node)
    cpu_owners = machine.cpus
    if output is Format.TABLE:
        devices = [*map(device_line, machine.devices), *(text for _, text in machine.notes)]
        lines = (*cpu_drawing_lines(cpu_owners), *([""] if devices else []), *devices)
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return
    print_table(Table.from_rows(TOPOLOGY, cpu_rows(cpu_owners)), output, headers=not no_headers)


def cpu_rows(cpus: Sequence[CpuOwner]) -> list[dict[str, Any]]:
    """Return one row for each hardware thread of a node."""
    return [{column.name: getattr(owner, column.name) for column in TOPOLOGY.columns} for owner in cpus]


def cpu_drawing_lines(owners: Sequence[CpuOwner]) -> Iterator[str]:
    """Yield a drawing's lines, without line ends: a cell per core, a letter per thread, and a legend of owners."""
    from cotenant.base.allocation.cpu_ownership import core_groups, legend, sign_of

    entries = legend(owners)
    for group in core_groups(owners):
        yield group.title
        # One line per CORES_A_LINE cores: the first core's number, then per core one sign for each thread.
        for first in range(0, len(group.cores), CORES_A_LINE):
            line = group.cores[first : first + CORES_A_LINE]
            cells = ["".join(sign_of(owner, entries) for owner in core) for core in line]
            yield f"  core {line[0][0].core:>4}  " + " ".join(cells)
    yield ""
    for entry in entries:
        yield f"{entry.sign}  {entry.label}: {entry.cpus}"


def device_line(device: DeviceOwnership) -> str:
    """Return a line with the state of one device and the pods that own it, each with its percent."""
    owners = [f"{pod} {percent} %" for pod, percent in device.pods]
    return "  ".join([device.name, device.id, device.place, device.state, *owners])
