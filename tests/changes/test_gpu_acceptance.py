"""A share of a GPU accepted on a real API server by a person with the documented rights, and taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cotenant.base.allocation.device_allocator import COLLECTION
from cotenant.base.allocation.devices import GPU_CORE, GPU_MEMORY_RATIO
from cotenant.base.identity import ContainerRef
from cotenant.changes.accept import AcceptanceTerms, Actions
from cotenant.changes.decide.patches import patch
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.service import Method
from tests.changes.test_gpu_shares import RANKER
from tests.changes.world import created, live
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd

NVIDIA = "nvidia.com/gpu"
SHARE = {GPU_CORE: "40", GPU_MEMORY_RATIO: "50"}
TERMS = AcceptanceTerms(overridden=("rollout",), batch="gpus")
"""No node has a GPU here, so that no replica is ever ready."""


def resources_of(body: dict[str, Any]) -> dict[str, Any]:
    resources: dict[str, Any] = body["spec"]["template"]["spec"]["containers"][0]["resources"]
    return resources


def test_a_share_is_dry_run_accepted_and_taken_back_as_other_changes_are(
    control_plane: ControlPlane, namespace: str, make: Callable[..., Actions]
) -> None:
    api = control_plane.api()
    install_crd(api, "devices.scheduling.koordinator.sh")
    card = {"type": "gpu", "minor": 0, "health": True, "resources": {GPU_CORE: "100", GPU_MEMORY_RATIO: "100"}}
    device = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device", "spec": {"devices": [card]}}
    api.create(COLLECTION, {**device, "metadata": {"name": namespace}})
    limits = {"limits": {"memory": "8Gi", NVIDIA: "1"}}
    workload = created(control_plane, namespace, "ranker", 1, container={"name": "main", "resources": limits})
    before = resources_of(live(control_plane, workload))
    recommendation = replace(RANKER, container=ContainerRef(workload, "main"))
    actions = make()
    try:
        (review,) = actions.review([recommendation])
        assert {rule.rule for rule in review.blocked(())} <= {"rollout"} and Method.IN_PLACE in review.impossible
        (dry_object,) = actions.dry_run(review)
        after = {"limits": {"memory": "8Gi", **SHARE}, "requests": SHARE}
        assert resources_of(dict(dry_object)) == after and resources_of(live(control_plane, workload)) == before
        (done,) = actions.accept([review], TERMS)
        assert (done.state, resources_of(live(control_plane, workload))) == (ChangeState.APPLIED, after)
        assert done.change.guardrails["gpu-isolation"].startswith("warn: a share is reserved, not enforced")
        # What was accepted is not asked for a second time: the template no longer has what the finding was about.
        assert "already has all proposed values" in actions.review([recommendation])[0].error
        assert actions.roll_back(done).state is ChangeState.ROLLED_BACK
        assert resources_of(live(control_plane, workload)) == before
    finally:
        api.delete(f"{COLLECTION}/{namespace}")


def test_the_patch_that_is_printed_is_taken_by_the_server_and_leaves_no_other_gpu_resource(
    control_plane: ControlPlane, namespace: str
) -> None:
    limits = {"limits": {"memory": "8Gi", NVIDIA: "1"}}  # no requests: the nulls of the patch meet nothing there
    workload = created(control_plane, namespace, "ranker", 1, container={"name": "main", "resources": limits})
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/ranker"
    control_plane.api().patch(path, patch(replace(RANKER, container=ContainerRef(workload, "main"))), kind="strategic")
    assert resources_of(live(control_plane, workload)) == {"limits": {"memory": "8Gi", **SHARE}, "requests": SHARE}
