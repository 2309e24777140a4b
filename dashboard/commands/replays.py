"""EDGE: what `cotenant dashboard` needs of a replay of the stored history, which is made above this room."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cotenant.base.commands.session import CliSession
    from cotenant.base.store import Store
    from cotenant.base.usage.what_if import ReplayJob


@dataclass(frozen=True, slots=True)
class Replays:
    """Replays of stored histories. The command line names who makes them: `cotenant.cli.registry.PROVIDERS`."""

    begin: Callable[[CliSession, Store], AbstractContextManager[ReplayJob]]
    """Replays a store in the background, after each scan and at most once a day, as long as the context lasts."""
