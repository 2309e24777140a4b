"""Arguments of HighNodeLoad, and those of upstream's HighNodeUtilization that apply. Pure.

HighNodeLoad is cotenant's plugin, configured like Koordinator's plugins: an entry of `pluginConfig` in a
DeschedulerConfiguration, or HighNodeLoadArgs alone. HighNodeUtilization (kubernetes-sigs/descheduler) is read from a
DeschedulerPolicy; there its thresholds limit requests, here usage, as a warning says.
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
    """Arguments of the plugin HighNodeLoad. Thresholds are percent of capacity; one that is not set is 100 %."""

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
    """Arguments of rounds of HighNodeLoad, which empties under-used nodes."""

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
    """Return the arguments of a configuration in the settings, or the defaults if it has only LowNodeLoad."""
    if not document or document.get("kind") == "LowNodeLoadArgs" or not {"kind", "profiles"} & document.keys():
        return DEFAULT_EMPTYING
    return emptying_arguments_of(
        complete_configuration(document, EMPTYING_PLUGINS, DEFAULT_EMPTYING.high_node_load, (PLUGIN,))
    )


def emptying_arguments_of(document: Any) -> EmptyingArgs:
    """Parse a configuration from decoded YAML or JSON; raise a UsageError that names every invalid value."""
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
    """Return arguments with HighNodeUtilization's thresholds as low thresholds of usage, and our high thresholds."""
    if UPSTREAM_PLUGIN not in plugins:
        raise UsageError(
            "the configuration has no arguments of the plugin HighNodeLoad",
            fix="Give a HighNodeLoadArgs object, or a DeschedulerConfiguration with a pluginConfig entry "
            "HighNodeLoad or HighNodeUtilization.",
        )
    path, args = plugins[UPSTREAM_PLUGIN]
    migration, warnings = migration_of(document, plugins, list(deviations(args, _UpstreamArgs, path)))
    upstream = msgspec.convert(args, _UpstreamArgs)
    low = ResourcePercents(upstream.thresholds.cpu, upstream.thresholds.memory)
    refuse(low_above_high_problems(f"{path}.thresholds", low, DEFAULT_HIGH))
    warnings.append(f"{path}.thresholds limit requests upstream; in cotenant they limit usage and its forecast")
    if upstream.thresholds.pods is not None:
        warnings.append(f"{path}.thresholds.pods has no effect")
    arguments = HighNodeLoadArgs(
        number_of_nodes=upstream.number_of_nodes, evictable_namespaces=upstream.evictable_namespaces, low_thresholds=low
    )
    return EmptyingArgs(arguments, migration=migration, warnings=tuple(warnings))
