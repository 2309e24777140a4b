"""Strategies are found by name, and a bad workload costs only itself."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

import cotenant.recommender.base
from cotenant.base.errors import CotenantError, SettingsError
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.settings.base import digest
from cotenant.base.severity import Severity
from cotenant.recommender.base import BUILT_IN, GROUP, display_inputs, load_strategy, recommend, rounded_up, strategies
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.model.recommendation import Action, Field, Recommendation
from cotenant.recommender.settings import CotenantSettings, RecommenderSettings
from cotenant.recommender.strategies.cotenant import Cotenant
from tests.support.evidence import Case, evidence_of


class Choosy:
    """A strategy of a plug-in that cannot stand one name, and can forget containers."""

    name = "choosy"

    def __init__(self, hated: str = "bad", forgetful: bool = False) -> None:
        self.hated, self.forgetful = hated, forgetful

    def recommend(self, evidence: Evidence, settings: RecommenderSettings) -> list[Recommendation]:
        if any(c.workload.name == self.hated for c in evidence.containers):
            raise ZeroDivisionError("bad workload")
        recommendations = Cotenant().recommend(evidence, settings)
        return recommendations[1:] if self.forgetful else recommendations


def cases() -> Evidence:
    day = np.full((1, 2 * 288), 100.0)
    return evidence_of(*(Case(name, cpu=day, memory=day) for name in ("a", "b", "bad", "c", "d")))


def test_the_built_in_strategies_are_those_the_distribution_declares() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert pyproject["project"]["entry-points"][GROUP] == dict(BUILT_IN)
    for name in BUILT_IN:
        assert load_strategy(name).name == name


def test_strategies_are_found_where_the_distribution_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cotenant.recommender.base, "entry_points", lambda **_: ())
    assert set(strategies()) == set(BUILT_IN)


def test_an_unknown_strategy_is_refused_with_the_nearest_name_and_all_others() -> None:
    with pytest.raises(SettingsError, match="'krr-simpel'") as caught:
        load_strategy("krr-simpel")
    assert caught.value.fix.startswith("Did you mean krr-simple? The strategies are cotenant, krr-simple, ")
    with pytest.raises(SettingsError) as other:
        load_strategy("zzz")
    assert "vpa" in other.value.fix


def test_a_plug_in_adds_strategies_but_takes_no_built_in_name(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("mine", f"{__name__}:Choosy", GROUP), EntryPoint("vpa", "os:getcwd", GROUP)]
    points.append(EntryPoint("broken", "no_such_module_at_all:X", GROUP))
    monkeypatch.setattr(cotenant.recommender.base, "entry_points", lambda **_: points)
    assert strategies()["mine"].value.endswith("Choosy")
    assert load_strategy("vpa").name == "vpa"
    with pytest.raises(CotenantError, match=re.escape("broken (no_such_module_at_all:X)")):
        load_strategy("broken")


def test_one_bad_workload_fails_alone_and_the_log_names_it() -> None:
    evidence = cases()
    with capture_logs() as logs:
        recommendations = recommend(Choosy(), evidence, RecommenderSettings())
    assert [r.container for r in recommendations] == list(evidence.containers)
    reasons = {r.container.workload.name: {v.reason for v in r.values} for r in recommendations}
    assert reasons.pop("bad") == {Reason.FAILED}
    assert all(Reason.FAILED not in r for r in reasons.values())
    failed = recommendations[2]
    assert {(v.resource, v.action) for v in failed.values} == {(r, Action.WITHHELD) for r in Resource}
    assert failed.severity is Severity.UNKNOWN
    (entry,) = [line for line in logs if line["log_level"] == "error"]
    assert entry["container"] == "shop/Deployment/bad/c0"
    assert "bad workload" in entry["error"]


def test_the_good_ones_are_as_if_the_bad_one_were_not_there() -> None:
    with capture_logs():
        recommendations = recommend(Choosy(), cases(), RecommenderSettings())
    assert [r for i, r in enumerate(recommendations) if i != 2] == [
        r for i, r in enumerate(Cotenant().recommend(cases(), RecommenderSettings())) if i != 2
    ]


def test_a_strategy_that_loses_containers_does_not_shift_the_others() -> None:
    with capture_logs():
        recommendations = recommend(Choosy("nobody", forgetful=True), cases(), RecommenderSettings())
    assert [r.container for r in recommendations] == list(cases().containers)
    assert {v.reason for r in recommendations for v in r.values} == {Reason.FAILED}


def test_no_containers_give_no_recommendations() -> None:
    for name in BUILT_IN:
        assert recommend(load_strategy(name), evidence_of(slots=10), RecommenderSettings()) == []


def test_every_recommendation_carries_the_digest_of_the_settings_behind_it() -> None:
    loose = RecommenderSettings(cotenant=CotenantSettings(cpu_fraction=0.5))
    for settings in (RecommenderSettings(), loose):
        for name in BUILT_IN:
            for recommendation in recommend(load_strategy(name), cases(), settings):
                assert recommendation.settings_digest == digest(settings)
                assert recommendation.strategy == name
                assert recommendation.window_seconds == 2 * 86_400
    assert digest(loose) != digest(RecommenderSettings())


def test_rounding_up_ignores_float_noise_and_nothing_else() -> None:
    assert rounded_up(23.000000000000004, 1) == 23
    assert rounded_up(23.001, 1) == 24
    assert rounded_up(0.0, 1) == 0
    assert rounded_up(-5.0, 1) == 0
    assert rounded_up(1e300, 1) == 2**63 - 1


def test_inputs_hold_no_nan_because_json_has_none() -> None:
    assert display_inputs(a=float("nan"), b=float("inf"), c=2.0, d="x", e=1.5) == {"c": 2, "d": "x", "e": 1.5}
    assert isinstance(display_inputs(c=2.0)["c"], int)


def test_field_order_of_values_is_request_then_limit() -> None:
    day = np.full((1, 2 * 288), 100.0)
    case = Case(cpu=day, memory=day, limits=dict.fromkeys(Resource, 10**9))
    for name in BUILT_IN:
        (recommendation,) = recommend(load_strategy(name), evidence_of(case), RecommenderSettings())
        assert [(v.resource, v.field) for v in recommendation.values] == [(r, f) for r in Resource for f in Field]
