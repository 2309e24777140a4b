"""EDGE: records observations, one JSON line per tick, and replays the decisions from them.

The first line has the version, the node, the maximum ages, and the strategies' initial states. Each further line is a
tick: the observation, the policy if it changed, and the decision. `replay_recording` decides again and shows what
differs: with the version that recorded it nothing, so a difference is the effect of a changed strategy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.enforcer.contract import Evict, Observation, Strategy, SurfaceWant, Want
from cotenant.enforcer.decide.loop import Ages, Memory, TickDecision, decide
from cotenant.enforcer.model import node_policy
from cotenant.enforcer.model.node_policy import NodePolicy

VERSION: Final = 1
LINE_CAP_BYTES: Final = 64 << 20


class Head(msgspec.Struct, frozen=True):
    """The first line of a recording: version, node, maximum ages, and what the loop remembered at its start."""

    version: int
    node: str
    ages: Ages
    states: dict[str, msgspec.Raw]
    wants: tuple[Want, ...] = ()
    plans: dict[str, tuple[Want, ...]] = {}


class Tick(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tick, a line of a recording after the first; `policy` is the NodeSLO's spec if it changed, {} if gone."""

    seen: Observation
    wants: tuple[Want, ...] = ()
    evictions: tuple[Evict, ...] = ()
    surfaces: tuple[SurfaceWant, ...] = ()
    policy: dict[str, Any] | None = None


class TickRecorder:
    """Appends ticks to a file; at its maximum size the file becomes FILE.1 and a new one begins. For one thread."""

    def __init__(self, path: Path, cap_bytes: int) -> None:
        self._path, self._cap_bytes = path, cap_bytes
        self._file: IO[bytes] | None = None
        self._policy: NodePolicy | None = None
        self._size = 0

    def record(
        self, observation: Observation, policy: NodePolicy | None, decided: TickDecision, before: Memory, ages: Ages
    ) -> None:
        """Append a tick; `before` is the loop's memory before the decision. Raise OSError if the write fails."""
        if self._file is None or self._size > self._cap_bytes:
            self.close()
            if self._path.exists():
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file, self._size = self._path.open("wb"), 0
            states = {name: msgspec.Raw(msgspec.json.encode(state)) for name, state in before.states.items()}
            self._write(Head(VERSION, observation.node.name, ages, states, before.wants, dict(before.plans)))
            changed: dict[str, Any] | None = node_policy.encode(policy) if policy else {}
        else:
            changed = None if policy == self._policy else (node_policy.encode(policy) if policy else {})
        self._policy = policy
        self._write(Tick(observation, decided.wants, decided.evictions, decided.surfaces, changed))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: Head | Tick) -> None:
        if self._file is not None:
            self._size += self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replayed tick: its number, the observation, the decision of this version, and the recorded decision."""

    number: int
    seen: Observation
    decided: TickDecision
    recorded: Tick

    @property
    def same(self) -> bool:
        """True if the decision of this version equals the recorded one."""
        return (set(self.decided.wants), self.decided.evictions_key(), set(self.decided.surfaces)) == (
            set(self.recorded.wants),
            {(e.uid, e.strategy) for e in self.recorded.evictions},
            set(self.recorded.surfaces),
        )


def replay_recording(path: Path, strategies: Sequence[Strategy[Any]]) -> Iterator[Replayed]:
    """Yield the decision on each tick of a recording; a UsageError names the line that cannot be read."""
    with path.open("rb") as lines:
        head = _decode_line(lines.readline(LINE_CAP_BYTES), Head, path, 1)
        if head.version != VERSION:
            raise UsageError(
                f"{path} is a recording of version {head.version}; this cotenant reads version {VERSION}",
                fix="Replay it with the cotenant that recorded it.",
            )
        # The recorded states in the strategies' own types; one that is unknown today is dropped.
        types = {strategy.name: type(strategy.initial()) for strategy in strategies}
        memory = Memory(
            {name: _decode_line(raw, types[name], path, 1) for name, raw in head.states.items() if name in types},
            dict(head.plans),
            head.wants,
        )
        policy: NodePolicy | None = None
        number = 0
        while line := lines.readline(LINE_CAP_BYTES):
            number += 1
            if not line.endswith(b"\n"):
                return  # the agent was ended in the middle of it
            tick = _decode_line(line, Tick, path, number + 1)
            if tick.policy is not None:
                policy = node_policy.decode(tick.policy) if tick.policy else None
            decided, memory = decide(tick.seen, policy, memory, strategies, head.ages)
            yield Replayed(number, tick.seen, decided, tick)


def _decode_line(text: bytes | msgspec.Raw, kind: Any, path: Path, line: int) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except UNDECODABLE as error:
        raise UsageError(
            f"{path} line {line} is not a recording: {error}", fix="Record again, or remove the broken line."
        ) from error
