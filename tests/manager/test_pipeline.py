"""The pipeline's process as the manager sees it: whatever it answers or does not, the manager goes on."""

from __future__ import annotations

import subprocess
import sys
import time

import msgspec
import pytest

from cotenant.base.controllers.loop import AlwaysLeads
from cotenant.base.errors import NoData
from cotenant.base.process.clock import FixedClock
from cotenant.base.settings.sections import ManagerSettings
from cotenant.manager import pipeline as module
from cotenant.manager.decisions.results import PipelineFailure
from cotenant.manager.pipeline import Pipeline, PipelineFailed
from cotenant.settings import Settings
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.server


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline(Settings(), "test", AlwaysLeads())


def says(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Another program in the place of the pipeline's."""
    monkeypatch.setattr(module, "CHILD", ("-c", program))


@pytest.mark.parametrize(
    "program",
    ["print('not JSON')", "print('{}')", "print('{}'); raise SystemExit(1)", "raise SystemExit(3)", "pass"],
    ids=["words", "no results", "no failure", "another code", "nothing"],
)
def test_a_process_that_does_not_answer_as_it_should_is_a_failure_with_words(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    says(monkeypatch, program)
    pipeline.run_once()
    with pytest.raises(PipelineFailed, match="process"):
        pipeline.results()


@pytest.mark.parametrize(
    ("program", "guesses"),
    [("raise OSError(37, 'No locks available')", False), ("import os; os.kill(os.getpid(), 9)", True)],
    ids=["a traceback", "killed"],
)
def test_memory_is_guessed_at_only_where_the_process_was_killed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, program: str, guesses: bool
) -> None:
    says(monkeypatch, program)
    pipeline.run_once()
    with pytest.raises(PipelineFailed) as caught:
        pipeline.results()
    assert ("memory" in caught.value.fix) is guesses


def test_a_process_that_cannot_be_started_is_a_failure_with_words(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    pipeline.run_once()
    with pytest.raises(PipelineFailed, match="could not be started"):
        pipeline.results()


@pytest.mark.parametrize(("stored", "until"), [(900, 900.0), (1100, 1000.0), (None, 1000.0)])
def test_a_failed_run_bounds_the_history_behind_what_is_published(
    monkeypatch: pytest.MonkeyPatch, stored: int | None, until: float
) -> None:
    """By the end of what is stored, and by our own beginning: nobody who published before had a newer one."""
    failure = PipelineFailure("SourceUnreachable", "away", history_end_seconds=stored)
    says(monkeypatch, f"print({msgspec.json.encode(failure).decode()!r}); raise SystemExit(1)")
    pipeline = Pipeline(Settings(), "test", AlwaysLeads(), clock=FixedClock(1000.0))
    assert pipeline.published_until() is None
    pipeline.run_once()
    assert pipeline.published_until() == until
    says(monkeypatch, "raise SystemExit(3)")  # of this one it is not known what is stored
    pipeline.run_once()
    assert pipeline.published_until() == 1000.0


def test_results_are_forgotten_when_another_replica_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, """print('{"computed_seconds": 1}')""")
    quick = ManagerSettings(lease_seconds=0.3, pipeline_interval_seconds=0.1)
    leadership = AlwaysLeads()
    pipeline = Pipeline(msgspec.structs.replace(Settings(), manager=quick), "test", leadership)
    pipeline.start()
    try:
        wait_for("results", lambda: pipeline.has_results)
        leadership.is_leading = False
        wait_for("they are forgotten", lambda: not pipeline.has_results)
        with pytest.raises(NoData, match="has not ended yet"):
            pipeline.results()
        assert pipeline.published_until() is None
    finally:
        pipeline.stop()


def test_a_run_that_begins_while_the_manager_ends_is_ended_too(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, "import time; time.sleep(3600)")
    pipeline.stop()
    begin_seconds = time.monotonic()
    pipeline.run_once()
    assert time.monotonic() - begin_seconds < 600


@pytest.mark.slow
def test_what_others_print_in_the_pipeline_s_process_is_no_part_of_its_answer() -> None:
    program = (
        "import os; from cotenant.manager.pipeline_child import answer_alone; out = answer_alone(); "
        "print('a plug-in'); os.system('echo a program'); out.write(b'answer'); out.close()"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert done.stdout == b"answer"
    assert b"a plug-in" in done.stderr
    assert b"a program" in done.stderr
