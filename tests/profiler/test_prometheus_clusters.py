"""When a server is taken for several clusters, and when it is not; what a survey says about lateness."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import SourceUnfit
from cotenant.base.identity import fits_folder
from cotenant.base.settings.clusters import split_clusters
from cotenant.base.settings.document import parse, plain
from cotenant.profiler.prometheus import clusters, survey
from cotenant.profiler.prometheus.inventory import own_labels
from cotenant.profiler.prometheus.parts import Rates
from cotenant.profiler.prometheus.plan import Population

NOW = 1_795_089_600
Series = tuple[dict[str, str], np.ndarray]


def at(*moments: int, **labels: str) -> Series:
    return labels, np.array(moments, dtype=np.float64)


def test_a_label_with_two_values_at_one_moment_is_two_clusters_and_the_fix_chooses_one() -> None:
    clusters_body = [at(1, 2, cluster="prod"), at(2, 3, cluster="lab"), at(3)]
    with pytest.raises(SourceUnfit, match="2 clusters, by the label cluster: lab, prod") as refused:
        clusters.check({"clusters": clusters_body}, "prometheus http://p")
    assert "--prometheus-label cluster=lab" in refused.value.fix


@pytest.mark.parametrize("label", clusters.CLUSTER_LABELS)
def test_a_cluster_without_the_label_beside_one_with_it_is_another_cluster(label: str) -> None:
    clusters_body = [at(1, 2, 3), at(2, 3, **{label: "prod"})]
    with pytest.raises(SourceUnfit, match=rf"2 clusters, by the label {label}: \(none\), prod") as refused:
        clusters.check({"clusters": clusters_body}, "p")
    # PromQL's equality with "" selects what has no such label, so both can be chosen.
    assert f"--prometheus-label {label}=prod" in refused.value.fix
    assert f'labels: {{{label}: ""}}' in refused.value.fix


def test_clusters_of_one_name_in_two_places_of_google_are_two_and_a_nodes_place_is_none() -> None:
    labels = {"cluster": "prod", "project_id": "shop"}
    europe, america = at(1, 2, **labels, location="europe-west1"), at(1, 2, **labels, location="us-central1")
    with pytest.raises(SourceUnfit, match="2 clusters, by the label location: europe-west1, us-central1"):
        clusters.check({"clusters": [europe, america]}, "p")
    with pytest.raises(SourceUnfit, match="2 clusters, by the label project_id: lab, shop"):
        clusters.check({"clusters": [europe, at(1, **labels | {"project_id": "lab"}, location="europe-west1")]}, "p")
    # labels of nodes, which Prometheus' own example of Kubernetes puts on the series of their containers
    clusters.check({"clusters": [at(1, 2, location="rack-1"), at(1, 2, location="rack-2"), at(1, 2)]}, "p")


def test_a_label_that_was_renamed_or_added_in_the_window_is_one_cluster() -> None:
    clusters.check({"clusters": [at(1, 2, cluster="old"), at(3, 4, cluster="new")]}, "p")
    clusters.check({"clusters": [at(1, 2, 3), at(3, 4, cluster="new")]}, "p")


def test_two_births_of_kube_system_are_told_apart_by_whatever_label_differs() -> None:
    births = [at(2, born="")]
    first, other = at(1_600_000_000, stage="live", instance="a"), at(1_700_000_000, stage="test", instance="b")
    with pytest.raises(SourceUnfit, match="by the label stage: live, test"):
        clusters.check({"births": births, "birth": [first, other]}, "p")
    # what a server adds to answers for several tenants may begin as its own labels do
    tenants = [at(1_600_000_000, __tenant__="a", __name__=clusters.BIRTH), at(1_700_000_000, __tenant__="b")]
    with pytest.raises(SourceUnfit, match="by the label __tenant__: a, b"):
        clusters.check({"births": births, "birth": tenants}, "p")
    # A pair of exporters in one cluster: one birth, whatever their labels are.
    clusters.check({"births": [at(1)], "birth": [first, at(1_600_000_000, stage="live", instance="b")]}, "p")


def test_more_clusters_than_fit_a_line_are_cut() -> None:
    clusters_body = [at(1, cluster=f"c{i:03}") for i in range(300)]
    with pytest.raises(SourceUnfit) as refused:
        clusters.check({"clusters": clusters_body}, "p")
    assert refused.value.message.count(", c") == 19
    assert "300 clusters" in refused.value.message


def test_exported_labels_are_the_exporters_own_and_others_stay() -> None:
    scraped = {"namespace": "monitoring", "exported_namespace": "shop", "exported_pod": "web-0", "uid": "1"}
    assert own_labels(scraped).items() >= {"namespace": "shop", "pod": "web-0", "uid": "1"}.items()
    plain = {"namespace": "shop"}
    assert own_labels(plain) is plain


@pytest.mark.parametrize(
    ("newest", "state", "says"),
    [
        (NOW - 30, NOW, []),
        (NOW - 301, NOW - 301, ["5 minutes ago"]),
        (NOW - 3 * 3600, NOW - 3 * 3600, ["3 hours ago"]),
        (NOW - 30, NOW - 900, []),
        (NOW - 30, NOW - 4 * 86_400, ["kube-state-metrics has been silent since 2026-11-15"]),
        (None, NOW, []),
    ],
)
def test_what_lags_behind_is_said_with_its_age(newest: int | None, state: int, says: list[str]) -> None:
    profile = survey.ServerProfile(Population({}), Rates(60), False, frozenset(), (), newest)
    notes = survey.lateness(NOW, profile, state)
    assert len(notes) == len(says)
    assert all(part in note for part, note in zip(says, notes, strict=True))


@pytest.mark.parametrize(("age", "says"), [(890, 0), (1800, 0), (1801, 1)])
def test_series_that_became_rare_lag_once_two_scrapes_are_missing(age: int, says: int) -> None:
    """Most of the window was scraped every 15 s, and the last hour every 900 s."""
    profile = survey.ServerProfile(Population({}), Rates(15), False, frozenset(), (), NOW - age, latest_seconds=900)
    assert len(survey.lateness(NOW, profile, NOW)) == says


def test_a_search_for_the_newest_sample_leaves_no_gap_and_fits_one_answer() -> None:
    moments = survey.search(NOW - 86_400, NOW)
    assert (moments[0], moments[-1], moments.step) == (NOW - 86_400, NOW, 300)
    assert len(survey.search(NOW - 90 * 86_400, NOW)) <= 11_000


@given(st.lists(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=20), unique=True))
def test_every_value_of_the_label_is_declared_under_a_name_of_its_own(values: list[str]) -> None:
    _, declared = split_clusters(parse(clusters.declaration("cluster", values), "settings.yaml"))
    assert all(map(fits_folder, declared))
    labels = [plain(own)["profiler"]["prometheus"]["labels"] for own in declared.values()]
    assert labels == [{"cluster": value} for value in values]


@pytest.mark.parametrize("metric", survey.NEEDED)
def test_an_exporter_is_called_missing_only_where_nothing_of_it_is_there(metric: str) -> None:
    """One other series of the same exporter shows that it is scraped: an allow-list or a relabelling drops the one."""
    others = set(survey.NEEDED) - {metric}
    alone = survey.losses({m for m in others if not m.startswith(metric.partition("_")[0])})[metric]
    beside = survey.losses(others)[metric]
    assert "not scraped" not in beside
    assert beside.startswith(survey.NEEDED[metric])
    if metric not in ("container_cpu_cfs_throttled_seconds_total", "kube_pod_status_phase"):
        assert alone.endswith("not scraped")
        assert f"without {metric}" in beside
