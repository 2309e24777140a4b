"""Which colocation strategy holds for a node, and which layer set each of its values. Pure.

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
    """One source of strategy values for a node: its display name, and attribute -> value."""

    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Resolved:
    """The strategy of a node, the layers under it (lowest first), and what was ignored."""

    strategy: ColocationStrategy
    layers: tuple[StrategyLayer, ...]
    notes: tuple[str, ...] = ()

    def origin(self, attribute: str) -> str:
        """Name of the layer that decided an attribute."""
        return next((layer.name for layer in reversed(self.layers) if attribute in layer.values), "default")


@dataclass(frozen=True, slots=True)
class ColocationConfig:
    """Defaults, the cluster's strategy, and its overrides for selected nodes."""

    base: ColocationStrategy = field(default_factory=ColocationStrategy)
    cluster: StrategyLayer = field(default_factory=lambda: StrategyLayer(f"ConfigMap {CONFIG_KEY}", {}))
    entries: tuple[Entry, ...] = ()

    @classmethod
    def of_settings(cls, settings: ReclaimFields) -> ColocationConfig:
        """Return the configuration that the settings give, for runs that read no ConfigMap.

        Fields that the settings leave unchanged count as defaults.
        """
        base, strategy = ColocationStrategy(enable=True), ColocationStrategy.of_settings(settings)
        defaults = structs.asdict(base)
        changed = {name: value for name, value in structs.asdict(strategy).items() if value != defaults[name]}
        return cls(base, StrategyLayer("settings recommender.reclaimable", changed))

    @classmethod
    def parse(cls, text: str) -> ColocationConfig:
        """The ConfigMap's key `colocation-config`; SettingsError names what is wrong, with its range."""
        layers = _layers(text, CONFIG_KEY)
        entries = (Entry(e.name or str(i), e.selector, _attributes(e.values)) for i, e in enumerate(layers.entries))
        cluster = StrategyLayer(f"ConfigMap {CONFIG_KEY}", _attributes(layers.cluster))
        return cls(cluster=cluster, entries=tuple(entries))

    def resolve(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Resolved:
        """The strategy of a node with these labels and annotations; undecodable values are ignored and noted."""
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
        """Equal for two nodes only if `resolve` gives them the same."""
        index = next((i for i, e in enumerate(self.entries) if e.selector.matches(labels)), -1)
        return index, annotations.get(COLOCATION_STRATEGY_ANNOTATION), *(labels.get(label) for label in RATIO_LABELS)


def _layers(text: str, what: str) -> Layers:
    """The text of a colocation-config, as the webhook reads it; SettingsError names value, range and fix."""
    layers, findings = parse(SloKey.COLOCATION, text)
    if layers is None:
        finding = next(finding for finding in findings if finding.fatal)
        raise SettingsError(f"{what}: {finding.deviation}", fix=finding.fix)
    return layers


def _attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Attribute -> value of the strategy's keys in a layer; an empty midReclaimMode is the default's."""
    form = msgspec.convert(values, CONFIG_FORM)
    attributes = {attribute: getattr(form, attribute) for attribute, key in KEY_OF.items() if key in values}
    if attributes.get("mid_mode") == "":
        attributes["mid_mode"] = "dynamic"
    return attributes


def _annotation(annotations: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return the values that the node's annotation sets, and notes.

    The entire annotation is ignored, with a note, if any part of it is wrong.
    """
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
    """Percent of a node label such as "0.65": int(value * 100), cut as upstream; None for no ratio from 0 to 10."""
    try:
        scaled = float(text) * 100 if "_" not in text else math.nan
    except ValueError:
        return None
    return int(scaled) if math.isfinite(scaled) and 0 <= scaled <= MOST_PERCENT else None
