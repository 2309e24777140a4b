"""The figures behind a value are named in words where people read them."""

from __future__ import annotations

import pytest

from cotenant.base.table import NODE_GROUP_INPUT
from cotenant.recommender.model.input_words import input_words
from cotenant.recommender.model.views import RECOMMENDATIONS
from cotenant.recommender.stored_recommendations import Explanations
from tests.support.dashboard import results


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all figures behind the demo's recommendations."""
    store = results(tmp_path_factory.mktemp("store")).store
    explanations, rows = Explanations(store), store.read_table(RECOMMENDATIONS).rows()
    workloads = {f"{row['namespace']}/{row['kind']}/{row['workload']}" for row in rows}
    return {
        name
        for workload in workloads
        for recommendation in explanations.of_workload(workload)
        for value in recommendation.values
        for name in value.inputs
    }


def test_no_figure_is_called_by_the_name_of_its_field(names: set[str]) -> None:
    assert len(names) > 10
    own = {name for name in names if not name.startswith(NODE_GROUP_INPUT)}
    raw = {name for name in own if input_words(name) in (name, name.replace("_", " "))}
    # "pods seen" says all that there is to say.
    assert raw <= {"pods_seen", "neediest_node_group"}
    assert len({input_words(name) for name in names}) == len(names), "no two figures are called alike"


def test_a_node_group_keeps_the_name_that_its_owner_gave_it() -> None:
    assert input_words(f"{NODE_GROUP_INPUT}big_ones") == f"{NODE_GROUP_INPUT}big_ones"


def test_a_plug_in_s_figure_is_read_as_words() -> None:
    assert input_words("my_own_figure") == "my own figure"
