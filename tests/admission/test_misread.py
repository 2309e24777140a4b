"""Values that nobody can understand are named to who writes them, and understood ones are not."""

from __future__ import annotations

import json

import pytest

from cotenant.admission.review import ReviewContext, answer
from cotenant.admission.values.misread import (
    ANNOTATIONS,
    LABELS,
    QUOTA_LABELS,
    WORDS,
    misread_on_pod,
    misread_on_quota,
    small_amounts,
)
from cotenant.admission.view import ClusterView
from tests.admission.bodies import pod, quota
from tests.admission.serving import review_of

GOOD_LABELS = {
    "koordinator.sh/qosClass": ("BE", "LSE", "SYSTEM"),
    "koordinator.sh/priority-class": ("koord-batch", "koord-free"),
    "koordinator.sh/priority": ("100", "-5", "0"),
    "scheduling.koordinator.sh/operating-mode": ("Reservation", "Pod"),
}
GOOD_ANNOTATIONS = {
    "koordinator.sh/eviction-priority": ("-1", "7"),
    "koordinator.sh/eviction-policy": ('["evictByRealLimit"]', "[]"),
    "scheduling.koordinator.sh/eviction-cost": ("10",),
    "cotenant.dev/expected-run-seconds": ("90", "1.5"),
    "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled": ("60",),
    "scheduling.koordinator.sh/load-estimated-seconds-after-initialized": ("0",),
}


@pytest.mark.parametrize("key", LABELS)
def test_a_label_of_ours_is_named_exactly_when_it_is_not_understood(key: str) -> None:
    for value in GOOD_LABELS.get(key, ("true", "false")):
        assert list(misread_on_pod(pod("p", {key: value}), "shop")) == []
    for value in ("Best", "be", "yes", "1x", "true ", "2147483648"):
        (line,) = misread_on_pod(pod("p", {key: value}), "shop")
        assert line.startswith(f"{key} ") and value in line


@pytest.mark.parametrize("key", ANNOTATIONS)
def test_an_annotation_of_ours_is_named_exactly_when_it_is_not_understood(key: str) -> None:
    for good in (*GOOD_ANNOTATIONS.get(key, ("{}",)), ""):
        body = pod()
        body["metadata"]["annotations"] = {key: good}
        assert list(misread_on_pod(body, "shop")) == []
    for bad in ("nonsense", "{", "true", "1h"):
        body = pod()
        body["metadata"]["annotations"] = {key: bad}
        (line,) = misread_on_pod(body, "shop")
        assert line.startswith(f"{key} ") and bad in line


@pytest.mark.parametrize(("key", "name"), [(key, name) for key, fields in WORDS.items() for name in fields])
def test_a_word_inside_of_an_annotation_is_named_exactly_when_it_is_not_known(key: str, name: str) -> None:
    """FullPCPU for FullPCPUs, cpuburst for cpuBurstOnly, a list for a word."""

    def lines(value: object) -> list[str]:
        body = pod()
        body["metadata"]["annotations"] = {key: json.dumps({name: value})}
        return list(misread_on_pod(body, "shop"))

    for word in WORDS[key][name]:
        assert lines(word) == []
    for wrong in (WORDS[key][name][-1].lower() + "x", "Full", ["None"], 3):
        (line,) = lines(wrong)
        assert line.startswith(f"{key}: {name} ") and WORDS[key][name][-1] in line


@pytest.mark.parametrize("resource", ["batch-cpu", "batch-memory", "mid-cpu", "mid-memory"])
@pytest.mark.parametrize("side", ["requests", "limits"])
@pytest.mark.parametrize("group", ["containers", "initContainers"])
def test_amounts_that_are_a_part_of_a_unit_are_named(resource: str, side: str, group: str) -> None:
    name = f"kubernetes.io/{resource}"
    for value, number in (("200m", "0.2"), ("1.5", "1.5"), ("1500m", "1.5"), ("100u", None)):
        body = pod()
        body["spec"][group] = [{"name": "odd", "image": "x", "resources": {side: {name: value}}}]
        (line,) = misread_on_pod(body, "shop")
        assert line.startswith(f"container odd: {name} '{value}' is ")
        assert number is None or f" is {number} " in line
    for whole_amount in ("200", "1k", "1Gi", "2000m", 5, "0"):
        body = pod()
        body["spec"][group] = [{"name": "whole", "image": "x", "resources": {side: {name: whole_amount}}}]
        assert list(misread_on_pod(body, "shop")) == []


def test_illegal_words_about_a_gang_are_named_and_a_missing_minimum_is_not() -> None:
    body = pod()
    prefix = "gang.scheduling.koordinator.sh/"
    body["metadata"]["annotations"] = {prefix + "name": "train", prefix + "mode": "Loose"}
    (line,) = misread_on_pod(body, "ml")
    assert line == f"{prefix}mode 'Loose' is not one of Strict, NonStrict; Strict is used"
    body["metadata"]["annotations"] = {prefix + "name": "train", prefix + "min-available": "many"}
    (line,) = misread_on_pod(body, "ml")
    assert line.startswith(f"{prefix}min-available 'many' is not a number of members")


def test_a_misspelt_gate_of_ours_is_named_and_gates_of_others_are_not() -> None:
    """Nothing would ever lift it, and no scheduler looks at the pod before."""
    names = ("cotenant.dev/gang", "cotenant.dev/quota", "cotenant.dev/reservation", "cotenant.dev/gnag", "theirs/x")
    body = pod()
    body["spec"]["schedulingGates"] = [{"name": name} for name in names]
    (line,) = misread_on_pod(body, "shop")
    assert "cotenant.dev/gnag" in line and "never removes it" in line


@pytest.mark.parametrize("key", QUOTA_LABELS)
def test_a_label_of_a_quota_is_true_or_false(key: str) -> None:
    for value, lines in (("true", 0), ("false", 0), ("True", 1), ("yes", 1)):
        body = quota("q")
        body["metadata"]["labels"] = {key: value}
        assert len(list(misread_on_quota(body))) == lines


@pytest.mark.parametrize("side", ["min", "max"])
def test_a_part_of_a_unit_is_named_in_a_quota_too(side: str) -> None:
    name = "kubernetes.io/batch-cpu"
    for value, lines in (("200m", 1), ("1.5", 1), ("200", 0), ("1k", 0), (5, 0)):
        body = quota("q")
        body["spec"] = {"max": {name: "1k"}, side: {name: value}}
        texts = list(misread_on_quota(body))
        assert len(texts) == lines
        assert all(line.startswith(f"spec.{side}: {name} ") for line in texts)


def test_the_webhooks_answer_carries_the_warnings_and_admits_the_pod() -> None:
    body = pod("p", {"koordinator.sh/qosClass": "Best", "quota.scheduling.koordinator.sh/name": "gone"})
    document = json.loads(
        answer("/mutate-pod", json.dumps(review_of("pods", body)).encode(), ReviewContext(ClusterView())).body
    )
    assert document["response"]["allowed"]
    warnings = document["response"]["warnings"]
    assert any("qosClass 'Best' is not one of LSE, LSR, LS, BE, SYSTEM" in line for line in warnings)
    assert any("names the quota 'gone', which does not exist" in line for line in warnings)


@pytest.mark.parametrize(
    ("name", "value", "phrase"),
    [
        ("kubernetes.io/batch-cpu", "2", "is only 2 millicores: write 2000 for 2 cores"),
        ("kubernetes.io/mid-cpu", "16", "is only 16 millicores: write 16000 for 16 cores"),
        ("kubernetes.io/batch-memory", "512", "is only 512 bytes: write 512Mi"),
        ("kubernetes.io/batch-cpu", "100", ""),
        ("kubernetes.io/batch-memory", "1Gi", ""),
        ("cpu", "2", ""),
    ],
)
def test_amounts_that_are_likely_of_another_unit_are_named(name: str, value: str, phrase: str) -> None:
    container = {"name": "main", "resources": {"requests": {name: value}}}
    texts = list(small_amounts({"metadata": {}, "spec": {"containers": [container]}}))
    assert len(texts) == bool(phrase) and all(phrase in text for text in texts)
