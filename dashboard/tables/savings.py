"""How pages write what recommendations free and raise; amounts come from `list_totals`, words from `savings_text`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dash import html
from dash.development.base_component import Component

from cotenant.base.text import agree
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.recommender.model.savings import Savings
from cotenant.recommender.model.savings_text import NET, NOTHING, SavingPhrase, net_phrases, saving_phrases


def second_person_words(count: int) -> str:
    """Return the text for a number of recommendations that need a second person: "87 need a second person"."""
    return f"{agree(count, 'needs', 'need')} a second person"


def saving_parts(savings: Savings, currency: str) -> list[Any]:
    """Return what is freed and what is raised, with amounts that follow the unit switch."""
    phrases = saving_phrases(savings)
    return _interleave([_saving_phrase(phrase, currency) for phrase in phrases], "; ") if phrases else [NOTHING]


def main_parts(savings: Savings, currency: str, word: str = "") -> list[Any]:
    """Return either what is freed or what is raised: the one named by `word`, else the larger amount of money."""
    phrases = saving_phrases(savings)
    largest = max(phrases, key=lambda phrase: (phrase.word == word, phrase.monthly or 0.0), default=None)
    return [_saving_phrase(replace(largest, whom=""), currency)] if largest else [NOTHING]


def net_parts(savings: Savings, currency: str) -> list[Any]:
    """Return the balance of each resource and of the money, each as freed or raised."""
    phrases = net_phrases(savings)
    drawn = _interleave([_saving_phrase(phrase, currency) for phrase in phrases], ", ") if phrases else ["nothing"]
    return [f"{NET} ", *drawn]


def _saving_phrase(phrase: SavingPhrase, currency: str) -> Component:
    amounts = [panels.amount(value, resource) for resource, value in phrase.amounts]
    parts: list[Any] = _interleave(amounts, ", ")
    parts += [phrase.whom] if phrase.whom else []
    if phrase.monthly is not None:
        parts += [", "] * bool(amounts) + [f"{display.money(phrase.monthly, currency)} a month"]
    return html.Span([f"{phrase.word} ", *parts], className=f"saving saving-{phrase.word}")


def _interleave(parts: Sequence[Any], sign: str) -> list[Any]:
    return [piece for part in parts for piece in (sign, part)][1:]
