"""A node's report (usage of the node, its system part, its pods, host applications), and the policy of reporting. Pure.

Koordinator's NodeMetric (`slo.koordinator.sh/v1alpha1`, name = node) as far as decisions need it. `NodeMetric.parse`
reads the API's JSON; an unreadable part is left out and noted, so that one bad quantity never hides a node. Amounts are
millicores and bytes, by resource; a missing resource was not measured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cotenant.base.errors import ClusterInvalid, QuantityError, UsageError
from cotenant.base.kubernetes.moments import APART_SECONDS, duration_seconds, moment_of
from cotenant.base.kubernetes.qos import BANDS, PriorityClass
from cotenant.base.kubernetes.quantity import parse_amount
from cotenant.base.resource import BEYOND_CAPACITY, Amounts, Resource

PLURAL: Final = "nodemetrics"
AHEAD_SECONDS: Final = APART_SECONDS
"""If a report's time is further ahead than this, its age counts as unknown."""


@dataclass(frozen=True, slots=True)
class PodMetric:
    """The mean usage of one pod over the report's window; `priority` is the class that the reporter knew."""

    namespace: str
    name: str
    usage: Amounts
    priority: PriorityClass = PriorityClass.NONE


@dataclass(frozen=True, slots=True)
class HostApplicationMetric:
    """The mean usage of processes that run outside of pods and are declared as one application."""

    name: str
    usage: Amounts
    priority: PriorityClass = PriorityClass.NONE


@dataclass(frozen=True, slots=True)
class NodeMetric:
    """One node's report; `update_seconds` is its Unix time, None if it was never filled.

    `prod_reclaimable` is what prod requests but does not need by forecast; a missing key counts as 0. `reporter` is the
    field manager that wrote updateTime last, "" if unknown; `spec_writers` are those whose values the spec has, and
    `collect` is spec.metricCollectPolicy as written.
    """

    node: str
    update_seconds: float | None
    node_usage: Amounts = field(default_factory=dict)
    system_usage: Amounts = field(default_factory=dict)
    pods: tuple[PodMetric, ...] = ()
    host_applications: tuple[HostApplicationMetric, ...] = ()
    prod_reclaimable: Amounts = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    reporter: str = ""
    spec_writers: tuple[str, ...] = ()
    owner_uids: tuple[str, ...] = ()
    collect: Mapping[str, Any] = field(default_factory=dict)

    def node_used(self, resource: Resource) -> int | None:
        """Return the node's usage; None if the report lacks it or says 0, which no running node uses."""
        return self.node_usage.get(resource) or None

    def system_used(self, resource: Resource) -> int | None:
        """Return the usage outside of pods and host applications; None if neither it nor the node's usage is reported.

        If only the node's usage is reported, it is that usage minus that of all pods and host applications. A reported
        0 counts as missing unless the node's usage is reported as well.
        """
        used, total_used = self.system_usage.get(resource), self.node_used(resource)
        if total_used is None:
            return used or None
        return max(total_used - self._parts(resource), 0) if used is None else used

    def _parts(self, resource: Resource) -> int:
        """Return the usage of all pods and host applications together."""
        parts = (*(pod.usage for pod in self.pods), *(application.usage for application in self.host_applications))
        return sum(usage.get(resource, 0) for usage in parts)

    def implausible_field(self, resource: Resource, capacity: int) -> str:
        """Return the field of the report that far exceeds the node's capacity, as text; "" if all values are plausible.

        `capacity` is in the resource's unit; 0 means unknown, so nothing is compared.
        """
        usages = {"nodeUsage": self.node_usage, "systemUsage": self.system_usage}
        usages |= {"prodReclaimableMetric": self.prod_reclaimable}
        usages |= {f"pod {pod.namespace}/{pod.name}": pod.usage for pod in self.pods}
        usages |= {f"host application {application.name}": application.usage for application in self.host_applications}
        most = BEYOND_CAPACITY * capacity
        amounts = {what: usage.get(resource, 0) for what, usage in usages.items()}
        amounts["all pods and host applications together"] = self._parts(resource)
        return next((what for what, amount in amounts.items() if capacity and amount > most), "")

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> NodeMetric:
        """Parse a NodeMetric from the API's JSON; raise ClusterInvalid if it has no name."""
        metadata = _object(body, "metadata")
        name = metadata.get("name")
        if not isinstance(name, str) or not name:
            raise ClusterInvalid("a NodeMetric without metadata.name")
        owners = tuple(sys.intern(str(o.get("uid", ""))) for o in _objects(metadata.get("ownerReferences")))
        managed = _objects(metadata.get("managedFields"))
        fields = [(sys.intern(str(entry.get("manager", ""))), _object(entry, "fieldsV1")) for entry in managed]
        return replace(
            _ReportReader(name).read(_object(body, "status")),
            reporter=next((who for who, parts in fields if "f:updateTime" in _object(parts, "f:status")), ""),
            spec_writers=tuple(who for who, parts in fields if "f:spec" in parts),
            owner_uids=owners,
            collect=_object(_object(body, "spec"), "metricCollectPolicy"),
        )


class _ReportReader:
    """A reader of one report, which collects notes about the parts it left out."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.notes: list[str] = []

    def read(self, status: Mapping[str, Any]) -> NodeMetric:
        usage = _object(status, "nodeMetric")
        pods = tuple(self._pods(status.get("podsMetric")))
        hosts = tuple(self._hosts(status.get("hostApplicationMetric")))
        prod = _object(_object(status, "prodReclaimableMetric"), "resource")
        return NodeMetric(
            node=self.node,
            update_seconds=self._moment(status.get("updateTime")),
            node_usage=self._resources(_object(usage, "nodeUsage"), "nodeUsage"),
            system_usage=self._resources(_object(usage, "systemUsage"), "systemUsage"),
            pods=pods,
            host_applications=hosts,
            prod_reclaimable=self._resources(prod, "prodReclaimable"),
            notes=tuple(self.notes),
        )

    def _pods(self, entries: Any) -> Iterator[PodMetric]:
        for entry in _objects(entries):
            namespace, name = str(entry.get("namespace", "")), str(entry.get("name", ""))
            usage = self._resources(_object(entry, "podUsage"), f"pod {namespace}/{name}")
            yield PodMetric(namespace, name, usage, _priority(entry))

    def _hosts(self, entries: Any) -> Iterator[HostApplicationMetric]:
        for entry in _objects(entries):
            name = str(entry.get("name", ""))
            usage = self._resources(_object(entry, "usage"), f"host application {name}")
            yield HostApplicationMetric(name, usage, _priority(entry))

    def _resources(self, holder: Mapping[str, Any], what: str) -> Amounts:
        quantities, amounts = _object(holder, "resources"), {}
        for resource in Resource:
            if resource.value in quantities:
                try:
                    amounts[resource] = parse_amount(
                        resource, quantities[resource.value], f"NodeMetric {self.node}, {what}"
                    )
                except QuantityError as error:
                    self.notes.append(f"{error.message}; the amount counts as not measured")
        return amounts

    def _moment(self, text: Any) -> float | None:
        try:
            return moment_of(text, "updateTime")
        except UsageError:
            self.notes.append(
                f"NodeMetric {self.node}: updateTime {str(text)[:40]!r} is not a time; the metric counts as empty"
            )
            return None


def _object(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    member = holder.get(key)
    return member if isinstance(member, Mapping) else {}


def _objects(members: Any) -> list[Mapping[str, Any]]:
    return [member for member in members if isinstance(member, Mapping)] if isinstance(members, list) else []


def _priority(holder: Mapping[str, Any]) -> PriorityClass:
    text = holder.get("priority")
    return PriorityClass(text) if isinstance(text, str) and text in BANDS else PriorityClass.NONE


LEAST_AGGREGATE_SECONDS: Final = 60
LEAST_REPORT_SECONDS: Final = 30
LONGEST_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class CollectPolicy:
    """The policy of usage collection, which is the spec of a NodeMetric; defaults are Koordinator's."""

    aggregate_seconds: int = 300
    report_seconds: int = 60
    durations_seconds: tuple[int, ...] = (300, 600, 1800)
    memory_policy: str = "usageWithoutPageCache"
    """Value that is published and has no effect: cotenant measures the working set."""

    @property
    def longest_seconds(self) -> int:
        """The age up to which the node agent needs samples, in seconds."""
        return max(self.aggregate_seconds, *self.durations_seconds, 0)


def spec_of(policy: CollectPolicy) -> dict[str, Any]:
    """Return spec.metricCollectPolicy of a NodeMetric for this policy."""
    return {
        "aggregateDurationSeconds": policy.aggregate_seconds,
        "reportIntervalSeconds": policy.report_seconds,
        "nodeAggregatePolicy": {"durations": [go_duration(d) for d in policy.durations_seconds]},
        "nodeMemoryCollectPolicy": policy.memory_policy,
    }


def from_spec(collect: Mapping[str, Any]) -> CollectPolicy:
    """Parse spec.metricCollectPolicy of a NodeMetric, except the memory policy, which stays the default.

    Missing and invalid fields get the default; the minimums of Koordinator's agent apply.
    """
    usual = CollectPolicy()
    aggregate = collect.get("nodeAggregatePolicy")
    raw_durations = aggregate.get("durations") if isinstance(aggregate, Mapping) else None
    durations = tuple(d for d in map(seconds_of, raw_durations if isinstance(raw_durations, list) else ()) if d)
    return CollectPolicy(
        max(LEAST_AGGREGATE_SECONDS, _valid_seconds(collect, "aggregateDurationSeconds", usual.aggregate_seconds)),
        max(LEAST_REPORT_SECONDS, _valid_seconds(collect, "reportIntervalSeconds", usual.report_seconds)),
        durations or usual.durations_seconds,
    )


def go_duration(seconds: int) -> str:
    """Return whole seconds as Go writes a duration: 300 -> "5m0s"."""
    hours, rest = divmod(seconds, 3600)
    minutes, remainder = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{remainder}s"
    return f"{minutes}m{remainder}s" if minutes else f"{remainder}s"


def seconds_of(text: Any) -> int:
    """Return the seconds of a Go duration of whole hours, minutes and seconds; 0 for anything else, or above a day."""
    seconds = duration_seconds(text) or 0.0
    return int(seconds) if seconds.is_integer() and seconds <= LONGEST_SECONDS else 0


def _valid_seconds(collect: Mapping[str, Any], name: str, usual: int) -> int:
    value = collect.get(name)
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LONGEST_SECONDS
    return value if isinstance(value, int) and fits else usual
