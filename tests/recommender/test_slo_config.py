"""slo-controller-config: no text crashes the reading, one bad key harms no other, layers win in their order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.colocation.colocation_strategy import CONFIG_FORM
from cotenant.base.errors import SettingsError
from cotenant.base.json_documents.struct_validation import merge_objects
from cotenant.recommender.colocation.model.slo_config import SloConfig, origins, parse
from cotenant.recommender.colocation.model.slo_forms import FORMS, SATISFACTION, SloKey
from cotenant.recommender.colocation.strategy import ColocationConfig

THRESHOLDS, BURST, SYSTEM = SloKey.THRESHOLDS, SloKey.CPU_BURST, SloKey.SYSTEM
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("clusterStrategy", "nodeStrategies", "nodeConfigs", "nodeSelector", "matchLabels", "enable"),
                    *("policy", "applications", "lsClass", "cpuQOS", "ratioModel", "cgroupPath", "resctrlQOS", "x"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def texts(**keys: Any) -> dict[str, str]:
    """Data of a ConfigMap; `thresholds=...` and so on by the members of SloKey."""
    return {SloKey[name.upper()].value: json.dumps(value) for name, value in keys.items()}


@pytest.mark.slow
@given(st.sampled_from(list(SloKey)), JSON.map(json.dumps) | st.text(max_size=40) | st.binary(max_size=20).map(repr))
@settings(max_examples=400, deadline=None)
def test_no_text_makes_the_reading_fail(key: SloKey, text: str) -> None:
    layers, findings = parse(key, text)
    assert (layers is None) is any(f.fatal for f in findings)
    config = SloConfig().updated({key.value: text})
    for labels in ({}, {"pool": "gpu"}):
        config.values(key, config.first_match(key, labels))


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "null", '"\ud800"', "9" * 10_000, "[]", '{"clusterStrategy": []}', "x" * 2**21]
)
def test_a_text_that_is_no_object_of_json_is_said_so(text: str) -> None:
    layers, findings = parse(THRESHOLDS, text)
    assert layers is None and [f.fatal for f in findings] == [True]
    assert len(str(findings[0])) < 400


GOOD = texts(
    thresholds={"clusterStrategy": {"enable": True, "memoryEvictThresholdPercent": 60}},
    cpu_burst={"clusterStrategy": {"policy": "auto"}},
)


@given(JSON.map(json.dumps) | st.text(max_size=30))
@settings(max_examples=150, deadline=None)
def test_a_bad_key_keeps_its_last_good_value_and_harms_no_other(text: str) -> None:
    before = SloConfig().updated(GOOD)
    after = before.updated({**GOOD, THRESHOLDS.value: text, **texts(system={"clusterStrategy": {}})})
    if parse(THRESHOLDS, text)[0] is None:
        assert after.layers[THRESHOLDS] == before.layers[THRESHOLDS]
        assert [f.kept for f in after.findings if f.fatal] == [True] * len([f for f in after.findings if f.fatal])
    assert after.values(BURST, None)["policy"] == "auto"
    assert not after.unread
    assert after.updated(GOOD) == before  # and it heals


def test_a_key_that_was_never_good_is_unread_and_one_that_is_gone_is_built_in() -> None:
    bad = SloConfig().updated({THRESHOLDS.value: "{"})
    assert bad.unread == {THRESHOLDS} and not bad.findings[0].kept
    assert SloConfig().updated(GOOD).updated({}).values(BURST, None) == dict(FORMS[BURST].built_in)
    assert SloConfig().updated(GOOD).updated(None).values(THRESHOLDS, None)["memoryEvictThresholdPercent"] == 70


def test_the_same_data_gives_the_same_object() -> None:
    config = SloConfig().updated(GOOD)
    assert config.updated(dict(GOOD)) is config


FIELDS = {"cpuBurstPercent": st.integers(0, 10_000), "sharePoolThresholdPercent": st.integers(0, 100)}
LAYER = st.fixed_dictionaries({}, optional=FIELDS)


@given(
    LAYER, st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), LAYER), max_size=4), st.sampled_from(["a", "b", "z"])
)
@settings(max_examples=150, deadline=None)
def test_the_first_matching_entry_wins_over_the_cluster_and_that_over_the_built_in(
    cluster: dict[str, int], entries: list[tuple[str, dict[str, int]]], pool: str
) -> None:
    listed = [{"nodeSelector": {"matchLabels": {"pool": p}}, **values} for p, values in entries]
    config = SloConfig().updated(texts(cpu_burst={"clusterStrategy": cluster, "nodeStrategies": listed}))
    assert not config.findings
    first = next((values for p, values in entries if p == pool), {})
    # plain restatement: each field from the highest layer that sets it
    expected = {**FORMS[BURST].built_in, **cluster, **first}
    assert config.values(BURST, config.first_match(BURST, {"pool": pool})) == expected


def test_objects_are_merged_inside_and_lists_replaced_whole() -> None:
    assert merge_objects({"a": {"x": 1, "y": 2}, "l": [1, 2]}, {"a": {"y": 3}, "l": [4]}) == {
        "a": {"x": 1, "y": 3},
        "l": [4],
    }
    data = texts(
        classes={
            "clusterStrategy": {"beClass": {"cpuQOS": {"enable": True}}},
            "nodeStrategies": [{"nodeSelector": {}, "beClass": {"cpuQOS": {"groupIdentity": 0}}}],
        }
    )
    config = SloConfig().updated(data)
    quality = config.values(SloKey.CLASSES, config.first_match(SloKey.CLASSES, {}))["beClass"]["cpuQOS"]
    assert quality == {"enable": True, "groupIdentity": 0, "schedIdle": 0, "coreExpeller": False}


def test_a_null_is_not_set_but_never_widens_a_selector() -> None:
    layers, _ = parse(BURST, '{"clusterStrategy": {"policy": null}, "nodeStrategies": null}')
    assert layers is not None and layers.cluster == {} and layers.entries == ()
    entry = '{"nodeStrategies": [{"nodeSelector": {"matchLabels": {"pool": null}}}]}'
    assert parse(BURST, entry)[0] is None


def test_an_entry_without_a_selector_is_in_force_nowhere_and_an_empty_one_everywhere() -> None:
    layers, findings = parse(BURST, '{"nodeStrategies": [{"policy": "auto"}, {"nodeSelector": {}}]}')
    assert layers is not None and layers.first_match({"any": "node"}) == 1
    assert [f.fatal for f in findings] == [False] and "has no effect" in str(findings[0])


@pytest.mark.parametrize(
    ("key", "value", "path", "phrase"),
    [
        (THRESHOLDS, {"clusterStrategy": {"enable": 1}}, "$.clusterStrategy.enable", "true or false"),
        (
            THRESHOLDS,
            {"nodeStrategies": [{"nodeSelector": {}, "cpuSuppressThresholdPercent": 101}]},
            "$.nodeStrategies[0].cpuSuppressThresholdPercent",
            "0 to 100",
        ),
        (
            THRESHOLDS,
            {"clusterStrategy": {"memoryEvictLowerPercent": 70}},
            "$.clusterStrategy.memoryEvictLowerPercent",
            "not below memoryEvictThresholdPercent, which is 70",
        ),
        (
            SloKey.CLASSES,
            {"clusterStrategy": {"beClass": {"resctrlQOS": {"catRangeStartPercent": 30}}}},
            "$.clusterStrategy.beClass.resctrlQOS.catRangeStartPercent",
            "which is 30",
        ),
        (
            SloKey.HOST_APPLICATIONS,
            {"applications": [{"name": "nginx", "cgroupPath": {"relativePath": "a/../../x"}}]},
            "$.applications[0].cgroupPath.relativePath",
            "points outside of the cgroups' base",
        ),
        (
            SloKey.HOST_APPLICATIONS,
            {"nodeConfigs": [{"nodeSelector": {}, "applications": [{"name": "a"}, {"name": "a"}]}]},
            "$.nodeConfigs[0].applications[1].name",
            "another application too",
        ),
        # labels as in a pod's spec, and a misspelt field: Kubernetes would read neither, and select every node
        *(
            (
                SloKey.COLOCATION,
                {"nodeConfigs": [{"nodeSelector": {name: value}, "cpuReclaimThresholdPercent": 50}]},
                f"$.nodeConfigs[0].nodeSelector.{name}",
                "not a field of a label selector",
            )
            for name, value in (("pool", "batch"), ("matchLabel", {"pool": "batch"}))
        ),
        (SloKey.COLOCATION, {"resourceDiffThreshold": 0}, "$.resourceDiffThreshold", "above 0"),
        (SloKey.COLOCATION, {"midCPUThresholdPercent": 101}, "$.midCPUThresholdPercent", "0 to 100"),
        (
            SloKey.COLOCATION,
            {"metricAggregatePolicy": {"durations": ["5 minutes"]}},
            "$.metricAggregatePolicy.durations[0]",
            "does not match",
        ),
        (
            SloKey.CPU_NORMALIZATION,
            {"ratioModel": {"Xeon 8": {"baseRatio": 0.5}}},
            "$.ratioModel['Xeon 8'].baseRatio",
            "1",
        ),
        (
            SloKey.AMPLIFICATION,
            {"resourceAmplificationRatio": {"cpu": "2"}},
            "$.resourceAmplificationRatio.cpu",
            "number",
        ),
        (SYSTEM, {"clusterStrategy": {"watermarkScaleFactor": 401}}, "$.clusterStrategy.watermarkScaleFactor", "400"),
    ],
)
def test_a_bad_value_is_named_with_its_path(key: SloKey, value: Any, path: str, phrase: str) -> None:
    layers, findings = parse(key, json.dumps(value))
    assert layers is None
    assert [f.deviation.path for f in findings] == [path]
    assert phrase in str(findings[0]) and path in findings[0].fix


def test_all_bad_values_of_a_key_are_named_at_once_and_a_misspelt_field_with_its_likely_name() -> None:
    _, findings = parse(BURST, '{"clusterStrategy": {"policy": "automatic", "cpuBurstPercent": -1, "polic": 1}}')
    assert [f.fatal for f in findings] == [True, True, False]
    assert str(findings[2]).endswith("is not a known field; do you mean policy?")


@pytest.mark.parametrize(
    ("key", "text", "phrase"),
    [
        (
            BURST,
            '{"clusterStrategie": {"cpuBurstPercent": 1}}',
            '$.clusterStrategie: {"cpuBurstPercent": 1} is not a known field; do you mean clusterStrategy?',
        ),
        (
            BURST,
            '{"nodeStrategies": [{"nodeSelector": {}, "cpuBurstPercnt": 1}]}',
            "$.nodeStrategies[0].cpuBurstPercnt: 1 is not a known field; do you mean cpuBurstPercent?",
        ),
        (
            SloKey.COLOCATION,
            '{"nodeConfigs": [{"nodeSelector": {}, "enabel": true}]}',
            "$.nodeConfigs[0].enabel: true is not a known field; do you mean enable?",
        ),
        (
            SloKey.COLOCATION,
            '{"nodeConfig": [{"nodeSelector": {}, "enable": true}]}',
            "is not a known field; do you mean nodeConfigs? The rest of the configuration key is in effect.",
        ),
        (
            THRESHOLDS,
            '{"enable": true}',
            "$.enable: true is not a known field. The rest of the configuration key is in effect. "
            "Move $.enable into $.clusterStrategy.",
        ),
    ],
)
def test_an_unknown_key_is_noticed_wherever_it_stands(key: SloKey, text: str, phrase: str) -> None:
    layers, (finding,) = parse(key, text)
    assert layers is not None and not finding.fatal
    assert phrase in finding.advice


@pytest.mark.parametrize(
    ("key", "text", "phrase"),
    [
        (SloKey.COLOCATION, '{"enable": true, "enable": false}', "$.enable: false is the last of several"),
        (
            THRESHOLDS,
            '{"clusterStrategy": {"enable": true}, "clusterStrategy": {"cpuSuppressPolicy": "cpuset"}}',
            '$.clusterStrategy: {"cpuSuppressPolicy": "cpuset"} is the last of several',
        ),
        (
            SloKey.COLOCATION,
            '{"nodeConfigs": [{"nodeSelector": {}}, {"nodeSelector": {"matchLabels": {"a": "b", "a": "c"}}}]}',
            "$.nodeConfigs[1].nodeSelector.matchLabels.a: 'c' is the last of several",
        ),
    ],
)
def test_a_member_that_is_written_twice_is_noticed_wherever_it_stands(key: SloKey, text: str, phrase: str) -> None:
    layers, (finding,) = parse(key, text)
    assert layers is not None and not finding.fatal
    assert phrase in finding.advice and "once" in finding.fix


@pytest.mark.parametrize("key", [SloKey.CPU_NORMALIZATION, SloKey.AMPLIFICATION])
def test_who_switches_on_a_key_that_is_only_checked_is_told_so(key: SloKey) -> None:
    _, (finding,) = parse(key, '{"enable": true}')
    assert not finding.fatal and "has no effect on cotenant's manager" in finding.advice
    assert parse(key, '{"enable": false}')[1] == ()


def test_a_misspelt_key_is_noticed_and_a_foreign_one_is_left_alone() -> None:
    config = SloConfig().updated({"resource-treshold-config": "{}", "vendor-extension": "{"})
    assert [f.key for f in config.findings] == ["resource-treshold-config"]
    assert (
        "do you mean resource-threshold-config? No part of this configuration key is in effect."
        in config.findings[0].advice
    )
    assert not config.findings[0].fatal


def test_the_configuration_of_the_founding_documents_is_in_force() -> None:
    # their ConfigMap: colocation on, suppression on with eviction over 70 % memory; "enable": false switches it off
    documents = texts(
        colocation={"enable": True},
        thresholds={"clusterStrategy": {"enable": True, "memoryEvictThresholdPercent": 70}},
    )
    config = SloConfig().updated(documents)
    assert not config.findings
    assert config.values(THRESHOLDS, None) == {
        "enable": True,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 70,
        "cpuEvictPolicy": "evictByRealLimit",
    }
    off = config.updated({**documents, **texts(thresholds={"clusterStrategy": {"enable": False}})})
    assert off.values(THRESHOLDS, None)["enable"] is False


@given(LAYER, LAYER)
@settings(max_examples=60)
def test_each_value_names_the_highest_layer_that_sets_it(cluster: dict[str, int], own: dict[str, int]) -> None:
    entry = {"name": "mine", "nodeSelector": {}, **own}
    config = SloConfig().updated(texts(cpu_burst={"clusterStrategy": cluster, "nodeStrategies": [entry]}))
    for origin in origins(config, BURST, {}):
        layer = (
            "nodeStrategies[0] mine"
            if origin.field in own
            else "clusterStrategy"
            if origin.field in cluster
            else "built-in"
        )
        assert (origin.layer, origin.value) == (layer, config.values(BURST, 0)[origin.field])


COLOCATION_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 200), st.floats(-1, 2), st.sampled_from(["usage", "static", "", "5m"])
)


@given(
    st.dictionaries(
        st.sampled_from(CONFIG_FORM.__struct_encode_fields__),
        COLOCATION_VALUES,
        max_size=3,
    )
    | st.lists(st.sampled_from(["5m", "1h30m", "", "0s", "5 m", "m", "90"]), max_size=3).map(
        lambda d: {"metricAggregatePolicy": {"durations": d}}
    )
)
@settings(max_examples=200)
def test_colocation_config_is_refused_here_where_its_reader_refuses_it(values: dict[str, Any]) -> None:
    text = json.dumps(values)
    try:
        ColocationConfig.parse(text)
        readable = True
    except SettingsError:
        readable = False
    assert (parse(SloKey.COLOCATION, text)[0] is not None) is readable


@pytest.mark.parametrize(
    ("text", "fatal", "phrases"),
    [
        (
            '{"cpuReclaimThresholdPercent": 1000000000}',
            True,
            (
                "$.cpuReclaimThresholdPercent: 1000000000",
                "1000",
                "Set $.cpuReclaimThresholdPercent to",
            ),
        ),
        (
            '{"memoryReclaimThresholdPercent": 120}',
            False,
            ("$.memoryReclaimThresholdPercent: 120 percent of a node's capacity", "to at most 100"),
        ),
        (
            '{"cpuReclaimTresholdPercent": 50}',
            False,
            ("$.cpuReclaimTresholdPercent: 50", "do you mean cpuReclaimThresholdPercent?", "correct its name"),
        ),
    ],
)
def test_a_slip_in_colocation_config_is_told_with_key_value_unit_and_fix(
    text: str, fatal: bool, phrases: tuple[str, ...]
) -> None:
    (finding,) = SloConfig().updated({"colocation-config": text}).findings
    assert finding.fatal is fatal
    assert all(part in f"{finding} {finding.fix}" for part in phrases), f"{finding} {finding.fix}"


@pytest.mark.parametrize(
    ("policies", "thresholds", "deviations"),
    [
        (
            {"cpuCalculatePolicy": "forecast"},
            {"enable": True, "cpuSuppressThresholdPercent": 65},
            ["cpuSuppressThresholdPercent 65"],
        ),
        (
            {"memoryCalculatePolicy": "forecast"},
            {"enable": True, "memoryEvictThresholdPercent": 70},
            ["memoryEvictThresholdPercent 70"],
        ),
        ({"cpuCalculatePolicy": "forecast"}, {"enable": True}, []),
        ({"cpuCalculatePolicy": "forecast"}, {"enable": True, "cpuSuppressThresholdPercent": 95}, []),
        ({"cpuCalculatePolicy": "forecast"}, {"enable": False}, []),
        ({"cpuCalculatePolicy": "usage"}, {"enable": True}, []),
    ],
)
def test_thresholds_that_take_back_what_a_forecast_lends_are_noticed(
    policies: dict[str, str], thresholds: dict[str, Any], deviations: list[str]
) -> None:
    data = texts(colocation={"enable": True, **policies}, thresholds={"clusterStrategy": thresholds})
    config = SloConfig().updated(data)
    assert [f"{f.deviation.path.split('.')[-1]} {f.deviation.value}" for f in config.findings] == deviations
    assert not any(f.fatal for f in config.findings) and not config.unread


@pytest.mark.parametrize(
    ("colocation", "labels", "expected"),
    [
        ({}, {}, (65, 70)),
        ({"cpuCalculatePolicy": "maxUsageRequest", "memoryCalculatePolicy": "request"}, {}, (65, 70)),
        ({"cpuCalculatePolicy": "forecast"}, {}, (95, 70)),
        ({"cpuCalculatePolicy": "forecast", "memoryCalculatePolicy": "forecast"}, {}, (95, 95)),
        # nothing is lent: batch pods that still run are held by Koordinator's values
        ({"enable": False, "cpuCalculatePolicy": "forecast", "memoryCalculatePolicy": "forecast"}, {}, (65, 70)),
        # of a node whose entry has another policy, that one counts
        ({"cpuCalculatePolicy": "forecast", "nodeConfigs": [
            {"name": "old", "nodeSelector": {"matchLabels": {"pool": "old"}}, "cpuCalculatePolicy": "usage"}
        ]}, {"pool": "old"}, (65, 70)),
    ],
)  # fmt: skip
def test_thresholds_that_nobody_sets_follow_the_policy_of_the_node(
    colocation: dict[str, Any], labels: dict[str, str], expected: tuple[int, int]
) -> None:
    config = SloConfig().updated(texts(colocation={"enable": True, **colocation}))
    in_force = {o.field: o for o in origins(config, SloKey.THRESHOLDS, labels)}
    both = in_force["cpuSuppressThresholdPercent"], in_force["memoryEvictThresholdPercent"]
    assert tuple(o.value for o in both) == expected
    # Koordinator's 65 and 70 are built in; what differs from them came of the policy
    assert [o.layer == "policy forecast" for o in both] == [value == 95 for value in expected]


def test_a_threshold_that_is_set_stays_under_policy_forecast() -> None:
    data = texts(
        colocation={"enable": True, "cpuCalculatePolicy": "forecast"},
        thresholds={"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 80}},
    )
    config = SloConfig().updated(data)
    assert config.values(SloKey.THRESHOLDS, None)["cpuSuppressThresholdPercent"] == 80


def test_a_node_may_be_filled_whole_without_a_word() -> None:
    assert SloConfig().updated({"colocation-config": '{"cpuReclaimThresholdPercent": 100}'}).findings == ()


def network(**shares: tuple[int | str, int | str]) -> dict[str, Any]:
    """Classes with their request and limit of ingress."""
    return {
        name: {"networkQOS": {"enable": True, "ingressRequest": request, "ingressLimit": limit}}
        for name, (request, limit) in shares.items()
    }


@pytest.mark.parametrize(
    ("key", "values", "phrase"),
    [
        # 60 + 50 + 10 percent of one network
        (SloKey.CLASSES, network(lsrClass=(60, 100), lsClass=(50, 100), beClass=(10, 20)), "is 120 percent"),
        (SloKey.CLASSES, network(lsrClass=(60, 100), lsClass=(40, 100), beClass=("50M", 0)), ""),
        (SloKey.CLASSES, network(lsClass=(30, 20)), "is above ingressLimit, which is 20 here"),
        (SloKey.CLASSES, network(lsClass=(30, 0)), ""),  # 0 is no limit
        (THRESHOLDS, {"cpuEvictBESatisfactionLowerPercent": 40}, "effect without cpuEvictBESatisfactionUpperPercent"),
        (THRESHOLDS, {"cpuEvictBESatisfactionUpperPercent": 40}, "effect without cpuEvictBESatisfactionLowerPercent"),
        (THRESHOLDS, {SATISFACTION[0]: 40, SATISFACTION[1]: 60}, ""),
        (THRESHOLDS, {"memoryAllocatableEvictLowerPercent": 40}, "without memoryAllocatableEvictThresholdPercent"),
        (THRESHOLDS, {"cpuEvictLowerPercent": 40}, "has no effect without cpuEvictThresholdPercent"),
        (THRESHOLDS, {"memoryEvictLowerPercent": 40}, ""),  # a threshold of 70 is built in
    ],
)
def test_values_that_do_nothing_alone_or_promise_too_much_together_are_noticed(
    key: SloKey, values: dict[str, Any], phrase: str
) -> None:
    _, findings = parse(key, json.dumps({"clusterStrategy": values}))
    assert not any(finding.fatal for finding in findings)
    assert [phrase in finding.advice for finding in findings] == ([True] if phrase else [])
