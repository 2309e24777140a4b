"""A finding's share of a GPU as a change of a template: its text, its patch, its methods and its guardrails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.allocation.gpu_share import GpuShare, GpuShareProposal
from cotenant.base.errors import UsageError
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.changes.decide.field_changes import planned
from cotenant.changes.decide.guardrails import Guardrail, GuardrailContext, GuardrailOutcome, blocking, judge
from cotenant.changes.decide.methods import MethodContext, impossible
from cotenant.changes.decide.patches import patch
from cotenant.changes.decide.rule import ClusterLimits
from cotenant.changes.model.service import Method
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.recommender.model.recommendation import Recommendation

CORE, RATIO, NVIDIA = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio", "nvidia.com/gpu"
WHOLE = GpuShare(100, 100)
PROPOSAL = GpuShareProposal(GpuShare(40, 50), WHOLE)
RANKER = Recommendation(
    ContainerRef(WorkloadRef("recsys", "Deployment", "ranker"), "main"), "oversized-gpu", 2, (), 0, "d", 0, gpu=PROPOSAL
)
DEVICE = {
    "metadata": {"name": "gpu-node"},
    "spec": {"devices": [{"type": "gpu", "minor": 0, "health": True, "resources": {CORE: "100", RATIO: "100"}}]},
}
PERCENTS = st.integers(0, 800)
SHARES = st.builds(GpuShare, PERCENTS, PERCENTS)


def live(**limits: str) -> dict[str, Any]:
    """A Deployment whose container has these GPU limits, as manifests for GPUs are mostly written."""
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "8Gi", **limits}}}
    return {
        "metadata": {"uid": "u", "generation": 1},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [container]}}},
        "status": {"observedGeneration": 1, "readyReplicas": 1, "updatedReplicas": 1},
    }


def judged(
    body: dict[str, Any], devices: list[Any] | None, recommendation: Recommendation = RANKER
) -> dict[str, Guardrail]:
    around = GuardrailContext(body, 0.0, cluster_limits=ClusterLimits((), (), (), devices=devices))
    return {rule.rule: rule for rule in judge([recommendation], around, GuardrailSettings())}


@given(SHARES, SHARES)
def test_the_text_of_a_proposal_is_read_as_what_was_written(share: GpuShare, now: GpuShare) -> None:
    proposal = GpuShareProposal(share, now)
    assert GpuShareProposal.parse(str(proposal)) == proposal


@given(st.text(max_size=60))
def test_another_text_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(UsageError, match="not a share of a GPU"):
        GpuShareProposal.parse(text)


def test_the_patch_sets_the_share_on_both_sides_and_takes_every_other_gpu_resource_away() -> None:
    removed = dict.fromkeys((NVIDIA, "koordinator.sh/gpu", "koordinator.sh/gpu.shared", "koordinator.sh/gpu-memory"))
    side = {**removed, CORE: "40", RATIO: "50"}
    container = {"name": "main", "resources": {"requests": side, "limits": side}}
    assert patch(RANKER) == {"spec": {"template": {"spec": {"containers": [container]}}}}


def test_the_write_names_the_gpu_resources_that_are_there_and_leaves_the_rest() -> None:
    write = planned(live(**{NVIDIA: "1"}), [RANKER], "c1")
    assert write is not None
    (after,) = write.after.values()
    share = {CORE: "40", RATIO: "50"}
    assert after == {"requests": {"cpu": "1", **share}, "limits": {"memory": "8Gi", **share}}


def test_only_new_pods_can_have_another_share() -> None:
    reasons = impossible(MethodContext(live(**{NVIDIA: "1"}), (RANKER,)))
    assert set(reasons) == {Method.IN_PLACE, Method.ANNOTATE}


def test_a_share_passes_where_devices_are_served_and_warns_that_nothing_isolates_it() -> None:
    rules = judged(live(**{NVIDIA: "1"}), [DEVICE])
    assert blocking(rules.values(), ()) == []
    assert [name for name, rule in rules.items() if rule.outcome is GuardrailOutcome.WARN] == ["gpu-isolation"]
    # what its finding has judged is not judged again by values that do not move
    assert not {"history", "dead-band", "oom"} & set(rules)


@pytest.mark.parametrize("devices", [None, [], [{**DEVICE, "spec": {"devices": []}}], [{"metadata": {}, "spec": 3}]])
def test_a_share_is_stopped_where_no_device_object_lists_a_gpu(devices: list[Any] | None) -> None:
    assert judged(live(**{NVIDIA: "1"}), devices)["gpu-devices"].outcome is GuardrailOutcome.FAIL


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({}, "requests no GPU"),
        ({NVIDIA: "2"}, "requests nvidia.com/gpu: 2, but the proposal replaces nvidia.com/gpu: 1"),
        ({CORE: "40", RATIO: "50"}, "requests koordinator.sh/gpu-core: 40"),
        ({CORE: "100", "koordinator.sh/gpu-memory": "8Gi"}, "in bytes"),
        ({NVIDIA: "1", "koordinator.sh/gpu": "50"}, "cannot be requested together"),
    ],
)
def test_a_template_that_asks_for_something_else_now_stops_the_change(limits: dict[str, str], why: str) -> None:
    rule = judged(live(**limits), [DEVICE])["gpu-request"]
    assert rule.outcome is GuardrailOutcome.FAIL and why in rule.why


def test_koordinators_whole_gpu_is_the_same_request_and_fewer_whole_gpus_need_no_device_object() -> None:
    assert judged(live(**{"koordinator.sh/gpu": "100"}), [DEVICE])["gpu-request"].outcome is GuardrailOutcome.PASS
    two = replace(RANKER, gpu=GpuShareProposal(GpuShare(200, 200), GpuShare(400, 400)))
    rules = judged(live(**{NVIDIA: "4"}), None, two)
    assert blocking(rules.values(), ()) == [] and not {"gpu-devices", "gpu-isolation"} & set(rules)
    # nvidia.com/gpu is given out by a device plugin, which such nodes may not have
    other = judged(live(**{"koordinator.sh/gpu": "400"}), [DEVICE], two)["gpu-request"]
    assert other.outcome is GuardrailOutcome.FAIL and "the proposal requests" in other.why


def test_a_share_waits_for_the_cool_down() -> None:
    around = GuardrailContext(
        live(**{NVIDIA: "1"}), 3600.0, changed_seconds=0.0, cluster_limits=ClusterLimits(devices=[DEVICE])
    )
    rules = {rule.rule: rule.outcome for rule in judge([RANKER], around, GuardrailSettings())}
    assert rules["cool-down"] is GuardrailOutcome.FAIL
