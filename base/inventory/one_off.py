"""Pods without a controller that are gone, and one-off Jobs and runs that are over: they will not run again. Pure.

Their usage is history. A proposal for them changes nothing, and a finding of them asks for nothing, so both leave them
out; what is left out is counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

from cotenant.base.cluster import Inventory
from cotenant.base.identity import WorkloadRef

RETRY_SECONDS: Final = 900
"""A Job's next pod follows a failed one after six minutes at most; one without a pod for longer is over."""
_SHOWN: Final = 5
"""Names that a note tells."""
_RUNS: Final = (
    *("Workflow", "TaskRun", "PipelineRun", "Build"),
    *("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "Trial", "TestRun", "AnalysisRun"),
    *("EphemeralRunner", "GameServer"),
)
"""The runs of Argo, Tekton, OpenShift, Kubeflow and k6, GitHub's runners and the servers of Agones."""
_KINDS: Final = {
    "Pod": "pods without a controller",
    "Job": "Jobs of no CronJob",
    **{kind: f"{kind}s" for kind in _RUNS},
}
"""Kinds of which each object runs once, and what a note calls them."""


def ended_workloads(inventory: Inventory) -> frozenset[WorkloadRef]:
    """Return the workloads that have ended and will not run again: Jobs, their runs, and pods without a controller."""
    since = inventory.time_seconds - RETRY_SECONDS
    lasting: set[WorkloadRef] = set()
    for pod in inventory.pods:
        runs = pod.running and not pod.phase.ended
        if runs or (pod.workload.kind != "Pod" and pod.end_seconds is not None and pod.end_seconds > since):
            lasting.add(pod.workload)
    return frozenset(
        w.ref for w in inventory.workloads if w.ref.kind in _KINDS and not w.replicas and w.ref not in lasting
    )


def without_over(inventory: Inventory) -> Inventory:
    """The inventory whose workloads are those that run, or may run again; pods and events are all there."""
    left_out = ended_workloads(inventory)
    if not left_out:
        return inventory
    return replace(inventory, workloads=tuple(w for w in inventory.workloads if w.ref not in left_out))


def left_out_notes(inventory: Inventory) -> tuple[str, ...]:
    """Return a note with the number and names of workloads that are left out; empty if there are none."""
    left_out = sorted(ended_workloads(inventory))
    if not left_out:
        return ()
    counts = Counter(ref.kind for ref in left_out)
    what = ", ".join(f"{words}: {counts[kind]}" for kind, words in _KINDS.items() if counts[kind])
    some = ", ".join(f"{ref.namespace}/{ref.name}" for ref in left_out[:_SHOWN])
    more = f" and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
    return (
        f"over, and left out of recommendations and findings: {what} ({some}{more}); their usage stays in the history "
        "and among the workloads",
    )
