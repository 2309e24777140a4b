"""enrich adds to any strategy's output what makes it trusted, and one bad container costs only itself."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import structlog

from cotenant.base.cluster import Inventory
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.resource import MIB, Resource
from cotenant.recommender.base import load_strategy, recommend
from cotenant.recommender.enrich import enrich
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.model.recommendation import Action, Recommendation, Restart
from cotenant.recommender.settings import BacktestSettings, RecommenderSettings
from tests.support.evidence import Case, evidence_of

CPU, MEMORY = Resource.CPU, Resource.MEMORY
DAY = 288
OWN = RecommenderSettings()
NAMES = ("cotenant", "krr-simple", "krr-simple-limit", "vpa")
SERVER = Inventory("test", 0, (), (), (), server_version="1.35.0")


def case(name: str, **changes: Any) -> Case:
    standard = Case(
        name,
        cpu=np.full((2, 8 * DAY), 300.0),
        memory=np.full((2, 8 * DAY), 200.0 * MIB),
        requests={CPU: 1000, MEMORY: 1024 * MIB},
        limits={CPU: 2000, MEMORY: 1024 * MIB},
        replicas=2,
    )
    return replace(standard, **changes)


def made_by(strategy: str, evidence: Evidence) -> list[Recommendation]:
    return recommend(load_strategy(strategy), evidence, OWN)


@pytest.mark.parametrize("strategy", NAMES)
def test_every_strategy_gets_back_test_trust_restart_and_money(strategy: str) -> None:
    evidence = evidence_of(case("a"), case("b"))
    for before, after in zip(
        made_by(strategy, evidence), enrich(made_by(strategy, evidence), evidence, SERVER, OWN), strict=True
    ):
        request, memory = before.values[0], next(v for v in before.values if v.resource is MEMORY)
        assert after.values == before.values
        assert request.amount is not None
        assert memory.amount is not None
        assert after.backtest is not None
        assert after.backtest.freed_millicores == 2 * (1000 - request.amount)
        assert after.backtest.freed_bytes == 2 * (1024 * MIB - memory.amount)
        assert after.trust is not None
        assert 0 < after.trust.confidence < 1
        core, gib = OWN.prices.per_core_hour, OWN.prices.per_gib_hour
        hourly = 2 * ((1000 - request.amount) / 1000 * core + (1024 - memory.amount / MIB) / 1024 * gib)
        assert after.monthly_saving == pytest.approx(730 * hourly)
        # krr-simple removes the CPU limit, krr-simple-limit makes the pod Guaranteed: no running pod takes either
        assert after.restart is (Restart.ROLLOUT if strategy.startswith("krr") else Restart.IN_PLACE)


def test_what_is_withheld_is_neither_tried_nor_trusted() -> None:
    evidence = evidence_of(case("empty", cpu=(), memory=()), slots=DAY)
    (after,) = enrich(made_by("cotenant", evidence), evidence, SERVER, OWN)
    assert all(v.action is Action.WITHHELD for v in after.values)
    assert (after.backtest, after.trust, after.monthly_saving) == (None, None, None)
    assert after.restart is Restart.NONE


def test_a_recommendation_with_an_unusable_amount_costs_only_itself() -> None:
    evidence = evidence_of(case("a"), case("b"), case("c"))
    good = made_by("cotenant", evidence)
    bad = list(good)
    bad[1] = replace(good[1], values=(replace(good[1].values[0], amount="lots"),))  # type: ignore[arg-type]
    with structlog.testing.capture_logs() as logs:
        after = enrich(bad, evidence, SERVER, OWN)
    expected = enrich(good, evidence, SERVER, OWN)
    assert [after[0], after[2]] == [expected[0], expected[2]]
    assert after[1] is bad[1]
    assert [(log["event"], log["container"]) for log in logs] == [("not back-tested", "shop/Deployment/b/c0")]


def test_a_recommendation_about_an_unknown_container_stays_as_it_was() -> None:
    evidence = evidence_of(case("a"))
    (recommendation,) = made_by("cotenant", evidence)
    stranger = replace(recommendation, container=ContainerRef(WorkloadRef("x", "Deployment", "y"), "z"))
    with structlog.testing.capture_logs() as logs:
        after = enrich([stranger, recommendation], evidence, SERVER, OWN)
    assert after[0] is stranger
    assert after[1].backtest is not None
    assert len(logs) == 1


def test_evidence_that_cannot_be_read_leaves_the_recommendations_as_they_were() -> None:
    evidence = evidence_of(case("a"))
    recommendations = made_by("cotenant", evidence)
    broken = replace(evidence, usage_rows={})
    with structlog.testing.capture_logs() as logs:
        assert enrich(recommendations, broken, SERVER, OWN) == recommendations
    assert [log["event"] for log in logs] == ["nothing was back-tested"]


def test_the_order_of_the_recommendations_does_not_matter() -> None:
    evidence = evidence_of(case("a"), case("b", limits={}), case("c", replicas=7))
    recommendations = made_by("vpa", evidence)
    assert enrich(recommendations[::-1], evidence, SERVER, OWN)[::-1] == enrich(recommendations, evidence, SERVER, OWN)


def test_the_days_looked_at_are_a_setting() -> None:
    evidence = evidence_of(case("a"))
    three = replace_days(3)
    (after,) = enrich(made_by("cotenant", evidence), evidence, SERVER, three)
    assert after.backtest is not None
    assert after.backtest.days == 3


def replace_days(days: float) -> RecommenderSettings:
    return RecommenderSettings(backtest=BacktestSettings(days=days))


def test_an_empty_run_is_empty() -> None:
    assert enrich([], evidence_of(slots=DAY), SERVER, OWN) == []


@pytest.mark.slow
def test_a_thousand_containers_are_judged_in_seconds() -> None:
    first_case = case("x", cpu=np.full((3, 7 * DAY), 300.0), memory=np.full((3, 7 * DAY), 200.0 * MIB))
    evidence = evidence_of(*(replace(first_case, name=f"w{i}") for i in range(1000)))
    recommendations = made_by("cotenant", evidence)
    begin_seconds = time.process_time()
    enrich(recommendations, evidence, SERVER, OWN)
    assert time.process_time() - begin_seconds < 10
