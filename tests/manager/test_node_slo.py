"""NodeSLO objects are rendered from the configuration, written where they differ, and taken by the real API server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.controllers.contract import FIELD_MANAGER, MANAGED_BY, MANAGED_BY_LABEL, ControllerDecision
from cotenant.base.controllers.published import ExistingObject
from cotenant.base.kube import Writer
from cotenant.base.kubernetes.intent import Apply
from cotenant.enforcer.model.node_policy import decode
from cotenant.recommender.colocation.model.slo_config import SloConfig
from cotenant.recommender.colocation.model.slo_forms import SloKey
from cotenant.recommender.colocation.node_slo import LabelledNode, NodeSloObject, NodeSloView, coverage, decide
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd

THEIRS = "koordinator-manager"
GPU = {"pool": "gpu"}
TEXTS = {
    SloKey.THRESHOLDS.value: json.dumps(
        {
            "clusterStrategy": {"enable": True, "memoryEvictThresholdPercent": 70},
            "nodeStrategies": [
                {"name": "gpu", "nodeSelector": {"matchLabels": GPU}, "cpuSuppressThresholdPercent": 50}
            ],
        }
    ),
    SloKey.HOST_APPLICATIONS.value: json.dumps(
        {
            "applications": [
                {
                    "name": "nginx",
                    "priority": "koord-prod",
                    "qos": "LS",
                    "cgroupPath": {"base": "CgroupRoot", "relativePath": "host/nginx"},
                }
            ]
        }
    ),
    SloKey.CLASSES.value: json.dumps(
        {
            "clusterStrategy": {
                "policies": {"netQOSPolicy": "tc"},
                "beClass": {
                    "blkioQOS": {
                        "enable": True,
                        "blocks": [{"name": "/dev/sda", "type": "device", "ioCfg": {"readIOPS": 100}}],
                    },
                    "networkQOS": {"enable": True, "ingressLimit": "50M", "egressLimit": 20},
                },
                "cgroupRoot": {"blkioQOS": {"enable": True}},
            }
        }
    ),
    SloKey.SYSTEM.value: json.dumps({"clusterStrategy": {"schedFeatures": {"ID_BOOK_CPU": True}}}),
}
CONFIG = SloConfig().updated(TEXTS)


def node(name: str, labels: dict[str, str] | None = None, uid: str = "") -> LabelledNode:
    return LabelledNode(ExistingObject("v1", "Node", name, uid or f"uid-{name}"), labels or {})


def applied_intents(decision: ControllerDecision) -> list[Apply]:
    """The intents, of which each writes a body."""
    applies = [intent for intent in decision.intents if isinstance(intent, Apply)]
    assert len(applies) == len(decision.intents)
    return applies


def stored(intents: Iterable[Any]) -> dict[str, NodeSloObject]:
    """What the cluster holds after the intents, as it is read back."""
    return {i.address.name: msgspec.json.decode(msgspec.json.encode(i.body), type=NodeSloObject) for i in intents}


def changed(slo: NodeSloObject, **changes: Any) -> NodeSloObject:
    """The same object with other values in its spec."""
    return NodeSloObject(slo.metadata, msgspec.Raw(json.dumps({**json.loads(bytes(slo.spec)), **changes}).encode()))


NODES = (node("a"), node("b", GPU), node("c"))


def test_every_node_gets_the_policy_of_its_entries() -> None:
    decision = decide(NodeSloView(CONFIG, NODES, {}))
    percents = {
        i.address.name: decode(i.body["spec"]).thresholds.cpu_suppress_threshold_percent
        for i in applied_intents(decision)
    }
    assert percents == {"a": 65, "b": 50, "c": 65}  # 65 is built in, 50 is of the entry "gpu"
    assert [i.body["metadata"]["ownerReferences"][0]["uid"] for i in applied_intents(decision)] == [
        "uid-a",
        "uid-b",
        "uid-c",
    ]
    assert decision.notes == ()
    assert sorted(coverage(NodeSloView(CONFIG, NODES, {})).values()) == [1, 2]


def test_thresholds_follow_the_policy_and_stay_while_the_policy_cannot_be_read() -> None:
    policy = {SloKey.COLOCATION.value: '{"enable": true, "cpuCalculatePolicy": "forecast"}'}
    decision = decide(NodeSloView(SloConfig().updated({**TEXTS, **policy}), NODES, {}))
    percents = [decode(i.body["spec"]).thresholds.cpu_suppress_threshold_percent for i in applied_intents(decision)]
    assert percents == [95, 50, 95]  # 50 is set for the pool
    # a manager that starts anew does not know what a text says that cannot be read
    unread = SloConfig().updated({**TEXTS, SloKey.COLOCATION.value: "{"})
    again = decide(NodeSloView(unread, NODES, stored(decision.intents)))
    assert again.intents == ()


def test_a_nodes_annotated_bandwidth_beats_the_configured_one() -> None:
    texts = {**TEXTS, SloKey.SYSTEM.value: json.dumps({"clusterStrategy": {"totalNetworkBandwidth": "1G"}})}
    nodes = [replace(node(name), bandwidth=text) for name, text in (("a", ""), ("b", "25G"), ("c", "fast"))]
    decision = decide(NodeSloView(SloConfig().updated(texts), tuple(nodes), {}))
    systems = [decode(i.body["spec"]).system for i in applied_intents(decision)]
    assert [s.total_network_bandwidth for s in systems] == ["1G", "25G", "1G"]
    assert len({s.min_free_kbytes_factor for s in systems}) == 1
    assert [(n.subject, n.reason) for n in decision.notes] == [("nodes/c", "InvalidBandwidth")]


def test_nothing_is_written_when_nothing_changed() -> None:
    slos = stored(decide(NodeSloView(CONFIG, NODES, {})).intents)
    assert decide(NodeSloView(CONFIG, NODES, slos)).intents == ()


def test_only_nodes_with_another_rendering_are_written_again() -> None:
    slos = stored(decide(NodeSloView(CONFIG, NODES, {})).intents)
    other = json.loads(TEXTS[SloKey.THRESHOLDS.value])
    other["nodeStrategies"][0]["cpuSuppressThresholdPercent"] = 40
    config = CONFIG.updated({**TEXTS, SloKey.THRESHOLDS.value: json.dumps(other)})
    decision = decide(NodeSloView(config, NODES, slos))
    assert [(i.address.name, i.why) for i in decision.intents] == [("b", "the configuration changed")]


def test_a_changed_value_is_put_right_and_an_added_field_is_left_alone() -> None:
    slos = stored(decide(NodeSloView(CONFIG, NODES, {})).intents)
    slos["a"] = changed(slos["a"], extensions={"vendor": 1})
    slos["b"] = changed(slos["b"], hostApplications=[])
    decision = decide(NodeSloView(CONFIG, NODES, slos))
    assert [(i.address.name, i.why) for i in decision.intents] == [("b", "somebody changed the NodeSLO")]


def test_a_new_node_of_the_same_name_owns_its_own() -> None:
    slos = stored(decide(NodeSloView(CONFIG, NODES, {})).intents)
    decision = decide(NodeSloView(CONFIG, (node("a", uid="new"),), slos))
    assert [i.body["metadata"]["ownerReferences"][0]["uid"] for i in applied_intents(decision)] == ["new"]


def written(slo: NodeSloObject, *entries: tuple[str, str, str]) -> NodeSloObject:
    """The same object, with another value, after (manager, time, field) wrote it."""
    body = json.loads(msgspec.json.encode(changed(slo, hostApplications=[])))
    body["metadata"]["managedFields"] = [
        {"manager": manager, "time": time, "fieldsV1": {field: {}}} for manager, time, field in entries
    ]
    return msgspec.json.decode(json.dumps(body), type=NodeSloObject)


@pytest.mark.parametrize(
    ("entries", "is_foreign"),
    [
        ([(FIELD_MANAGER, "T1", "f:spec"), (THEIRS, "T2", "f:spec")], True),
        ([(FIELD_MANAGER, "T1", "f:spec"), (THEIRS, "T1", "f:spec")], True),
        ([(FIELD_MANAGER, "T2", "f:spec"), (THEIRS, "T1", "f:spec")], False),  # it was handed over
        ([(FIELD_MANAGER, "T1", "f:spec"), (THEIRS, "T2", "f:metadata")], False),
        ([(FIELD_MANAGER, "T1", "f:spec"), ("kubectl-edit", "T2", "f:spec")], False),
        ([(THEIRS, "T1", "f:spec")], False),  # a person's label hands it over
    ],
)
def test_a_program_that_writes_our_object_after_us_keeps_it(
    entries: list[tuple[str, str, str]], is_foreign: bool
) -> None:
    slos = stored(decide(NodeSloView(CONFIG, NODES, {})).intents)
    slos["a"] = written(slos["a"], *entries)
    decision = decide(NodeSloView(CONFIG, NODES, slos))
    assert [i.address.name for i in decision.intents] == ([] if is_foreign else ["a"])
    assert [THEIRS in n.message and "manager.take_over" in n.message for n in decision.notes] == [True] * is_foreign
    assert [n.message.startswith("1 NodeSLO of another manager") for n in decision.notes] == [True] * is_foreign
    taken = decide(NodeSloView(CONFIG, NODES, slos, frozenset({THEIRS})))
    assert [i.address.name for i in taken.intents] == ["a"] and taken.notes == ()


def test_another_managers_objects_are_left_alone_and_told_once() -> None:
    slos = stored(decide(NodeSloView(CONFIG, NODES, {})).intents)
    for slo in slos.values():
        slo.metadata.labels = None
    decision = decide(NodeSloView(CONFIG.updated({}), NODES, slos))
    assert decision.intents == ()
    assert [(n.reason, n.warning) for n in decision.notes] == [("NotOurs", True)]
    assert f"{MANAGED_BY_LABEL}={MANAGED_BY}" in decision.notes[0].message


def test_a_key_that_was_never_good_keeps_what_a_node_has() -> None:
    slos = stored(decide(NodeSloView(CONFIG, NODES, {})).intents)
    # the manager begins anew, and meanwhile somebody broke one key
    config = SloConfig().updated({**TEXTS, SloKey.THRESHOLDS.value: "{"})
    decision = decide(NodeSloView(config, (*NODES, node("new")), slos))
    assert [i.address.name for i in decision.intents] == ["new"]  # only it gets the built-in thresholds
    assert applied_intents(decision)[0].body["spec"]["resourceUsedThresholdWithBE"]["enable"] is False
    assert [(n.reason, n.warning) for n in decision.notes] == [("InvalidConfig", True)]
    assert "nodes keep their values" in decision.notes[0].message


def test_a_key_that_breaks_later_is_told_and_changes_no_node() -> None:
    slos = stored(decide(NodeSloView(CONFIG, NODES, {})).intents)
    broken = CONFIG.updated({**TEXTS, SloKey.THRESHOLDS.value: '{"clusterStrategy": {"enable": "yes"}}'})
    decision = decide(NodeSloView(broken, NODES, slos))
    assert decision.intents == ()
    assert "$.clusterStrategy.enable: 'yes' is not true or false" in decision.notes[0].message
    assert "last valid value" in decision.notes[0].message


LABELS = st.dictionaries(st.sampled_from(["pool", "zone"]), st.sampled_from(["gpu", "cpu"]), max_size=2)


@given(st.lists(LABELS, min_size=1, max_size=5))
@settings(max_examples=50)
def test_rendering_in_groups_is_rendering_each_node_alone(labels: list[dict[str, str]]) -> None:
    nodes = tuple(node(f"n{i}", node_labels) for i, node_labels in enumerate(labels))
    together = {i.address.name: i.body for i in applied_intents(decide(NodeSloView(CONFIG, nodes, {})))}
    alone = {n.owned.name: applied_intents(decide(NodeSloView(CONFIG, (n,), {})))[0].body for n in nodes}
    assert together == alone


def test_the_api_server_takes_what_is_rendered_and_gives_it_back_unchanged(
    control_plane: ControlPlane, fake_nodes: Callable[..., list[str]]
) -> None:
    api = control_plane.api()
    install_crd(api, "nodeslos.slo.koordinator.sh")
    (name,) = fake_nodes(1)
    path = f"/apis/slo.koordinator.sh/v1alpha1/nodeslos/{name}"
    own = node(name, GPU, api.get(f"/api/v1/nodes/{name}")["metadata"]["uid"])
    client = control_plane.client(account(control_plane, "cotenant-manager"))
    writer = Writer(client, FIELD_MANAGER)  # field validation is Strict there
    for intent in decide(NodeSloView(CONFIG, (own,), {})).intents:
        writer.send(intent)
    body = api.get(path)
    slo = msgspec.json.decode(json.dumps(body), type=NodeSloObject)
    assert decide(NodeSloView(CONFIG, (own,), {name: slo})).intents == ()
    policy = decode(body["spec"])
    assert policy.thresholds.cpu_suppress_threshold_percent == 50
    assert policy.classes.be_class.network_qos.ingress_limit == "50M"
    # a field that the configuration no longer sets is taken back, whatever the API server merges
    less = CONFIG.updated({**TEXTS, SloKey.SYSTEM.value: "{}"})
    for intent in decide(NodeSloView(less, (own,), {name: slo})).intents:
        writer.send(intent)
    assert "schedFeatures" not in api.get(path)["spec"]["systemStrategy"]
