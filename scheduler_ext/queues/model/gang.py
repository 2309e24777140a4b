"""Gangs, whose pods are placed together or not at all, as PodGroups or Koordinator's annotations define them. Pure.

Two protocols, as Koordinator reads them (`apis/extension/coscheduling.go`, its coscheduling plugin): a PodGroup
(scheduling.sigs.k8s.io/v1alpha1) that the pods' label names, or annotations of the pods themselves. A PodGroup takes
precedence. A gang without a valid minimum has a `problem`; any other invalid value is replaced by its default with a
note, as in Koordinator. Neither raises an error, so that other gangs are not affected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE, mapping_or_empty
from cotenant.base.kubernetes.intent import Address, Create
from cotenant.base.kubernetes.moments import moment_of, seconds_of
from cotenant.base.kubernetes.protocol import NATIVE_GANG_GROUP
from cotenant.base.text import format_value

Json = Mapping[str, Any]
Option = TypeVar("Option", bound=StrEnum)

POD_GROUP_LABEL: Final = "pod-group.scheduling.sigs.k8s.io"
"""On a pod: name of its PodGroup, in its namespace."""
LIGHT_NAME_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/name"
LIGHT_MINIMUM_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
"""Label of the older protocol without a PodGroup object."""
MATCH_POLICY_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"
GANG_PREFIX: Final = "gang.scheduling.koordinator.sh/"
NAME_ANNOTATION: Final = GANG_PREFIX + "name"
MINIMUM_ANNOTATION: Final = GANG_PREFIX + "min-available"
TOTAL_ANNOTATION: Final = GANG_PREFIX + "total-number"
MODE_ANNOTATION: Final = GANG_PREFIX + "mode"
WAIT_ANNOTATION: Final = GANG_PREFIX + "waiting-time"
GROUPS_ANNOTATION: Final = GANG_PREFIX + "groups"
MATCH_POLICY_ANNOTATION: Final = GANG_PREFIX + "match-policy"

LARGEST_GANG: Final = 1_000
"""Most members that are placed together: each needs a Reservation and a placeholder."""
MOST_NOTES: Final = 8
"""Most notes that a gang keeps: a thousand pods may each disagree with the first."""
_INTEGER: Final = re.compile("[+-]?[0-9]{1,18}")
_STARTED: Final = frozenset({"Scheduled", "Running"})
"""Phases of a PodGroup whose minimum was placed once."""


class GangMode(StrEnum):
    """The consequence if a member cannot be placed: Strict releases the capacity of all members, NonStrict keeps it."""

    STRICT = "Strict"
    NON_STRICT = "NonStrict"


class MatchPolicy(StrEnum):
    """The members that count towards a gang's minimum; once-satisfied: once the minimum was placed, no member waits."""

    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"
    ONCE_SATISFIED = "once-satisfied"


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang as its PodGroup or its pods define it.

    `group` are the gangs ("namespace/name", sorted, this one included) that are placed together. Members wait
    `wait_seconds` for each other; 0 uses the default. `notes` name invalid values and the defaults taken instead.
    `started` is True if the PodGroup's status says that the minimum was placed once. `source` is the defining object
    ("pods/shop/a"), `status` the PodGroup's status as written. `problem` says why the gang cannot be used, or is "".
    """

    namespace: str
    name: str
    min_available: int
    total: int
    mode: GangMode = GangMode.STRICT
    match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    group: tuple[str, ...] = ()
    wait_seconds: float = 0.0
    created_seconds: float = 0.0
    from_pod_group: bool = False
    uid: str = ""
    started: bool = False
    source: str = ""
    status: Json = field(default_factory=dict)
    problem: str = ""
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The gang's namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def terms(self) -> tuple[object, ...]:
        """The values in which all pods of a gang should agree; if they disagree on the minimum, the gang is invalid."""
        return (self.min_available, self.total, self.mode, self.match_policy, self.group, self.wait_seconds)


def gang_key(namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the gang to which a pod belongs, as "namespace/name"; "" if it is in none."""
    name = labels.get(POD_GROUP_LABEL) or labels.get(LIGHT_NAME_LABEL) or annotations.get(NAME_ANNOTATION)
    return f"{namespace}/{name}" if name else ""


def gang_of_pod_group(body: Json) -> Gang:
    """Return the gang that a PodGroup defines."""
    meta, spec, status = (mapping_or_empty(body.get(key)) for key in ("metadata", "spec", "status"))
    annotations, reader = mapping_or_empty(meta.get("annotations")), _Reader()
    namespace, name = str(meta.get("namespace") or ""), str(meta.get("name") or "")
    reader.source = f"podgroups/{namespace}/{name}"
    wait_seconds = reader.wait(spec.get("scheduleTimeoutSeconds"), "spec.scheduleTimeoutSeconds")
    gang = reader.gang(namespace, name, (spec.get("minMember"), "spec.minMember"), annotations, wait_seconds)
    try:
        created_seconds = moment_of(meta.get("creationTimestamp"), "") or 0.0
    except UsageError:
        created_seconds = 0.0
    return replace(
        gang,
        created_seconds=created_seconds,
        from_pod_group=True,
        uid=str(meta.get("uid") or ""),
        started=status.get("phase") in _STARTED,
        status=status,
    )


def gang_of_pod(
    namespace: str, pod: str, labels: Mapping[str, str], annotations: Mapping[str, str], created_seconds: float = 0.0
) -> Gang | None:
    """Return the gang that a pod's labels and annotations define; None if they name no gang.

    If they set no minimum, the gang has a problem, which counts only if no PodGroup of its name exists.
    """
    key = gang_key(namespace, labels, annotations)
    if not key:
        return None
    reader = _Reader(f"pods/{namespace}/{pod}")
    light = labels.get(LIGHT_MINIMUM_LABEL)
    minimum = (light, LIGHT_MINIMUM_LABEL) if light else (annotations.get(MINIMUM_ANNOTATION), MINIMUM_ANNOTATION)
    wait_seconds = reader.wait(annotations.get(WAIT_ANNOTATION), WAIT_ANNOTATION)
    name = key.partition("/")[2]
    if minimum[0] is None:
        reader.problem = f"{reader.source}: no PodGroup {key} exists, and {MINIMUM_ANNOTATION} is missing"
    gang = reader.gang(namespace, name, minimum, annotations, wait_seconds)
    return replace(gang, created_seconds=created_seconds)


def gangs_of(pod_groups: Iterable[Gang], declared: Iterable[Gang]) -> dict[str, Gang]:
    """Return all gangs by "namespace/name": those that PodGroups define, and those that only pods define.

    A gang has a problem if its pods disagree about the minimum, if the gangs of its group do not name the same group,
    or if one of them has a problem. If pods differ in another value, the oldest pod's is used, with a note.
    """
    gangs = {gang.key: gang for gang in pod_groups}
    oldest: dict[str, Gang] = {}
    for gang in sorted((g for g in declared if g.key not in gangs), key=lambda g: (g.created_seconds, g.source)):
        first = oldest.setdefault(gang.key, gang)
        if gang.terms != first.terms and not first.problem:
            difference = f"{gang.source} declares {_terms(gang)}, but {first.source} declares {_terms(first)}"
            if gang.min_available != first.min_available:
                oldest[gang.key] = replace(first, problem=difference)
            elif len(first.notes) < MOST_NOTES:
                oldest[gang.key] = replace(first, notes=(*first.notes, f"{difference}, whose values are used"))
    gangs |= oldest
    checked = dict(gangs)
    odd: dict[tuple[str, ...], str] = {}
    for key, gang in gangs.items():
        if gang.problem:
            continue
        if gang.group not in odd:
            # what is wrong with its group: a gang of it that does not exist yet is only waited for
            others = [gangs[other] for other in gang.group if other in gangs]
            broken = next((other for other in others if other.problem), None)
            odd[gang.group] = f"gang {broken.key} of its group is invalid: {broken.problem}" if broken else ""
            if differing := next((other for other in others if other.group != gang.group), None):
                own, difference = format_value(list(gang.group)), format_value(list(differing.group))
                odd[gang.group] = f"{GROUPS_ANNOTATION} is {own}, but at {differing.source} {difference}"
        if odd[gang.group]:
            checked[key] = replace(gang, problem=f"{gang.source}: {odd[gang.group]}")
    return checked


@dataclass(slots=True)
class _Reader:
    """Parses the gang fields of one object; collects its first problem, and notes about replaced values."""

    source: str = ""
    problem: str = ""
    notes: list[str] = field(default_factory=list)

    def gang(self, namespace: str, name: str, minimum: tuple[Any, str], annotations: Json, wait_seconds: float) -> Gang:
        """Return the gang, without fields that only PodGroups have."""
        least = self.count(*minimum)
        total = self.total(annotations.get(TOTAL_ANNOTATION), least)
        policy = MATCH_POLICY_ANNOTATION if annotations.get(MATCH_POLICY_ANNOTATION) else MATCH_POLICY_ALIAS
        return Gang(
            namespace,
            name,
            least,
            total,
            self.option(GangMode.STRICT, annotations.get(MODE_ANNOTATION), MODE_ANNOTATION),
            self.option(MatchPolicy.ONCE_SATISFIED, annotations.get(policy), policy),
            self.group(annotations.get(GROUPS_ANNOTATION), f"{namespace}/{name}"),
            wait_seconds,
            source=self.source,
            problem=self.problem,
            notes=tuple(self.notes),
        )

    def total(self, value: Any, least: int) -> int:
        """Return the gang's number of members; the minimum if it is absent or, with a note, invalid."""
        if not value:
            return least
        number = _integer(value)
        if number is None or number < least:
            self.note(TOTAL_ANNOTATION, value, f"is not a number of members of at least {least}", least)
            return least
        return number

    def count(self, value: Any, what: str) -> int:
        """Return a number of members from 1 to `LARGEST_GANG`; 0 if the value is invalid."""
        number = _integer(value)
        if number is None or not 1 <= number <= LARGEST_GANG:
            self.refuse(what, value, f"is not a number of members from 1 to {LARGEST_GANG:,}")
            return 0
        return number

    def option(self, default: Option, value: Any, what: str) -> Option:
        """Return a member of an enum, or the default if the value is absent or invalid."""
        options = type(default)
        if value and value not in list(options):
            self.note(what, value, f"is not one of {', '.join(options)}", default)
        return options(value) if value in list(options) else default

    def wait(self, value: Any, what: str) -> float:
        """Return seconds from a number or a Go duration; 0 if the value is absent or invalid."""
        try:
            seconds = float(value) if isinstance(value, int) else seconds_of(str(value or ""), what)
        except (UsageError, OverflowError):
            seconds = -1.0
        if seconds < 0:
            form = '"10m" or "600s"' if isinstance(value, str) else "600"
            self.note(what, value, f"is not a waiting time such as {form}", "600 seconds")
        return max(0.0, seconds)

    def group(self, value: Any, own: str) -> tuple[str, ...]:
        """Return the gangs of the gang's group, including the gang itself."""
        if not value:
            return (own,)
        try:
            names = msgspec.json.decode(str(value), type=list[str])
        except UNDECODABLE:
            names = [""]
        if not all(0 < name.find("/") < len(name) - 1 for name in names) or (names and own not in names):
            self.note(GROUPS_ANNOTATION, value, f"is not a JSON list of namespace/name with {own} in it", "no group")
            return (own,)
        return tuple(sorted({*names, own}))

    def note(self, what: str, value: Any, because: str, taken: object) -> None:
        """Add a note about an invalid optional value and the default taken instead."""
        self.notes.append(f"{self.source}: {what} {format_value(value)} {because}; {taken} is used")

    def refuse(self, what: str, value: Any, because: str) -> None:
        """Record the problem, unless there is one already."""
        self.problem = self.problem or f"{self.source}: {what} {format_value(value)} {because}"


def _terms(gang: Gang) -> str:
    return (
        f"at least {gang.min_available} of {gang.total} pods, mode {gang.mode}, match policy {gang.match_policy}, "
        f"waiting time {f'{gang.wait_seconds} s' if gang.wait_seconds else 'default'}, group {', '.join(gang.group)}"
    )


def _integer(value: Any) -> int | None:
    """Parse a whole number as Go does: ASCII digits without spaces or underscores, 64 bits; None if invalid."""
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class NativeGroup:
    """A PodGroup of Kubernetes; if `min_count` is 0, its pods are placed one by one.

    `scheduled` is True if its minimum was placed (condition PodGroupScheduled); else `message` says why not.
    """

    namespace: str
    name: str
    min_count: int = 0
    deleting: bool = False
    scheduled: bool = False
    message: str = ""

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> NativeGroup:
        """Parse a PodGroup object from the API server."""
        metadata, spec = body.get("metadata") or {}, body.get("spec") or {}
        gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
        conditions = (body.get("status") or {}).get("conditions") or ()
        placed: Mapping[str, Any] = next(
            (condition for condition in conditions if condition.get("type") == "PodGroupScheduled"), {}
        )
        return cls(
            str(metadata.get("namespace") or ""),
            str(metadata.get("name") or ""),
            int(gang.get("minCount") or 0),
            "deletionTimestamp" in metadata,
            placed.get("status") == "True",
            "" if placed.get("status") == "True" else str(placed.get("message") or ""),
        )


def inexpressible_fields(gang: Gang) -> str:
    """Return the first field of a gang that a PodGroup of Kubernetes cannot express; "" if it can express all."""
    if len(gang.group) > 1:
        return "the gang is in a group of gangs"
    if gang.match_policy is MatchPolicy.ONLY_WAITING:
        return f"the gang's match policy is {gang.match_policy}"
    if gang.mode is GangMode.NON_STRICT:
        return f"the gang's mode is {gang.mode}"
    return "the gang has a waiting time of its own" if gang.wait_seconds else ""


def native_group(
    namespace: str,
    name: str,
    min_count: int = 0,
    owners: Iterable[tuple[str, str]] = (),
    why: str = "",
    asker: str = "",
) -> Create:
    """Return the creation of a Kubernetes PodGroup that places `min_count` pods together; 0 places them one by one.

    `owners` are (name, uid) of pods; garbage collection deletes the PodGroup after the last one. `asker` is the object
    that gets an Event if the creation fails.
    """
    references = [{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid} for pod, uid in owners]
    labels = {"app.kubernetes.io/managed-by": "cotenant"}
    policy = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    address = Address(NATIVE_GANG_GROUP, "podgroups", name, namespace)
    metadata = {"labels": labels, "ownerReferences": references}
    return Create(
        address, address.manifest("PodGroup", metadata, spec={"schedulingPolicy": policy}), why=why, asker=asker
    )


def group_named(pod: Mapping[str, Any]) -> str:
    """Return the name of the Kubernetes PodGroup in a pod's spec, or ""."""
    return str(((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName") or "")
