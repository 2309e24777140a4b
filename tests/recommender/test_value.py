"""What one proposed value does to the template."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.changes.decide.patches import resources
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value

AMOUNTS = st.none() | st.integers(1, 10**6)


@given(st.sampled_from(list(Action)), st.sampled_from(list(Field)), AMOUNTS, AMOUNTS)
def test_a_value_changes_the_template_where_its_patch_does(
    action: Action, field: Field, now: int | None, amount: int | None
) -> None:
    value = Value(Resource.CPU, field, now, amount, action, Reason.OK)
    # set to what it is, unset where nothing is set, withheld, and set without an amount leave it
    then = {Action.UNSET: None, Action.WITHHELD: now, Action.SET: now if amount is None else amount}[action]
    assert (value.then, value.changes_template) == (then, then != now)
    recommendation = Recommendation(ContainerRef(WorkloadRef("a", "Deployment", "b"), "c"), "s", 1, (value,), 0, "", 0)
    assert bool(resources(recommendation)) is value.changes_template


@pytest.mark.parametrize("action", [Action.WITHHELD, Action.UNSET])
def test_a_value_that_is_withheld_or_removed_has_no_amount_to_change_to(action: Action) -> None:
    assert Value(Resource.CPU, Field.LIMIT, None, None, action, Reason.OK).changes_template is False
