"""Reclaimable capacity of a node: the amount, and every term of the formula that gave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cotenant.core.model.reasons import Reason
from cotenant.core.model.resource import Resource


class Band(StrEnum):
    """Who may use it: batch (what prod does not use now) or mid (what prod will not use for long)."""

    MID = "mid"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Reclaimable:
    """Amount of one band and resource on one node, in the resource's unit.

    `terms` holds each named term of the formula in order, same unit, enough to recompute `amount` by hand.
    When `reason` is not OK the extended resource is withdrawn and `amount` is 0. `note` says what a person should know
    of this number beside its terms, such as a policy that fell back.
    """

    node: str
    band: Band
    resource: Resource
    amount: int
    policy: str
    terms: Mapping[str, int]
    reason: Reason = Reason.OK
    note: str = ""
