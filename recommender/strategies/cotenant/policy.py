"""The effective policy of a workload: annotations override settings, settings override the profile. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cotenant.base.cluster import Workload
from cotenant.base.resource import Resource
from cotenant.recommender.settings import CotenantSettings, ProfileSettings
from cotenant.recommender.strategies.cotenant.annotations import PREFIX, parse

CPU, MEMORY = Resource.CPU, Resource.MEMORY
NUMBERS: Final = {
    "cpu_fraction": ("cpu-fraction", CPU),
    "cpu_margin_fraction": ("cpu-margin", CPU),
    "memory_margin_fraction": ("memory-margin", MEMORY),
}
"""Number -> its annotation and the resource it is about; also the names of settings and of profile fields."""
WORDS: Final = {
    "lower_limits": ("lower-limits", (CPU, MEMORY)),
    "cpu_limit": ("cpu-limit", (CPU,)),
    "keep_qos_class": ("keep-qos-class", (CPU, MEMORY)),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """Effective quantile, margins and options by which a workload's requests are computed.

    `bounds` are (minimum, maximum) of one container in the resource's unit, None = no bound. `overrides` names per
    resource the annotations that were used, each with the value that it replaced. `notes` are on ignored annotations.
    """

    profile: str
    cpu_fraction: float
    cpu_margin_fraction: float
    cpu_root_margin_millicores: float
    memory_margin_fraction: float
    lower_limits: bool
    cpu_limit: str
    keep_qos_class: bool
    bounds: Mapping[Resource, tuple[int | None, int | None]]
    skip: bool
    excluded: frozenset[str]
    overrides: Mapping[Resource, tuple[str, ...]]
    notes: tuple[str, ...]

    def margin_fraction(self, resource: Resource) -> float:
        """Return the margin for the resource, as a fraction of the demand."""
        return self.cpu_margin_fraction if resource is CPU else self.memory_margin_fraction


def policies(workloads: tuple[Workload, ...], own: CotenantSettings) -> list[Policy]:
    """Return the policy of each workload; all workloads without annotations share the same policy object."""
    default = policy({}, own)
    policy_by_id = {id(w): policy(w.annotations, own) if w.annotations else default for w in workloads}
    return [policy_by_id[id(w)] for w in workloads]


def policy(annotations: Mapping[str, str], own: CotenantSettings) -> Policy:
    """Merge one workload's annotations with settings and profiles; never raise for an invalid annotation."""
    wishes, notes = parse(annotations)
    name: str = wishes.get("profile", own.profile)
    profile: ProfileSettings = getattr(own.profiles, name)
    numbers: dict[str, Any] = {}
    for number in NUMBERS:
        numbers_given = (wishes.get(NUMBERS[number][0]), getattr(own, number), getattr(profile, number))
        numbers[number] = float(next(number_given for number_given in numbers_given if number_given is not None))
    choices = {word: wishes.get(key, getattr(own, word)) for word, (key, _) in WORDS.items()}
    return Policy(
        **numbers,
        **choices,
        profile=name,
        cpu_root_margin_millicores=profile.cpu_root_margin_millicores,
        bounds={r: (wishes.get(f"min-{r}"), wishes.get(f"max-{r}")) for r in Resource},
        skip=wishes.get("skip", False),
        excluded=wishes.get("exclude-containers", frozenset()),
        overrides={r: tuple(_overrides(r, name, wishes, own)) for r in Resource},
        notes=notes,
    )


def _overrides(resource: Resource, profile: str, wishes: Mapping[str, Any], own: CotenantSettings) -> list[str]:
    """Return a line for every annotation that was used for this resource, with the value that it replaced."""
    lines = []
    if "profile" in wishes:
        lines.append(f"profile {profile} (annotation {PREFIX}profile overrides setting {own.profile})")
    for name, (key, about) in NUMBERS.items():
        below = f"profile {profile} {getattr(getattr(own.profiles, profile), name):g}"
        chosen = getattr(own, name)
        if about is not resource:
            continue
        if key in wishes:
            beside = f"setting {chosen:g} and {below}" if chosen is not None else below
            lines.append(f"{name} {wishes[key]:g} (annotation {PREFIX}{key} overrides {beside})")
        elif chosen is not None:
            lines.append(f"{name} {chosen:g} (setting overrides {below})")
    for name, (key, resources) in WORDS.items():
        if key in wishes and resource in resources:
            lines.append(f"{name} {wishes[key]} (annotation {PREFIX}{key} overrides setting {getattr(own, name)})")
    return lines + [
        f"{bound}imum {wishes[key]} {resource.unit} (annotation {PREFIX}{key})"
        for bound, key in (("min", f"min-{resource}"), ("max", f"max-{resource}"))
        if key in wishes
    ]
