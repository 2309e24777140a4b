"""Adds back-test, confidence, cost of applying and money to every strategy's proposals. Pure.

`enrich` is the recommender's last stage; the pipeline calls it on the recommendations of every strategy alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import numpy as np
import structlog

from cotenant.base.cluster import ContainerRole, Inventory
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.quantity import format_amount
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.text import counted
from cotenant.recommender.backtest import backtest, present, record
from cotenant.recommender.base import withheld
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.model.recommendation import Action, Field, Recommendation
from cotenant.recommender.money import monthly_savings, prices
from cotenant.recommender.restart import restart
from cotenant.recommender.settings import RecommenderSettings
from cotenant.recommender.severity import waste
from cotenant.recommender.trust import EPISODIC, Grounds, proposed_resources, trust

LEAST_SHARE_IN_USE: Final = 0.5
"""Share of the limit from which on what the kernel cannot take back is the reason to raise it."""


def enrich(
    recommendations: Sequence[Recommendation],
    evidence: Evidence,
    inventory: Inventory,
    settings: RecommenderSettings,
    *,
    scrape_seconds: float | None = None,
    requested: Mapping[Resource, float] | None = None,
) -> list[Recommendation]:
    """Return the same recommendations with backtest, trust, restart and monthly_saving, in their order.

    Each container has one recommendation. A recommendation about a container that is not in the evidence, or with
    unusable numbers, is returned unchanged and logged; nothing is raised. `scrape_seconds` is the interval of the
    samples behind the history, if known. `requested` is what all pods of the cluster request, in the resource's unit;
    the caller passes None only if the evidence covers all pods.
    """
    enriched = list(recommendations)
    try:
        stage = _EnrichStage(evidence, inventory, settings, scrape_seconds, requested)
        usable = stage.judge(enriched)
    except Exception as error:  # noqa: BLE001 - the recommendations stand without it
        structlog.get_logger(__name__).error("nothing was back-tested", error=repr(error), exc_info=error)
        return enriched
    for position in usable:
        with _log_failure(enriched[position]):
            enriched[position] = stage.enriched(enriched[position])
    return enriched


class _EnrichStage:
    """The columns over all containers of one run, and the results built from them."""

    def __init__(
        self,
        evidence: Evidence,
        inventory: Inventory,
        settings: RecommenderSettings,
        scrape_seconds: float | None,
        requested: Mapping[Resource, float] | None,
    ) -> None:
        self.evidence, self.inventory, self.settings, self.requested = evidence, inventory, settings, requested or {}
        self.grounds = Grounds(evidence, settings.backtest, scrape_seconds)
        self.recorded = record(evidence, settings.backtest.days)
        self.place = {ref: index for index, ref in enumerate(evidence.containers)}
        self.siblings: dict[WorkloadRef, list[Recommendation]] = defaultdict(list)
        inits = [{c.name for c in w.containers if c.role is ContainerRole.INIT} for w in evidence.workloads]
        is_init = [ref.container in names for ref, names in zip(evidence.containers, inits, strict=True)]
        self.is_init = np.array(is_init, dtype=np.bool_)

    def judge(self, recommendations: Sequence[Recommendation]) -> list[int]:
        """Back-test and price all recommendations at once; return the positions of those with usable numbers."""
        now, then, usable = present(self.evidence), present(self.evidence), []
        for position, recommendation in enumerate(recommendations):
            with _log_failure(recommendation):
                then.apply(self.place[recommendation.container], recommendation)
                self.siblings[recommendation.container.workload].append(recommendation)
                usable.append(position)
        self.outcome = backtest(self.recorded, now, then)
        requests = {r: (now.effective_request(r), then.effective_request(r)) for r in Resource}
        self.floors = self.outcome.floors
        # Pods that are paid for, (n,): those that run now; of jobs, the mean number over the days looked at.
        replicas = np.array([self.evidence.replicas(i) for i in range(len(self.evidence))], dtype=np.float64)
        episodic = np.array([w.ref.kind in EPISODIC for w in self.evidence.workloads], dtype=np.bool_)
        running = np.maximum(self.recorded.running[Resource.CPU], self.recorded.running[Resource.MEMORY])
        self.pods = np.where(episodic, running, replicas)
        price = prices(self.evidence.workloads, self.inventory, self.settings.prices)
        owned = list(zip(self.evidence.workloads, self.evidence.containers, strict=True))
        self.before, self.freed = {}, {}
        for r, (before, after) in requests.items():
            floor, less = self.floors[r], np.zeros(len(self.evidence))
            for index, (workload, ref) in enumerate(owned):
                container = workload.container(ref.container)
                sums = container.running.get(r) if container else None
                less[index] = sums.less_than(before[index]) if sums else 0.0
            beyond_floor = np.where(self.is_init, np.maximum(before - floor, 0), before)
            self.before[r] = beyond_floor * self.pods - less
            amounts = np.maximum(before, floor) - np.maximum(after, floor)
            self.freed[r] = amounts * self.pods - np.where(amounts, less, 0.0)
        self.savings = monthly_savings(self.freed, price)
        self.requested = self.requested or {r: float(column.sum()) for r, column in self.before.items()}
        return usable

    def enriched(self, recommendation: Recommendation) -> Recommendation:
        index = self.place[recommendation.container]
        about = proposed_resources(recommendation)
        tried = self.outcome.of(index) if about else None
        savings = {resource: float(money[index]) for resource, money in self.savings.items()}
        workload, version = self.evidence.workloads[index], self.inventory.server_version
        container = workload.container(recommendation.container.container)
        moves = ((r, float(self.before[r][index]), float(self.freed[r][index])) for r in Resource)
        levels = [waste(resource, before, freed, self.requested[resource]) for resource, before, freed in moves]
        notes = [*recommendation.notes]
        for resource, total in container.running.items() if container else ():
            # What people see beside the present request where it is not that of each pod, or not in force.
            amounts = [format_amount(resource, amount) for amount in (total.counted, total.in_force)]
            pods = counted(total.pods, "pod")
            if total.counted != total.in_force:
                notes.append(f"{resource}: {pods} wait for a resize to {amounts[0]} in total and now have {amounts[1]}")
            else:
                notes.append(f"{resource}: the pods request different amounts; {pods} request {amounts[0]} together")
        return replace(
            recommendation,
            backtest=tried,
            trust=trust(self.grounds, index, recommendation, tried),
            restart=restart(recommendation, workload, self.siblings[workload.ref], version),
            monthly_saving=sum(savings.values()) if about else None,
            monthly_savings=savings if about else {},
            pods=float(self.pods[index]),
            waste=max(levels, key=lambda level: level.rank),
            present_limits=dict(container.limits) if container else {},
            running=container.running if container else {},
            notes=tuple(notes),
            pod_floor={r: round(float(column[index])) for r, column in self.floors.items() if column[index] > 0},
        )


@contextmanager
def _log_failure(recommendation: Recommendation) -> Iterator[None]:
    """Log any error with one recommendation, so that the others are processed."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        structlog.get_logger(__name__).error(
            "not back-tested", container=str(recommendation.container), error=repr(error), exc_info=error
        )


def without_cache_raises(recommendations: Sequence[Recommendation], evidence: Evidence) -> list[Recommendation]:
    """Return the recommendations, in their order, without raises of memory for reclaimable page cache. Pure.

    The page cache of a process that reads many files fills any limit, so that each raise would be followed by another.
    The container needs only the memory that the kernel cannot reclaim (`PodRow.unreclaimable`). A raise after an OOM
    kill is kept, whatever the page cache is.
    """
    in_use: dict[tuple[str, str, str], int] = {}
    for row in evidence.inventory.pod_rows:
        in_use |= {(row.namespace, row.name, container): amount for container, amount in row.unreclaimable.items()}
    owners = evidence.inventory.owners() if in_use else {}
    most: dict[object, int] = {}
    for (namespace, pod, container), amount in in_use.items():
        key = owners.get((namespace, pod)), container
        most[key] = max(most.get(key, 0), amount)
    killed = {c for c, kills in zip(evidence.containers, evidence.oom_kills, strict=True) if kills}

    def check(recommendation: Recommendation) -> Recommendation:
        amount = most.get((recommendation.container.workload, recommendation.container.container))
        index = evidence.containers.index(recommendation.container)
        limit = evidence.now(index, Resource.MEMORY, Field.LIMIT) if amount else None
        if amount is None or not limit or amount >= LEAST_SHARE_IN_USE * limit or recommendation.container in killed:
            return recommendation
        heap = recommendation.heap if recommendation.heap is None or recommendation.heap.change <= 0 else None
        values = tuple(
            withheld(v.resource, v.field, v.now, Reason.PAGE_CACHE, v.inputs)
            if v.resource is Resource.MEMORY and v.action is Action.SET and (v.change or 0) > 0
            else v
            for v in recommendation.values
        )
        return replace(recommendation, values=values, heap=heap)

    return [check(r) for r in recommendations] if most else list(recommendations)
