"""Disk limits: which device a block is, what a pod's own annotation replaces, text that the kernel takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import Knob, PodReading, StrategyPlan
from cotenant.enforcer.model.node_policy import Block
from cotenant.enforcer.strategies.io import DiskLimits, blocks_of, device_of
from tests.enforcer.readings import EVERY_KNOB, MIB, node, observation_of, pod, policy, values

MOUNT = "/var/lib/kubelet/pods/u-web/volumes/kubernetes.io~csi/pvc-1/mount"
DEVICES = {"sda": "8:0", "sdb": "8:16", "nvme0n1": "259:1", "vg-data": "253:2", MOUNT: "8:32", "/var/lib/data": "8:16"}
WEB = "kubepods/burstable/podu-web"


def block(name: str, kind: str = "device", **limits: int) -> dict[str, Any]:
    return {"name": name, "type": kind, "ioCfg": limits}


def rules(*blocks: dict[str, Any], enable: bool = True) -> Any:
    return policy({"resourceQOSStrategy": {"lsClass": {"blkioQOS": {"enable": enable, "blocks": list(blocks)}}}})


def web(note: Any = None) -> PodReading:
    text = note if isinstance(note, str) or note is None else json.dumps({"blocks": note})
    return pod("web", qos=QosClass.LS, annotations={} if text is None else {"koordinator.sh/blkioQOS": text})


def decided(of: Any, note: Any = None, supported: frozenset[Knob] = EVERY_KNOB) -> StrategyPlan:
    return (
        DiskLimits()
        .step(observation_of(web(note), machine=node(block_devices=DEVICES), supported=supported), of, None)
        .plan
    )


def test_limits_go_to_the_pods_cgroup_device_by_device() -> None:
    plan = decided(rules(block("nvme0n1", readBPS=10 * MIB, readIOPS=500), block("/dev/sda", readBPS=MIB, writeIOPS=0)))
    # Devices in the order of their numbers: 8:0 before 259:1; a limit of 0 is none.
    assert values(plan, Knob.BLKIO_READ_BPS) == {WEB: f"8:0 {MIB},259:1 {10 * MIB}"}
    assert values(plan, Knob.BLKIO_READ_IOPS) == {WEB: "259:1 500"}
    assert {w.knob for w in plan.wants} == {Knob.BLKIO_READ_BPS, Knob.BLKIO_READ_IOPS}


@pytest.mark.parametrize(
    ("kind", "name", "device"),
    [
        ("device", "sda", "8:0"),
        ("device", "/dev/sda", "8:0"),
        ("", "sdb", "8:16"),
        ("device", "/var/lib/data", "8:16"),
        ("volumegroup", "vg-data", "253:2"),
        ("podvolume", "pvc-1", "8:32"),
        ("podvolume", "pvc-2", None),
        ("device", "", None),
        ("device", "sdz", None),
    ],
)
def test_which_device_a_block_is(kind: Any, name: str, device: str | None) -> None:
    assert device_of(Block(name=name, type=kind), web().spec, DEVICES) == device


def test_another_pods_volume_is_not_mine() -> None:
    assert device_of(Block(name="pvc-1", type="podvolume"), pod("job").spec, DEVICES) is None


def test_an_unknown_device_is_told_and_the_others_hold() -> None:
    plan = decided(rules(block("sdz", readBPS=1), block("sda", readBPS=MIB), block("pvc-9", "podvolume", readBPS=1)))
    assert values(plan, Knob.BLKIO_READ_BPS) == {WEB: f"8:0 {MIB}"}
    assert [(v.subject, v.reason) for v in plan.verdicts] == [("default/web", "BlockDeviceUnknown")]


def test_a_pods_own_block_replaces_its_class_block() -> None:
    plan = decided(rules(block("sda", readBPS=MIB), block("sdb", readBPS=MIB)), [block("sda", readBPS=7)])
    assert values(plan, Knob.BLKIO_READ_BPS) == {WEB: f"8:0 7,8:16 {MIB}"}
    off = decided(rules(block("sdb", readBPS=MIB), enable=False), [block("sda", readBPS=7)])
    assert values(off, Knob.BLKIO_READ_BPS) == {WEB: "8:0 7"}


@pytest.mark.parametrize("note", ["{", '{"blocks": 7}', '{"blocks": [{"ioCfg": {"readBPS": -1}}]}'])
def test_an_annotation_that_cannot_be_read_leaves_the_class(note: str) -> None:
    blocks, verdicts = blocks_of(web(note).spec, rules(block("sda", readBPS=MIB)))
    assert [b.name for b in blocks] == ["sda"]
    assert [v.reason for v in verdicts] == ["AnnotationUnreadable"]


def test_the_smallest_weight_holds_and_the_ordinary_one_is_not_written() -> None:
    assert values(decided(rules(block("sda", ioWeightPercent=100))), Knob.IO_WEIGHT) == {}
    both = rules(block("sda", ioWeightPercent=40), block("sdb", ioWeightPercent=60))
    assert values(decided(both), Knob.IO_WEIGHT) == {WEB: 40}


def test_knobs_that_the_kernel_has_not_are_not_asked_for() -> None:
    of = rules(block("sda", readBPS=MIB, ioWeightPercent=40))
    assert {w.knob for w in decided(of, supported=EVERY_KNOB - {Knob.IO_WEIGHT}).wants} == {Knob.BLKIO_READ_BPS}


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*DEVICES, "pvc-1", "", "..", "sdq"]),
            st.sampled_from(["device", "volumegroup", "podvolume", ""]),
            st.dictionaries(st.sampled_from(["readBPS", "writeBPS", "readIOPS"]), st.integers(0, 2**62)),
        ),
        max_size=5,
    )
)
def test_every_text_is_devices_and_amounts_in_order(blocks: list[tuple[str, str, dict[str, int]]]) -> None:
    for want in decided(rules(*(block(n, k, **limits) for n, k, limits in blocks))).wants:
        parts = [part.split(" ") for part in str(want.value).split(",")]
        devices = [tuple(map(int, device.split(":"))) for device, _ in parts]
        assert devices == sorted(set(devices))
        assert all(int(amount) > 0 for _, amount in parts)
