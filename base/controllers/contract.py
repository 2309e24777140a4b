"""The contract of the manager's controllers: each reads a view of the cluster and returns the writes to make.

`decide` is pure: the same view gives the same decision, and a view that already has the controller's writes gives none.
The loop (`controllers.loop`) fetches views, sends intents under the Lease and turns off a controller whose right is
missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cotenant.base.errors import CotenantError
from cotenant.base.kubernetes.intent import Address, Intent
from cotenant.base.kubernetes.protocol import MANAGER

MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "cotenant"
FIELD_MANAGER: Final = MANAGER
PEOPLES: Final = (
    *("podmigrationjobs/", "reservations/", "reservationplans/", "autopilotpolicies/"),
    *("pods/", "podgroups/", "elasticquotas/"),
)
"""Beginnings of the subjects of objects that people write one by one: the author has to correct a refused object."""


@dataclass(frozen=True, slots=True, order=True)
class ObjectNote:
    """A message for people about an object; `reason` is CamelCase, as in conditions and Events.

    A `warning` becomes an Event, and is in the feature's condition unless people write objects of that kind (PEOPLES).
    An `event` becomes a normal Event. Any other note is only counted.
    """

    subject: str
    reason: str
    message: str
    warning: bool = False
    event: bool = False

    @property
    def degrades(self) -> bool:
        """True for a warning, unless it is about an object of a kind that people write one by one (`PEOPLES`)."""
        return self.warning and not self.subject.startswith(PEOPLES)


@dataclass(frozen=True, slots=True)
class ControllerDecision:
    """The result of one decision: the writes to make (`intents`) and the notes to report.

    `trouble` is the error that prevented all other writes; the feature then counts as failed with this error.
    """

    intents: tuple[Intent, ...] = ()
    notes: tuple[ObjectNote, ...] = ()
    before: Mapping[Address, str] = field(default_factory=dict)
    """Present values of the fields that a write changes, for the audit log; an object without any is left out."""
    trouble: CotenantError | None = None


def camel(code: str) -> str:
    """Return a reason code in CamelCase, as Kubernetes writes reasons: "not-enough-history" -> "NotEnoughHistory"."""
    return "".join(part[:1].upper() + part[1:] for part in code.split("-"))
