"""Gangs as PodGroups and pods declare them: both protocols, and words that cannot be used."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.scheduler_ext.queues.model.gang import (
    Gang,
    GangMode,
    MatchPolicy,
    gang_key,
    gang_of_pod,
    gang_of_pod_group,
    gangs_of,
)

PREFIX = "gang.scheduling.koordinator.sh/"


def pod_group(name: str = "train", annotations: dict[str, str] | None = None, **spec: Any) -> Gang:
    meta = {"namespace": "ml", "name": name, "uid": "u1", "creationTimestamp": "1970-01-01T00:00:10Z"}
    gang_annotations = {PREFIX + key: value for key, value in (annotations or {}).items()}
    return gang_of_pod_group({"metadata": {**meta, "annotations": gang_annotations}, "spec": {"minMember": 4, **spec}})


def declared(pod: str = "a", created_seconds: float = 0.0, /, **annotations: str) -> Gang:
    gang_annotations = {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
    gang = gang_of_pod("ml", pod, {}, {PREFIX + "name": "train", **gang_annotations}, created_seconds)
    assert gang is not None
    return gang


def test_a_pod_group_defines_a_gang() -> None:
    gang = pod_group(
        annotations={"mode": "NonStrict", "total-number": "6", "match-policy": "only-waiting"},
        scheduleTimeoutSeconds=90,
    )
    assert (gang.key, gang.min_available, gang.total, gang.wait_seconds) == ("ml/train", 4, 6, 90.0)
    assert (gang.mode, gang.match_policy) == (GangMode.NON_STRICT, MatchPolicy.ONLY_WAITING)
    assert (gang.created_seconds, gang.uid, gang.from_pod_group, gang.problem) == (10.0, "u1", True, "")
    assert gang.group == ("ml/train",)


def test_pods_declare_a_gang_with_defaults_as_koordinator_has_them() -> None:
    gang = declared(min_available="3", waiting_time="1m30s", groups='["ml/train", "ml/eval"]')
    assert (gang.min_available, gang.total, gang.wait_seconds, gang.problem) == (3, 3, 90.0, "")
    assert (gang.mode, gang.match_policy) == (GangMode.STRICT, MatchPolicy.ONCE_SATISFIED)
    assert gang.group == ("ml/eval", "ml/train")


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({"pod-group.scheduling.sigs.k8s.io": "train"}, {PREFIX + "name": "other"}),
        ({"pod-group.scheduling.sigs.k8s.io/name": "train"}, {}),
        ({}, {PREFIX + "name": "train"}),
    ],
)
def test_a_pod_names_its_gang_in_three_ways(labels: dict[str, str], annotations: dict[str, str]) -> None:
    assert gang_key("ml", labels, annotations) == "ml/train"
    assert gang_of_pod("ml", "a", labels, annotations) is not None


def test_a_pod_without_gang_declares_none() -> None:
    assert gang_of_pod("ml", "a", {"app": "x"}, {}) is None


def test_the_older_labels_say_the_minimum() -> None:
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "t", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    gang = gang_of_pod("ml", "a", labels, {})
    assert gang is not None
    assert (gang.key, gang.min_available, gang.problem) == ("ml/t", 2, "")


@pytest.mark.parametrize(
    ("gang", "value"),
    [
        (pod_group(minMember=0), "0"),
        (pod_group(minMember=10_000), "10000"),
        (pod_group(minMember=-3), "-3"),
        (pod_group(minMember=None), "null"),
    ],
)
def test_words_of_a_pod_group_that_cannot_be_used_are_named_with_it(gang: Gang, value: str) -> None:
    assert gang.problem.startswith("podgroups/ml/train: ")
    assert value in gang.problem


@pytest.mark.parametrize(
    "annotations",
    [
        {"min_available": "-1"},
        {"min_available": "0"},
        {"min_available": "2.5"},
        {"min_available": "many"},
        {"min_available": "1_0"},
        {"min_available": " 4"},
    ],
)
def test_words_of_a_pod_that_cannot_be_used_are_named_with_it(annotations: dict[str, str]) -> None:
    gang = declared(**annotations)
    assert gang.problem.startswith("pods/ml/a: gang.scheduling.koordinator.sh/")
    assert list(annotations.values())[-1] in gang.problem


# What Koordinator's scheduler does with each (pkg/scheduler/plugins/coscheduling/core/gang.go): it logs "illegal" and
# goes on with the default: total = minimum, mode Strict, policy once-satisfied, the default timeout, no other gang.
ILLEGAL = {
    "mode": ("Loose", "strict", " Strict", "1"),
    "match_policy": ("never", "ONLY-WAITING", "[]"),
    "total_number": ("3", "-1", "many", "4.5", "1e3", "1_0", " 8 ", "\u0668", "9" * 30),
    "waiting_time": ("soon", "-5s", "10", "1h-3m"),
    "groups": ("train", '["train"]', '["ml/other"]', '{"ml/train": 1}', "[1]", '["/"]', "[["),
}
CASES = [(key, value) for key, values in ILLEGAL.items() for value in values]


@pytest.mark.parametrize(("key", "value"), CASES)
def test_an_optional_word_that_cannot_be_used_leaves_its_default_with_a_note(key: str, value: str) -> None:
    plain, gang = declared(min_available="4"), declared(min_available="4", **{key: value})
    group = pod_group(annotations={key.replace("_", "-"): value})
    assert gang.terms == plain.terms
    assert (gang.problem, group.problem) == ("", "")
    (note,) = gang.notes
    assert note.startswith(f"pods/ml/a: {PREFIX}{key.replace('_', '-')} ") and note.endswith(" is used")
    if key != "waiting_time":  # a PodGroup says it in its spec
        assert group.terms == pod_group().terms
        assert len(group.notes) == 1 and group.notes[0].startswith("podgroups/ml/train: ")
    else:  # a bare number is none in an annotation, which is a duration of Go
        assert note.split(" such as ")[1].startswith('"10m" or "600s"')


def test_a_pod_group_with_a_timeout_below_zero_waits_as_the_settings_say() -> None:
    gang = pod_group(scheduleTimeoutSeconds=-5)
    assert (gang.wait_seconds, gang.problem) == (0.0, "")
    assert "-5 is not a waiting time" in gang.notes[0]


def test_in_optional_words_the_oldest_pod_is_followed_with_a_note() -> None:
    younger = declared("b", 5.0, min_available="4", mode="NonStrict")
    (gang,) = gangs_of((), (younger, declared("a", 1.0, min_available="4"))).values()
    assert (gang.mode, gang.problem) == (GangMode.STRICT, "")
    assert "pods/ml/b declares" in gang.notes[0] and "NonStrict" in gang.notes[0]


def test_pods_of_one_gang_that_disagree_are_a_problem_of_that_gang_alone() -> None:
    good = gang_of_pod("ml", "z", {}, {PREFIX + "name": "good", PREFIX + "min-available": "2"})
    assert good is not None
    gangs = gangs_of((), (declared("b", 5.0, min_available="3"), declared("a", 1.0, min_available="4"), good))
    assert gangs["ml/train"].min_available == 4
    assert gangs["ml/train"].problem.startswith("pods/ml/b declares at least 3 of 3")
    assert "pods/ml/a declares at least 4 of 4" in gangs["ml/train"].problem
    assert gangs["ml/good"].problem == ""


def test_a_pod_group_goes_before_what_pods_say() -> None:
    gangs = gangs_of((pod_group(),), (declared(min_available="9"),))
    assert gangs["ml/train"].min_available == 4
    assert gangs["ml/train"].problem == ""


def test_a_pod_whose_pod_group_is_missing_says_so() -> None:
    gang = gang_of_pod("ml", "a", {"pod-group.scheduling.sigs.k8s.io": "train"}, {})
    assert gang is not None
    assert "no PodGroup ml/train exists" in gangs_of((), (gang,))["ml/train"].problem


def test_gangs_of_a_group_must_name_each_other() -> None:
    both = '["ml/train", "ml/eval"]'
    alone = gangs_of((pod_group(annotations={"groups": both}), pod_group("eval")), ())
    assert "ml/eval" in alone["ml/train"].problem
    assert alone["ml/eval"].problem == ""
    agreed = gangs_of((pod_group(annotations={"groups": both}), pod_group("eval", {"groups": both})), ())
    assert not any(gang.problem for gang in agreed.values())


def test_a_gang_whose_group_cannot_be_used_cannot_be_used_either() -> None:
    both = {"groups": '["ml/train", "ml/eval"]'}
    gangs = gangs_of((pod_group(annotations=both), pod_group("eval", both, minMember=0)), ())
    assert "gang ml/eval of its group is invalid: podgroups/ml/eval: spec.minMember 0" in gangs["ml/train"].problem


def test_the_phase_of_a_pod_group_tells_that_it_has_started() -> None:
    body = {"metadata": {"name": "x", "namespace": "ml"}, "spec": {"minMember": 1}, "status": {"phase": "Running"}}
    assert gang_of_pod_group(body).started
    assert not gang_of_pod_group({**body, "status": {"phase": "Pending"}}).started
