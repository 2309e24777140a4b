"""A node's reclaimable capacity in words: each term of the formula with its value, and which term limits it most. Pure.

It reads rows of RECLAIMABLE; the formulas are those of `recommender/colocation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cotenant.base import measures
from cotenant.base.colocation.reclaim_policies import TERMS, decode_terms
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.dashboard.figures import display

AFTERWARDS: Final[Mapping[str, str]] = {"normalization": "+", "third_party": "−"}
"""Term of a formula that applies after the cap and the lower bound 0 -> its sign."""
SETTING: Final[Mapping[str, str]] = {
    "hp_peak": "node_peak.{risk}",
    "safety_margin": "recommender.reclaimable.{resource}_reclaim_percent",
    "cap": "recommender.reclaimable.batch_{resource}_percent",
}
RISK: Final[Mapping[Resource, str]] = {Resource.CPU: "risk_percent", Resource.MEMORY: "memory_risk_percent"}


@dataclass(frozen=True, slots=True)
class LentPaths:
    """The amount of a resource that one node can lend to a band (mid or batch), with the terms of its formula."""

    band: str
    resource: Resource
    amount: int | None
    policy: str
    reason: Reason
    terms: Mapping[str, int]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> LentPaths:
        """Build the node's lendable amount from a row of the table RECLAIMABLE."""
        amount = None if row["amount"] is None else int(row["amount"])
        terms = decode_terms(row["term_amounts"])
        return cls(row["band"], Resource(row["resource"]), amount, row["policy"], Reason(row["reason"]), terms)

    @property
    def ceiling(self) -> int | None:
        """Capacity less the safety margin, in millicores or bytes; None if a term is missing.

        All usage, batch included, is to stay below it. With a proven forecast (term `system_peak`) the margin is 0.
        """
        complete = "capacity" in self.terms and not {"safety_margin", "system_peak"}.isdisjoint(self.terms)
        return self.terms["capacity"] - self.terms.get("safety_margin", 0) if complete else None


def formula(lent: LentPaths) -> str:
    """Return the formula with its values, for checking by hand: "32 − 12.8 − 1.1 − 9.4 = 8.7 cores"."""
    figures = {name: display.amount(value, lent.resource) for name, value in lent.terms.items()}
    if lent.band == "batch":
        parts = [text for name, text in figures.items() if name not in ("cap", *AFTERWARDS)]
        inner = " − ".join(parts) or "nothing known"
        bounds = [f"at most {figures['cap']}"] if "cap" in figures else []
    elif "static_share" in figures:
        inner, bounds = figures["static_share"], [f"at most {figures['cap']}"]
    else:
        shown = [figures.get(name, display.MISSING) for name in ("prod_reclaimable", "unused", "unallocated_share")]
        inner, bounds = f"min({shown[0]}, {shown[1]}) + {shown[2]}", [f"at most {figures.get('cap', display.MISSING)}"]
    after = [f"then {AFTERWARDS[n]} {figures[n]}" for n in AFTERWARDS if n in figures]
    return f"{inner}, {', '.join([*bounds, 'at least 0', *after])} = {display.amount(lent.amount, lent.resource)}"


def signs(lent: LentPaths) -> Mapping[str, str]:
    """Return how each term enters the formula: + adds, − subtracts, ≤ bounds."""
    bounding = {"cap", "unused"}
    added = {"prod_reclaimable", *(term.name for term in TERMS.values() if term.sign == "+")}
    if lent.band == "mid":
        bounding |= {"capacity"}
    return {
        n: "≤" if n in bounding else "+" if n in added else "−"
        for n in lent.terms
        if (lent.band, n) != ("mid", "capacity")
    }


def why_not_more(lent: LentPaths) -> str:
    """Return a sentence on what limits most what the node lends, or on why it lends nothing."""
    if lent.reason is not Reason.OK:
        return f"Nothing is lent: {SENTENCES[lent.reason]}"
    taken = {name: value for name, value in lent.terms.items() if name != "cap" and limit_words(name)}
    if not taken:
        return "The results do not say what limits this amount."
    largest = _binding_term(lent, taken)
    amount = display.amount(lent.terms[largest], lent.resource)
    share = display.percent(measures.ratio_of(lent.terms[largest], lent.terms["capacity"]))
    text = f"No more is lent because {limit_words(largest).format(amount=amount)} ({share} of capacity)"
    setting = SETTING.get(largest, "").format(resource=lent.resource, risk=RISK[lent.resource])
    return f"{text}; setting {setting}." if setting else f"{text}."


def _binding_term(lent: LentPaths, taken: Mapping[str, int]) -> str:
    """Return the limiting term: the cap if it is below the remainder, else the largest subtracted term."""
    free = lent.terms["capacity"] - sum(taken.values())
    return "cap" if lent.terms.get("cap", free) < free else max(taken, key=lambda name: taken[name])


def past_words(hours: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each band whose past hours are missing in a row of NODE_HISTORY; empty if none are."""
    codes = {band: str(hours.get(f"{band}_reason") or Reason.OK) for band in ("batch", "mid")}
    reasons = {band: code for band, code in codes.items() if code != Reason.OK and code in set(Reason)}
    return [f"{band.capitalize()}: {SENTENCES[Reason(code)]}" for band, code in reasons.items()]


def words(name: str) -> str:
    """Return a term's name in words; the name itself if it is unknown (results of another version)."""
    return TERMS[name].words if name in TERMS else name


def limit_words(name: str) -> str:
    """Return a clause, with {amount} to fill in, on how a term limits what is lent; "" if the term does not."""
    return TERMS[name].limit if name in TERMS else ""
