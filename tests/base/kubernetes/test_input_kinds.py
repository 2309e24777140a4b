"""How the figures behind a value are written."""

from __future__ import annotations

import pytest

from cotenant.base.table import NODE_GROUP_INPUT, Kind, kind_of_input


@pytest.mark.parametrize(
    ("name", "resource", "kind"),
    [
        ("observed_max", "cpu", Kind.MILLICORES),
        ("observed_max", "memory", Kind.BYTES),
        ("hpa_trigger_millicores", "memory", Kind.MILLICORES),
        ("leak_bytes_per_day", "memory", Kind.BYTES),
        ("throttled_share", "cpu", Kind.RATIO),
        ("pods_seen", "memory", Kind.NUMBER),
    ],
)
def test_a_figure_is_an_amount_of_the_resource_unless_its_name_ends_with_another_unit(
    name: str, resource: str, kind: Kind
) -> None:
    assert kind_of_input(name, resource) is kind


@pytest.mark.parametrize("group", ["small", "batch-pods", "cpu-share", "short-runs"])
def test_the_figure_of_a_node_group_is_an_amount_whatever_the_groups_name(group: str) -> None:
    assert kind_of_input(NODE_GROUP_INPUT + group, "cpu") is Kind.MILLICORES
