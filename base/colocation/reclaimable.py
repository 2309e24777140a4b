"""Reclaimable capacity of a node: the amount, and every term of the formula that gave it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource

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
    """Amount of one band and resource, in the resource's unit.

    When `reason` is not OK the extended resource is withdrawn and `amount` is 0. `note` says what a person should know
    of this number beside its terms, such as a policy that fell back.
    """

    band: Band
    resource: Resource
    amount: int
    policy: str
    reason: Reason = Reason.OK
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimable(LentAmount):
    """That of a node; `terms`: each of the formula in order, same unit, enough to recompute `amount` by hand."""

    node: str
    terms: Terms

    @property
    def known_amount(self) -> int | None:
        """The amount where it is known: 0 where colocation is off; None where no report says what could be lent."""
        return self.amount if self.reason in KNOWN else None


def encode_terms(terms: Terms) -> str:
    """The terms as a JSON object, as a table stores them."""
    return json.dumps(terms)


def decode_terms(text: str) -> Terms:
    """Inverse of `encode_terms`; none of an empty text, which a row without the cell has."""
    return {str(name): int(amount) for name, amount in json.loads(text).items()} if text else {}
