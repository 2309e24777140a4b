"""Several clusters in one settings file: whose settings count, what is shared, and who has to be named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import SettingsError, UsageError
from cotenant.base.settings.clusters import ledger_of, select_cluster, split_clusters
from cotenant.base.settings.document import parse
from cotenant.base.settings.load import Loaded, SettingSource, load
from cotenant.settings import Settings

TWO = """
profiler:
  window_days: 7
  prometheus:
    url: http://thanos
    labels: {tier: live}
clusters:
  east:
    profiler: {prometheus: {labels: {cluster: east}}}
    kube: {context: admin@east}
  west:
    profiler: {window_days: 3}
"""


def of(tmp_path: Path, cluster: str | None, text: str = TWO, **given_values: Any) -> Loaded[Settings]:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    env = {"HOME": "/people/me", **given_values.get("env", {})}
    return load(Settings(), file, env, given_values.get("flags", {}), cluster)


def test_what_stands_below_a_clusters_name_counts_for_it_alone_and_maps_are_added_up(tmp_path: Path) -> None:
    east, west, both = (of(tmp_path, name) for name in ("east", "west", None))
    assert east.settings.profiler.prometheus.labels == {"tier": "live", "cluster": "east"}
    assert (east.settings.profiler.window_days, west.settings.profiler.window_days) == (7, 3)
    assert west.settings.profiler.prometheus.labels == both.settings.profiler.prometheus.labels == {"tier": "live"}
    assert {loaded.settings.profiler.prometheus.url for loaded in (east, west, both)} == {"http://thanos"}
    assert both.clusters == ("east", "west")
    assert east.origins["kube.context"].source is SettingSource.CLUSTER
    assert east.origins["kube.context"].where.endswith("line 10")


def test_a_clusters_own_setting_counts_more_than_the_environment_and_less_than_a_flag(tmp_path: Path) -> None:
    env = {"COTENANT_PROFILER__WINDOW_DAYS": "5"}
    assert of(tmp_path, "west", env=env).settings.profiler.window_days == 3
    assert of(tmp_path, "east", env=env).settings.profiler.window_days == 5
    flags = {"profiler.window_days": 9}
    assert of(tmp_path, "west", env=env, flags=flags).settings.profiler.window_days == 9


def test_the_only_declared_cluster_need_not_be_named_and_keeps_the_common_ledger(tmp_path: Path) -> None:
    loaded = of(tmp_path, None, "clusters: {east: {kube: {context: admin@east}}}")
    assert (loaded.cluster, loaded.settings.kube.context, loaded.settings.actions.ledger) == ("east", "admin@east", "")
    assert loaded.reaches_cluster


def test_of_several_each_has_its_own_ledger_and_needs_a_context_of_its_own(tmp_path: Path) -> None:
    east, west, nobody = (of(tmp_path, name) for name in ("east", "west", None))
    assert east.settings.actions.ledger == "/people/me/.local/state/cotenant/ledger-east.db"
    assert west.settings.actions.ledger == "/people/me/.local/state/cotenant/ledger-west.db"
    assert [loaded.reaches_cluster for loaded in (east, west, nobody)] == [True, False, False]
    assert of(tmp_path, "west", flags={"kube.context": "admin@west"}).reaches_cluster


def test_another_context_than_the_clusters_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cluster east kube\.context=admin@east, but an option gives admin@west"):
        of(tmp_path, "east", flags={"kube.context": "admin@west"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("clusters: [east]", "line 1: clusters is not a mapping of names"),
        ("clusters:\n  east: 7", "line 2: clusters.east is not a mapping of sections"),
        ("clusters:\n  east:\n    store: {url: x}", "line 3: clusters.east.store cannot be set for one cluster"),
        ("clusters:\n  ../east: {}", "line 2: the cluster name '../east' is not valid as a folder's name"),
        ("clusters:\n  east:\n    proflier: {window_days: 3}", "line 3: unknown setting 'proflier'"),
        ("clusters:\n  east:\n    profiler: {window_days: 0}", "profiler.window_days is '0', it must be"),
    ],
)
def test_a_mistake_below_a_clusters_name_is_told_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError) as error:
        of(tmp_path, "east", text)
    assert says in error.value.message


def test_a_cluster_without_anything_of_its_own_is_declared_too() -> None:
    others, declared = split_clusters(parse("store: {url: x}\nclusters:\n  east:\n", "settings.yaml"))
    assert (list(others.children), list(declared), declared["east"].children) == (["store"], ["east"], {})


NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True), min_size=1, max_size=5, unique=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [("prod", "the settings declare no cluster 'prod'"), (None, "the settings declare no cluster")],
)
def test_settings_that_declare_no_cluster_are_refused_with_the_place_to_declare_one(
    name: str | None, message: str
) -> None:
    with pytest.raises(UsageError) as error:
        select_cluster(name, [])
    assert (error.value.message, error.value.fix) == (message, "Declare the cluster below `clusters:`.")


@given(NAMES, st.none() | st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True))
def test_the_one_is_named_or_the_only_one_and_else_the_error_lists_all(names: list[str], name: str | None) -> None:
    if name in names or (name is None and len(names) == 1):
        assert select_cluster(name, names) in names
    else:
        with pytest.raises(UsageError) as error:
            select_cluster(name, names)
        assert all(text in f"{error.value.message} {error.value.fix}" for text in names)


@given(NAMES, st.sampled_from(["/state/ledger.db", "s3://bucket/cotenant/ledger", "ledger.db"]))
def test_ledgers_of_clusters_are_apart_and_in_one_folder(names: list[str], place: str) -> None:
    ledgers = {ledger_of(name, place) for name in names}
    assert len(ledgers | {place}) == len(names) + 1
    assert {ledger.rpartition("/")[0] for ledger in ledgers} == {place.rpartition("/")[0]}
