"""Which workload somebody means by a name, with or without its namespace and kind."""

from __future__ import annotations

import pytest

from cotenant.base.errors import NoData, UsageError
from cotenant.base.identity import WorkloadRef

CHECKOUT = WorkloadRef("pay", "Deployment", "checkout")
KNOWN = (
    CHECKOUT,
    WorkloadRef("pay", "Deployment", "web"),
    WorkloadRef("shop", "Deployment", "web"),
    WorkloadRef("shop", "Job", "report"),
    WorkloadRef("shop", "CronJob", "report"),
)


@pytest.mark.parametrize("text", ["checkout", "pay/checkout", "pay/Deployment/checkout", "pay/deployment/checkout"])
def test_a_name_that_one_workload_has_is_enough(text: str) -> None:
    assert WorkloadRef.find_named(text, KNOWN) == CHECKOUT


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("web", "2 workloads are called web: pay/Deployment/web, shop/Deployment/web"),
        ("shop/report", "2 workloads are called shop/report: shop/CronJob/report, shop/Job/report"),
    ],
)
def test_a_name_of_several_is_refused_with_all_of_them(text: str, phrase: str) -> None:
    with pytest.raises(UsageError, match=phrase):
        WorkloadRef.find_named(text, KNOWN)


def test_a_name_of_none_is_answered_with_the_nearest() -> None:
    with pytest.raises(NoData) as raised:
        WorkloadRef.find_named("chekout", KNOWN)
    assert raised.value.fix == "Did you mean pay/Deployment/checkout?"


@pytest.mark.parametrize("text", ["", "a//b", "/checkout", "a/b/c/d"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not NAMESPACE/KIND/NAME"):
        WorkloadRef.find_named(text, KNOWN)
