"""EDGE: what was asked last about the tables of one run, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, TypeVar

MOST_CELLS: Final = 100_000
"""Texts and numbers that all answers of a run hold together: under 10 MiB."""
LARGEST_SHARE: Final = 0.1
"""Of that for one answer: the filters of 5,000 nodes fit, exports and the filter of 100,000 pods do not."""
QUESTION_CELLS: Final = 500
"""What a question and its place cost beside the answer; it bounds how many there are."""
AnswerT = TypeVar("AnswerT")


class Answers:
    """The last answers to questions about tables that do not change. Safe for many threads."""

    def __init__(self) -> None:
        """Begin without any answers."""
        self._lock = Lock()
        self._answers: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()
        """Question -> cells of the answer, and the answer; the one asked last comes last."""
        self._cells = 0

    def of(self, question: Hashable, ask: Callable[[], AnswerT], cells: Callable[[AnswerT], int]) -> AnswerT:
        """Return the stored answer to a question, or that of `ask`, which is then stored unless it is too large.

        cells: counts the texts and numbers of an answer.
        """
        with self._lock:
            if question in self._answers:
                self._answers.move_to_end(question)
                kept: AnswerT = self._answers[question][1]
                return kept
        answer = ask()
        count = QUESTION_CELLS + cells(answer)
        if count <= LARGEST_SHARE * MOST_CELLS:
            with self._lock:
                before, _ = self._answers.pop(question, (0, None))  # another thread may have asked meanwhile
                self._answers[question] = count, answer
                self._cells += count - before
                while self._cells > MOST_CELLS:
                    _, (oldest, _) = self._answers.popitem(last=False)
                    self._cells -= oldest
        return answer
