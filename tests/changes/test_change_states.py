"""Changes as rows: what moved is read from the writes, field by field."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.intent import Address
from cotenant.changes.model.change import Change, ChangeState, ChangeStatus, Write, verified_by_month
from cotenant.changes.model.service import LedgerEntry
from cotenant.changes.model.tables import (
    CHANGES,
    ENTRIES,
    changes_table,
    entries_table,
    moves,
    moves_summary,
    overridden_rules,
)

BASE = "/spec/template/spec/containers/0"
WEB = Address("apps/v1", "deployments", "web", "pay")


def write(before: Any, after: Any) -> Write:
    name_test = {"op": "test", "path": f"{BASE}/name", "value": "app"}
    return Write(WEB, "u", (name_test,), {f"{BASE}/resources": before}, {f"{BASE}/resources": after})


def change(*writes: Write, **more: Any) -> Change:
    return Change("c1", "b1", "pay", "Deployment", "web", "ann", (), "template", "d@1", writes, **more)


def test_each_resource_is_named_with_its_container_before_and_after() -> None:
    first = change(
        write(
            {"requests": {"cpu": "1", "memory": "1Gi"}},
            {"requests": {"cpu": "1", "memory": "900Mi"}, "limits": {"memory": "2Gi"}},
        )
    )
    assert moves_summary(first) == "app memory request 1Gi → 900Mi; app memory limit not set → 2Gi"
    assert [m.target for m in moves(first)] == [str(WEB)] * 2


def test_what_is_taken_away_and_what_is_no_resource_are_told_too() -> None:
    removal = change(write({"limits": {"cpu": "2"}}, {}))
    assert moves_summary(removal) == "app cpu limit 2 → not set"
    scaler = Address("autoscaling/v2", "horizontalpodautoscalers", "web", "pay")
    pointer = "/spec/metrics/0/resource/target/averageUtilization"
    assert moves_summary(change(Write(scaler, "u", (), {pointer: 60}, {pointer: 75}))) == "averageUtilization 60 → 75"


def test_many_pods_that_move_alike_are_one_line() -> None:
    pair = ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "500m"}})
    assert moves_summary(change(write(*pair), write(*pair))) == "app cpu request 1 → 500m"


def test_rows_are_the_newest_first_and_say_what_was_passed_over() -> None:
    rules = {"history": "pass", "cpu-step": "overridden: cut by 40 %", "autoscaler": "warn: follows"}
    old = ChangeStatus(change(guardrails=rules, cluster="prod-1"), ChangeState.VERIFIED, 10.0, 50.0, "bob", "fine")
    new = ChangeStatus(change(), ChangeState.UNKNOWN, 20.0, 20.0, "ann")
    table = changes_table([old, new])
    first, second = table.rows()
    assert (first["state"], first["verdict"], second["verdict"]) == ("unknown", "", "verified")
    assert (second["overridden"], second["actor"], second["last_actor"]) == ("cpu-step", "ann", "bob")
    assert second["guardrails"] == "cpu-step overridden: cut by 40 %; autoscaler warn: follows"
    assert second["cluster"] == "prod-1" and overridden_rules(old.change) == ["cpu-step"] and table.schema is CHANGES


def test_the_ledgers_rows_keep_their_order_and_every_field() -> None:
    rows = [LedgerEntry(n, float(n), "ann", "applied", f"c{n}", "{}", f"h{n}") for n in (1, 2)]
    table = entries_table(rows)
    assert list(table.rows())[1] == {
        "seq": 2, "time": 2.0, "actor": "ann", "event": "applied", "subject": "c2", "body": "{}", "hash": "h2",
    }  # fmt: skip
    assert table.schema is ENTRIES


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "2", "500m"]), max_size=2)
RESOURCES = st.none() | st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})


@settings(max_examples=40, deadline=None)
@given(before=RESOURCES, after=RESOURCES)
def test_exactly_what_differs_is_told(before: Any, after: Any) -> None:
    def amount(resources: Any, part: str, name: str) -> str:
        return ((resources or {}).get(part) or {}).get(name, "not set")

    expected = {
        f"app {name} {part[:-1]} {amount(before, part, name)} → {amount(after, part, name)}"
        for part in ("requests", "limits")
        for name in ("cpu", "memory")
        if amount(before, part, name) != amount(after, part, name)
    }
    all_moves = moves(change(write(before, after)))
    texts = {f"{m.pointer} {m.now} → {m.new}" for m in all_moves if m.pointer != "resources"}
    assert texts == expected or not (expected or (before or {}) or (after or {}))


def test_what_was_verified_adds_up_from_month_to_month() -> None:
    # 1 793 491 200 is 2026-11-01 00:00 UTC: a second before it is October.
    november = 1_793_491_200.0
    change_statuses = [
        replace(ChangeStatus(change(saved_millicores=saved), state, 0.0, 0.0, "ann"), verified_seconds=at)
        for saved, state, at in (
            (1000, ChangeState.VERIFIED, november - 1),
            (500, ChangeState.VERIFIED, november),
            (200, ChangeState.VERIFIED, november + 1),
            (9000, ChangeState.ROLLED_BACK, november + 2),
        )
    ]
    assert verified_by_month(change_statuses) == {"2026-10": 1000, "2026-11": 1700}
    assert verified_by_month([]) == {}
