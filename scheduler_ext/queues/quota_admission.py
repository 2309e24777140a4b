"""Decides which pods their quota admits now, what every quota uses and may use, and why other pods wait. Pure.

A pod is admitted if used + request <= runtime, for each resource that it requests and its quota's max has. All pods of
a quota that may not be preempted must also stay within its min. Admitted pods count as used, bound or not, and so does
the reserved capacity of ReservationPlans in the quota's namespaces. There is one writer, so this is exact.

A unit is a pod, or the pods that a gang needs to start. Inside a quota the order is strict per resource: a unit that
does not fit blocks later units that request a resource that it lacks. A unit that can never fit blocks no other.

Runtime is divided as if pods could be split. Two quotas could each get half of what one of their pods needs, and both
would wait beside an idle cluster. So quotas whose first unit does not fit take turns, in the order of these units: in a
turn the other quotas request only what they use or are guaranteed, and this one alone requests the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from cotenant.base.kubernetes.pod_request import sum_amounts
from cotenant.base.kubernetes.quota_tree import SYSTEM_QUOTAS, Amounts, QuotaNode, quantity_of
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.quota_account import QuotaAccount, add_amounts, charges_of
from cotenant.scheduler_ext.queues.quota_queue import QueueObstacle, QueueUnit, queue_order, queues_of, waits
from cotenant.scheduler_ext.queues.quota_trees import ElasticTree, QuotaForest, build_quota_forest, with_trees
from cotenant.scheduler_ext.queues.runtime_quota import Exact, RuntimeQuota, layout_of, runtime_quota
from cotenant.scheduler_ext.queues.view import QueueView

TURNS: Final = 16
"""Most quotas of a tree that get a turn in one run."""


@dataclass(frozen=True, slots=True)
class LetGoPod:
    """A waiting pod whose quota admits it now, and why."""

    pod: QueuePod
    why: str


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A waiting pod and why it waits; `position` (from 1) is its own or its gang's in the quota's queue, 0 if none."""

    pod: QueuePod
    position: int
    obstacle: QueueObstacle


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """The present amounts of one quota, for each resource of its max.

    `minimum` is after scaling. `limit` is what it may use: its runtime, or its max if runtime is switched off. `used`
    includes its children; `firm_request` and `firm_used` are of pods that may not be preempted. `ungated` is the part
    of `used` that no quota admitted: pods that the webhook missed, and reserved capacity of plans.
    """

    minimum: Amounts
    limit: Amounts
    request: Amounts
    child_request: Amounts
    used: Amounts
    firm_request: Amounts
    firm_used: Amounts
    ungated: Amounts
    waiting_pods: int = 0

    @property
    def over(self) -> bool:
        """True if the quota uses more of a resource than it may use now."""
        return any(amount > self.limit.get(resource, 0) for resource, amount in self.used.items())


@dataclass(frozen=True, slots=True)
class StuckUnit:
    """The first pod or gang in the queue of a full quota, with the amount that it lacks by resource."""

    unit: QueueUnit
    missing: Amounts


@dataclass(frozen=True)
class QuotaAdmission:
    """The result of an admission run: `uses` by quota, and in `stuck` the first pod or gang of each blocked queue."""

    forest: QuotaForest = field(default_factory=QuotaForest)
    admitted_pods: tuple[LetGoPod, ...] = ()
    waiting_pods: tuple[WaitingPod, ...] = ()
    uses: Mapping[str, QuotaUse] = field(default_factory=dict)
    stuck: tuple[StuckUnit, ...] = ()


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A quota without enough of a resource: `figures` are used, requested and limit; `word` names that limit.

    A quota that is not in the pod's tree has `resource` "", and `word` says so.
    """

    code: Reason
    quota: str
    resource: str
    figures: tuple[int, int, int]
    word: str

    @property
    def missing(self) -> int:
        """The missing amount: used plus requested, minus the limit."""
        return self.figures[0] + self.figures[1] - self.figures[2]

    def obstacle(self) -> QueueObstacle:
        """Return the shortfall as an obstacle with its sentence."""
        used, requested, limit, missing = (
            quantity_of(self.resource, figure) for figure in (*self.figures, self.missing)
        )
        what = "used by pods that may not be preempted" if self.code is Reason.QUOTA_MIN_EXCEEDED else "used"
        sentence = (
            f"quota {self.quota}, {self.resource}: {used} {what} + {requested} requested > {limit} {self.word}, "
            f"{missing} missing"
        )
        if not self.resource:
            sentence = f"quota {self.quota} {self.word}"
        return QueueObstacle(self.code, sentence, self.quota, self.resource, self.missing)


def quota_admission(view: QueueView, settings: QueueSettings) -> QuotaAdmission:
    """Decide which of the pods that wait for their quotas are admitted now."""
    places = build_quota_forest(view.quotas)
    usable = {name: view.quotas[name] for name in places.ancestors}
    charges, unowned, covered = charges_of(view, usable)
    forest = with_trees(places, view.quotas, view.profiles, view.nodes, unowned)
    account = QuotaAccount(forest.ancestors)
    for quota, charge in charges.items():
        account.add(quota, charge.used, charge.firm, charge.ungated)
    queues = queues_of(view, usable, settings.check_parents, covered)
    rounds = [_TreeRound(tree, account, queues, usable, settings) for tree in forest.trees]
    for round_ in rounds:
        round_.admit()
    admitted_pods = [
        *(admitted for r in rounds for admitted in r.admitted_pods),
        *[
            LetGoPod(pod, f"quota {pod.quota or 'without a name'} no longer exists or limits no resource")
            for pod in view.pods
            if (pod.quota not in view.quotas or pod.quota in SYSTEM_QUOTAS) and waits(pod, view)
        ],
    ]
    of_bad_quotas = [
        WaitingPod(pod, 0, QueueObstacle(Reason.QUOTA_INVALID, f"quota {pod.quota}: {problem}", pod.quota))
        for pod in view.pods
        if (problem := forest.problems.get(pod.quota, "")) and waits(pod, view)
    ]
    waiting_pods = [*(waiting for r in rounds for waiting in r.waiting_pods()), *of_bad_quotas]
    uses = {name: use for r in rounds for name, use in r.uses().items()}
    stuck = tuple(stuck for r in rounds for stuck in r.stuck_units())
    return QuotaAdmission(forest, tuple(admitted_pods), tuple(waiting_pods), uses, stuck)


class _TreeRound:
    def __init__(
        self,
        tree: ElasticTree,
        account: QuotaAccount,
        queues: Mapping[str, list[QueueUnit]],
        usable: Mapping[str, QuotaNode],
        settings: QueueSettings,
    ) -> None:
        self.tree, self.account, self.usable, self.settings = tree, account, usable, settings
        self.layout = layout_of(tree.quotas)
        self.pending = {name: list(queues[name]) for name in self.layout.names if name in queues}
        self.positions = {u.pods[0].uid: i for units in self.pending.values() for i, u in enumerate(units, 1)}
        self.admitted_pods: list[LetGoPod] = []
        self.guaranteed: Mapping[str, Amounts] = {}
        self.shares: Exact | None = None
        self.result: RuntimeQuota | None = None
        self.limits: dict[str, Amounts] = {name: q.maximum for name, q in tree.quotas.items()}

    def admit(self) -> None:
        """Admit the units that fit, and compute the runtime after that."""
        if self.settings.runtime:
            first = self._divide(self._demand())
            self.guaranteed, self.shares = self.layout.by_group(first.minimum), first.runtime
        self._serve_all()
        if self.settings.runtime:
            # each stuck quota asks alone for what the others hold and cannot use; it is lent what is idle, no more
            turns, demand = 0, self._demand()
            guaranteed_demand = self._guaranteed_demand(demand)
            taken = self._taken(guaranteed_demand)
            for name in self._stuck():
                if turns < TURNS and self._idle_covers(name, guaranteed_demand[name], taken):
                    turns += 1
                    self._divide({**guaranteed_demand, name: demand[name]})
                    self._serve(name)
                    demand = self._demand()
                    guaranteed_demand = self._guaranteed_demand(demand)
                    taken = self._taken(guaranteed_demand)
            self._settle()
            for _ in range(TURNS):
                if not self._serve_all():
                    break
                self._settle()

    def _divide(self, requests: Mapping[str, Amounts]) -> RuntimeQuota:
        """Compute the runtime for these requests of each quota's own pods.

        A quota keeps what it uses of its first share: by largest remainders it could shrink by one if others request
        less.
        """
        use = {name: self.account.used[name] for name in self.layout.names}
        used = None if self.shares is None else np.minimum(self.layout.array(use), self.shares)
        result = runtime_quota(
            self.layout, self.tree.total, self.layout.array(requests), guarantee=used, scaling=self.settings.min_scaling
        )
        self._limit(result)
        return result

    def _limit(self, result: RuntimeQuota) -> None:
        self.result = result
        self.limits = self.layout.by_group(result.runtime)

    def _demand(self) -> dict[str, Amounts]:
        """Return, by quota, what its own pods use and wait for."""
        waiting: dict[str, list[Amounts]] = {}
        for unit in (u for units in self.pending.values() for u in units if not u.obstacle):
            for quota, need in unit.needs.items():
                waiting.setdefault(quota, []).append(need)
        own = self.account.own
        return {q: sum_amounts([own[q], *waiting[q]]) if q in waiting else own[q] for q in self.layout.names}

    def _guaranteed_demand(self, demand: Mapping[str, Amounts]) -> dict[str, Amounts]:
        """Return the part of the demand that is in use or guaranteed."""
        guaranteed: dict[str, Amounts] = {}
        for name, request in demand.items():
            own, least = self.account.own[name], self.guaranteed.get(name, {})
            guaranteed[name] = {r: max(own.get(r, 0), min(amount, least.get(r, 0))) for r, amount in request.items()}
        return guaranteed

    def _serve(self, name: str) -> None:
        """Admit the units of one quota that fit, in order."""
        lacking: set[str] = set()
        unstarted: set[str] = set()
        remaining: list[QueueUnit] = []
        for unit in self.pending[name]:
            behind = any(amount and r in lacking for need in unit.needs.values() for r, amount in need.items())
            behind |= unit.follows and unit.pods[0].gang in unstarted
            lacks = set() if unit.obstacle or behind else {shortfall.resource for shortfall in self._shortfalls(unit)}
            lacking |= lacks
            if unit.obstacle or behind or lacks:
                remaining.append(unit)
                unstarted |= unit.starts
            else:
                first, word = unit.quota, "runtime" if self.settings.runtime else "max"
                used, limits = self.account.used[first], self.limits[first]
                sums = [
                    f"{r}: {quantity_of(r, used.get(r, 0))} used + {quantity_of(r, amount)} requested <= "
                    f"{quantity_of(r, limits[r])} {word}"
                    for r, amount in sorted(unit.needs[first].items())
                    if amount and r in limits
                ]
                figures = ", ".join(sums) if sums else "the quota limits none of the requested resources"
                why = f"quota {first} admits {unit.place} ({figures})"
                for quota, need in unit.needs.items():
                    self.account.add(quota, need, unit.firm_needs.get(quota, {}))
                self.admitted_pods += [LetGoPod(pod, why) for pod in unit.pods]
        self.pending[name] = remaining

    def _serve_all(self) -> bool:
        """Admit the units of every quota that fit; return whether any was admitted."""
        before = len(self.admitted_pods)
        for name in self.pending:
            self._serve(name)
        return len(self.admitted_pods) > before

    def _shortfalls(self, unit: QueueUnit) -> Iterable[Shortfall]:
        """Yield what a unit lacks; nothing if it fits."""
        for quota, need in unit.needs.items():
            yield from self._above_limit(Reason.QUOTA_EXCEEDED, quota, need)
        for quota, firm in unit.firm_needs.items():
            minimum, used = self.usable[quota].minimum, self.account.firm[quota]
            for resource, amount in firm.items():
                if amount and resource in minimum and used.get(resource, 0) + amount > minimum[resource]:
                    figures = used.get(resource, 0), amount, minimum[resource]
                    yield Shortfall(Reason.QUOTA_MIN_EXCEEDED, quota, resource, figures, "min")
        if self.settings.check_parents:
            above: dict[str, list[Amounts]] = {}
            for quota, need in unit.needs.items():
                for parent in self.account.ancestors[quota]:
                    above.setdefault(parent, []).append(need)
            for parent, needs in above.items():
                yield from self._above_limit(Reason.PARENT_QUOTA_EXCEEDED, parent, sum_amounts(needs))

    def _above_limit(self, code: Reason, quota: str, need: Amounts) -> Iterable[Shortfall]:
        limit, used = self.limits.get(quota, {}), self.account.used[quota]
        word = "runtime" if self.settings.runtime else "max"
        if quota not in self.limits:
            yield Shortfall(code, quota, "", (0, 1, 0), f"is not in quota tree {self.tree.tree_id!r}")
        for resource, amount in need.items():
            if amount and resource in limit and used.get(resource, 0) + amount > limit[resource]:
                yield Shortfall(code, quota, resource, (used.get(resource, 0), amount, limit[resource]), word)

    def _first(self, name: str) -> QueueUnit | None:
        return next((u for u in self.pending.get(name, ()) if not u.obstacle), None)

    def _stuck(self) -> list[str]:
        """Return the quotas with a unit that does not fit, in the order of these units."""
        heads = {name: unit for name in self.pending if (unit := self._first(name)) is not None}
        return sorted(heads, key=lambda name: (*queue_order(heads[name].pods[0]), name))

    def _taken(self, guaranteed_demand: Mapping[str, Amounts]) -> dict[str, int]:
        """Return the amounts of the tree in use, guaranteed and requested, or kept by quotas that do not lend."""
        parents = {node.parent for node in self.tree.quotas.values()}
        unlent = [
            {r: max(0, a - guaranteed_demand[q].get(r, 0)) for r, a in self.guaranteed.get(q, {}).items()}
            for q, node in self.tree.quotas.items()
            if not node.lends and q not in parents
        ]
        return sum_amounts([*guaranteed_demand.values(), *unlent])

    def _idle_covers(self, name: str, guaranteed_demand: Amounts, taken: Amounts) -> bool:
        """Return whether the tree's idle capacity covers the quota's first unit within every max."""
        unit = self._first(name)
        if unit is None:
            return False
        available = {r: self.tree.total.get(r, 0) for r in self.layout.resources}
        own = self.account.own[name]
        others = {r: amount - guaranteed_demand.get(r, 0) + own.get(r, 0) for r, amount in taken.items()}
        bounds: list[tuple[Amounts, Amounts, Amounts]] = [(others, available, need) for need in unit.needs.values()]
        for quota, need in unit.needs.items():
            above = (quota, *self.account.ancestors[quota])
            bounds += [(self.account.used[q], self.usable[q].maximum, need) for q in above]
        return all(
            used.get(r, 0) + amount <= bound.get(r, used.get(r, 0) + amount)
            for used, bound, need in bounds
            for r, amount in need.items()
            if amount
        )

    def _settle(self) -> None:
        """Compute the final runtime: first what is used or guaranteed, then the rest by what is requested."""
        demand = self._demand()
        settled = self._divide(self._guaranteed_demand(demand))
        if self._stuck():
            requests = self.layout.array(demand)
            result = runtime_quota(self.layout, self.tree.total, requests, settled=settled.runtime, scaling=False)
            self._limit(replace(result, minimum=settled.minimum))

    def waiting_pods(self) -> list[WaitingPod]:
        """Return the remaining pods and why each waits, given the use and runtime after this run."""
        waiting: list[WaitingPod] = []
        for units in self.pending.values():
            ahead: dict[str, str] = {}
            starters = {gang: unit.place for unit in reversed(units) for gang in unit.starts}
            for unit in units:
                lacks = [] if unit.obstacle else list(self._shortfalls(unit))
                first = starters.get(unit.pods[0].gang, "") if unit.follows else ""
                obstacle = unit.obstacle or self._why(unit, lacks, ahead, first)
                waiting += [WaitingPod(pod, self.positions[unit.pods[0].uid], obstacle) for pod in unit.pods]
                ahead.update({shortfall.resource: unit.place for shortfall in lacks})
        return waiting

    @staticmethod
    def _why(unit: QueueUnit, lacks: Sequence[Shortfall], ahead: Mapping[str, str], first: str) -> QueueObstacle:
        if lacks:
            return max(lacks, key=lambda shortfall: shortfall.missing).obstacle()
        if first:
            return QueueObstacle(Reason.BEHIND_IN_QUOTA, f"{first} must be admitted first", unit.quota)
        for resource, place in ahead.items():
            if any(need.get(resource) for need in unit.needs.values()):
                sentence = f"{place} is ahead in the queue of quota {unit.quota} and waits for {resource}"
                return QueueObstacle(Reason.BEHIND_IN_QUOTA, sentence, unit.quota, resource)
        return QueueObstacle(Reason.QUOTA_EXCEEDED, f"quota {unit.quota} has capacity; the next run admits the pod")

    def stuck_units(self) -> Iterable[StuckUnit]:
        """Yield the first unit of each queue that would be admitted if others of its quota used less."""
        for unit in filter(None, map(self._first, self._stuck())):
            lacks = list(self._shortfalls(unit))
            if lacks and all(
                shortfall.resource and shortfall.code is not Reason.QUOTA_MIN_EXCEEDED for shortfall in lacks
            ):
                resources = {shortfall.resource for shortfall in lacks}
                yield StuckUnit(
                    unit,
                    {r: max(shortfall.missing for shortfall in lacks if shortfall.resource == r) for r in resources},
                )

    def uses(self) -> dict[str, QuotaUse]:
        """Return what each quota uses and may use."""
        result = self.result or runtime_quota(self.layout, {}, self.layout.array(self._demand()), scaling=False)
        arrays = (result.minimum, result.request, result.child_request)
        minimum, request, child_request = (self.layout.by_group(array) for array in arrays)
        # Used and waited for by pods that may not be preempted, children included.
        account, firm = self.account, {name: dict(self.account.firm[name]) for name in self.layout.names}
        for unit in (unit for units in self.pending.values() for unit in units):
            for quota, needs in unit.firm_needs.items():
                for name in (quota, *account.ancestors[quota]):
                    add_amounts(firm.setdefault(name, {}), needs)
        uses: dict[str, QuotaUse] = {}
        for name in self.layout.names:
            bounded = self.usable[name].maximum
            amounts = (self.limits[name], account.used[name], firm[name], account.firm[name], account.ungated[name])
            limit, used, firm_request, firm_used, ungated = ({r: a.get(r, 0) for r in bounded} for a in amounts)
            waiting = sum(len(unit.pods) for unit in self.pending.get(name, ()))
            figures = (minimum[name], limit, request[name], child_request[name], used, firm_request, firm_used, ungated)
            uses[name] = QuotaUse(*figures, waiting)
        return uses
