"""`admission.resources` in CEL: cpu and memory renamed by the pod's class, and the annotation of batch amounts.

These two JSON patches end every compiled profile. They read the class from the pod as the profile left it. Pods with
requests or limits of the whole pod (`spec.resources`) keep cpu and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from cotenant.admission.namespace_limits.defaults import (
    DEFAULTED,
    GROUP_WORDS,
    LIMIT_RANGER_ANNOTATION,
    LIMIT_RANGER_PREFIX,
    SIDE_WORDS,
)
from cotenant.admission.policies.cel import add, conditional_operations, pointer, text
from cotenant.admission.resources import BATCH_NAMES, SIDES
from cotenant.base.kubernetes.protocol import EXTENDED_SPEC_ANNOTATION
from cotenant.base.kubernetes.qos import BANDS, PRIORITY_CLASS_LABEL, QOS_LABEL, PriorityClass, QosClass

_GROUPS: Final = ("containers", "initContainers")
_CLASS: Final = text(PRIORITY_CLASS_LABEL)
_QOS: Final = text(QOS_LABEL)
_BATCH: Final = "[" + ", ".join(text(name) for name in sorted(BATCH_NAMES)) + "]"
BEST_EFFORT: Final = f"({_QOS} in variables.labels && variables.labels[{_QOS}] == {text(QosClass.BE)})"
"""CEL condition that the pod's label says QoS class BE."""
PLACES: Final = tuple((group, side) for group in GROUP_WORDS for side in SIDES)
"""Group of containers and side of their resources."""
_NAMES: Final = "[" + ", ".join(map(text, DEFAULTED)) + "]"
_ANNOTATION: Final = text(LIMIT_RANGER_ANNOTATION)


def any_of(conditions: Iterable[str]) -> str:
    """Return the CEL condition that one of these conditions holds."""
    return " || ".join(conditions)


def class_variables() -> list[dict[str, str]]:
    """Return CEL variables: the pod's labels, annotations, priority class, containers, and what LimitRanges gave it."""
    by_priority = '""'
    for priority, (low, high) in BANDS.items():
        in_band = f"object.spec.priority >= {low} && object.spec.priority <= {high}"
        by_priority = f"({in_band} ? {text(priority)} : {by_priority})"
    by_priority = f'(has(object.spec.priority) ? {by_priority} : "")'
    names = "[" + ", ".join(text(name) for name in BANDS) + "]"
    by_label = f'(variables.labels[{_CLASS}] in {names} ? variables.labels[{_CLASS}] : "")'
    return [
        variable("labels", "has(object.metadata.labels) ? object.metadata.labels : {}"),
        variable("annotations", "has(object.metadata.annotations) ? object.metadata.annotations : {}"),
        variable("namespaceLabels", "has(namespaceObject.metadata.labels) ? namespaceObject.metadata.labels : {}"),
        variable("priorityClass", f"{_CLASS} in variables.labels ? {by_label} : {by_priority}"),
        variable("initContainers", "has(object.spec.initContainers) ? object.spec.initContainers : []"),
        variable("containers", "object.spec.containers"),
        *note_variables(),
    ]


def variables() -> list[dict[str, Any]]:
    """Return the CEL variables of a profile's policy; the API server evaluates them again for each mutation."""
    batch, mid = text(PriorityClass.BATCH), text(PriorityClass.MID)
    own = [
        f"(has(object.spec.resources.{side}) && object.spec.resources.{side}.exists(n, n in ['cpu', 'memory']))"
        for side in SIDES
    ]
    return [
        *class_variables(),
        variable(
            "band",
            f'(variables.priorityClass == {batch} || (variables.priorityClass == "" && {BEST_EFFORT})) ? "batch" : '
            f'variables.priorityClass == {mid} ? "mid" : ""',
        ),
        variable("ofWholePod", f"has(object.spec.resources) && ({any_of(own)})"),
    ]


def translation(conditions: Iterable[str]) -> str:
    """Return the patch in CEL that renames cpu and memory of all containers to the band's names, if `conditions` hold.

    For each group (containers, initContainers) and side (requests, limits) it has one operation for each container that
    names cpu or memory. The operation replaces the whole side: cpu, in whole millicores, and memory get the band's
    names, and all else is unchanged. If a container has the band's resource too, the author's cpu or memory replaces an
    amount that a LimitRange gave under the band's name; any other cpu or memory there keeps its plain name.
    """
    values = {"cpu": MILLICORES, "memory": "string(v)"}
    # The container names the class's resource beside the plain one, which then stays as it is
    beside = {
        r: any_of(f"(has(c.resources.{side}) && {class_name(r)} in c.resources.{side})" for side in SIDES)
        for r in values
    }
    plain = any_of(
        f"(has(c.resources.{side}) && c.resources.{side}.exists(n, n in ['cpu', 'memory']))" for side in SIDES
    )
    parts = []
    for group in _GROUPS:
        over = {r: f"({_named(group, text(r))} && !{_named(group, class_name(r))})" for r in values}
        renames = [
            f"(k == {text(r)} && ({over[r]} || !({beside[r]})) ? {{{class_name(r)}: {value}}} : "
            for r, value in values.items()
        ]
        dropped = any_of(f"(k == {class_name(r)} && {over[r]})" for r in values)
        entry = "".join(renames) + "{string(k): string(v)}" + ")" * len(renames)
        parts += [replaced_side(group, side, plain, dropped, entry) for side in SIDES]
    condition = " && ".join(['variables.band != ""', "!variables.ofWholePod", *conditions])
    return conditional_operations(condition, "(\n" + " +\n".join(parts) + "\n)")


def replaced_side(group: str, side: str, chosen: str, dropped: str, entry: str) -> str:
    """Return CEL for a list of JSON patch operations, one for each container `c`, at index `i`, that meets `chosen`.

    Each replaces the container's requests or limits (`side`): amounts that meet `dropped` are removed, the others
    become `entry`. Both are CEL over an amount's resource name `k` and quantity `v`.
    """
    amounts, path = f"c.resources.{side}", f'"/spec/{group}/" + string(i) + "/resources/{side}"'
    return (
        f"variables.{group}.transformList(i, c,\n"
        f"  has(c.resources) && has({amounts}) && ({chosen}),\n"
        f'  JSONPatch{{op: "replace", path: {path}, value: {amounts}.transformMapEntry(k, v, !({dropped}), {entry})}})'
    )


def class_name(resource: str) -> str:
    """Return CEL for the name that cpu or memory has in the pod's band, such as kubernetes.io/batch-cpu."""
    return f'("kubernetes.io/" + variables.band + "-{resource}")'


def _named(group: str, name: str) -> str:
    """Return CEL for whether container `c`, at index `i`, names a resource that no LimitRange is noted to have set."""
    name_conditions = (
        f"(has(c.resources.{side}) && {name} in c.resources.{side} && "
        f"!({name} in variables.{noted_list(group, side)}[i]))"
        for side in SIDES
    )
    return f"({any_of(name_conditions)})"


MILLICORES: Final = (
    "[int(quantity(v).asApproximateFloat() * 1000.0 + 0.5)]"
    '.map(m, string(quantity(string(m) + "m").isLessThan(quantity(v)) ? m + 1 : m))[0]'
)
"""The nearest whole number of millicores, one more where that is less than the amount: exact rounding up."""


def annotation() -> str:
    """Return the patch in CEL that writes each container's batch resources to an annotation, which node agents read."""
    sides = (
        '["limits", "requests"].filter(s, s in c.resources && c.resources[s].exists(n, n in ' + _BATCH + "))"
        '.map(s, "\\"" + s + "\\":{" + ' + _BATCH + ".filter(n, n in c.resources[s])"
        '.map(n, "\\"" + n + "\\":\\"" + string(c.resources[s][n]) + "\\"").join(",") + "}").join(",")'
    )
    value = (
        '"{\\"containers\\":{" + variables.containers.filter(c, ' + asks_for(_BATCH) + ")"
        '.map(c, "\\"" + c.name + "\\":{" + ' + sides + ' + "}").sort().join(",") + "}}"'
    )
    writes = [
        conditional_operations("!has(object.metadata.annotations)", add(pointer("metadata", "annotations"), "{}")),
        add(pointer("metadata", "annotations", EXTENDED_SPEC_ANNOTATION), value),
    ]
    return conditional_operations(with_batch(), "(\n" + " +\n".join(writes) + "\n)")


def with_batch() -> str:
    """Return the CEL condition that a container of the pod requests batch resources."""
    return f"variables.containers.exists(c, {asks_for(_BATCH)})"


def asks_for(names: str) -> str:
    """Return the CEL condition that container `c` requests or limits a resource of `names`, a CEL list."""
    sides = [f"(has(c.resources.{side}) && c.resources.{side}.exists(n, n in {names}))" for side in SIDES]
    return f"has(c.resources) && ({any_of(sides)})"


# the LimitRanger's note on a pod: which resources of which container it names


def variable(name: str, expression: str) -> dict[str, str]:
    """Return a variable of an admission policy, which expressions read as variables.NAME."""
    return {"name": name, "expression": expression}


def note_variables() -> list[dict[str, str]]:
    """Return CEL variables: the LimitRanger's notes on the pod, and by container the resource names in these notes."""
    noted, prefix = f"variables.annotations[{_ANNOTATION}]", text(LIMIT_RANGER_PREFIX)
    notes = f'{noted}.startsWith({prefix}) ? {noted}.replace({prefix}, "", 1).split("; ") : []'
    return [
        variable("notes", f"{_ANNOTATION} in variables.annotations ? ({notes}) : []"),
        *(variable(noted_list(group, side), names_list(group, side, noted_condition)) for group, side in PLACES),
    ]


def noted_list(group: str, side: str) -> str:
    """Return the name of the CEL variable with a group's requests or limits (`side`) in the LimitRanger's notes."""
    return f"{group}Noted{side.title()}"


def names_list(group: str, side: str, condition: Callable[[str, str], str]) -> str:
    """Return CEL for each container's list of the names `n` in its requests or limits that meet `condition`."""
    in_side = f"has(c.resources) && has(c.resources.{side}) && n in c.resources.{side}"
    return f"variables.{group}.map(c, {_NAMES}.filter(n, {in_side} && {condition(group, side)}))"


def noted_condition(group: str, side: str) -> str:
    """Return the CEL condition that the LimitRanger's notes name the request or limit (`side`) `n` of container `c`."""
    marker = text(f" {SIDE_WORDS[side]} for {GROUP_WORDS[group]} ")
    names_match = f'g.split({marker})[0].split(", ").exists(m, m == n)'
    return f"variables.notes.exists(g, g.endsWith({marker} + c.name) && {names_match})"


def noted_by_another(side: str) -> str:
    """Return the CEL condition that note `g` names a request or limit that the policy's LimitRange does not set."""
    marker = text(f" {SIDE_WORDS[side]} for ")
    return f'(g.contains({marker}) && !g.split({marker})[0].split(", ").all(n, n in variables.{side}Defaults))'
