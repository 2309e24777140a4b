"""The workloads of which an inventory may know only a part, and those that have ended and will not run again. Pure.

A pod that is known only from its usage, or whose topmost owner is unknown, is a part of some workload: of the one with
whose name its own begins; if there is none, it may belong to any workload of its namespace.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from typing import Final

from cotenant.base.cluster import Inventory, Pod, UnnamedPod, Workload
from cotenant.base.identity import WorkloadRef
from cotenant.base.reasons import Reason

PodKey = tuple[str, str]
"""Namespace and name of a pod."""

LISTED_AFTER_SECONDS: Final = 1800
"""A pod that began to use something less than this ago may not have been listed yet: two scrapes of 15 minutes."""
MEASURED_AFTER_SECONDS: Final = 3600
"""A pod that started less than this ago need not have been scraped: four scrapes of 15 minutes."""
_MARKS: Final = (Reason.OWNER_UNKNOWN, Reason.PODS_UNNAMED)
_JOB_POD: Final = re.compile(r"-(\d+-)?[bcdfghjklmnpqrstvwxz2456789]{5}")
"""Suffix that a Job adds to its name for a pod, with the pod's index if it has one; longer names are cut before it."""
_LONGEST_STEM: Final = 58  # of a pod's name, before five random characters: longer names of controllers are cut in it


def unnamed_pods(inventory: Inventory) -> tuple[UnnamedPod, ...]:
    """Return the pods that only their usage shows, although they are old enough to be listed by the source."""
    since = inventory.time_seconds - LISTED_AFTER_SECONDS
    return tuple(pod for pod in inventory.unnamed if pod.first_seconds <= since)


def unmeasured_pods(inventory: Inventory, measured: Set[PodKey], newest_seconds: float) -> tuple[Pod, ...]:
    """Return the pods that have run long enough to be scraped but have no usage.

    `measured` has (namespace, name) of pods with usage; `newest_seconds` is the Unix time of the newest sample.
    """
    since = newest_seconds - MEASURED_AFTER_SECONDS
    return tuple(
        pod
        for pod in inventory.pods
        if pod.serving and 0 < pod.start_seconds < since and (pod.namespace, pod.name) not in measured
    )


def with_parts_marked(inventory: Inventory) -> Inventory:
    """Return the inventory with the gaps OWNER_UNKNOWN and PODS_UNNAMED set only on the workloads they apply to."""
    lost = [pod for pod in inventory.pods if not pod.owner_known]
    # Jobs of which some pods have names as Kubernetes' own Jobs give them, and others have not, such as Volcano's.
    # Two objects called Job may have one name; kube-state-metrics tells no group of an owner.
    forms_by_ref: dict[WorkloadRef, set[bool]] = {}
    for pod in inventory.pods:
        if pod.workload.kind == "Job":
            rest = pod.name.removeprefix(pod.workload.name)
            forms_by_ref.setdefault(pod.workload, set()).add(bool(_JOB_POD.fullmatch(rest)) or rest == pod.name)
    own = {pod.workload for pod in lost} | {ref for ref, forms in forms_by_ref.items() if len(forms) > 1}
    suspects = _suspects(inventory, lost)
    workloads = tuple(_mark_gaps(w, w.ref in own, w.ref in suspects) for w in inventory.workloads)
    return inventory if workloads == inventory.workloads else replace(inventory, workloads=workloads)


def _mark_gaps(workload: Workload, unowned: bool, suspect: bool) -> Workload:
    others = tuple(reason for reason in workload.gaps if reason not in _MARKS)
    marks = tuple(mark for mark, so in zip(_MARKS, (unowned, suspect), strict=True) if so)
    return workload if workload.gaps == (*marks, *others) else replace(workload, gaps=(*marks, *others))


def _suspects(inventory: Inventory, lost: Iterable[Pod]) -> set[WorkloadRef]:
    """Return the workloads that a pod of unknown owner may belong to, except the one that stands for itself."""
    # Pods without a known owner: namespace, name, the workload that stands for it, whether it may be anybody's. Where a
    # direct owner is known, such as a ReplicaSet, its name begins with that of who owns it.
    strangers: list[tuple[str, str, WorkloadRef | None, bool]] = [
        *((stranger.namespace, stranger.name, None, True) for stranger in unnamed_pods(inventory)),
        *((p.namespace, p.name, p.workload, p.workload == WorkloadRef(p.namespace, "Pod", p.name)) for p in lost),
    ]
    namespaces = {namespace for namespace, *_ in strangers}
    by_name: dict[str, dict[str, list[WorkloadRef]]] = {namespace: {} for namespace in namespaces}
    for workload in inventory.workloads:
        if workload.ref.namespace in namespaces:
            stem = workload.ref.name[:_LONGEST_STEM]
            by_name[workload.ref.namespace].setdefault(stem, []).append(workload.ref)
    suspects: set[WorkloadRef] = set()
    for namespace, pod, own, anybodys in strangers:
        by_stem = {ref for stem in _stems(pod) for ref in by_name[namespace].get(stem, ())} - {own}
        everybody = anybodys and not by_stem
        suspects |= {ref for refs in by_name[namespace].values() for ref in refs} - {own} if everybody else by_stem
    return suspects


def _stems(pod: str) -> Iterator[str]:
    """Yield the names of workloads whose pods may have this name."""
    yield from (pod[:index] for index, letter in enumerate(pod) if letter == "-" and index)
    if len(pod) > _LONGEST_STEM:
        yield pod[:_LONGEST_STEM]


RETRY_SECONDS: Final = 900
"""A Job's next pod follows a failed one after six minutes at most; one without a pod for longer is over."""
_SHOWN: Final = 5  # names that a note tells
_RUNS: Final = (
    *("Workflow", "TaskRun", "PipelineRun", "Build"),
    *("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "Trial", "TestRun", "AnalysisRun"),
    *("EphemeralRunner", "GameServer"),
)
"""The runs of Argo, Tekton, OpenShift, Kubeflow and k6, GitHub's runners and the servers of Agones."""
_KINDS: Final = {
    "Pod": "pods without a controller",
    "Job": "Jobs without a CronJob",
    **{kind: f"{kind}s" for kind in _RUNS},
}
"""Kinds of which each object runs once, and what a note calls them."""


def ended_workloads(inventory: Inventory) -> frozenset[WorkloadRef]:
    """Return the workloads that have ended and will not run again: Jobs, workflow runs, pods without a controller."""
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
    """Return the inventory without the workloads that have ended; all pods and events remain in it."""
    left_out = ended_workloads(inventory)
    if not left_out:
        return inventory
    return replace(inventory, workloads=tuple(w for w in inventory.workloads if w.ref not in left_out))


def left_out_notes(inventory: Inventory) -> tuple[str, ...]:
    """Return a note with the number and names of ended workloads, which get no recommendations; empty without any."""
    left_out = sorted(ended_workloads(inventory))
    if not left_out:
        return ()
    counts = Counter(ref.kind for ref in left_out)
    what = ", ".join(f"{phrase}: {counts[kind]}" for kind, phrase in _KINDS.items() if counts[kind])
    some = ", ".join(f"{ref.namespace}/{ref.name}" for ref in left_out[:_SHOWN])
    more = f" and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
    return (
        f"workloads that have ended are left out of recommendations and findings: {what} ({some}{more}); their usage "
        "stays in the history and in the lists of workloads",
    )
