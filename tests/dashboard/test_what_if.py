"""The page What if: what each place of the slider says, and what stands there before anything was replayed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from cotenant.base.store import Store
from cotenant.base.usage.backtest import WHAT_IF, ReplayProgress
from cotenant.dashboard.figures import what_if as charts
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.home import risk
from cotenant.dashboard.pages import what_if
from cotenant.dashboard.sources.source import ResultSource, Snapshot, StoreSource
from tests.dashboard.test_states import text_of, view_on
from tests.support import dashboard as support
from tests.support.dashboard import Results, replayed

REPLAY = replayed(1_795_089_600)


def test_the_slider_stands_at_the_usual_risk_and_has_a_mark_for_each(demo_results: Results) -> None:
    source = StoreSource(demo_results.store, support.QUICK)
    page = text_of(what_if.render(view_on(source), ""))
    for mark in ("0.5 %", "1 %", "5 %"):
        assert f'"{mark}"' in page
    # at 1 % risk: 30 of 100 cores lent; 96 hours x 25 cores = 2,400; by present use 96 x 15 = 1,440
    for text in (
        "30 cores",
        "mean; 30 % of capacity",
        "2,400 core-hours",
        "1.67 x as much as lending by present usage",
        "0.40 %",
    ):
        assert text in page


@pytest.mark.parametrize(("place", "lent"), [(0, "25 cores"), (2, "40 cores"), (9, "40 cores"), (-1, "25 cores")])
def test_every_place_has_its_own_numbers_and_one_beyond_is_the_last(place: int, lent: str) -> None:
    assert lent in text_of(what_if.outcome(REPLAY, place))


def test_charts_hold_the_days_and_say_the_same_in_words() -> None:
    chosen = REPLAY.risks[2]
    days = charts.days(REPLAY, chosen)
    assert [trace["name"] for trace in days.figure["data"]] == ["Services", "Batch", "Lent to batch", "Capacity"]
    assert days.figure["data"][2]["y"] == [40.0] * 4
    # services use 40 to 43 cores
    assert days.summary == "Cores by day: services use 42, 40 are lent to batch, which uses 35, of a capacity of 100."
    # days at 0, 1, 2 and 3 times 2 / 1.5 percent
    assert charts.shortage(chosen).figure["data"][0]["y"] == pytest.approx([0, 4 / 3, 8 / 3, 4.0])
    curve = charts.curve(REPLAY, chosen)
    assert curve.figure["data"][0]["x"] == pytest.approx([0.1, 0.4, 2.0])
    assert curve.figure["data"][1]["x"] == pytest.approx([2.0])
    assert "0.5 to 5 % risk" in curve.summary


def test_a_small_share_of_node_time_is_no_zero_and_the_same_in_number_sentence_and_chart() -> None:
    # Two days, of which one was short for 0.012 % of the node-time: 0.006 % on average.
    chosen = REPLAY.risks[0]
    days = (replace(chosen.days[0], short=0.0), replace(chosen.days[1], short=0.00012))
    rare = replace(chosen, short=0.00006, days=days)
    assert "0.006 %" in text_of(risk.stats(REPLAY, rare)) and "0.00 %" not in text_of(risk.stats(REPLAY, rare))
    drawn = charts.shortage(rare)
    assert "0.006 % on average, at most 0.012 % on the day" in drawn.summary
    assert drawn.figure["data"][0]["customdata"] == ["0.00 %", "0.012 %"]
    assert charts.curve(replace(REPLAY, risks=(rare,)), rare).figure["data"][1]["customdata"] == ["0.006 %"]


class Unreplayed:
    """Results of which no replay is stored."""

    def __init__(self, behind: ResultSource) -> None:
        self._behind = behind

    def __getattr__(self, name: str) -> object:
        return getattr(self._behind, name)

    def what_if(self) -> None:
        return None


class Young(Unreplayed):
    """Results of so many days, of which no replay is stored."""

    def __init__(self, behind: ResultSource, days: float) -> None:
        super().__init__(behind)
        snapshot = behind.snapshot()
        assert snapshot.overview is not None
        self._snapshot = replace(snapshot, overview=replace(snapshot.overview, window_days=days))

    def snapshot(self) -> Snapshot:
        return self._snapshot


def test_results_without_a_replay_say_which_command_makes_one(demo_results: Results) -> None:
    page = text_of(what_if.render(view_on(Unreplayed(StoreSource(demo_results.store, support.QUICK))), ""))
    assert risk.NONE in page
    assert risk.COMMAND in page


@dataclass
class Replaying:
    """A replay in the background that is so far."""

    progress: ReplayProgress | None
    reason: str = ""

    def stop(self) -> None:
        self.progress, self.reason = None, "It was stopped."


def test_a_replay_in_the_background_says_when_it_begins_how_far_it_is_how_to_stop_it_and_then_which_command_makes_one(
    demo_results: Results,
) -> None:
    job = Replaying(None)
    shown = replace(
        view_on(Young(StoreSource(demo_results.store, support.QUICK), 15.0)), given=DashboardContext(replay=job)
    )
    assert risk.SOON in text_of(what_if.render(shown, "")) and risk.COMMAND not in text_of(what_if.render(shown, ""))
    marks = [risk.replay_mark(shown)]
    job.progress = ReplayProgress(0, 10, None)
    marks.append(risk.replay_mark(shown))
    assert "0 of 10 runs done." in text_of(what_if.render(shown, ""))
    job.progress = ReplayProgress(3, 10, 45.0)
    marks.append(risk.replay_mark(shown))
    for page in (text_of(what_if.render(shown, "")), text_of(risk.panel(shown))):
        assert "3 of 10 runs done, about 45 s left." in page and "Stop it" in page and risk.COMMAND not in page
    job.stop()
    marks.append(risk.replay_mark(shown))
    page = text_of(what_if.render(shown, ""))
    assert risk.COMMAND in page and "It was stopped." in page
    assert len(set(marks)) == 4, "an open page draws itself anew at each"


TOO_FEW = "14.0 days of node usage are stored; 14 days of history and one more day are needed."


@pytest.mark.parametrize(
    "reason", [f"It failed: {TOO_FEW}", "The replay was stopped. The next day's scan starts it again."]
)
@pytest.mark.parametrize("days", [0.5, 14.0, 14.9])
def test_a_young_cluster_reads_when_the_slider_appears_and_of_no_failure(
    demo_results: Results, days: float, reason: str
) -> None:
    source = Young(StoreSource(demo_results.store, support.QUICK), days)
    shown = replace(view_on(source), given=DashboardContext(replay=Replaying(None, reason)))
    for page in (text_of(risk.no_replay(shown)), text_of(risk.panel(shown))):
        # 14 days come before the first day that is tried, which is the 15th
        assert "The slider appears after a scan with 15 days of history; the history is now" in page
        assert reason.removeprefix("It failed: ") in page and "failed" not in page and risk.COMMAND not in page


def test_a_replay_of_a_history_that_is_long_enough_says_that_it_failed(demo_results: Results) -> None:
    source = Young(StoreSource(demo_results.store, support.QUICK), 15.0)
    job = Replaying(None, "It failed: the disk is full.")
    page = text_of(what_if.render(replace(view_on(source), given=DashboardContext(replay=job)), ""))
    assert "It failed: the disk is full." in page and risk.COMMAND in page and "It appears after" not in page


def test_the_page_reads_the_replay_that_the_command_stores(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = Store(tmp_path_factory.mktemp("what-if").as_uri(), "c")
    source = StoreSource(store, support.QUICK)
    assert source.what_if() is None
    store.write_document(WHAT_IF, REPLAY)
    assert source.what_if() == REPLAY
