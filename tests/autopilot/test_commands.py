"""`cotenant autopilot` as people use it, beside a manager that runs under its documented rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from typer.testing import CliRunner, Result

from cotenant.base.identity import WorkloadRef
from cotenant.base.logs.metrics import Metrics
from cotenant.base.store import Store
from cotenant.cli.main import root
from cotenant.manager.features import NAMES
from cotenant.manager.run import Manager, Options
from cotenant.recommender.stored_recommendations import write
from cotenant.settings import Settings
from tests.autopilot.scene import AutopilotScene
from tests.changes.world import created, ready, template
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import FakeNodes
from tests.cluster.waiting import wait_for


class DeskScene:
    """A cluster with stored results, a settings file, and the command line of its approver."""

    def __init__(self, cluster: AutopilotScene, folder: Path) -> None:
        self.cluster = cluster
        off = [name for name in NAMES if name != "autopilot"]
        self.document: dict[str, Any] = {
            "store": {"url": folder.as_uri()},
            "actions": {"ledger": str(cluster.folder / "ledger.db"), "soak_minutes": 5},
            "autopilot": {"enabled": True, "ceiling": {"ways": ["RollOut"], "never_touch": []}},
            "manager": {"namespace": cluster.namespace, "write": True, "features_off": off},
        }
        self.store = Store(folder.as_uri(), "test")
        self.file = cluster.folder / "settings.yaml"
        self.file.write_text(yaml.safe_dump(self.document))

    def publish(self, *workloads: WorkloadRef) -> None:
        """Store recommendations of these workloads."""
        for workload in workloads:
            self.cluster.recommend(workload)
        write(self.store, self.cluster.recommendations)

    def run(self, *arguments: str) -> Result:
        """A command of the approver."""
        kubeconfig = ["--kubeconfig", str(self.cluster.approver())]
        done = CliRunner().invoke(root, ["--config", str(self.file), "autopilot", *arguments, *kubeconfig])
        assert done.exit_code == 0, done.output
        return done

    @contextmanager
    def manager(self) -> Iterator[Manager]:
        """A manager in this process, as the documented account."""
        settings = msgspec.convert(self.document, Settings)
        often = msgspec.structs.replace(settings.autopilot, interval_seconds=1.0)
        settings = msgspec.structs.replace(settings, autopilot=often)
        client = self.cluster.plane.client(self.cluster.kubeconfig)
        with Manager(client, settings, Metrics("test", "3"), Options("test", False)) as manager:
            yield manager


@pytest.fixture
def service(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> DeskScene:
    return DeskScene(AutopilotScene(control_plane, namespace, tmp_path), tmp_path / "store")


def test_a_policy_is_watched_approved_paused_and_resumed_by_commands(service: DeskScene, fake_nodes: FakeNodes) -> None:
    cluster = service.cluster
    fake_nodes(1, cpu="100", memory="400Gi")
    first, second = (created(cluster.plane, cluster.namespace, name, 2) for name in ("first", "second"))
    for workload in (first, second):
        ready(cluster.plane, workload)
    service.publish(first)
    cluster.bind()
    cluster.policy()
    # what the schema cannot tell: the manager refuses it, and says so in an Event
    cluster.policy("mars", selector={"matchLabels": {"a": "b"}}, windows=["daily 01:00-05:00 Mars/Olympus"])
    cluster.policy("wide", selector={"matchLabels": {"a": "b"}}, ways=["InPlace"])  # outside of the ceiling
    (row,) = json.loads(service.run("preview", "-n", cluster.namespace, "-o", "json").stdout)
    assert (row["decision"], row["workload"], row["cpu_frees"]) == ("propose", "first", 400)
    with service.manager() as manager:
        wait_for("the status", lambda: cluster.status().get("mode") == "Observe")
        wait_for("the refusal", lambda: "not a time zone" in cluster.status("mars").get("reason", ""))
        refused = ("mars", "wide")
        wait_for("Events", lambda: all("PolicyRefused" in cluster.event_reasons(name) for name in refused))
        wait_for("the report", lambda: cluster.events() == ["autopilot-proposed"])
        approved = service.run("act", f"{cluster.namespace}/nightly", "--reason", "seen enough").output
        assert "a manager that uses this ledger: " + service.document["actions"]["ledger"] in approved
        wait_for("the act", lambda: template(cluster.plane, first)["requests"]["cpu"] == "800m")
        wait_for("the status", lambda: cluster.status().get("underWay") == 1)
        service.run("pause", "--reason", "incident")
        service.publish(second)
        rounds = manager.rounds("autopilot")
        wait_for("rounds", lambda: manager.rounds("autopilot") > rounds + 3)
        assert "incident" in cluster.status()["reason"] and template(cluster.plane, second)["requests"]["cpu"] == "1"
        _, shown, _ = json.loads(service.run("status", "-n", cluster.namespace, "-o", "json").stdout)
        assert (shown["asked"], shown["mode"], shown["under_way"]) == ("Act", "Act", 1)
        service.run("resume")
        wait_for("the next act", lambda: template(cluster.plane, second)["requests"]["cpu"] == "800m")
    assert "changed" in service.run("report", "-o", "csv").stdout.partition("\n")[0]
    (counts,) = json.loads(service.run("report", "-n", cluster.namespace, "-o", "json").stdout)
    assert (counts["proposed"], counts["changed"], counts["cpu_freed"]) == (1, 2, 800)
    switches = [event for event in cluster.events() if event.startswith("autopilot-")]
    assert switches == ["autopilot-proposed", "autopilot-act", "autopilot-paused", "autopilot-resumed"]


def test_a_command_writes_the_files_of_what_a_gitops_tool_keeps(service: DeskScene, tmp_path: Path) -> None:
    cluster, folder = service.cluster, tmp_path / "bundle"
    workload = created(cluster.plane, cluster.namespace, "argo", 0)
    path = f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments/argo"
    cluster.plane.api().patch(path, {"metadata": {"labels": {"argocd.argoproj.io/instance": "shop"}}})
    service.publish(workload)
    cluster.policy(mode="Observe")
    # a patch, the component that names it, and the text of the pull request
    assert "3 files written" in service.run("bundle", "-n", cluster.namespace, "-o", str(folder)).output
    assert 'cpu: "800m"' in (folder / cluster.namespace / "deployment-argo.yaml").read_text()
    assert template(cluster.plane, workload)["requests"]["cpu"] == "1" and cluster.events() == ["bundled"]


def test_what_cannot_be_is_refused_in_words(service: DeskScene) -> None:
    def refused(*arguments: str) -> str:
        kubeconfig = ["--kubeconfig", str(service.cluster.approver())]
        done = CliRunner().invoke(root, ["--config", str(service.file), "autopilot", *arguments, *kubeconfig])
        assert done.exit_code in (1, 2)
        return done.output

    assert "is not NAMESPACE/NAME" in refused("act", "nightly")
    assert "there is no AutopilotPolicy" in refused("act", f"{service.cluster.namespace}/nightly")
    assert "is not NAMESPACE/KIND/NAME" in refused("resume", "web")


def test_a_mistyped_workload_is_not_resumed(service: DeskScene) -> None:
    cluster = service.cluster
    workload = created(cluster.plane, cluster.namespace, "web", 0)
    service.publish(workload)
    assert service.run("resume", str(workload)).exit_code == 0
    kubeconfig = ["--kubeconfig", str(cluster.approver())]
    mistyped = f"{cluster.namespace}/Deployment/wbe"
    done = CliRunner().invoke(root, ["--config", str(service.file), "autopilot", "resume", mistyped, *kubeconfig])
    assert done.exit_code == 2
    assert f"the autopilot does not know workload {mistyped}" in done.output
    assert cluster.events() == ["autopilot-resumed"]
