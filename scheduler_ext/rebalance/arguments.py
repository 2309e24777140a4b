"""Arguments of Koordinator's plugins LowNodeLoad and MigrationController, parsed from its own configuration. Pure.

Accepted are a DeschedulerConfiguration, a ConfigMap with one, and LowNodeLoadArgs alone. Names, units and defaults are
Koordinator's (`descheduler/v1alpha2`). Invalid values raise one UsageError that names all of them; an unknown key is
only a warning, because a newer Koordinator may know it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal, Self

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.json_documents.struct_validation import Deviation, deviations, without_nulls
from cotenant.base.kubernetes.moments import seconds_of
from cotenant.base.kubernetes.selector import LabelSelector, unread_fields
from cotenant.scheduler_ext.rebalance.migration.churn import DEFAULT_CHURN, Churn, limit_of
from cotenant.scheduler_ext.rebalance.model.settings import DeschedulerSettings

Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Object = dict[str, Any]
PLUGIN: Final = "LowNodeLoad"
EMPTYING_PLUGIN: Final = "HighNodeLoad"
UPSTREAM_PLUGIN: Final = "HighNodeUtilization"
EMPTYING_PLUGINS: Final = (EMPTYING_PLUGIN, UPSTREAM_PLUGIN)
"""Names of the plugin that empties nodes, in the order of precedence."""
CONTROLLER: Final = "MigrationController"
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""PriorityClasses that every cluster has."""
FIX: Final = "Compare the configuration with the table of fields in docs/descheduler.md."


class ResourcePercents(msgspec.Struct, frozen=True):
    """Percent of a node's capacity for CPU and memory; None if not set."""

    cpu: Percent | None = None
    memory: Percent | None = None

    def pair(self, absent: float) -> tuple[float, float]:
        """Return (cpu, memory), with `absent` in place of values that are not set."""
        return absent if self.cpu is None else self.cpu, absent if self.memory is None else self.memory


class ResourceWeights(msgspec.Struct, frozen=True):
    """Weights of CPU and memory when nodes and pods are ranked by usage."""

    cpu: Count = 1
    memory: Count = 1


class AnomalyCondition(msgspec.Struct, frozen=True, rename="camel"):
    """Numbers of consecutive rounds that make a node abnormal or normal, and the timeout of an abnormal state."""

    timeout: str = "1m"
    consecutive_abnormalities: Count = 5
    consecutive_normalities: Count = 3


class Namespaces(msgspec.Struct, frozen=True):
    """A selection of namespaces by name; an empty `include` selects all that are not excluded."""

    include: list[str] = []
    exclude: list[str] = []

    def admit(self, namespace: str) -> bool:
        """Return whether pods of the namespace are selected: it is included and not excluded."""
        return namespace not in self.exclude and (not self.include or namespace in self.include)


class PodSelector(msgspec.Struct, frozen=True):
    """A label selector of pods, with a name."""

    name: str = ""
    selector: Object | None = None


class LoadThresholdFields(msgspec.Struct, frozen=True, rename="camel"):
    """Fields that LowNodeLoadArgs and each of its node pools share."""

    node_selector: Object | None = None
    use_deviation_thresholds: bool = False
    low_thresholds: ResourcePercents = ResourcePercents()
    high_thresholds: ResourcePercents = ResourcePercents()
    prod_low_thresholds: ResourcePercents = ResourcePercents()
    prod_high_thresholds: ResourcePercents = ResourcePercents()
    resource_weights: ResourceWeights = ResourceWeights()
    anomaly_condition: AnomalyCondition = AnomalyCondition()

    @property
    def has_thresholds(self) -> bool:
        """True if a high threshold is set, for all pods or for prod pods, so that a node can be high."""
        return self.high_thresholds != ResourcePercents() or self.looks_at_prod

    @property
    def looks_at_prod(self) -> bool:
        """True if a second pass judges nodes by the usage of prod pods alone."""
        return self.prod_high_thresholds != ResourcePercents()


class NodePoolArgs(LoadThresholdFields, frozen=True, rename="camel"):
    """A node pool: a selection of nodes with their own thresholds."""

    name: str = ""


class LowNodeLoadArgs(LoadThresholdFields, frozen=True, rename="camel"):
    """Arguments of the plugin LowNodeLoad."""

    api_version: str = ""
    kind: Literal["", "LowNodeLoadArgs"] = ""
    paused: bool = False
    dry_run: bool = False
    number_of_nodes: Count = 0
    node_metric_expiration_seconds: Count = 180
    node_fit: bool = True
    detector_cache_timeout: str = "5m"
    evictable_namespaces: Namespaces = Namespaces()
    pod_selectors: list[PodSelector] = []
    node_pools: list[NodePoolArgs] = []

    def pools(self) -> tuple[NodePoolArgs, ...]:
        """Return the node pools in the order of evaluation: those of `nodePools`, then the plugin's own, if any.

        A pool that sets no thresholds has those of the plugin, as in Koordinator 1.8. The result is never empty.
        """
        shared = {name: getattr(self, name) for name in LoadThresholdFields.__struct_fields__}
        own = NodePoolArgs(name="", **shared)
        thresholds_given = {name: shared[name] for name in shared if name.endswith("thresholds")}
        none = LoadThresholdFields()
        pools = [
            pool
            if any(getattr(pool, name) != getattr(none, name) for name in thresholds_given)
            else msgspec.structs.replace(pool, **thresholds_given)
            for pool in self.node_pools
        ]
        return (*pools, own) if own.has_thresholds or not pools else tuple(pools)


class ObjectLimiter(msgspec.Struct, frozen=True, rename="camel"):
    """The number of pods of an object that may be evicted within `duration`; None means maxMigratingPerWorkload."""

    duration: str = "5m"
    max_migrating: int | str | None = None


class ObjectLimiters(msgspec.Struct, frozen=True):
    """The limiters by kind of object; Koordinator has only one, for workloads."""

    workload: ObjectLimiter = ObjectLimiter()


class PriorityThreshold(msgspec.Struct, frozen=True):
    """Pods of this priority and above are not moved. `name` may only be that of a built-in PriorityClass."""

    value: int | None = None
    name: str = ""

    @property
    def priority(self) -> float:
        """The threshold as a number; infinity if none is set."""
        return SYSTEM_PRIORITIES.get(self.name, math.inf) if self.value is None else self.value


class MigrationArgs(msgspec.Struct, frozen=True, rename="camel"):
    """Arguments of the MigrationController: which pods may be moved, how many at once, and how.

    The controller's other fields (ACTING_FIELDS) are accepted without effect.
    """

    dry_run: bool = False
    node_selector: str = ""
    priority_threshold: PriorityThreshold = PriorityThreshold()
    evict_failed_bare_pods: bool = False
    evict_local_storage_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    label_selector: Object | None = None
    namespaces: Namespaces = Namespaces()
    max_migrating_globally: Count | None = None
    max_migrating_per_namespace: Count | None = None
    max_migrating_per_node: Count | None = 2
    max_migrating_per_workload: int | str | None = None
    max_unavailable_per_workload: int | str | None = None
    skip_check_expected_replicas: bool = False
    default_job_mode: Literal["ReservationFirst", "EvictDirectly"] = "ReservationFirst"
    default_job_ttl: str = msgspec.field(default="5m", name="defaultJobTTL")
    eviction_policy: Literal["Eviction", "Delete", "SoftEviction"] = "Eviction"
    evict_qps: float | str = msgspec.field(default=10.0, name="evictQPS")
    evict_burst: Annotated[int, msgspec.Meta(ge=1)] = 1
    object_limiters: ObjectLimiters = ObjectLimiters()

    @property
    def evictions_per_second(self) -> float:
        """The value of evictQPS, which Koordinator also accepts as text."""
        return float(self.evict_qps)


ACTING_FIELDS: Final = frozenset({
    "apiVersion", "kind", "maxConcurrentReconciles", "defaultDeleteOptions", "schedulerNames", "arbitrationArgs",
    "skipEvictionGates", "nodeFit",
})  # fmt: skip
"""Fields of the MigrationController that have no effect here, because none of them keeps a pod on its node."""


class ConfigurationLimits(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of a DeschedulerConfiguration outside its profiles that limit moves."""

    dry_run: bool = False
    node_selector: Object | None = None
    max_no_of_pods_to_evict_per_node: Count | None = None
    max_no_of_pods_to_evict_per_namespace: Count | None = None
    max_no_of_pods_to_evict_total: Count | None = None

    def applied(self, migration: MigrationArgs) -> MigrationArgs:
        """Return the MigrationController's arguments with these limits; of two limits the lower one applies."""

        def lower(*limits: int | None) -> int | None:
            return min((limit for limit in limits if limit is not None), default=None)

        return msgspec.structs.replace(
            migration,
            dry_run=self.dry_run or migration.dry_run,
            max_migrating_per_node=lower(migration.max_migrating_per_node, self.max_no_of_pods_to_evict_per_node),
            max_migrating_per_namespace=lower(
                migration.max_migrating_per_namespace, self.max_no_of_pods_to_evict_per_namespace
            ),
            max_migrating_globally=lower(migration.max_migrating_globally, self.max_no_of_pods_to_evict_total),
        )


SELECTOR_KEYS: Final = frozenset({"nodeSelector", "selector", "labelSelector"})
"""Fields with a LabelSelector, whose values are text."""
DURATION_KEYS: Final = frozenset({"defaultJobTTL", "detectorCacheTimeout", "duration", "timeout"})
"""Fields with a duration, which is text even if it is 0."""
PAUSE_SECONDS: Final = 1800.0  # a pod younger than this may have been moved just now; it stays


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundArgs:
    """Arguments that rounds of both plugins use. `warnings` name the keys that were not recognised, with their paths.

    A pod stays `pause_seconds` on the node that it moved to. A round moves at most `most_moves` pods; None means the
    share of pods in `churn`. Pods of `resting` workloads (NAMESPACE/KIND/NAME) were moved a short time ago, and the
    move of the `failed` pods (UIDs) failed a short time ago. The emptying of `busy` nodes does not start, because pods
    are being moved from or to them.
    """

    migration: MigrationArgs = field(default_factory=MigrationArgs)
    warnings: tuple[str, ...] = ()
    pause_seconds: float = PAUSE_SECONDS
    most_moves: int | None = None
    resting: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    churn: Churn = DEFAULT_CHURN

    def with_limits(self, settings: DeschedulerSettings) -> Self:
        """Return the arguments with the settings' limits: least time of a pod on its node, most moves in an hour."""
        return replace(self, pause_seconds=settings.pause_seconds, churn=Churn.of(settings))


@dataclass(frozen=True, slots=True)
class RebalanceArgs(RoundArgs):
    """Arguments of rounds of LowNodeLoad, which relieves overloaded nodes."""

    low_node_load: LowNodeLoadArgs

    @property
    def is_dry_run(self) -> bool:
        """True if the configuration itself keeps LowNodeLoad from moving pods."""
        return self.low_node_load.dry_run or self.migration.dry_run


DEFAULT_ARGS: Final = RebalanceArgs(
    LowNodeLoadArgs(
        low_thresholds=ResourcePercents(45, 55),
        high_thresholds=ResourcePercents(65, 80),
        evictable_namespaces=Namespaces(exclude=["kube-system"]),
    )
)
"""Arguments without a configuration; Koordinator's defaults set no thresholds, so that no node would be high."""


def arguments_from_settings(document: Mapping[str, Any]) -> RebalanceArgs:
    """Return LowNodeLoad's arguments in the settings' configuration, where scalars are text, or else the defaults."""
    if not document or document.get("kind") == "HighNodeLoadArgs":
        return DEFAULT_ARGS
    return arguments_of(complete_configuration(document, (PLUGIN,), DEFAULT_ARGS.low_node_load, EMPTYING_PLUGINS))


def complete_configuration(
    document: Any, plugins: Sequence[str], defaults: msgspec.Struct, others: Sequence[str]
) -> Any:
    """Return the configuration with typed values; if it only configures `others`, `plugins[0]` gets `defaults`."""
    configuration = _configuration(_parse_scalars(document))
    profiles = configuration.get("profiles") if isinstance(configuration, Mapping) else None
    if not isinstance(profiles, list):
        return configuration
    names = plugin_configs(configuration, "", (*plugins, *others)).keys()
    if names & set(plugins) or not names & set(others):
        return configuration
    entry = {"name": plugins[0], "args": msgspec.to_builtins(defaults)}
    return {**configuration, "profiles": [*profiles, {"pluginConfig": [entry]}]}


def _parse_scalars(value: Any) -> Any:
    """Turn texts into numbers and booleans; selectors and durations stay text, as in Kubernetes."""
    if isinstance(value, Mapping):
        return {
            key: value if key in SELECTOR_KEYS | DURATION_KEYS else _parse_scalars(value)
            for key, value in value.items()
        }
    if isinstance(value, list):
        return [_parse_scalars(item) for item in value]
    if not isinstance(value, str):
        return value
    try:
        decoded = msgspec.json.decode(value)
    except UNDECODABLE:
        return value
    return decoded if isinstance(decoded, bool | int | float) else value


def arguments_of(document: Any) -> RebalanceArgs:
    """Parse a configuration from decoded YAML or JSON; raise a UsageError that names every invalid value."""
    plugins = plugin_configs(document, "LowNodeLoadArgs", (PLUGIN, CONTROLLER))
    if PLUGIN not in plugins:
        raise UsageError(
            "the configuration has no arguments of the plugin LowNodeLoad",
            fix="Give a LowNodeLoadArgs object, or a DeschedulerConfiguration with a pluginConfig entry LowNodeLoad.",
        )
    low_path, load = plugins[PLUGIN]
    problems = list(deviations(load, LowNodeLoadArgs, low_path))
    migration, warnings = migration_of(document, plugins, problems)
    arguments = RebalanceArgs(msgspec.convert(load, LowNodeLoadArgs), migration=migration, warnings=tuple(warnings))
    # Values that fit their types and not each other, selectors and durations that cannot be read.
    own, unusable = arguments.low_node_load, list[str]()
    places: list[tuple[str, LoadThresholdFields]] = [(low_path, own)]
    places += [(f"{low_path}.nodePools[{i}]", pool) for i, pool in enumerate(own.node_pools)]
    for path, fields in places:
        if not fields.use_deviation_thresholds:  # both are distances from the mean there and cannot cross
            lows, highs, prod_lows = fields.low_thresholds, fields.high_thresholds, fields.prod_low_thresholds
            unusable += low_above_high_problems(f"{path}.lowThresholds", lows, highs)
            unusable += low_above_high_problems(f"{path}.prodLowThresholds", prod_lows, fields.prod_high_thresholds)
        unusable += unreadable_selector(fields.node_selector, f"{path}.nodeSelector")
        unusable += _unreadable_duration(fields.anomaly_condition.timeout, f"{path}.anomalyCondition.timeout")
    for number, selector in enumerate(own.pod_selectors):
        unusable += unreadable_selector(selector.selector, f"{low_path}.podSelectors[{number}].selector")
    refuse(unusable + _unreadable_duration(own.detector_cache_timeout, f"{low_path}.detectorCacheTimeout"))
    return arguments


def migration_of(
    document: Any, plugins: Mapping[str, tuple[str, Any]], problems: list[Deviation]
) -> tuple[MigrationArgs, list[str]]:
    """Return the MigrationController's arguments with the limits outside the profiles, and warnings.

    Raise a UsageError that names all invalid values: those found here, and `problems`, found in the other plugin.
    """
    path, own = plugins.get(CONTROLLER, ("", {}))
    if isinstance(own, dict):
        own = {key: value for key, value in own.items() if key not in ACTING_FIELDS}
    configuration, outer = without_nulls(_configuration(document)), dict[str, Any]()
    if "profiles" in configuration:
        names = ConfigurationLimits.__struct_encode_fields__
        outer = {name: configuration[name] for name in names if name in configuration}
    problems = [*problems, *deviations(own, MigrationArgs, path), *deviations(outer, ConfigurationLimits)]
    refuse([str(problem) for problem in problems if problem.fatal])
    arguments, limits = msgspec.convert(own, MigrationArgs), msgspec.convert(outer, ConfigurationLimits)
    refuse([*_unusable_migration(arguments, path), *_misplaced_selector(limits.node_selector, "$")])
    warnings = [str(problem) for problem in problems if not problem.fatal]
    if arguments.eviction_policy == "Delete":
        policy = f"{path}.evictionPolicy: Delete"
        warnings.append(f"{policy} is not supported; pods are evicted by the Eviction API")
    return limits.applied(arguments), warnings


def refuse(problems: list[str]) -> None:
    """Raise a UsageError that names all problems, if there are any."""
    if problems:
        raise UsageError("the descheduler's configuration cannot be used: " + "; ".join(problems), fix=FIX)


def plugin_configs(document: Any, own_kind: str, names: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Return, by plugin name, the path of its arguments in the document, and the arguments without nulls.

    A document of kind `own_kind`, or without profiles, is the arguments of `names[0]`; UsageError if it is no object.
    """
    document = _configuration(document)
    if not isinstance(document, Mapping):
        raise UsageError("the descheduler's configuration is not an object", fix="Write an object in YAML or JSON.")
    if document.get("kind") == own_kind or "profiles" not in document:
        return {names[0]: ("$", without_nulls(dict(document)))}
    plugins: dict[str, tuple[str, Any]] = {}
    for number, profile in enumerate(_list(document.get("profiles"))):
        for index, entry in enumerate(_list(profile.get("pluginConfig")) if isinstance(profile, Mapping) else ()):
            if isinstance(entry, Mapping) and entry.get("name") in names:
                path = f"$.profiles[{number}].pluginConfig[{index}].args"
                plugins.setdefault(entry["name"], (path, without_nulls(entry.get("args") or {})))
    return plugins


def _configuration(document: Any) -> Any:
    """Return the document, or the first DeschedulerConfiguration of a ConfigMap."""
    if not isinstance(document, Mapping) or document.get("kind") != "ConfigMap":
        return document
    import yaml

    for text in (document.get("data") or {}).values():
        try:
            inner = yaml.safe_load(text) if isinstance(text, str) else None
        except yaml.YAMLError as error:
            raise UsageError(f"the ConfigMap's text is not YAML: {error}", fix="Correct that line.") from error
        if isinstance(inner, Mapping) and inner.get("kind") in ("DeschedulerConfiguration", "DeschedulerPolicy"):
            return inner
    raise UsageError(
        "the ConfigMap has no DeschedulerConfiguration", fix="Give the ConfigMap koord-descheduler-config."
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _unusable_migration(migration: MigrationArgs, path: str) -> list[str]:
    """Return the problems of values that have the right type but cannot be used, such as a nodeSelector."""
    problems = unreadable_selector(migration.label_selector, f"{path}.labelSelector")
    problems += _misplaced_selector(migration.node_selector, path)
    threshold = migration.priority_threshold
    if threshold.value is None and threshold.name and threshold.priority == math.inf:
        text = f"{threshold.name!r} is no built-in PriorityClass; set value to the number of the PriorityClass"
        problems.append(f"{path}.priorityThreshold.name: {text}")
    limits = {
        "maxMigratingPerWorkload": migration.max_migrating_per_workload,
        "maxUnavailablePerWorkload": migration.max_unavailable_per_workload,
    }
    for name, limit in limits.items():
        if limit_of(limit, 10) is None:
            problems.append(f"{path}.{name}: {limit!r} is neither a whole number nor a percentage")
    # Moves need an end and a rate above zero.
    limiter = migration.object_limiters.workload
    problems += _unreadable_duration(migration.default_job_ttl, f"{path}.defaultJobTTL")
    problems += _unreadable_duration(limiter.duration, f"{path}.objectLimiters.workload.duration")
    if limit_of(limiter.max_migrating, 10) is None:
        text = f"{limiter.max_migrating!r} is neither a whole number nor a percentage"
        problems.append(f"{path}.objectLimiters.workload.maxMigrating: {text}")
    try:
        usable = 0 < migration.evictions_per_second < float("inf")
    except ValueError:
        usable = False
    return problems if usable else [*problems, f"{path}.evictQPS: {migration.evict_qps!r} is not a number above zero"]


def _misplaced_selector(selector: Object | str | None, path: str) -> list[str]:
    text = "has no effect here; set nodeSelector in the arguments of LowNodeLoad or HighNodeLoad"
    return [f"{path}.nodeSelector: {selector!r} {text}"] if selector else []


def low_above_high_problems(path: str, lows: ResourcePercents, highs: ResourcePercents) -> list[str]:
    """Return a problem for each low threshold (at `path`) that is above the high threshold of its resource."""
    return [
        f"{path}.{resource}: {low:g} % is above the high threshold of {high:g} %"
        for resource in ("cpu", "memory")
        if (low := getattr(lows, resource)) is not None
        and (high := getattr(highs, resource)) is not None
        and low > high
    ]


def unreadable_selector(selector: Object | None, path: str) -> list[str]:
    """Return a label selector's parse error or unknown fields; to ignore a part of a selector would select more."""
    try:
        LabelSelector.parse(selector, path)
    except UsageError as error:
        return [error.message]
    return [
        f"{path}.{name} is no field of a label selector; write it into matchLabels" for name in unread_fields(selector)
    ]


def _unreadable_duration(text: str, path: str) -> list[str]:
    try:
        seconds_of(text, path)
    except UsageError as error:
        return [error.message]
    return []
