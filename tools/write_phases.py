"""Write the phases of plans into docs/plans.md and of Reservations into docs/protocol.md, from the manager's tables.

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
    PlanState,
    State,
)
from tools.write_reference import table

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
PAGES: Final[Mapping[Path, Mapping[PlanPhase, PlanState] | Mapping[Phase, State]]] = {
    DOCS / "plans.md": PLAN_STATES,
    DOCS / "protocol.md": RESERVATION_STATES,
}
PART: Final = re.compile(
    r"(?<=<!-- phases: written by `make docs`, do not edit -->\n).*(?=<!-- end of phases -->)", re.DOTALL
)


def phases(states: Mapping[PlanPhase, PlanState] | Mapping[Phase, State]) -> str:
    """One row for each phase: what it means, its capacity, and what may follow."""
    rows = [
        (phase.value, state.words, state.stage.value, "; ".join(f"{then}: {why}" for then, why in state.then.items()))
        for phase, state in states.items()
    ]
    return "\n".join(table(("phase", "meaning", "its capacity is", "may be followed by"), rows))


def page(path: Path) -> str:
    """The whole page as it should be."""
    return PART.sub(lambda _: phases(PAGES[path]), path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path), encoding="utf-8")
