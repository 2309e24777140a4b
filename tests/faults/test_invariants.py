"""The invariant checker finds each violation that is planted into a clean run, and nothing in the clean one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.clean_run import (
    BATCH_CPU,
    BATCH_MEMORY,
    FIRST,
    KUBELET,
    LIMITED,
    MINUTES,
    PERSON,
    Written,
    allocation,
    bind,
    clean_run,
    cpus,
    delete,
    gpu,
    hold,
    lend,
    limited,
    node,
    open_gate,
    pod,
    quota,
    report,
    reservation,
    run_pod,
)
from tests.support.invariants import INVARIANTS, recording, violations
from tests.support.invariants.objects import Objects
from tests.support.invariants.reading import api_writes
from tests.support.invariants.records import MANAGER, NODE_AGENT

Plant = Callable[[Written], None]
GROUP = ("kubepods/besteffort", "cpu.quota")
SENSITIVE = {"koordinator.sh/qosClass": "LS"}


def one_core_too_many(run: Written) -> None:
    run_pod(run, 200, pod("late", {"cpu": "1"}))  # 8 + 2 + 2 + 4 are all 16 cores


def owner_before_its_placeholder_goes(run: Written) -> None:
    run.without(lambda e: e["verb"] == "delete" and e["objectRef"]["name"] == "placeholder")


def two_batch_pods_on_one_amount(run: Written) -> None:
    run_pod(run, 50, pod("sort-2", {BATCH_CPU: "700"}, priority=5000))  # 5,000 + 700 of 5,600


def resize_beyond_the_node(run: Written) -> None:
    larger = pod("web", {"cpu": "9"}, SENSITIVE, nodeName="n1")
    run.add(300, PERSON, "patch", "pods/resize", "web", namespace="shop", stored=larger)


def owners_with_more_than_is_held(run: Written) -> None:
    reservation(run, 300, allocated="5")


def owner_of_two_reservations(run: Written) -> None:
    reservation(run, 300, "other", owner="uid-owner")


def write_of_the_manager_that_was_replaced(run: Written) -> None:
    run.add(620, MANAGER, "patch", "configmaps", "cotenant-status", credential=FIRST)


def write_after_the_lease_ran_out(run: Written) -> None:
    # the last renewal was asked for in second 577 and answered 10 ms later, for 15 s: until 592.01
    run.add(592.2, MANAGER, "patch", "configmaps", "cotenant-status", credential=FIRST)


def write_of_a_manager_that_never_led(run: Written) -> None:
    run.add(300, MANAGER, "patch", "configmaps", "cotenant-status", credential="JTI=third")


def write_between_a_theft_and_the_next_renewal(run: Written) -> None:
    hold(run, 300.5, "JTI=thief", "thief")
    run.add(301, MANAGER, "patch", "configmaps", "cotenant-status", credential=FIRST)


def node_agent_evicts_a_labelled_pod(run: Written) -> None:
    run.add(300, NODE_AGENT, "create", "pods/eviction", "web", namespace="shop")


def node_agent_evicts_a_pod_without_a_label(run: Written) -> None:
    run_pod(run, 250, pod("plain", {"memory": "1Gi"}))
    run.add(300, NODE_AGENT, "create", "pods/eviction", "plain", namespace="shop")


def manager_deletes_a_pod_that_nobody_wants_moved(run: Written) -> None:
    run.managed(300, "delete", "pods", "pinned-a", namespace="shop")


def quota_of_batch_stays_after_the_end(run: Written) -> None:
    run.notes.append(limited())
    run.cgroups[GROUP] = LIMITED


def notes_forget_what_still_holds(run: Written) -> None:
    run.actions = run.actions[:1]
    run.cgroups[GROUP] = LIMITED


def change_without_an_outcome(run: Written) -> None:
    run.ledger.append((900, "accepted", "c3"))


def rollback_without_an_outcome(run: Written) -> None:
    run.ledger.append((900, "rollback-accepted", "c1"))


def outcome_a_minute_late(run: Written) -> None:
    run.ledger += [(900, "accepted", "c3"), (960, "applied", "c3")]


def outcome_of_nothing_accepted(run: Written) -> None:
    run.ledger.append((900, "applied", "c9"))


def tenth_of_a_core_above_the_formula(run: Written) -> None:
    lend(run, 300, cpu="5700", memory="0")


def memory_above_the_formula(run: Written) -> None:
    lend(run, 300, cpu="0", memory="38300000000")


def as_much_as_before_while_the_system_uses_more(run: Written) -> None:
    run.add(310, NODE_AGENT, "patch", "nodemetrics/status", "n1", stored=report(310, system_cpu="3"))
    lend(run, 350, cpu="5500", memory="0")  # 30 s after it came, nobody goes by the report of second 303 any more


def batch_by_a_report_that_is_too_old(run: Written) -> None:
    run.without(
        lambda e: e["objectRef"]["resource"] == "nodemetrics" and e["requestReceivedTimestamp"] > "2027-01-15T08:01"
    )
    lend(run, 1000, cpu="5500", memory="0")  # reports ended in the first minute; 15 minutes later nothing may be lent


def batch_without_any_report(run: Written) -> None:
    more = {BATCH_CPU: "100"}
    run.managed(300, "patch", "nodes/status", "n2", stored={**node(more), "metadata": {"name": "n2"}})


def gate_that_nobody_lifts(run: Written) -> None:
    body = pod("forgotten", {}, schedulingGates=[{"name": "cotenant.dev/reservation"}])
    run.add(300, PERSON, "create", "pods", "forgotten", namespace="shop", stored=body)


def gate_lifted_after_three_minutes(run: Written) -> None:
    run.without(lambda e: e["objectRef"].get("name") == "owner" and e["verb"] in ("patch", "create") and (
        e["objectRef"].get("subresource") == "binding" or e["verb"] == "patch"))  # fmt: skip
    open_gate(run, 200)
    bind(run, 201, "owner")


def cpu_given_twice(run: Written) -> None:
    run_pod(run, 300, pod("pinned-c", {}, None, cpus("3-4")))


def device_given_beyond_its_whole(run: Written) -> None:
    run_pod(run, 300, pod("tenth", {}, None, gpu("10")))


def cpu_given_twice_in_the_allocation(run: Written) -> None:
    allocation(run, 300, "0-2", "2-3")


def quota_over_until_the_end(run: Written) -> None:
    quota(run, 1000, "4")


def quota_over_for_200_seconds(run: Written) -> None:
    quota(run, 1000, "2500m")
    quota(run, 1200, "2")


PLANTED: dict[Plant, str] = {
    one_core_too_many: "capacity-promised-once",
    owner_before_its_placeholder_goes: "capacity-promised-once",
    two_batch_pods_on_one_amount: "capacity-promised-once",
    resize_beyond_the_node: "capacity-promised-once",
    owners_with_more_than_is_held: "capacity-promised-once",
    owner_of_two_reservations: "capacity-promised-once",
    write_of_the_manager_that_was_replaced: "written-under-the-lease",
    write_after_the_lease_ran_out: "written-under-the-lease",
    write_of_a_manager_that_never_led: "written-under-the-lease",
    write_between_a_theft_and_the_next_renewal: "written-under-the-lease",
    node_agent_evicts_a_labelled_pod: "no-latency-sensitive-pod-evicted",
    node_agent_evicts_a_pod_without_a_label: "no-latency-sensitive-pod-evicted",
    manager_deletes_a_pod_that_nobody_wants_moved: "no-latency-sensitive-pod-evicted",
    quota_of_batch_stays_after_the_end: "no-cgroup-left-tightened",
    notes_forget_what_still_holds: "no-cgroup-left-tightened",
    change_without_an_outcome: "every-change-has-an-outcome",
    rollback_without_an_outcome: "every-change-has-an-outcome",
    outcome_a_minute_late: "every-change-has-an-outcome",
    outcome_of_nothing_accepted: "every-change-has-an-outcome",
    tenth_of_a_core_above_the_formula: "batch-below-its-ceiling",
    memory_above_the_formula: "batch-below-its-ceiling",
    as_much_as_before_while_the_system_uses_more: "batch-below-its-ceiling",
    batch_by_a_report_that_is_too_old: "batch-below-its-ceiling",
    batch_without_any_report: "batch-below-its-ceiling",
    gate_that_nobody_lifts: "no-gate-beyond-its-limit",
    gate_lifted_after_three_minutes: "no-gate-beyond-its-limit",
    cpu_given_twice: "hardware-given-once",
    device_given_beyond_its_whole: "hardware-given-once",
    cpu_given_twice_in_the_allocation: "hardware-given-once",
    quota_over_until_the_end: "quotas-within-runtime",
    quota_over_for_200_seconds: "quotas-within-runtime",
}


def test_a_clean_run_breaks_nothing(tmp_path: Path) -> None:
    written = clean_run().stored(tmp_path)
    assert violations(written) == ()
    # what is clean for want of anything to see would prove nothing
    assert (
        len(written.writes) > 300 and len(written.ledger) == 7 and written.end_seconds > written.writes[0].asked_seconds
    )


def test_parts_of_the_log_that_the_api_server_set_aside_are_read_too(tmp_path: Path) -> None:
    clean = clean_run().stored(tmp_path)
    log = tmp_path / "audit.log"
    lines = log.read_text().splitlines(keepends=True)
    third = len(lines) // 3
    for hour, part in enumerate((lines[:third], lines[third : 2 * third])):
        (tmp_path / f"audit-2026-11-28T0{hour}-26-56.007.log").write_text("".join(part))
    log.write_text("".join(lines[2 * third :]))
    assert recording(log).writes == clean.writes


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_violation_is_found_and_no_other(plant: Plant, tmp_path: Path) -> None:
    run = clean_run()
    plant(run)
    assert {violation.invariant for violation in violations(run.stored(tmp_path))} == {PLANTED[plant]}


def answered_by_metadata_alone(run: Written) -> None:
    """Patches of the manager, but those of pods, are an apply, as it sends them for many objects at a time."""
    for event in run.events:
        stored, applies = event["responseObject"], event["verb"] == "patch" and event["objectRef"]["resource"] != "pods"
        if event["user"]["username"] == MANAGER and applies and "metadata" in stored:
            event["requestObject"] = {key: value for key, value in stored.items() if key != "metadata"}
            event["responseObject"] = {"kind": "PartialObjectMetadata", "metadata": stored["metadata"]}


def test_a_clean_run_breaks_nothing_where_an_answer_is_the_metadata_alone(tmp_path: Path) -> None:
    run = clean_run()
    answered_by_metadata_alone(run)
    assert violations(run.stored(tmp_path)) == ()


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_violation_is_found_where_an_answer_is_the_metadata_alone(plant: Plant, tmp_path: Path) -> None:
    run = clean_run()
    plant(run)
    answered_by_metadata_alone(run)
    assert {v.invariant for v in violations(run.stored(tmp_path))} == {PLANTED[plant]}


def test_an_object_after_a_patch_is_what_the_api_server_stores() -> None:
    objects = Objects()
    meta = {"name": "n1", "resourceVersion": "1"}
    node_body = {"kind": "Node", "metadata": meta, "status": {"capacity": {"cpu": "4", "old": "1"}}}
    target = {"resource": "nodes", "name": "n1"}

    def after(verb: str, sent: Any, response: dict[str, Any], query: str = "fieldManager=m") -> dict[str, Any]:
        event = {"verb": verb, "objectRef": target, "requestObject": sent, "responseObject": response}
        return objects.after({**event, "requestURI": f"/api/v1/nodes/n1?{query}"})

    reduced = {"kind": "PartialObjectMetadata", "metadata": {"name": "n1", "resourceVersion": "2"}}
    assert after("create", node_body, node_body) == node_body
    # m applies a and b, then b and c: a goes, what others wrote stays
    after("patch", {"status": {"capacity": {"a": "1", "b": "1"}}}, reduced)
    stored = after("patch", {"status": {"capacity": {"b": "2", "c": "3"}}}, reduced)
    assert stored["status"]["capacity"] == {"cpu": "4", "old": "1", "b": "2", "c": "3"}
    assert (stored["kind"], stored["metadata"]["resourceVersion"]) == ("Node", "2")
    stored = after("patch", [{"op": "remove", "path": "/status/capacity/old"}], reduced)
    assert stored["status"]["capacity"] == {"cpu": "4", "b": "2", "c": "3"}
    # operations on what nobody saw cannot be carried out: nothing is said of it but its metadata
    assert after("patch", [{"op": "remove", "path": "/none"}], reduced) == {"metadata": reduced["metadata"]}


def test_each_invariant_has_a_planted_violation_and_a_definition() -> None:
    assert set(PLANTED.values()) == set(INVARIANTS)
    assert all(len((invariant.__doc__ or "").split()) > 10 for invariant in INVARIANTS.values())


def test_refused_writes_and_dry_runs_are_no_writes() -> None:
    run = Written()
    run.managed(1, "patch", "nodes/status", "n1", code=403)
    run.managed(1, "patch", "nodes/status", "n1")
    run.events[-1]["requestURI"] += "?dryRun=All"
    run.managed(1, "get", "nodes", "n1")
    assert not list(api_writes(map(json.dumps, run.events)))


def test_a_pod_that_has_ended_or_is_gone_frees_its_place(tmp_path: Path) -> None:
    run = clean_run()
    ended = pod("pinned-a", {"cpu": "2"}, SENSITIVE, cpus("0-1"), nodeName="n1")
    run.add(
        200,
        KUBELET,
        "patch",
        "pods/status",
        "pinned-a",
        namespace="shop",
        stored={**ended, "status": {"phase": "Failed"}},
    )
    run_pod(run, 201, pod("next", {"cpu": "2"}, SENSITIVE, cpus("0-1")))
    delete(run, 300, pod("pinned-b", {}), KUBELET)
    run_pod(run, 301, pod("last", {"cpu": "2"}, SENSITIVE, cpus("2-3")))
    assert violations(run.stored(tmp_path)) == ()


def test_a_node_that_offers_less_later_breaks_no_promise(tmp_path: Path) -> None:
    run = clean_run()
    lend(run, 60, cpu="100", memory="0")  # sort has 5,000 of it
    assert violations(run.stored(tmp_path)) == ()


def test_what_stands_while_usage_moves_and_what_comes_with_its_node_are_no_decisions(tmp_path: Path) -> None:
    run = clean_run()
    run.add(310, NODE_AGENT, "patch", "nodemetrics/status", "n1", stored=report(310, system_cpu="3"))
    same = node({BATCH_CPU: "5600", BATCH_MEMORY: "38225205657"})
    run.add(350, KUBELET, "patch", "nodes/status", "n1", stored=same)
    static = pod("static", {"cpu": "1"}, SENSITIVE, nodeName="n1")
    run.add(360, KUBELET, "create", "pods", "static", namespace="shop", stored=static)
    assert violations(run.stored(tmp_path)) == ()


def test_what_cannot_be_told_is_left_unsaid(tmp_path: Path) -> None:
    """Two managers of one credential; a node with a strategy of its own; a cgroup that is gone."""
    run = clean_run()
    hold(run, 60 * MINUTES - 1, FIRST, "second")
    run.add(620, MANAGER, "patch", "configmaps", "cotenant-status", credential=FIRST)
    own = node({BATCH_CPU: "9000"})
    own["metadata"]["annotations"] = {"node.koordinator.sh/colocation-strategy": "{}"}
    run.managed(300, "patch", "nodes/status", "n1", stored=own)
    unseen = node({BATCH_CPU: "9000"})
    unseen["metadata"]["name"], unseen["status"]["capacity"] = "n9", {}
    run.managed(310, "patch", "nodes/status", "n9", stored=unseen)
    run.notes.append(limited())
    run.cgroups.clear()
    assert violations(run.stored(tmp_path)) == ()
