"""Write the phases of plans and of Reservations into docs/protocol.md, from the table that the manager steps by.

python -m tools.write_phases
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cotenant.scheduler_ext.reservations.model.life_cycle import (
    PLAN_STATES,
    RESERVATION_STATES,
    Phase,
    PlanPhase,
    State,
)
from tools.write_reference import table

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "protocol.md"
PART: Final = re.compile(
    r"(?<=<!-- phases: written by `make docs`, do not edit -->\n).*(?=<!-- end of phases -->)", re.DOTALL
)


def phases(states: Mapping[PlanPhase, State] | Mapping[Phase, State]) -> str:
    """One row for each phase: what it means, its capacity, and what may follow."""
    rows = [
        (phase.value, state.words, state.stage.value, "; ".join(f"{then}: {why}" for then, why in state.then.items()))
        for phase, state in states.items()
    ]
    return "\n".join(table(("phase", "meaning", "its capacity is", "may be followed by"), rows))


def page() -> str:
    """The whole page as it should be."""
    part = (
        f"{phases(PLAN_STATES)}\nThe phases of a Reservation, in Koordinator's words:\n\n{phases(RESERVATION_STATES)}"
    )
    return PART.sub(lambda _: part, PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
