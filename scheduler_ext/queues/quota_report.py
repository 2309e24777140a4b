"""The queue report's part about quotas: rows per quota and resource, rows per waiting pod, problems. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from statistics import median
from typing import Final

from cotenant.base.kubernetes.observed import outlasts_its_end
from cotenant.base.kubernetes.protocol import OWNER_WORKLOAD_ANNOTATION
from cotenant.base.kubernetes.quota_tree import QuotaTree
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.queues.gangs.report import with_gangs
from cotenant.scheduler_ext.queues.gangs.state import gangs_decided
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.model.report import QueueReport, QuotaRow, WaitingPodRow
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.quota_admission import QuotaAdmission, WaitingPod, quota_admission
from cotenant.scheduler_ext.queues.quota_trees import ElasticTree
from cotenant.scheduler_ext.queues.revoke import borrows_since, let_go_by_quota, over_since
from cotenant.scheduler_ext.queues.view import QueueView

LEAST_RUNS: Final = 5
"""Number of finished runs below which the end of other pods is not estimated."""
HOLDERS: Final = 3
"""Most quotas that are named as users beyond their guarantee."""
_TAKEN: Final = (Reason.QUOTA_EXCEEDED, Reason.PARENT_QUOTA_EXCEEDED)
"""Obstacles that would be none if others used less."""
_QUEUED: Final = (Reason.QUOTA_EXCEEDED, Reason.BEHIND_IN_QUOTA)
"""Obstacles of pods that only have to wait for their turn."""


def queue_report(view: QueueView, settings: QueueSettings) -> QueueReport:
    """Return the rows of quotas, gangs and waiting pods, and the problems, of one reading of the cluster.

    The times since which a quota borrows or exceeds its runtime are those that the manager has published, else None.
    """
    admission = quota_admission(view, settings)
    over, borrows = over_since(view, admission), borrows_since(view, admission)
    quotas = report_of(
        view,
        admission,
        {name: since for name, since in over.items() if name in view.over_since},
        {name: since for name, since in borrows.items() if name in view.borrows_since},
    )
    return with_gangs(quotas, gangs_decided(view, settings).statuses, view, settings)


def report_of(
    view: QueueView, admission: QuotaAdmission, over: Mapping[str, float], borrows: Mapping[str, float]
) -> QueueReport:
    """Return the report of quotas; `over` and `borrows` are Unix times since which a quota exceeds runtime or min."""
    rows = tuple(
        replace(
            row,
            over_since_seconds=over.get(row.quota) if row.used > row.runtime else None,
            borrows_since_seconds=borrows.get(row.quota) if row.borrowed else None,
        )
        for tree in admission.forest.trees
        for row in _tree_rows(view, admission, tree)
    )
    # childless quotas that use more than their min, with the amount that each borrows, the largest first
    parents = {quota.parent for quota in view.quotas.values()}
    borrowers: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for row in sorted(rows, key=lambda r: (-r.borrowed, r.quota)):
        if row.borrowed and row.quota not in parents:
            borrowers.setdefault((row.tree, row.resource), []).append((row.quota, row.borrowed))
    trees = {(row.quota, row.resource): row.tree for row in rows}
    likely, waiting = _likely(view, admission), []
    for waiting_pod in admission.waiting_pods:
        pod, obstacle = waiting_pod.pod, waiting_pod.obstacle
        tree_id = trees.get((obstacle.quota, obstacle.resource)) if obstacle.code in _TAKEN else None
        holders = [] if tree_id is None else borrowers.get((tree_id, obstacle.resource), [])
        waiting.append(
            WaitingPodRow(
                pod.namespace,
                pod.name,
                pod.quota,
                pod.gang,
                pod.created_seconds,
                waiting_pod.position,
                obstacle.code,
                obstacle.sentence,
                obstacle.quota,
                obstacle.resource,
                pod.requests.get(obstacle.resource, 0),
                obstacle.missing,
                tuple(holder for holder in holders if holder[0] != obstacle.quota)[:HOLDERS],
                *likely.get(pod.uid, ()),
            )
        )
    namespaces = namespaces_of_quotas(view)
    profiles = [(f"elasticquotaprofiles/{p.namespace}/{p.name}", p.quota) for p in view.profiles]
    unmade = ((name, view.unmade[name]) for name, root in profiles if root not in view.quotas and name in view.unmade)
    return QueueReport(
        view.now_seconds,
        tuple(replace(row, namespaces=namespaces.get(row.quota, ())) for row in (*rows, *_aside(view, admission))),
        tuple(waiting),
        (),
        (*quota_problems(admission), *unmade, *view.unreadable),
    )


def namespaces_of_quotas(view: QueueView) -> dict[str, tuple[str, ...]]:
    """Return, by quota, the namespaces bound to it, and those whose pods or plans count against it or its children.

    The namespace of the quota's object is added if no namespace is bound to the quota, or if it has the quota's name.
    """
    tree = QuotaTree(view.quotas)
    direct = {name: set(quota.namespaces) for name, quota in view.quotas.items()}
    for name, quota in view.quotas.items():
        if name == quota.namespace or not direct[name]:
            direct[name] |= {quota.namespace}
    counted = {(pod.quota, pod.namespace) for pod in view.pods}
    plans = {
        reservation.annotations.get(OWNER_WORKLOAD_ANNOTATION, "").partition("/")[0]
        for reservation in view.reservations
    } - {""}
    counted |= {(bound.name, namespace) for namespace in plans if (bound := tree.of_pod(namespace, {})) is not None}
    for name, namespace in counted:
        if name in direct:
            direct[name].add(namespace)
    all_of = {name: set(those) for name, those in direct.items()}
    for name, quota in view.quotas.items():
        for above in tree.ancestors(quota):
            if above in all_of:
                all_of[above] |= direct[name]
    return {name: tuple(sorted(those - {""})) for name, those in all_of.items()}


def quota_problems(admission: QuotaAdmission) -> tuple[tuple[str, str], ...]:
    """Return (object, problem) for quotas that cannot be used, or that do not exist although a profile names them."""
    absent = {
        name: f"an ElasticQuotaProfile names this quota as the root of tree {tree_id}, but it does not exist yet"
        for name, tree_id in admission.forest.absent.items()
    }
    problems = {**admission.forest.problems, **absent}
    return tuple((f"elasticquotas/{name}", problem) for name, problem in sorted(problems.items()))


def _tree_rows(view: QueueView, admission: QuotaAdmission, tree: ElasticTree) -> Iterator[QuotaRow]:
    """Yield the rows of every quota, each directly before its children, siblings by name."""
    ancestors = admission.forest.ancestors
    for name in sorted(tree.quotas, key=lambda n: (*reversed(ancestors[n]), n)):
        quota, use = view.quotas[name], admission.uses[name]
        weights = quota.shared_weight if any(quota.shared_weight.values()) else quota.maximum
        for resource in sorted(quota.maximum):
            minimum, used = quota.minimum.get(resource, 0), use.used.get(resource, 0)
            yield QuotaRow(
                tree=tree.tree_id,
                quota=name,
                parent=quota.parent,
                depth=len(ancestors[name]),
                resource=resource,
                minimum=minimum,
                maximum=quota.maximum[resource],
                weight=weights.get(resource, quota.maximum[resource]),
                runtime=use.limit.get(resource, 0),
                request=use.request.get(resource, 0),
                used=used,
                borrowed=max(0, used - minimum),
                lent=max(0, minimum - use.request.get(resource, 0)) if quota.lends else 0,
                waiting_pods=use.waiting_pods,
            )


def _aside(view: QueueView, admission: QuotaAdmission) -> Iterator[QuotaRow]:
    """Yield rows of quotas that cannot be used, with their problem."""
    waiting = [waiting.pod.quota for waiting in admission.waiting_pods]
    for name, problem in sorted(admission.forest.problems.items()):
        quota = view.quotas[name]
        for resource in sorted(quota.maximum) or [""]:
            minimum, maximum = quota.minimum.get(resource, 0), quota.maximum.get(resource)
            figures = (resource, minimum, maximum, 0, 0, 0, quota.used.get(resource, 0), 0, 0, waiting.count(name))
            yield QuotaRow(quota.tree_id, name, quota.parent, 0, *figures, problem=problem)


def _likely(view: QueueView, admission: QuotaAdmission) -> dict[str, tuple[float, str]]:
    """Return, by UID of a waiting pod, when its quota is likely to admit it (Unix time), and the basis of that.

    Only capacity that pods of its own quota leave is counted, and pods ahead in the queue take it first. Empty if the
    view has no run times.
    """
    if view.runs is None:
        return {}
    queues: dict[tuple[str, str], list[WaitingPod]] = {}
    for waiting_pod in admission.waiting_pods:
        quota, obstacle = waiting_pod.pod.quota, waiting_pod.obstacle
        if waiting_pod.position and obstacle.code in _QUEUED and obstacle.quota == quota:
            queues.setdefault((quota, obstacle.resource), []).append(waiting_pod)
    running = let_go_by_quota(view, {quota for quota, _ in queues})
    likely: dict[str, tuple[float, str]] = {}
    for (quota, resource), waiting in queues.items():
        use, runs = admission.uses[quota], view.runs.get(quota, ())
        needed = use.used.get(resource, 0) - use.limit.get(resource, 0)
        running_now = running.get(quota, ())
        ends = [(end, pod.requests.get(resource, 0)) for pod in running_now if (end := _end(pod, view, runs))]
        says = [f"the run times of {len(runs)} ended pods of quota {quota}"] if len(runs) >= LEAST_RUNS else []
        says += ["deadlines of running pods"] if any(p.deadline_seconds is not None for p in running_now) else []
        basis = "by " + " and ".join(says)
        position = attrgetter("position")
        for _, unit in groupby(sorted(waiting, key=position), key=position):
            pods = [waiting_pod.pod for waiting_pod in unit]
            needed += sum(pod.requests.get(resource, 0) for pod in pods)
            if needed > 0 and (moment := when_free(needed, ends)) is not None:
                likely |= {pod.uid: (moment, basis) for pod in pods}
    return likely


def _end(pod: QueuePod, view: QueueView, runs: Sequence[float]) -> float | None:
    if pod.deleting:
        return pod.gone_by_seconds if pod.is_ending(view.now_seconds) else None
    if not pod.ends or pod.started_seconds is None:
        return None
    return expected_end(pod.started_seconds, view.now_seconds, runs, pod.deadline_seconds)


def expected_end(
    started_seconds: float, now_seconds: float, runs_seconds: Sequence[float], deadline_seconds: float | None = None
) -> float | None:
    """Return the Unix time at which a pod is likely to end: after its expected run time, or at an earlier deadline.

    The expected run time is the median of the runs longer than the pod's so far (the conditional median of its residual
    life), unknown with fewer than LEAST_RUNS runs. `runs_seconds` are ascending durations of ended pods;
    `deadline_seconds` is activeDeadlineSeconds, from the start. None if both are unknown, or long after the deadline.
    """
    if deadline_seconds is not None and outlasts_its_end(started_seconds + deadline_seconds, now_seconds):
        return None
    longer = runs_seconds[bisect_right(runs_seconds, now_seconds - started_seconds) :]
    ends = [started_seconds + median(longer)] if len(runs_seconds) >= LEAST_RUNS and longer else []
    ends += [started_seconds + deadline_seconds] if deadline_seconds is not None else []
    return max(now_seconds, min(ends)) if ends else None


def when_free(needed: int, ends: Iterable[tuple[float, int]]) -> float | None:
    """Return the Unix time at which `needed` is free, None if never; `ends` are (Unix time, freed amount)."""
    freed = 0
    for moment, amount in sorted(ends):
        freed += amount
        if freed >= needed:
            return moment
    return None
