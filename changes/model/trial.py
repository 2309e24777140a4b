"""Trials: earlier changes of a workload and their harm, as evidence about a new change. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.base.kubernetes.quantity import format_amount
from cotenant.base.resource import Resource
from cotenant.base.text import moment, visible
from cotenant.recommender.model.recommendation import Field

RULE: Final = "tried-before"
"""The guardrail that fails for a repeated trial."""
COUNTS_SECONDS: Final = 28 * 86_400.0
"""How long a trial counts. Four weeks: the load of a month is another one."""


@dataclass(frozen=True, slots=True)
class Amount:
    """One field of a container before and after a change, in the resource's unit; None is not set."""

    container: str
    resource: Resource
    field: Field
    before: int | None
    after: int | None

    def goes_as_far_as(self, tried: Amount) -> bool:
        """Return whether this moves the same field as `tried` in the same direction, to the same or a lower amount."""
        if (self.container, self.resource, self.field) != (tried.container, tried.resource, tried.field):
            return False
        if self.after is None or tried.after is None or self.after == self.before or self.after > tried.after:
            return False
        return (self.before is None or self.after < self.before) == (tried.before is None or tried.after < tried.before)


@dataclass(frozen=True, slots=True)
class Trial:
    """A change that did harm or was rolled back: when (Unix time), who accepted it, and the verdict as text.

    `harm` is false if it was rolled back without a verdict of harm; `images` are the template's at that time, "" if
    unknown.
    """

    change: str
    seconds: float
    actor: str
    words: str
    amounts: tuple[Amount, ...]
    harm: bool = True
    images: str = ""

    def repeated_by(self, amounts: Iterable[Amount], images: str = "") -> Amount | None:
        """Return the first amount that goes as far as one of this trial; None if none does, or if the images differ."""
        if self.images and images and self.images != images:
            return None
        return next((a for a in amounts if any(a.goes_as_far_as(tried) for tried in self.amounts)), None)

    def sentence(self, amount: Amount) -> str:
        """Return a sentence about this trial, which `amount` would repeat."""
        tried = next(tried for tried in self.amounts if amount.goes_as_far_as(tried))
        what = f"{tried.container} {tried.resource} {tried.field} {format_amount(tried.resource, tried.after or 0)}"
        ended = "did harm" if self.harm else "was rolled back"
        suffix = f" ({visible(self.words)})" if self.words else ""
        return (
            f"{visible(what)} was tried by {visible(self.actor)} in change {self.change} and {ended}, "
            f"{moment(self.seconds)}{suffix}"
        )


@dataclass(frozen=True, slots=True)
class TakenStep:
    """A workload's change that is in effect: when it was sent (Unix time), and the changed values."""

    seconds: float
    amounts: tuple[Amount, ...]


def find_repetition(
    trials: Sequence[Trial], amounts: Sequence[Amount], now_seconds: float, images: str = ""
) -> tuple[Trial, Amount] | None:
    """Return the newest unexpired trial, harmful ones first, that an amount repeats, with that amount; else None."""
    repetitions = (
        (trial, amount)
        for trial in sorted(trials, key=lambda trial: (trial.harm, trial.seconds), reverse=True)
        if now_seconds - trial.seconds < COUNTS_SECONDS and (amount := trial.repeated_by(amounts, images)) is not None
    )
    return next(repetitions, None)
