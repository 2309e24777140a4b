"""Recommendation: what a container requests now, what it should request, and why.

A value is never a bare number: it carries the reason code and the inputs it was computed from. Where evidence is
short the value is withheld (`amount` None and a reason), never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from enum import StrEnum

from cotenant.model.identity import ContainerRef
from cotenant.model.reasons import Reason
from cotenant.model.resource import Resource


class Field(StrEnum):
    """Which field of a container's resources."""

    REQUEST = "request"
    LIMIT = "limit"


class Action(StrEnum):
    """What to do with a field."""

    SET = "set"
    UNSET = "unset"
    """Remove the field (KRR removes CPU limits)."""
    WITHHELD = "withheld"
    """No statement; the reason says why."""


class Severity(StrEnum):
    """How far the present value is from the proposed one; ordered GOOD < OK < WARNING < CRITICAL."""

    UNKNOWN = "unknown"
    GOOD = "good"
    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Position in the order, UNKNOWN lowest."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Value:
    """One proposed field, in the resource's unit. `inputs` maps names of what went in to amounts or words."""

    resource: Resource
    field: Field
    now: int | None
    amount: int | None
    action: Action
    reason: Reason
    severity: Severity = Severity.UNKNOWN
    inputs: Mapping[str, float | int | str] = attribute(default_factory=dict)
    formula: str = ""

    @property
    def change(self) -> int | None:
        """Proposed minus present amount; None when either is missing."""
        return None if self.now is None or self.amount is None else self.amount - self.now


@dataclass(frozen=True, slots=True)
class Recommendation:
    """All proposed fields of one container by one strategy; `replicas` multiplies the effect."""

    container: ContainerRef
    strategy: str
    replicas: int
    values: tuple[Value, ...]
    window_seconds: int
    settings_digest: str
    end_seconds: int

    def value(self, resource: Resource, which: Field) -> Value | None:
        """The proposal for one field, if the strategy makes a statement about it."""
        return next((v for v in self.values if v.resource is resource and v.field is which), None)

    @property
    def severity(self) -> Severity:
        """The worst severity among the fields."""
        return max((v.severity for v in self.values), key=lambda s: s.rank, default=Severity.UNKNOWN)
