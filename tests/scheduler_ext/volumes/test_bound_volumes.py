"""Where a bound volume can be used: its node affinity, the zones of its labels, and one node at a time."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.scheduler_ext.extender.metric import ExtenderNode
from cotenant.scheduler_ext.volumes.bound_volumes import BoundVolume, affinities_of, bound_volume, can_use, claim_of

ZONE, OLD_ZONE, HOST = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone", "kubernetes.io/hostname"
NODES = (
    ExtenderNode("a1", labels={ZONE: "a", HOST: "a1"}),
    ExtenderNode("a2", labels={ZONE: "a", HOST: "a2"}),
    ExtenderNode("b1", labels={ZONE: "b", HOST: "b1"}),
    ExtenderNode("bare", labels={HOST: "bare"}),
)
EVERYWHERE = ["a1", "a2", "b1", "bare"]


def term(key: str, *values: str, field: str = "matchExpressions") -> dict[str, Any]:
    return {field: [{"key": key, "operator": "In", "values": list(values)}]}


def volume(*terms: dict[str, Any], labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}} if terms else {}
    return {"metadata": {"name": "v", "labels": labels}, "spec": {**affinity, **spec}}


@pytest.mark.parametrize(
    ("body", "nodes"),
    [
        pytest.param(volume(), EVERYWHERE, id="network file system"),
        pytest.param(volume(term(ZONE, "a")), ["a1", "a2"], id="disk of a zone"),
        pytest.param(volume(term(ZONE, "a"), term(ZONE, "b")), ["a1", "a2", "b1"], id="either term"),
        pytest.param(volume(term(HOST, "a2"), local={"path": "/d"}), ["a2"], id="local volume"),
        pytest.param(volume(term("metadata.name", "b1", field="matchFields")), ["b1"], id="name of a node"),
        pytest.param(volume(term(HOST, "gone")), [], id="a node that is gone"),
        # VolumeZone: a node without any label of a zone or region takes every volume
        pytest.param(volume(labels={ZONE: "a"}), ["a1", "a2", "bare"], id="label of a zone"),
        pytest.param(volume(labels={OLD_ZONE: "b"}), ["b1", "bare"], id="old label of a zone"),
        pytest.param(volume(labels={ZONE: "a__b"}), EVERYWHERE, id="label of two zones"),
        pytest.param(volume(term(HOST, "a1", "b1"), labels={ZONE: "a"}), ["a1"], id="label and affinity"),
        pytest.param(volume(labels={"app": "db"}), EVERYWHERE, id="label of no zone"),
    ],
)
def test_a_volume_can_be_used_where_the_scheduler_lets_it(body: dict[str, Any], nodes: list[str]) -> None:
    affinity = bound_volume(body).affinity
    usable = can_use(affinity, NODES) if affinity else [True] * len(NODES)
    assert [node.name for node, fits in zip(NODES, usable, strict=True) if fits] == nodes


@pytest.mark.parametrize(
    ("modes", "one_node"),
    [
        (["ReadWriteOnce"], True),
        (["ReadWriteOncePod"], True),
        (["ReadWriteOnce", "ReadOnlyMany"], False),
        (["ReadWriteMany"], False),
        ([], False),
    ],
)
def test_access_modes_say_whether_one_node_at_a_time_can_use_it(modes: list[str], one_node: bool) -> None:
    assert bound_volume(volume(accessModes=modes)).one_node is one_node


def test_data_on_a_node_make_a_volume_local() -> None:
    assert [bound_volume(volume(**{kind: {}})).local for kind in ("hostPath", "local", "nfs", "csi")] == [
        *(True, True, False, False)
    ]


def test_affinities_are_known_only_when_every_claim_is_bound() -> None:
    volumes = {("shop", "a"): BoundVolume(b"1"), ("shop", "b"): BoundVolume(), ("shop", "open"): None}
    assert affinities_of(["b", "a", "a"], "shop", volumes) == (b"1",)
    assert affinities_of([], "shop", volumes) == ()
    for claim in ("open", "missing"):
        assert affinities_of(["a", claim], "shop", volumes) is None
    assert affinities_of(["a"], "other", volumes) is None


def test_an_ephemeral_volume_has_no_claim_that_outlives_its_pod() -> None:
    assert claim_of({"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}) is None
    assert claim_of({"name": "v", "persistentVolumeClaim": {"claimName": "c"}}) == "c"
