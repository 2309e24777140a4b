"""The invariant checker: what must never be true of a cluster that the product runs in, decided from records alone.

    log, words = auditing(folder)               # arguments of the API server, which then writes `log`
    found = violations(recording(log, ledger, [AgentFiles(...)]), Bounds())       # () when nothing was broken

It reads what others wrote down (the API server's audit log, the ledger's rows, the node agents' notes and action logs)
and shares no decision with the product. It is a proof tool: an audit log with whole objects, secrets among them, is
nothing that an operator switches on, and what an operator needs of it the product says itself (`cotenant audit verify`,
`cotenant status`).
"""

from __future__ import annotations

from tests.support.invariants.checker import INVARIANTS, violations
from tests.support.invariants.reading import AgentFiles, auditing, recording
from tests.support.invariants.records import Bounds, Recording, Violation

__all__ = ["INVARIANTS", "AgentFiles", "Bounds", "Recording", "Violation", "auditing", "recording", "violations"]
