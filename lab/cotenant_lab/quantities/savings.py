"""Quantities of savings: what recommendations free and raise, and what that is in money."""

from __future__ import annotations

from typing import Final

from cotenant.base.tables.quantity import Aggregation, Level, Moment, Quantity, Sign, Surface, Unit

_TOTALS: Final = "cotenant.recommender.model.savings.RequestTotals"
_SURFACES: Final = (
    Surface.TILE,
    Surface.SENTENCE,
    Surface.CAPTION,
    Surface.REVIEW,
    Surface.CLI,
    Surface.REST,
    Surface.MCP,
    Surface.REPORT,
    Surface.NOTE,
)
_TIMES: Final = {
    "now": (Moment.AFTER_FIRST_STEP, "the next step of every change that the guardrails allow now"),
    "all_steps": (Moment.AFTER_ALL_STEPS, "all steps of every change"),
}
_UNITS: Final = {"millicores": Unit.MILLICORES, "bytes": Unit.BYTES, "monthly": Unit.MONEY_PER_MONTH}
_WORDS: Final = {
    "frees": (Sign.NEVER_NEGATIVE, "that fall, by how much"),
    "raises": (Sign.NEVER_NEGATIVE, "that rise, by how much"),
    "net": (Sign.POSITIVE_IS_FREED, "as they fall less as they rise"),
}


def _total(when: str, word: str, unit: str) -> Quantity:
    """One sum over recommendations."""
    (time, steps), (sign, how) = _TIMES[when], _WORDS[word]
    return Quantity(
        key=f"savings_{when}_{word}_{unit}",
        name=f"{word} {when.replace('_', ' ')}",
        definition=f"Requests of all pods {how}, by {steps}; one that is not set counts as the limit, else as 0.",
        unit=_UNITS[unit],
        function=f"{_TOTALS}.{unit}",
        aggregation=Aggregation(Level.SELECTION, "sum over containers and pods"),
        time=time,
        sign=sign,
        surfaces=_SURFACES,
    )


QUANTITIES: Final[tuple[Quantity, ...]] = (
    *(_total(when, word, unit) for when in _TIMES for word in _WORDS for unit in _UNITS),
    Quantity(
        key="changes_verified_savings",
        name="Verified as saved so far",
        definition="Requests over all pods that fell by changes whose soak has shown no harm, from the ledger.",
        unit=Unit.OF_RESOURCE,
        function="cotenant.changes.model.change.change_savings",
        aggregation=Aggregation(Level.SELECTION, "sum over verified changes"),
        time=Moment.NOW,
        surfaces=(Surface.TILE,),
    ),
)
