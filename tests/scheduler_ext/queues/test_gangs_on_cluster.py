"""Gangs on a real kube-apiserver and kube-scheduler, by the manager with its own rights: whole or nothing at all."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant.scheduler_ext.queues.model.gang import POD_GROUP_LABEL
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.queues.gang_scene import POD_GROUPS, GangScene
from tests.support.extent import full

Nodes = Callable[..., list[str]]


def test_gangs_start_whole_one_after_the_other_and_hold_nothing_meanwhile(gangs: GangScene, fake_nodes: Nodes) -> None:
    label = {"gangs": gangs.namespace}
    fake_nodes(2, cpu="4", labels=label)
    path = POD_GROUPS.format(gangs.namespace)
    group = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "one"}}
    gangs.api.create(path, {**group, "spec": {"minMember": 4}})
    with gangs.manager():
        gangs.gang("one", 4, nodeSelector=label)
        gangs.await_running("one", 4)
        gangs.gang("two", 4, nodeSelector=label)
        gangs.gang("huge", 5, nodeSelector=label)
        wait_for("one's room is no longer held", lambda: not gangs.gang_reservations() and not gangs.all_placeholders())
        assert (gangs.bound("two"), gangs.bound("huge")) == (0, 0)
        gangs.remove("one")
        gangs.await_running("two", 4)
        assert gangs.bound("huge") == 0
        wait_for("nothing is held", lambda: not gangs.gang_reservations() and not gangs.all_placeholders())
        wait_for("its gates are gone", lambda: not any("schedulingGates" in p["spec"] for p in gangs.members("two")))
        status = gangs.api.get(f"{path}/one").get("status", {})
        assert status["scheduleStartTime"]


def test_room_of_a_gang_that_finds_no_place_in_time_is_given_back(gangs: GangScene, fake_nodes: Nodes) -> None:
    label = {"gangs": gangs.namespace}
    fake_nodes(2, cpu="4", labels=label)
    gangs.queues = {"gang_place_seconds": 2.0, "back_off_seconds": 60.0}
    with gangs.manager(scheduler_name="nobody"):  # the placeholders wait for ever
        gangs.gang("late", 4, nodeSelector=label)
        wait_for("room is asked for", gangs.all_placeholders)
        wait_for("all is given back", lambda: not gangs.gang_reservations() and not gangs.all_placeholders())
        assert gangs.bound("late") == 0


def test_a_pod_group_whose_members_succeeded_is_finished_and_stays_so(gangs: GangScene) -> None:
    path, pods = POD_GROUPS.format(gangs.namespace), f"/api/v1/namespaces/{gangs.namespace}/pods"
    group = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "job"}}
    gangs.api.create(path, {**group, "spec": {"minMember": 1}})
    spec = {"containers": [{"name": "main", "image": "app"}], "restartPolicy": "Never", "schedulerName": "nobody"}
    gangs.api.create(pods, {"metadata": {"name": "job-0", "labels": {POD_GROUP_LABEL: "job"}}, "spec": spec})

    def phase() -> str:
        return str(gangs.api.get(f"{path}/job").get("status", {}).get("phase"))

    with gangs.manager():
        gangs.api.patch(f"{pods}/job-0/status", {"status": {"phase": "Succeeded"}})
        wait_for("it is finished", lambda: phase() == "Finished")
        assert gangs.api.get(f"{path}/job")["status"]["succeeded"] == 1
        gangs.api.delete(f"{pods}/job-0", gracePeriodSeconds="0")
        gangs.api.create(path, {**group, "metadata": {"name": "later"}, "spec": {"minMember": 1}})
        wait_for("the manager has looked since", lambda: gangs.api.get(f"{path}/later").get("status"))
        assert phase() == "Finished"


@pytest.mark.parametrize("kills", [1, *full(100)])
def test_a_manager_killed_while_it_places_a_gang_finishes_it_when_it_is_back(
    gangs: GangScene, fake_nodes: Nodes, tmp_path: Path, kills: int
) -> None:
    label = {"gangs": gangs.namespace}
    fake_nodes(4, cpu="8", labels=label)
    seed = random.Random(7)
    with gangs.process(tmp_path) as process:
        for number in range(kills):
            name = f"gang-{number}"
            gangs.gang(name, 8, "1", nodeSelector=label)
            wait_for("it has begun", lambda: gangs.gang_reservations() or gangs.all_placeholders(), every=0.01)
            time.sleep(seed.uniform(0.0, 1.2))
            process.again()
            gangs.await_running(name, 8)
            assert gangs.bound(name) == 8
            gangs.remove(name)
        wait_for("nothing is held", lambda: not gangs.gang_reservations() and not gangs.all_placeholders())
