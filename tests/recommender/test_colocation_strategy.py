"""Colocation strategies: fields and ranges, who wins for a node, and that a bad word never becomes a number."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.colocation.colocation_strategy import CONFIG_FORM, KEY_OF, ColocationStrategy
from cotenant.base.errors import CotenantError, SettingsError
from cotenant.base.kubernetes.protocol import (
    COLOCATION_STRATEGY_ANNOTATION,
    CPU_RECLAIM_RATIO_LABEL,
    MID_STATIC_CPU_RATIO_LABEL,
)
from cotenant.base.text import format_value
from cotenant.recommender.colocation.strategy import ColocationConfig, percent_of_ratio
from cotenant.recommender.settings import ReclaimableSettings

CLUSTER, ENTRY, ANNOTATION, LABELS = (
    "ConfigMap colocation-config", "nodeConfigs entry big", "node annotation", "node labels",
)  # fmt: skip


def parse(**values: Any) -> ColocationConfig:
    return ColocationConfig.parse(json.dumps(values))


def resolve(config: ColocationConfig, labels: dict[str, str] | None = None, annotation: str | None = None) -> Any:
    return config.resolve(labels or {}, {} if annotation is None else {COLOCATION_STRATEGY_ANNOTATION: annotation})


def test_an_empty_config_gives_koordinators_defaults() -> None:
    strategy = resolve(parse()).strategy
    assert strategy == ColocationStrategy()
    assert (strategy.enable, strategy.cpu_reclaim_percent, strategy.memory_reclaim_percent) == (False, 60, 65)
    assert (strategy.degrade_minutes, strategy.diff_threshold, strategy.update_threshold_seconds) == (15, 0.1, 300)
    assert (strategy.batch_cpu_percent, strategy.mid_cpu_percent, strategy.mid_mode) == (None, 100, "dynamic")


def test_the_settings_and_the_config_map_have_the_same_bounds() -> None:
    # of Koordinator: reclaim percentages have no bound at 100, the caps of batch none at all
    for attribute, value in (
        ("cpu_reclaim_percent", 150),
        ("memory_reclaim_percent", 1000),
        ("batch_cpu_percent", 5000),
    ):
        assert getattr(msgspec.convert({attribute: value}, ReclaimableSettings), attribute) == value
        assert getattr(resolve(parse(**{KEY_OF[attribute]: value})).strategy, attribute) == value
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"cpu_reclaim_percent": 1001}, ReclaimableSettings)


def test_every_key_of_koordinators_is_read() -> None:
    collected = {"metricAggregateDurationSeconds", "metricReportIntervalSeconds", "metricMemoryCollectPolicy"}
    assert {*KEY_OF.values(), *collected, "metricAggregatePolicy", "extensions"} == set(
        CONFIG_FORM.__struct_encode_fields__
    )
    assert len(KEY_OF) == len(set(KEY_OF.values())) == 19


def test_windows_that_are_not_said_are_no_error() -> None:
    # the webhook took an empty object, and the reader refused the whole ConfigMap
    assert resolve(parse(enable=True, metricAggregatePolicy={})).strategy.enable


def test_each_layer_wins_over_those_below_field_by_field() -> None:
    config = parse(
        enable=True, cpuReclaimThresholdPercent=50, memoryReclaimThresholdPercent=51, degradeTimeMinutes=5,
        nodeConfigs=[
            {"name": "none", "cpuReclaimThresholdPercent": 1},
            {"name": "big", "nodeSelector": {"matchLabels": {"pool": "big"}}, "cpuReclaimThresholdPercent": 60,
             "memoryReclaimThresholdPercent": 61},
            {"name": "late", "nodeSelector": {}, "cpuReclaimThresholdPercent": 2, "degradeTimeMinutes": 2},
        ],
    )  # fmt: skip
    labels = {"pool": "big", CPU_RECLAIM_RATIO_LABEL: "0.9"}
    resolved = resolve(config, labels, '{"cpuReclaimThresholdPercent": 70, "midCPUThresholdPercent": 30}')
    strategy = resolved.strategy
    assert (strategy.cpu_reclaim_percent, resolved.origin("cpu_reclaim_percent")) == (90, LABELS)
    assert (strategy.mid_cpu_percent, resolved.origin("mid_cpu_percent")) == (30, ANNOTATION)
    assert (strategy.memory_reclaim_percent, resolved.origin("memory_reclaim_percent")) == (61, ENTRY)
    assert (strategy.degrade_minutes, resolved.origin("degrade_minutes")) == (
        5,
        CLUSTER,
    )  # "late" is not the first match
    assert (strategy.cpu_policy, resolved.origin("cpu_policy")) == ("usage", "default")
    # a node outside of the pool takes the entry that selects all; an entry without a selector selects nothing
    assert resolve(config).strategy.cpu_reclaim_percent == 2


@pytest.mark.parametrize("text", ["{", "[]", "3", "null", '{"cpuReclaimThresholdPercent": -1}', "[" * 100_000])
def test_an_annotation_that_cannot_be_used_is_ignored_whole_and_noted(text: str) -> None:
    resolved = resolve(parse(enable=True), None, text)
    assert resolved.strategy == ColocationStrategy(enable=True)
    assert len(resolved.notes) == 1
    assert COLOCATION_STRATEGY_ANNOTATION in resolved.notes[0]


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ('{"cpuReclaimTresholdPercent": 40}', "do you mean cpuReclaimThresholdPercent?"),
        ('{"enable": true, "enable": false}', "is the last of several values of this member"),
        ('{"cpuReclaimThresholdPercent": 140}', "is more than the whole node"),
    ],
)
def test_a_slip_in_an_annotation_that_can_be_used_is_noted(text: str, phrase: str) -> None:
    (note,) = resolve(parse(enable=True), None, text).notes
    assert COLOCATION_STRATEGY_ANNOTATION in note and phrase in note


def test_a_bad_ratio_label_is_ignored_alone_and_noted() -> None:
    resolved = resolve(parse(), {CPU_RECLAIM_RATIO_LABEL: "-0.5", MID_STATIC_CPU_RATIO_LABEL: "0.2"})
    assert (resolved.strategy.cpu_reclaim_percent, resolved.strategy.mid_static_cpu_percent) == (60, 20)
    assert len(resolved.notes) == 1 and "'-0.5'" in resolved.notes[0]


@pytest.mark.parametrize(
    ("text", "percent"),
    # 0.29 * 100 is 28.999999999999996 in a double, and is cut
    [("0.65", 65), ("0.29", 28), ("0", 0), ("1.5", 150), ("1e-3", 0), ("", None), ("a", None), ("-0.1", None),
     ("inf", None), ("nan", None), ("1_0", None), ("1e300", None)],
)  # fmt: skip
def test_a_ratio_becomes_a_percentage_cut_to_a_whole_number(text: str, percent: int | None) -> None:
    assert percent_of_ratio(text) == percent


@pytest.mark.parametrize(
    ("key", "value", "phrase"),
    [
        ("cpuReclaimThresholdPercent", -1, "a whole number from 0 to 1000"),
        ("cpuReclaimThresholdPercent", 60.0, "a whole number from 0 to 1000"),
        ("cpuReclaimThresholdPercent", True, "a whole number from 0 to 1000"),
        ("cpuReclaimThresholdPercent", 10**400, "a whole number from 0 to 1000"),
        ("midCPUThresholdPercent", 101, "a whole number from 0 to 100"),
        ("degradeTimeMinutes", 0, "a whole number from 1"),
        ("resourceDiffThreshold", 0, "a number above 0 up to 1"),
        ("resourceDiffThreshold", 1.01, "a number above 0 up to 1"),
        ("cpuCalculatePolicy", "request", "not one of forecast, maxUsageRequest, usage"),
        ("memoryCalculatePolicy", ["usage"], "not one of forecast, maxUsageRequest, request, usage"),
        ("midReclaimMode", "fixed", "dynamic, static"),
        ("metricMemoryCollectPolicy", "all", "usageWithoutPageCache"),
        ("metricAggregatePolicy", {"durations": ["5x"]}, "durations[0]"),
        ("metricAggregatePolicy", {"durations": ["0s"]}, "durations[0]"),
        ("metricAggregatePolicy", {"durations": ["24h", "24h0m1s"]}, "durations[1]"),
        ("metricAggregatePolicy", {"durations": ["1441m"]}, "is longer than 24h0m0s"),
        ("metricAggregateDurationSeconds", 86_401, "a whole number from 1 to 86400"),
        ("metricReportIntervalSeconds", 86_401, "a whole number from 1 to 86400"),
        ("enable", "yes", "true or false"),
    ],
)
def test_a_value_outside_its_range_is_refused_with_key_value_and_range(key: str, value: Any, phrase: str) -> None:
    for config, place in (({key: value}, "colocation-config"), ({"nodeConfigs": [{key: value}]}, "nodeConfigs[0]")):
        with pytest.raises(SettingsError) as refused:
            parse(**config)
        bad = value["durations"][-1] if isinstance(value, dict) else value
        assert all(word in refused.value.message for word in (place, key, format_value(bad)[:20], phrase))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"nodeConfigs": {}}',
        '{"nodeConfigs": [3]}',
        '{"nodeConfigs": [{"nodeSelector": {"matchExpressions": [{"key": "a"}]}}]}',
    ],
)
def test_a_config_that_is_no_config_is_refused(text: str) -> None:
    with pytest.raises(CotenantError, match="colocation-config"):
        ColocationConfig.parse(text)


def test_unknown_fields_and_nulls_are_left_alone() -> None:
    assert resolve(parse(enable=True, newField={"a": 1}, cpuReclaimThresholdPercent=None)).strategy.enable


def test_the_settings_stand_in_for_the_config_map_and_only_their_own_words_are_named() -> None:
    resolved = resolve(ColocationConfig.of_settings(ReclaimableSettings(cpu_reclaim_percent=70)))
    assert resolved.strategy == ColocationStrategy(enable=True, cpu_reclaim_percent=70)
    assert resolved.origin("cpu_reclaim_percent") == "settings recommender.reclaimable"
    assert resolved.origin("memory_reclaim_percent") == "default"


json_values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.integers())
configs = st.dictionaries(st.sampled_from([*CONFIG_FORM.__struct_encode_fields__, "other"]), json_values, max_size=6)


@given(configs, st.lists(configs, max_size=2), st.none() | configs | st.text(max_size=12), st.text(max_size=6))
@settings(max_examples=150, deadline=None)
def test_any_config_is_refused_in_words_or_gives_a_strategy_within_its_ranges(
    cluster: dict[str, Any], entries: list[dict[str, Any]], annotation: Any, label: str
) -> None:
    text = annotation if isinstance(annotation, str | None) else json.dumps(annotation)
    try:
        config = parse(**cluster, nodeConfigs=[{"nodeSelector": {}, **e} for e in entries])
    except CotenantError as refused:
        assert "colocation-config" in refused.message
        return
    resolved = resolve(config, {CPU_RECLAIM_RATIO_LABEL: label}, text)
    assert msgspec.convert(msgspec.to_builtins(resolved.strategy), ColocationStrategy) == resolved.strategy
    assert hash(resolved.strategy) is not None
    # two nodes of the same key have the same strategy
    assert config.key({CPU_RECLAIM_RATIO_LABEL: label}, {}) == config.key(
        {CPU_RECLAIM_RATIO_LABEL: label, "x": "y"}, {}
    )


def test_a_threshold_beyond_ten_nodes_is_refused_with_its_unit() -> None:
    with pytest.raises(SettingsError) as caught:
        parse(cpuReclaimThresholdPercent=1_000_000_000)
    message = caught.value.message
    assert all(w in message for w in ("cpuReclaimThresholdPercent: 1000000000", "from 0 to 1000"))
    assert resolve(parse(cpuReclaimThresholdPercent=1000)).strategy.cpu_reclaim_percent == 1000
    assert percent_of_ratio("10") == 1000
    assert percent_of_ratio("10000000") is None
