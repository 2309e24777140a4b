"""The effective colocation strategy of a node, and the layer that set each of its values. Pure.

    defaults < ConfigMap key colocation-config < first matching nodeConfigs entry < node annotation < node labels

Source: Koordinator's slo-controller-config, `pkg/util/sloconfig`. The fields are those of `ColocationStrategy`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import structs

from cotenant.base.colocation.colocation_strategy import (
    CONFIG_FORM,
    KEY_OF,
    MOST_PERCENT,
    ColocationStrategy,
    ReclaimFields,
)
from cotenant.base.errors import CotenantError, SettingsError
from cotenant.base.kubernetes.protocol import (
    COLOCATION_STRATEGY_ANNOTATION,
    CPU_RECLAIM_RATIO_LABEL,
    MEMORY_RECLAIM_RATIO_LABEL,
    MID_STATIC_CPU_RATIO_LABEL,
    MID_STATIC_MEMORY_RATIO_LABEL,
)
from cotenant.base.text import format_value
from cotenant.recommender.colocation.model.slo_config import Entry, Layers, parse
from cotenant.recommender.colocation.model.slo_forms import SloKey

CONFIG_KEY: Final = SloKey.COLOCATION.value

RATIO_LABELS: Final[Mapping[str, str]] = {
    CPU_RECLAIM_RATIO_LABEL: "cpu_reclaim_percent",
    MEMORY_RECLAIM_RATIO_LABEL: "memory_reclaim_percent",
    MID_STATIC_CPU_RATIO_LABEL: "mid_static_cpu_percent",
    MID_STATIC_MEMORY_RATIO_LABEL: "mid_static_memory_percent",
}
"""Node label with a ratio -> the attribute that it sets in percent."""


@dataclass(frozen=True, slots=True)
class StrategyLayer:
    """One source of strategy values for a node: the source's display name, and the values by attribute."""

    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Resolved:
    """The strategy of a node, the layers it was merged from (lowest precedence first), and notes on ignored values."""

    strategy: ColocationStrategy
    layers: tuple[StrategyLayer, ...]
    notes: tuple[str, ...] = ()

    def origin(self, attribute: str) -> str:
        """Return the name of the layer that set an attribute of the strategy."""
        return next((layer.name for layer in reversed(self.layers) if attribute in layer.values), "default")


@dataclass(frozen=True, slots=True)
class ColocationConfig:
    """The colocation configuration: the default strategy, the cluster's values, and overrides for selected nodes."""

    base: ColocationStrategy = field(default_factory=ColocationStrategy)
    cluster: StrategyLayer = field(default_factory=lambda: StrategyLayer(f"ConfigMap {CONFIG_KEY}", {}))
    entries: tuple[Entry, ...] = ()

    @classmethod
    def of_settings(cls, settings: ReclaimFields) -> ColocationConfig:
        """Return the configuration from cotenant's own settings, for runs that read no ConfigMap.

        Settings that have their default value count as the layer of defaults.
        """
        base, strategy = ColocationStrategy(enable=True), ColocationStrategy.of_settings(settings)
        defaults = structs.asdict(base)
        changed = {name: value for name, value in structs.asdict(strategy).items() if value != defaults[name]}
        return cls(base, StrategyLayer("settings recommender.reclaimable", changed))

    @classmethod
    def parse(cls, text: str) -> ColocationConfig:
        """Parse the ConfigMap's key `colocation-config`; raise SettingsError with the wrong value and its range."""
        layers = _layers(text, CONFIG_KEY)
        entries = (Entry(e.name or str(i), e.selector, _attributes(e.values)) for i, e in enumerate(layers.entries))
        cluster = StrategyLayer(f"ConfigMap {CONFIG_KEY}", _attributes(layers.cluster))
        return cls(cluster=cluster, entries=tuple(entries))

    def resolve(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Resolved:
        """Return the strategy of a node with these labels and annotations; invalid values are ignored and noted."""
        entry = next((e for e in self.entries if e.selector.matches(labels)), None)
        layers, notes = [self.cluster], []
        if entry:
            layers.append(StrategyLayer(f"nodeConfigs entry {entry.name}", entry.values))
        for name, reader in (("annotation", _annotation), ("labels", _labels)):
            values, ignored = reader(annotations if name == "annotation" else labels)
            layers += [StrategyLayer(f"node {name}", values)] if values else []
            notes += ignored
        merged = {k: v for layer in layers for k, v in layer.values.items()}
        return Resolved(structs.replace(self.base, **merged), tuple(layers), tuple(notes))

    def key(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[object, ...]:
        """Return a cache key: if the keys of two nodes are equal, `resolve` returns the same for both nodes."""
        index = next((i for i, e in enumerate(self.entries) if e.selector.matches(labels)), -1)
        return index, annotations.get(COLOCATION_STRATEGY_ANNOTATION), *(labels.get(label) for label in RATIO_LABELS)


def _layers(text: str, what: str) -> Layers:
    """Parse a colocation-config as the webhook does; raise SettingsError with value, range and fix."""
    layers, findings = parse(SloKey.COLOCATION, text)
    if layers is None:
        finding = next(finding for finding in findings if finding.fatal)
        raise SettingsError(f"{what}: {finding.deviation}", fix=finding.fix)
    return layers


def _attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the strategy attributes that a layer sets; an empty midReclaimMode means the default's."""
    form = msgspec.convert(values, CONFIG_FORM)
    attributes = {attribute: getattr(form, attribute) for attribute, key in KEY_OF.items() if key in values}
    if attributes.get("mid_mode") == "":
        attributes["mid_mode"] = "dynamic"
    return attributes


def _annotation(annotations: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    text = annotations.get(COLOCATION_STRATEGY_ANNOTATION)
    if text is None:
        return {}, []
    what = f"annotation {COLOCATION_STRATEGY_ANNOTATION}"
    try:
        values = _attributes(_layers(text, what).cluster)
    except CotenantError as error:
        return {}, [f"{error.message}; the annotation is ignored"]
    return values, [f"{what}: {finding.deviation}" for finding in parse(SloKey.COLOCATION, text)[1]]


def _labels(labels: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return the percentages that the ratio labels of the node set, and notes; a bad label is ignored alone."""
    percents, notes = {}, []
    for label, attribute in RATIO_LABELS.items():
        if label in labels:
            percents[attribute] = percent = percent_of_ratio(labels[label])
            if percent is None:
                notes.append(f"label {label} is {format_value(labels[label])}, not a ratio from 0 to 10; it is ignored")
    return {k: v for k, v in percents.items() if v is not None}, notes


def percent_of_ratio(text: str) -> int | None:
    """Return the percentage of a node label such as "0.65", truncated; None if it is no ratio from 0 to 10."""
    try:
        scaled = float(text) * 100 if "_" not in text else math.nan
    except ValueError:
        return None
    return int(scaled) if math.isfinite(scaled) and 0 <= scaled <= MOST_PERCENT else None
