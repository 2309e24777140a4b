from __future__ import annotations

import json
from pathlib import Path

from tests.cluster.control_plane import CONTROLLER_MANAGER, KWOK, SCHEDULER, ControlPlane, Options
from tests.cluster.fake_nodes import create_nodes, wait_running
from tests.cluster.namespaces import create_namespace


def test_a_control_plane_of_ones_own_has_its_scheduler_flags_and_quiet_nodes(
    tmp_path: Path, control_plane: ControlPlane
) -> None:
    audit = tmp_path / "audit.log"
    policy = tmp_path / "policy.yaml"
    policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}))
    options = Options(
        extra={"kube-apiserver": [f"--audit-log-path={audit}", f"--audit-policy-file={policy}"]},
        scheduler={"profiles": [{"schedulerName": "another"}]},
        heartbeats=False,
    )
    with ControlPlane(tmp_path / "cluster", options) as plane:
        assert set(plane.servers) >= {CONTROLLER_MANAGER, SCHEDULER, KWOK}
        create_nodes(plane, 2)
        api, namespace = plane.api(), create_namespace(plane.api(), "mine")
        spec = {"schedulerName": "another", "containers": [{"name": "main", "image": "x"}]}
        api.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "one"}, "spec": spec})
        wait_running(plane, namespace)
        assert "system:kube-scheduler" in audit.read_text()
        assert api.items("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases") == []
    assert not any(server.running for server in plane.servers.values())
