"""Reservations as people and Koordinator write them: read, refused with words, and matched with pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.moments import seconds_of
from cotenant.base.kubernetes.pod_identity import PodIdentity, Reference, Toleration
from cotenant.base.kubernetes.pod_request import (
    fits,
    format_quantities,
    parse_quantities,
    rest,
    select_amounts,
    sum_amounts,
)
from cotenant.base.kubernetes.pod_wire import requests_of
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.model.reservation import AllocatePolicy, Mode, Reservation

WEB = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"


def reservation(**spec: Any) -> Reservation:
    meta = {"name": "r", "uid": "u", "creationTimestamp": "1970-01-01T00:01:40Z", "labels": {"pool": "a"}}
    return Reservation.parse({"metadata": meta, "spec": {"template": {}, "owners": WEB, **spec}})


def pod(**meta: Any) -> PodIdentity:
    return PodIdentity.parse({"metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web"}, **meta}})


def test_what_is_left_out_is_koordinators_default() -> None:
    minimal = reservation()
    assert (minimal.allocate_once, minimal.allocate_policy) == (True, AllocatePolicy.ALIGNED)
    assert (minimal.status.phase, minimal.ttl_seconds) == (Phase.PENDING, 86_400)
    assert minimal.deadline_seconds == 100 + 86_400


def test_expires_goes_before_ttl_and_zero_is_for_ever() -> None:
    assert reservation(ttl="5s", expires="1970-01-01T00:10:00Z").deadline_seconds == 600
    assert reservation(ttl="0s").deadline_seconds is None
    assert reservation(ttl="10s").expired(110) and not reservation(ttl="10s").expired(109.9)


@pytest.mark.parametrize(
    ("owners", "matches"),
    [
        ([], False),
        ([{}], True),
        ([{"object": {"name": "web-0", "namespace": "shop"}}], True),
        ([{"object": {"name": "web-0", "namespace": "other"}}], False),
        ([{"object": {"uid": "x"}}], False),
        ([{"controller": {"kind": "ReplicaSet", "name": "web", "apiVersion": "apps/v1"}}], True),
        ([{"controller": {"kind": "ReplicaSet", "name": "web", "namespace": "other"}}], False),
        ([{"controller": {"kind": "Job", "name": "web"}}], False),
        ([{"labelSelector": {"matchLabels": {"app": "other"}}}], False),
        ([{"labelSelector": {"matchLabels": {"app": "other"}}}, {"object": {"name": "web-0"}}], True),
        ([{"labelSelector": {"matchLabels": {"app": "web"}}, "object": {"name": "web-1"}}], False),
    ],
    ids=str,
)
def test_owners_are_alternatives_of_which_all_parts_must_hold(owners: list[Any], matches: bool) -> None:
    controller = {"kind": "ReplicaSet", "name": "web", "apiVersion": "apps/v1", "uid": "c", "controller": True}
    assert reservation(owners=owners).owned_by(pod(uid="p", ownerReferences=[controller])) is matches


@pytest.mark.parametrize(
    ("affinity", "usable"),
    [
        ({"name": "r"}, True),
        ({"name": "other"}, False),
        ({"reservationSelector": {"pool": "a"}}, True),
        ({"reservationSelector": {"pool": "b"}}, False),
        (
            {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "reservationSelectorTerms": [
                        {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["b"]}]},
                        {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
                    ]
                }
            },
            True,
        ),
    ],
    ids=str,
)
def test_a_pods_affinity_narrows_which_reservations_it_uses(affinity: dict[str, Any], usable: bool) -> None:
    annotations = {AFFINITY: msgspec.json.encode(affinity).decode()}
    assert reservation().usable_by(pod(annotations=annotations)) is usable


def test_an_affinity_that_cannot_be_read_is_none() -> None:
    assert reservation().usable_by(pod(annotations={AFFINITY: "{"}))


def test_a_taint_keeps_out_whoever_does_not_tolerate_it() -> None:
    tainted = reservation(taints=[{"key": "held", "value": "x", "effect": "NoSchedule"}])
    assert not tainted.usable_by(pod())
    assert not tainted.usable_by(pod(), [Toleration("held", "Equal", "y")])
    assert tainted.usable_by(pod(), [Toleration("held", "Equal", "x", "NoSchedule")])
    assert tainted.usable_by(pod(), [Toleration(operator="Exists")])


def test_the_ignored_label_keeps_a_pod_from_every_reservation() -> None:
    ignoring = pod(labels={"app": "web", "scheduling.koordinator.sh/reservation-ignored": "true"})
    assert not reservation().usable_by(ignoring)


def test_the_annotation_chooses_the_mode() -> None:
    meta = {"name": "r", "annotations": {"cotenant.dev/reservation-mode": "last-resort"}}
    assert Reservation.parse({"metadata": meta, "spec": {}}).mode(Mode.PINNED) is Mode.LAST_RESORT
    assert reservation().mode(Mode.PINNED) is Mode.PINNED


@pytest.mark.parametrize(
    "spec",
    [{"ttl": "soon"}, {"expires": "tomorrow"}, {"allocatePolicy": "Loose"}, {"template": []}, {"owners": ["web"]}],
    ids=str,
)
def test_what_cannot_be_read_is_refused_by_name(spec: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="reservation r"):
        reservation(**spec)


@pytest.mark.parametrize(
    ("text", "seconds"), [("24h", 86_400), ("1m30s", 90), ("500ms", 0.5), ("1.5h", 5_400), ("0", 0), ("0s", 0)]
)
def test_durations_are_gos(text: str, seconds: float) -> None:
    assert seconds_of(text, "ttl") == pytest.approx(seconds)


def test_a_pods_request_is_what_the_scheduler_counts() -> None:
    spec = {
        "initContainers": [
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
            {"resources": {"requests": {"cpu": "2"}}},
        ],
        "containers": [
            {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
            {"resources": {"limits": {"cpu": "500m", "nvidia.com/gpu": "1"}}},
        ],
        "overhead": {"cpu": "10m"},
    }
    # Running: 1000 + 500 (a limit without a request is one) + 100 (sidecar) = 1600; the second init container runs
    # beside the sidecar: 2100. The larger is 2100; with overhead 2110.
    assert requests_of(spec) == {"cpu": 2110, "memory": 1 << 30, "nvidia.com/gpu": 1}


ROOMS = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 10**12), max_size=3)


@settings(max_examples=50)
@given(ROOMS, ROOMS)
def test_what_is_left_and_what_is_taken_make_the_whole(room: dict[str, int], taken: dict[str, int]) -> None:
    remaining = rest(room, taken)
    assert all(0 <= remaining[name] <= amount for name, amount in room.items())
    if fits(select_amounts(taken, room), room):
        assert sum_amounts((remaining, select_amounts(taken, room))) == room
    assert parse_quantities(format_quantities(room)) == room


def test_current_owners_are_read_back() -> None:
    status = {"phase": "Available", "currentOwners": [{"name": "web-0", "namespace": "shop", "uid": "p"}]}
    parsed = Reservation.parse({"metadata": {"name": "r"}, "spec": {}, "status": status})
    assert parsed.status.owners == (Reference(name="web-0", namespace="shop", uid="p"),)
    assert not parsed.open_to_owners  # it serves once, and has served
