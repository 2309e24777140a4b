"""`cotenant.admission.namespace_limits.defaults` in CEL: what a LimitRange gave and the pod does not ask for. Pure.

The API server runs its LimitRanger again after policies have changed a pod, and then those policies whose
reinvocationPolicy is IfNeeded. Of our policies only this one has IfNeeded, because the profiles' key mappings and
suffixes must not run twice. The policy runs once for each LimitRange of the pod's namespace (its parameter), because
the LimitRanger's note names only what the last LimitRange set, and a copied note names what another pod got.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cotenant.admission.namespace_limits.defaults import BANDS_IN_ORDER, GROUP_WORDS
from cotenant.admission.policies.cel import conditional_operations, text
from cotenant.admission.policies.resources_cel import (
    BEST_EFFORT,
    MILLICORES,
    PLACES,
    any_of,
    asks_for,
    class_name,
    class_variables,
    names_list,
    noted_by_another,
    noted_condition,
    noted_list,
    replaced_side,
    variable,
)
from cotenant.admission.resources import SIDES
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.resource import Resource

PARAMETER: Final = {"apiVersion": "v1", "kind": "LimitRange"}
_DEFAULTS: Final = {"requests": "defaultRequest", "limits": "default"}
"""Side of a container -> field of a LimitRange's item."""


def variables(pending: Iterable[str]) -> list[dict[str, str]]:
    """Return CEL variables: the pod's class and containers, the LimitRange's defaults, and whether its note is foreign.

    The note, which the LimitRanger writes to a pod, is foreign if it names an amount that this LimitRange does not set.
    `pending` has the CEL conditions under which a profile is about to set the pod's class.
    """
    item = 'params.spec.limits.filter(l, l.type == "Container")'
    about = any_of(pending) or "false"
    # The band whose amounts the pod has: by its class, or because its author named mid resources
    asks_by_band = {}
    for band in BANDS_IN_ORDER:
        names = "[" + ", ".join(text(EXTENDED_RESOURCES[band, resource]) for resource in Resource) + "]"
        asks_by_band[band] = any_of(f"variables.{group}.exists(c, {asks_for(names)})" for group in GROUP_WORDS)
    own = any_of(
        f"variables.{group}.exists(i, c, {_own(group, EXTENDED_RESOURCES[Band.MID, resource])})"
        for group in GROUP_WORDS
        for resource in Resource
    )
    batch, mid = text(Band.BATCH), text(Band.MID)
    of_batch = f"variables.priorityClass == {text(PriorityClass.BATCH)} || {BEST_EFFORT}"
    band_of_pod = (
        f"variables.priorityClass == {text(PriorityClass.MID)} && ({asks_by_band[Band.MID]}) ? {mid} : "
        f"({of_batch}) && ({asks_by_band[Band.BATCH]}) ? {batch} : "
        f'variables.priorityClass != {text(PriorityClass.PROD)} && ({own}) ? {mid} : ""'
    )
    return [
        *class_variables(),
        *(
            variable(f"{side}Defaults", f"{item}.size() > 0 && has({item}[0].{field}) ? {item}[0].{field} : {{}}")
            for side, field in _DEFAULTS.items()
        ),
        variable("foreign", f"variables.notes.exists(g, {any_of(map(noted_by_another, SIDES))})"),
        *(variable(_given_list(group, side), names_list(group, side, _given_condition)) for group, side in PLACES),
        variable("band", band_of_pod),
        variable("pending", f'variables.priorityClass == "" && !{BEST_EFFORT} && ({about})'),
    ]


def _given_list(group: str, side: str) -> str:
    return f"{group}Given{side.title()}"


def _given_condition(group: str, side: str) -> str:
    """Return CEL for whether the LimitRange gave container `c` resource `n`: a default of it, and noted or foreign."""
    amount, default = (f"quantity(string({of}[n]))" for of in (f"c.resources.{side}", f"variables.{side}Defaults"))
    equal = f"n in variables.{side}Defaults && {amount}.compareTo({default}) == 0"
    return f"{equal} && (variables.foreign || {noted_condition(group, side)})"


def without_given() -> str:
    """Return the patch in CEL that removes amounts that the LimitRange gave a pod and the pod's author left out.

    For each group (containers, initContainers) and side (requests, limits) it lists one operation for each container.
    """
    # Of another band, where no profile is about to give the pod a class
    others = {band: f"(variables.band != {text(band)} && !variables.pending)" for band in BANDS_IN_ORDER}
    # Container `c` names the resource under a class's name
    names_band = {
        r: any_of(
            f"(has(c.resources.{side}) && {text(EXTENDED_RESOURCES[band, r])} in c.resources.{side})"
            for side in SIDES
            for band in BANDS_IN_ORDER
        )
        for r in Resource
    }
    values = {Resource.CPU: MILLICORES, Resource.MEMORY: "string(v)"}
    parts = []
    for group, side in PLACES:
        given_list = f"variables.{_given_list(group, side)}[i]"
        plain = {r: f'({text(r)} in {given_list} && variables.band != "")' for r in Resource}
        classes = {
            name: f"({text(name)} in {given_list} && ({others[band]} || {_own(group, resource)}))"
            for (band, resource), name in EXTENDED_RESOURCES.items()
        }
        goes = {r: f"{plain[r]} && ({names_band[r]})" for r in Resource} | classes
        dropped = any_of(f"(k == {text(name)} && {condition})" for name, condition in goes.items())
        renames = [
            f"(k == {text(r)} && {plain[r]} && !{_own(group, r)} ? {{{class_name(r)}: {values[r]}}} : "
            for r in Resource
        ]
        entry = "".join(renames) + "{string(k): string(v)}" + ")" * len(renames)
        parts.append(replaced_side(group, side, any_of((*plain.values(), *classes.values())), dropped, entry))
    return conditional_operations("variables.notes.size() > 0", "(\n" + " +\n".join(parts) + "\n)")


def _own(group: str, name: str) -> str:
    """Return CEL for whether the author of container `c`, at index `i`, named a resource, on any side."""
    name_conditions = (
        f"(has(c.resources) && has(c.resources.{side}) && {text(name)} in c.resources.{side} && "
        f"!({text(name)} in variables.{_given_list(group, side)}[i] + variables.{noted_list(group, side)}[i]))"
        for side in SIDES
    )
    return f"({any_of(name_conditions)})"
