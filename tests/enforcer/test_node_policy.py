"""The policy of a node: built-in values, ranges, and the JSON of NodeSLO there and back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.text import format_value
from cotenant.enforcer.model.node_policy import Block, IoLimits, MemoryQos, NodePolicy, Thresholds, decode, encode

PERCENTS = st.integers(0, 100)
MAYBE = st.none() | PERCENTS
THRESHOLDS = st.builds(
    Thresholds,
    enable=st.booleans(),
    cpu_suppress_threshold_percent=PERCENTS,
    cpu_suppress_policy=st.sampled_from(["cpuset", "cfsQuota"]),
    memory_evict_threshold_percent=PERCENTS,
    cpu_evict_policy=st.sampled_from(["evictByRealLimit", "evictByAllocatable"]),
    cpu_suppress_min_percent=MAYBE,
    memory_evict_lower_percent=MAYBE,
    cpu_evict_be_usage_threshold_percent=MAYBE,
    evict_enabled_priority_threshold=st.none() | st.integers(-(2**31), 2**31 - 1),
    allocatable_evict_priority_threshold=st.none() | st.integers(0, 7999),
)
MEMORY = st.builds(
    MemoryQos,
    enable=st.booleans(),
    min_limit_percent=PERCENTS,
    low_limit_percent=PERCENTS,
    throttling_percent=PERCENTS,
    wmark_ratio=PERCENTS,
    wmark_scale_permill=st.integers(1, 1000),
    wmark_min_adj=st.integers(-25, 50),
    priority_enable=st.integers(0, 1),
    priority=st.integers(0, 12),
    oom_kill_group=st.integers(0, 1),
    page_cache_enable=st.none() | st.booleans(),
    page_cache_limit_bytes=st.none() | st.integers(0, 2**63 - 1),
)
BLOCKS = st.lists(
    st.builds(
        Block,
        name=st.text(max_size=5),
        type=st.sampled_from(["device", "volumegroup", "podvolume"]),
        limits=st.none()
        | st.builds(IoLimits, read_iops=st.none() | st.integers(0, 9), read_latency_microseconds=st.none() | PERCENTS),
    ),
    max_size=2,
).map(tuple)


@st.composite
def policies(draw: st.DrawFn) -> NodePolicy:
    built_in = decode({})
    classes = built_in.classes
    blkio = msgspec.structs.replace(classes.be_class.blkio_qos, blocks=draw(BLOCKS))
    best_effort = msgspec.structs.replace(classes.be_class, memory_qos=draw(MEMORY), blkio_qos=blkio)
    root = draw(st.none() | st.just(best_effort))
    return msgspec.structs.replace(
        built_in,
        thresholds=draw(THRESHOLDS),
        classes=msgspec.structs.replace(classes, be_class=best_effort, cgroup_root=root),
        extensions=draw(st.none() | st.dictionaries(st.text(max_size=3), st.integers(0, 5), max_size=2)),
    )


@given(policies())
@settings(max_examples=80, deadline=None)
def test_a_policy_survives_the_way_through_json(policy: NodePolicy) -> None:
    text = msgspec.json.encode(encode(policy))
    assert decode(msgspec.json.decode(text)) == policy


def test_an_empty_spec_means_the_built_in_values() -> None:
    policy = decode({})
    assert (policy.thresholds.enable, policy.thresholds.cpu_suppress_threshold_percent) == (False, 65)
    assert policy.thresholds.memory_evict_threshold_percent == 70
    assert policy.classes.ls_class.cpu_qos.group_identity == 2
    assert policy.classes.be_class.cpu_qos.group_identity == -1
    assert policy.classes.be_class.resctrl_qos.cat_range_end_percent == 30
    assert policy.classes.be_class.memory_qos.wmark_min_adj == 50
    assert policy.classes.system_class.memory_qos.wmark_ratio == 0
    assert (policy.cpu_burst.policy, policy.cpu_burst.cfs_quota_burst_percent) == ("none", 300)
    assert (policy.system.watermark_scale_factor, policy.system.total_network_bandwidth) == (150, "0")


def test_unset_is_kept_apart_from_zero() -> None:
    zero = {"resourceUsedThresholdWithBE": {"cpuSuppressMinPercent": 0}}
    assert decode({}).thresholds.cpu_suppress_min_percent is None
    assert decode(zero).thresholds.cpu_suppress_min_percent == 0
    assert "cpuSuppressMinPercent" not in encode(decode({}))["resourceUsedThresholdWithBE"]
    assert encode(decode(zero))["resourceUsedThresholdWithBE"]["cpuSuppressMinPercent"] == 0


def test_what_a_spec_leaves_out_is_filled_by_class() -> None:
    policy = decode({"resourceQOSStrategy": {"beClass": {"cpuQOS": {"enable": True}}, "cgroupRoot": {}}})
    # the rest of cpuQOS comes from best effort's own built-in values, the root's from the values that change nothing
    assert policy.classes.be_class.cpu_qos.enable and policy.classes.be_class.cpu_qos.group_identity == -1
    assert policy.classes.cgroup_root is not None and policy.classes.cgroup_root.memory_qos.wmark_scale_permill == 50


def test_every_class_has_a_policy_and_lse_follows_lsr() -> None:
    classes = decode({"resourceQOSStrategy": {"lsrClass": {"cpuQOS": {"groupIdentity": 1}}}}).classes
    assert classes.of(QosClass.LSE) is classes.of(QosClass.LSR) is classes.lsr_class
    assert classes.of(QosClass.BE) is classes.be_class and classes.of(QosClass.SYSTEM) is classes.system_class


@pytest.mark.parametrize(
    ("path", "value", "allowed"),
    [
        ("resourceQOSStrategy.lsClass.cpuQOS.groupIdentity", 3, "-1 to 2"),
        ("resourceQOSStrategy.lsClass.memoryQOS.wmarkMinAdj", -26, "-25 to 50"),
        ("resourceQOSStrategy.lsClass.memoryQOS.wmarkScalePermill", 0, "1 to 1000"),
        ("resourceQOSStrategy.beClass.memoryQOS.priority", 13, "0 to 12"),
        ("cpuBurstStrategy.cfsQuotaBurstPercent", 99, "from 100"),
        ("cpuBurstStrategy.cfsQuotaBurstPeriodSeconds", -2, "from -1"),
        ("resourceUsedThresholdWithBE.allocatableEvictPriorityThreshold", 8000, "0 to 7999"),
        ("resourceUsedThresholdWithBE.enable", "true", "true or false"),
        ("resourceUsedThresholdWithBE.cpuSuppressPolicy", "cpusets", "cpuset"),
        ("resourceQOSStrategy.beClass.networkQOS.ingressLimit", "50Mbit", "quantity"),
    ],
)
def test_a_value_out_of_its_range_is_named_with_path_and_range(path: str, value: Any, allowed: str) -> None:
    spec: Any = value
    for word in reversed(path.split(".")):
        spec = {word: spec}
    with pytest.raises(UsageError) as refused:
        decode(spec)
    assert f"$.spec.{path}" in refused.value.message and format_value(value) in refused.value.message
    assert allowed in refused.value.message


def test_fields_of_a_later_protocol_are_skipped() -> None:
    assert decode({"somethingNew": {"a": 1}, "cpuBurstStrategy": {"later": 1}}) == decode({})
