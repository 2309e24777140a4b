"""Profiles as policies: what is compiled, who gives way to whom, and what is named as lost."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cotenant.admission.policies.cel import literal, text
from cotenant.admission.policies.compiler import (
    BATCH_POLICY,
    LIMIT_RANGE_POLICY,
    PREFIX,
    CompiledProfiles,
    compile_profiles,
)
from cotenant.admission.policies.overlap import Overlaps, OwnText, Writes, disjoint
from cotenant.admission.profile import Profile, apply_to
from tests.admission.policy_cases import pod, profile_of, shipped_profiles

LABELS = st.dictionaries(st.sampled_from("kmn"), st.sampled_from(["gold", "a", "x" * 62]), max_size=2)
PROFILE_SPECS = st.fixed_dictionaries(
    {},
    optional={
        "labels": LABELS,
        "labelKeysMapping": st.dictionaries(st.sampled_from("kmn"), st.sampled_from("kmn"), max_size=2),
        "labelSuffixes": st.dictionaries(st.sampled_from("kmn"), st.sampled_from(["-b", "-", "yy"]), max_size=2),
        "patch": st.fixed_dictionaries(
            {
                "metadata": st.fixed_dictionaries(
                    {"labels": st.dictionaries(st.sampled_from("kmn"), st.sampled_from([None, 5, "no label!", "c"]))}
                )
            }
        ),
    },
)


def policy(compiled: CompiledProfiles, name: str) -> Any:
    """Spec of a profile's policy."""
    bodies = [b for b in compiled.objects if b["metadata"]["name"] == PREFIX + name]
    assert [b["kind"] for b in bodies] == ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"]
    return bodies[0]["spec"]


def patch_of(compiled: CompiledProfiles, name: str, place: int = 0) -> str:
    return str(policy(compiled, name)["mutations"][place]["jsonPatch"]["expression"])


def lost(*profiles: Profile) -> dict[tuple[str, str], bool]:
    return {(x.profile, x.field): x.whole for x in compile_profiles(profiles).losses}


def test_shipped_profiles_compile_and_lose_nothing() -> None:
    compiled = compile_profiles(shipped_profiles())
    assert compiled.losses == ()
    assert (
        len(compiled.compiled)
        == 8
        == len({b["metadata"]["name"] for b in compiled.objects} - {BATCH_POLICY, LIMIT_RANGE_POLICY})
    )


def test_no_policy_can_refuse_a_pod() -> None:
    for body in compile_profiles([*shipped_profiles(), profile_of("plain", labels={"a": "b"})]).objects:
        if body["kind"] == "MutatingAdmissionPolicyBinding":
            reference = body["spec"].get("paramRef", {"parameterNotFoundAction": "Allow"})
            assert reference["parameterNotFoundAction"] == "Allow"
        else:
            assert body["spec"]["failurePolicy"] == "Ignore"
            rules = body["spec"]["matchConstraints"]["resourceRules"]
            assert [(r["resources"], r["operations"]) for r in rules] == [(["pods"], ["CREATE"])]


def test_a_priority_class_is_the_parameter_of_the_binding() -> None:
    compiled = compile_profiles([profile_of("p", priorityClassName="koord-mid", patch={"spec": {}})])
    assert policy(compiled, "p")["paramKind"]["kind"] == "PriorityClass"
    binding = compiled.objects[-1]["spec"]
    assert binding["paramRef"] == {"name": "koord-mid", "parameterNotFoundAction": "Allow"}
    assert 'path: "/spec/priority", value: params.value' in patch_of(compiled, "p")


def test_selectors_become_match_constraints_and_own_namespaces_stay_out() -> None:
    spec: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"team": "a"}}, "selector": {"matchExpressions": []}}
    constraints = policy(compile_profiles([profile_of("p", **spec)]), "p")["matchConstraints"]
    first, second = constraints["namespaceSelector"]["matchExpressions"]
    assert first["operator"] == "NotIn" and "kube-system" in first["values"]
    assert second == {"key": "team", "operator": "In", "values": ["a"]}
    assert constraints["objectSelector"] == {}


@pytest.mark.parametrize(
    ("spec", "field", "is_left_out"),
    [
        ({"probability": "30%"}, "probability", True),
        ({"patch": {"spec": {"priorityClassName": ["x"]}}}, "priorityClassName", True),
        ({"patch": {"spec": {"containers": [{"name": "a"}]}}}, "patch.spec.containers", False),
        (
            {"patch": {"spec": {"terminationGracePeriodSeconds": "ten"}}},
            "patch.spec.terminationGracePeriodSeconds",
            False,
        ),
        (
            {"patch": {"spec": {"terminationGracePeriodSeconds": True}}},
            "patch.spec.terminationGracePeriodSeconds",
            False,
        ),
        ({"patch": {"spec": {"activeDeadlineSeconds": 2**60}}}, "patch.spec.activeDeadlineSeconds", False),
        ({"patch": {"spec": {"tolerations": [{"kee": "x"}]}}}, "patch.spec.tolerations", False),
        ({"patch": {"spec": {"nodeSelector": {"$patch": "replace"}}}}, "patch.spec.nodeSelector", False),
        ({"patch": {"metadata": {"finalizers": ["x/y"]}}}, "patch.metadata.finalizers", False),
        ({"patch": {"metadata": {"labels": {"$patch": "replace"}}}}, "patch.metadata.labels", False),
        ({"patch": {"metadata": {"labels": None}}}, "patch.metadata.labels", False),
        ({"patch": {"metadata": {"annotations": None}}}, "patch.metadata.annotations", False),
        ({"patch": {"metadata": {"annotations": []}}}, "patch.metadata.annotations", False),
        ({"patch": {"extra": {}}}, "patch.extra", False),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_cannot_be_stated_is_named_and_left_out(spec: Any, field: str, is_left_out: bool) -> None:
    profile = profile_of("p", labels={"a": "b"}, **spec)
    compiled = compile_profiles([profile])
    assert [(x.profile, x.field, x.whole) for x in compiled.losses] == [("p", field, is_left_out)]
    assert compiled.losses[0].reason
    assert compiled.compiled == (() if is_left_out else ("p",))
    assert is_left_out or ("finalizers" not in (patch := patch_of(compiled, "p")) and '"/metadata/labels/a"' in patch)


def test_the_later_of_two_profiles_keeps_a_field_that_both_write() -> None:
    earlier = profile_of("a", labels={"tier": "1", "own": "x"}, qosClass="BE")
    later = profile_of("b", labels={"tier": "2"}, qosClass="BE", selector={"matchLabels": {"app": "web"}})
    compiled = compile_profiles([later, earlier])
    assert compiled.losses == ()
    guard = '!(("app" in variables.labels && variables.labels["app"] in ["web"]))'
    lines = {line for line in patch_of(compiled, "a").splitlines() if guard in line}
    assert len(lines) == 1 and "/metadata/labels/tier" in lines.pop()
    assert guard not in patch_of(compiled, "b") + patch_of(compiled, "a", 1)


def test_only_the_profile_that_decides_the_class_translates_resources() -> None:
    batch = profile_of("a", qosClass="BE", priorityClassName="koord-batch")
    prod = profile_of("b", qosClass="LS", priorityClassName="koord-prod", selector={"matchLabels": {"x": "y"}})
    note = profile_of("c", annotations={"n": "1"})
    compiled = compile_profiles([batch, prod, note])
    assert '"x" in variables.labels' in patch_of(compiled, "a", 1)  # prod decides where both match
    assert "variables.labels[" not in patch_of(compiled, "b", 1)
    assert patch_of(compiled, "c", 1).startswith('(variables.band != "" && !variables.ofWholePod && !(true)')


def test_a_profile_that_forbids_translation_forbids_it_for_others() -> None:
    keeps = profile_of("a", True, namespaceSelector={"matchLabels": {"keep": "yes"}})
    batch = profile_of("b", qosClass="BE")
    compiled = compile_profiles([keeps, batch])
    assert '"keep" in variables.namespaceLabels' in patch_of(compiled, "b", 1)
    assert len(policy(compiled, "a")["mutations"]) == 1  # nothing to write, nothing to translate: only the annotation


def test_profiles_that_cannot_be_separated_are_named_with_what_is_lost() -> None:
    copies = profile_of("a", labelKeysMapping={"from": "to"}, labels={"own": "x"})
    writes = profile_of("b", labels={"from": "1"}, selector={"matchLabels": {"app": "web"}})
    compiled = compile_profiles([copies, writes])
    (loss,) = compiled.losses
    assert (loss.profile, loss.field) == ("a", "metadata.labels.own, metadata.labels.to")
    assert "b" in loss.reason and patch_of(compiled, "a").startswith('(!(("app" in')


def with_labels(labels: dict[str, str], profile: Profile) -> dict[str, str]:
    """The labels as the webhook leaves them."""
    return dict(apply_to(pod("p", labels), profile, {}).pod["metadata"]["labels"])


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(first=PROFILE_SPECS, second=PROFILE_SPECS, labels=LABELS)
@example(first={"labelSuffixes": {"k": "-a"}}, second={"labelSuffixes": {"k": "-b"}}, labels={"k": "web"})
@example(first={"labels": {"k": "gold"}}, second={"labelSuffixes": {"k": "-b"}}, labels={"k": "web"})
@example(first={"labels": {"k": "a"}}, second={"patch": {"metadata": {"labels": {"k": "no label!"}}}}, labels={})
@example(
    first={"labels": {"k": "1", "m": "9"}}, second={"labels": {"k": "2"}, "labelKeysMapping": {"k": "m"}}, labels={}
)
def test_labels_that_differ_from_the_webhooks_are_lost(first: Any, second: Any, labels: dict[str, str]) -> None:
    """Each policy changes the pod as it came; together they leave what the webhook leaves, or the field is named.

    The earlier profile's field is named when the later one copies it.
    """
    profiles = [profile_of("a", **first), profile_of("b", **second)]
    guards = Overlaps.of(profiles[0], profiles, {p.name: Writes.of(p) for p in profiles})
    mine, theirs = (with_labels(labels, profile) for profile in profiles)
    by_policies, by_webhook = dict(labels), with_labels(with_labels(labels, profiles[0]), profiles[1])
    fields = set(Writes.of(profiles[0]).fields) - set(guards.fields) if not guards.yields_to else set()
    for written, keys in ((mine, fields), (theirs, set(Writes.of(profiles[1]).fields))):
        for key in (field.removeprefix("metadata.labels.") for field in keys):
            by_policies.pop(key, None)
            by_policies |= {key: written[key]} if key in written else {}
    differ = {f"metadata.labels.{key}" for key in "kmn" if by_policies.get(key) != by_webhook.get(key)}
    lost_fields = {field for _, names in lost(*profiles) for field in names.split(", ")}
    later = Writes.of(profiles[1])
    copies = {name for name, value in later.fields.items() if isinstance(value, OwnText) and later.reads & lost_fields}
    assert differ <= lost_fields | copies


def test_what_a_later_profile_appends_to_or_replaces_unread() -> None:
    appends = profile_of("b", labelSuffixes={"tier": "-b"})
    assert lost(profile_of("a", labelSuffixes={"tier": "-a"}), appends) == {("a", "metadata.labels.tier"): False}
    assert lost(profile_of("a", labels={"tier": "gold"}), appends) == {("a", "metadata.labels.tier"): False}
    replaces = profile_of("b", labels={"tier": "iron"}, labelSuffixes={"tier": "-b"}, labelKeysMapping={"tier": "x"})
    assert lost(profile_of("a", labels={"tier": "gold", "x": "y"}), replaces) == {}


def test_labels_of_one_stem_do_not_meet_and_nested_fields_do() -> None:
    stem = profile_of("a", labels={"app": "x"}, annotations={"n": "1"})
    assert lost(stem, profile_of("b", labels={"app.kubernetes.io/name": "y"})) == {}
    nulled = profile_of("a", patch={"spec": {"affinity": None}})
    part = profile_of("b", patch={"spec": {"affinity": {"nodeAffinity": None}}})
    assert lost(nulled, part) == {("a", "spec.affinity"): False}


def test_a_match_by_another_profiles_label_is_named() -> None:
    writes = profile_of("a", labels={"tier": "gold"})
    assert lost(writes, profile_of("b", selector={"matchLabels": {"tier": "gold"}}, labels={"x": "y"})) == {
        ("b", "metadata.labels.tier"): False
    }
    assert lost(writes, profile_of("b", selector={"matchLabels": {"tier": "iron"}}, labels={"x": "y"})) == {}


def test_giving_way_to_a_profile_that_cannot_be_recognised_is_refused() -> None:
    first = profile_of("a", labels={"x": "1"})
    second = profile_of("b", labels={"x": "2", "tier": "9"}, selector={"matchLabels": {"tier": "1"}})
    assert lost(first, second)["a", "selector"] is True


def test_disjoint_selectors() -> None:
    def selects(operator: str, *values: str) -> Profile:
        expression = {"key": "k", "operator": operator, **({"values": list(values)} if values else {})}
        return profile_of("p", selector={"matchExpressions": [expression]})

    cases = [
        selects("In", "a"),
        selects("In", "b", "c"),
        selects("NotIn", "a"),
        selects("Exists"),
        selects("DoesNotExist"),
    ]
    every = [{}, *({"k": value} for value in "abcd")]
    for profile, other in itertools.product(cases, cases):
        together = any(profile.matches({}, labels) and other.matches({}, labels) for labels in every)
        assert disjoint(profile, other) is not together


def test_literals_are_ascii_and_keep_every_character() -> None:
    assert text('a"\\\n\u00fc\U0001f600') == r'"a\"\\\n\U000000fc\U0001f600"'
    assert literal({"a": [1, True, "x"]}) == '{"a": dyn([dyn(1), dyn(true), dyn("x")])}'


def test_hundreds_of_profiles_compile_in_seconds() -> None:
    many = [
        profile_of(f"p{i}", namespaceSelector={"matchLabels": {"team": str(i)}}, labels={"tier": str(i)}, qosClass="BE")
        for i in range(200)
    ]
    begin_seconds = time.process_time()
    assert len(compile_profiles(many).compiled) == 200
    assert time.process_time() - begin_seconds < 10
