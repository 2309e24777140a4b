"""Placeholders, owners' patches and the SwapGuard as they are written and read back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.pod_identity import Reference
from cotenant.base.kubernetes.protocol import PREFERRED_TERMS, REQUIRED_TERMS
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.scheduler_ext.reservations.guard import Guard, ReservationSwap, SwapPlaceholder
from cotenant.scheduler_ext.reservations.model.reservation import AllocatePolicy, Mode
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from cotenant.scheduler_ext.reservations.owner import handing_patch, pin_affinity, preparations, release_patch
from cotenant.scheduler_ext.reservations.placeholder import (
    PlaceholderSpec,
    fresh_name,
    impossible,
    label_of,
    not_considered,
    placeholder_creation,
)
from tests.scheduler_ext.reservations.builders import owner, reservation

HERE = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
ROOM = {"cpu": 2000, "memory": 1 << 30, "nvidia.com/gpu": 1}


def pod_of(
    template: dict[str, Any], placeholder_spec: PlaceholderSpec | None = None, room: Any = None
) -> dict[str, Any]:
    create = placeholder_creation(
        reservation(template=template),
        placeholder_spec or PlaceholderSpec("p", room or ROOM),
        Mode.PINNED,
        {},
        ReservationSettings(),
    )
    return dict(create.body["spec"])


def test_a_placeholder_uses_nothing_and_ends_at_once() -> None:
    spec = pod_of({})
    assert (spec["hostNetwork"], spec["terminationGracePeriodSeconds"]) == (True, 0)
    (container,) = spec["containers"]
    assert "ports" not in container
    # A limit must equal the request of what cannot be overcommitted.
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }


def test_it_goes_where_the_template_may_go() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    template = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {REQUIRED_TERMS: {"nodeSelectorTerms": [term]}}},
        "schedulerName": "koord-scheduler",
        "volumes": [{"name": "v", "emptyDir": {}}],
    }
    spec = pod_of(template)
    assert (spec["nodeSelector"], spec["tolerations"]) == (template["nodeSelector"], template["tolerations"])
    assert spec["affinity"] == template["affinity"]
    assert spec["schedulerName"] == "default-scheduler"
    assert "volumes" not in spec
    pinned_there = pod_of(template, PlaceholderSpec("p", ROOM, "n1"))["affinity"]["nodeAffinity"][REQUIRED_TERMS][
        "nodeSelectorTerms"
    ]
    assert pinned_there == [{**term, "matchFields": [HERE]}]


def test_a_template_with_a_node_reserves_exactly_there() -> None:
    terms = pod_of({"nodeName": "n1"})["affinity"]["nodeAffinity"][REQUIRED_TERMS]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [HERE]}]


def test_pod_affinity_keeps_meaning_the_templates_namespace() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    elsewhere = {**term, "namespaces": ["other"]}
    given_ = {
        "podAntiAffinity": {
            REQUIRED_TERMS: [term, elsewhere],
            PREFERRED_TERMS: [{"weight": 1, "podAffinityTerm": term}],
        },
        "podAffinity": {REQUIRED_TERMS: [{**term, "namespaceSelector": {}}]},
    }
    affinity = pod_of({"affinity": given_})["affinity"]
    expected_term = {**term, "namespaces": ["default"]}
    assert affinity["podAntiAffinity"][REQUIRED_TERMS] == [expected_term, elsewhere]
    assert affinity["podAntiAffinity"][PREFERRED_TERMS] == [{"weight": 1, "podAffinityTerm": expected_term}]
    assert affinity["podAffinity"] == given_["podAffinity"]


@pytest.mark.parametrize(
    ("term", "separate"),
    [
        ({"labelSelector": {"matchLabels": {"app": "web"}}}, True),
        ({"labelSelector": {"matchLabels": {"app": "web"}}, "namespaceSelector": {}}, True),
        ({"labelSelector": {"matchLabels": {"app": "web"}}, "namespaces": ["other"]}, False),
        ({"labelSelector": {"matchLabels": {"app": "api"}}}, False),
        ({}, False),  # no selector selects no pod
    ],
)
def test_placeholders_of_other_reservations_keep_apart_as_their_pods_do(term: dict[str, Any], separate: bool) -> None:
    def affinity_of(name: str, labels: dict[str, str]) -> tuple[dict[str, str], list[dict[str, Any]]]:
        pod_template = {"affinity": {"podAntiAffinity": {REQUIRED_TERMS: [{**term, "topologyKey": "zone"}]}}}
        of = reservation(name, template=pod_template)
        template = {**of.template, "metadata": {"namespace": "shop", "labels": labels}}
        create = placeholder_creation(
            replace(of, template=template), PlaceholderSpec("p", ROOM), Mode.PINNED, {}, ReservationSettings()
        )
        return create.body["metadata"]["labels"], create.body["spec"]["affinity"]["podAntiAffinity"][REQUIRED_TERMS]

    labels, (_, *own) = affinity_of("one", {"app": "web"})
    assert len(own) == separate
    for repelled in own:
        assert (repelled["topologyKey"], repelled["namespaces"]) == ("zone", ["cotenant-reservations"])
        selector = LabelSelector.parse(repelled["labelSelector"])
        assert not selector.matches(labels), "what a Reservation's other placeholder holds is the same capacity"
        assert selector.matches(affinity_of("two", {"app": "web"})[0])
        assert not selector.matches(affinity_of("two", {"app": "web", "tier": "b"})[0])


def test_what_a_placeholder_cannot_ask_for_is_named() -> None:
    spec = {
        "containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}],
        "volumes": [{"persistentVolumeClaim": {"claimName": "c"}}],
        "topologySpreadConstraints": [{"maxSkew": 1}],
    }
    assert not_considered({"spec": spec}, "default-scheduler") == [
        "host ports", "volume claims", "topologySpreadConstraints",
    ]  # fmt: skip
    assert not_considered({"spec": {"containers": [{"ports": [{"containerPort": 80}]}]}}, "default-scheduler") == []


def test_a_template_for_another_scheduler_than_the_placeholders_says_so() -> None:
    template = {"spec": {"schedulerName": "koord-scheduler"}}
    assert not_considered(template, "default-scheduler") == [
        "schedulerName koord-scheduler (default-scheduler places it)"
    ]
    assert not_considered(template, "koord-scheduler") == []


def test_a_reservation_of_nothing_or_for_nobody_cannot_be_held() -> None:
    assert "requests no resources" in impossible(reservation(cpu="0"))
    assert "no owners" in impossible(reservation(owners=[]))
    assert impossible(reservation()) == ""


def test_a_term_that_is_no_object_is_refused() -> None:
    with pytest.raises(UsageError, match="affinity term"):
        pod_of({"affinity": {"podAffinity": {REQUIRED_TERMS: ["x"]}}})


@given(st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?", fullmatch=True))
@settings(max_examples=50)
def test_every_name_gives_a_label_and_a_pods_name(name: str) -> None:
    assert 0 < len(label_of(name)) <= 63
    text = fresh_name(reservation(name), [])
    assert len(text) <= 63
    assert fresh_name(reservation(name), [text]) != text


# --- owners -----------------------------------------------------------------------------------------------------------
TERM = st.fixed_dictionaries(
    {"matchExpressions": st.lists(st.just({"key": "zone", "operator": "Exists"}), min_size=1, max_size=2)}
)
AFFINITY = st.fixed_dictionaries(
    {},
    optional={
        "podAffinity": st.just({REQUIRED_TERMS: []}),
        "nodeAffinity": st.fixed_dictionaries(
            {},
            optional={
                REQUIRED_TERMS: st.fixed_dictionaries({"nodeSelectorTerms": st.lists(TERM, min_size=1, max_size=3)})
            },
        ),
    },
)


@given(AFFINITY, st.sampled_from([AllocatePolicy.ALIGNED, AllocatePolicy.RESTRICTED]))
@settings(max_examples=50)
def test_an_affinity_is_only_narrowed_and_only_once(affinity: dict[str, Any], policy: AllocatePolicy) -> None:
    once = pin_affinity(affinity, "n1", policy)
    assert pin_affinity(once, "n1", policy) == once
    assert once.get("podAffinity") == affinity.get("podAffinity")
    before = affinity.get("nodeAffinity", {}).get(REQUIRED_TERMS, {}).get("nodeSelectorTerms")
    after = once["nodeAffinity"].get(REQUIRED_TERMS, {}).get("nodeSelectorTerms")
    if policy is AllocatePolicy.RESTRICTED:
        # Kubernetes wants as many terms as before, each with additions only.
        assert len(after) == len(before or [{}])
        assert all(HERE in term["matchFields"] for term in after)
        assert [t.get("matchExpressions") for t in after] == [t.get("matchExpressions") for t in before or [{}]]
    else:
        assert after == before
        assert once["nodeAffinity"][PREFERRED_TERMS][-1]["preference"] == {"matchFields": [HERE]}


def test_an_owner_is_made_ready_in_one_patch_and_a_nomination() -> None:
    patch, nominated = preparations(owner(), reservation(phase="Available"), "n1")
    assert patch.operations[0] == {"op": "replace", "path": "/metadata/resourceVersion", "value": "5"}
    paths = [o["path"] for o in patch.operations[1:]]
    assert paths == ["/metadata/labels/cotenant.dev~1reservation", "/metadata/annotations"]
    assert (nominated.subresource, nominated.operations[-1]["value"]) == ("status", "n1")


def test_an_owner_loses_its_gate_and_is_narrowed_to_the_node_in_one_patch() -> None:
    version, gates, narrowed = handing_patch(owner(), "n1", AllocatePolicy.RESTRICTED).operations
    assert (version["value"], gates["path"], gates["value"]) == ("5", "/spec/schedulingGates", [])
    assert narrowed["value"] == {"nodeAffinity": {REQUIRED_TERMS: {"nodeSelectorTerms": [{"matchFields": [HERE]}]}}}


def test_who_missed_its_room_is_not_tried_again() -> None:
    operations = release_patch(owner(), missed="r-uid").operations
    assert operations[-1]["value"] == {"cotenant.dev/reservation-missed": "r-uid"}


# --- the guard --------------------------------------------------------------------------------------------------------
NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
ROOMS = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(1, 10**9), max_size=2)
HELDS = st.builds(SwapPlaceholder, st.just("cotenant-reservations"), NAMES, NAMES, ROOMS)
RESTS = st.builds(SwapPlaceholder, st.just("cotenant-reservations"), NAMES, st.just(""), ROOMS)
MOMENTS = st.integers(0, 4_000_000_000).map(float)
SWAPS = st.builds(
    ReservationSwap,
    id=NAMES,
    reservation=NAMES,
    reservation_uid=NAMES,
    node=NAMES,
    owner=st.none() | st.builds(Reference, st.just("Pod"), NAMES, NAMES, NAMES),
    placeholders=st.lists(HELDS, max_size=2).map(tuple),
    rest=st.none() | RESTS,
    started_seconds=MOMENTS,
    expires_seconds=MOMENTS,
)


@given(st.lists(SWAPS, max_size=3).map(tuple), MOMENTS)
@settings(max_examples=50)
def test_a_guard_is_read_back_as_it_was_written(swaps: tuple[ReservationSwap, ...], served: float) -> None:
    guard = Guard(swaps, served, "7")
    written = guard.intent("test").body
    assert Guard.parse(written) == guard
    allowed = written["spec"].get("nodes", {})
    assert set(allowed) == {swap.node for swap in swaps}
    for swap in swaps:
        assert set(swap.allowed) <= set(allowed[swap.node])


def test_an_empty_guard_names_no_node() -> None:
    assert Guard((), 0.0, "").intent("test").body["spec"] == {"servedUntil": "1970-01-01T00:00:00.000000Z"}
