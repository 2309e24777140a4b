"""Looks at starting pods on an embedded API server: the switch and the order of what one look writes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autopilot.decide.policy import PolicySpec, ceiling_of, effective
from autopilot.decide.queue import QueueCandidate, QueueEntry
from autopilot.decide.starts import StartAim
from autopilot.rounds.acts import ActConfig, Acts
from autopilot.rounds.cluster_state import set_switch
from autopilot.rounds.ledger_history import LedgerHistory, LedgerReader
from autopilot.rounds.reading import RoundReading
from autopilot.rounds.starts import Starts
from changes.audited_acts import AuditedActs
from cotenant.apps.cli.changes.change_service import kubeconfig_door
from cotenant.core.model.autopilot import AutopilotMode, QueueVerdict
from cotenant.core.model.identity import WorkloadRef
from cotenant.core.settings.sections.autopilot import CeilingSettings
from tests.actions.world import RESOURCES
from tests.support.autopilot import APPROVER, NAMESPACE, NOW, EmbeddedAutopilot, embedded

WEB = WorkloadRef(NAMESPACE, "Deployment", "web")
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


def start_pod(scene: EmbeddedAutopilot, name: str) -> None:
    """A pod of `web` whose container has just begun to run."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b", "uid": "r", "controller": True}
    meta = {"name": name, "labels": {"app": "web", "pod-template-hash": "7d4b"}, "ownerReferences": [owner]}
    body = {"containers": [{"name": "app", "image": "i", "resources": RESOURCES}], "nodeName": "n1"}
    scene.api.create(PODS, {"metadata": meta, "spec": body})
    begun = datetime.fromtimestamp(NOW, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    write_status(scene, name, {"startTime": begun, "conditions": [{"type": "Ready", "status": "False"}]})


def write_status(scene: EmbeddedAutopilot, name: str, status: dict[str, Any]) -> None:
    running = {"phase": "Running", "containerStatuses": [{"name": "app", "state": {"running": {}}}]}
    patch = [{"op": "add", "path": "/status", "value": running | status}]
    scene.api.patch(f"{PODS}/{name}/status", patch, kind="json")


def cpus(scene: EmbeddedAutopilot) -> dict[str, str]:
    """CPU request of each pod."""
    pods = scene.api.items(PODS)
    return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in pods}


def test_a_pause_in_the_middle_of_a_look_holds_the_starts_that_are_left_and_nothing_that_goes_back(
    tmp_path: Path,
) -> None:
    with embedded(tmp_path) as scene:
        config = ActConfig(kubeconfig_door(scene.settings.kube), tmp_path / "ledger.db", scene.settings, scene.clock)
        ledger, switch, reader = AuditedActs(config.access, config.ledger, ""), Acts(config), LedgerReader()
        limits = effective(ceiling_of(CeilingSettings()), PolicySpec())
        aim = StartAim(WEB, "", {"app": 3000}, 2.0)
        queue = (QueueEntry(QueueCandidate(WEB, "shop/p", AutopilotMode.ACT, limits, starts=aim), QueueVerdict.WAIT),)
        reading = RoundReading(NOW, queue=queue)

        def paused_once_asked() -> str:
            answer = switch.paused()
            with config.access(APPROVER) as client:
                set_switch(client, scene.settings.manager.namespace, "incident")
            return answer

        def history() -> LedgerHistory:
            with ledger.reading() as rows:
                return reader.read(rows)

        for name in ("web-7d4b-0", "web-7d4b-1"):
            start_pod(scene, name)
        looks = Starts(config, ledger, paused_once_asked)
        assert [step.event for step in looks.step(reading, history())] == ["autopilot-boosted"]
        # 2 x 1000m is less than what its starts used
        assert cpus(scene) == {"web-7d4b-0": "2", "web-7d4b-1": "1"}

        ready = datetime.fromtimestamp(NOW - 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": ready}
        write_status(scene, "web-7d4b-0", {"conditions": [condition]})
        assert [step.event for step in looks.step(reading, history())] == ["autopilot-boost-ended"]
        assert cpus(scene) == {"web-7d4b-0": "1", "web-7d4b-1": "1"}

        scene.service().resume(APPROVER)
        assert [step.words for step in Starts(config, ledger, switch.paused).step(reading, history())] == [
            "pod web-7d4b-1 starts"
        ]
