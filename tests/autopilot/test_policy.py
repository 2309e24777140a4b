"""A policy can only narrow the cluster's ceiling, and one that contradicts itself is refused in words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cotenant.autopilot.decide.candidates import settings_under
from cotenant.autopilot.decide.policy import (
    PolicyLimits,
    PolicySpec,
    contradictions,
    effective,
    fields_beyond_limits,
    parse_policy,
    read_policy,
)
from cotenant.autopilot.model import AutopilotMode
from cotenant.autopilot.settings import CeilingSettings, Direction, Untouched, Way
from cotenant.base.errors import UsageError
from cotenant.base.resource import Resource
from cotenant.changes.model.settings import ActionSettings, GuardrailSettings

WINDOWS = ["mon-fri 20:00-06:00 Europe/Berlin", "daily 01:00-05:00 UTC"]
CHOICES: dict[str, list[Any]] = {
    "resources": [*Resource],
    "directions": [*Direction],
    "ways": [*Way],
}


def subsets(name: str, least: int = 1) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(CHOICES[name]), min_size=least, unique=True)


NEVER = st.lists(st.sampled_from(Untouched), unique=True)
SHARES = st.floats(0.01, 0.9)
CEILINGS = st.builds(
    CeilingSettings,
    resources=subsets("resources"),
    directions=subsets("directions"),
    largest_cut=st.dictionaries(st.sampled_from(Resource), SHARES),
    windows=st.lists(st.sampled_from(WINDOWS), unique=True),
    ways=subsets("ways"),
    canary_share=st.floats(0.01, 1),
    soak_minutes=st.floats(5, 1000),
    at_once=st.integers(1, 50),
    restarts_per_week=st.integers(0, 5),
    minimum_confidence=st.floats(0, 1),
    never_touch=NEVER,
    throttled_share=st.floats(0.001, 1),
    start_up_factor=st.floats(1, 20),
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["Off", "Observe", "Act"]),
        "resources": subsets("resources"),
        "directions": subsets("directions"),
        "largestCut": st.dictionaries(st.sampled_from(Resource), SHARES),
        "windows": st.lists(st.sampled_from(WINDOWS)),
        "ways": subsets("ways"),
        "canaryShare": st.floats(0.01, 1),
        "soakMinutes": st.integers(5, 1000),
        "atOnce": st.integers(1, 50),
        "restartsPerWeek": st.integers(0, 5),
        "minimumConfidence": st.floats(0, 1),
        "neverTouch": NEVER,
        "throttledShare": st.floats(0.001, 1),
        "startUpFactor": st.floats(1, 20),
    },
)


def body(spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": "nightly", "uid": "u", "generation": 3}, "spec": spec}


def is_within(inner: PolicyLimits, outer: CeilingSettings) -> bool:
    """Whether nothing is allowed by `inner` that `outer` does not allow."""
    return (
        set(inner.resources) <= set(outer.resources)
        and set(inner.directions) <= set(outer.directions)
        and set(inner.ways) <= set(outer.ways)
        and all(inner.largest_cut.get(r, 0.0) <= outer.largest_cut.get(r, 0.0) for r in Resource)
        and outer.windows in ([], inner.windows)
        and inner.canary_share <= outer.canary_share
        and inner.soak_minutes >= outer.soak_minutes
        and inner.at_once <= outer.at_once
        and inner.restarts_per_week <= outer.restarts_per_week
        and inner.minimum_confidence >= outer.minimum_confidence
        and set(inner.never_touch) >= set(outer.never_touch)
        and inner.throttled_share >= outer.throttled_share
        and inner.start_up_factor <= outer.start_up_factor
    )


@given(CEILINGS, SPECS)
def test_what_is_left_is_never_wider_than_the_ceiling_nor_than_the_policy(
    ceiling: CeilingSettings, spec: dict[str, Any]
) -> None:
    policy = read_policy(body(spec))
    if policy.refused:
        return
    try:
        limits = effective(ceiling, policy.spec)
    except UsageError as error:
        assert "ceiling" in error.message and error.fix
        return
    assert is_within(limits, ceiling)
    # alone under a ceiling that allows everything, the policy is at least as wide
    widest = CeilingSettings(
        largest_cut=dict.fromkeys(Resource, 1.0), canary_share=1.0, soak_minutes=0.0, at_once=10_000,
        restarts_per_week=10_000, minimum_confidence=0.0, never_touch=[], throttled_share=0.0, start_up_factor=20.0,
        replica_floor_factor=20.0,
    )  # fmt: skip
    alone = effective(widest, policy.spec)
    assert is_within(limits, alone) and limits.own_windows == alone.own_windows == (policy.spec.windows or [])
    assert limits.resources and limits.directions and limits.ways
    assert effective(limits, policy.spec) == limits
    assert set(fields_beyond_limits(limits, PolicySpec())) == set()


@given(CEILINGS)
def test_settings_of_accepting_are_narrowed_too(ceiling: CeilingSettings) -> None:
    limits = effective(ceiling, PolicySpec())
    settings = ActionSettings(guardrails=GuardrailSettings(most_cpu_cut=0.25, cool_down_hours=1.0), soak_minutes=20)
    under = settings_under(settings, limits)
    assert under.auto_rollback and under.soak_minutes == max(20, limits.soak_minutes)
    assert under.guardrails.most_cpu_cut == min(0.25, limits.largest_cut[Resource.CPU])
    # the largest cut is one of a day
    assert under.guardrails.cool_down_hours == 24.0


KEYS = st.sampled_from(["mode", "ways", "windows", "selector", "largestCut", "cpu", "x"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=6,
)


@given(ANYTHING)
def test_any_spec_is_read_or_refused_with_its_name_and_a_fix(spec: Any) -> None:
    policy = read_policy(body(spec if isinstance(spec, dict) else {"mode": spec}))
    assert not policy.refused or (
        policy.refused.startswith("AutopilotPolicy shop/nightly: spec") and policy.mode == "Off"
    )
    assert policy.generation == 3


@pytest.mark.parametrize(
    ("spec", "phrase"),
    [
        ({"mode": "Actt"}, "spec.mode: 'Actt' is not one of Act, Observe, Off; do you mean Act?"),
        ({"canaryShare": 2}, "spec.canaryShare: 2 is not a number from 0.01 to 1"),
        ({"ways": []}, "spec.ways: [] allows nothing"),
        ({"ways": ["RollOut"], "restartsPerWeek": 0}, "spec.restartsPerWeek: 0 forbids the only way, RollOut"),
        ({"resources": ["cpu"], "directions": ["UpAfterOOMKill"]}, "raises memory, which spec.resources leaves out"),
        ({"resources": ["memory"], "directions": ["UpAfterThrottling"]}, "raises cpu, which spec.resources leaves out"),
        ({"directions": ["Up"], "throttledShare": 0.1}, "spec.throttledShare: 0.1 needs UpAfterThrottling"),
        ({"resources": ["memory"], "largestCut": {"cpu": 0.2}}, "spec.largestCut.cpu: 0.2 bounds a resource"),
        ({"directions": ["Up"], "largestCut": {"cpu": 0.2}}, "limits cuts, but spec.directions has no Down"),
        ({"windows": ["daily 20:00-06:00 Mars"]}, "spec.windows[0]: 'daily 20:00-06:00 Mars' is not a change window"),
        ({"selector": {"matchLabels": {"a b": "c"}}}, "spec.selector.matchLabels: 'a b' is not a valid label key"),
        ({"speed": 1}, "spec.speed: 1 is not a known field"),
    ],
)
def test_a_contradiction_is_refused_with_field_value_and_fix(spec: dict[str, Any], phrase: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_policy(body(spec))
    assert phrase in refused.value.message and refused.value.fix


def test_a_policy_outside_of_the_ceiling_is_refused_and_one_beyond_it_is_narrowed() -> None:
    ceiling = CeilingSettings(ways=[Way.IN_PLACE], at_once=5, largest_cut={Resource.CPU: 0.3})
    with pytest.raises(UsageError, match=r"spec.ways: \['RollOut'\] is outside of the cluster's ceiling"):
        effective(ceiling, parse_policy(body({"ways": ["RollOut"]})).spec)
    policy_spec = parse_policy(body({"ways": ["RollOut", "InPlace"], "atOnce": 9, "largestCut": {"memory": 0.1}})).spec
    limits = effective(ceiling, policy_spec)
    assert (limits.ways, limits.at_once) == ([Way.IN_PLACE], 5)
    # the ceiling names no bound for memory: it is not cut at all
    assert limits.largest_cut == {Resource.CPU: 0.3, Resource.MEMORY: 0.0}
    assert fields_beyond_limits(effective(ceiling, policy_spec), policy_spec) == ("ways", "largestCut", "atOnce")


def test_what_an_approver_agrees_to_is_the_whole_spec_of_this_object() -> None:
    spec = {"mode": "Act", "atOnce": 2}
    policy = parse_policy(body(spec))
    assert parse_policy(body(dict(reversed(spec.items())))).digest == policy.digest
    others = [parse_policy(body({**spec, "atOnce": 3})), parse_policy(body({"mode": "Act"}))]
    again = body(spec)
    again["metadata"]["uid"] = "made anew"
    others.append(parse_policy(again))
    assert policy.digest not in {other.digest for other in others}
    assert policy.mode is AutopilotMode.ACT and list(contradictions(msgspec.structs.replace(policy.spec))) == []


OWN = 'sum(rate(failed_total{namespace="$namespace"}[$window])) / sum(rate(all_total{namespace="$namespace"}[$window]))'


def objective(**more: Any) -> dict[str, Any]:
    return {"name": "errors", "measure": "ErrorRatio", "query": OWN, "ceiling": 0.01, **more}


def test_objectives_are_part_of_what_an_approver_agrees_to_and_are_missing_by_default() -> None:
    without, with_one = parse_policy(body({})), parse_policy(body({"objectives": [objective()]}))
    assert without.spec.objectives is None and "objectives" not in without.text
    assert without.digest != with_one.digest and '"ceiling":0.01' in with_one.text
    assert parse_policy(body({"objectives": []})).spec.objectives == []


@pytest.mark.parametrize(
    ("objectives", "phrase"),
    [
        ([objective(ceiling=1)], "spec.objectives[0]: 1.0 is not a share"),
        ([objective(ceiling=0)], "spec.objectives[0].ceiling: 0 "),
        ([objective(measure="Errors")], "spec.objectives[0].measure"),
        ([objective(query="failed_total")], "reads more than namespace"),
        ([objective(query='a{namespace="audit"}')], "reads more than namespace"),
        ([objective(query="sum(")], "is not valid PromQL"),
        ([objective(query=OWN.replace("$window", "30d"))], "looks 30 days back"),
        ([objective(), objective()], "spec.objectives[1].name: errors is used twice"),
        ([objective(name=f"o{n}") for n in range(6)], "spec.objectives"),
        ([{"name": "errors"}], "spec.objectives[0]"),
    ],
)
def test_an_objective_that_cannot_be_asked_refuses_its_policy_in_words(
    objectives: list[dict[str, Any]], phrase: str
) -> None:
    refused = read_policy(body({"objectives": objectives}))
    assert phrase in refused.refused and refused.mode is AutopilotMode.OFF


CRD = Path(__file__).resolve().parents[2] / "deploy/crds/autopilotpolicies.cotenant.dev.yaml"


def domain(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    """(words, minimum, maximum) of a field or of the entries of a list; of an object, by field."""
    schema = next(iter(schema.get("anyOf", [schema])))
    if "$ref" in schema:
        return domain(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "items" in schema:
        return domain(schema["items"], definitions)
    if "properties" in schema:
        return {name: domain(field, definitions) for name, field in schema["properties"].items()}
    return sorted(schema.get("enum", ())), schema.get("minimum"), schema.get("maximum")


def domains(of: type[Any]) -> dict[str, Any]:
    """The same of each field of a struct, as msgspec reads it."""
    (described,), definitions = msgspec.json.schema_components([of])
    return dict(domain({"$ref": described["$ref"]}, definitions))


def test_the_api_server_takes_what_is_read_and_the_ceiling_has_the_same_bounds() -> None:
    served = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    read = {
        name: domain_read for name, domain_read in domains(PolicySpec).items() if name not in ("objectives", "selector")
    }
    assert {name: domain(served["properties"][name], {}) for name in read} == read
    written = {field.name: field.encode_name for field in msgspec.structs.fields(PolicySpec)}
    # the ceiling has no bounds of its own for these: one is a constant, the other a map of shares
    unbounded = {"throttled_share", "largest_cut"}
    ceiling = {
        written[name]: domain_read for name, domain_read in domains(CeilingSettings).items() if name not in unbounded
    }
    assert ceiling == {name: read[name] for name in ceiling}
