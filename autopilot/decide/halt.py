"""Decide when the autopilot changes nothing (a halt), and when it may retry what was refused. Pure.

Everything halts while the autopilot is paused, after too much harm, and while the cluster is in trouble. A refusal
before anything was written (a missing right, a running roll-out, no capacity on the nodes, an unreachable webhook)
leaves no row in the ledger. Without a back-off the same workloads would be chosen in every round and block the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.autopilot.decide.history import ActState, Decisions, PastAct
from cotenant.autopilot.settings import AutopilotSettings
from cotenant.base.reasons import Reason
from cotenant.base.text import agree, counted, percent

MOST_NODES_NOT_READY: Final = 0.05
"""Share of nodes that are not ready above which nothing is changed. One node in twenty not ready is an outage, not
maintenance."""


@dataclass(frozen=True, slots=True)
class Halt:
    """The reason, as a code and a sentence, why the autopilot changes nothing now."""

    reason: Reason
    words: str


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The known health of the cluster, on which a halt of the autopilot depends.

    `nodes` and `ready` are counts. `trouble` says why the cluster could not be read, `paused` is the text of the pause
    switch; both are "" if all is well.
    """

    nodes: int = 0
    ready: int = 0
    trouble: str = ""
    paused: str = ""


def halt_of(health: ClusterHealth, decisions: Decisions) -> Halt | None:
    """Return the first reason why the autopilot may change nothing; None if there is no reason."""
    if health.paused:
        return Halt(Reason.AUTOPILOT_PAUSED, health.paused)
    if decisions.stopped:
        return Halt(Reason.AUTOPILOT_STOPPED, decisions.stopped)
    if health.trouble:
        return Halt(Reason.AUTOPILOT_CLUSTER_IN_TROUBLE, health.trouble)
    away = health.nodes - health.ready
    if not health.nodes or away > MOST_NODES_NOT_READY * health.nodes:
        unready = agree(away, "is not ready", "are not ready")
        why = f"of {counted(health.nodes, 'node')}, {unready}; at most {percent(MOST_NODES_NOT_READY)} may be"
        return Halt(Reason.AUTOPILOT_CLUSTER_IN_TROUBLE, why if health.nodes else "the cluster reports no nodes")
    return None


def too_much_harm(acts: Sequence[PastAct], since_seconds: float, settings: AutopilotSettings) -> str:
    """Return why the autopilot has to stop: too much harm in the last changes verified since it was resumed; "" if not.

    `stop_share` is a share of `stop_changes`, even while fewer changes have been verified: 5 % of 40 changes are two.
    """
    verified = [a for a in acts if a.state in (ActState.KEPT, ActState.HARMFUL) and a.since_seconds > since_seconds]
    last = sorted(verified, key=lambda act: act.since_seconds)[-settings.stop_changes :]
    bad = [act for act in last if act.state is ActState.HARMFUL]
    if not bad or len(bad) < settings.stop_share * settings.stop_changes:
        return ""
    names = ", ".join(sorted({str(act.workload) for act in bad}))
    return f"{len(bad)} of the last {counted(len(last), 'change')} did harm: {names}"


FIRST_REST_SECONDS: Final = 900.0
LONGEST_REST_SECONDS: Final = 86_400.0
REST_FACTOR: Final = 4.0
FIRST_WRITE_REST_SECONDS: Final = 10.0
LONGEST_WRITE_REST_SECONDS: Final = 600.0
"""Longest pause after a refused write to an object: one request in ten minutes, not one in each round."""


@dataclass(frozen=True, slots=True)
class AcceptRefusal:
    """The last refusal of a workload's change: its policy, its reason, its Unix time, and how many came in a row.

    `is_forbidden`: the manager lacks a right, which affects every workload that the policy selects.
    """

    policy: str
    words: str
    seconds: float
    times: int = 1
    is_forbidden: bool = False

    @property
    def rest_seconds(self) -> float:
        """The back-off until the next try, in seconds: four times as long after each further refusal, up to a day."""
        return min(FIRST_REST_SECONDS * REST_FACTOR ** min(self.times - 1, 8), LONGEST_REST_SECONDS)

    def left_seconds(self, now_seconds: float, cleared_seconds: float = 0.0) -> float:
        """Return the back-off left; 0 once a person resumed the workload, or while the clock is before the refusal."""
        if cleared_seconds >= self.seconds or now_seconds < self.seconds:
            return 0.0
        return max(self.seconds + self.rest_seconds - now_seconds, 0.0)


@dataclass(frozen=True, slots=True)
class WriteRefusal:
    """The server's last refusal to write to an object: its Unix time, and the number of refusals in a row."""

    seconds: float
    times: int = 1

    def rests(self, now_seconds: float) -> bool:
        """Return whether the next try has to wait: the back-off doubles with each refusal; a clock set back ends it."""
        rest_seconds = min(FIRST_WRITE_REST_SECONDS * 2.0 ** min(self.times - 1, 8), LONGEST_WRITE_REST_SECONDS)
        return 0.0 <= now_seconds - self.seconds < rest_seconds


class WriteRefusals:
    """The writes that the server refused, by the object's uid. Not thread-safe."""

    def __init__(self) -> None:
        self._by_uid: dict[str, WriteRefusal] = {}

    def rests(self, uid: str, now_seconds: float) -> bool:
        """Return whether the object with this uid has to wait before the next try."""
        refusal = self._by_uid.get(uid)
        return refusal is not None and refusal.rests(now_seconds)

    def refused(self, uid: str, now_seconds: float) -> None:
        """Count one more refusal in a row of a write to the object with this uid."""
        earlier = self._by_uid.get(uid)
        self._by_uid[uid] = WriteRefusal(now_seconds, earlier.times + 1 if earlier else 1)

    def written(self, uid: str) -> None:
        """Forget the refusals of an object after a successful write."""
        self._by_uid.pop(uid, None)


def gap_of(policy: str, refusals: Iterable[AcceptRefusal]) -> str:
    """Return the refusal for a missing right that blocks all changes of a policy (NAMESPACE/NAME); "" if none does."""
    return next((refusal.words for refusal in refusals if refusal.policy == policy and refusal.is_forbidden), "")
