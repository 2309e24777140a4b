"""What the agent publishes of its CPUs, and what of it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cotenant.base.allocation.cpu_topology import regular_topology
from cotenant.base.allocation.topology_document import NodeCpus, parse_topology
from cotenant.base.identity import NodeIdentity
from cotenant.base.kube import KubeClient
from cotenant.base.kube.auth import Access
from cotenant.base.kubernetes.intent import Apply, Create, Patch
from cotenant.base.settings.sections import KubeSettings
from cotenant.enforcer.report.node_metric_writer import Reporter, Whose
from cotenant.enforcer.report.topology_writer import MachineCpus, TopologyPublisher, topology_write
from tests.cluster.process import free_port
from tests.cluster.waiting import wait_for

SMALL = NodeCpus(regular_topology(1, 2, 2))
LARGER = NodeCpus(regular_topology(2, 2, 2))


def published(cpus: NodeCpus) -> dict[str, Any]:
    """The object as the first write makes it."""
    intent = topology_write(cpus, {}, NodeIdentity("n1", "u1"), None)
    assert isinstance(intent, Create)
    return {**intent.body, "metadata": {**intent.body["metadata"], "resourceVersion": "7"}}


def test_the_first_write_creates_an_object_that_goes_with_its_node() -> None:
    body = published(SMALL)
    assert parse_topology(body) == SMALL
    assert body["metadata"]["ownerReferences"][0] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}


def test_what_is_there_already_is_not_written_again() -> None:
    assert topology_write(SMALL, {}, NodeIdentity("n1", "u1"), published(SMALL)) is None


def test_other_owners_change_annotations_alone() -> None:
    intent = topology_write(NodeCpus(SMALL.topology, "static"), {}, NodeIdentity("n1", "u1"), published(SMALL))
    assert isinstance(intent, Apply) and "zones" not in intent.body


def test_other_cpus_replace_the_zones_of_the_object_that_was_read() -> None:
    intent = topology_write(LARGER, {}, NodeIdentity("n1", "u1"), published(SMALL))
    assert isinstance(intent, Patch)
    assert intent.operations[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    assert [zone["name"] for zone in intent.operations[1]["value"]] == ["node-0", "node-1"]


def test_a_topology_that_cannot_be_told_ends_no_thread_that_reports() -> None:
    calls: list[MachineCpus] = []

    def broken(machine: MachineCpus) -> None:
        calls.append(machine)
        raise ZeroDivisionError

    unreachable = KubeClient(Access("nowhere", f"http://127.0.0.1:{free_port()}", str), KubeSettings(retries=0))
    topology = TopologyPublisher("n1", lambda: "u1", broken, Path("/sys"))
    reporter = Reporter(unreachable, Whose("n1", lambda: "u1"), lambda _: None, 0.0, publishers=[topology])
    reporter.start()
    try:
        wait_for("a second try", lambda: len(calls) > 1)
    finally:
        reporter.stop()
