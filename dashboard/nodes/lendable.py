"""A node's reclaimable capacity in words: every term of the formula with its number, and what limits it most. Pure.

Reads the rows of RECLAIMABLE; the formulas are those of `recommender/colocation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cotenant.core.model.reasons import SENTENCES, Reason
from cotenant.core.model.resource import Resource
from dashboard.tables import display

WORDS: Final[Mapping[str, str]] = {
    "capacity": "capacity of the node",
    "safety_margin": "safety margin that nobody may use",
    "system_used": "used outside of pods, or reserved if that is more",
    "reserved": "reserved for system and kubelet",
    "hp_used": "used by prod and mid pods and pods without a class",
    "hp_request": "requested by prod and mid pods and pods without a class",
    "hp_max": "used or requested by prod and mid pods, the larger of both",
    "system_peak": "24-hour peak of what runs outside of pods, or its present use or reserved if that is more",
    "hp_peak": "calibrated 24-hour peak of prod, with what it cannot know of other pods",
    "announced": "requested by prod pods and reservations that came after that forecast and replaced no pod",
    "prod_reclaimable": "requested by prod and not used by the forecast peak",
    "unused": "not used by anybody now",
    "unallocated_share": "share of what nobody requested",
    "static_share": "fixed share of capacity",
    "cap": "cap by the settings",
    "normalization": "added for the CPU's speed",
    "third_party": "taken by other schedulers",
}
"""Term -> what it is."""

LIMITS: Final[Mapping[str, str]] = {
    "safety_margin": "the safety margin keeps {amount} back",
    "system_used": "the system outside of pods takes {amount}",
    "reserved": "{amount} are reserved for system and kubelet",
    "hp_used": "prod and mid pods use {amount}",
    "hp_request": "prod and mid pods request {amount}",
    "hp_max": "prod and mid pods use or request {amount}",
    "system_peak": "the system outside of pods is expected to take {amount}",
    "hp_peak": "prod is expected to need {amount}",
    "announced": "prod pods and reservations that came after the forecast request {amount}",
    "cap": "the settings cap it at {amount}",
}
AFTERWARDS: Final[Mapping[str, str]] = {"normalization": "+", "third_party": "−"}
"""Terms that count after cap and floor."""
SETTING: Final[Mapping[str, str]] = {
    "hp_peak": "node_peak.{risk}",
    "safety_margin": "recommender.reclaimable.{resource}_reclaim_percent",
    "cap": "recommender.reclaimable.batch_{resource}_percent",
}
RISK: Final[Mapping[Resource, str]] = {Resource.CPU: "risk_percent", Resource.MEMORY: "memory_risk_percent"}


@dataclass(frozen=True, slots=True)
class Lent:
    """One amount of RECLAIMABLE, its terms taken apart."""

    band: str
    resource: Resource
    amount: int
    policy: str
    reason: Reason
    terms: Mapping[str, int]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Lent:
        """From a row of RECLAIMABLE."""
        pairs = (term.rsplit(" ", 1) for term in str(row["terms"]).split(", ") if " " in term)
        terms = {name: int(amount) for name, amount in pairs}
        resource = Resource(row["resource"])
        return cls(row["band"], resource, int(row["amount"] or 0), row["policy"], Reason(row["reason"]), terms)

    @property
    def ceiling(self) -> int | None:
        """Capacity less the safety margin: the most that batch and everything it may not push away take together.

        A proven forecast (its term is the system's peak) keeps no percentage back.
        """
        complete = "capacity" in self.terms and not {"safety_margin", "system_peak"}.isdisjoint(self.terms)
        return self.terms["capacity"] - self.terms.get("safety_margin", 0) if complete else None


def formula(lent: Lent) -> str:
    """The formula with its numbers, as it can be done by hand: "32 − 12.8 − 1.1 − 9.4 = 8.7 cores"."""
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
    limits = ", ".join(
        [*bounds, "at least 0", *(f"then {AFTERWARDS[n]} {figures[n]}" for n in AFTERWARDS if n in figures)]
    )
    return f"{inner}, {limits} = {display.amount(lent.amount, lent.resource)}"


def signs(lent: Lent) -> Mapping[str, str]:
    """How each term enters: + adds, − subtracts, min bounds."""
    bounding = {"cap", "unused"}
    added = {"capacity", "unallocated_share", "static_share", "prod_reclaimable", "normalization"}
    if lent.band == "mid":
        bounding |= {"capacity"}
    return {
        n: "≤" if n in bounding else "+" if n in added else "−"
        for n in lent.terms
        if (lent.band, n) != ("mid", "capacity")
    }


def why_not_more(lent: Lent) -> str:
    """One sentence: what takes most of the node away from batch."""
    if lent.reason is not Reason.OK:
        return f"Nothing is lent: {SENTENCES[lent.reason]}"
    taken = {name: value for name, value in lent.terms.items() if name in LIMITS and name != "cap"}
    if not taken:
        return "The results do not say what limits it."
    free = lent.terms["capacity"] - sum(taken.values())
    largest = "cap" if lent.terms.get("cap", free) < free else max(taken, key=lambda name: taken[name])
    amount = display.amount(lent.terms[largest], lent.resource)
    share = display.percent(lent.terms[largest] / lent.terms["capacity"]) if lent.terms["capacity"] else display.MISSING
    text = f"Not more because {LIMITS[largest].format(amount=amount)} ({share} of capacity)"
    setting = SETTING.get(largest, "").format(resource=lent.resource, risk=RISK[lent.resource])
    return f"{text}; setting {setting}." if setting else f"{text}."
