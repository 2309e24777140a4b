"""A root of settings that has sections alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.base.errors import SettingsError
from cotenant.base.settings.base import SettingSections
from cotenant.base.settings.catalogue import catalogue
from cotenant.base.settings.docs import schema
from cotenant.base.settings.document import parse
from cotenant.base.settings.load import join
from cotenant.base.settings.sections import KubeSettings, StoreSettings, store_url
from cotenant.base.store.files import Folder
from cotenant.python_api.cluster_store import place_url
from cotenant.settings import Settings
from tools import write_chart_schema


class OneSection(SettingSections, frozen=True):
    """A root of one section."""

    kube: KubeSettings = KubeSettings()


def test_a_root_without_a_ledger_says_so_where_one_of_several_clusters_is_asked_for() -> None:
    with pytest.raises(LookupError, match="OneSection has no setting of a ledger, so none for cluster 'prod'"):
        OneSection().with_ledger_of("prod", {})


def test_a_root_gives_and_replaces_the_section_of_a_type() -> None:
    root = OneSection().replace_section(KubeSettings(kubeconfig="there"))
    assert root.section(KubeSettings).kubeconfig == "there" and OneSection.of(root) is root


def test_few_enough_settings_remain_and_each_says_when_it_is_changed() -> None:
    settings = catalogue(Settings)
    assert len(settings) <= 261
    assert [path for path, setting in settings.items() if not setting.when] == []


def test_a_constant_of_a_section_can_be_set_by_nothing() -> None:
    """`minimum_days` is a field of the section without a description: a formula's constant."""
    assert Settings().node_peak.minimum_days > 0
    with pytest.raises(SettingsError, match=r"unknown setting 'node_peak\.minimum_days'"):
        join(Settings(), parse("", ""), {}, {"node_peak.minimum_days": "3"})
    for document in (schema(Settings), write_chart_schema.schema()):
        properties = document["$defs"]["NodePeakSettings"]["properties"]
        assert "risk_percent" in properties and "minimum_days" not in properties


@pytest.mark.parametrize("home", ["/people/jane doe", "/people/josé", "/people/a%20b", "/people/#1?"])
def test_a_store_lies_in_the_folder_of_that_name_whatever_its_characters(home: str) -> None:
    expected = f"{home}/.local/share/cotenant/"
    assert Folder(store_url(StoreSettings(), {"HOME": home})).path("") == expected
    for place in (Path(expected), expected):  # as Python's `open_store` and `--store` name it
        assert Folder(place_url(place)).path("") == expected
    assert Folder(expected).path("") == expected
