"""The overview offers another reclaim policy when the kept back-test speaks for it, with its numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.usage.backtest import POLICY_TRIAL, PolicyScore, PolicyTrial
from cotenant.dashboard.home import overview
from cotenant.dashboard.nodes import policy_offer
from cotenant.dashboard.sources.source import ResultSource, StoreSource
from tests.dashboard.test_states import text_of, view_on
from tests.support import dashboard as support
from tests.support.dashboard import Results

USAGE = PolicyScore("usage", None, Resource.CPU, 10_000.0, 0.0, 0.0, 0.0)
AHEAD = PolicyScore("forecast", 1.0, Resource.CPU, 14_200.0, 0.008, 0.0, 0.9)
TRIAL = PolicyTrial(0, 35.0, 21.25, 8, {Resource.CPU: "usage"}, {Resource.CPU: 1.0}, (USAGE, AHEAD))
LINE = (
    "Policy forecast would have lent 1.4 x the cores of the present policy (usage); after 0.8 % of its decisions in "
    "21 tested days nodes needed more than they had kept."
)


def test_the_line_says_cores_violations_days_and_what_is_in_force() -> None:
    switch = policy_offer.offer(TRIAL, {"usage"})
    assert switch is not None
    assert policy_offer.sentence(switch) == LINE


@pytest.mark.parametrize("now", [{"forecast"}, {"usage", "forecast"}, {"maxUsageRequest"}, set()])
def test_nothing_is_offered_where_present_amounts_are_of_another_policy(now: set[str]) -> None:
    assert policy_offer.offer(TRIAL, now) is None
    assert policy_offer.offer(None, {"usage"}) is None


class Tried:
    """A source with a policy trial of its own."""

    def __init__(self, behind: ResultSource, trial: PolicyTrial) -> None:
        self._behind, self._trial = behind, trial

    def __getattr__(self, name: str) -> object:
        return getattr(self._behind, name)

    def policy_trial(self) -> PolicyTrial:
        return self._trial


def test_the_overview_shows_the_offer_and_the_commands_that_switch(demo_results: Results) -> None:
    source = StoreSource(demo_results.store, support.QUICK)
    page = text_of(overview.contents(view_on(Tried(source, TRIAL))))
    assert LINE in page
    assert "cotenant backtest --reclaim" in page and "cpuCalculatePolicy" in page
    few = replace(TRIAL, tested_days=3.0)
    assert "Policy forecast" not in text_of(overview.contents(view_on(Tried(source, few))))
    assert source.policy_trial() is None
    assert "Policy forecast" not in text_of(overview.contents(view_on(source)))


def test_the_trial_that_the_command_keeps_is_the_one_that_pages_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = Store(tmp_path_factory.mktemp("trial").as_uri(), "c")
    store.write_document(POLICY_TRIAL, TRIAL)
    assert StoreSource(store, support.QUICK).policy_trial() == TRIAL
