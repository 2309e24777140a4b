"""What the recorder keeps of watched pods: all that their objects tell of use, in little memory."""

from __future__ import annotations

import copy
import gc
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.profiler.recorder_process import EMPTY, HandClock, hand_over, objects
from cotenant.base.controllers.loop import AlwaysLeads
from cotenant.base.kube import KubeClient
from cotenant.base.kube.auth import Access
from cotenant.base.kube.seen_pods import shape_of
from cotenant.base.kubernetes.models.pod import StatedPod
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store.store import Store
from cotenant.profiler.recorder.kubelets import KubeletRules
from cotenant.profiler.recorder.pod_records import PodRecords
from cotenant.profiler.recorder.service import Recorder
from cotenant.settings import Settings
from tests.support.api_server import ApiServer

NODES, PODS = 400, 5
"""Every Deployment has its ten pods."""
KEPT_BYTES = 1_300
"""Of a watched pod: record, key, uid, version and entries of dictionaries 900, a tenth of a shape 150, a fifth of a
node 150."""
STORING_BYTES = 2_800
"""More while a slot is stored, of a pod with 1.4 containers: the stored pod, the present one, its text, its use."""
BODY: dict[str, Any] = {
    "metadata": {
        "namespace": "shop",
        "name": "web-1",
        "uid": "u1",
        "creationTimestamp": "2026-11-01T00:00:00Z",
        "labels": {"app": "web"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": "web-abc", "controller": True}],
    },
    "spec": {
        "nodeName": "n1",
        "priority": 100,
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}],
        "initContainers": [{"name": "proxy", "restartPolicy": "Always"}],
    },
    "status": {
        "phase": "Running",
        "qosClass": "Burstable",
        "startTime": "2026-11-01T00:01:00Z",
        "containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "500m"}}}],
    },
}
CHANGES: tuple[tuple[str, str, Any], ...] = (
    ("metadata", "namespace", "other"),
    ("metadata", "labels", {"app": "web", "koordinator.sh/qosClass": "LS"}),
    ("metadata", "annotations", {"cotenant.dev/mode": "off"}),
    ("metadata", "annotations", {"scheduling.koordinator.sh/resource-status": '{"numaNodeResources": [{"node": 1}]}'}),
    ("metadata", "ownerReferences", [{"kind": "Job", "name": "web-abc", "controller": True}]),
    ("spec", "priority", 9500),
    ("spec", "overhead", {"cpu": "10m"}),
    ("spec", "resources", {"requests": {"cpu": "3"}}),
    ("spec", "containers", [{"name": "main", "resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": "2"}}}]),
    ("spec", "initContainers", [{"name": "proxy"}]),
    ("status", "phase", "Pending"),
    ("status", "qosClass", "BestEffort"),
    ("status", "conditions", [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]),
    ("status", "containerStatuses", [{"name": "main", "resources": {"requests": {"cpu": "4"}}}]),
    ("status", "containerStatuses", [{"name": "main"}, {"name": "second"}]),
)


def pod_of(body: dict[str, Any]) -> StatedPod:
    return msgspec.convert(body, StatedPod)


def changed(part: str, name: str, value: Any) -> dict[str, Any]:
    body = copy.deepcopy(BODY)
    body[part][name] = value
    return body


def test_a_pod_has_the_shape_of_its_own_object_whatever_pods_were_seen_before() -> None:
    records, first = PodRecords(), pod_of(BODY)
    before = records.of(first)
    for part, name, value in CHANGES:
        other = pod_of(changed(part, name, value))
        assert records.of(other).shape == shape_of(other) != before.shape, (part, name)
    assert records.of(first).shape is before.shape


def test_what_differs_between_pods_of_one_template_is_each_ones_own() -> None:
    records = PodRecords()
    body = changed("metadata", "name", "web-2")
    body["metadata"]["uid"], body["spec"]["nodeName"] = "u2", "n2"
    body["status"]["startTime"] = "2026-11-01T00:02:00Z"
    body["status"]["containerStatuses"][0] |= {
        "restartCount": 1,
        "lastState": {
            "terminated": {"reason": "OOMKilled", "finishedAt": "2026-11-02T00:00:00Z", "containerID": "c://1"}
        },
    }
    first, second = records.of(pod_of(BODY)), records.of(pod_of(body))
    assert first.shape is second.shape
    assert (first.key, first.node, first.uid) == (("shop", "web-1"), "n1", "u1")
    assert (second.key, second.node, second.uid) == (("shop", "web-2"), "n2", "u2")
    assert second.start_seconds - first.start_seconds == 60
    assert [(end.restarts, len(end.ends)) for pod in (first, second) for end in pod.ends()] == [(0, 0), (1, 1)]


@pytest.mark.slow
def test_a_shape_is_forgotten_with_the_last_pod_that_has_it() -> None:
    records = PodRecords()
    pods = [records.of(pod_of(BODY)) for _ in range(2)]
    shape = weakref.ref(pods[0].shape)
    pods.pop()
    assert shape() is not None
    pods.pop()
    gc.collect()
    assert shape() is None


def test_a_pod_whose_amounts_cannot_be_read_lends_its_refusal_to_no_other() -> None:
    records = PodRecords()
    bodies = [changed("spec", "containers", [{"name": "main", "resources": {"requests": {"cpu": "x"}}}]) for _ in "ab"]
    bodies[1]["metadata"]["name"] = "web-2"
    refusals = [records.of(pod_of(body)).shape.refusal for body in bodies]
    assert ["pod shop/web-1" in refusals[0], "pod shop/web-2" in refusals[1]] == [True, True]


@pytest.mark.slow
def test_a_watched_pod_and_the_storing_of_a_slot_take_few_bytes_a_pod(tmp_path: Path) -> None:
    api, clock = ApiServer(None, None, quiet_watches=True), HandClock()
    api.objects |= objects(NODES, PODS)
    assert set(EMPTY) < set(api.objects)
    client = KubeClient(Access("bench", api.url, lambda: None), KubeSettings(retries=0))
    recorder = Recorder(client, Settings(), Store(tmp_path.as_uri(), "c"), AlwaysLeads(), clock, KubeletRules())
    try:
        tracemalloc.start()
        recorder.watch.start()
        assert recorder.watch.wait_synced(120)
        gc.collect()
        bytes_of_pod = tracemalloc.get_traced_memory()[0] / (NODES * PODS)
        tracemalloc.stop()
        for slot in range(2):  # with the first one, no inventory is stored yet
            end = hand_over(recorder, slot, NODES, PODS)
            clock.seconds = end + 120.0
            tracemalloc.start()
            assert recorder.store_closed(end)
            storing = tracemalloc.get_traced_memory()[1] / (NODES * PODS)
            tracemalloc.stop()
        assert len(recorder.watch.pods()) == NODES * PODS
    finally:
        recorder.watch.stop()
        client.close()
        api.stop()
    assert (bytes_of_pod < KEPT_BYTES, storing < STORING_BYTES) == (True, True), (bytes_of_pod, storing)
