"""Koordinator's own configuration file: defaults, pools, values that are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cotenant.base.errors import UsageError
from cotenant.base.settings.load import load
from cotenant.scheduler_ext.rebalance.arguments import (
    DEFAULT_ARGS,
    LowNodeLoadArgs,
    arguments_from_settings,
    arguments_of,
)
from cotenant.scheduler_ext.rebalance.emptying.arguments import DEFAULT_EMPTYING, emptying_configured
from cotenant.scheduler_ext.rebalance.migration.churn import limit_of
from cotenant.settings import Settings

FILE = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
deschedulingInterval: 60s
profiles:
  - name: koord-descheduler
    plugins: {balance: {enabled: [{name: LowNodeLoad}]}}
    pluginConfig:
      - name: MigrationController
        args:
          apiVersion: descheduler/v1alpha2
          kind: MigrationControllerArgs
          defaultJobMode: ReservationFirst
          maxMigratingPerNode: 1
          evictQPS: "10"
      - name: LowNodeLoad
        args:
          apiVersion: descheduler/v1alpha2
          kind: LowNodeLoadArgs
          evictableNamespaces: {exclude: [kube-system]}
          lowThresholds: {cpu: 20, memory: 30}
          highThresholds: {cpu: 50, memory: 60}
          nodePools:
            - name: large
              nodeSelector: {matchLabels: {size: large}}
              useDeviationThresholds: true
              lowThresholds: {cpu: 10}
              highThresholds: {cpu: 15}
"""


def test_koordinators_file_is_read() -> None:
    read = arguments_of(yaml.safe_load(FILE))
    assert read.migration.max_migrating_per_node == 1
    pools = read.low_node_load.pools()
    assert [(p.name, p.use_deviation_thresholds, p.high_thresholds.cpu) for p in pools] == [
        ("large", True, 15), ("", False, 50),
    ]  # fmt: skip
    assert not read.low_node_load.evictable_namespaces.admit("kube-system")
    assert read.warnings == ()
    in_a_map = {"kind": "ConfigMap", "data": {"koord-descheduler-config": FILE}}
    assert arguments_of(in_a_map) == read


def configuration(own: dict[str, Any], **beside: Any) -> dict[str, Any]:
    """A DeschedulerConfiguration with arguments of the MigrationController and fields beside its profiles."""
    plugins = [{"name": "LowNodeLoad", "args": {}}, {"name": "MigrationController", "args": own}]
    return {"kind": "DeschedulerConfiguration", "profiles": [{"pluginConfig": plugins}], **beside}


def test_limits_beside_the_profiles_hold_where_they_are_lower() -> None:
    own = {"maxMigratingPerNode": 3, "maxMigratingPerNamespace": 1}
    beside = {"maxNoOfPodsToEvictPerNode": 1, "maxNoOfPodsToEvictPerNamespace": 4, "maxNoOfPodsToEvictTotal": 7}
    migration = arguments_of(configuration(own, **beside)).migration
    limits = (migration.max_migrating_per_node, migration.max_migrating_per_namespace, migration.max_migrating_globally)
    assert limits == (1, 1, 7)  # the lower of 3 and 1, of 1 and 4, of none and 7


@pytest.mark.parametrize(
    "document",
    [
        configuration({}, dryRun=True),
        configuration({"dryRun": True}),
        {"kind": "LowNodeLoadArgs", "dryRun": True},
        configuration({}, dryRun="true"),  # as in the settings, where scalars are text
    ],
)
def test_a_dry_run_of_the_file_is_one_wherever_it_stands(document: dict[str, Any]) -> None:
    assert arguments_from_settings(document).is_dry_run
    assert not arguments_from_settings({"kind": "LowNodeLoadArgs"}).is_dry_run


@pytest.mark.parametrize(
    ("document", "field_name"),
    [
        (configuration({"nodeSelector": "tier=old"}), "args.nodeSelector: 'tier=old' has no effect here"),
        (configuration({}, nodeSelector={"matchLabels": {"tier": "old"}}), "$.nodeSelector: {"),
        (configuration({"priorityThreshold": {"name": "mine"}}), "priorityThreshold.name: 'mine' is no built-in"),
        (configuration({}, maxNoOfPodsToEvictTotal=-1), "$.maxNoOfPodsToEvictTotal: -1"),
        (configuration({"maxUnavailablePerWorkload": "1m"}), "args.maxUnavailablePerWorkload: '1m' is neither"),
    ],
)
def test_what_would_hold_moves_back_and_cannot_be_used_is_refused(document: dict[str, Any], field_name: str) -> None:
    for read in (arguments_of, emptying_configured):
        with pytest.raises(UsageError) as refused:
            read(document)
        assert field_name in refused.value.message


def test_defaults_are_koordinators() -> None:
    read = arguments_of({"kind": "LowNodeLoadArgs"})
    load, migration = read.low_node_load, read.migration
    assert (load.number_of_nodes, load.node_metric_expiration_seconds, load.node_fit) == (0, 180, True)
    assert (load.resource_weights.cpu, load.paused, load.detector_cache_timeout) == (1, False, "5m")
    condition = load.anomaly_condition
    assert (condition.timeout, condition.consecutive_abnormalities, condition.consecutive_normalities) == ("1m", 5, 3)
    assert load.high_thresholds.pair(100.0) == (100.0, 100.0)  # a resource missing from the map counts 100 %
    assert (migration.max_migrating_per_node, migration.evict_local_storage_pods) == (2, False)


@pytest.mark.parametrize(
    ("args", "field_name"),
    [
        ({"highThresholds": {"cpu": 120}}, "$.highThresholds.cpu: 120 is not a number from 0 to 100"),
        ({"lowThresholds": {"cpu": 80}, "highThresholds": {"cpu": 70}}, "$.lowThresholds.cpu: 80 % is above"),
        ({"nodeFit": "yes"}, "$.nodeFit: 'yes' is not true or false"),
        ({"detectorCacheTimeout": "5 minutes"}, "$.detectorCacheTimeout: '5 minutes' is not a duration"),
        ({"nodeSelector": {"matchLabels": 3}}, "$.nodeSelector.matchLabels"),
        ({"nodeSelector": {"tier": "old"}}, "$.nodeSelector.tier is no field of a label selector"),
        ({"nodeSelector": {"matchLabel": {"tier": "old"}}}, "$.nodeSelector.matchLabel is no field"),
        ({"nodePools": [{"numberOfNodes": 1, "lowThresholds": 5}]}, "$.nodePools[0].lowThresholds: 5 is not an object"),
    ],
)
def test_a_bad_value_is_named_with_its_place(args: dict[str, Any], field_name: str) -> None:
    with pytest.raises(UsageError) as refused:
        arguments_of({"kind": "LowNodeLoadArgs", **args})
    assert field_name in refused.value.message


def test_all_bad_values_are_named_at_once_and_unknown_keys_are_warnings() -> None:
    with pytest.raises(UsageError) as refused:
        arguments_of({"kind": "LowNodeLoadArgs", "numberOfNodes": -1, "paused": 1})
    assert "$.numberOfNodes" in refused.value.message and "$.paused" in refused.value.message
    read = arguments_of({"kind": "LowNodeLoadArgs", "highTresholds": {"cpu": 70}, "highThresholds": {"gpu": 5}})
    assert len(read.warnings) == 2
    assert "do you mean highThresholds?" in read.warnings[0] and "$.highThresholds.gpu" in read.warnings[1]


def test_a_document_without_the_plugin_is_refused() -> None:
    with pytest.raises(UsageError, match="no arguments of the plugin LowNodeLoad"):
        arguments_of({"kind": "DeschedulerConfiguration", "profiles": []})


@pytest.mark.parametrize(
    ("limit", "replicas", "pods"),
    [
        (None, 1, 1), (None, 3, 1), (None, 4, 2), (None, 10, 2), (None, 11, 1), (None, 40, 4),  # 10 % above 10
        ("10%", 5, 1),  # truncates to 0, becomes 1
        ("50%", 5, 2), (7, 5, 5), (0, 5, 0), ("x", 5, None), ("²%", 5, None),
    ],
)  # fmt: skip
def test_limit_of_a_workload(limit: int | str | None, replicas: int, pods: int | None) -> None:
    assert limit_of(limit, replicas) == pods


def test_a_configuration_in_the_settings_file_says_the_same_as_koordinators_own_file(tmp_path: Path) -> None:
    own = {
        "kind": "LowNodeLoadArgs",
        "paused": True,
        "numberOfNodes": 2,
        "highThresholds": {"cpu": 70.5, "memory": 80},
        "evictableNamespaces": {"exclude": ["kube-system"]},
        "nodeSelector": {"matchLabels": {"dedicated": "true", "generation": "2"}},
    }
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump({"descheduler": {"configuration": own}}))
    settings = load(Settings(), file, {}, {}).settings
    assert arguments_from_settings(settings.descheduler.configuration) == arguments_of(own)


def test_a_duration_of_zero_in_the_settings_stays_a_text() -> None:
    limiter = {"objectLimiters": {"workload": {"duration": "0"}}, "maxMigratingPerNode": "3", "defaultJobTTL": "0"}
    plugins = [{"name": "LowNodeLoad", "args": {}}, {"name": "MigrationController", "args": limiter}]
    migration = arguments_from_settings(
        {"kind": "DeschedulerConfiguration", "profiles": [{"pluginConfig": plugins}]}
    ).migration
    assert migration.object_limiters.workload.duration == migration.default_job_ttl == "0"
    assert migration.max_migrating_per_node == 3


UPSTREAM = {"name": "HighNodeUtilization", "args": {"thresholds": {"cpu": "20", "memory": "30"}}}
"""As in the settings, where scalars are text."""


def test_a_configuration_in_the_settings_that_only_empties_nodes_leaves_low_node_load_its_defaults() -> None:
    policy = {"kind": "DeschedulerPolicy", "profiles": [{"pluginConfig": [UPSTREAM]}]}
    alone = {"kind": "HighNodeLoadArgs", "lowThresholds": {"cpu": "20", "memory": "30"}}
    for document in (policy, alone):
        assert arguments_from_settings(document).low_node_load == DEFAULT_ARGS.low_node_load
        assert emptying_configured(document).high_node_load.low_thresholds.pair(100) == (20, 30)
    with pytest.raises(UsageError, match="no arguments of the plugin LowNodeLoad"):
        arguments_from_settings(
            {"kind": "DeschedulerPolicy", "profiles": [{"pluginConfig": [{"name": "RemoveDuplicates"}]}]}
        )


def test_upstream_thresholds_beside_low_node_load_hold_and_not_the_defaults() -> None:
    load = {"name": "LowNodeLoad", "args": {"highThresholds": {"cpu": "70"}}}
    both = {"kind": "DeschedulerPolicy", "profiles": [{"pluginConfig": [load, UPSTREAM]}]}
    assert emptying_configured(both).high_node_load.low_thresholds.pair(100) == (20, 30)
    assert arguments_from_settings(both).low_node_load.high_thresholds.cpu == 70
    of_load = {"kind": "DeschedulerPolicy", "profiles": [{"pluginConfig": [load]}]}
    assert emptying_configured(of_load).high_node_load == DEFAULT_EMPTYING.high_node_load


def test_a_node_pool_without_thresholds_has_the_plugins() -> None:
    text = {
        "highThresholds": {"cpu": 70},
        "lowThresholds": {"cpu": 40},
        "nodePools": [{"name": "gpu"}, {"name": "own", "highThresholds": {"cpu": 90}, "lowThresholds": {"cpu": 50}}],
    }
    plugin = msgspec.convert(text, LowNodeLoadArgs)
    assert [(p.name, p.high_thresholds.cpu, p.low_thresholds.cpu) for p in plugin.pools()] == [
        ("gpu", 70, 40),
        ("own", 90, 50),
        ("", 70, 40),
    ]
