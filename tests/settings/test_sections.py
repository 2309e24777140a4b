"""A root of settings that has sections alone."""

from __future__ import annotations

import pytest

from cotenant.base.settings.root import SettingSections
from cotenant.base.settings.sections.kube import KubeSettings


class OneSection(SettingSections, frozen=True):
    """A root of one section."""

    kube: KubeSettings = KubeSettings()


def test_a_root_without_a_ledger_says_so_where_one_of_several_clusters_is_asked_for() -> None:
    with pytest.raises(LookupError, match="OneSection has no ledger, of 'prod' or of any other cluster"):
        OneSection().with_ledger_of("prod", {})


def test_a_root_gives_and_replaces_the_section_of_a_type() -> None:
    root = OneSection().replace_section(KubeSettings(kubeconfig="there"))
    assert root.section(KubeSettings).kubeconfig == "there" and OneSection.of(root) is root
