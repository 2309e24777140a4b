"""The reclaim policies: the amounts with which high-priority pods count when batch amounts are computed. Pure.

One entry of POLICIES is a complete policy: the choices and texts of the settings, the values of colocation-config, the
terms of the formula and their words in every output are derived from it. The rest of the formula, with margin, system
and cap, is `recommender/colocation/formulas.py`. numpy is not imported here, because the node agent reads the settings
without having numpy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource

if TYPE_CHECKING:
    import numpy.typing as npt


class PodDemand(Protocol):
    """The usage and requests of high-priority pods (prod, mid, no class), in the resource's unit.

    The arrays are sums by node (shape (nodes,), integers) or values per pod (shape (pods,), floats). A policy's term
    must accept both: for NUMA zones it is computed per pod and then summed. `hp_max` is the larger of usage and
    request, per pod.
    """

    @property
    def hp_used(self) -> npt.NDArray[Any]:
        """Usage of high-priority pods; an unmeasured pod counts with its request, an LSE pod with its CPU request."""

    @property
    def hp_request(self) -> npt.NDArray[Any]:
        """The requests of high-priority pods."""

    @property
    def hp_max(self) -> npt.NDArray[Any]:
        """The larger of usage and request of each high-priority pod."""


@dataclass(frozen=True, slots=True)
class FormulaTerm:
    """A named term of a formula and its words in every output.

    `sign` "+" adds, "-" subtracts, "<=" is an upper bound, "min" is one of the amounts of which the least counts;
    `detail` is appended to the words if the strategy's percentages are known; `limit` completes the sentence "Not more
    because ..." for a term that takes most of a node; `from_forecast` is true if it depends on a forecast.
    """

    name: str
    sign: str
    words: str
    detail: str = ""
    limit: str = ""
    from_forecast: bool = False


@dataclass(frozen=True, slots=True)
class PodTerm(FormulaTerm):
    """A term of high-priority pods; `amounts` computes it from their usage and requests."""

    amounts: Callable[[PodDemand], npt.NDArray[Any]] = lambda pods: pods.hp_used


@dataclass(frozen=True, slots=True)
class ReclaimPolicy:
    """One reclaim policy; `meaning` is a clause that says what it subtracts from capacity: "less the usage of ...".

    `pods` is the term of high-priority pods; `for_cpu` is true if the policy may compute batch CPU too, not only
    memory. If `reserved_alone`, the reserved capacity is subtracted for the system outside of pods, not its usage. If
    `by_forecast`, a node's calibrated 24-hour peak, if known, replaces the term; no safety margin is subtracted once
    usage exceeded the peak in few enough back-tests.
    """

    name: str
    meaning: str
    pods: PodTerm
    for_cpu: bool = True
    reserved_alone: bool = False
    by_forecast: bool = False


_USED: Final = PodTerm(
    "hp_used", "-", "used by prod and mid pods and pods without a priority class",
    limit="prod and mid pods use {amount}")  # fmt: skip
_REQUESTED: Final = PodTerm(
    "hp_request", "-", "requested by prod and mid pods and pods without a priority class",
    limit="prod and mid pods request {amount}", amounts=lambda pods: pods.hp_request,
)  # fmt: skip
_LARGER: Final = PodTerm(
    "hp_max", "-", "used or requested by prod and mid pods, the larger of both",
    limit="prod and mid pods use or request {amount}", amounts=lambda pods: pods.hp_max,
)  # fmt: skip

POLICIES: Final = (
    ReclaimPolicy("usage", "less the usage of prod and mid pods", _USED),
    ReclaimPolicy("request", "less the requests of prod and mid pods", _REQUESTED, for_cpu=False, reserved_alone=True),
    ReclaimPolicy("maxUsageRequest", "less the larger of usage and request of each pod", _LARGER),
    ReclaimPolicy(
        "forecast",
        "less the calibrated 24-hour peaks of prod and of the system, and without the safety margin once back-tests "
        "have proven these peaks",
        _USED,
        by_forecast=True,
    ),
)
"""In the order of their codes: columns hold a policy's index. Source: Koordinator; the policy `forecast` is ours."""
POLICY_CODES: Final[Mapping[str, int]] = {policy.name: code for code, policy in enumerate(POLICIES)}
BY_FORECAST: Final = frozenset(policy.name for policy in POLICIES if policy.by_forecast)
AMPLE_PERCENT: Final = 95
"""Threshold of node agents and extender, in percent of a node, if a policy of BY_FORECAST lends and nobody has set one.
Koordinator's thresholds (65 and 70 %) match the percentage that its policies keep back. A policy of BY_FORECAST has its
margin in the lent amount, so the threshold only has to leave the agent time to act."""
CPU_POLICIES: Final = tuple(policy for policy in POLICIES if policy.for_cpu)
POD_TERMS: Final = tuple(dict.fromkeys(policy.pods for policy in POLICIES))

if TYPE_CHECKING:
    CpuPolicy: TypeAlias = str
    MemoryPolicy: TypeAlias = str
else:
    CpuPolicy = Literal[tuple(policy.name for policy in CPU_POLICIES)]
    MemoryPolicy = Literal[tuple(policy.name for policy in POLICIES)]

TERMS: Final[Mapping[str, FormulaTerm]] = {term.name: term for term in (
    FormulaTerm("capacity", "+", "capacity of the node"),
    FormulaTerm("safety_margin", "-", "safety margin that nobody may use", ": capacity above {reclaim} %",
                "the safety margin keeps {amount} back"),
    FormulaTerm("reserved", "-", "reserved by the kubelet or by annotation",
                limit="{amount} are reserved for system and kubelet"),
    FormulaTerm("system_used", "-", "used outside of pods and by host applications, or the reserved amount if larger",
                limit="the system outside of pods takes {amount}"),
    *POD_TERMS,
    FormulaTerm("system_peak", "-",
                "24-hour peak of usage outside of pods, or the present usage or the reserved amount if larger",
                limit="the system outside of pods is expected to take {amount}", from_forecast=True),
    FormulaTerm("hp_peak", "-", "calibrated 24-hour peak of prod, plus an allowance for pods without a forecast",
                limit="prod is expected to need {amount}", from_forecast=True),
    FormulaTerm("announced", "-",
                "requested by prod pods and reservations that came after the forecast and replaced no pod",
                limit="prod pods and reservations that came after the forecast request {amount}"),
    FormulaTerm("static_share", "+", "fixed share of capacity", ": {static} %"),
    FormulaTerm("prod_reclaimable", "min", "requested by prod beyond its forecast peak", from_forecast=True),
    FormulaTerm("unused", "min", "capacity that is not used now"),
    FormulaTerm("unallocated_share", "+", "share of the capacity that nobody requested", ": {unallocated} %"),
    FormulaTerm("cap", "<=", "cap by the settings", ": {cap} % of capacity", "the settings cap it at {amount}"),
    FormulaTerm("normalization", "+", "CPU normalization of the node"),
    FormulaTerm("third_party", "-", "capacity taken by other schedulers"),
)}  # fmt: skip
"""Every term of the formulas of batch and mid by its name."""


def policy_words(policies: tuple[ReclaimPolicy, ...]) -> str:
    """Return the meaning of each policy as the end of a sentence: "usage: less ...; request: less ..."."""
    return "; ".join(f"{policy.name}: {policy.meaning}" for policy in policies)


Terms: TypeAlias = Mapping[str, int]
"""Named terms of a formula in its order, in the unit of the amount."""


class Band(StrEnum):
    """The class of reclaimed capacity: batch (unused by prod now) or mid (unused by prod for a long time)."""

    MID = "mid"
    BATCH = "batch"


KNOWN: Final = frozenset({Reason.OK, Reason.COLOCATION_OFF})
"""Reasons of an amount that is known; with all others nothing is lent because nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LentAmount:
    """The amount of one resource that a node lends to one band (mid or batch), in the resource's unit.

    If `reason` is not OK, the extended resource is withdrawn and `amount` is 0. `note` is a remark on the amount
    besides its terms, such as that another policy was used.
    """

    band: Band
    resource: Resource
    amount: int
    policy: str
    reason: Reason = Reason.OK
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimable(LentAmount):
    """The reclaimable amount of a node; `terms` are those of its formula in order, from which it can be recomputed."""

    node: str
    terms: Terms

    @property
    def known_amount(self) -> int | None:
        """The amount if it is known (0 if colocation is off); None if no report shows how much can be reclaimed."""
        return self.amount if self.reason in KNOWN else None


def encode_terms(terms: Terms) -> str:
    """Return the terms as a JSON object, as tables store them."""
    return json.dumps(terms)


def decode_terms(text: str) -> Terms:
    """Parse the terms that `encode_terms` wrote; {} for an empty text (a row without the cell)."""
    return {str(name): int(amount) for name, amount in json.loads(text).items()} if text else {}
