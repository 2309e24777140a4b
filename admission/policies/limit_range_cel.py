"""`cotenant.admission.namespace_limits.defaults` in CEL: cpu and memory that a LimitRange put back are taken out. Pure.

The API server runs its LimitRanger again when policies have changed a pod, and then those policies whose
reinvocationPolicy is IfNeeded. This is the only one: a profile's key mappings and suffixes must not run twice.
"""

from __future__ import annotations

from typing import Final

from cotenant.admission.namespace_limits.defaults import (
    BANDS_IN_ORDER,
    GROUP_WORDS,
    LIMIT_RANGER_ANNOTATION,
    LIMIT_RANGER_PREFIX,
    SIDE_WORDS,
)
from cotenant.admission.policies.cel import conditional_operations, text
from cotenant.admission.policies.resources_cel import MILLICORES, any_of, asks_for, variable
from cotenant.admission.resources import SIDES
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES
from cotenant.base.resource import Resource

_ANNOTATION: Final = text(LIMIT_RANGER_ANNOTATION)


def variables() -> list[dict[str, str]]:
    """Containers, what the LimitRanger says that it set (a text for each container and side), the band."""
    everyone = "(variables.containers + variables.initContainers)"
    names = {
        band: "[" + ", ".join(text(EXTENDED_RESOURCES[band, resource]) for resource in Resource) + "]"
        for band in BANDS_IN_ORDER
    }
    band = "".join(f"{everyone}.exists(c, {asks_for(those)}) ? {text(band)} : " for band, those in names.items())
    told = f"variables.annotations[{_ANNOTATION}]"
    prefix = text(LIMIT_RANGER_PREFIX)
    given = f'{told}.startsWith({prefix}) ? {told}.replace({prefix}, "", 1).split("; ") : []'
    return [
        variable("annotations", "has(object.metadata.annotations) ? object.metadata.annotations : {}"),
        variable("initContainers", "has(object.spec.initContainers) ? object.spec.initContainers : []"),
        variable("containers", "object.spec.containers"),
        variable("given", f"{_ANNOTATION} in variables.annotations ? ({given}) : []"),
        variable("band", f'{band}""'),
        variable("cpuName", '"kubernetes.io/" + variables.band + "-cpu"'),
        variable("memoryName", '"kubernetes.io/" + variables.band + "-memory"'),
    ]


def without_given() -> str:
    """The patch that takes out what a LimitRange gave to a pod of a band, or gives it the band's name."""
    parts = [_taken_out(group, side) for group in GROUP_WORDS for side in SIDES]
    return conditional_operations(
        'variables.band != "" && variables.given.size() > 0', "(\n" + " +\n".join(parts) + "\n)"
    )


def _taken_out(group: str, side: str) -> str:
    """CEL for a list of JSON patch operations, one for each container that has amounts of a LimitRange on this side."""
    amounts = f"c.resources.{side}"
    given = {resource: _defaulted_condition(group, side, resource) for resource in Resource}
    dropped = any_of(f"(k == {text(r)} && {given[r]} && {_beside(r)})" for r in Resource)
    values = {Resource.CPU: MILLICORES, Resource.MEMORY: "string(v)"}
    renames = [
        f"(k == {text(r)} && {given[r]} && {_alone(group, side, r)} ? {{variables.{r}Name: {values[r]}}} : "
        for r in Resource
    ]
    entry = "".join(renames) + "{string(k): string(v)}" + ")" * len(renames)
    path = f'"/spec/{group}/" + string(i) + "/resources/{side}"'
    some = any_of(f"({text(r)} in {amounts} && {given[r]})" for r in Resource)
    return (
        f"variables.{group}.transformList(i, c,\n"
        f"  has(c.resources) && has({amounts}) && ({some}),\n"
        f'  JSONPatch{{op: "replace", path: {path}, value: {amounts}.transformMapEntry(k, v, !({dropped}), {entry})}})'
    )


def _defaulted_condition(group: str, side: str, resource: Resource) -> str:
    """Return the CEL condition that the LimitRanger set a resource of container `c` on a side."""
    words = text(f" {SIDE_WORDS[side]} for {GROUP_WORDS[group]} ")
    named = f'g.split({words})[0].split(", ").exists(n, n == {text(resource)})'
    return f"variables.given.exists(g, g.endsWith({words} + c.name) && {named})"


def _alone(group: str, side: str, resource: Resource) -> str:
    """Return the CEL condition that the other side of container `c` has no own amount of the resource.

    The other side does not name the resource, or has it from the LimitRanger, too.
    """
    (other,) = (other for other in SIDES if other != side)
    named = f"has(c.resources.{other}) && {text(resource)} in c.resources.{other}"
    return f"(!({named}) || {_defaulted_condition(group, other, resource)})"


def _beside(resource: Resource) -> str:
    """Return the CEL condition that container `c` names the resource under a class's name."""
    names = [text(EXTENDED_RESOURCES[band, resource]) for band in BANDS_IN_ORDER]
    named = [f"(has(c.resources.{side}) && {name} in c.resources.{side})" for side in SIDES for name in names]
    return f"({any_of(named)})"
