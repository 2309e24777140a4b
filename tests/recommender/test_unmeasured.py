"""Zeros that stand for usage that nobody measured lower nothing, by any strategy."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core.model.reasons import Reason
from cotenant.core.model.recommendation import Action
from cotenant.core.model.resource import MIB, Resource
from cotenant.core.settings.sections.recommender import RecommenderSettings
from recommender.base import load_strategy, recommend
from recommender.unmeasured import unmeasured_containers, withhold_unmeasured
from tests.support.evidence import Case, evidence_of

SLOTS = 10 * 288  # ten days of 5 minutes
STRATEGIES = ["cotenant", "krr-simple", "krr-simple-limit", "vpa"]
ZEROS, CORES, BYTES = np.zeros(SLOTS), np.full(SLOTS, 500.0), np.full(SLOTS, 800.0 * MIB)


def case(cpu: np.ndarray, memory: np.ndarray, **more: object) -> Case:
    amounts = {Resource.CPU: 600, Resource.MEMORY: 1024 * MIB}
    return Case(cpu=cpu, memory=memory, requests=amounts, limits=amounts, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("cpu", "memory"),
    [
        (ZEROS, ZEROS),  # gVisor: every series of the container is 0
        (CORES, ZEROS),  # the memory cgroup is off
        (np.stack([CORES, ZEROS]), np.stack([BYTES, ZEROS])),  # one of two pods is on a node that does not measure
        (CORES, np.where(np.arange(SLOTS) % 7 == 0, 0.0, np.nan)),  # zeros with gaps
    ],
    ids=["all zeros", "no memory", "one pod", "gaps"],
)
def test_no_amount_falls_on_zeros_of_memory(strategy: str, cpu: np.ndarray, memory: np.ndarray) -> None:
    evidence = evidence_of(case(cpu, memory))
    (made,) = recommend(load_strategy(strategy), evidence, RecommenderSettings())
    (left,) = withhold_unmeasured([made], evidence)
    for before, after in zip(made.values, left.values, strict=True):
        if before.action is Action.WITHHELD or (before.change or 0) > 0:
            assert after == before
        else:  # 600m and 1Gi stand: nothing is lowered, no limit is taken away
            assert (after.action, after.amount, after.now) == (Action.WITHHELD, None, before.now)
            assert after.reason is Reason.UNMEASURED
    assert not [v for v in left.values if v.action is not Action.WITHHELD and (v.change or 0) <= 0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_process_that_sleeps_may_use_no_cpu(strategy: str) -> None:
    # memory is measured (800 MiB): 0 millicores is what a sleeping process uses
    evidence = evidence_of(case(ZEROS, BYTES))
    assert unmeasured_containers(evidence) == frozenset()
    made = recommend(load_strategy(strategy), evidence, RecommenderSettings())
    assert withhold_unmeasured(made, evidence) == made


def test_a_first_scrape_before_the_process_has_a_page_is_no_absence() -> None:
    started = np.full(SLOTS, np.nan)
    started[-2:] = 0.0
    assert unmeasured_containers(evidence_of(case(CORES, np.stack([BYTES, started])))) == frozenset()
    started[-3:] = 0.0
    assert len(unmeasured_containers(evidence_of(case(CORES, np.stack([BYTES, started]))))) == 1
