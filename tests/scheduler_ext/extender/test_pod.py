"""What a pod is estimated to use, and which class it counts as."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.models.pod import PodWire
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.resource import MIB
from cotenant.scheduler_ext.extender.pod import facts_of
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings
from tests.scheduler_ext.extender.worlds import NOW, facts, pod_json

BE = {"koordinator.sh/qosClass": "BE"}
LS = {"koordinator.sh/qosClass": "LS"}


@pytest.mark.parametrize(
    ("requests", "limits", "labels", "expected"),
    [
        # 85 % of 1,000 m and 70 % of 1,000 Mi
        ({"cpu": "1", "memory": "1000Mi"}, {}, LS, (850, 700 * MIB)),
        # the limit is the larger one: 85 % of 2,000 m; 70 % of 2 Gi = 1433.6 Mi = 1503238553.6 -> 1503238554
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "2Gi"}, LS, (1700, 1_503_238_554)),
        # nothing asked: 250 m and 200 Mi
        ({}, {}, LS, (250, 200 * MIB)),
        # a batch pod asks by other names, cpu as whole millicores: 85 % of 1,000; 70 % of 1,000
        ({"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1000"}, {}, BE, (850, 700)),
        # what it asks by the plain names does not count for it
        ({"cpu": "8", "memory": "8Gi"}, {}, BE, (250, 200 * MIB)),
        # mid without its resources counts nothing, free has no resources
        ({"cpu": "8"}, {}, {"koordinator.sh/priority-class": "koord-mid"}, (0, 0)),
        ({"cpu": "8"}, {}, {"koordinator.sh/priority-class": "koord-free"}, (0, 0)),
    ],
)
def test_the_estimate_is_koordinators(
    requests: dict[str, str], limits: dict[str, str], labels: dict[str, str], expected: tuple[float, float]
) -> None:
    assert facts(pod_json("p", requests, limits, labels=labels)).estimate == expected


def test_an_estimate_never_passes_the_limit() -> None:
    factors = msgspec.structs.replace(LoadAwareSettings().scaling_factors, cpu=150)
    pod = pod_json("p", {"cpu": "1"}, {"cpu": "1"}, labels=LS)
    # 150 % of 1,000 m is 1,500 m, above the limit
    assert facts(pod, LoadAwareSettings(scaling_factors=factors)).estimate[0] == 1000


@pytest.mark.parametrize(
    ("requests", "more", "expected"),
    [
        ({"cpu": "1"}, {}, PriorityClass.PROD),  # Burstable -> LS -> prod
        ({}, {}, PriorityClass.BATCH),  # BestEffort -> BE -> batch
        ({}, {"qos": "Burstable"}, PriorityClass.PROD),
        ({"cpu": "1"}, {"labels": BE}, PriorityClass.BATCH),
        ({"cpu": "1"}, {"priority": 7100}, PriorityClass.MID),
        ({"cpu": "1"}, {"labels": {"koordinator.sh/priority-class": "koord-free"}}, PriorityClass.FREE),
    ],
)
def test_a_pod_without_a_class_counts_by_its_qos(
    requests: dict[str, str], more: dict[str, Any], expected: PriorityClass
) -> None:
    assert facts(pod_json("p", requests, **more)).priority_class is expected


def test_pods_may_say_their_own_factors_and_windows_only_where_the_settings_let_them() -> None:
    annotations = {
        "scheduling.koordinator.sh/load-estimated-scaling-factors": '{"cpu": 50}',
        "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled": "100",
        "scheduling.koordinator.sh/load-estimated-seconds-after-initialized": "30",
    }
    pod = pod_json("p", {"cpu": "1"}, annotations=annotations, labels=LS, scheduled=NOW)
    assert (facts(pod).estimate[0], facts(pod).young_until) == (850, None)
    own = facts(pod, LoadAwareSettings(customised_estimation=True))
    assert (own.estimate[0], own.young_until) == (500, NOW + 100)
    pod["status"]["conditions"] += pod_json("p", initialized=NOW + 40)["status"]["conditions"]
    # once initialised, the window after initialisation wins: 40 + 30
    assert facts(pod, LoadAwareSettings(customised_estimation=True)).young_until == NOW + 70


def test_a_pods_life_is_the_shortest_that_it_says() -> None:
    pod = pod_json("p", annotations={"cotenant.dev/expected-run-seconds": "600"})
    assert facts(pod).run_seconds == 600
    pod["spec"]["activeDeadlineSeconds"] = 300
    assert facts(pod).run_seconds == 300
    assert facts(pod_json("p")).run_seconds == math.inf


def test_a_quantity_that_the_server_stores_and_nobody_can_count_leaves_the_pod_unread() -> None:
    pod = facts(pod_json("p", {"memory": "1e999999"}))
    assert "1e999999" in pod.unread
    assert pod.estimate == (0.0, 0.0)


def test_an_amount_beyond_64_bits_counts_as_the_most_that_kubernetes_holds() -> None:
    pod = pod_json("p")
    pod["spec"]["containers"][0]["resources"] = {"requests": {"memory": 10**25}}
    new_pod = facts(pod)
    # Kubernetes' Quantity holds at most 2^63 - 1
    assert (new_pod.unread, new_pod.requests["memory"]) == ("", 2**63 - 1)


def test_a_bound_placeholder_uses_nothing_and_one_that_is_being_placed_counts_as_its_owner_would() -> None:
    labels = {"cotenant.dev/placeholder": "true", "cotenant.dev/reservation": "r1", **LS}
    bound = facts(pod_json("p", {"cpu": "1"}, labels=labels, node="n1", namespace="cotenant-reservations"))
    assert (bound.placeholder_of, bound.estimate, bound.requests["cpu"]) == ("r1", (0.0, 0.0), 1000)
    placing = facts(pod_json("p", {"cpu": "1"}, labels=labels, namespace="cotenant-reservations"))
    assert placing.estimate[0] == 850


def test_the_label_of_placeholders_hides_no_other_pods_use_and_keeps_nobody_off_its_node() -> None:
    labels = {"cotenant.dev/placeholder": "true", "cotenant.dev/reservation": "nobody-made-it", **LS}
    tenants = facts(pod_json("p", {"cpu": "1"}, labels=labels, node="n1", namespace="tenant"))
    # as any pod of one core: 85 % of it
    assert (tenants.placeholder_of, tenants.estimate[0]) == (None, 850)


TEXTS = st.text(max_size=12)


@settings(max_examples=60)
@given(
    requests=st.dictionaries(st.sampled_from(["cpu", "memory", "kubernetes.io/batch-cpu"]), TEXTS, max_size=3),
    labels=st.dictionaries(st.sampled_from(["koordinator.sh/qosClass", "koordinator.sh/priority-class"]), TEXTS),
    annotation=st.one_of(TEXTS, st.just('{"cpu": 1e400}'), st.just("[1]")),
)
def test_no_pod_that_the_server_takes_breaks_the_reading(
    requests: dict[str, str], labels: dict[str, str], annotation: str
) -> None:
    annotations = {
        "scheduling.koordinator.sh/load-estimated-scaling-factors": annotation,
        "cotenant.dev/predicted-usage": annotation,
        "cotenant.dev/expected-run-seconds": annotation,
    }
    wire = msgspec.convert(pod_json("p", requests, labels=labels, annotations=annotations), PodWire)
    pod = facts_of(wire, LoadAwareSettings(customised_estimation=True))
    assert all(math.isfinite(amount) and amount >= 0 for amount in pod.estimate)
