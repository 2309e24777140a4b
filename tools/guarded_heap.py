"""The expression by which a policy lets a container's command, arguments and variables differ in heap flags alone."""

from __future__ import annotations

from typing import Final

HEAP: Final = (
    r"(-Xm[xs]|-XX:(Max|Initial|Min|SoftMax)HeapSize=)[0-9]+[kKmMgGtT]?|-XX:MaxRAMPercentage=[0-9]+([.][0-9]+)?"
)
"""Flags of a runtime's heap, RE2."""


def _without_heap(text: str) -> str:
    """CEL: the text with up to four heap flags replaced by a mark, so that texts that differ there alone are equal."""
    cut = text
    for index in range(4):
        padding = ", ".join([r"'\u0001'"] * (index + 1))
        cut = f"{cut}.replace(({text}.findAll(r'{HEAP}', 4) + [{padding}])[{index}], '\\u0002')"
    return cut


def container_variables(template: str) -> dict[str, str]:
    """Variables of HEAP_ALONE. template: path of the pod template."""
    return {
        name: f"dyn({root}).{template}.spec.containers + dyn({root}).{template}.spec.?initContainers.orValue([])"
        for name, root in (("containers", "object"), ("oldContainers", "oldObject"))
    }


def _same_texts(key: str, text: str) -> str:
    """CEL over the variables `containers` and `oldContainers`: one list of texts, equal but for the heap.

    Most changes leave the texts alone: then they are only compared. The pattern is written out each time, for the API
    server compiles a constant one once, and any other at every evaluation. A text that has one of the marks itself
    would be equal to one with a flag in that place.
    """

    def same(of: str) -> str:
        mapped = f"c.?{key}.orValue([]).map(t, {of})"
        return f"variables.containers.map(c, {mapped}) == variables.oldContainers.map(c, {mapped})"

    unmarked = f"variables.containers.all(c, c.?{key}.orValue([]).all(t, !{text}.matches('[\\u0001\\u0002]')))"
    return f"({same(text)} || {unmarked} && {same(_without_heap(text))})"


HEAP_ALONE: Final = " && ".join(
    (
        _same_texts("command", "string(t)"),
        _same_texts("args", "string(t)"),
        _same_texts("env", "string(t.?value.orValue(''))"),
        # Names and sources of variables stay as they are.
        "variables.containers.map(c, c.?env.orValue([]).map(e, [dyn(e.name), dyn(e.?valueFrom.orValue({}))])) == "
        "variables.oldContainers.map(c, c.?env.orValue([]).map(e, [dyn(e.name), dyn(e.?valueFrom.orValue({}))]))",
    )
)
"""Of command, args and environment only a heap flag differs."""
