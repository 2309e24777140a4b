"""An analysis an hour later keeps the recommendations for which nothing new was seen, and makes the others anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.cluster import Event, EventKind, Inventory, Pod
from cotenant.base.identity import ContainerRef, NodeRef, PodContainerRef, WorkloadRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.base.store import Store
from cotenant.base.usage.usage import HOUR_SECONDS, Signal, TimeGrid, Usage
from cotenant.changes.model.settings import ActionSettings
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.pipeline import daily_analysis, day_margins, tables
from cotenant.pipeline.analysis import Analysis
from cotenant.pipeline.shards import judgements
from cotenant.recommender import stored_recommendations
from cotenant.recommender.model.finding import ClusterFinding, FindingKind
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.model.views import RECOMMENDATIONS
from cotenant.recommender.strategies.cotenant import day_risk
from cotenant.settings import Settings
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec, generate
from tests.support.command_line import cotenant

SPEC = SyntheticSpec(nodes=4, workloads=20, days=8, seed=5)
"""Eight days: what is judged holds for 8 * 24 / 24 = 8 hours, and for 4 at least."""
QUICK = Settings(forecasting=ForecastingSettings(booster_rows=0, origins=1))
Change = Callable[[Inventory], Inventory]
WEB = WorkloadRef("shop", "Deployment", "web")


def cut(usage: Usage, hours_before: int, hours: int) -> Usage:
    """So many hours of a history that end so long before its end."""
    slots = HOUR_SECONDS // usage.grid.step_seconds
    end = usage.grid.size - hours_before * slots
    start = max(0, end - hours * slots)
    grid = TimeGrid(usage.grid.start_seconds + start * usage.grid.step_seconds, usage.grid.step_seconds, end - start)
    return replace(usage, grid=grid, values=usage.values[:, start:end])


@pytest.fixture(scope="module")
def eight_day_cluster() -> SyntheticCluster:
    return generate(SPEC)


@pytest.fixture(scope="module")
def judged(eight_day_cluster: SyntheticCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of all but the last hour, with the results of an analysis."""
    folder = tmp_path_factory.mktemp("judged")
    store = Store(folder.as_uri(), "prod")
    for signal, usage in eight_day_cluster.usage.items():
        store.append(signal, cut(usage, 1, SPEC.days * 24))
    store.write_inventory(before(eight_day_cluster.inventory))
    daily_analysis.publish(analysed(store), store, QUICK)
    return folder


def before(inventory: Inventory) -> Inventory:
    """The inventory of an hour ago, to whose pods nothing happened since; one workload has no limits."""
    moment = inventory.time_seconds - HOUR_SECONDS
    events = tuple(event for event in inventory.events if event.time_seconds < moment)
    first, *others = inventory.workloads
    unlimited = replace(first, containers=tuple(replace(c, limits={}) for c in first.containers))
    return replace(inventory, time_seconds=moment, events=events, workloads=(unlimited, *others))


def analysed(store: Store, settings: Settings = QUICK) -> Analysis:
    inventory = store.read_inventory()
    assert inventory is not None
    return daily_analysis.analyse(store, settings, FixedClock(inventory.time_seconds), Silent())


@pytest.fixture
def later(judged: Path, tmp_path: Path, eight_day_cluster: SyntheticCluster) -> Callable[..., Analysis]:
    """The analysis an hour later, of an hour in which nothing was used but by whom `more` names."""
    shutil.copytree(judged, tmp_path / "store")
    store = Store((tmp_path / "store").as_uri(), "prod")

    def analysis(change: Change = before, more: WorkloadRef | None = None, settings: Settings = QUICK) -> Analysis:
        owners = eight_day_cluster.inventory.owners()
        for signal, usage in eight_day_cluster.usage.items():
            hour = cut(usage, 0, 1)
            # nothing but a node, which runs its kubelet at least
            least = np.float32(1 if signal.spec.per_node else 0)
            quiet = np.where(np.isfinite(hour.values), least, np.float32(np.nan))
            if signal is Signal.CPU_USAGE_MEAN and more is not None:
                rows = [owners.get((ref.namespace, ref.pod)) == more for ref in usage.refs]
                quiet[rows] = np.float32(1e6)
            store.append(signal, replace(hour, values=quiet))
        changed = change(before(eight_day_cluster.inventory))
        store.write_inventory(replace(changed, time_seconds=eight_day_cluster.inventory.time_seconds))
        daily = analysed(store, settings)
        daily_analysis.publish(daily, store, settings)
        return daily

    return analysis


def anew(analysis: Analysis) -> set[WorkloadRef]:
    """Workloads whose recommendations rest on the newest hour."""
    end = analysis.history.window.end_seconds
    return {
        recommendation.container.workload
        for recommendation in analysis.recommendations
        if recommendation.end_seconds == end
    }


@pytest.mark.slow
def test_what_nothing_new_was_seen_of_is_kept_as_it_was(judged: Path, later: Callable[..., Analysis]) -> None:
    stored = stored_recommendations.Explanations(Store(judged.as_uri(), "prod"))
    analysis = later()
    assert len(analysis.recommendations) >= 20
    assert anew(analysis) == set()
    for recommendation in analysis.recommendations:
        assert recommendation in stored.of_namespace(recommendation.container.workload.namespace)
    places = [advice.container.workload.place for advice in analysis.recommendations]
    assert places == sorted(places)


ROWS = "workloads-00000-rows"


def test_a_row_of_the_table_is_kept_with_its_recommendation(
    later: Callable[..., Analysis], eight_day_cluster: SyntheticCluster, tmp_path: Path
) -> None:
    store, busy = Store((tmp_path / "store").as_uri(), "prod"), eight_day_cluster.inventory.workloads[3].ref
    block, stamp = store.read_block(judgements.FOLDER, ROWS) or ({}, {})
    block["strategy"][:] = "marked"  # as no row says that is made anew
    store.write_block(judgements.FOLDER, ROWS, block, stamp)
    later(more=busy)
    rows = list(store.read_table(RECOMMENDATIONS).rows())
    anew = {(row["namespace"], row["kind"], row["workload"]) for row in rows if row["strategy"] != "marked"}
    assert anew == {(busy.namespace, busy.kind, busy.name)}
    assert len(rows) > 20


@pytest.mark.slow
@pytest.mark.parametrize("stored", ["as it was", "of another run", "in part", "not at all"])
def test_the_table_is_the_one_that_would_be_made_anew(
    later: Callable[..., Analysis], eight_day_cluster: SyntheticCluster, tmp_path: Path, stored: str
) -> None:
    store = Store((tmp_path / "store").as_uri(), "prod")
    block, stamp = store.read_block(judgements.FOLDER, ROWS) or ({}, {})
    if stored == "of another run":
        store.write_block(judgements.FOLDER, ROWS, block, {**stamp, "until_seconds": "1"})
    elif stored == "in part":
        store.write_block(judgements.FOLDER, ROWS, {name: cells[::2] for name, cells in block.items()}, stamp)
    elif stored == "not at all":
        store.remove_result(f"{judgements.FOLDER}/{ROWS}.parquet")
    analysis = later(more=eight_day_cluster.inventory.workloads[3].ref)
    limits, workloads = QUICK.actions.guardrails, analysis.history.inventory.workloads
    expected = tables.recommendations(analysis.recommendations, limits, workloads)
    assert list(store.read_table(RECOMMENDATIONS).rows()) == list(expected.rows())


@pytest.mark.slow
def test_other_guardrails_judge_all_anew(later: Callable[..., Analysis]) -> None:
    guardrails = msgspec.structs.replace(QUICK.actions.guardrails, most_cpu_cut=0.1)
    analysis = later(settings=msgspec.structs.replace(QUICK, actions=ActionSettings(guardrails=guardrails)))
    assert anew(analysis) == {recommendation.container.workload for recommendation in analysis.recommendations}


@pytest.mark.slow
def test_a_kept_finding_is_the_one_that_was_made(
    judged: Path, eight_day_cluster: SyntheticCluster, later: Callable[..., Analysis], tmp_path: Path
) -> None:
    shutil.copytree(judged, tmp_path / "first")
    store = Store((tmp_path / "first").as_uri(), "prod")
    for name in store.folders("judged-workloads"):
        store.remove_result(f"judged-workloads/{name}")
    first = analysed(store)
    of_workloads = [finding for finding in first.findings if not isinstance(finding.subject, NodeRef)]
    assert of_workloads
    assert later().findings == first.findings


def test_who_used_more_than_ever_before_is_judged_anew(
    later: Callable[..., Analysis], eight_day_cluster: SyntheticCluster
) -> None:
    busy = eight_day_cluster.inventory.workloads[3].ref
    assert anew(later(more=busy)) == {busy}


def test_a_changed_template_is_judged_anew(later: Callable[..., Analysis], eight_day_cluster: SyntheticCluster) -> None:
    changed = eight_day_cluster.inventory.workloads[2]

    def with_more(inventory: Inventory) -> Inventory:
        larger = [replace(c, requests={**c.requests, Resource.CPU: 7777}) for c in changed.containers]
        workloads = [replace(w, containers=tuple(larger)) if w.ref == changed.ref else w for w in inventory.workloads]
        return replace(inventory, workloads=tuple(workloads))

    analysis = later(with_more)
    assert anew(analysis) == {changed.ref}
    now = [
        r.value(Resource.CPU, Field.REQUEST) for r in analysis.recommendations if r.container.workload == changed.ref
    ]
    assert {value.now for value in now if value} == {7777}


def test_a_killed_container_is_judged_anew(later: Callable[..., Analysis], eight_day_cluster: SyntheticCluster) -> None:
    pod = next(pod for pod in eight_day_cluster.inventory.pods if pod.running)
    container = next(w for w in eight_day_cluster.inventory.workloads if w.ref == pod.workload).containers[0].name
    subject = PodContainerRef(pod.namespace, pod.name, container)
    moment = eight_day_cluster.inventory.time_seconds - 1800

    def killed(inventory: Inventory) -> Inventory:
        return replace(inventory, events=(*inventory.events, Event(moment, EventKind.OOM_KILL, subject, 1 << 20)))

    assert anew(later(killed)) == {pod.workload}


def every(analysis: Analysis) -> set[WorkloadRef]:
    return {recommendation.container.workload for recommendation in analysis.recommendations}


def test_a_pod_that_had_time_to_be_measured_and_was_not_lets_its_workload_be_judged_anew(
    eight_day_cluster: SyntheticCluster, tmp_path: Path
) -> None:
    store, moment = Store(tmp_path.as_uri(), "prod"), before(eight_day_cluster.inventory).time_seconds
    web = next(w.ref for w in eight_day_cluster.inventory.workloads if w.ref.kind == "Deployment" and w.replicas > 1)
    # half an hour old at first, when a kubelet may not have been scraped yet, and an hour and a half then
    young = Pod(web.namespace, f"{web.name}-7c9f8-x2v4b", web, eight_day_cluster.inventory.nodes[0].name, moment - 1800)
    inventory = before(eight_day_cluster.inventory)
    inventory = replace(inventory, pods=(*inventory.pods, young))
    for signal, usage in eight_day_cluster.usage.items():
        store.append(signal, cut(usage, 1, SPEC.days * 24))
    store.write_inventory(inventory)
    first = analysed(store)
    daily_analysis.publish(first, store, QUICK)
    for signal, usage in eight_day_cluster.usage.items():
        hour = cut(usage, 0, 1)
        store.append(signal, replace(hour, values=np.where(np.isfinite(hour.values), np.float32(0), hour.values)))
    store.write_inventory(replace(inventory, time_seconds=eight_day_cluster.inventory.time_seconds))
    reasons = {
        name: {
            v.reason
            for recommendation in analysis.recommendations
            if recommendation.container.workload == web
            for v in recommendation.values
        }
        for name, analysis in {"first": first, "then": analysed(store)}.items()
    }
    assert Reason.UNMEASURED not in reasons["first"]
    assert Reason.UNMEASURED in reasons["then"]


def test_other_settings_judge_all_anew(later: Callable[..., Analysis]) -> None:
    own = msgspec.structs.replace(QUICK.recommender.cotenant, cpu_margin_fraction=0.5)
    recommender = msgspec.structs.replace(QUICK.recommender, cotenant=own)
    analysis = later(settings=msgspec.structs.replace(QUICK, recommender=recommender))
    assert anew(analysis) == every(analysis)


def from_nothing(store: Store, settings: Settings = QUICK) -> Analysis:
    """The analysis that finds nothing of an earlier one to keep."""
    for name in store.folders(judgements.FOLDER):
        store.remove_result(f"{judgements.FOLDER}/{name}")
    return analysed(store, settings)


@pytest.mark.slow
def test_another_window_judges_all_anew(judged: Path, tmp_path: Path) -> None:
    # of the eight days stored, three are asked for; at the same moment all else is as it was
    shutil.copytree(judged, tmp_path / "store")
    store = Store((tmp_path / "store").as_uri(), "prod")
    settings = msgspec.structs.replace(QUICK, profiler=msgspec.structs.replace(QUICK.profiler, window_days=3))
    usual, analysis = analysed(store), analysed(store, settings)
    assert analysis.recommendations != usual.recommendations
    assert analysis.recommendations == from_nothing(store, settings).recommendations


@pytest.mark.slow
def test_older_history_that_came_since_judges_its_workloads_anew(
    eight_day_cluster: SyntheticCluster, tmp_path: Path
) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    for signal, usage in eight_day_cluster.usage.items():
        store.append(signal, cut(usage, 0, 4 * 24))
    store.write_inventory(eight_day_cluster.inventory)
    first = analysed(store)
    daily_analysis.publish(first, store, QUICK)
    for signal, usage in eight_day_cluster.usage.items():
        store.append(signal, cut(usage, 4 * 24, 4 * 24))  # as a recording that a Prometheus completes
    analysis = analysed(store)
    assert analysis.recommendations != first.recommendations
    assert analysis.recommendations == from_nothing(store).recommendations


@pytest.mark.slow
def test_with_no_hours_every_scan_judges_all_anew(judged: Path, later: Callable[..., Analysis], tmp_path: Path) -> None:
    recommender = msgspec.structs.replace(QUICK.recommender, renew_hours=0.0)
    settings = msgspec.structs.replace(QUICK, recommender=recommender)
    first = later(settings=settings)
    assert anew(first) == every(first)
    again = analysed(Store((tmp_path / "store").as_uri(), "prod"), settings)
    assert again.recommendations == first.recommendations


@pytest.mark.slow
@pytest.mark.parametrize("name", ["workloads-00000", "workloads-00000-findings"])
def test_without_what_was_noted_all_is_judged_anew(judged: Path, later: Callable[..., Analysis], name: str,
                                                   tmp_path: Path) -> None:  # fmt: skip
    (file,) = (tmp_path / "store").rglob(f"{name}.parquet")
    file.write_bytes(b"PAR1 no table PAR1")
    analysis = later()
    assert anew(analysis) == every(analysis)


@pytest.mark.slow
def test_a_recommendation_that_cannot_be_read_is_made_anew(later: Callable[..., Analysis], tmp_path: Path) -> None:
    files = sorted((tmp_path / "store").rglob("explain@*.json"))
    namespace = files[0].stem.removeprefix("explain@")
    files[0].unlink()
    analysis = later()
    assert anew(analysis) == {ref for ref in every(analysis) if ref.namespace == namespace}


@pytest.mark.slow
def test_a_judgement_holds_for_a_24th_of_the_history_behind_it_and_for_half_of_that_at_least(
    judged: Path, later: Callable[..., Analysis], tmp_path: Path
) -> None:
    store = Store((tmp_path / "store").as_uri(), "prod")
    noted, stamp = store.read_block("judged-workloads", "workloads-00000") or ({}, {})
    # eight days: 8 hours at most, and 4 at least; less of workloads that are younger; the analysis is an hour later
    for age_hours, is_kept in ((2, True), (8, False)):
        shutil.copytree(judged, tmp_path / "store", dirs_exist_ok=True)
        older = {**noted, "end_seconds": noted["end_seconds"] - age_hours * HOUR_SECONDS}
        store.write_block("judged-workloads", "workloads-00000", older, stamp)
        for document in (tmp_path / "store").rglob("explain@*.json"):
            end = int(noted["end_seconds"][0])
            text = document.read_text().replace(f'"end_seconds":{end}', f'"end_seconds":{end - age_hours * 3600}')
            document.write_text(text)
        analysis = later() if is_kept else analysed(store)
        # three hours are less than half of a 24th of six days; of younger workloads the digest of what is known of
        # them decides: not all are judged anew in one scan
        young = younger_than(store, 6 * 24)
        assert 2 * len(young) < len(every(analysis))
        assert anew(analysis) <= young if is_kept else anew(analysis) == every(analysis)


def younger_than(store: Store, hours: int) -> set[WorkloadRef]:
    """The workloads with no usage that is older."""
    grid = TimeGrid.from_span(0, (store.span(Signal.CPU_USAGE_MEAN) or (0, 0))[1], 300)
    inventory, usage = store.read_inventory(), store.read_sparse(Signal.CPU_USAGE_MEAN, grid)
    assert inventory is not None
    owners, first = inventory.owners(), dict[WorkloadRef, int]()
    for ref, slot in zip(usage.refs, usage.first.tolist(), strict=True):
        if owner := owners.get((ref.namespace, ref.pod)):
            first[owner] = min(slot, first.get(owner, slot))
    return {ref for ref, slot in first.items() if slot > grid.size - hours * 12}


@given(
    st.builds(
        ClusterFinding,
        st.sampled_from(FindingKind),
        st.one_of(st.just(WEB), st.builds(ContainerRef, st.just(WEB), st.text())),
        st.sampled_from(Severity),
        st.dictionaries(
            st.text(),
            st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), st.text()),
        ),
        st.text(),
        freed=st.dictionaries(st.sampled_from(Resource), st.integers(0, 2**53)),
    )
)
def test_a_finding_comes_back_as_it_was(finding: ClusterFinding) -> None:
    assert judgements.finding_of(judgements.text_of(finding)) == finding


def test_a_margin_that_is_kept_goes_on_falling(tmp_path: Path) -> None:
    own = msgspec.structs.replace(QUICK.recommender.cotenant, cpu_day_risk=0.05)
    settings = msgspec.structs.replace(QUICK, recommender=msgspec.structs.replace(QUICK.recommender, cotenant=own))
    store, now = Store(tmp_path.as_uri(), "prod"), 86_400 * 20_000

    def of(name: str, end_seconds: int) -> Recommendation:
        inputs = {day_risk.MARGIN_INPUT: 0.5}
        value = Value(Resource.CPU, Field.REQUEST, 100, 150, Action.SET, Reason.OK, inputs=inputs)
        return Recommendation(ContainerRef(WEB, name), "cotenant", 1, (value,), 86_400, "", end_seconds)

    day_margins.write(store, settings, [of("kept", now), of("anew", now)], now)
    day_margins.write(store, settings, [of("kept", now), of("anew", now + 86_400)], now + 86_400)
    margins = day_margins.read(store, settings, now + 86_400)
    assert margins == {ContainerRef(WEB, "kept"): day_risk.least_later_margin(0.5, 1.0), ContainerRef(WEB, "anew"): 0.5}
    assert day_risk.least_later_margin(0.5, 1.0) < 0.5


@pytest.mark.slow
def test_a_scan_says_what_it_kept(judged: Path, later: Callable[..., Analysis], tmp_path: Path) -> None:
    kept_count = len(later().recommendations)
    file = tmp_path / "settings.yaml"
    file.write_text("forecasting: {booster_rows: 0, origins: 1}\n")
    store = (tmp_path / "store").as_uri()
    done = cotenant("scan", "--offline", "--store", store, "--cluster", "prod", "--config", str(file), "-o", "csv")
    assert done.returncode == 0, done.stderr
    assert f"{kept_count} of {kept_count} recommendations are kept from up to 1 h ago" in done.stderr
