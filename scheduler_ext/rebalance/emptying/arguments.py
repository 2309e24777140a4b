"""Arguments of HighNodeLoad, and of upstream's HighNodeUtilization where they fit. Pure.

HighNodeLoad is ours and written as Koordinator writes its plugins: an entry of `pluginConfig` in a
DeschedulerConfiguration, or HighNodeLoadArgs alone. HighNodeUtilization (kubernetes-sigs/descheduler) is read from a
DeschedulerPolicy; its thresholds are of requests, ours are of usage, which a warning says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.struct_validation import deviations
from cotenant.scheduler_ext.rebalance.arguments import (
    CONTROLLER,
    EMPTYING_PLUGIN,
    EMPTYING_PLUGINS,
    PLUGIN,
    UPSTREAM_PLUGIN,
    Count,
    Namespaces,
    PodSelector,
    ResourcePercents,
    RoundArgs,
    complete_configuration,
    low_above_high_problems,
    migration_of,
    plugin_configs,
    refuse,
    unreadable_selector,
)

DEFAULT_LOW: Final = ResourcePercents(35, 50)
DEFAULT_HIGH: Final = ResourcePercents(65, 80)


class HighNodeLoadArgs(msgspec.Struct, frozen=True, rename="camel"):
    """Arguments of the plugin HighNodeLoad. Thresholds in percent of capacity; a resource not named counts 100 %."""

    api_version: str = ""
    kind: Literal["", "HighNodeLoadArgs"] = ""
    paused: bool = False
    number_of_nodes: Count = 0
    max_emptying_nodes: Count = 1
    node_metric_expiration_seconds: Count = 180
    node_selector: dict[str, Any] | None = None
    evictable_namespaces: Namespaces = Namespaces()
    pod_selectors: list[PodSelector] = []
    low_thresholds: ResourcePercents = DEFAULT_LOW
    high_thresholds: ResourcePercents = DEFAULT_HIGH


@dataclass(frozen=True, slots=True)
class EmptyingArgs(RoundArgs):
    """Arguments of rounds of HighNodeLoad."""

    high_node_load: HighNodeLoadArgs


DEFAULT_EMPTYING: Final = EmptyingArgs(HighNodeLoadArgs(evictable_namespaces=Namespaces(exclude=["kube-system"])))


class _UpstreamThresholds(ResourcePercents, frozen=True):
    pods: float | None = None


class _UpstreamArgs(msgspec.Struct, frozen=True, rename="camel"):
    thresholds: _UpstreamThresholds = _UpstreamThresholds()
    number_of_nodes: Count = 0
    evictable_namespaces: Namespaces = Namespaces()
    api_version: str = ""
    kind: str = ""


def emptying_configured(document: Mapping[str, Any]) -> EmptyingArgs:
    """Arguments of a configuration in the settings; the defaults for one that has LowNodeLoad alone."""
    if not document or document.get("kind") == "LowNodeLoadArgs" or not {"kind", "profiles"} & document.keys():
        return DEFAULT_EMPTYING
    return emptying_arguments_of(
        complete_configuration(document, EMPTYING_PLUGINS, DEFAULT_EMPTYING.high_node_load, (PLUGIN,))
    )


def emptying_arguments_of(document: Any) -> EmptyingArgs:
    """Arguments of a parsed YAML or JSON document. UsageError names every value that cannot be used."""
    plugins = plugin_configs(document, "HighNodeLoadArgs", (*EMPTYING_PLUGINS, CONTROLLER))
    path, load = plugins.get(EMPTYING_PLUGIN, ("", None))
    if load is None:
        return _of_upstream(document, plugins)
    migration, warnings = migration_of(document, plugins, list(deviations(load, HighNodeLoadArgs, path)))
    arguments = msgspec.convert(load, HighNodeLoadArgs)
    problems = low_above_high_problems(f"{path}.lowThresholds", arguments.low_thresholds, arguments.high_thresholds)
    problems += unreadable_selector(arguments.node_selector, f"{path}.nodeSelector")
    for number, selector in enumerate(arguments.pod_selectors):
        problems += unreadable_selector(selector.selector, f"{path}.podSelectors[{number}].selector")
    refuse(problems)
    return EmptyingArgs(arguments, migration=migration, warnings=tuple(warnings))


def _of_upstream(document: Any, plugins: dict[str, tuple[str, Any]]) -> EmptyingArgs:
    """HighNodeUtilization's thresholds as low thresholds of usage; the high ones are ours."""
    if UPSTREAM_PLUGIN not in plugins:
        raise UsageError(
            "the configuration has no arguments of the plugin HighNodeLoad",
            fix="Give a pluginConfig entry named HighNodeLoad or HighNodeUtilization, or HighNodeLoadArgs.",
        )
    path, args = plugins[UPSTREAM_PLUGIN]
    migration, warnings = migration_of(document, plugins, list(deviations(args, _UpstreamArgs, path)))
    upstream = msgspec.convert(args, _UpstreamArgs)
    low = ResourcePercents(upstream.thresholds.cpu, upstream.thresholds.memory)
    refuse(low_above_high_problems(f"{path}.thresholds", low, DEFAULT_HIGH))
    warnings.append(f"{path}.thresholds apply to requests upstream; here they are compared with usage and its forecast")
    if upstream.thresholds.pods is not None:
        warnings.append(f"{path}.thresholds.pods is not looked at")
    arguments = HighNodeLoadArgs(
        number_of_nodes=upstream.number_of_nodes, evictable_namespaces=upstream.evictable_namespaces, low_thresholds=low
    )
    return EmptyingArgs(arguments, migration=migration, warnings=tuple(warnings))
