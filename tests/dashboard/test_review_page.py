"""The review in every state, on the embedded API server: nobody there, not allowed, gone, refused, old, twice."""

from __future__ import annotations

import base64
import io
import json
import threading
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from dash import html, no_update
from dash.development.base_component import Component
from plotly.utils import PlotlyJSONEncoder

from cotenant.base.errors import CotenantError, StoreBusy, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import send_all
from cotenant.base.kubernetes.intent import Delete
from cotenant.base.people import Grant, Person, Role
from cotenant.base.process.clock import FixedClock
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.tables import filters
from cotenant.changes.decide import in_place
from cotenant.changes.decide.field_changes import address_of
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.service import ChangeRequest, FieldMove, Method, WorkloadReview
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.changes.model.tables import rollback_lines, write_lines
from cotenant.dashboard.changes import (
    change_story,
    jobs,
    ladders,
    review_end,
    review_job,
    review_steps,
    select_bar,
    snooze,
)
from cotenant.dashboard.changes import review as reviewing
from cotenant.dashboard.changes.change_story import Allowed
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import DashboardContext, View
from cotenant.dashboard.home import numbers, overview
from cotenant.dashboard.pages import changes, portrait, review
from cotenant.dashboard.pages.recommendations import LIST
from cotenant.dashboard.sources.namespace_filter import Narrowing
from cotenant.dashboard.sources.snoozed import Postponing
from cotenant.dashboard.sources.source import StoreSource
from cotenant.dashboard.tables.selection import Selection
from cotenant.recommender.model.views import RECOMMENDATIONS, portraits_of
from tests.cluster.waiting import wait_for
from tests.dashboard.test_written_lines import listed
from tests.support import acting
from tests.support import dashboard as support
from tests.support.acting import Prepared, Scene
from tests.support.component_text import component_of

pytestmark = [pytest.mark.server, pytest.mark.slow]

ADMIN = Person("jane", grants=(Grant(Role.ADMIN),))
VIEWER = Person("vera")
KEY = "0123456789abcdef"


@pytest.fixture(scope="module")
def prepared_store(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return acting.prepared(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def cluster(prepared_store: Prepared, tmp_path: Path) -> Iterator[Scene]:
    with acting.embedded(tmp_path, prepared_store) as embedded_cluster:
        yield embedded_cluster


def view_of(cluster: Scene, who: Person = ADMIN, age_seconds: float = 0.0, **services: Any) -> View:
    """What a page of this cluster is given, with the sources that the application puts before the store."""
    now = FixedClock(cluster.end_seconds + age_seconds).now_seconds
    context = DashboardContext(
        current_user=lambda: who, **{"changes": cluster.service(), "actions": cluster.settings.actions, **services}
    )
    source = StoreSource(cluster.store, support.QUICK)
    # The clock stands: only who is told to forget asks the ledger again.
    behind = source if context.changes is None else Postponing(source, context.changes, now, 3600.0)
    return View(Narrowing(behind, context.current_user), support.QUICK, now, context)


def text(component: Component) -> str:
    return json.dumps(component, cls=PlotlyJSONEncoder, ensure_ascii=False)


def search_of(refs: list[WorkloadRef], **more: str) -> str:
    return "?" + reviewing.href("/", refs, key=KEY, **more).partition("?")[2]


def step(view: View, refs: list[WorkloadRef], name: str, **more: str) -> str:
    return text(review.contents(view, LIST, search_of(refs, step=name, **more)))


def row_of(view: View, ref: WorkloadRef, container: str) -> dict[str, Any]:
    rows = view.source.snapshot().tables[RECOMMENDATIONS.name].read().rows()
    keys = {"namespace": ref.namespace, "kind": ref.kind, "workload": ref.name, "container": container}
    return next(row for row in rows if keys.items() <= row.items())


def reviews_of(view: View, refs: list[WorkloadRef], **terms: str) -> tuple[list[WorkloadReview], Method]:
    """The reviews of few workloads, which are over at once."""
    reviews = review.review_workloads(view, reviewing.parse_terms(search_of(refs, **terms)), refs)
    assert isinstance(reviews, tuple)
    return reviews


def free(cluster: Scene, count: int = 1) -> list[WorkloadRef]:
    looks = cluster.service().dry_run(ADMIN, ChangeRequest(cluster.workloads))
    return [k.workload for k in looks if not k.error and not k.blocked(()) and k.tried and k.tried.accepted][:count]


def test_without_a_service_or_a_right_the_page_says_what_it_takes(cluster: Scene) -> None:
    search = search_of(list(cluster.workloads[:1]))
    nobody = text(review.render(view_of(cluster, changes=None), search))
    assert "cotenant dashboard --act" in nobody and "review-body" not in nobody
    viewer = text(review.render(view_of(cluster, VIEWER), search))
    assert "vera may not review: this needs role owner or approver or admin." in viewer and "review-body" not in viewer


def seen(view: View, refs: list[WorkloadRef]) -> dict[str, Any]:
    return {"ids": [reviewing.name_of(ref) for ref in refs], "version": view.source.snapshot().results_version}


def test_commands_too_long_for_the_page_are_downloaded(cluster: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    view, refs = view_of(cluster), free(cluster, 2)
    terms = reviewing.parse_terms(search_of(refs, step="confirm", method="bundle", form="kubectl"))
    _, download, shown = review.bundle_answer(view, terms, seen(view, refs))
    assert download is no_update and "kubectl" in text(shown)
    monkeypatch.setattr(review_end, "MOST_TEXT", 100)  # one patch is longer
    _, download, shown = review.bundle_answer(view, terms, seen(view, refs))
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(download["content"]))) as archive:
        written = "".join(archive.read(name).decode() for name in archive.namelist())
    assert "kubectl" in written and all(ref.name in written for ref in refs)
    assert "in the download only: this page would be too long." in text(shown)


def test_the_files_of_all_rows_that_match_are_those_that_the_last_step_showed(cluster: Scene) -> None:
    view = view_of(cluster)
    search = f"?all=1&key={KEY}&step=confirm&method=bundle&form=kubectl"  # more workloads than an address names
    data = component_of(review.contents(view, LIST, search), "review-seen").data
    assert len(data["ids"]) > 1
    _, _, shown = review.bundle_answer(view, reviewing.parse_terms(search), data)
    for ref in filter(None, map(reviewing.parse_workload, data["ids"])):
        assert ref.name in text(shown)
    with pytest.raises(UsageError, match="newer results"):
        review.bundle_answer(view, reviewing.parse_terms(search), {**data, "version": "older"})


def test_an_empty_selection_and_workloads_that_are_gone_are_told_apart(cluster: Scene) -> None:
    view = view_of(cluster)
    assert "Nothing is selected." in text(review.render(view, "?ids=broken"))
    missing = WorkloadRef("pay", "Deployment", "gone")
    with pytest.raises(CotenantError, match="nothing is recommended"):
        review.contents(view, LIST, search_of([missing], step="diff"))
    (ref,) = free(cluster)
    (sent,) = send_all(cluster.client, [Delete(address_of(ref), why="test")], "test")
    assert not sent.error
    confirm_page = step(view, [ref], "confirm")
    assert "is not in the cluster any more" in confirm_page and "No workload is left to change." in confirm_page


def test_each_step_asks_the_cluster_and_shows_its_answer(cluster: Scene) -> None:
    view, (ref,) = view_of(cluster), free(cluster)
    diff = step(view, [ref], "diff")
    assert "As YAML" in diff and "Highest seen, one pod" in diff and "Next: guardrails" in diff
    assert "Every rule" in step(view, [ref], "guardrails")
    assert "Accepted unchanged, in a dry run." in step(view, [ref], "dry-run")
    method = step(view, [ref], "method")
    assert all(label in method for label, _ in review_steps.METHODS.values())
    confirm = step(view, [ref], "confirm")
    assert "Accept 1 change" in confirm and "jane" in confirm and "soak time" in confirm
    assert cluster.service().changes(ADMIN) == []


def test_a_method_has_the_review_s_name_wherever_a_change_is_told(cluster: Scene) -> None:
    view, (ref,) = view_of(cluster), free(cluster)
    method_name = review_steps.METHODS[Method.TEMPLATE.value][0]
    assert method_name in step(view, [ref], "method")
    assert f"the method {method_name} (template)" in in_place.ELSEWHERE, "a refusal's advice"
    terms = reviewing.parse_terms(search_of([ref], step="confirm"))
    shown_review = {
        "ids": [reviewing.name_of(ref)],
        "version": view.source.snapshot().results_version,
        "method": "template",
    }
    (standing,) = review.accept_changes(view, terms, shown_review)
    story = text(change_story.body(standing, (), Allowed("", ""), None))
    assert f"method {method_name}" in story and "method template" not in story


def test_the_dialogs_of_a_rollback_and_of_a_second_person_list_each_line_of_the_whole_batch(cluster: Scene) -> None:
    view, refs, service = view_of(cluster), tuple(free(cluster, 2)), cluster.service()
    done = service.accept(ADMIN, ChangeRequest(refs, key="two"))
    dialog, ids = changes.rollback_question(view, "batch", done[0].change.id)
    assert ids == [change_status.change.id for change_status in done] and len(ids) == 2
    assert listed(dialog) == lines_of(rollback_lines(change_status.change for change_status in done))
    waiting = [replace(change_status, state=ChangeState.AWAITING) for change_status in done]
    allowed = changes.allowed_acts(view, waiting[0], waiting, None)
    body = change_story.body(waiting[0], (), allowed, None)
    written = lines_of(line for change_status in done for line in write_lines(change_status.change.writes, None))
    assert listed(body) == written and {line[0] for line in written} == {str(address_of(ref)) for ref in refs}


def lines_of(lines: Iterable[FieldMove]) -> set[tuple[str, str, str, str]]:
    return {(line.target, line.pointer, line.now, line.new) for line in lines}


def test_what_was_shown_is_accepted_once_under_its_key(cluster: Scene) -> None:
    view, (ref,) = view_of(cluster), free(cluster)
    terms = reviewing.parse_terms(search_of([ref], step="confirm"))
    shown_review = {
        "ids": [reviewing.name_of(ref)],
        "version": view.source.snapshot().results_version,
        "method": "template",
    }
    first = review.accept_changes(view, terms, shown_review)
    assert [s.state for s in first] == [ChangeState.APPLIED]
    assert [s.change.id for s in review.accept_changes(view, terms, shown_review)] == [first[0].change.id]
    # Whoever comes back to Confirm sees the outcome, not the button.
    again = step(view, [ref], "confirm")
    assert "1 applied." in again and "review-accept" not in again
    assert review.run_follow_up(view, "roll-back", [first[0].change.id]) == "Rolled back: 1 rolled back."


@pytest.mark.parametrize(
    ("shown_review", "message"),
    [
        ({"ids": [], "version": "x"}, "nothing was chosen"),
        (None, "nothing was chosen"),
        ({"ids": ["pay/Deployment/web"], "version": "older"}, "there are newer results since your review"),
    ],
)
def test_nothing_is_accepted_that_was_not_shown(cluster: Scene, shown_review: Any, message: str) -> None:
    terms = reviewing.parse_terms(search_of([], step="confirm"))
    with pytest.raises(UsageError, match=message):
        review.accept_changes(view_of(cluster), terms, shown_review)
    assert cluster.service().changes(ADMIN) == []


def test_red_data_disable_every_action_and_are_refused_on_the_server_too(cluster: Scene) -> None:
    view, (ref,) = view_of(cluster, age_seconds=support.QUICK.red_after_seconds + 7200.0), free(cluster)
    warning = "The newest sample is 3 h old: scan again before acting on it"
    assert warning in step(view, [ref], "confirm")
    bar = text(select_bar.contents(view, LIST, "", Selection(everything=True)))
    assert warning in bar
    terms = reviewing.parse_terms(search_of([ref], step="confirm"))
    shown_review = {"ids": [reviewing.name_of(ref)], "version": view.source.snapshot().results_version}
    with pytest.raises(UsageError, match="3 h old"):
        review.accept_changes(view, terms, shown_review)
    with pytest.raises(UsageError, match="3 h old"):
        snooze.snooze_workloads(view, [reviewing.name_of(ref)], 7, "later")
    assert cluster.service().changes(ADMIN) == [] and cluster.service().postponed() == {}


def test_one_that_fails_is_left_out_and_the_others_are_accepted(cluster: Scene) -> None:
    refs = free(cluster, 2)
    missing = next(w for w in cluster.workloads if w not in refs)
    view = view_of(cluster)
    looks, method = reviews_of(view, [*refs, missing], step="confirm")
    going, outs = reviewing.split_by_obstacle(looks, reviewing.parse_terms(""), method)
    assert {look.workload for look in going} >= set(refs) - {missing}
    assert all(out.why for out in outs)


def test_a_server_that_does_not_answer_is_told_and_tried_again(prepared_store: Prepared, tmp_path: Path) -> None:
    with acting.embedded(tmp_path, prepared_store) as stopped_cluster:
        view, search = view_of(stopped_cluster), search_of(list(stopped_cluster.workloads[:1]))
    wait_for("the service to notice", lambda: "does not answer" in text(review.render(view, search)))
    assert "tries again" in text(review.render(view, search))
    confirm_page = text(
        panels.render_guarded(
            lambda: review.contents(view, LIST, search_of(list(stopped_cluster.workloads[:1]), step="confirm"))
        )
    )
    assert "No workload is left to change." in confirm_page and "Accept 1 change" not in confirm_page


def test_a_filter_becomes_one_review_of_any_size_and_is_applied_in_waves(
    prepared_store: Prepared, tmp_path: Path
) -> None:
    few = msgspec.structs.replace(
        acting.ACTIONS, guardrails=msgspec.structs.replace(acting.LENIENT, most_workloads=2), soak_minutes=30.0
    )
    with acting.embedded(tmp_path, prepared_store, few) as wave_cluster:
        view = view_of(wave_cluster)
        diff_page = text(review.contents(view, LIST, f"?all=1&key={KEY}&step=diff"))
        rows = wave_cluster.store.read_table(RECOMMENDATIONS).rows()
        count = len({(r["namespace"], r["kind"], r["workload"]) for r in rows})
        assert count > 4 and "wait for the next review" not in diff_page and diff_page.count("Leave it out:") >= count
        refs = free(wave_cluster, 5)
        search = search_of(refs, step="confirm")
        assert "2 workloads at a time" in text(review.contents(view, LIST, search))
        shown = {"ids": [reviewing.name_of(ref) for ref in refs], "method": "template"}
        shown["version"] = view.source.snapshot().results_version
        done = review.accept_changes(view, reviewing.parse_terms(search), shown)
        # Five in waves of two: two are sent, the others wait for their verdict.
        assert [(change_status.change.wave, change_status.state.value) for change_status in done] == [
            (0, "applied"), (0, "applied"), (1, "waiting"), (1, "waiting"), (2, "waiting")
        ]  # fmt: skip


def test_a_large_review_says_how_far_it_is_and_what_was_reviewed_when_it_is_stopped_is_kept() -> None:
    refs = [WorkloadRef("pay", "Deployment", f"w{index}") for index in range(35)]
    chunk_sizes, go_on = [], threading.Event()

    def ask(some: Sequence[WorkloadRef], _method: Method) -> list[WorkloadReview]:
        chunk_sizes.append(len(some))
        assert len(chunk_sizes) == 1 or go_on.wait(60)
        return [WorkloadReview(ref) for ref in some]

    job = review_job.ReviewJob(refs, ask, Method.TEMPLATE)
    wait_for("the first answer", lambda: job.done == review_job.CHUNK)
    assert not job.is_over and job.left_seconds() is not None
    progress = text(review_end.progress(job.done, job.total, job.left_seconds()))
    assert "10" in progress and "35 workloads" in progress and "Stop here" in progress
    job.stop()
    go_on.set()
    # The first question was answered at once, so that the second one has all others; nothing follows it.
    assert job.wait(60) and chunk_sizes == [10, 25]
    assert [look.workload for look in looks_of(job)] == refs


def looks_of(job: review_job.ReviewJob) -> list[WorkloadReview]:
    outcome = job.answer()
    assert outcome is not None
    return outcome[0]


def test_a_large_review_that_fails_says_why_and_one_that_ends_has_all_in_the_order_of_the_list() -> None:
    refs = [WorkloadRef("pay" if index % 2 else "web", "Deployment", f"w{index}") for index in range(15)]

    def refuse(_some: Sequence[WorkloadRef], _method: Method) -> list[WorkloadReview]:
        raise StoreBusy("8 other requests to the cluster are running")

    failed = review_job.ReviewJob(refs, refuse)
    assert failed.wait(60)
    with pytest.raises(StoreBusy):
        failed.answer()
    workload_refs: list[WorkloadRef] = []

    def ask(some: Sequence[WorkloadRef], _method: Method) -> list[WorkloadReview]:
        workload_refs.extend(some)
        return [WorkloadReview(ref) for ref in some]

    complete = review_job.ReviewJob(refs, ask, Method.IN_PLACE)
    assert complete.wait(60) and not complete.is_partial and [look.workload for look in looks_of(complete)] == refs
    # A namespace's file is read once: those of the first workload's namespace are asked about before the others.
    assert [ref.namespace for ref in workload_refs] == ["web"] * 8 + ["pay"] * 7


def test_a_review_whose_method_nobody_chose_knows_the_default_and_the_other_way_after_one_pass() -> None:
    refs = [WorkloadRef("pay", "Deployment", f"w{index}") for index in range(15)]
    methods: list[Method] = []

    def ask(some: Sequence[WorkloadRef], method: Method) -> list[WorkloadReview]:
        methods.append(method)
        return [WorkloadReview(ref, suggested=Method.IN_PLACE, restart=method.value) for ref in some]

    job = review_job.ReviewJob(refs, ask)
    assert job.wait(60)
    outcomes = {chosen: job.answer(chosen) for chosen in (None, Method.TEMPLATE, Method.BUNDLE, Method.ANNOTATE)}
    assert {
        chosen: (outcome[1], outcome[0][0].restart) if outcome else None for chosen, outcome in outcomes.items()
    } == {
        None: (Method.IN_PLACE, "in-place"),
        Method.TEMPLATE: (Method.TEMPLATE, "template"),
        Method.BUNDLE: (Method.BUNDLE, "template"),
        Method.ANNOTATE: None,  # nobody asked
    }
    assert methods == [Method.TEMPLATE, Method.IN_PLACE] * 2


def test_a_review_rests_once_nobody_looks_and_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "VIEWER_GONE_SECONDS", 0.2)
    refs = [WorkloadRef("pay", "Deployment", f"w{index}") for index in range(40)]
    workload_refs: list[WorkloadRef] = []

    def ask(some: Sequence[WorkloadRef], _method: Method) -> list[WorkloadReview]:
        workload_refs.extend(some)
        time.sleep(1.0)  # long after the viewer has gone
        return [WorkloadReview(ref) for ref in some]

    review_jobs: jobs.Jobs[review_job.ReviewJob] = jobs.Jobs()
    job = review_jobs.job("key", lambda: review_job.ReviewJob(refs, ask, Method.TEMPLATE))
    wait_for("the first answer", lambda: job.done == review_job.CHUNK)
    time.sleep(1.5)
    assert workload_refs == refs[:10] and not job.is_over
    # Looked at again, as after a reload: the same job goes on, and nothing is asked twice.
    assert review_jobs.last(lambda key: key == "key") is job
    wait_for("the second answer", lambda: job.done > review_job.CHUNK)
    assert workload_refs == refs[: job.done]
    review_jobs.forget("key")
    assert job.wait(60) and job.is_partial


def test_one_that_nobody_comes_back_to_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "VIEWER_GONE_SECONDS", 0.0)
    monkeypatch.setattr(jobs, "ABANDONED_SECONDS", 0.1)
    job = review_job.ReviewJob([WorkloadRef("pay", "Deployment", "w")], lambda _some, _method: [], Method.TEMPLATE)
    assert job.wait(60) and job.is_partial


def test_quantiles_of_many_workloads_read_each_namespace_once(cluster: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    view, refs = view_of(cluster), list(cluster.workloads)
    read: list[str] = []
    plain = Store.relation
    monkeypatch.setattr(Store, "relation", lambda store, schema: (read.append(schema.name), plain(store, schema))[1])
    view.source.snapshot()
    read.clear()
    quantiles = review.p99(view, refs)
    assert len(refs) > 4 and read == [portraits_of(cluster.namespace).name]
    story = view.source.story(refs[0])
    assert story is not None and quantiles[refs[0]] == {
        resource: story.portraits[resource.value]["ladder"][review.P99] for resource in Resource
    }


def test_names_and_reasons_stay_text(cluster: Scene) -> None:
    view, ref = view_of(cluster), cluster.workloads[0]
    cluster.service().snooze(ADMIN, [ref], None, "<script>alert(1)</script>\u202e")
    offered = snooze.workload_buttons(view, ref)
    offered_text = text(offered)
    assert "<script>alert(1)</script>\\\\u202e" in offered_text and "Show again" in offered_text
    assert "dangerously" not in offered_text


def test_what_is_put_off_is_hidden_unless_asked_for(cluster: Scene) -> None:
    view, ref = view_of(cluster), cluster.workloads[0]
    before = view.source.snapshot()
    schema = before.tables[RECOMMENDATIONS.name].schema
    every = len(before.rows(RECOMMENDATIONS.name, LIST.query("", schema)))
    mine = len(before.rows(RECOMMENDATIONS.name, LIST.query(f"workload={ref.name}", schema)))
    assert snooze.snooze_workloads(view, [reviewing.name_of(ref)], 7, "later").startswith(
        "1 workload hidden from the list for 7 days"
    )
    after = view.source.snapshot()
    assert after.version != before.version
    assert len(after.rows(RECOMMENDATIONS.name, LIST.query("", schema))) == every - mine
    shown = after.rows(RECOMMENDATIONS.name, filters.parse("postponed=snoozed", schema))
    rows = list(after.tables[RECOMMENDATIONS.name].take(shown).rows())
    assert [r["workload"] for r in rows] == [ref.name] * mine and "later (jane)" in rows[0]["postponed_why"]
    with pytest.raises(UsageError, match="the reason is missing"):
        snooze.snooze_workloads(view, [reviewing.name_of(ref)], 7, "")


def test_overview_portrait_and_drawer_lead_into_the_review(cluster: Scene) -> None:
    view = view_of(cluster)
    saving = max(cluster.store.read_table(RECOMMENDATIONS).rows(), key=lambda r: r["saving_step"] or 0)
    ref = WorkloadRef(saving["namespace"], saving["kind"], saving["workload"])
    way = reviewing.href("/", [ref])
    front = text(overview.contents(view))
    assert way in front and "empty failed" not in front and "Worth most" in front
    story = text(portrait.contents(view, ref, ""))
    assert way in story and "empty failed" not in story
    assert way in text(snooze.workload_buttons(view, ref))
    # Read-only: the portrait says why there is no way, and the overview offers none.
    alone = view_of(cluster, changes=None)
    assert "Worth most" not in text(overview.contents(alone))
    assert "Read-only: start the dashboard with" in text(portrait.contents(alone, ref, ""))


def test_the_overview_counts_what_the_list_behind_its_link_shows(cluster: Scene) -> None:
    view = view_of(cluster)

    def listed() -> int:
        snapshot = view.source.snapshot()
        schema = snapshot.tables[RECOMMENDATIONS.name].schema
        return len(snapshot.rows(RECOMMENDATIONS.name, LIST.query(numbers.READY, schema)))

    before = listed()
    assert f'"{display.counted(before, "recommendation")};' in text(overview.contents(view))
    row = next(r for r in view.source.snapshot().tables[RECOMMENDATIONS.name].read().rows() if r["ready"] == "whole")
    ref = WorkloadRef(row["namespace"], row["kind"], row["workload"])
    snooze.snooze_workloads(view, [reviewing.name_of(ref)], 7, "later")
    assert listed() < before
    assert f'"{display.counted(listed(), "recommendation")};' in text(overview.contents(view))


def test_files_and_commands_are_made_without_touching_the_cluster(cluster: Scene) -> None:
    view, (ref,) = view_of(cluster), free(cluster)
    before = cluster.live(ref)["metadata"]["resourceVersion"]
    offered = step(view, [ref], "confirm", method="bundle", form="helm")
    assert "Download the bundle" in offered and "Helm values" in offered and "review-accept" not in offered
    commands = step(view, [ref], "confirm", method="bundle", form="kubectl")
    assert "Show the commands" in commands
    assert "commit on a branch" not in step(view, [ref], "method", method="bundle")  # no repository is configured
    looks, method = reviews_of(view, [ref], method="bundle")
    assert method is Method.BUNDLE and looks[0].error == ""
    assert cluster.live(ref)["metadata"]["resourceVersion"] == before


def test_a_commit_is_shown_with_its_diff_and_made_by_the_button(prepared_store: Prepared, tmp_path: Path) -> None:
    folder = tmp_path / "deploy"
    with acting.embedded(
        tmp_path, prepared_store, msgspec.structs.replace(acting.ACTIONS, git_repository=str(folder))
    ) as git_cluster:
        view, (ref, other) = view_of(git_cluster), free(git_cluster, 2)
        acting.git_repository(git_cluster, folder, ref)
        before = git_cluster.live(ref)["metadata"]["resourceVersion"]
        assert "commit on a branch" in step(view, [ref], "method", method="bundle")
        offered = step(view, [ref, other], "confirm", method="bundle", form="git")
        assert "Make the commit" in offered and f"--- a/{ref.name}.yaml" in offered
        assert "Dry run: a commit on the new branch cotenant/" in offered and "1 workload left out" in offered
        assert "no manifest of the workload was found" in offered
        terms = reviewing.parse_terms(f"?key={KEY}&method=bundle&form=git&ids={reviewing.name_of(ref)}")
        done = text(html.Div(review_end.commit(review.commit_bundle(view, terms, [ref], write=True))))
        tip = acting.git(folder, "rev-parse", f"cotenant/{KEY}")
        assert f"Commit {tip[:12]} on the new branch cotenant/{KEY}" in done
        assert git_cluster.live(ref)["metadata"]["resourceVersion"] == before


def test_a_large_cut_is_reviewed_accepted_and_shown_as_its_first_step(prepared_store: Prepared, tmp_path: Path) -> None:
    default = msgspec.structs.replace(acting.ACTIONS, guardrails=GuardrailSettings(most_requests_share=1.0))
    with acting.embedded(tmp_path, prepared_store, default) as default_cluster:
        service, view = default_cluster.service(), view_of(default_cluster)
        looks = service.review(ADMIN, ChangeRequest(default_cluster.workloads))
        look = next(
            workload_review
            for workload_review in looks
            if workload_review.next_steps and not workload_review.error and not workload_review.blocked(())
        )
        ref = look.workload
        before = row_of(view, ref, look.next_steps[0].container)
        assert before["ready"] == "first-step"
        diff, rules = step(view, [ref], "diff", method="template"), step(view, [ref], "guardrails", method="template")
        assert "Left for later" in diff
        assert "take the whole cut now" in rules and "in steps" in rules
        assert "Left for later" in step(view, [ref], "confirm", method="template")
        guardrails_page = step(
            view, [ref], "guardrails", method="template", override=f"{look.next_steps[0].resource}-step"
        )
        assert "overridden" in guardrails_page
        version = view.source.snapshot().results_version
        shown = {"ids": [reviewing.name_of(ref)], "version": version, "method": "template"}
        (done,) = review.accept_changes(view, reviewing.parse_terms(search_of([ref], step="confirm")), shown)
        taken = [(next_step.container, next_step.resource, next_step.amount) for next_step in done.change.next_steps]
        assert taken == [(next_step.container, next_step.resource, next_step.amount) for next_step in look.next_steps]
        # Afterwards the list says when the next step may be taken, and what is shown goes on from the cluster's values.
        waiting = row_of(view, ref, taken[0][0])
        assert (waiting["ready"], waiting["cpu_step_total"]) == ("waiting", None)
        assert waiting["stopped_by"].startswith("cool-down until ")
        (again,) = service.review(ADMIN, ChangeRequest((ref,)))
        assert "cool-down" in [rule.name for rule in again.blocked(())]
        assert len(again.next_steps) < len(look.next_steps)
        assert review.run_follow_up(view, "roll-back", [done.change.id]) == "Rolled back: 1 rolled back."
        # A rollback is a write, after which its workload rests for a cool-down; what it gave back is to be saved again.
        back = row_of(view, ref, taken[0][0])
        assert (back["ready"], back["cpu_step_total"]) == ("waiting", None)
        assert back["stopped_by"].startswith("cool-down until ")
        whole_again = ("cpu_request_now", "memory_request_now", "saving_month")
        assert [back[name] for name in whole_again] == [before[name] for name in whole_again]
        # All steps at once: the dialog before the way back lists what the step that was taken wrote.
        service.accept(ADMIN, ChangeRequest((ref,), key="all", ladder=True, overridden=("rollout", "cool-down")))
        (climbing,) = service.ladders(ADMIN)
        dialog, question = ladders.back_question(view, climbing.status.ladder.id, 0)
        (step_taken,) = (change.change for change in service.changes(ADMIN) if change.change.ladder)
        assert listed(dialog) == lines_of(rollback_lines([step_taken])) and len(listed(dialog)) > 1
        assert question == {"ladder": climbing.status.ladder.id, "step": 0}
