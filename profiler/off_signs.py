"""EDGE: asks a source what it holds at the end of each silence: whether the cluster was switched off in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, runtime_checkable

from cotenant.profiler.off_times import OffTimes, Signs, Silence

MOST_AT_ONCE: Final = 60
"""Stretches that one scan asks for."""


@runtime_checkable
class KnowsCounters(Protocol):
    """A source that can be asked for the signs."""

    def signs(self, silence: Silence) -> Signs | None:
        """The signs at the end of a silence; None where they cannot be had now."""


def examine(known: OffTimes, found: Iterable[Silence], source: object) -> OffTimes:
    """Return what is known, with what the source says of further silences, the newest first."""
    if not isinstance(source, KnowsCounters):
        return known
    done, off = list(known.examined), list(known.off)
    for silence in sorted(set(found) - set(done), key=lambda s: -s.end_seconds)[:MOST_AT_ONCE]:
        signs = source.signs(silence)
        if signs is None:
            continue
        until = signs.off_until(silence)
        done.append(silence)
        off += [] if until is None else [Silence(silence.start_seconds, until)]
    return OffTimes(*(sorted(some, key=lambda s: s.start_seconds) for some in (done, off)))
