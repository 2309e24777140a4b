"""Read an AutopilotPolicy, refuse it if it contradicts itself, and combine it with the cluster's ceiling. Pure.

The ceiling is the limits in the settings, which a policy can only narrow: each field of `effective` is the narrower
one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Annotated, Any, Final, TypeVar

import msgspec

from cotenant.autopilot.model import RISING_AT_ONCE, AutopilotMode
from cotenant.autopilot.settings import CeilingSettings, Direction, Untouched, Way
from cotenant.base.errors import UsageError
from cotenant.base.json_documents.struct_validation import deviations, without_nulls
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.resource import Resource
from cotenant.changes.decide.change_windows import parse_window
from cotenant.changes.objectives.policy_objectives import MOST_OBJECTIVES, PolicyObjective

Choice = TypeVar("Choice", Resource, Direction, Way)
NARROWER: Final[Mapping[str, Callable[..., Any]]] = {
    "canary_share": min,
    "soak_minutes": max,
    "at_once": min,
    "restarts_per_week": min,
    "minimum_confidence": max,
    "start_up_factor": min,
    "replica_floor_factor": min,
    "throttled_share": max,
}
"""For each field with one amount, the function that returns the amount that permits less."""
LISTS: Final = ("resources", "directions", "ways")
"""Fields whose empty list would allow nothing."""


class PolicyLimits(CeilingSettings, frozen=True):
    """Limits under one policy: the cluster's ceiling narrowed by it; a resource without `largest_cut` is not cut."""

    own_windows: list[str] = msgspec.field(default_factory=list)
    """The change windows of the policy itself."""

    @property
    def window_groups(self) -> tuple[tuple[str, ...], ...]:
        """Groups of change windows; in each group at least one window has to be open."""
        return tuple(tuple(group) for group in (self.windows, self.own_windows) if group)


class _LargestCut(msgspec.Struct):
    cpu: Annotated[float, msgspec.Meta(ge=0.01, le=0.9)] | None = None
    memory: Annotated[float, msgspec.Meta(ge=0.01, le=0.9)] | None = None


class PolicySpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The spec of an AutopilotPolicy; a field that is None has the value of the cluster's `CeilingSettings`."""

    mode: AutopilotMode = AutopilotMode.OBSERVE
    selector: dict[str, Any] | None = None
    resources: list[Resource] | None = None
    directions: list[Direction] | None = None
    largest_cut: _LargestCut | None = None
    windows: list[str] | None = None
    ways: list[Way] | None = None
    canary_share: Annotated[float, msgspec.Meta(ge=0.01, le=1)] | None = None
    soak_minutes: Annotated[int, msgspec.Meta(ge=5, le=10_080)] | None = None
    at_once: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None
    restarts_per_week: Annotated[int, msgspec.Meta(ge=0, le=50)] | None = None
    minimum_confidence: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    never_touch: list[Untouched] | None = None
    throttled_share: Annotated[float, msgspec.Meta(ge=0.001, le=1)] | None = None
    start_up_factor: Annotated[float, msgspec.Meta(ge=1, le=20)] | None = None
    replica_floor_factor: Annotated[float, msgspec.Meta(ge=1, le=20)] | None = None
    objectives: Annotated[list[PolicyObjective], msgspec.Meta(max_length=MOST_OBJECTIVES)] | None = None

    @property
    def cuts(self) -> dict[Resource, float]:
        """The largest cut, as a share of the request, of each resource that the policy names."""
        return {r: share for r in Resource if (share := getattr(self.largest_cut, r.value, None)) is not None}


@dataclass(frozen=True, slots=True)
class NamespacedPolicy:
    """One AutopilotPolicy of the cluster; `refused` says why the autopilot does not follow it, "" if it does."""

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    spec: PolicySpec = attribute(default_factory=PolicySpec)
    selector: LabelSelector = attribute(default_factory=LabelSelector)
    refused: str = ""

    @property
    def mode(self) -> AutopilotMode:
        """The mode that the policy's spec requests; OFF while the policy is refused."""
        return AutopilotMode.OFF if self.refused else self.spec.mode

    @property
    def digest(self) -> str:
        """Twelve hex digits that identify the policy object and this version of its spec; an approval names them."""
        text = msgspec.json.encode((self.namespace, self.name, self.uid, self.spec), order="deterministic")
        return hashlib.sha256(text).hexdigest()[:12]

    @property
    def text(self) -> str:
        """The spec as JSON, without fields that have their default, as an approver reads and approves it."""
        return msgspec.json.encode(self.spec, order="deterministic").decode()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def parse_policy(body: Mapping[str, Any]) -> NamespacedPolicy:
    """Return the policy of an object; raise UsageError with the policy, the field, its value and the fix."""
    meta = body.get("metadata") or {}
    namespace, name = str(meta.get("namespace") or "default"), str(meta.get("name") or "")
    what = f"AutopilotPolicy {namespace}/{name}"
    spec_body = without_nulls(body.get("spec") or {})
    for deviation in deviations(spec_body, PolicySpec, "spec"):
        fix = deviation.fix or "kubectl explain autopilotpolicy.spec lists the fields."
        raise UsageError(f"{what}: {deviation}", fix=fix)
    try:
        spec = msgspec.convert(spec_body, PolicySpec)
    except msgspec.ValidationError as error:  # a field that is missing, or a list that is too long
        where = str(error).rpartition(" - at `$")[2].rstrip("`")
        message = str(error).partition(" - at ")[0]
        fix = "kubectl explain autopilotpolicy.spec lists the fields."
        raise UsageError(f"{what}: spec{where}: {message}", fix=fix) from error
    for field, value, why, fix in contradictions(spec):
        raise UsageError(f"{what}: {field}: {value} {why}", fix=fix)
    names: set[str] = set()
    for index, objective in enumerate(spec.objectives or ()):
        where = f"{what}: spec.objectives[{index}]"
        if objective.name in names:
            fix = "Name each objective differently."
            raise UsageError(f"{where}.name: {objective.name} is used twice", fix=fix)
        names.add(objective.name)
        if (problem := objective.problem(namespace)) is not None:
            raise UsageError(f"{where}: {problem[0]} {problem[1]}", fix=problem[2])
    selector = LabelSelector.parse(spec.selector or {}, f"{what}: spec.selector")
    return NamespacedPolicy(
        namespace, name, str(meta.get("uid") or ""), int(meta.get("generation") or 0), spec, selector
    )


def read_policy(body: Mapping[str, Any]) -> NamespacedPolicy:
    """Return the policy of an object like `parse_policy`, but with a fault in `refused` instead of an error."""
    try:
        return parse_policy(body)
    except UsageError as error:
        meta = body.get("metadata") or {}
        generation = int(meta.get("generation") or 0)
        refusal = f"{error.message}. {error.fix}"
        return NamespacedPolicy(
            str(meta.get("namespace")), str(meta.get("name")), str(meta.get("uid") or ""), generation, refused=refusal
        )


def contradictions(spec: PolicySpec) -> Iterator[tuple[str, object, str, str]]:
    """Yield (field, value, why, fix) for each contradiction in a spec; the CRD's CEL rules refuse the same ones."""
    for name in LISTS:
        values: list[Any] | None = getattr(spec, name)
        if values == []:
            yield f"spec.{name}", values, "allows nothing", f"Name at least one of {name}, or leave the field out."
    for direction, resource in RISING_AT_ONCE.items():
        if direction in (spec.directions or ()) and spec.resources and resource not in spec.resources:
            fix = f"Add {resource} to resources, or leave {direction} out."
            yield "spec.directions", direction, f"raises {resource}, which spec.resources leaves out", fix
    is_left_out = bool(spec.directions) and Direction.UP_AFTER_THROTTLING not in (spec.directions or ())
    if spec.throttled_share is not None and is_left_out:
        fix = "Add UpAfterThrottling to directions, or leave throttledShare out."
        yield "spec.throttledShare", spec.throttled_share, "needs UpAfterThrottling in spec.directions", fix
    if spec.restarts_per_week == 0 and spec.ways and set(spec.ways) == {Way.ROLL_OUT}:
        fix = "Allow a restart a week, or add InPlace to spec.ways."
        yield "spec.restartsPerWeek", 0, "forbids the only way, RollOut, which restarts pods", fix
    for resource, share in spec.cuts.items():
        if spec.resources and resource not in spec.resources:
            fix = f"Add {resource} to resources, or leave largestCut.{resource} out."
            yield f"spec.largestCut.{resource}", share, "bounds a resource that spec.resources leaves out", fix
    if spec.cuts and spec.directions and Direction.DOWN not in spec.directions:
        fix = "Add Down to directions, or leave largestCut out."
        yield "spec.largestCut", dict(spec.cuts), "limits cuts, but spec.directions has no Down", fix
    for index, text in enumerate(spec.windows or ()):
        try:
            parse_window(text)
        except UsageError as error:
            yield f"spec.windows[{index}]", repr(text), f"is not a change window: {error.message}", error.fix


def effective(ceiling: CeilingSettings, spec: PolicySpec) -> PolicyLimits:
    """Return the ceiling narrowed by a policy; raise UsageError if no resource, no direction or no way is left."""
    resources = _both("resources", ceiling.resources, spec.resources)
    ways = _both("ways", ceiling.ways, spec.ways)
    requested = {name: getattr(spec, name) for name in NARROWER}
    amounts = {
        name: narrower(getattr(ceiling, name), getattr(ceiling, name) if requested[name] is None else requested[name])
        for name, narrower in NARROWER.items()
    }
    if Resource.CPU not in resources or Way.IN_PLACE not in ways:
        amounts["start_up_factor"] = 1.0
    return PolicyLimits(
        resources=resources,
        directions=_both("directions", ceiling.directions, spec.directions),
        # a resource that the ceiling does not name is not cut
        largest_cut={r: min(ceiling.largest_cut.get(r, 0.0), spec.cuts.get(r, 1.0)) for r in Resource},
        windows=ceiling.windows,
        own_windows=spec.windows or [],
        ways=ways,
        never_touch=list(dict.fromkeys((*ceiling.never_touch, *(spec.never_touch or ())))),
        **amounts,
    )


def fields_beyond_limits(limits: PolicyLimits, spec: PolicySpec) -> tuple[str, ...]:
    """Return the fields of a spec that request more than the limits in effect (`effective`) allow."""
    wider: dict[str, object] = {
        "resources": set(spec.resources or ()).difference(limits.resources),
        "directions": set(spec.directions or ()).difference(limits.directions),
        "ways": set(spec.ways or ()).difference(limits.ways),
        "largest_cut": {r for r, share in spec.cuts.items() if limits.largest_cut[r] < share},
    }
    for name, narrower in NARROWER.items():
        requested, limit = getattr(spec, name), getattr(limits, name)
        wider[name] = requested is not None and narrower(requested, limit) != requested
    encoded = {field.name: field.encode_name for field in msgspec.structs.fields(PolicySpec)}
    return tuple(encoded[name] for name, is_wider in wider.items() if is_wider)


def _both(field: str, ceiling: Iterable[Choice], requested: Iterable[Choice] | None) -> list[Choice]:
    """Return the choices that both name, in the policy's order, or the ceiling if `requested` is None."""
    permitted = list(dict.fromkeys(ceiling))
    if requested is None:
        return permitted
    shared = [choice for choice in dict.fromkeys(requested) if choice in permitted]
    if not shared:
        allows = ", ".join(sorted(permitted)) or "nothing"
        raise UsageError(
            f"spec.{field}: {list(map(str, requested))} is outside of the cluster's ceiling, which allows {allows}",
            fix=f"Name values that the ceiling allows, or ask for a wider autopilot.ceiling.{field}.",
        )
    return shared
