"""Savings as text: a positive number after "frees", a positive number after "raises". Pure; used by every surface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cotenant.base.amount_text import amount, money
from cotenant.base.resource import Resource
from cotenant.recommender.model.savings import RequestTotals, Savings

FREES, RAISES, NET = "frees", "raises", "net"
WHOM: Final = " where more is needed"
"""For which requests are raised: by much, of containers at risk, or by a little."""
NOTHING: Final = "frees nothing"


@dataclass(frozen=True, slots=True)
class SavingPhrase:
    """A verb such as "frees", positive amounts in each resource's unit, money a month (None: not shown), purpose."""

    word: str
    amounts: tuple[tuple[Resource, int], ...]
    monthly: float | None = None
    whom: str = ""


def saving_phrases(savings: Savings) -> list[SavingPhrase]:
    """Return one phrase for freed requests and one for raised requests with their purpose; empty without a change."""
    phrases = (_phrase(FREES, savings.frees), _phrase(RAISES, savings.raises, WHOM))
    return [phrase for phrase in phrases if phrase.amounts or phrase.monthly]


def net_phrases(savings: Savings) -> list[SavingPhrase]:
    """Return the phrases for freed minus raised requests; each resource, and the money, has its own verb."""
    net = savings.net
    turned = RequestTotals(-net.millicores, -net.bytes, None if net.monthly is None else -net.monthly)
    return [phrase for phrase in (_phrase(FREES, net), _phrase(RAISES, turned)) if phrase.amounts or phrase.monthly]


def _phrase(word: str, totals: RequestTotals, whom: str = "") -> SavingPhrase:
    amounts = tuple((resource, value) for resource in Resource if (value := totals.amount(resource)) > 0)
    monthly = totals.monthly if totals.monthly is not None and totals.monthly > 0 else None
    return SavingPhrase(word, amounts, monthly, whom if amounts else "")


def phrase_text(phrase: SavingPhrase, currency: str) -> str:
    """Return a phrase as text, such as "raises 255 cores, 485 GiB where more is needed, 7,283 USD a month"."""
    amounts = ", ".join(amount(value, resource) for resource, value in phrase.amounts) + phrase.whom
    paid = [] if phrase.monthly is None else [f"{money(phrase.monthly, currency).strip()} a month"]
    return f"{phrase.word} {', '.join([*filter(None, [amounts]), *paid])}"


def saving_text(savings: Savings, currency: str) -> str:
    """Return freed and raised amounts as text: "frees 302 cores, 421 GiB, 7,483 USD a month; raises 255 cores, ..."."""
    return "; ".join(phrase_text(phrase, currency) for phrase in saving_phrases(savings)) or NOTHING


def net_text(savings: Savings, currency: str) -> str:
    """Return the net amounts in one line: "net frees 47 cores, 200 USD a month, raises 64 GiB"."""
    return f"{NET} {', '.join(phrase_text(phrase, currency) for phrase in net_phrases(savings)) or 'nothing'}"


def balanced_text(savings: Savings, currency: str) -> str:
    """Return the text on freed and raised requests, and on the net amounts if requests are both freed and raised."""
    balance = [net_text(savings, currency)] * (len(saving_phrases(savings)) > 1)
    return "; ".join([saving_text(savings, currency), *balance])
