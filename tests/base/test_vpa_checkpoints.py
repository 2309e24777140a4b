"""Checkpoints of VerticalPodAutoscalers are read as VPA writes them; what contradicts itself is left out and named."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from cotenant.base.cluster import SavedHistogram, VpaHistory
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kube import connect
from cotenant.base.kube.live import CHECKPOINTS, LISTED, VPAS, LiveCluster, observe
from cotenant.base.resource import Resource
from cotenant.base.settings.sections import KubeSettings

pytestmark = pytest.mark.server

VPA = {
    "metadata": {"name": "web-vpa", "namespace": "shop"},
    "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
}
CHECKPOINT = {
    "metadata": {"name": "web-vpa-main", "namespace": "shop"},
    "spec": {"vpaObjectName": "web-vpa", "containerName": "main"},
    "status": {
        "version": "v3",
        "lastUpdateTime": "2025-06-16T00:00:30Z",
        "firstSampleStart": "2025-06-10T00:00:00Z",
        "lastSampleStart": "2025-06-16T00:00:00Z",
        "totalSamplesCount": 8640,
        "cpuHistogram": {
            "referenceTimestamp": "2025-06-16T00:00:00Z",
            "bucketWeights": {"0": 10000, "3": 17},
            "totalWeight": 12.5,
        },
        "memoryHistogram": {"referenceTimestamp": None},
    },
}


@pytest.fixture
def observed(api: Any, kubeconfig: Any) -> Callable[..., LiveCluster]:
    """Observe a cluster with one VerticalPodAutoscaler and these checkpoints."""

    def observe_them(*checkpoints: dict[str, Any]) -> LiveCluster:
        api.objects = {path: [] for path in LISTED} | {VPAS: [VPA], CHECKPOINTS: list(checkpoints)}
        return observe(connect(KubeSettings(kubeconfig=kubeconfig(api.url))))

    return observe_them


Observed = Callable[..., LiveCluster]


def with_status(**changed: Any) -> dict[str, Any]:
    changed_object: dict[str, Any] = deepcopy(CHECKPOINT)
    changed_object["status"].update(changed)
    return changed_object


def test_a_checkpoint_is_the_history_of_a_container_of_the_workload_that_its_autoscaler_names(
    observed: Observed,
) -> None:
    # 2025-06-10 00:00 UTC is 1749513600, six days later 1750032000.
    main = ContainerRef(WorkloadRef("shop", "Deployment", "web"), "main")
    cpu = SavedHistogram({0: 10000, 3: 17}, 12.5, 1_750_032_000)
    expected = VpaHistory(main, "web-vpa", 1_749_513_600, 1_750_032_000, 8640, {Resource.CPU: cpu})
    cluster = observed(CHECKPOINT)
    assert cluster.vpa_histories == (expected,)
    assert cluster.notes == ()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"firstSampleStart": None}, "no firstSampleStart"),
        ({"cpuHistogram": {"bucketWeights": {"0": 1}, "totalWeight": 1}}, "no referenceTimestamp"),
        ({"cpuHistogram": {"bucketWeights": {"x": 1}}}, "Expected `int`"),
        ({"cpuHistogram": {"bucketWeights": {"9999": 1}, "totalWeight": 1}}, "a bucket number of cpu"),
        ({"memoryHistogram": {"bucketWeights": {"-1": 1}, "totalWeight": 1}}, "a bucket number of memory"),
        ({"cpuHistogram": {"bucketWeights": {"0": -1}, "totalWeight": 1}}, "weights of cpu"),
        ({"cpuHistogram": {"bucketWeights": {"0": 0}, "totalWeight": 1}}, "weights of cpu"),
        ({"totalSamplesCount": "many"}, "Expected `int`"),
    ],
)
def test_a_checkpoint_that_contradicts_itself_is_named_and_the_others_are_read(
    observed: Observed, changed: dict[str, Any], why: str
) -> None:
    cluster = observed(with_status(**changed), CHECKPOINT)
    assert len(cluster.vpa_histories) == 1
    (note,) = cluster.notes
    assert note.startswith("VerticalPodAutoscalerCheckpoint shop/web-vpa-main is left out: ")
    assert why in note


@pytest.mark.parametrize(
    "empty",
    [
        pytest.param(with_status(version="v2"), id="a version that VPA itself does not read"),
        pytest.param(with_status(totalSamplesCount=0, firstSampleStart=None), id="no sample yet"),
        pytest.param({**CHECKPOINT, "spec": {"vpaObjectName": "gone", "containerName": "main"}}, id="no autoscaler"),
        pytest.param({key: CHECKPOINT[key] for key in ("metadata", "spec")}, id="no status"),
    ],
)
def test_a_checkpoint_without_a_history_of_a_workload_is_no_history(observed: Observed, empty: dict[str, Any]) -> None:
    cluster = observed(empty)
    assert (cluster.vpa_histories, cluster.notes) == ((), ())


def test_a_cluster_without_the_kinds_has_no_note_of_them(api: Any, kubeconfig: Any) -> None:
    api.objects = {path: [] for path in LISTED}
    cluster = observe(connect(KubeSettings(kubeconfig=kubeconfig(api.url))))
    assert (cluster.vpa_histories, cluster.notes) == ((), ())
