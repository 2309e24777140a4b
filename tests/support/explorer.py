"""Walks through every state that a model can reach, and tells the shortest way to a wrong one as a story.

A model is a beginning, which is a hashable value, and a function that gives every step that may come next, in words,
with the state after it. It is exhaustive up to what the model bounds: how many crashes, people, pods it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

StateT = TypeVar("StateT", bound=Hashable)
Steps = Iterable[tuple[str, StateT]]


class CounterExample(AssertionError):
    """A state that must never be reached; `steps` lead there, in words."""

    def __init__(self, steps: list[str], wrong: str) -> None:
        self.steps = steps
        self.wrong = wrong
        lines = [f"{number:3}. {step}" for number, step in enumerate(steps, 1)]
        super().__init__("\n".join(["", *lines, f"     so: {wrong}"]))


@dataclass(frozen=True)
class Explored(Generic[StateT]):
    """Every state that can be reached. first: the step and the state that led to it first; ends: nothing follows them.

    before: the states from which one step leads to it.
    """

    first: dict[StateT, tuple[str, StateT] | None]
    before: dict[StateT, list[StateT]]
    ends: list[StateT]

    def story(self, state: StateT) -> list[str]:
        """The steps of a shortest way to a state."""
        return _story(self.first, state)

    def require_end(self, good: Callable[[StateT], bool], missing: str) -> None:
        """Of every state a good one can still be reached, and where nothing follows it is; else CounterExample."""
        self.require_return(good, missing)
        for state in self.ends:
            if not good(state):
                raise CounterExample(self.story(state), f"nothing more can happen, and it is not so that {missing}")

    def require_return(self, good: Callable[[StateT], bool], missing: str) -> None:
        """Of every state a good one can still be reached; else CounterExample."""
        fine = {state for state in self.first if good(state)}
        edge = list(fine)
        while edge:
            for state in self.before[edge.pop()]:
                if state not in fine:
                    fine.add(state)
                    edge.append(state)
        for state in self.first:  # in the order of their distance from the beginning
            if state not in fine:
                raise CounterExample(self.story(state), f"from here on it never comes about that {missing}")


def nothing_wrong(_state: object) -> str:
    """Find nothing; the default of `explore`."""
    return ""


def explore(
    start: StateT,
    following: Callable[[StateT], Steps[StateT]],
    limit: int,
    wrong: Callable[[StateT], str] = nothing_wrong,
) -> Explored[StateT]:
    """Reach every state; CounterExample at the first of which `wrong` says something.

    limit: states beyond which the model is called too large, so that no test takes minutes unseen.
    """
    first: dict[StateT, tuple[str, StateT] | None] = {start: None}
    before: dict[StateT, list[StateT]] = {start: []}
    ends: list[StateT] = []
    edge = deque([start])
    while edge:
        state = edge.popleft()
        if why := wrong(state):
            raise CounterExample(_story(first, state), why)
        is_end = True
        for move, after in following(state):
            is_end = False
            if after not in first:
                assert len(first) < limit, f"more than {limit} states"
                first[after], before[after] = (move, state), []
                edge.append(after)
            before[after].append(state)
        if is_end:
            ends.append(state)
    return Explored(first, before, ends)


def _story(first: dict[StateT, tuple[str, StateT] | None], state: StateT) -> list[str]:
    steps: list[str] = []
    while (came := first[state]) is not None:
        move, state = came
        steps.append(move)
    return steps[::-1]
