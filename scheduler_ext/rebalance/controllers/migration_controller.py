"""EDGE: the controller of PodMigrationJobs: reads mirrors and calls `rebalance.migration.decide`.

It executes every job, whoever created it. Its own memory (the rate of evictions, which of them were just refused) may
be lost: the objects hold the progress of each move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry

from cotenant.base.controllers.contract import ControllerDecision, ObjectNote
from cotenant.base.controllers.loop import Changes, Feature
from cotenant.base.errors import ClusterError, NotLeader
from cotenant.base.kube import Mirror
from cotenant.base.kubernetes.intent import Apply, Outcome
from cotenant.scheduler_ext.rebalance.arguments import MigrationArgs
from cotenant.scheduler_ext.rebalance.controllers.metrics import MigrationMetrics
from cotenant.scheduler_ext.rebalance.migration.churn import Churn, EvictionRate
from cotenant.scheduler_ext.rebalance.migration.decide import LONGEST_SECONDS, decide
from cotenant.scheduler_ext.rebalance.migration.job import KIND, JobPhase, address_of
from cotenant.scheduler_ext.rebalance.migration.step import MOST_CHARACTERS
from cotenant.scheduler_ext.rebalance.migration.view import EvictionRefusal, MigrationView
from cotenant.scheduler_ext.rebalance.model.settings import DeschedulerSettings
from cotenant.scheduler_ext.reservations.controller import guard_of

EVICTION_PAUSE_SECONDS: Final = 10.0
"""Time until an eviction that a disruption budget refused is retried, unless the server asks for more."""
LONGEST_PAUSE_SECONDS: Final = 120.0
FINAL_STATUSES: Final = frozenset({400, 401, 403, 405, 413, 422})
"""HTTP statuses that a retry would get again: a missing right, a cluster rule, or an invalid request."""
TWO_BUDGETS: Final = "more than one PodDisruptionBudget"
"""Part of the message with status 500 that a pod under several budgets always gets; other 500s are transient."""
SHORTEST_SECONDS: Final = 0.05


class MigrationController(Feature):
    """The manager's feature `migrations`: executes PodMigrationJobs."""

    name = "migrations"
    by_server_time = True
    needs: tuple[str, ...] = ("disruption-budgets", "migration-jobs", "migration-pods", "reservations", "swapguards")
    coalesce_seconds = 0.05

    def __init__(
        self,
        mirrors: Mapping[str, Mirror[Any]],
        settings: DeschedulerSettings,
        arguments: MigrationArgs,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """Create the controller without any data. Without a registry it exports no metrics."""
        self.interval_seconds = LONGEST_SECONDS
        self._mirrors, self._settings, self._arguments = mirrors, settings, arguments
        self._rate = EvictionRate(arguments.evictions_per_second, arguments.evict_burst, float(arguments.evict_burst))
        self._evictions_refused: dict[tuple[str, str], EvictionRefusal] = {}
        self._now_seconds = 0.0
        self._metrics = MigrationMetrics(registry) if registry else None
        self._told: dict[str, str] = {}
        """By job name, why the job is unreadable, as written to its status."""

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - it looks at everything
        """Return what to write for all jobs."""
        view = self._view(now_seconds)
        writes = decide(view, self._settings.keep_ended_seconds)
        if self._metrics:
            self._metrics.show(view.jobs, writes.ended)
        self.interval_seconds = LONGEST_SECONDS
        if writes.evictions_due:
            self.interval_seconds = max(SHORTEST_SECONDS, self._rate.wait_seconds)
        # Statuses of jobs that cannot be read, which say why, once each; a corrected one goes on.
        intents, notes = list(writes.intents), list[ObjectNote]()
        refused = {name: why for (_, name), why in sorted(self._mirrors["migration-jobs"].refusals.items())}
        self._told = {name: why for name, why in self._told.items() if refused.get(name) == why}
        for name in sorted(refused.keys() - self._told.keys()):
            status = {"phase": JobPhase.PENDING.value, "reason": "Unreadable", "message": refused[name]}
            address = address_of(name)
            intents.append(Apply(address, address.manifest(KIND, status=status), "status", why=refused[name]))
        for name, why in refused.items():
            notes.append(ObjectNote(f"podmigrationjobs/{name}", "Unreadable", why, warning=True))
        for job, ended in writes.ended:
            if ended.phase is not JobPhase.SUCCEEDED:
                notes.append(ObjectNote(f"podmigrationjobs/{job.name}", ended.reason, ended.message, warning=True))
        return ControllerDecision(tuple(intents), tuple(notes))

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        """Count evictions against the rate limit, and remember which were refused."""
        self._told |= {o.intent.address.name: o.intent.why for o in outcomes if o.ok and isinstance(o.intent, Apply)}
        evictions = [outcome for outcome in outcomes if outcome.intent.address.resource == "pods"]
        self._rate = self._rate.less(len(evictions))
        for outcome in evictions:
            if self._metrics:
                self._metrics.evicted(outcome.ok)
            refusal = refusal_of(outcome.error, self._now_seconds)
            if refusal is not None:
                place = outcome.intent.address.namespace, outcome.intent.address.name
                self._evictions_refused[place] = refusal

    def _view(self, now_seconds: float) -> MigrationView:
        self._now_seconds, self._rate = now_seconds, self._rate.at(now_seconds)
        self._evictions_refused = {
            place: refusal for place, refusal in self._evictions_refused.items() if refusal.until_seconds > now_seconds
        }
        pods = self._mirrors["migration-pods"].snapshot()
        return MigrationView(
            jobs=tuple(job for _, job in sorted(self._mirrors["migration-jobs"].snapshot().items())),
            pods=pods,
            reservations={
                name: reservation for (_, name), reservation in self._mirrors["reservations"].snapshot().items()
            },
            budgets=tuple(self._mirrors["disruption-budgets"].snapshot().values()),
            arguments=self._arguments,
            evictions_refused=dict(self._evictions_refused),
            evictions_now=self._rate.permitted,
            served_until_seconds=guard_of(self._mirrors["swapguards"]).served_until_seconds,
            most_per_hour=Churn.of(self._settings).most(len(pods)),
            pause_seconds=self._settings.pause_seconds,
            unmade=self.unmade,
            now_seconds=now_seconds,
        )


def refusal_of(error: Exception | None, now_seconds: float) -> EvictionRefusal | None:
    """Return what an eviction's error means for its job; None if the eviction succeeded or was not sent.

    The eviction is retried after a pause if a budget (429), a conflict or a server error refused it; two budgets over
    the pod, a missing right or a cluster rule are final. After a 404 the watch on pods will show that the pod is gone.
    """
    if error is None or isinstance(error, NotLeader):
        return None
    status, pause, answer_text = None, EVICTION_PAUSE_SECONDS, ""
    if isinstance(error, ClusterError):
        status, answer_text = error.status, error.answer
        pause = min(max(pause, error.retry_after_seconds), LONGEST_PAUSE_SECONDS)
    why = f"the API server answered {status}: {answer_text}" if status is not None else str(error)
    is_final = status in FINAL_STATUSES or (status == 500 and TWO_BUDGETS in answer_text)
    return EvictionRefusal(now_seconds + pause, why[:MOST_CHARACTERS], is_final)
