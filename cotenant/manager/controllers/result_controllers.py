"""EDGE: the controllers that publish the pipeline's results: list the published objects once a run, decide, and write.

Published objects are listed, not watched: 20,000 Recommendations change once a day at most, so that a watch would only
hold them in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from cotenant.base.controllers.contract import ControllerDecision, ObjectNote
from cotenant.base.controllers.loop import Changes, Feature
from cotenant.base.controllers.published import ExistingObject
from cotenant.base.controllers.watched import WatchedNode
from cotenant.base.errors import ClusterForbidden, ClusterObjectGone, CotenantError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kubernetes.intent import Outcome
from cotenant.base.kubernetes.models.metadata import ObjectIdentity
from cotenant.base.kubernetes.models.own_kinds import UsageForecast
from cotenant.base.kubernetes.owners import WORKLOAD_API_VERSIONS
from cotenant.base.kubernetes.protocol import ANALYSIS_GROUP, OWN_GROUP
from cotenant.base.settings.sections import ManagerSettings
from cotenant.manager.decisions import forecasts, recommendations
from cotenant.manager.decisions.forecasts import ForecastView
from cotenant.manager.decisions.recommendations import RecommendationObject, RecommendationView, decide_without_results
from cotenant.manager.decisions.results import RunResults
from cotenant.recommender.model.recommendation import PLURAL

CHECK_SECONDS: Final = 10.0
"""Time between two checks for the end of a run; a check costs nothing."""
NOTHING: Final = RunResults(0)
"""Stands for the results of a pipeline that has none."""


class _OwnerObject(msgspec.Struct):
    metadata: ObjectIdentity


class RecommendationController(Feature):
    """The feature `recommendations`, which publishes Recommendation objects of the last pipeline run."""

    name = "recommendations"
    needs: tuple[str, ...] = ()
    interval_seconds: float = CHECK_SECONDS

    def __init__(
        self,
        client: KubeClient,
        results: Callable[[], RunResults],
        published_until: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Store the arguments; send no request yet. Only this feature's thread may use `client`.

        `published_until` returns the end (Unix seconds) of the history behind published objects, for use without
        results.
        """
        self._client, self._results, self._published_until = client, results, published_until
        self._looked: RunResults | None = None
        self._done: RunResults | None = None
        self._due_seconds = math.inf
        """Time at which published results become stale without a new run."""
        self._there: dict[tuple[str, str], RecommendationObject] = {}
        self._owners: Mapping[WorkloadRef, ExistingObject] = {}
        self._notes: tuple[ObjectNote, ...] = ()

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - the loop's signature
        """Return the writes that publish recommendations of the last run that are not published yet.

        While no run has results, raise why; once the published history is too old, return writes that mark it stale.
        """
        until: float | None = None
        trouble: CotenantError | None = None
        try:
            results = self._results()
        except CotenantError as error:
            until = self._published_until()
            if until is None or not recommendations.is_stale(until, now_seconds):
                raise
            results, trouble = NOTHING, error
        if results is self._done and now_seconds <= self._due_seconds:
            return ControllerDecision(notes=self._notes, trouble=trouble)
        if results is not self._looked:
            self._read_cluster(results)
        view = RecommendationView(results, self._there, self._owners)
        decided = (
            recommendations.decide(view, now_seconds)
            if until is None
            else decide_without_results(view, until, now_seconds)
        )
        if not decided.intents:
            self._done, self._there, self._owners = results, {}, {}
            self._due_seconds = recommendations.next_stale_seconds(results.workloads, now_seconds)
            self._looked = None
        return replace(decided, notes=(*self._notes, *decided.notes), trouble=trouble)

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        """Remember written objects, whose status is written later; forget deleted ones, so that they are recreated."""
        for outcome in outcomes:
            place = outcome.intent.address.namespace, outcome.intent.address.name
            if outcome.ok:
                self._there[place] = msgspec.convert(outcome.body, RecommendationObject)
            elif isinstance(outcome.error, ClusterObjectGone):
                self._there.pop(place, None)

    def _read_cluster(self, results: RunResults) -> None:
        path = f"/apis/{ANALYSIS_GROUP}/{PLURAL}"
        published = self._client.list(path, RecommendationObject)
        self._there = {(r.metadata.namespace, r.metadata.name): r for r in published}
        kinds = {w.kind for w in results.workloads} | {r.workload.kind for r in published}
        # Workloads that exist, of the kinds that matter; a kind that may not be listed is noted and left out.
        owners: dict[WorkloadRef, ExistingObject] = {}
        strange = sorted(kinds - WORKLOAD_API_VERSIONS.keys() - {"Pod"})
        notes = [
            ObjectNote(kind, "UnknownKind", "The manager cannot publish recommendations for this kind of workload.")
            for kind in strange
        ]
        for kind in sorted(kinds & WORKLOAD_API_VERSIONS.keys()):
            try:
                objects = self._client.list(f"/apis/{WORKLOAD_API_VERSIONS[kind]}/{kind.lower()}s", _OwnerObject)
            except ClusterForbidden as error:
                notes.append(ObjectNote(f"{kind}s", "Forbidden", f"{error.message} {error.fix}", warning=True))
                continue
            owners |= {
                WorkloadRef(m.namespace, kind, m.name): ExistingObject(WORKLOAD_API_VERSIONS[kind], kind, m.name, m.uid)
                for m in (thing.metadata for thing in objects)
            }
        self._owners, self._notes = owners, tuple(notes)
        self._looked = results


class ForecastController(Feature):
    """The feature `forecasts`, which publishes UsageForecast objects of the last pipeline run."""

    name = "forecasts"
    needs: tuple[str, ...] = ("nodes",)
    interval_seconds: float = CHECK_SECONDS

    def __init__(
        self, client: KubeClient, nodes: Mirror[Any], results: Callable[[], RunResults], settings: ManagerSettings
    ) -> None:
        """Store the arguments; send no request yet."""
        self._client, self._nodes, self._results, self._settings = client, nodes, results, settings
        self._done: tuple[RunResults, frozenset[str]] | None = None

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - the loop's signature
        """Return one write per node that needs a new forecast, after a new run or after a node was replaced."""
        results = self._results()
        nodes: Mapping[tuple[str, str], WatchedNode] = self._nodes.snapshot()
        uids = frozenset(node.owned.uid for node in nodes.values())
        if self._done is not None and self._done[0] is results and self._done[1] == uids:
            return ControllerDecision()
        published = self._client.list(f"/apis/{OWN_GROUP}/{forecasts.PLURAL}", UsageForecast)
        owners = {name: node.owned for (_, name), node in nodes.items()}
        by_node = {f.metadata.name: f for f in published}
        decision = forecasts.decide(ForecastView(results, by_node, owners), now_seconds, self._settings)
        self._done = None if decision.intents else (results, uids)
        return decision

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        """Ignore the outcomes of the writes, because the next round lists the objects again."""
