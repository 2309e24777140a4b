"""Cache and memory-bandwidth groups: masks and shares by koordlet's formulas, who belongs where."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.apply.resctrlfs import _LINE
from cotenant.enforcer.contract import (
    KubeQos,
    PodReading,
    ResctrlGroup,
    ResctrlReading,
    StrategyPlan,
    Surface,
    values_of,
)
from cotenant.enforcer.strategies.resctrl import Resctrl, bandwidth, cache_mask
from tests.enforcer.readings import container, node, observation_of, pod, policy

INTEL = ResctrlReading(0x7FF, (0, 1), (0, 1))
AMD = ResctrlReading(0xFFFF, (0,), (0,), amd=True)


def rules(**classes: dict[str, Any]) -> Any:
    of = {f"{name}Class": {"resctrlQOS": {"enable": True, **values}} for name, values in classes.items()}
    return policy({"resourceQOSStrategy": of})


def decided(of: Any, *pods: PodReading, offers: ResctrlReading | None = INTEL, **how: Any) -> StrategyPlan:
    return Resctrl(**how).step(observation_of(*pods, machine=node(resctrl=offers)), of, None).plan


def groups(plan: StrategyPlan) -> dict[str, ResctrlGroup]:
    return dict(values_of(plan.surfaces, Surface.RESCTRL, ResctrlGroup))


@pytest.mark.parametrize(
    ("root", "start", "end", "mask"),
    [
        (0x7FF, 0, 100, 0x7FF),  # 11 ways
        (0x7FF, 0, 30, 0xF),  # ceil(3.3) = 4 ways
        (0x7FF, 30, 50, 0x30),  # ceil(3.3) = 4 up to ceil(5.5) = 6
        (0xFFFFF, 0, 30, 0x3F),  # 20 ways: 6
        (0xF, 10, 15, 0),  # ceil(0.4) = ceil(0.6): no way
        (0x7F7, 0, 30, 0),  # a gap in the root mask
        (0x7FE, 0, 30, 0),  # not from bit 0
        (0x7FF, 30, 30, 0),
        (0x7FF, 50, 30, 0),
        (0, 0, 100, 0),
    ],
)
def test_a_range_of_percent_is_a_run_of_ways(root: int, start: int, end: int, mask: int) -> None:
    assert cache_mask(root, start, end) == mask


@pytest.mark.parametrize(
    ("percent", "amd", "share"),
    [
        (100, False, 100),
        (91, False, 100),
        (90, False, 90),
        (1, False, 10),
        (0, False, 0),
        (100, True, 2048),
        (50, True, 80),
        (0, True, 0),
    ],
)
def test_bandwidth_in_the_processors_unit(percent: int, amd: bool, share: int) -> None:
    assert bandwidth(percent, amd) == share


def test_classes_get_their_groups_and_members() -> None:
    pods = [
        pod("a", container(), qos=QosClass.LSE),
        pod("b", container(), qos=QosClass.LSR),
        pod("c", container(), qos=QosClass.LS),
        pod("d", container(), qos=QosClass.BE, kube=KubeQos.BEST_EFFORT),
        pod("e", container(), qos=QosClass.SYSTEM),
        pod("f", container(), kube=KubeQos.BEST_EFFORT),
    ]
    resctrl_groups = groups(decided(rules(lsr={}, ls={}, be={"mbaPercent": 35}), *pods))
    at = "kubepods/burstable/podu-"
    last = "kubepods/besteffort/podu-"
    assert resctrl_groups == {
        "LSR": ResctrlGroup(("L3:0=7ff;1=7ff", "MB:0=100;1=100"), (f"{at}a/id-main", f"{at}b/id-main")),
        "LS": ResctrlGroup(("L3:0=7ff;1=7ff", "MB:0=100;1=100"), (f"{at}c/id-main",)),
        # BE's default range is 0..30 %: ceil(11 * 0.3) = 4 ways; 35 % is up to 40 in Intel's steps.
        "BE": ResctrlGroup(("L3:0=f;1=f", "MB:0=40;1=40"), (f"{last}d/id-main", f"{last}f/id-main")),
    }


def test_amd_and_processors_with_one_of_the_two() -> None:
    assert groups(decided(rules(be={"mbaPercent": 50}), offers=AMD))["BE"].schemata == ("L3:0=1f", "MB:0=80")
    assert groups(decided(rules(be={}), offers=ResctrlReading(0, (), (0,))))["BE"].schemata == ("MB:0=100",)
    assert groups(decided(rules(be={}), offers=ResctrlReading(0xF, (0,))))["BE"].schemata == ("L3:0=3",)


def test_off_and_not_supported_are_different_answers() -> None:
    assert decided(policy(), offers=None) == StrategyPlan()
    assert [v.reason for v in decided(rules(be={}), offers=None).verdicts] == ["ResctrlUnsupported"]
    assert decided(policy()).surfaces == ()


def test_a_range_without_a_way_is_told_and_makes_no_group() -> None:
    plan = decided(rules(be={"catRangeStartPercent": 50, "catRangeEndPercent": 40}))
    assert plan.surfaces == ()
    assert [v.reason for v in plan.verdicts] == ["CacheRangeEmpty"]


def with_note(note: Any) -> PodReading:
    text = note if isinstance(note, str) else json.dumps(note)
    annotation = {"node.koordinator.sh/resctrl": text}
    return pod("job", container(), qos=QosClass.BE, kube=KubeQos.BEST_EFFORT, annotations=annotation)


def test_a_pod_with_its_own_group_leaves_its_class_group() -> None:
    note = {
        "llc": {"schemata": {"range": [0, 30]}, "schemataPerCache": [{"cacheid": 1, "range": [0, 50]}]},
        "mb": {"schemata": {"percent": 20}},
    }
    resctrl_groups = groups(decided(rules(be={}), with_note(note)))
    # 11 ways: 30 % = 4, 50 % = 6.
    member = ("kubepods/besteffort/podu-job/id-main",)
    assert resctrl_groups["koordlet-u-job"] == ResctrlGroup(("L3:0=f;1=3f", "MB:0=20;1=20"), member)
    assert resctrl_groups["BE"].cgroups == ()
    assert set(groups(decided(rules(be={}), with_note(note), pod_groups=False))) == {"BE"}


@pytest.mark.parametrize(
    ("note", "reason"),
    [
        ("{", "AnnotationUnreadable"),
        ({"llc": 7}, "AnnotationUnreadable"),
        ({}, "CacheRangeEmpty"),
        ({"llc": {"schemata": {"range": [80, 20]}}}, "CacheRangeEmpty"),
    ],
)
def test_a_pods_words_that_say_nothing_are_told_and_its_class_holds(note: Any, reason: str) -> None:
    plan = decided(rules(be={}), with_note(note))
    assert [v.reason for v in plan.verdicts] == [reason]
    assert groups(plan)["BE"].cgroups == ("kubepods/besteffort/podu-job/id-main",)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 64), st.integers(-5, 105), st.integers(-5, 105))
def test_a_mask_is_one_run_inside_the_root_mask(ways: int, start: int, end: int) -> None:
    mask = cache_mask((1 << ways) - 1, start, end)
    assert mask < 1 << ways
    assert "01" not in f"{mask:b}"  # once a one, a gap would show as 01
    assert not mask or 0 <= start < end <= 100


json_values = st.recursive(
    st.none() | st.integers(-10, 200) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["llc", "mb", "schemata", "range", "percent", "schemataPerCache"]), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(json_values)
def test_no_annotation_breaks_the_tick_or_writes_what_is_no_schemata(note: Any) -> None:
    for group in groups(decided(rules(be={}), with_note(msgspec.json.encode(note).decode()))).values():
        assert all(_LINE.fullmatch(line) for line in group.schemata)
