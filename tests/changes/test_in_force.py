"""Whether the cluster still has what a change wrote, and who wrote something else."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import WorkloadRef
from cotenant.changes.decide.field_changes import annotated, planned
from cotenant.changes.decide.in_force import describe_loss, latest_writer, rewritten_fields
from cotenant.changes.model.change import Change, ChangeState, ChangeStatus
from tests.changes.world import recommended

WEB = WorkloadRef("shop", "Deployment", "web")
PATH = "/apis/apps/v1/namespaces/shop/deployments/web"
OWNED: dict[str, Any] = {
    "f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"app"}': {"f:resources": {}}}}}}
}
AT = 1_800_000_000.0
"""2027-01-15 08:00:00 UTC: when the change was sent."""


def deployment(cpu: str = "1") -> dict[str, Any]:
    containers = [
        {"name": "proxy", "resources": {"requests": {"cpu": "50m"}}},
        {"name": "app", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"memory": "2Gi"}}},
    ]
    meta = {"name": "web", "namespace": "shop", "uid": "u1", "labels": {}, "annotations": {}}
    return {"metadata": meta, "spec": {"template": {"spec": {"containers": containers}}}}


def change(id_: str, live: dict[str, Any], amount: int, by_annotation: bool = False) -> ChangeStatus:
    write = (annotated if by_annotation else planned)(live, [recommended(WEB, amount)], id_)
    assert write is not None
    new_change = Change(id_, id_, "shop", "Deployment", "web", "ann", (), "template", "", (write,))
    return ChangeStatus(new_change, ChangeState.APPLIED, AT, AT, "ann", begun_seconds=AT)


def carried_out(live: dict[str, Any], status: ChangeStatus) -> dict[str, Any]:
    """The object after the change's one write, which this test does by hand."""
    after = copy.deepcopy(live)
    for pointer, value in status.change.writes[0].after.items():
        *steps, last = [step.replace("~1", "/") for step in pointer.split("/")[1:]]
        inner: Any = after
        for step in steps:
            inner = inner[int(step)] if isinstance(inner, list) else inner[step]
        if value is None:
            inner.pop(last, None)
        else:
            inner[last] = copy.deepcopy(value)
    return after


def loss(status: ChangeStatus, live: dict[str, Any] | None, *later: ChangeStatus) -> str:
    rewritten = rewritten_fields([status, *later]).get(status.change.id, frozenset())
    return describe_loss(status.change, {PATH: live}, status.begun_seconds, rewritten)


def app(live: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = next(c for c in live["spec"]["template"]["spec"]["containers"] if c["name"] == "app")
    return container


def written_by(live: dict[str, Any], *entries: tuple[str, str]) -> dict[str, Any]:
    fields = [{"manager": manager, "time": time, "fieldsV1": OWNED} for manager, time in entries]
    return {**live, "metadata": {**live["metadata"], "managedFields": fields}}


@pytest.mark.parametrize("by_annotation", [False, True])
def test_a_change_is_in_force_while_its_values_stand_however_they_are_written_and_wherever(by_annotation: bool) -> None:
    status = change("c1", deployment(), 800, by_annotation)
    live = carried_out(deployment(), status)
    assert loss(status, live) == ""
    if not by_annotation:
        app(live)["resources"]["requests"]["cpu"] = "0.8"  # another way to write 800m
        app(live)["resources"]["limits"]["memory"] = "2048Mi"
    live["spec"]["template"]["spec"]["containers"].insert(0, {"name": "mesh", "resources": {}})
    live["spec"]["template"]["spec"]["containers"][1]["resources"] = {}  # of a container that it never changed
    assert loss(status, live) == ""


def test_what_was_set_back_names_the_writer_the_field_and_both_values() -> None:
    status = change("c1", deployment(), 800)
    live = carried_out(deployment(), status)
    app(live)["resources"]["requests"]["cpu"] = "1"
    entries = [("kubectl-client-side-apply", "2027-01-10T08:00:00Z"), ("kubectl-rollout", "2027-01-15T09:00:00Z")]
    sentence = "changed deployments/shop/web: app requests.cpu is now 1, but 800m was written"
    assert loss(status, written_by(live, *entries)) == f"kubectl-rollout {sentence}"
    # Without a writer since then the server has forgotten: an older state of it was restored.
    restored = loss(status, written_by(live, *entries[:1]))
    assert restored.startswith("deployments/shop/web: app requests.cpu is now 1, but 800m was written; no later writer")


def test_what_is_gone_is_said_to_be_gone() -> None:
    status = change("c1", deployment(), 800)
    assert loss(status, None) == "deployments/shop/web was deleted"
    other = carried_out(deployment(), status)
    other["metadata"]["uid"] = "u2"
    assert loss(status, other) == "deployments/shop/web was deleted and created again under the same name"
    without = carried_out(deployment(), status)
    without["spec"]["template"]["spec"]["containers"].pop()
    assert "app requests.cpu is now not set, but 800m was written" in loss(status, without)


def test_an_annotation_counts_while_new_pods_get_its_values() -> None:
    status = change("c1", deployment(), 800, by_annotation=True)
    live = carried_out(deployment(), status)
    overtaken = copy.deepcopy(live)
    app(overtaken)["resources"]["requests"]["cpu"] = "2"
    assert "app requests.cpu is now 2, but 800m was written" in loss(status, overtaken)  # it counts no more beside that
    annotations = live["metadata"]["annotations"]
    annotations["cotenant.dev/resources"] = annotations["cotenant.dev/resources"].replace('"800m"', '"900m"')
    assert "app requests.cpu is now 900m, but 800m was written" in loss(status, live)
    del annotations["cotenant.dev/resources"]
    assert "app requests.cpu is now 1, but 800m was written" in loss(status, live)


@pytest.mark.parametrize("by_annotation", [False, True])
def test_what_others_set_beside_it_is_theirs(by_annotation: bool) -> None:
    status = change("c1", deployment(), 800, by_annotation)
    live = carried_out(deployment(), status)
    if not by_annotation:  # beside an annotation the template has to stay as it was
        app(live)["resources"]["limits"]["memory"] = "3Gi"
        app(live)["resources"]["requests"]["ephemeral-storage"] = "1Gi"
    app(live)["image"] = "example.invalid/a:2"
    live["metadata"]["annotations"]["team"] = "shop"
    assert loss(status, live) == ""


def test_a_later_change_by_the_other_method_writes_the_same_amounts_again() -> None:
    first = change("c1", deployment(), 800)
    once = carried_out(deployment(), first)
    second = change("c2", once, 600, by_annotation=True)
    twice = carried_out(once, second)
    assert loss(first, twice, second) == loss(second, twice) == ""
    # Without the annotation new pods have 800m again: what the first change wrote.
    assert "app requests.cpu is now 800m, but 600m was written" in loss(second, once)
    assert loss(first, once, replace(second, state=ChangeState.GONE)) == ""


def test_a_change_of_memory_does_not_answer_for_the_cpu_of_an_earlier_one() -> None:
    first = change("c1", deployment(), 800)
    once = carried_out(deployment(), first)
    write = first.change.writes[0]
    pointer = next(iter(write.after))
    memory = copy.deepcopy(write.after[pointer])
    memory["requests"]["memory"] = "900Mi"
    later = replace(write, before={pointer: write.after[pointer]}, after={pointer: memory})
    second = replace(first, change=replace(first.change, id="c2", writes=(later,)))
    twice = carried_out(once, second)
    assert loss(first, twice, second) == loss(second, twice) == ""
    app(twice)["resources"]["requests"]["cpu"] = "1"
    assert "app requests.cpu is now 1, but 800m was written" in loss(first, twice, second)
    assert loss(second, twice) == ""


def test_what_a_later_change_of_ours_wrote_again_is_no_loss_until_that_one_is_gone() -> None:
    first = change("c1", deployment(), 800)
    once = carried_out(deployment(), first)
    second = change("c2", once, 600)
    twice = carried_out(once, second)
    assert loss(first, twice, second) == "" and loss(second, twice) == ""
    # Somebody puts the first values back: the second is lost, and the first is not.
    assert "600m was written" in loss(second, once)
    overwritten = replace(second, state=ChangeState.GONE)
    assert loss(first, once, overwritten) == ""
    assert "800m was written" in loss(first, deployment(), overwritten)


def test_the_latest_writer_is_the_one_after_our_own_write_by_the_servers_clock() -> None:
    hour = [f"2027-01-15T{hour:02}:00:00Z" for hour in range(24)]
    edited = written_by(deployment(), ("kubectl-edit", hour[7]), ("cotenant-actions", hour[8]), ("helm", hour[9]))
    assert latest_writer(edited, "Deployment") == "helm"
    # Our own write is the later one, whatever our clock said.
    ours = written_by(deployment(), ("kubectl-edit", hour[7]), ("cotenant-actions", hour[8]))
    assert latest_writer(ours, "Deployment", 0.0) == ""
    cron = {"metadata": {"managedFields": [{"manager": "helm", "time": hour[1], "fieldsV1": OWNED}]}}
    assert latest_writer(cron, "CronJob") == ""  # it owns resources elsewhere than a CronJob has them


@given(st.lists(st.sampled_from((500, 600, 700, 800, 900)), min_size=1, max_size=6), st.integers(0, 6))
def test_of_any_row_of_our_changes_none_is_lost_and_a_stranger_ends_all_that_differ(
    amounts: list[int], place: int
) -> None:
    live, statuses = deployment(), []
    for number, amount in enumerate(amounts):
        if (write := planned(live, [recommended(WEB, amount)], str(number))) is not None and write.after:
            statuses.append(change(str(number), live, amount))
            live = carried_out(live, statuses[-1])
    rewritten = rewritten_fields(statuses)
    for status in statuses:
        assert describe_loss(status.change, {PATH: live}, AT, rewritten.get(status.change.id, ())) == ""
    value = ("500m", "600m", "700m", "800m", "900m", "1", "7")[place]
    changed = app(live)["resources"]["requests"]["cpu"] != value
    app(live)["resources"]["requests"]["cpu"] = value
    last = statuses[-1]
    assert bool(describe_loss(last.change, {PATH: live}, AT, rewritten.get(last.change.id, ()))) is changed
