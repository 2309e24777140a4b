"""Arguments of Koordinator's plugins LowNodeLoad and MigrationController, read from its own configuration. Pure.

Read are a DeschedulerConfiguration, a ConfigMap that holds one, or LowNodeLoadArgs alone. Names, units and defaults are
Koordinator's (`descheduler/v1alpha2`). A bad value is a UsageError that names all of them; a key that is not read here
is a warning, because a newer Koordinator may know it.
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
"""Names under which a configuration has what empties nodes, the one that goes before first."""
CONTROLLER: Final = "MigrationController"
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""PriorityClasses that every cluster has."""
FIX: Final = "Compare with the table of fields in docs/descheduler.md."


class ResourcePercents(msgspec.Struct, frozen=True):
    """Percent of a node's capacity by resource; None: not set."""

    cpu: Percent | None = None
    memory: Percent | None = None

    def pair(self, absent: float) -> tuple[float, float]:
        """(cpu, memory), `absent` where not set."""
        return absent if self.cpu is None else self.cpu, absent if self.memory is None else self.memory


class ResourceWeights(msgspec.Struct, frozen=True):
    """Weight of each resource where nodes and pods are ranked by usage."""

    cpu: Count = 1
    memory: Count = 1


class AnomalyCondition(msgspec.Struct, frozen=True, rename="camel"):
    """The condition under which a node counts as abnormal; a single reading cannot apply it."""

    timeout: str = "1m"
    consecutive_abnormalities: Count = 5
    consecutive_normalities: Count = 3


class Namespaces(msgspec.Struct, frozen=True):
    """Namespaces by name; an empty include is all of them."""

    include: list[str] = []
    exclude: list[str] = []

    def admit(self, namespace: str) -> bool:
        """Return whether pods of the namespace are selected: it is included and not excluded."""
        return namespace not in self.exclude and (not self.include or namespace in self.include)


class PodSelector(msgspec.Struct, frozen=True):
    """A named selector of pods."""

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
        """True if any node can be high: a high threshold is set, for all pods or for prod pods."""
        return self.high_thresholds != ResourcePercents() or self.looks_at_prod

    @property
    def looks_at_prod(self) -> bool:
        """True if there is a pass for prod pods alone."""
        return self.prod_high_thresholds != ResourcePercents()


class NodePoolArgs(LoadThresholdFields, frozen=True, rename="camel"):
    """Nodes with thresholds of their own."""

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
        """Node pools in the order of evaluation: those of `nodePools`, then the plugin's own thresholds.

        A pool without thresholds of its own has the plugin's, as in Koordinator 1.8.
        """
        shared = {name: getattr(self, name) for name in LoadThresholdFields.__struct_fields__}
        own = NodePoolArgs(name="", **shared)
        given = {name: shared[name] for name in shared if name.endswith("thresholds")}
        none = LoadThresholdFields()
        pools = [
            pool
            if any(getattr(pool, name) != getattr(none, name) for name in given)
            else msgspec.structs.replace(pool, **given)
            for pool in self.node_pools
        ]
        return (*pools, own) if own.has_thresholds or not pools else tuple(pools)


class ObjectLimiter(msgspec.Struct, frozen=True, rename="camel"):
    """The limit of pods of one object that may leave within a time; None means maxMigratingPerWorkload."""

    duration: str = "5m"
    max_migrating: int | str | None = None


class ObjectLimiters(msgspec.Struct, frozen=True):
    """The limiters by object; Koordinator knows workloads alone."""

    workload: ObjectLimiter = ObjectLimiter()


class PriorityThreshold(msgspec.Struct, frozen=True):
    """Pods of this priority and above are not moved; name: of a built-in PriorityClass, others are not looked up."""

    value: int | None = None
    name: str = ""

    @property
    def priority(self) -> float:
        """The threshold, infinite where none is set."""
        return SYSTEM_PRIORITIES.get(self.name, math.inf) if self.value is None else self.value


class MigrationArgs(msgspec.Struct, frozen=True, rename="camel"):
    """Arguments of the MigrationController: which pods may be moved, how many at once, and how.

    Its further fields (ACTING_FIELDS) are accepted and have no effect here.
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
        """evictQPS, which Koordinator also takes as text."""
        return float(self.evict_qps)


ACTING_FIELDS: Final = frozenset({
    "apiVersion", "kind", "maxConcurrentReconciles", "defaultDeleteOptions", "schedulerNames", "arbitrationArgs",
    "skipEvictionGates", "nodeFit",
})  # fmt: skip
"""Fields of the MigrationController that have no effect here: none of them keeps a pod where it is."""


class ConfigurationLimits(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a DeschedulerConfiguration, beside its profiles, that limit moves."""

    dry_run: bool = False
    node_selector: Object | None = None
    max_no_of_pods_to_evict_per_node: Count | None = None
    max_no_of_pods_to_evict_per_namespace: Count | None = None
    max_no_of_pods_to_evict_total: Count | None = None

    def applied(self, migration: MigrationArgs) -> MigrationArgs:
        """The arguments with these limits; the lower of two holds."""

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
"""Fields that hold a LabelSelector, whose values are text."""
DURATION_KEYS: Final = frozenset({"defaultJobTTL", "detectorCacheTimeout", "duration", "timeout"})
"""Fields that hold a duration, which is a text also where it is 0."""
PAUSE_SECONDS: Final = 1800.0  # a pod younger than this may have been moved just now; it stays


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundArgs:
    """The part of a configuration that rounds of either plugin read; warnings: keys that are not read, with paths.

    Ours: pause_seconds, for which a pod stays on the node that it moved to; most_moves, of one round, None: the share
    of churn; resting: workloads (NAMESPACE/KIND/NAME) that were moved, failed: uids of pods whose move failed a short
    time ago; busy: nodes that pods are moved from or to at present, which are not begun to be emptied.
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
        """Return the arguments under the settings' limits: how long a moved pod stays, how many move in an hour."""
        return replace(self, pause_seconds=settings.pause_seconds, churn=Churn.of(settings))


@dataclass(frozen=True, slots=True)
class RebalanceArgs(RoundArgs):
    """Arguments of rounds of LowNodeLoad."""

    low_node_load: LowNodeLoadArgs

    @property
    def is_dry_run(self) -> bool:
        """True if the configuration itself keeps rounds of LowNodeLoad from moving pods."""
        return self.low_node_load.dry_run or self.migration.dry_run


DEFAULT_ARGS: Final = RebalanceArgs(
    LowNodeLoadArgs(
        low_thresholds=ResourcePercents(45, 55),
        high_thresholds=ResourcePercents(65, 80),
        evictable_namespaces=Namespaces(exclude=["kube-system"]),
    )
)
"""Used where nobody gives a configuration; Koordinator's own thresholds are unset, so that no node would be high."""


def arguments_from_settings(document: Mapping[str, Any]) -> RebalanceArgs:
    """Arguments of a configuration in the settings, where scalars are text; defaults for one without LowNodeLoad."""
    if not document or document.get("kind") == "HighNodeLoadArgs":
        return DEFAULT_ARGS
    return arguments_of(complete_configuration(document, (PLUGIN,), DEFAULT_ARGS.low_node_load, EMPTYING_PLUGINS))


def complete_configuration(
    document: Any, plugins: Sequence[str], defaults: msgspec.Struct, others: Sequence[str]
) -> Any:
    """The typed configuration; with the defaults of `plugins[0]` if it has no arguments of `plugins`."""
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
    """Numbers and booleans in the place of their texts; selectors and durations stay text, as Kubernetes has them."""
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
    """Arguments of a parsed YAML or JSON document. UsageError names every value that cannot be used."""
    plugins = plugin_configs(document, "LowNodeLoadArgs", (PLUGIN, CONTROLLER))
    if PLUGIN not in plugins:
        raise UsageError(
            "the configuration has no arguments of the plugin LowNodeLoad",
            fix="Give a DeschedulerConfiguration with a pluginConfig entry named LowNodeLoad, or LowNodeLoadArgs.",
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
    """The MigrationController's arguments within the limits beside the profiles, and warnings.

    problems: of the other plugin; UsageError names all that are fatal, theirs and these.
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
        warnings.append(f"{policy} is not supported; pods leave through the Eviction API")
    return limits.applied(arguments), warnings


def refuse(problems: list[str]) -> None:
    """UsageError with all of them, where there are any."""
    if problems:
        raise UsageError("the descheduler's configuration cannot be used: " + "; ".join(problems), fix=FIX)


def plugin_configs(document: Any, own_kind: str, names: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Plugin name -> (path of its arguments, the arguments without nulls).

    own_kind: kind of a document that is the arguments of `names[0]` alone, as is one without profiles.
    """
    document = _configuration(document)
    if not isinstance(document, Mapping):
        raise UsageError("the descheduler's configuration is not an object", fix="Give an object in YAML or JSON.")
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
    """The document itself, or what a ConfigMap holds as its first DeschedulerConfiguration."""
    if not isinstance(document, Mapping) or document.get("kind") != "ConfigMap":
        return document
    import yaml

    for text in (document.get("data") or {}).values():
        try:
            inner = yaml.safe_load(text) if isinstance(text, str) else None
        except yaml.YAMLError as error:
            raise UsageError(f"the ConfigMap's text is not YAML: {error}", fix="Look at the line named.") from error
        if isinstance(inner, Mapping) and inner.get("kind") in ("DeschedulerConfiguration", "DeschedulerPolicy"):
            return inner
    raise UsageError("the ConfigMap holds no DeschedulerConfiguration", fix="Is it koord-descheduler-config?")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _unusable_migration(migration: MigrationArgs, path: str) -> list[str]:
    """Return what fits its type and cannot be used, including a nodeSelector, which would exclude nodes."""
    problems = unreadable_selector(migration.label_selector, f"{path}.labelSelector")
    problems += _misplaced_selector(migration.node_selector, path)
    threshold = migration.priority_threshold
    if threshold.value is None and threshold.name and threshold.priority == math.inf:
        text = f"{threshold.name!r} is not looked up; give the number of the PriorityClass as value"
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
    text = "is not read there; give it to LowNodeLoad or HighNodeLoad as their nodeSelector"
    return [f"{path}.nodeSelector: {selector!r} {text}"] if selector else []


def low_above_high_problems(path: str, lows: ResourcePercents, highs: ResourcePercents) -> list[str]:
    """Low thresholds (at `path`) that are above the high ones."""
    return [
        f"{path}.{resource}: {low:g} % is above the high threshold of {high:g} %"
        for resource in ("cpu", "memory")
        if (low := getattr(lows, resource)) is not None
        and (high := getattr(highs, resource)) is not None
        and low > high
    ]


def unreadable_selector(selector: Object | None, path: str) -> list[str]:
    """Return what is wrong with a label selector; an ignored field would let it select more."""
    try:
        LabelSelector.parse(selector, path)
    except UsageError as error:
        return [error.message]
    return [
        f"{path}.{name}: is no field of a label selector; write it into matchLabels" for name in unread_fields(selector)
    ]


def _unreadable_duration(text: str, path: str) -> list[str]:
    try:
        seconds_of(text, path)
    except UsageError as error:
        return [error.message]
    return []
