"""Which colocation strategy holds for a node, and which layer set each of its values. Pure.

    defaults < ConfigMap key colocation-config < first matching nodeConfigs entry < node annotation < node labels

Source: Koordinator's slo-controller-config, `pkg/util/sloconfig`. Our own fields: the policy `forecast` with its two
thresholds of evidence, and `maxRisePercent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from cotenant.core.model.errors import CotenantError
from cotenant.core.model.kubernetes.protocol import (
    COLOCATION_STRATEGY_ANNOTATION,
    CPU_RECLAIM_RATIO_LABEL,
    MEMORY_RECLAIM_RATIO_LABEL,
    MID_STATIC_CPU_RATIO_LABEL,
    MID_STATIC_MEMORY_RATIO_LABEL,
)
from cotenant.core.model.kubernetes.selector import LabelSelector
from cotenant.core.model.resource import Resource
from cotenant.core.model.text import shown
from cotenant.core.settings.sections.recommender import ReclaimableSettings
from recommender.colocation.fields import percent_of_ratio, read_fields, read_object, refusal

CONFIG_KEY: Final = "colocation-config"

RATIO_LABELS: Final[Mapping[str, str]] = {
    CPU_RECLAIM_RATIO_LABEL: "cpu_reclaim_percent",
    MEMORY_RECLAIM_RATIO_LABEL: "memory_reclaim_percent",
    MID_STATIC_CPU_RATIO_LABEL: "mid_static_cpu_percent",
    MID_STATIC_MEMORY_RATIO_LABEL: "mid_static_memory_percent",
}
"""Node label with a ratio -> the attribute that it sets in percent."""


@dataclass(frozen=True, slots=True)
class ColocationStrategy:
    """Every field of colocation-config; defaults are Koordinator's, cotenant's own fields come last."""

    enable: bool = False
    metric_aggregate_seconds: int = 300
    metric_report_seconds: int = 60
    metric_durations_seconds: tuple[int, ...] = (300, 600, 1800)
    metric_memory_policy: str = "usageWithoutPageCache"
    cpu_reclaim_percent: int = 60
    cpu_policy: str = "usage"
    memory_reclaim_percent: int = 65
    memory_policy: str = "usage"
    degrade_minutes: int = 15
    update_threshold_seconds: int = 300
    diff_threshold: float = 0.1
    mid_mode: str = "dynamic"
    mid_cpu_percent: int = 100
    mid_memory_percent: int = 100
    mid_unallocated_percent: int = 0
    mid_static_cpu_percent: int = 0
    mid_static_memory_percent: int = 0
    batch_cpu_percent: int | None = None
    batch_memory_percent: int | None = None
    forecast_origins: int = 5
    """Policy forecast: back-tests that a node's forecast needs before it decides alone."""
    forecast_violation_percent: int = 10
    """Policy forecast: share of the back-tests whose peak was passed up to which it may decide alone."""
    max_rise_percent: int | None = None
    """Most that a published amount may rise per update_threshold_seconds, percent of capacity; None = at once."""

    @classmethod
    def of_settings(cls, settings: ReclaimableSettings) -> ColocationStrategy:
        """The strategy without a ConfigMap; colocation itself is enabled."""
        names = set(cls.__dataclass_fields__) & set(settings.__struct_fields__)
        return cls(enable=True, **{name: getattr(settings, name) for name in names})

    def policy(self, resource: Resource) -> str:
        """How batch is computed."""
        return self.cpu_policy if resource is Resource.CPU else self.memory_policy

    def reclaim_percent(self, resource: Resource) -> int:
        """Share of capacity that everybody may use together."""
        return self.cpu_reclaim_percent if resource is Resource.CPU else self.memory_reclaim_percent

    def batch_percent(self, resource: Resource) -> int | None:
        """Most that batch may get, of capacity; None = no cap."""
        return self.batch_cpu_percent if resource is Resource.CPU else self.batch_memory_percent

    def mid_percent(self, resource: Resource) -> int:
        """Most that mid may get, of capacity."""
        return self.mid_cpu_percent if resource is Resource.CPU else self.mid_memory_percent

    def mid_static_percent(self, resource: Resource) -> int:
        """Mid's share of capacity in static mode."""
        return self.mid_static_cpu_percent if resource is Resource.CPU else self.mid_static_memory_percent


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of strategy values for a node: its display name, and attribute -> value."""

    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Resolved:
    """The strategy of a node, the layers under it (lowest first), and what was ignored."""

    strategy: ColocationStrategy
    layers: tuple[Layer, ...]
    notes: tuple[str, ...] = ()

    def origin(self, attribute: str) -> str:
        """Name of the layer that decided an attribute."""
        return next((layer.name for layer in reversed(self.layers) if attribute in layer.values), "default")


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """One entry of nodeConfigs."""

    name: str
    selector: LabelSelector
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ColocationConfig:
    """Defaults, the cluster's strategy, and its overrides for selected nodes."""

    base: ColocationStrategy = field(default_factory=ColocationStrategy)
    cluster: Layer = field(default_factory=lambda: Layer(f"ConfigMap {CONFIG_KEY}", {}))
    entries: tuple[NodeEntry, ...] = ()

    @classmethod
    def of_settings(cls, settings: ReclaimableSettings) -> ColocationConfig:
        """What the settings say, where no ConfigMap is looked at; fields that they leave alone count as defaults."""
        base, strategy = ColocationStrategy(enable=True), ColocationStrategy.of_settings(settings)
        changed = {
            f.name: getattr(strategy, f.name)
            for f in fields(base)
            if getattr(strategy, f.name) != getattr(base, f.name)
        }
        return cls(base, Layer("settings recommender.reclaimable", changed))

    @classmethod
    def parse(cls, text: str) -> ColocationConfig:
        """The ConfigMap's key `colocation-config`; SettingsError names what is wrong, with its range."""
        config = read_object(text, CONFIG_KEY)
        entries = config.get("nodeConfigs")
        entries = [] if entries is None else entries
        if not isinstance(entries, list):
            raise refusal(CONFIG_KEY, "nodeConfigs", entries, "a list of objects")
        cluster = Layer(f"ConfigMap {CONFIG_KEY}", read_fields(config, CONFIG_KEY))
        return cls(cluster=cluster, entries=tuple(_entry(entry, i) for i, entry in enumerate(entries)))

    def resolve(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Resolved:
        """The strategy of a node with these labels and annotations; undecodable values are ignored and noted."""
        entry = next((e for e in self.entries if e.selector.matches(labels)), None)
        layers, notes = [self.cluster], []
        if entry:
            layers.append(Layer(f"nodeConfigs entry {entry.name}", entry.values))
        for name, reader in (("annotation", _annotation), ("labels", _labels)):
            values, ignored = reader(annotations if name == "annotation" else labels)
            layers += [Layer(f"node {name}", values)] if values else []
            notes += ignored
        merged = {k: v for layer in layers for k, v in layer.values.items()}
        return Resolved(replace(self.base, **merged), tuple(layers), tuple(notes))

    def key(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[object, ...]:
        """Equal for two nodes only if `resolve` gives them the same."""
        index = next((i for i, e in enumerate(self.entries) if e.selector.matches(labels)), -1)
        return index, annotations.get(COLOCATION_STRATEGY_ANNOTATION), *(labels.get(label) for label in RATIO_LABELS)


def _entry(entry: Any, index: int) -> NodeEntry:
    what = f"{CONFIG_KEY} nodeConfigs[{index}]"
    if not isinstance(entry, Mapping):
        raise refusal(CONFIG_KEY, f"nodeConfigs[{index}]", entry, "an object")
    selector = LabelSelector.parse(entry.get("nodeSelector"), f"{what}.nodeSelector")
    return NodeEntry(str(entry.get("name") or index), selector, read_fields(entry, what))


def _annotation(annotations: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """What the node's annotation sets; all of it is ignored when any of it is wrong."""
    text = annotations.get(COLOCATION_STRATEGY_ANNOTATION)
    what = f"annotation {COLOCATION_STRATEGY_ANNOTATION}"
    try:
        return ({} if text is None else read_fields(read_object(text, what), what)), []
    except CotenantError as error:
        return {}, [f"{error.message}; the annotation is ignored"]


def _labels(labels: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """What the node's ratio labels set; a bad one is ignored alone."""
    percents, notes = {}, []
    for label, attribute in RATIO_LABELS.items():
        if label in labels:
            percents[attribute] = percent = percent_of_ratio(labels[label])
            if percent is None:
                notes.append(f"label {label} is {shown(labels[label])}, no ratio from 0 to 10; it is ignored")
    return {k: v for k, v in percents.items() if v is not None}, notes
