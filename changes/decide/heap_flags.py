"""Where a pod template sets the largest heap of a runtime, and the texts with another one. Pure.

A flag stands in the value of an environment variable, or in `command` or `args`. All of a container are changed alike,
so that it does not matter which counts. What comes from a ConfigMap, a Secret or the image is not in the template.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from changes.decide.patches import changes
from cotenant.core.model.errors import UsageError
from cotenant.core.model.recommendation import Recommendation
from cotenant.core.model.resource import Resource
from cotenant.core.model.runtimes.heap import HeapProposal, runtime_named

Json = Mapping[str, Any]
_LISTS: Final = ("command", "args")


def flag_texts(container: Json, heap: HeapProposal) -> dict[str, tuple[str, str]]:
    """Pointer below the container -> text now and with the proposed heap; UsageError where none sets one."""
    runtime = runtime_named(heap.runtime)
    texts: dict[str, tuple[str, str]] = {}
    for pointer, text in _texts(container):
        resized = runtime.resized(text, heap.amount_bytes) if runtime else None
        if resized is not None:
            texts[pointer] = (text, resized)
    if not texts:
        flag = runtime.flag if runtime else "heap"
        raise UsageError(
            f"container {container.get('name')}: its template sets no largest heap of its {heap.runtime}, so that its "
            "memory cannot be cut safely",
            fix=f"Set {flag} with a number in env, command or args of the template, or change both by hand.",
        )
    return {pointer: (old, new) for pointer, (old, new) in texts.items() if old != new}


def is_set(container: Json, heap: HeapProposal) -> bool:
    """Whether the template sets the largest heap in a way that can be changed."""
    try:
        flag_texts(container, heap)
    except UsageError:
        return False
    return True


def rebased_heap(container: Json, heap: HeapProposal) -> HeapProposal:
    """The proposal over what the template says now, which an earlier step may have changed."""
    runtime = runtime_named(heap.runtime)
    sizes = [runtime.size_in(text) for _, text in _texts(container)] if runtime else []
    now_bytes = max((size for size in sizes if size), default=heap.now_bytes)
    is_done = heap.change * (heap.amount_bytes - now_bytes) <= 0
    return replace(heap, now_bytes=now_bytes, amount_bytes=now_bytes if is_done else heap.amount_bytes)


def without_heap(recommendation: Recommendation) -> Recommendation:
    """Without the heap, and without the memory that holds only together with it."""
    if recommendation.heap is None:
        return recommendation
    values = tuple(v for v in recommendation.values if v.resource is not Resource.MEMORY or not changes(v))
    return replace(recommendation, values=values, heap=None)


def _texts(container: Json) -> Iterator[tuple[str, str]]:
    for place, variable in enumerate(container.get("env") or ()):
        if isinstance(variable.get("value"), str):
            yield f"/env/{place}/value", variable["value"]
    for name in _LISTS:
        parts: Sequence[Any] = container.get(name) or ()
        yield from ((f"/{name}/{place}", text) for place, text in enumerate(parts) if isinstance(text, str))
