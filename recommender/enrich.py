"""Adds to every strategy's proposals: back-test, confidence, cost of applying, money. Pure.

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

from cotenant.base.cluster import Container, ContainerRole, Inventory
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.quantity import format_amount
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.severity import Waste
from cotenant.base.text import counted
from cotenant.recommender.backtest import backtest, present, record
from cotenant.recommender.base import withheld
from cotenant.recommender.evidence import Evidence, Floats
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
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
    """The same recommendations with backtest, trust, restart and monthly_saving, in their order.

    A container has one recommendation. One that is about no container of the evidence, or whose numbers cannot be used,
    comes back as it was and the log says why; nothing is raised. `scrape_seconds`: interval of the samples behind the
    history, if known. `requested`: by all pods of the cluster, in the resource's unit; None: the evidence is all of it.
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
    """Columns over the containers of one run, and the messages made of them."""

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
        self.is_init = np.array(
            [ref.container in names for ref, names in zip(evidence.containers, inits, strict=True)], dtype=np.bool_
        )

    def judge(self, recommendations: Sequence[Recommendation]) -> list[int]:
        """Back-test and price of all of them at once; positions of those whose numbers could be used."""
        now, then, usable = present(self.evidence), present(self.evidence), []
        for position, recommendation in enumerate(recommendations):
            with _log_failure(recommendation):
                then.apply(self.place[recommendation.container], recommendation)
                self.siblings[recommendation.container.workload].append(recommendation)
                usable.append(position)
        self.outcome = backtest(self.recorded, now, then)
        requests = {r: (now.effective_request(r), then.effective_request(r)) for r in Resource}
        self.floors = self.outcome.floors
        freed = {
            r: np.maximum(before, self.floors[r]) - np.maximum(after, self.floors[r])
            for r, (before, after) in requests.items()
        }
        self.pods = self._pods()
        price = prices(self.evidence.workloads, self.inventory, self.settings.prices)
        less = {r: self._less_than_present(r, before) for r, (before, _) in requests.items()}
        self.before = {
            r: np.where(self.is_init, np.maximum(before - self.floors[r], 0), before) * self.pods - less[r]
            for r, (before, _) in requests.items()
        }
        self.freed = {r: amounts * self.pods - np.where(amounts, less[r], 0.0) for r, amounts in freed.items()}
        self.savings = monthly_savings(self.freed, price)
        self.requested = self.requested or {r: float(column.sum()) for r, column in self.before.items()}
        return usable

    def enriched(self, recommendation: Recommendation) -> Recommendation:
        """The recommendation with what was found about it."""
        index = self.place[recommendation.container]
        about = proposed_resources(recommendation)
        tried = self.outcome.of(index) if about else None
        savings = {resource: float(money[index]) for resource, money in self.savings.items()}
        workload, version = self.evidence.workloads[index], self.inventory.server_version
        container = workload.container(recommendation.container.container)
        return replace(
            recommendation,
            backtest=tried,
            trust=trust(self.grounds, index, recommendation, tried),
            restart=restart(recommendation, workload, self.siblings[workload.ref], version),
            monthly_saving=sum(savings.values()) if about else None,
            monthly_savings=savings if about else {},
            pods=float(self.pods[index]),
            waste=self._waste(index),
            present_limits=dict(container.limits) if container else {},
            running=container.running if container else {},
            notes=(*recommendation.notes, *(_running_notes(container) if container else ())),
            pod_floor={r: round(float(column[index])) for r, column in self.floors.items() if column[index] > 0},
        )

    def _less_than_present(self, resource: Resource, present: Floats) -> Floats:
        """Return what the pods of each container request in all less than each of them the present amount, (n,)."""
        columns = np.zeros(len(self.evidence))
        for index, (workload, ref) in enumerate(zip(self.evidence.workloads, self.evidence.containers, strict=True)):
            container = workload.container(ref.container)
            running = container.running.get(resource) if container else None
            columns[index] = running.less_than(present[index]) if running else 0.0
        return columns

    def _waste(self, index: int) -> Waste:
        """Return the waste level of the resource that wastes most."""
        words = (
            waste(r, float(self.before[r][index]), float(self.freed[r][index]), self.requested[r]) for r in Resource
        )
        return max(words, key=lambda word: word.rank)

    def _pods(self) -> Floats:
        """Pods that are paid for, (n,): those that run now; of jobs, the mean number over the days looked at."""
        replicas = np.array([self.evidence.replicas(i) for i in range(len(self.evidence))], dtype=np.float64)
        episodic = np.array([w.ref.kind in EPISODIC for w in self.evidence.workloads], dtype=np.bool_)
        running = np.maximum(self.recorded.running[Resource.CPU], self.recorded.running[Resource.MEMORY])
        return np.where(episodic, running, replicas)


def _running_notes(container: Container) -> Iterator[str]:
    """Yield what people see beside the present request where it is not that of each pod, or not in force."""
    for resource, total in container.running.items():
        amounts = [format_amount(resource, amount) for amount in (total.counted, total.in_force)]
        pods = counted(total.pods, "pod")
        if total.counted != total.in_force:
            yield f"{resource}: the node has deferred a resize: {pods} count with {amounts[0]} and have {amounts[1]}"
        else:
            yield f"{resource}: pods do not request the same amount, {pods} request {amounts[0]} in all"


@contextmanager
def _log_failure(recommendation: Recommendation) -> Iterator[None]:
    """Whatever goes wrong with one recommendation is logged, and the others go on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        structlog.get_logger(__name__).error(
            "not back-tested", container=str(recommendation.container), error=repr(error), exc_info=error
        )


def without_cache_raises(recommendations: Sequence[Recommendation], evidence: Evidence) -> list[Recommendation]:
    """The recommendations, in their order, without raises of memory for pages that the kernel gives back. Pure.

    A process that reads more files than its limit holds has a working set as large as the limit, whatever that is: each
    raise is filled again. What the kernel cannot take back (`PodRow.unreclaimable`) tells what the container needs. A
    kill for lack of memory says that it needs more, whatever the pages are.
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

    def check(found: Recommendation) -> Recommendation:
        amount = most.get((found.container.workload, found.container.container))
        index = evidence.containers.index(found.container)
        limit = evidence.now(index, Resource.MEMORY, Field.LIMIT) if amount else None
        if amount is None or not limit or amount >= LEAST_SHARE_IN_USE * limit or found.container in killed:
            return found
        heap = found.heap if found.heap is None or found.heap.change <= 0 else None
        return replace(found, values=tuple(map(_without_raise, found.values)), heap=heap)

    return [check(r) for r in recommendations] if most else list(recommendations)


def _without_raise(value: Value) -> Value:
    raised = value.resource is Resource.MEMORY and value.action is Action.SET and (value.change or 0) > 0
    return withheld(value.resource, value.field, value.now, Reason.PAGE_CACHE, value.inputs) if raised else value
