"""Profiles laid over pods, key by key, and the patch that says so."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.admission.pod_mutation import AdmissionCall, compute_mutation
from cotenant.admission.profile import PriorityClassEntry, Profile
from cotenant.admission.profile_record import RECORD_ANNOTATION, signing_key
from cotenant.admission.review import difference
from cotenant.admission.view import ClusterView
from cotenant.base.errors import UsageError

KEY = signing_key(b"the serving certificate's private key")
CLASSES = {"koord-batch": PriorityClassEntry(5000), "koord-prod": PriorityClassEntry(9000)}
NAMESPACES = {"spark-job": {"koordinator.sh/enable-colocation": "true"}, "shop": {}}
FOUNDING = {
    "metadata": {"name": "colocation-profile-example"},
    "spec": {
        "namespaceSelector": {"matchLabels": {"koordinator.sh/enable-colocation": "true"}},
        "selector": {"matchLabels": {"sparkoperator.k8s.io/launched-by-spark-operator": "true"}},
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "koordinatorPriority": 1000,
        "schedulerName": "koord-scheduler",
        "labels": {"koordinator.sh/mutated": "true"},
        "annotations": {"koordinator.sh/intercepted": "true"},
        "patch": {"spec": {"terminationGracePeriodSeconds": 30}},
    },
}


def profile(name: str = "p", **spec: Any) -> Profile:
    return Profile.parse({"metadata": {"name": name}, "spec": spec})


def view(*profiles: Profile) -> ClusterView:
    return ClusterView(tuple(sorted(profiles, key=lambda p: p.name)), NAMESPACES, CLASSES)


def pod(labels: dict[str, str] | None = None, **resources: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "driver", "labels": labels or {}},
        "spec": {"containers": [{"name": "main", "image": "x", "resources": resources}]},
    }


def call(operation: str = "CREATE", namespace: str = "spark-job", uid: str = "u-1", at: float = 1e9) -> AdmissionCall:
    return AdmissionCall(operation, namespace, uid, at, key=KEY)


def record_of(body: Any) -> Any:
    return json.loads(body["metadata"]["annotations"][RECORD_ANNOTATION])


def test_the_mirror_of_a_static_pod_stays_as_the_kubelet_made_it() -> None:
    mirror = pod(requests={"koordinator.sh/batch-cpu": "1"})
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "a-hash"}
    assert compute_mutation(mirror, view(profile(qosClass="BE", labels={"a": "b"})), call()).pod is mirror


def test_the_founding_profile_makes_a_spark_driver_a_batch_pod() -> None:
    driver = pod(
        {"sparkoperator.k8s.io/launched-by-spark-operator": "true"},
        requests={"cpu": "1", "memory": "3456Mi"},
        limits={"cpu": "1", "memory": "3456Mi"},
    )
    changed_pod = compute_mutation(driver, view(Profile.parse(FOUNDING)), call()).pod
    assert changed_pod["metadata"]["labels"] == {
        "sparkoperator.k8s.io/launched-by-spark-operator": "true",
        "koordinator.sh/mutated": "true",
        "koordinator.sh/qosClass": "BE",
        "koordinator.sh/priority": "1000",
    }
    assert changed_pod["metadata"]["annotations"]["koordinator.sh/intercepted"] == "true"
    spec = changed_pod["spec"]
    assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == (
        "koord-batch",
        5000,
        "PreemptLowerPriority",
    )
    assert (spec["schedulerName"], spec["terminationGracePeriodSeconds"]) == ("koord-scheduler", 30)
    # one core is 1000 millicores, which the API server writes as 1k
    amounts = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "3456Mi"}
    assert spec["containers"][0]["resources"] == {"requests": amounts, "limits": amounts}


@pytest.mark.parametrize("namespace", ["shop", "nowhere"])
def test_a_pod_outside_the_labelled_namespaces_is_not_touched(namespace: str) -> None:
    driver = pod({"sparkoperator.k8s.io/launched-by-spark-operator": "true"}, requests={"cpu": "1"})
    assert compute_mutation(driver, view(Profile.parse(FOUNDING)), call(namespace=namespace)).pod == driver


def test_profiles_run_in_name_order_and_the_later_one_wins() -> None:
    first, second = profile("a", labels={"x": "1", "only": "a"}), profile("b", labels={"x": "2"})
    assert compute_mutation(pod(), view(second, first), call()).pod["metadata"]["labels"] == {"x": "2", "only": "a"}


def test_a_profile_that_matches_because_of_another_runs_after_it() -> None:
    late = profile("a", selector={"matchLabels": {"team": "x"}}, labels={"late": "yes"})
    mutation = compute_mutation(pod(), view(late, profile("b", labels={"team": "x"})), call())
    assert mutation.pod["metadata"]["labels"] == {"team": "x", "late": "yes"}
    assert mutation.applied == ("b", "a")


def test_keys_are_mapped_and_a_missing_source_gives_an_empty_label() -> None:
    changed_pod = compute_mutation(pod({"a": "1"}), view(profile(labelKeysMapping={"a": "b", "no": "c"})), call()).pod
    assert changed_pod["metadata"]["labels"] == {"a": "1", "b": "1", "c": ""}


def test_a_suffix_is_appended_once_although_the_webhook_is_called_again() -> None:
    cluster = view(profile(labelSuffixes={"app": "-batch"}))
    once = compute_mutation(pod({"app": "web"}), cluster, call()).pod
    again = compute_mutation(once, cluster, call(uid="another-uid", at=1e9 + 3)).pod
    assert once["metadata"]["labels"]["app"] == again["metadata"]["labels"]["app"] == "web-batch"


def test_a_record_copied_from_an_old_pod_does_not_keep_a_profile_away() -> None:
    cluster = view(profile(labels={"x": "1"}))
    copied = compute_mutation(pod(), cluster, call()).pod
    copied["metadata"]["labels"] = {}
    assert compute_mutation(copied, cluster, call(at=1e9 + 3600)).pod["metadata"]["labels"] == {"x": "1"}


def test_amounts_that_another_webhook_adds_to_a_translated_pod_are_taken_out() -> None:
    cluster = view(profile(qosClass="BE", priorityClassName="koord-batch"))
    once: Any = compute_mutation(pod(requests={"cpu": "2"}), cluster, call()).pod
    resources = once["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"kubernetes.io/batch-cpu": "2k"}
    added = {**resources, "requests": {**resources["requests"], "cpu": "100m"}, "limits": {"cpu": "1"}}
    body = {**once, "spec": {**once["spec"], "containers": [{**once["spec"]["containers"][0], "resources": added}]}}
    again = compute_mutation(body, cluster, call(at=1e9 + 3))
    assert again.pod["spec"]["containers"][0]["resources"] == {
        "requests": {"kubernetes.io/batch-cpu": "2k"},
        "limits": {},
    }
    assert any("was removed" in warning for warning in again.warnings)
    # What its author wrote beside the class's own resource stays at every call.
    both = pod(requests={"cpu": "1", "kubernetes.io/batch-cpu": "1k"})
    twice_changed: Any = compute_mutation(compute_mutation(both, cluster, call()).pod, cluster, call(at=1e9 + 3)).pod
    assert twice_changed["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "1",
        "kubernetes.io/batch-cpu": "1k",
    }


def test_a_profile_that_was_not_drawn_stays_away_when_the_webhook_is_called_again() -> None:
    cluster = view(profile(labels={"x": "1"}, probability="1%"))
    unlucky = next(f"u-{i}" for i in range(100) if not cluster.profiles[0].drawn(f"u-{i}"))
    lucky = next(f"u-{i}" for i in range(5000) if cluster.profiles[0].drawn(f"u-{i}"))
    once = compute_mutation(pod(requests={"cpu": "1"}), cluster, call(uid=unlucky)).pod
    record = record_of(once)
    assert (record["applied"], record["at"], record["skipped"]) == ([], 1000000000, ["p"])
    assert compute_mutation(once, cluster, call(uid=lucky)).pod == once


def test_probability_is_the_share_of_pods_that_are_drawn() -> None:
    half = profile(probability="50%")
    drawn = sum(half.drawn(f"pod-{i}") for i in range(4000))
    # binomial(4000, 0.5): mean 2000, standard deviation 31.6; five of them on either side
    assert 1842 <= drawn <= 2158
    assert [profile(probability=p).drawn("any") for p in (0, "0%", 100, "100%")] == [False, False, True, True]


def test_resources_are_translated_also_when_the_only_profile_was_not_drawn() -> None:
    batch = pod({"koordinator.sh/qosClass": "BE"}, requests={"cpu": "250m"})
    changed_pod = compute_mutation(batch, view(profile(probability=0)), call()).pod
    assert changed_pod["spec"]["containers"][0]["resources"]["requests"] == {"kubernetes.io/batch-cpu": "250"}


def test_a_profile_whose_priority_class_is_missing_is_left_out_with_a_warning() -> None:
    mutation = compute_mutation(pod(), view(profile(qosClass="BE", priorityClassName="no-such")), call())
    assert "koordinator.sh/qosClass" not in mutation.pod["metadata"]["labels"]
    assert mutation.warnings == ("profile p was not applied: profile p: there is no PriorityClass 'no-such'",)


def test_a_label_that_grows_too_long_stays_and_the_rest_of_the_profile_is_applied() -> None:
    suffixed = profile(labelSuffixes={"app": "-batch"}, labels={"team": "x"}, qosClass="LS")
    result = compute_mutation(pod({"app": "x" * 60}), view(suffixed), call())
    assert result.pod["metadata"]["labels"] == {"app": "x" * 60, "team": "x", "koordinator.sh/qosClass": "LS"}
    assert result.applied == ("p",)
    assert "label app was not changed" in result.warnings[0] and "is not a valid label value" in result.warnings[0]


def test_a_suffix_ends_a_label_that_exists_and_invents_none() -> None:
    suffixed = view(profile(labelSuffixes={"app": "-batch", "team": "-x"}))
    assert compute_mutation(pod({"app": "web"}), suffixed, call()).pod["metadata"]["labels"] == {"app": "web-batch"}


def annotated_profile(name: str = "p", **spec: Any) -> Profile:
    annotations = {"config.koordinator.sh/skip-update-resources": "true"}
    return Profile.parse({"metadata": {"name": name, "annotations": annotations}, "spec": spec})


def test_a_profile_that_skips_resources_leaves_a_batch_pod_its_cpu() -> None:
    batch = pod({"koordinator.sh/qosClass": "BE"}, requests={"cpu": "250m"})
    requests = [
        compute_mutation(batch, view(*profiles), call()).pod["spec"]["containers"][0]["resources"]["requests"]
        for profiles in (
            [annotated_profile(labels={"x": "1"})],
            [annotated_profile(labels={"x": "1"}, probability=0)],
            [annotated_profile("a", labels={"x": "1"}), profile("b", labels={"y": "1"})],
            [annotated_profile("a", selector={"matchLabels": {"no": "match"}}), profile("b", labels={"y": "1"})],
        )
    ]
    cpu_requests, renamed = {"cpu": "250m"}, {"kubernetes.io/batch-cpu": "250"}
    assert requests == [cpu_requests, cpu_requests, cpu_requests, renamed]


def test_the_annotation_on_the_pod_itself_does_not_keep_its_resources() -> None:
    batch = pod({"koordinator.sh/qosClass": "BE"}, requests={"cpu": "250m"})
    batch["metadata"]["annotations"] = {"config.koordinator.sh/skip-update-resources": "true"}
    result = compute_mutation(batch, view(profile(labels={"x": "1"})), call()).pod
    assert result["spec"]["containers"][0]["resources"]["requests"] == {"kubernetes.io/batch-cpu": "250"}


FORGED = '{"applied":["p"],"at":1000000000,"outcome":"","signature":"00"}'


@pytest.mark.parametrize("text", [FORGED, '{"applied":["p"],"at":1000000000}', '{"skipped":["p"],"at":1000000000}'])
def test_a_record_that_the_author_wrote_passes_no_profile_by(text: str) -> None:
    forged = pod({"app": "web"}, requests={"cpu": "1"})
    forged["metadata"]["annotations"] = {RECORD_ANNOTATION: text}
    cluster = view(profile(qosClass="BE", priorityClassName="koord-batch"))
    result = compute_mutation(forged, cluster, call())
    assert result.applied == ("p",)
    assert result.pod["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
    assert compute_mutation(forged, view(), call()).pod["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    "changed", [{"name": "another"}, {"name": "", "generateName": "driver-"}, {"labels": {}}], ids=min
)
def test_a_record_copied_within_the_minute_passes_no_profile_by(changed: dict[str, Any]) -> None:
    cluster = view(profile(qosClass="BE", priorityClassName="koord-batch"))
    copied = compute_mutation(pod(requests={"cpu": "1"}), cluster, call()).pod
    replayed = pod(requests={"cpu": "1"})
    replayed["metadata"] |= {"annotations": dict(copied["metadata"]["annotations"]), **changed}
    result = compute_mutation(replayed, cluster, call(at=1e9 + 5))
    assert (result.applied, result.pod["spec"]["priority"]) == (("p",), 5000)


def test_a_patch_that_was_taken_out_again_is_laid_over_the_pod_again() -> None:
    cluster = view(profile(labels={"x": "1"}, patch={"spec": {"terminationGracePeriodSeconds": 5}}))
    once = compute_mutation(pod(), cluster, call()).pod
    replayed = {**once, "spec": {k: v for k, v in once["spec"].items() if k != "terminationGracePeriodSeconds"}}
    assert compute_mutation(replayed, cluster, call(at=1e9 + 5)).pod["spec"]["terminationGracePeriodSeconds"] == 5


def test_another_webhook_may_change_what_a_profile_wrote_and_suffixes_are_still_appended_once() -> None:
    cluster = view(profile(labels={"x": "1"}, labelSuffixes={"app": "-batch"}))
    once = compute_mutation(pod({"app": "web"}), cluster, call()).pod
    changed = {**once, "metadata": {**once["metadata"], "labels": {"app": "web-batch", "x": "theirs"}}}
    again = compute_mutation(changed, cluster, call(uid="another-uid", at=1e9 + 1)).pod
    assert again["metadata"]["labels"] == {"app": "web-batch", "x": "1"}


def test_a_living_pod_keeps_its_record_when_its_name_was_generated() -> None:
    cluster = view(profile(labelSuffixes={"app": "-batch"}))
    new = pod({"app": "web", "pod.koordinator.sh/mutating-update": "true"})
    new["metadata"] |= {"name": "", "generateName": "web-"}
    living = compute_mutation(new, cluster, call()).pod
    living["metadata"]["name"] = "web-x7k2p"
    assert compute_mutation(living, cluster, call("UPDATE", at=1e9 + 3600)).pod == living


def test_a_living_pod_changes_only_with_the_label_and_only_in_metadata() -> None:
    cluster = view(profile(labels={"x": "1"}, qosClass="BE", schedulerName="other"))
    living = pod({"koordinator.sh/qosClass": "LS"})
    assert compute_mutation(living, cluster, call("UPDATE")).pod == living
    labelled_pod = pod({"koordinator.sh/qosClass": "LS", "pod.koordinator.sh/mutating-update": "true"})
    changed_pod = compute_mutation(labelled_pod, cluster, call("UPDATE")).pod
    assert changed_pod["metadata"]["labels"] == {**labelled_pod["metadata"]["labels"], "x": "1"}
    assert changed_pod["spec"] == labelled_pod["spec"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"qosClass": "XL"}, "spec.qosClass"),
        ({"probability": "101%"}, "spec.probability"),
        ({"probability": "half"}, "spec.probability"),
        ({"koordinatorPriority": 2**31}, "spec.koordinatorPriority"),
        ({"labels": {"a": "b c"}}, "spec.labels"),
        ({"labels": {"a": 1}}, "spec.labels"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}, "spec.selector"),
        ({"patch": {"metadata": {"name": "other"}}}, "spec.patch"),
        ({"patch": {"kind": "Node"}}, "spec.patch"),
        ({"patch": {"spec": None}}, "spec.patch"),
        ({"patch": []}, "spec.patch"),
    ],
)
def test_a_profile_that_cannot_be_used_is_refused_by_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError, match="ClusterColocationProfile p") as refused:
        profile(**spec)
    assert field in refused.value.message


NAMES = st.sampled_from(["a", "b", "c", "app"])
TEXTS = st.dictionaries(NAMES, st.sampled_from(["", "x", "y-1"]), max_size=3)
SELECTORS = st.none() | TEXTS.map(lambda labels: {"matchLabels": labels})
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "selector": SELECTORS,
        "labels": TEXTS,
        "annotations": TEXTS,
        "labelKeysMapping": st.dictionaries(NAMES, NAMES, max_size=2),
        "annotationKeysMapping": st.dictionaries(NAMES, NAMES, max_size=2),
        "labelSuffixes": st.dictionaries(NAMES, st.sampled_from(["-z", "0"]), max_size=2),
        "qosClass": st.sampled_from(["BE", "LS"]),
        "priorityClassName": st.sampled_from(["koord-batch", "koord-prod", "missing"]),
        "probability": st.sampled_from([0, "30%", 100]),
        "patch": st.sampled_from(
            [
                {"spec": {"tolerations": [{"key": "t", "operator": "Exists"}]}},
                {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}]}},
                {"spec": {"containers": [{"name": "side", "image": "y"}]}},
                {"metadata": {"labels": {"a": None, "c": "patched"}}},
                {"spec": {"priorityClassName": "koord-batch"}},
            ]
        ),
    },
)
QUANTITIES = st.sampled_from(["1", "250m", "1.5", "2Gi", "1e3", "1e999999", "Ki", "-1", 3, 0.5])
AMOUNTS = st.dictionaries(
    st.sampled_from(
        ["cpu", "memory", "kubernetes.io/batch-cpu", "koordinator.sh/batch-memory", "koordinator.sh/bach-cpu"]
    ),
    QUANTITIES,
    max_size=3,
)
PODS = st.builds(
    lambda labels, requests, limits, annotations: {
        "metadata": {"name": "p", "labels": labels, "annotations": annotations},
        "spec": {
            "containers": [{"name": "main", "image": "x", "resources": {"requests": requests, "limits": limits}}],
            "initContainers": [{"name": "init", "image": "x", "resources": {"limits": dict(limits)}}],
        },
    },
    TEXTS,
    AMOUNTS,
    AMOUNTS,
    st.dictionaries(
        st.sampled_from(["koordinator.sh/resource-limit", "node.koordinator.sh/extended-resource-spec", "note"]),
        st.sampled_from(['{"cpu": "5k"}', "{", "[]", '{"containers": {}}', '{"containers": {"main": 3}}']),
        max_size=2,
    ),
)


@pytest.mark.slow
@given(specs=st.lists(SPECS, max_size=4), given_pod=PODS, uids=st.tuples(st.text(max_size=3), st.text(max_size=3)))
@settings(max_examples=150, deadline=None)
def test_twice_is_once_and_the_patch_leads_there(specs: list[Any], given_pod: Any, uids: tuple[str, str]) -> None:
    cluster = view(*(profile(f"p{i}", **spec) for i, spec in enumerate(specs)))
    before = copy.deepcopy(given_pod)
    once = compute_mutation(given_pod, cluster, call(uid=uids[0])).pod
    assert given_pod == before
    assert jsonpatch.apply_patch(given_pod, difference(given_pod, once)) == once
    assert compute_mutation(once, cluster, call(uid=uids[1], at=1e9 + 1)).pod == once


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(JSON, JSON)
@settings(max_examples=200, deadline=None)
def test_a_difference_applied_gives_the_other_document(before: Any, after: Any) -> None:
    wrapped, wrapped_after = {"root": before}, {"root": after}
    assert jsonpatch.apply_patch(wrapped, difference(wrapped, wrapped_after)) == wrapped_after


@given(JSON, JSON)
@settings(max_examples=150, deadline=None)
def test_an_arbitrary_profile_is_read_or_refused_by_name(spec: Any, patch: Any) -> None:
    body = {"metadata": {"name": "odd"}, "spec": {"patch": patch, **(spec if isinstance(spec, dict) else {})}}
    try:
        read_profile = Profile.parse(body)
    except UsageError as refused:
        assert refused.fix
    else:
        assert compute_mutation(pod(), view(read_profile), call()).pod["metadata"]["name"] == "driver"


def test_a_patch_that_takes_all_labels_off_a_living_pod_leaves_those_that_it_keeps_for_life() -> None:
    cluster = view(profile(patch={"metadata": {"labels": None}}))
    labelled_pod = pod({"koordinator.sh/qosClass": "LS", "app": "x", "pod.koordinator.sh/mutating-update": "true"})
    changed_pod = compute_mutation(labelled_pod, cluster, call("UPDATE")).pod
    assert changed_pod["metadata"]["labels"] == {"koordinator.sh/qosClass": "LS"}
