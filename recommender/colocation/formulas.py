"""Koordinator's batch and mid formulas over all nodes at once, each node with its own strategy. Pure.

A percentage is multiplied in floating point and truncated to an integer, as in Koordinator. A batch amount is computed
in this order: capacity less its terms, the cap, the floor of 0, CPU normalization, what other schedulers took, the
floor of 0.

cotenant's policy `forecast` replaces the present usage of HP pods by their calibrated 24-hour peak. A forecast is
proven if enough tests confirmed it (`peak_alone_mask`). Its margin is then the risk that the peak was calibrated for,
so Koordinator's percentage is not subtracted too, and the system counts with its peak. Before that the larger of peak
and present usage counts, with Koordinator's margin; without a forecast, Koordinator's formula `usage` applies. `note`
says which case it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.colocation.nodemetric import AHEAD_SECONDS
from cotenant.base.colocation.reclaim_policies import (
    POD_TERMS,
    POLICIES,
    POLICY_CODES,
    Band,
    PodTerm,
    Reclaimable,
    ReclaimPolicy,
)
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.recommender.colocation.columns import (
    IMPLAUSIBLE,
    UNKNOWN,
    Booleans,
    Floats,
    Integers,
    NodeColumns,
    ceil_amounts,
    share,
)

REASONS: Final = (
    Reason.OK,
    Reason.METRIC_MISSING,
    Reason.METRIC_EXPIRED,
    Reason.COLOCATION_OFF,
    Reason.METRIC_AHEAD,
    Reason.METRIC_INCOMPLETE,
    Reason.METRIC_IMPLAUSIBLE,
)
DOUBTFUL: Final = frozenset({Reason.METRIC_AHEAD, Reason.METRIC_INCOMPLETE, Reason.METRIC_IMPLAUSIBLE})
"""A report is there that says nothing to be used: a fault of its source, which may pass with the next one."""
NOTES: Final = (
    "",
    "by forecast: enough tests have confirmed the forecast, so no percentage of capacity is kept in reserve",
    "by forecast: the forecast peak is above present usage; until enough tests confirm it, the higher of both counts",
    "by usage: present usage is above the forecast peak; until enough tests confirm it, the higher of both counts",
    "by usage: there is no forecast for this node",
    "by usage: usage is above the forecast peak now, although enough tests had confirmed that peak",
)


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """The colocation strategies of n nodes for one resource, as columns of shape (n,).

    `enabled` and `mid_static` are 1 or 0; `policy` is an index into POLICIES; NaN in `batch_percent` means no cap;
    `forecast_violation` is a share, 0..1.
    """

    enabled: Floats
    policy: Floats
    reclaim_percent: Floats
    batch_percent: Floats
    mid_percent: Floats
    mid_static: Floats
    mid_static_percent: Floats
    mid_unallocated_percent: Floats
    degrade_seconds: Floats
    forecast_origins: Floats
    forecast_violation: Floats

    @classmethod
    def of(cls, strategies: Sequence[ColocationStrategy], resource: Resource) -> Parameters:
        """Return the parameters of these strategies; equal strategies are computed only once."""
        number: dict[ColocationStrategy, int] = {}
        rows = np.array([number.setdefault(s, len(number)) for s in strategies], dtype=np.int64)
        distinct: list[tuple[float, ...]] = []  # in the order of the fields
        for strategy in number:
            cap = strategy.batch_percent(resource)
            row = (
                strategy.enable,
                POLICY_CODES[strategy.policy(resource)],
                strategy.reclaim_percent(resource),
                np.nan if cap is None else cap,
                strategy.mid_percent(resource),
                strategy.mid_mode == "static",
                strategy.mid_static_percent(resource),
                strategy.mid_unallocated_percent,
                strategy.degrade_minutes * 60,
                strategy.forecast_origins,
                strategy.forecast_violation_percent / 100,
            )
            distinct.append(row)
        table = np.array(distinct, dtype=np.float64).reshape(len(number), 11).T
        return cls(*(table[:, rows]))


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One named term of a formula on n nodes; it counts where the mask `holds` is true, or everywhere if None."""

    name: str
    values: Integers
    holds: Booleans | None = None

    @property
    def counted(self) -> Integers:
        """The values of the term, 0 on nodes where it does not count."""
        return self.values if self.holds is None else np.where(self.holds, self.values, 0)


@dataclass(frozen=True, slots=True, eq=False)
class BandColumns:
    """Amounts of one band (batch or mid) and resource on n nodes, (n,) each.

    `original` is the amount before other schedulers took theirs. `reasons` are indices into REASONS; an amount is valid
    only with reason 0. `policies` are texts, selected per node by `policy`. `notes` are indices into NOTES. `kept`
    masks nodes whose published amount stays unchanged, None = no node.
    """

    nodes: tuple[str, ...]
    band: Band
    resource: Resource
    amounts: Integers
    original: Integers
    reasons: npt.NDArray[np.int64]
    policies: tuple[str, ...]
    policy: npt.NDArray[np.int64]
    notes: npt.NDArray[np.int64]
    terms: tuple[Term, ...]
    kept: Booleans | None = None

    @property
    def doubtful(self) -> Booleans:
        """Mask of the nodes whose NodeMetric exists but is unusable (a reason in DOUBTFUL), (nodes,)."""
        return np.isin(self.reasons, [code for code, reason in enumerate(REASONS) if reason in DOUBTFUL])

    @property
    def expired(self) -> Booleans:
        """Mask of the nodes whose NodeMetric is too old by its own timestamp, (nodes,)."""
        return np.asarray(self.reasons == REASONS.index(Reason.METRIC_EXPIRED))

    @property
    def lent(self) -> Booleans:
        """Mask of the nodes with a valid amount; on other nodes the resource is withdrawn, or stays if `kept`."""
        return np.asarray(self.reasons == 0)

    def message(self, i: int) -> Reclaimable:
        """Return one node's amount with the terms that apply to it, for storage; it is 0 unless the reason is OK."""
        holding = (t for t in self.terms if t.holds is None or t.holds[i])
        return Reclaimable(
            node=self.nodes[i],
            band=self.band,
            resource=self.resource,
            amount=int(self.amounts[i]) if self.reasons[i] == 0 else 0,
            policy=self.policies[self.policy[i]],
            terms={t.name: int(t.values[i]) for t in holding},
            reason=REASONS[self.reasons[i]],
            note=NOTES[self.notes[i]],
        )

    def messages(self) -> Iterator[Reclaimable]:
        """Yield the band's amount on each node, in the order of `nodes`."""
        return map(self.message, range(len(self.nodes)))


def batch(columns: NodeColumns, parameters: Parameters, now_seconds: float) -> BandColumns:
    """Return the amounts that batch pods may use on each node, in the resource's unit (millicores or bytes).

        amount = capacity - capacity * (100 - reclaim %) - system - pods
        amount = capacity - system's peak - pods, if the node's forecast is proven

    The amount is then capped at capacity * batch % where that is set, raised to at least 0, normalized for CPU, and
    reduced by what other schedulers took, to at least 0. The terms are those of `kept_percent`, `system_terms` and
    `pod_terms`. An amount counts only where its reason is OK. Source: Koordinator's plugin `batchresource`; the policy
    `forecast` is cotenant's own.
    """
    pods, notes = pod_terms(columns, parameters)
    margin, unproven = share(columns.capacity, kept_percent(columns, parameters)), ~peak_alone_mask(columns, parameters)
    terms = [Term("safety_margin", margin, unproven), *system_terms(columns, parameters), *pods]
    amount = columns.capacity - sum((t.counted for t in terms), np.zeros_like(columns.capacity))
    capped = np.isfinite(parameters.batch_percent)
    cap = Term("cap", share(columns.capacity, parameters.batch_percent), capped)
    amount = np.maximum(np.where(capped, np.minimum(amount, cap.values), amount), 0)
    more = normalization(amount, columns.cpu_ratio) if columns.resource is Resource.CPU else np.zeros_like(amount)
    third = columns.third_batch
    return BandColumns(
        nodes=columns.nodes,
        band=Band.BATCH,
        resource=columns.resource,
        amounts=np.maximum(amount + more - third, 0),
        original=amount + more,
        reasons=_reasons(columns, parameters, now_seconds, ~where_policy(parameters, lambda p: p.reserved_alone)),
        policies=tuple(policy.name for policy in POLICIES),
        policy=parameters.policy.astype(np.int64),
        notes=notes,
        terms=(Term("capacity", columns.capacity), *terms, cap, *_afterwards(more, third)),
    )


def mid(columns: NodeColumns, parameters: Parameters, now_seconds: float) -> BandColumns:
    """Return the amounts that mid pods may use on each node, in the resource's unit (millicores or bytes).

        dynamic = min(prod_reclaimable, capacity - node use) + (capacity - system - prod requests) * unallocated %
        static  = capacity * static %
        amount  = max(min(dynamic or static, capacity * mid %), 0), then less third parties, never below 0

    Each difference is at least 0; system = max(use of the system and of host applications above mid, reserved). While
    the node's use is not known the first summand is 0. Source: Koordinator's plugin `midresource`.
    """
    static = parameters.mid_static > 0
    dynamic = ~static
    fixed = share(columns.capacity, parameters.mid_static_percent)
    taken = np.maximum(columns.system_used + columns.host_mid, columns.reserved)
    unallocated = np.maximum(columns.capacity - taken - columns.prod_request, 0)
    unused = np.where(columns.node_used < 0, 0, np.maximum(columns.capacity - columns.node_used, 0))
    unallocated_share = share(unallocated, parameters.mid_unallocated_percent)
    cap = share(columns.capacity, parameters.mid_percent)
    amount = np.where(static, fixed, np.minimum(columns.prod_reclaimable, unused) + unallocated_share)
    amount = np.maximum(np.minimum(amount, cap), 0)
    terms = (
        Term("capacity", columns.capacity),
        Term("static_share", fixed, static),
        Term("prod_reclaimable", columns.prod_reclaimable, dynamic),
        Term("unused", unused, dynamic),
        Term("unallocated_share", unallocated_share, dynamic),
        Term("cap", cap),
    )
    return BandColumns(
        nodes=columns.nodes,
        band=Band.MID,
        resource=columns.resource,
        amounts=np.maximum(amount - columns.third_mid, 0),
        original=amount,
        reasons=_reasons(columns, parameters, now_seconds, dynamic & (parameters.mid_unallocated_percent > 0)),
        policies=("dynamic", "static"),
        policy=static.astype(np.int64),
        notes=np.zeros(len(columns.nodes), dtype=np.int64),
        terms=(*terms, *_afterwards(np.zeros_like(amount), columns.third_mid)),
    )


def prod_reclaimable(requested: Floats, unrequested: Floats, unreclaimable: Floats) -> Floats:
    """Return the part of prod's requests that prod will not use in the next 24 hours, (nodes,), in the resource's unit.

    The formula is max(min(requested, unrequested) - unreclaimable, 0), and 0 if `unreclaimable` is NaN (not known).
    `requested` sums prod requests; `unrequested` is the node's allocatable; `unreclaimable` is the peak that prod's
    usage may reach, with its margin. With a short history this peak is the larger of Koordinator's two: the sum of the
    pods' peaks, and the peak of the priority class plus that of the system. Source: koordlet, pod and priority-class
    predictors: min(requests - peaks, allocatable - peaks), floor 0.
    """
    reclaimable = np.minimum(requested, unrequested) - unreclaimable
    return np.where(np.isfinite(reclaimable), np.maximum(reclaimable, 0.0), 0.0)


def peak_alone_mask(columns: NodeColumns, parameters: Parameters) -> Booleans:
    """Return the mask of the nodes where the policy is `forecast` and the forecast is proven.

    A forecast is proven if it was tested on at least `forecast_origins` days, was exceeded in a share of at most
    `forecast_violation` of the decisions, and the peak of usage outside of pods is known as well.
    """
    by_forecast = where_policy(parameters, lambda policy: policy.by_forecast)
    complete = np.isfinite(columns.prod_peak) & np.isfinite(columns.system_peak)
    with np.errstate(invalid="ignore"):
        reliable = columns.violation <= parameters.forecast_violation
    return np.asarray(by_forecast & complete & reliable & (columns.origins >= parameters.forecast_origins))


def kept_percent(columns: NodeColumns, parameters: Parameters) -> Floats:
    """Return for each node the percentage of capacity that is never lent: Koordinator's, or 0 if a forecast is proven.

    A reclaim percentage above 100, by which Koordinator lends more than the node has, counts as 100 under `forecast`.
    """
    by_forecast = where_policy(parameters, lambda policy: policy.by_forecast)
    percent = np.where(by_forecast, np.minimum(parameters.reclaim_percent, 100.0), parameters.reclaim_percent)
    return np.where(peak_alone_mask(columns, parameters), 0.0, 100.0 - percent)


def system_terms(columns: NodeColumns, parameters: Parameters) -> list[Term]:
    """Return the terms for usage outside of pods; exactly one of them counts on each node.

    The amount is max(use of the system and of host applications above batch, reserved), or `reserved` alone if the
    policy requires that. With a proven forecast it is at least the forecast peak of that usage, because no percentage
    of capacity is then kept for its rise.
    """
    reserved_alone = where_policy(parameters, lambda policy: policy.reserved_alone)
    by_peak = peak_alone_mask(columns, parameters)
    used = np.maximum(columns.system_used + columns.host_batch, columns.reserved)
    return [
        Term("reserved", columns.reserved, reserved_alone),
        Term("system_used", used, ~reserved_alone & ~by_peak),
        Term("system_peak", np.maximum(used, ceil_amounts(columns.system_peak)), by_peak),
    ]


def pod_terms(columns: NodeColumns, parameters: Parameters) -> tuple[list[Term], npt.NDArray[np.int64]]:
    """Return the terms for high-priority pods, and for each node the index into NOTES that explains the choice.

    On each node the term of its policy counts. Under the policy `forecast`, the forecast peak and `announced` (if above
    0) count instead if together they reach present usage. So an unproven forecast can only lower what is lent, and a
    proven one is ignored once usage exceeds it.
    """
    by_forecast = where_policy(parameters, lambda policy: policy.by_forecast)
    alone, has_forecast = peak_alone_mask(columns, parameters), by_forecast & np.isfinite(columns.prod_peak)
    # The forecast peak of prod's usage, and the present demand of what that forecast does not know: mid pods, pods
    # without a metric (by request) and the CPUs that LSE pods keep; the highest use of mid pods counts instead where
    # that is more. Prod pods that came after the forecast's history are in `announced`, as far as they replaced none.
    unknown: Integers = np.maximum(columns.hp_used - columns.prod_used, 0)
    peak = ceil_amounts(columns.prod_peak) + np.maximum(unknown, ceil_amounts(columns.mid_peak))
    ahead = has_forecast & (peak + columns.announced >= columns.hp_used)
    terms = [
        *(Term(t.name, ceil_amounts(t.amounts(columns)), _counts_with(parameters, t) & ~ahead) for t in POD_TERMS),
        Term("hp_peak", peak, ahead),
        Term("announced", columns.announced, ahead & (columns.announced > 0)),
    ]
    cases = [~by_forecast, alone & ahead, alone, ahead, has_forecast]
    return terms, np.asarray(np.select(cases, [0, 1, 5, 2, 3], 4))


def where_policy(parameters: Parameters, applies: Callable[[ReclaimPolicy], bool]) -> Booleans:
    """Return the mask of the nodes whose reclaim policy fulfills the predicate `applies`."""
    return np.array([applies(policy) for policy in POLICIES])[parameters.policy.astype(np.int64)]


def _counts_with(parameters: Parameters, term: PodTerm) -> Booleans:
    return where_policy(parameters, lambda policy: policy.pods is term)


def normalization(amount: Integers, ratio: Floats) -> Integers:
    """Return the amount that CPU normalization (factor `ratio`) adds to each node's amount, rounded up.

    Thousandths are truncated first, as in Koordinator's quantities. At a ratio of 1 exactly nothing is added, even for
    amounts whose thousandths a double cannot represent.
    """
    thousandths: Floats = np.floor(amount * 1000.0 * ratio)
    return np.where(ratio > 1, ceil_amounts(thousandths / 1000.0 - amount), 0)


def _afterwards(more: Integers, third: Integers) -> tuple[Term, Term]:
    """Return the terms that apply after cap and floor; each counts only on nodes where it is not 0."""
    return Term("normalization", more, more > 0), Term("third_party", third, third > 0)


def _reasons(
    columns: NodeColumns, parameters: Parameters, now_seconds: float, by_system: Booleans
) -> npt.NDArray[np.int64]:
    """Return indices into REASONS, (n,); `by_system`: an unknown usage outside of pods is a reason, not a zero."""
    age = now_seconds - columns.measured_seconds
    with np.errstate(invalid="ignore"):
        late, ahead = age > parameters.degrade_seconds, age < -AHEAD_SECONDS
    cases = {
        Reason.COLOCATION_OFF: parameters.enabled == 0,
        Reason.METRIC_MISSING: np.isnan(age),
        Reason.METRIC_EXPIRED: late,
        Reason.METRIC_AHEAD: ahead,
        Reason.METRIC_IMPLAUSIBLE: columns.system_used == IMPLAUSIBLE,
        Reason.METRIC_INCOMPLETE: by_system & (columns.system_used == UNKNOWN),
    }
    return np.asarray(np.select(list(cases.values()), [REASONS.index(reason) for reason in cases], 0))
