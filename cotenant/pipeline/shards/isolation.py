"""EDGE: computes a shard although some of its workloads cannot be analysed: those are found, named and left out.

Whatever a person wrote into a workload, the others of its shard have results. One that is left out keeps its row and
its containers, without amounts, pods and usage; its recommendations are withheld with reason FAILED. It is tried again
in each run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

import structlog

from cotenant.base.cluster import Container, Inventory, Workload
from cotenant.base.controllers.isolation import failing_items
from cotenant.base.errors import CotenantError
from cotenant.base.identity import WorkloadRef
from cotenant.base.process.memory import pause_garbage_collection
from cotenant.base.progress import Progress
from cotenant.pipeline.shards import work
from cotenant.pipeline.shards.work import ShardResult, ShardTask


@pause_garbage_collection()
def compute(task: ShardTask, progress: Progress | None = None) -> ShardResult:
    """Compute one shard, without the workloads on which the analysis fails. StoreError when the store fails."""
    try:
        return work.compute(task, progress)
    except (CotenantError, MemoryError):
        raise
    except Exception as error:
        refs = [workload.ref for workload in task.shard.inventory.workloads]
        for of_pods in (False, True):
            if _computes(lesser := partial(_lesser, task, of_pods=of_pods), refs):
                failed = failing_items(refs, partial(_computes, lesser))
                for ref in sorted(failed):
                    structlog.get_logger(__name__).error("workload left out", workload=str(ref), error=repr(error))
                return work.compute(lesser(failed), progress)
        raise  # it is none of the workloads


def _lesser(task: ShardTask, failed: Collection[WorkloadRef], *, of_pods: bool) -> ShardTask:
    """The task without these workloads."""
    inventory = without(task.shard.inventory, failed, of_pods=of_pods)
    return replace(task, shard=replace(task.shard, inventory=inventory), failed=frozenset(failed))


def _computes(lesser: Callable[[Collection[WorkloadRef]], ShardTask], failed: Collection[WorkloadRef]) -> bool:
    try:
        work.compute(lesser(failed))
    except (CotenantError, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - it may be any error, and is what the search is for
        return False
    return True


def compute_packed(task: ShardTask) -> ShardResult:
    """`compute` for a result that is sent, and kept beside those of other shards."""
    return compute(task).packed()


def without(inventory: Inventory, refs: Collection[WorkloadRef], *, of_pods: bool = False) -> Inventory:
    """Return the inventory with nothing of these workloads but their names and those of their containers.

    Their pods stay, since what they use counts on their nodes; of_pods: without amounts.
    """
    if not refs:
        return inventory
    gone = frozenset(refs)
    changed = replace(
        inventory,
        workloads=tuple(_bare(w) if w.ref in gone else w for w in inventory.workloads),
        vpa_histories=tuple(h for h in inventory.vpa_histories if h.container.workload not in gone),
    )
    if not of_pods:
        return changed
    pods = tuple(
        replace(pod, requests={}, mid_requests={}, batch_millicores=0) if pod.workload in gone else pod
        for pod in inventory.pods
    )
    return replace(changed, pods=pods)


def _bare(workload: Workload) -> Workload:
    return Workload(workload.ref, 0, tuple(Container(c.name, role=c.role) for c in workload.containers))
