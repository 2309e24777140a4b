"""Runs real code that blocks as steps of a model: where a run stands is what it has asked and was answered so far.

Nothing is suspended: the code runs again from its beginning with the answers that it got, until it asks the first
question that has no answer yet. So a run is a value, which an explorer can hold, copy and continue in every way. The
code must be the same each time: clocks stand, and what is random comes from a seed. Nobody waits: a pause of the code
is over at once, for what others do in it is a step of theirs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import import_module
from threading import get_ident
from typing import Any, TypeAlias
from unittest.mock import patch

from cotenant.base.kube import KubeClient
from cotenant.base.kube.auth import Access
from cotenant.base.kube.connection import ApiConnection, ApiRequest, ApiResponse
from cotenant.base.settings.sections import KubeSettings

Answer: TypeAlias = Hashable


@dataclass(frozen=True, slots=True)
class Lost:
    """In the place of an answer: the connection broke after the question had left."""


class _UnansweredError(BaseException):
    """Ends a run at a question without an answer; no handler of the code takes it for an error of its own."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The code came to its end, by a result or an error."""

    result: str


class Conversation:
    """The questions of one run in order, each with the answer that it got before."""

    def __init__(self, answers: tuple[Answer, ...]) -> None:
        self._answers = answers
        self._place = 0
        self.open: Hashable = None
        """The question without an answer."""

    def ask(self, question: Hashable) -> Answer:
        """The answer of before; a run that is ended while it cleans up asks nothing more."""
        if self.open is None and self._place < len(self._answers):
            self._place += 1
            return self._answers[self._place - 1]
        if self.open is None:
            self.open = question
        raise _UnansweredError


def patched_here(target: str, effect: Callable[..., object]) -> AbstractContextManager[object]:
    """A patch of `module.function` for this thread alone: threads that live on from other tests call the function."""
    module, _, name = target.rpartition(".")
    function, own = getattr(import_module(module), name), get_ident()
    return patch(target, lambda *args: effect(*args) if get_ident() == own else function(*args))


Work: TypeAlias = Callable[[Conversation], object]


@lru_cache(maxsize=500_000)
def proceed(work: Work, answers: tuple[Answer, ...]) -> Hashable:
    """The next question of the code after these answers, or `Ended`. work: equal where it does the same."""
    conversation = Conversation(answers)
    try:
        with patched_here("time.sleep", lambda _: None):
            result = work(conversation)
    except _UnansweredError:
        return conversation.open
    except Exception as error:  # noqa: BLE001 - whatever the code raises is how it ended, which the model judges
        result = f"{type(error).__name__}: {error}"
    return conversation.open if conversation.open is not None else Ended(str(result))


@dataclass(frozen=True, slots=True)
class Run:
    """Code under way: who runs it, for people; the code; and what it was answered."""

    name: str
    work: Work
    answers: tuple[Answer, ...] = ()

    @property
    def question(self) -> Hashable:
        """The next question, or `Ended`."""
        return proceed(self.work, self.answers)

    @property
    def ending(self) -> str:
        """In words how it has ended; "" while it goes on."""
        end = self.question
        return f"; it ends: {end.result or 'done'}" if isinstance(end, Ended) else ""

    def answered(self, api_answer: Answer) -> Run:
        """The same run with one answer more."""
        return replace(self, answers=(*self.answers, api_answer))


class AskingClient(KubeClient):
    """The real client, with its tries and errors, whose connection asks the conversation."""

    @staticmethod
    @cache
    def _unconnected() -> AskingClient:
        return AskingClient(Access("in-process", "https://127.0.0.1:1", lambda: None), KubeSettings(retries=1))

    @classmethod
    def of(cls, conversation: Conversation) -> AskingClient:
        client = copy.copy(cls._unconnected())
        client._connection = _AskingConnection(conversation)
        return client

    def sibling(self, settings: KubeSettings | None = None) -> KubeClient:  # noqa: ARG002 - as KubeClient has it
        return self


class _AskingConnection(ApiConnection):
    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self.sent = False

    def exchange(self, request: ApiRequest, before: Callable[[], None] | None = None) -> ApiResponse:
        if before is not None:
            before()
        self.sent = True
        api_answer: Any = self._conversation.ask(request)
        if isinstance(api_answer, Lost):
            raise ConnectionResetError("the connection broke")
        return ApiResponse(api_answer[0], {}, api_answer[1])

    def close(self) -> None:
        """Nothing is open."""
