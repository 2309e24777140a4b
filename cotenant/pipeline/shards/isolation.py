"""EDGE: computes a shard although some of its workloads cannot be analysed: it finds, names and leaves out these.

The same applies to nodes on which stages after the shards fail. Whatever a person wrote into a workload, the others of
its shard have results. A workload that is left out keeps its row and its containers, without amounts, pods and usage;
its recommendations are withheld with reason FAILED. Each run tries it again.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Hashable
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import numpy as np
import structlog

from cotenant.base.cluster import Container, Inventory, Node, Workload
from cotenant.base.controllers.isolation import Watched, failing_items, standing_items
from cotenant.base.errors import CotenantError
from cotenant.base.identity import NodeRef, WorkloadRef
from cotenant.base.process.in_hand import ObjectVersion
from cotenant.base.process.memory import pause_garbage_collection
from cotenant.base.progress import Progress
from cotenant.pipeline.analysis import History
from cotenant.pipeline.shards import work
from cotenant.pipeline.shards.work import ShardResult, ShardTask

OF_OTHERS: Final = (CotenantError, MemoryError)
RefT = TypeVar("RefT", NodeRef, WorkloadRef)


@pause_garbage_collection()
def compute(task: ShardTask, progress: Progress | None = None) -> ShardResult:
    """Compute one shard, without the workloads on which the analysis fails or has hung.

    Raises StoreError if the store fails.
    """
    workloads = {workload.ref: workload for workload in task.shard.inventory.workloads}
    watched: Watched[WorkloadRef] = Watched(
        f"shard {task.shard.index}", lambda ref: version_of(ref, workloads[ref]), math.inf
    )
    if standing := standing_items(watched, workloads, lambda refs: work.compute(_lesser(task, refs)), OF_OTHERS):
        task = _lesser(task, standing)
    with watched.note(watched.parts_of(())):
        return _compute_without_failing(task, progress)


def version_of(ref: NodeRef | WorkloadRef, described: object) -> ObjectVersion:
    """Return the identity by which a node or workload on which analyses hang is recorded: its name and a hash."""
    kind, namespace, name = ("nodes", "", ref.name) if isinstance(ref, NodeRef) else (ref.kind, ref.namespace, ref.name)
    return ObjectVersion(kind, namespace, name, str(zlib.crc32(repr(described).encode(errors="surrogatepass"))))


def _compute_without_failing(task: ShardTask, progress: Progress | None) -> ShardResult:
    try:
        return work.compute(task, progress)
    except OF_OTHERS:
        raise
    except Exception as error:
        refs = [workload.ref for workload in task.shard.inventory.workloads]
        for of_pods in (False, True):
            if _computes(lesser := partial(_lesser, task, of_pods=of_pods), refs):
                failed = failing_items(refs, partial(_computes, lesser))
                for ref in sorted(failed):
                    structlog.get_logger(__name__).error("workload left out", workload=str(ref), error=repr(error))
                return work.compute(lesser(failed), progress)
        nodes = [NodeRef(node.name) for node in task.shard.inventory.nodes]
        if _computes(bare := partial(_with_bare_nodes, task), nodes):
            failed_nodes = failing_items(nodes, partial(_computes, bare))
            for node in sorted(failed_nodes):
                structlog.get_logger(__name__).error("node left out", node=str(node), error=repr(error))
            return work.compute(bare(failed_nodes), progress)
        raise  # it is none of the workloads or nodes


def _lesser(task: ShardTask, failed: Collection[WorkloadRef], *, of_pods: bool = True) -> ShardTask:
    inventory = without(task.shard.inventory, failed, of_pods=of_pods)
    return replace(task, shard=replace(task.shard, inventory=inventory), failed=task.failed.union(failed))


def _with_bare_nodes(task: ShardTask, failed: Collection[NodeRef]) -> ShardTask:
    return replace(task, shard=replace(task.shard, inventory=_bare_nodes(task.shard.inventory, failed)))


def _computes(lesser: Callable[[Collection[RefT]], ShardTask], failed: Collection[RefT]) -> bool:
    try:
        work.compute(lesser(failed))
    except OF_OTHERS:
        raise
    except Exception:  # noqa: BLE001 - it may be any error, and is what the search is for
        return False
    return True


def compute_packed(task: ShardTask) -> ShardResult:
    """Compute one shard and return its result in packed form, to be sent to and kept by another process."""
    return compute(task).packed()


def without(inventory: Inventory, refs: Collection[WorkloadRef], *, of_pods: bool = False) -> Inventory:
    """Return the inventory with these workloads reduced to their names and those of their containers.

    Their pods are kept, because their usage counts on their nodes; with `of_pods` the pods' requests are removed.
    """
    if not refs:
        return inventory
    gone_refs = frozenset(refs)
    changed = replace(
        inventory,
        workloads=tuple(_bare(w) if w.ref in gone_refs else w for w in inventory.workloads),
        vpa_histories=tuple(h for h in inventory.vpa_histories if h.container.workload not in gone_refs),
    )
    if not of_pods:
        return changed
    pods = tuple(
        replace(pod, requests={}, mid_requests={}, batch_millicores=0) if pod.workload in gone_refs else pod
        for pod in inventory.pods
    )
    return replace(changed, pods=pods)


def without_objects(history: History, refs: Collection[NodeRef | WorkloadRef]) -> History:
    """Return the history with these nodes (also without usage) and workloads reduced to their names; pods are kept."""
    if not refs:
        return history
    inventory = without(history.inventory, [ref for ref in refs if isinstance(ref, WorkloadRef)])
    usage = {
        signal: replace(of, values=np.where([[ref in refs] for ref in of.refs], np.nan, of.values)) if of.refs else of
        for signal, of in history.node_usage.items()
    }
    return replace(history, inventory=_bare_nodes(inventory, refs), node_usage=usage)


def described(inventory: Inventory) -> dict[NodeRef | WorkloadRef, Node | Workload]:
    """Return the nodes and workloads of the inventory, except those that an earlier stage reduced to their names."""
    objects: dict[NodeRef | WorkloadRef, Node | Workload] = {
        NodeRef(node.name): node for node in inventory.nodes if node != _bare_node(node)
    }
    return objects | {workload.ref: workload for workload in inventory.workloads if workload != _bare(workload)}


def _bare_nodes(inventory: Inventory, refs: Collection[Hashable]) -> Inventory:
    nodes = tuple(_bare_node(n) if NodeRef(n.name) in refs else n for n in inventory.nodes)
    return replace(inventory, nodes=nodes)


def _bare_node(node: Node) -> Node:
    return Node(node.name, {}, {})


def _bare(workload: Workload) -> Workload:
    return Workload(workload.ref, 0, tuple(Container(c.name, role=c.role) for c in workload.containers))
