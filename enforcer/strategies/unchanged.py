"""Results that are reused as long as their inputs have not changed. Pure in its results.

Most pods do not change from tick to tick, and neither does what a strategy wants for them. Everything that a result
depends on must be in `made_from`: mostly the very objects of the tick before, which are compared at no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from cotenant.enforcer.contract import PodReading

AnswerT = TypeVar("AnswerT")
Basis = tuple[object, ...]


class Unchanged(Generic[AnswerT]):
    """A cache with one result per pod; for use by a single thread."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Basis, AnswerT]] = {}

    def each(
        self, pods: Iterable[PodReading], basis: Basis, answer: Callable[[PodReading], AnswerT]
    ) -> list[tuple[PodReading, AnswerT]]:
        """Return each pod with its result; `basis` is what a result depends on besides the pod and its cgroups."""
        cached, fresh, answers = self._known, {}, []
        for pod in pods:
            groups = [pod.group, *[container.group for container in pod.containers]]
            made_from = (pod.spec, *basis, *[None if group is None else group.path for group in groups])
            entry = cached.get(pod.spec.uid)
            if entry is None or entry[0] != made_from:
                entry = made_from, answer(pod)
            fresh[pod.spec.uid] = entry
            answers.append((pod, entry[1]))
        self._known = fresh
        return answers
