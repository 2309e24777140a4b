"""A queue report as tables and as the answer to why one pod waits; what a person sees of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cotenant.base.commands.output import Format, render
from cotenant.base.errors import NoData
from cotenant.base.people import Grant, Person, Role
from cotenant.base.table import Kind, human_amount, kind_of
from cotenant.scheduler_ext.queues.model.explanation import explanation, row_of
from cotenant.scheduler_ext.queues.model.queue_service import quota_for, visible_to
from cotenant.scheduler_ext.queues.model.report import WaitingPodRow
from cotenant.scheduler_ext.queues.model.tables import (
    gang_table,
    gang_totals,
    quota_table,
    quota_totals,
    tables_of,
    waiting_table,
    waiting_totals,
)
from tests.support.queues import GANGS, NOW, QUOTAS, REPORT, WAITING

OF_SHOP = (Grant(Role.VIEWER, ("shop",)),)


def test_amounts_are_exact_in_csv_and_in_the_resources_unit_in_tables() -> None:
    as_csv = "".join(render(quota_table(QUOTAS), Format.CSV)).splitlines()
    assert as_csv[4].startswith("research,,company,1,memory,10737418240,42949672960,")
    as_text = "".join(render(quota_table(QUOTAS), Format.TABLE)).splitlines()
    assert as_text[0].split()[:4] == ["QUOTA", "RESOURCE", "MIN", "MAX"]
    assert as_text[2].split()[:5] == ["research", "cpu", "20", "50", "34"]
    assert as_text[4].split()[:4] == ["research", "memory", "10.0Gi", "40.0Gi"]
    assert as_text[5].split()[:4] == ["lab", "nvidia.com/gpu", "10", "8"]
    assert "max 8 is below min 10" in as_text[5]


def test_totals_count_what_a_quota_and_those_below_it_share_once() -> None:
    # CPU is company's 46 of 60, of which research and shop are parts; memory has a row of research alone. 3 pods wait
    # for research, whose two rows both say so, and 1 for company itself.
    assert quota_totals(QUOTAS) == (
        "4 quotas; cpu 46 cores used of 60 cores; memory 8 GiB used of 20 GiB; nvidia.com/gpu 8 used of 8; 4 pods wait"
    )
    below = [row for row in QUOTAS if row.quota in ("research", "shop") and row.resource == "cpu"]
    # 36 + 10 of 34 + 26: without the row of company they are the highest.
    assert quota_totals(below) == "2 quotas; cpu 46 cores used of 60 cores; 3 pods wait"


def test_totals_of_waiting_pods_and_gangs_name_their_groups() -> None:
    assert waiting_totals(waiting_table(WAITING)) == "2 pods wait in 2 quotas and 1 gang"
    # 16 + 4 pods exist, and none has a node.
    assert gang_totals(gang_table(GANGS)) == "2 gangs: 1 WaitsForQuota, 1 NoRoom; 0 of 20 pods placed"


def test_every_row_of_the_report_is_a_row_of_its_table() -> None:
    tables = tables_of(REPORT)
    assert {name: len(table) for name, table in tables.items()} == {"quotas": 5, "waiting_pods": 2, "gangs": 2}
    company, *_ = tables["quotas"].rows()
    assert (company["max"], company["waiting"], company["over_since"]) == (None, 1, None)
    assert [row["state"] for row in tables["gangs"].rows()] == ["WaitsForQuota", "NoRoom"]


def test_a_pod_that_lacks_no_resource_has_no_amounts() -> None:
    _, row = waiting_table(WAITING).rows()
    assert (row["requested"], row["missing"], row["likely"]) == (None, None, None)


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        ("cpu", Kind.MILLICORES),
        ("kubernetes.io/batch-cpu", Kind.MILLICORES),
        ("memory", Kind.BYTES),
        ("kubernetes.io/batch-memory", Kind.BYTES),
        ("ephemeral-storage", Kind.BYTES),
        ("hugepages-2Mi", Kind.BYTES),
        ("nvidia.com/gpu", Kind.INTEGER),
        ("pods", Kind.INTEGER),
    ],
)
def test_the_unit_follows_from_the_resource(resource: str, kind: Kind) -> None:
    assert kind_of(resource) is kind


def test_an_amount_is_short_for_the_eye() -> None:
    assert [human_amount("cpu", 2500), human_amount("memory", 2**31), human_amount("x/gpu", 3)] == [
        "2500m",
        "2.0 GiB",
        "3",
    ]


def test_why_a_pod_waits_names_group_amount_holders_queue_and_gang() -> None:
    row = row_of(REPORT, "research", "train-0")
    assert row is not None
    answers = {r["what"]: r["answer"] for r in explanation(REPORT, row).rows()}
    assert answers["why"] == row.reason
    assert (answers["blocked by"], answers["requested"], answers["missing"]) == ("research", "4 cpu", "6 cpu")
    assert answers["its amounts"] == "max 50, min 20, runtime 34, used 36, request 48"
    assert answers["used beyond guarantees"] == "research 16"
    assert answers["position in the queue"] == "1"
    assert answers["gang"].startswith("research/train WaitsForQuota: 16 of 16 pods exist, 0 are placed, 16 must")
    assert answers["likely free"].endswith("UTC, by the run times of 12 ended pods of quota research")


def test_nothing_is_said_that_is_not_known() -> None:
    row = replace(WAITING[1], position=0)
    whats = [r["what"] for r in explanation(REPORT, row).rows()]
    assert whats == ["pod", "waits since", "why", "reason", "quota"]
    assert row_of(REPORT, "research", "nobody") is None


def test_a_person_sees_pods_gangs_and_quotas_of_their_namespaces_alone() -> None:
    shop = Person("ann", grants=OF_SHOP)
    part = visible_to(REPORT, shop)
    # The quota company is a sum over research and shop: what it uses less what shop uses is what research uses.
    assert [(row.quota, row.parent) for row in part.quotas] == [("shop", "(hidden)")]
    assert {row.namespace for row in part.waiting} | {row.namespace for row in part.gangs} == {"shop"}
    assert part.waiting[0].reason == "behind (hidden) in the queue"
    assert part.problems == () and part.narrowed
    assert visible_to(REPORT, Person("ada")) is REPORT


def test_a_pod_that_a_quota_of_others_holds_up_keeps_its_row_without_amounts() -> None:
    text = "quota company uses 7919m of cpu and may use 7907m"
    blocked_row = WaitingPodRow(
        "shop",
        "web",
        "shop",
        "",
        NOW,
        1,
        "parent-quota-exceeded",
        text,
        "company",
        "cpu",
        3,
        7901,
        (("research", 7883),),
    )
    (row,) = visible_to(replace(REPORT, waiting=(blocked_row,)), Person("ann", grants=OF_SHOP)).waiting
    assert (row.pod, row.quota, row.position, row.code) == ("web", "shop", 1, "parent-quota-exceeded")
    assert (row.blocking_quota, row.resource, row.missing, row.holders) == ("(hidden)", "", 0, ())
    assert row.reason == "A quota above the pod's own would use more than its runtime."


def test_problems_are_those_of_ones_own_objects() -> None:
    problems = (
        ("elasticquotas/shop", "max 8 is below min 10"),
        ("elasticquotas/research", "max 7919 is below min 7907"),
        ("elasticquotas/shop/index", "research/index has the same name and takes precedence"),
        ("podgroups/research/train", "minMember 7919"),
        ("podgroups/shop/index", "minMember is missing"),
        ("nodes", "you may not list nodes"),
    )
    part = visible_to(replace(REPORT, problems=problems), Person("ann", grants=OF_SHOP))
    assert [object_name for object_name, _ in part.problems] == ["elasticquotas/shop", "podgroups/shop/index", "nodes"]


@pytest.mark.parametrize("quota", ["research", "company", "lab", "nobody", "", "x" * 300])
def test_the_day_of_a_quota_of_others_is_as_if_there_were_no_such_quota(quota: str) -> None:
    with pytest.raises(NoData, match=r"there is no quota .* that you may read"):
        quota_for(REPORT, Person("ann", grants=OF_SHOP), quota)
    quota_for(REPORT, Person("ann", grants=OF_SHOP), "shop")
    quota_for(REPORT, Person("ada"), quota)
