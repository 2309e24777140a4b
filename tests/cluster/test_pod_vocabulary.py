"""Pod request and QoS class as a real API server has them: what it charges to a quota, and status.qosClass."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from cotenant.base.kubernetes.pod_qos import pod_qos
from cotenant.base.kubernetes.pod_request import parse_quantities
from cotenant.base.kubernetes.pod_wire import limits_of, requests_of
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pod_shapes import pod
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.server
PODS = "/api/v1/namespaces/{}/pods"
QUOTAS = "/api/v1/namespaces/{}/resourcequotas"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
CHARGED = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


@pytest.fixture
def api(control_plane: ControlPlane) -> Api:
    return control_plane.api()


@pytest.fixture
def runtime_class(api: Api, namespace: str) -> Iterator[str]:
    """Name of a RuntimeClass with overhead."""
    overhead = {"podFixed": {"cpu": "250m", "memory": "120Mi"}}
    body = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": namespace}}
    api.create(RUNTIME_CLASSES, {**body, "handler": "runc", "overhead": overhead})
    yield namespace
    api.delete(f"{RUNTIME_CLASSES}/{namespace}")


def test_the_qos_class_is_what_the_api_server_writes_into_the_status(
    api: Api, namespace: str, runtime_class: str
) -> None:
    draw, qos_classes = random.Random(15), set()
    pods = [pod(draw, i, runtime_class, complete=False) for i in range(80)]
    accepted = 0
    for pod_object in pods:
        try:
            stored = api.create(PODS.format(namespace), pod_object, dryRun="All")
        except ApiError as refused:
            assert refused.status == 422  # its own resources are below its containers'
            continue
        accepted += 1
        qos_classes.add(stored["status"]["qosClass"])
        # both of the spec as it was written and as the server completed it
        assert (pod_qos(pod_object["spec"]), pod_qos(stored["spec"])) == (stored["status"]["qosClass"],) * 2, pod_object
        assert requests_of({**pod_object["spec"], "overhead": stored["spec"].get("overhead")}) == requests_of(
            stored["spec"]
        )
    assert accepted > 60
    assert qos_classes == {"Guaranteed", "Burstable", "BestEffort"}


def test_request_and_limit_of_a_pod_are_what_the_api_server_charges_to_a_quota(
    api: Api, namespace: str, runtime_class: str
) -> None:
    hard = {name: "1Ti" if name.endswith("memory") else "1k" for name in CHARGED}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "all"}, "spec": {"hard": hard}}
    api.create(QUOTAS.format(namespace), quota)
    path = f"{QUOTAS.format(namespace)}/all"
    wait_for("the quota is counted", lambda: api.get(path).get("status", {}).get("hard"))
    draw, expected = random.Random(25), dict.fromkeys(CHARGED, 0)
    for number in range(15):
        stored = api.create(PODS.format(namespace), pod(draw, number, runtime_class, complete=True))
        for side, room in (("requests", requests_of(stored["spec"])), ("limits", limits_of(stored["spec"]))):
            for name in ("cpu", "memory"):
                expected[f"{side}.{name}"] += room.get(name, 0)

    def charged() -> dict[str, int]:
        used = api.get(path)["status"]["used"]
        return {
            name: parse_quantities({name.partition(".")[2]: used[name]})[name.partition(".")[2]] for name in CHARGED
        }

    # The quota controller counts a little after the pods are there.
    wait_for(f"{expected} is charged", lambda: charged() == expected)
    assert charged() == expected
