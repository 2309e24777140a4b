"""Answers that are kept while nothing changed that they were made from. Pure in what it answers.

Most pods are today what they were a second ago; what a strategy wants of them is then the same. Whatever an answer
depends on belongs into `made_from`: mostly the very objects of the tick before, which costs no comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from cotenant.enforcer.contract import PodReading

AnswerT = TypeVar("AnswerT")
Basis = tuple[object, ...]


class Unchanged(Generic[AnswerT]):
    """One answer per pod. One thread."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Basis, AnswerT]] = {}

    def each(
        self, pods: Iterable[PodReading], basis: Basis, answer: Callable[[PodReading], AnswerT]
    ) -> list[tuple[PodReading, AnswerT]]:
        """The pods with their answers; basis: what an answer is made from beside the pod and its cgroups' places."""
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
