"""The contract of the manager's controllers: each reads a view of the cluster and returns the writes to make.

`decide` is pure: a view that shows the same gives the same decision, and a view that shows our own work gives none. The
loop (`controllers.loop`) fetches views, sends intents under the Lease and turns a controller off whose right is
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
"""How the subjects of objects begin that people write, one by one: one that is refused is its author's to mend."""


@dataclass(frozen=True, slots=True, order=True)
class ObjectNote:
    """Something a person should know about an object; `reason` is CamelCase, as conditions and Events write it.

    warning: it becomes an Event, and stands in the feature's condition unless it is of PEOPLES. event: it becomes an
    Event that warns of nothing. Otherwise it is only counted.
    """

    subject: str
    reason: str
    message: str
    warning: bool = False
    event: bool = False

    @property
    def degrades(self) -> bool:
        """True if the feature itself works less well, not just an object that another party wrote."""
        return self.warning and not self.subject.startswith(PEOPLES)


@dataclass(frozen=True, slots=True)
class ControllerDecision:
    """The intents to write and the notes to report.

    trouble: why nothing but these intents could be decided; the feature counts as one that failed with this error.
    """

    intents: tuple[Intent, ...] = ()
    notes: tuple[ObjectNote, ...] = ()
    before: Mapping[Address, str] = field(default_factory=dict)
    """For the audit: the present values of the fields that an intent changes; missing if there are none."""
    trouble: CotenantError | None = None


def camel(code: str) -> str:
    """A reason code as Kubernetes writes reasons: "not-enough-history" -> "NotEnoughHistory"."""
    return "".join(part[:1].upper() + part[1:] for part in code.split("-"))
