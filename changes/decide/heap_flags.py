"""Find the flag that sets the maximum heap of a runtime in a pod template, and rewrite it. Pure.

The flag is in the value of an environment variable, in `command` or in `args`. All texts of a container are read as one
command line and changed alike, so that it does not matter which one counts, and the start size never exceeds the
maximum. A container is refused as a whole if it is ambiguous: a variable as size, texts with different sizes, options
from a ConfigMap or a Secret. Flags that the image sets are not in the template.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.base.resource import Resource
from cotenant.base.runtimes.heap import HeapProposal, runtime_named, runtimes
from cotenant.recommender.model.recommendation import Recommendation

Json = Mapping[str, Any]
_LISTS: Final = ("command", "args")
_BETWEEN: Final = " \0 "
"""Separates the texts of a container: no text of a pod contains a NUL."""
_OPTIONS: Final = re.compile(r"OPTS|OPTIONS|FLAGS|ARGS|JAVA|JVM|JDK|HEAP", re.ASCII | re.IGNORECASE)
"""Names of environment variables that may contain flags of a runtime."""


def flag_texts(container: Json, heap: HeapProposal) -> dict[str, tuple[str, str]]:
    """Return {JSON pointer in the container: (present text, text with the new heap)} of all texts that change.

    Raise UsageError if the template sets no or several maximum heaps, or if a ConfigMap or Secret may set it.
    """
    runtime, texts = runtime_named(heap.runtime), dict(_texts(container))
    flag = runtime.flag if runtime else "heap"
    sizes = {size for text in texts.values() if (size := runtime.size_in(text))} if runtime else set()
    joined = _BETWEEN.join(texts.values())
    resized = runtime.with_heap_bytes(joined, heap.amount_bytes) if runtime and len(sizes) < 2 else None
    new = resized.split(_BETWEEN) if resized is not None else []
    hidden, why = "", ""
    for variable in container.get("env") or ():  # the first one for options whose value is in a ConfigMap or a Secret
        source, name = variable.get("valueFrom") or {}, str(variable.get("name"))
        is_elsewhere = source.get("configMapKeyRef") or source.get("secretKeyRef")
        hidden = hidden or (name if is_elsewhere and _OPTIONS.search(name) else "")
    if len(sizes) > 1:
        why = f"sets {len(sizes)} different sizes for the maximum heap of the runtime {heap.runtime}"
    elif not new or len(new) != len(texts):
        why = f"sets no maximum heap for the runtime {heap.runtime}"
    elif hidden:
        why = f"takes {hidden} from a ConfigMap or Secret, which may contain a flag for the runtime {heap.runtime}"
    if why:
        raise UsageError(
            f"container {container.get('name')}: the template {why}, so that memory cannot be cut safely",
            fix=f"Set {flag} once with a number in env, command or args of the template, or change heap and memory "
            "by hand.",
        )
    pairs = zip(texts.items(), new, strict=True)
    return {pointer: (old, text) for (pointer, old), text in pairs if old != text}


def template_heap_bytes(container: Json) -> int:
    """Return the largest heap, in bytes, that a flag of any runtime sets in the template; 0 if there is none."""
    sizes = (runtime.size_in(text) for runtime in runtimes() for _, text in _texts(container))
    return max((size for size in sizes if size), default=0)


def is_set(container: Json, heap: HeapProposal) -> bool:
    """Return whether the template sets the container's maximum heap, by a flag that can be changed."""
    try:
        flag_texts(container, heap)
    except UsageError:
        return False
    return True


def rebased_heap(container: Json, heap: HeapProposal) -> HeapProposal:
    """Return the proposal to change the template's present heap; it changes nothing if the proposed size is reached."""
    runtime = runtime_named(heap.runtime)
    sizes = [runtime.size_in(text) for _, text in _texts(container)] if runtime else []
    now_bytes = max((size for size in sizes if size), default=heap.now_bytes)
    is_done = heap.change * (heap.amount_bytes - now_bytes) <= 0
    return replace(heap, now_bytes=now_bytes, amount_bytes=now_bytes if is_done else heap.amount_bytes)


def without_heap(recommendation: Recommendation) -> Recommendation:
    """Return the recommendation without its heap and without memory changes that need the new heap."""
    if recommendation.heap is None:
        return recommendation
    values = tuple(v for v in recommendation.values if v.resource is not Resource.MEMORY or not v.changes_template)
    return replace(recommendation, values=values, heap=None)


def _texts(container: Json) -> Iterator[tuple[str, str]]:
    for index, variable in enumerate(container.get("env") or ()):
        if isinstance(variable.get("value"), str):
            yield f"/env/{index}/value", variable["value"]
    for name in _LISTS:
        parts: Sequence[Any] = container.get(name) or ()
        yield from ((f"/{name}/{index}", text) for index, text in enumerate(parts) if isinstance(text, str))
