"""What the API server, its etcd and our own disk lose or bring back: nothing is said to be done that is not there."""

from __future__ import annotations

import resource
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.errors import ClusterError, StoreError
from cotenant.base.kube import Mirror, Writer
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.process.clock import ShiftedClock
from cotenant.changes.accept import AcceptanceTerms, Actions
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.live_context import ClusterUser
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.service import Method
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.soak.reconcile import settle, verify
from tests.base.config_maps import ConfigMap, data_of
from tests.changes.conftest import Make
from tests.changes.world import created, live, recommended
from tests.cluster import needing
from tests.cluster.api import Api, ApiError
from tests.cluster.binaries import find
from tests.cluster.control_plane import APISERVER, ETCD, ControlPlane, Options
from tests.cluster.process import Server, free_port
from tests.cluster.waiting import wait_for

MAPS = "/api/v1/namespaces/default/configmaps"
BARE = Options(frozenset())
LATER = ShiftedClock(10.0)
"""Past the time in which a request of the dead may still be on its way."""


def config_map(name: str, **data: str) -> Apply:
    address = Address("v1", "configmaps", name, "default")
    return Apply(address, address.manifest("ConfigMap", data=data), why="a test")


# --- 1: two writers ---------------------------------------------------------------------------------------------------
def test_two_writers_of_one_object_lose_no_field_of_each_other(control_plane: ControlPlane, namespace: str) -> None:
    rounds, path = 100, f"/api/v1/namespaces/{namespace}/configmaps/shared"
    api = control_plane.api()
    api.create(path.rpartition("/")[0], {"metadata": {"name": "shared"}, "data": {"theirs": "0"}})

    def theirs() -> None:
        """Another program reads, changes and replaces the whole object, as controllers do."""
        mine = control_plane.api()
        for number in range(1, rounds + 1):
            while True:
                body = mine.get(path)
                body["data"]["theirs"] = str(number)
                try:
                    mine.ask("PUT", path, body)
                except ApiError as error:
                    assert error.status == 409
                else:
                    break

    other = threading.Thread(target=theirs)
    address = Address("v1", "configmaps", "shared", namespace)
    with closing(control_plane.admin_client()) as client:
        writer = Writer(client, "cotenant-test")
        other.start()
        for number in range(1, rounds + 1):
            ours = address.manifest("ConfigMap", data={"ours": str(number)})
            assert writer.send(Apply(address, ours, why="a test")) is not None
        other.join(120)
    assert not other.is_alive()
    assert api.get(path)["data"] == {"ours": str(rounds), "theirs": str(rounds)}


# --- 11: no quorum ----------------------------------------------------------------------------------------------------
class ThreeMembers(ControlPlane):
    """An API server over an etcd of three members, which may lose one and not two."""

    def start_etcd(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        clients, peers = ([f"http://127.0.0.1:{free_port()}" for _ in range(3)] for _ in range(2))
        self.etcd_url = ",".join(clients)
        cluster = ",".join(f"m{number}={peer}" for number, peer in enumerate(peers))
        for number, (client, peer) in enumerate(zip(clients, peers, strict=True)):
            options = [f"--name=m{number}", f"--data-dir={self.folder / f'etcd-{number}'}", "--log-level=warn"]
            options += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
            options += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
            options += [f"--initial-cluster={cluster}"]
            name = f"{ETCD}-{number}"
            self.servers[name] = Server(name, [str(find(ETCD)), *options], self.folder / f"{name}.log", False)
            self.servers[name].start()


@pytest.mark.cluster
@pytest.mark.slow
def test_without_a_quorum_nothing_is_reported_as_written_and_work_goes_on_afterwards(tmp_path: Path) -> None:
    needing.kubernetes()
    reported: list[str] = []
    with ThreeMembers(tmp_path / "plane", BARE) as plane:
        writer = Writer(plane.client(plane.admin_kubeconfig, timeout_seconds=2.0), "cotenant-test")

        def write(name: str) -> bool:
            try:
                writer.send(config_map(name, v="1"))
            except ClusterError:
                return False
            reported.append(name)
            return True

        wait_for("the namespace", lambda: plane.api().exists("/api/v1/namespaces/default"))
        assert all(write(f"before-{number}") for number in range(5))
        plane.servers[f"{ETCD}-0"].kill()
        wait_for("a write by two members", lambda: write("by-two"))
        plane.servers[f"{ETCD}-1"].kill()
        assert not write("by-one")  # refused in words, within the client's own limits
        for number in (0, 1):
            plane.servers[f"{ETCD}-{number}"].start()
        wait_for("a write by all members", lambda: write("after"))
        stored_names = {body["metadata"]["name"] for body in plane.api().items(MAPS)}
    assert set(reported) <= stored_names and "by-one" not in reported


# --- 12: time goes back -----------------------------------------------------------------------------------------------
@pytest.mark.cluster
@pytest.mark.slow
def test_a_mirror_follows_a_cluster_that_was_restored_from_an_older_state(tmp_path: Path) -> None:
    needing.kubernetes()
    with ControlPlane(tmp_path / "plane", BARE) as plane:
        api, data = plane.api(), plane.folder / "etcd"
        wait_for("the namespace", lambda: api.exists("/api/v1/namespaces/default"))
        put(api, "a", "1")
        etcd, server = plane.servers[ETCD], plane.servers[APISERVER]
        server.kill()
        etcd.kill()
        shutil.copytree(data, tmp_path / "older")
        again(plane)
        with mirrored(plane) as mirror:
            wait_for("the first state", lambda: mirror.snapshot() == {("default", "a"): {"v": "1"}})
            put(plane.api(), "b", "1")
            for number in range(2, 40):
                put(plane.api(), "a", str(number))
            wait_for("the newer state", lambda: mirror.snapshot().get(("default", "a")) == {"v": "39"})
            server.kill()
            etcd.kill()
            shutil.rmtree(data)
            shutil.copytree(tmp_path / "older", data)
            again(plane)
            wait_for("the older state", lambda: mirror.snapshot() == {("default", "a"): {"v": "1"}})
            put(plane.api(), "c", "1")  # versions of this timeline are smaller than those that were seen
            wait_for("what is written from there", lambda: ("default", "c") in mirror.snapshot())
            # the state of before with what came since: nothing of the time that was lost
            assert mirror.snapshot() == {("default", "a"): {"v": "1"}, ("default", "c"): {"v": "1"}}


@pytest.mark.cluster
@pytest.mark.slow
def test_a_change_that_a_restored_cluster_lacks_is_no_longer_in_force(tmp_path: Path) -> None:
    needing.kubernetes()
    with ControlPlane(tmp_path / "plane", BARE) as plane, closing(Ledger(tmp_path / "ledger.db")) as ledger:
        data = plane.folder / "etcd"
        wait_for("the namespace", lambda: plane.api().exists("/api/v1/namespaces/default"))
        workload = created(plane, "default", "web", 0)
        for name in (APISERVER, ETCD):
            plane.servers[name].kill()
        shutil.copytree(data, tmp_path / "older")
        again(plane)
        with closing(plane.client(plane.admin_kubeconfig)) as client:
            settings = ActionSettings(soak_minutes=0.0)
            actions = Actions(client, ChangeLedger(ledger, LATER, "ann"), settings, ClusterUser("ann"))
            terms = AcceptanceTerms(overridden=("rollout", "cool-down", "webhook", "node-fit"))
            (standing,) = actions.accept(actions.review([recommended(workload)], method=Method.TEMPLATE), terms)
            assert standing.state is ChangeState.APPLIED and cpu(plane, workload) == "800m"
            for name in (APISERVER, ETCD):
                plane.servers[name].kill()
            shutil.rmtree(data)
            shutil.copytree(tmp_path / "older", data)
            again(plane)
            gone_status = verify(actions, standing)
        assert cpu(plane, workload) == "1" and gone_status.state is ChangeState.GONE
        assert "app requests.cpu is now 1, but 800m was written; no later writer is recorded" in gone_status.words


def put(api: Api, name: str, value: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"test": "yes"}}}
    api.patch(f"{MAPS}/{name}", {**body, "data": {"v": value}}, kind="apply", fieldManager="test", force="true")


def again(plane: ControlPlane) -> None:
    """etcd and API server, on their ports."""
    plane.servers[ETCD].start()
    plane.servers[APISERVER].start()
    plane.servers[APISERVER].wait_until(plane.ready)


@contextmanager
def mirrored(plane: ControlPlane) -> Iterator[Mirror[Any]]:
    with closing(plane.client(plane.admin_kubeconfig, watch_backoff_seconds=1.0)) as client:
        mirror: Mirror[Any] = Mirror(client, MAPS, ConfigMap, data_of, labelSelector="test=yes")
        mirror.start()
        try:
            yield mirror
        finally:
            mirror.stop()


# --- 44: the disk is full ---------------------------------------------------------------------------------------------
@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """A disk that is full: whoever makes a file longer than that is refused by the kernel."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


PAGE = 4096 + 24
"""Bytes of a page in SQLite's log, with its head."""


def test_on_a_full_disk_nothing_is_changed_that_the_ledger_does_not_have(
    control_plane: ControlPlane, namespace: str, make: Make, tmp_path: Path
) -> None:
    workload, actions = created(control_plane, namespace, "web", 1), make(LATER)
    log, terms = tmp_path / "ledger.db-wal", AcceptanceTerms(overridden=("rollout", "cool-down", "webhook", "node-fit"))
    actions.journal.note([("begun", "test", {})])
    refused = done = 0
    for pages in (0.0, 0.5, 1.0, 2.0, 4.0, 8.0):
        amount = 800 if cpu(control_plane, workload) == "1" else 1000
        (review,) = actions.review([recommended(workload, amount)], method=Method.TEMPLATE)
        before = change_of(control_plane, workload).removesuffix("-undone")
        with no_file_beyond(log.stat().st_size + int(pages * PAGE)):
            try:
                actions.accept([review], terms)
                done += 1
            except StoreError:
                refused += 1
        after = change_of(control_plane, workload).removesuffix("-undone")
        accepted = {row.subject for row in actions.journal.ledger.entries() if row.event == "accepted"}
        assert after == before or after in accepted, "the cluster was changed and no row says so"
        settle(actions)  # there is space again: it goes on without a new start
        assert all(standing.state.settled for standing in actions.journal.statuses().values())
    assert refused >= 2 and done >= 2, (refused, done)
    assert actions.journal.ledger.verify().wrong_seq is None


def cpu(plane: ControlPlane, workload: Any) -> str:
    template = live(plane, workload)["spec"]["template"]["spec"]
    return str(template["containers"][0]["resources"]["requests"]["cpu"])


def change_of(plane: ControlPlane, workload: Any) -> str:
    """Id of the change that the workload says it has."""
    annotations = live(plane, workload)["metadata"].get("annotations") or {}
    return str(annotations.get("cotenant.dev/change", ""))
