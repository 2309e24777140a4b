"""The computed size of a cluster as tables and as one document, for all interfaces. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cotenant.base.amount_text import cores, gib, money
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.base.text import agree, counted
from cotenant.scheduler_ext.cluster_size.autoscalers.model import Obstacle
from cotenant.scheduler_ext.cluster_size.machines.bills import Bill
from cotenant.scheduler_ext.cluster_size.machines.mix import Mix
from cotenant.scheduler_ext.cluster_size.model import ClusterSize
from cotenant.scheduler_ext.cluster_size.steps import SizeStep

NODES: Final = Schema(
    "cluster-size-nodes",
    (
        Column("node", "Node", Kind.TEXT, "Name of the node.", essential=True),
        Column("zone", "Zone", Kind.TEXT, "Zone of the node."),
        Column("leaves", "Leaves", Kind.TEXT, "yes if the node could be removed.", essential=True),
        Column("turn", "Turn", Kind.INTEGER, "Position of the node in the order in which nodes are emptied."),
        Column("pods", "Pods moved", Kind.INTEGER, "Pods of the node that are placed elsewhere."),
        Column("cpu", "CPU", Kind.MILLICORES, "Allocatable CPU of the node."),
        Column("memory", "Memory", Kind.BYTES, "Allocatable memory of the node."),
        Column("price_month", "Price/month", Kind.NUMBER, "Monthly price of the node; empty if unknown."),
        Column("reason", "Reason", Kind.TEXT, "Code of the reason why a node stays."),
        Column("binds", "What binds it", Kind.TEXT, "Object that keeps the node, with amounts.", wide=True),
    ),
    ("node",),
)
MOVES: Final = Schema(
    "cluster-size-moves",
    (
        Column("turn", "Turn", Kind.INTEGER, "Position of the pod's node in the order of removal."),
        Column("node", "From", Kind.TEXT, "Node to remove.", essential=True),
        Column("pod", "Pod", Kind.TEXT, "NAMESPACE/NAME of the pod.", essential=True),
        Column("owner", "Controller", Kind.TEXT, "Controller that creates the pod again.", wide=True),
        Column("target", "To", Kind.TEXT, "Node that took the pod in the first trial placement.", essential=True),
    ),
    ("pod",),
)
STEPS: Final = Schema(
    "cluster-size-steps",
    (
        Column("turn", "Step", Kind.INTEGER, "Position of the step in the plan.", essential=True),
        Column(
            "earliest", "Not before", Kind.TIME, "Earliest time of the step; empty if an obstacle prevents "
            "the step.", essential=True,
        ),
        Column("action", "Action", Kind.TEXT, "accept, wait, cordon, empty (a node) or take (remove a node)."),
        Column("words", "What happens", Kind.TEXT, "The step in words.", essential=True),
        Column("pods", "Pods moved", Kind.INTEGER, "Pods that leave the node in this step."),
        Column("by", "By", Kind.TEXT, "Person or program that would take the step."),
    ),
    ("turn",),
)  # fmt: skip
OBSTACLES: Final = Schema(
    "cluster-size-obstacles",
    (
        Column("object", "Object", Kind.TEXT, "Kind and name of the object that has the setting.", essential=True),
        Column("setting", "Setting", Kind.TEXT, "The setting or annotation with its value.", essential=True),
        Column("obeyed_by", "Obeyed by", Kind.TEXT, "Autoscalers that the setting stops."),
        Column("nodes", "Nodes kept", Kind.INTEGER, "Nodes that the setting keeps; empty if unknown.", essential=True),
        Column("leaving", "Removable nodes kept", Kind.INTEGER, "Removable nodes that the setting keeps."),
        Column("pods", "Pods with setting", Kind.INTEGER, "Pods that have the setting; empty if no pod sets it."),
        Column("even_empty", "Keeps empty node", Kind.TEXT, "yes: the setting also keeps a node without pods to move."),
        Column("words", "What it does", Kind.TEXT, "Consequence of the setting.", essential=True),
    ),
    ("object", "setting"),
)

MIX: Final = Schema(
    "cluster-size-mix",
    (
        Column("machine", "Machine type", Kind.TEXT, "Type of the new machines, or `nodes that stay`.", essential=True),
        Column("zone", "Zone", Kind.TEXT, "Zone of these nodes.", essential=True),
        Column("count", "Nodes", Kind.INTEGER, "Number of nodes.", essential=True),
        Column("price_month", "Price/month", Kind.NUMBER, "Monthly price of all these nodes.", essential=True),
    ),
    ("machine", "zone"),
)
BILLS: Final = Schema(
    "cluster-size-bills",
    (
        Column(
            "bill", "Bill", Kind.TEXT, "today, right-sizing alone (price of the nodes that stay), packing alone (price "
            "of the cheapest mix for present requests), or both.", essential=True,
        ),
        Column("nodes", "Nodes", Kind.INTEGER, "Number of nodes; empty if not computed.", essential=True),
        Column("price_month", "Price/month", Kind.NUMBER, "Monthly price of the priced nodes.", essential=True),
        Column("unpriced", "Without a price", Kind.INTEGER, "Number of nodes without a price."),
        Column("bound_month", "Lower bound", Kind.NUMBER, "Lower bound of any mix's monthly price."),
        Column("reason", "Why no bill", Kind.TEXT, "Why the bill was not computed; else empty."),
    ),
    ("bill",),
)  # fmt: skip
KEPT: Final = "nodes that stay"


def node_table(size: ClusterSize) -> Table:
    """Return the table of nodes: those that could be removed, in the order of removal, then those that stay."""
    rows: list[Mapping[str, Any]] = [
        {
            "node": node.name, "zone": node.zone, "leaves": "yes", "turn": node.turn, "pods": len(node.places),
            "cpu": node.allocatable.get("cpu"), "memory": node.allocatable.get("memory"),
            "price_month": node.price_month,
        }
        for node in size.leaving
    ]  # fmt: skip
    rows += [
        {
            "node": node.name, "zone": node.zone, "leaves": "no", "reason": node.stay.reason.value,
            "binds": node.stay.words, "cpu": node.allocatable.get("cpu"), "memory": node.allocatable.get("memory"),
            "price_month": node.price_month,
        }
        for node in size.staying
    ]  # fmt: skip
    return Table.from_rows(NODES, rows)


def move_table(size: ClusterSize) -> Table:
    """Return the table of the removable nodes' pods, each with the node that takes it."""
    rows = [
        {"turn": node.turn, "node": node.name, "pod": place.pod, "owner": place.owner, "target": place.target}
        for node in size.leaving
        for place in node.places
    ]
    return Table.from_rows(MOVES, rows)


def step_table(steps: Sequence[SizeStep]) -> Table:
    """Return the table of a plan's steps."""
    rows = [
        {
            "turn": step.turn, "earliest": step.earliest_seconds, "action": step.action.value,
            "words": step.words, "pods": step.pods or None, "by": step.by,
        }
        for step in steps
    ]  # fmt: skip
    return Table.from_rows(STEPS, rows)


def obstacle_table(obstacles: Sequence[Obstacle], size: ClusterSize) -> Table:
    """Return the table of obstacles, each with the numbers of nodes and of removable nodes that it concerns."""
    leaving = {node.name for node in size.leaving}
    rows = [
        {
            "object": obstacle.object, "setting": obstacle.setting, "obeyed_by": ", ".join(obstacle.obeyed_by),
            "nodes": None if obstacle.nodes is None else len(obstacle.nodes),
            "leaving": None if obstacle.nodes is None else len(leaving.intersection(obstacle.nodes)),
            "pods": obstacle.pods or None, "even_empty": "yes" if obstacle.even_empty else "no",
            "words": obstacle.words,
        }
        for obstacle in obstacles
    ]  # fmt: skip
    return Table.from_rows(OBSTACLES, rows)


def mix_table(mix: Mix | None) -> Table:
    """Return the table of a mix: the new nodes by machine type and zone, then the nodes that stay."""
    rows: list[dict[str, Any]] = [
        {"machine": line.machine, "zone": line.zone, "count": line.count, "price_month": line.price_month}
        for line in (mix.lines if mix else ())
    ]
    if mix and not mix.reason and mix.kept:
        rows.append({"machine": KEPT, "zone": "", "count": len(mix.kept), "price_month": mix.kept_month})
    return Table.from_rows(MIX, rows)


def bill_table(bills: Sequence[Bill]) -> Table:
    """Return the table of the four monthly bills, one per row."""
    rows = [
        {
            "bill": bill.name, "nodes": bill.nodes, "price_month": bill.price_month,
            "unpriced": None if bill.nodes is None else bill.unpriced, "bound_month": bill.bound_month,
            "reason": bill.reason,
        }
        for bill in bills
    ]  # fmt: skip
    return Table.from_rows(BILLS, rows)


def summary_of(size: ClusterSize) -> dict[str, Any]:
    """Return the totals of a computed size as plain data, in millicores, bytes and money per month."""
    return {
        "nodes": size.nodes_now,
        "nodes_that_could_leave": len(size.leaving),
        "nodes_kept": len(size.staying),
        "freed_millicores": size.freed_millicores,
        "freed_bytes": size.freed_bytes,
        "freed_month": size.price_month,
        "nodes_without_price": size.unpriced_count,
        "pods_moved": sum(len(node.places) for node in size.leaving),
        "pods_losing_emptydir": size.losing_storage,
        "reserve_nodes": size.options.reserve_nodes,
        "reserve_zone": size.options.reserve_zone,
        "trials": list(size.trials),
        "unmodelled_rules": dict(size.unmodelled),
        "pods_without_place": list(size.waiting),
        "gaps": list(size.gaps),
    }


def count_text(size: ClusterSize) -> str:
    """Return the number of removable nodes, such as "7 of 60 nodes"."""
    return f"{len(size.leaving)} of {counted(size.nodes_now, 'node')}"


def headline_of(size: ClusterSize, currency: str = "") -> str:
    """Return the number of removable nodes in one sentence, with money if a currency is given and a price is known."""
    reserve_text = f"{size.options.reserve_nodes} in reserve" if size.options.reserve_nodes else "none in reserve"
    if size.options.reserve_zone:
        reserve_text = f"{reserve_text} and one zone" if size.options.reserve_nodes else "one zone in reserve"
    amounts = [f"{cores(size.freed_millicores)} cores", gib(size.freed_bytes)]
    if currency and size.price_month is not None:
        amounts.append(f"{money(size.price_month, currency)} a month")
    freed = f": {', '.join(amounts)}" if size.leaving else ""
    return f"{count_text(size)} could leave{freed} ({reserve_text})"


def notes_of(size: ClusterSize) -> list[str]:
    """Return the sentences that qualify the number of removable nodes, such as rules that are not modelled."""
    notes = []
    if len(size.leaving) > 1:
        notes.append("cordon all these nodes, then empty them one by one in this order; otherwise pods may wait")
    for rule, count in sorted(size.unmodelled.items()):
        notes.append(f"not modelled: {rule}; {agree(count, 'pod counts', 'pods count')} as immovable")
    if size.waiting:
        pods, first = counted(len(size.waiting), "pod"), size.waiting[0]
        notes.append(f"{pods} without a node may find none in today's cluster either, such as {first}")
    if missing := size.missing_memory:
        amount, pods = gib(sum(missing)), agree(len(missing), "pod requests", "pods request")
        notes.append(
            f"{pods} {amount} less memory than recommended, and fuller nodes may run short: raise the requests first"
        )
    if size.losing_storage:
        notes.append(f"{size.losing_storage} moved pods lose the content of their emptyDir volumes")
    return notes
