"""Pods on reclaimed capacity in namespaces with LimitRanges and ResourceQuotas, as a real API server admits them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cotenant.admission.namespace_limits.demands import quota_warnings
from cotenant.admission.webhook_server.service import WebhookService
from tests.admission.bodies import PODS, pod
from tests.admission.policy_cases import RANGE_CASES, RangeCase
from tests.cluster.api import Api, ApiError
from tests.cluster.waiting import wait_for

PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
DEFAULTS = {"cpu": "500m", "memory": "512Mi"}
HALVES = {"cpu": "250m", "memory": "256Mi"}
RANGES: dict[str, dict[str, Any]] = {
    "default": {"default": DEFAULTS},
    "default-request": {"defaultRequest": HALVES},
    "both": {"default": DEFAULTS, "defaultRequest": HALVES},
    "cpu-alone": {"default": {"cpu": "500m"}},
}
AMOUNTS = {"cpu": "200m", "memory": "200Mi"}  # below the default limits: else the API server refuses any pod
SPECS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "requests": {"requests": AMOUNTS},
    "limits": {"limits": AMOUNTS},
    "cpu": {"requests": {"cpu": "100m"}},
    "alike": {"requests": AMOUNTS, "limits": AMOUNTS},
}
BANDS = {"batch": ("koord-batch", "BE"), "mid": ("koord-mid", "LS")}


@pytest.fixture
def limited(api: Api, namespace: str) -> Any:
    """`limited(**item)` gives the namespace a LimitRange with one item; type: Container unless given."""

    def make(**item: Any) -> None:
        body = {"metadata": {"name": "range"}, "spec": {"limits": [{"type": "Container", **item}]}}
        api.create(f"/api/v1/namespaces/{namespace}/limitranges", body)

    return make


@pytest.fixture(params=BANDS)
def band(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def profiled(api: Api, webhook: WebhookService, namespace: str, band: str) -> Iterator[None]:
    """All pods of the namespace are of the band."""
    name, (priority, qos) = f"ranges-{namespace}"[:60].rstrip("-"), BANDS[band]
    spec = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "priorityClassName": priority,
        "qosClass": qos,
    }
    kind = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile"}
    api.create(PROFILES, {**kind, "metadata": {"name": name}, "spec": spec})
    wait_for("the profile is known", lambda: name in {p.name for p in webhook.state.view().profiles})
    wait_for("the namespace is known", lambda: namespace in webhook.state.view().namespaces)
    yield
    api.delete(f"{PROFILES}/{name}")


def full(resources: dict[str, Any]) -> dict[str, Any]:
    """A pod with a main container, a native sidecar and an init container of these resources."""
    early = [
        {"name": "side", "image": "x", "resources": resources, "restartPolicy": "Always"},
        {"name": "init", "image": "x", "resources": resources},
    ]
    return pod("p", {}, {"initContainers": early}, **resources)


def plain_amounts(body: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(container, side, resource) of cpu and memory that the pod asks for."""
    spec = body["spec"]
    return [
        (container["name"], side, name)
        for container in (*spec["containers"], *spec.get("initContainers", ()))
        for side in ("requests", "limits")
        for name in container["resources"].get(side, {})
        if name in ("cpu", "memory")
    ]


@pytest.mark.parametrize("item", RANGES.values(), ids=RANGES)
def test_no_container_keeps_cpu_or_memory_that_a_limit_range_put_back(
    api: Api, profiled: None, limited: Any, namespace: str, item: dict[str, Any]
) -> None:
    limited(**item)
    for number, (_, resources) in enumerate(SPECS.items()):
        body = full(resources)
        body["metadata"]["name"] = f"p{number}"
        live = api.create(PODS.format(namespace), body)
        assert plain_amounts(live) == [], resources
        # cpu and memory decide the class, and none is left
        assert live["status"]["qosClass"] == "BestEffort"


def test_what_the_defaults_gave_becomes_the_classs_own_once(
    api: Api, profiled: None, limited: Any, namespace: str, band: str
) -> None:
    limited(default=DEFAULTS, defaultRequest=HALVES)
    live = api.create(PODS.format(namespace), pod("p"))
    # requests are defaultRequest, limits are default: 250m -> 250, 500m -> 500 millicores
    prefix = f"kubernetes.io/{band}"
    amounts = {
        "requests": {f"{prefix}-cpu": "250", f"{prefix}-memory": "256Mi"},
        "limits": {f"{prefix}-cpu": "500", f"{prefix}-memory": "512Mi"},
    }
    assert live["spec"]["containers"][0]["resources"] == amounts
    if band == "batch":
        spec = json.loads(live["metadata"]["annotations"]["node.koordinator.sh/extended-resource-spec"])
        assert spec == {"containers": {"main": amounts}}


TWO = {
    # the defaults of two LimitRanges add up, and their notes stand in one annotation
    "cpu here and memory there": (
        {"default": {"cpu": "500m"}},
        {"default": {"memory": "512Mi"}, "defaultRequest": HALVES},
    ),
    # the API server makes defaults of `max`
    "a maximum and a default": ({"max": {"memory": "8Gi"}}, {"default": {"cpu": "500m"}}),
    # what is neither cpu nor memory is the namespace's own business
    "disk too": ({"default": {"ephemeral-storage": "1Gi", "cpu": "500m"}}, {"default": {"memory": "512Mi"}}),
}  # fmt: skip


@pytest.mark.parametrize("items", TWO.values(), ids=TWO)
def test_what_several_limit_ranges_put_back_goes_and_their_other_defaults_stay(
    api: Api, webhook: WebhookService, namespace: str, items: tuple[dict[str, Any], ...]
) -> None:
    for number, item in enumerate(items):
        limits = {"metadata": {"name": f"range-{number}"}, "spec": {"limits": [{"type": "Container", **item}]}}
        api.create(f"/api/v1/namespaces/{namespace}/limitranges", limits)
    names = {f"range-{number}" for number in range(len(items))}
    wait_for(
        "the webhook knows both",
        lambda: {d.name for d in webhook.state.view().demands.get(namespace, ())} >= names,
    )
    own = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi"}
    body = full({"requests": own, "limits": own})
    body["metadata"]["labels"] = {"koordinator.sh/qosClass": "BE"}
    body["spec"]["priorityClassName"] = "koord-batch"
    if "max" in items[0]:  # a bound that such a pod cannot keep: refused, and by whom is said
        with pytest.raises(ApiError, match="range-0") as refused:
            api.create(PODS.format(namespace), body)
        assert "memory" in str(refused.value)
        return
    live = api.create(PODS.format(namespace), body)
    assert plain_amounts(live) == []
    assert live["status"]["qosClass"] == "BestEffort"
    disk = {"ephemeral-storage": "1Gi"} if "ephemeral-storage" in items[0]["default"] else {}
    # a default limit is the request, too
    assert all(
        container["resources"] == {"requests": own | disk, "limits": own | disk}
        for container in (*live["spec"]["containers"], *live["spec"]["initContainers"])
    )


@pytest.mark.usefixtures("band")
@pytest.mark.parametrize("band", ["batch"], indirect=True)
@pytest.mark.parametrize("case", RANGE_CASES.values(), ids=RANGE_CASES)
def test_a_limit_range_gives_a_pod_what_is_of_its_class_alone(
    api: Api, webhook: WebhookService, namespace: str, case: RangeCase, request: pytest.FixtureRequest
) -> None:
    if case.of == "profiled":
        request.getfixturevalue("profiled")
    for number, item in enumerate(case.defaults):
        limits = {"metadata": {"name": f"range-{number}"}, "spec": {"limits": [{"type": "Container", "default": item}]}}
        api.create(f"/api/v1/namespaces/{namespace}/limitranges", limits)
    names = {f"range-{number}" for number, item in enumerate(case.defaults) if "ephemeral-storage" not in item}
    wait_for(
        "the webhook knows their defaults",
        lambda: {getattr(d, "name", "") for d in webhook.state.view().demands.get(namespace, ())} >= names,
    )
    live = api.create(PODS.format(namespace), case.body)
    sides = live["spec"]["containers"][0]["resources"]
    assert {side: amounts for side, amounts in sides.items() if amounts} == case.expected


@pytest.mark.parametrize("item", RANGES.values(), ids=RANGES)
def test_a_pod_that_names_batch_resources_itself_gets_no_cpu_beside_them(
    api: Api, webhook: WebhookService, limited: Any, namespace: str, item: dict[str, Any]
) -> None:
    limited(**item)
    own = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi"}
    body = full({"requests": own, "limits": own})
    body["metadata"]["labels"] = {"koordinator.sh/qosClass": "BE"}
    body["spec"]["priorityClassName"] = "koord-batch"
    live = api.create(PODS.format(namespace), body)
    assert plain_amounts(live) == []
    assert live["status"]["qosClass"] == "BestEffort"
    everyone = (*live["spec"]["containers"], *live["spec"]["initContainers"])
    assert all(container["resources"] == {"requests": own, "limits": own} for container in everyone)


def test_production_pods_keep_the_defaults(api: Api, webhook: WebhookService, limited: Any, namespace: str) -> None:
    limited(default=DEFAULTS, defaultRequest=HALVES)
    live = api.create(PODS.format(namespace), pod("p", {}, {"priorityClassName": "koord-prod"}))
    assert live["spec"]["containers"][0]["resources"] == {"requests": HALVES, "limits": DEFAULTS}


def test_cpu_that_the_author_wrote_beside_batch_resources_stays(
    api: Api, webhook: WebhookService, limited: Any, namespace: str
) -> None:
    limited(default={"memory": "512Mi"})
    both = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi", "cpu": "2"}
    labels, priority = {"koordinator.sh/qosClass": "BE"}, {"priorityClassName": "koord-batch"}
    live = api.create(PODS.format(namespace), pod("p", labels, priority, requests=both, limits=both))
    assert live["spec"]["containers"][0]["resources"] == {"requests": both, "limits": both}


BOUNDS = {
    f"{of}-{field}-{resource}": {"type": of, field: {resource: amount}}
    for of in ("Container", "Pod")
    for field, by_resource in {
        "min": {"cpu": "10m", "memory": "16Mi"},
        "max": {"cpu": "8", "memory": "8Gi"},
        "maxLimitRequestRatio": {"cpu": "4", "memory": "4"},
    }.items()
    for resource, amount in by_resource.items()
}


@pytest.mark.parametrize("item", BOUNDS.values(), ids=BOUNDS)
def test_a_bound_that_reclaimed_pods_cannot_keep_is_named_with_the_fix(
    api: Api, webhook: WebhookService, profiled: None, limited: Any, namespace: str, item: dict[str, Any]
) -> None:
    limited(**item)
    wait_for("the LimitRange is known", lambda: webhook.state.view().demands.get(namespace))
    body = pod("p", requests=AMOUNTS, limits=AMOUNTS)
    with pytest.raises(ApiError, match=r"LimitRange range has a .*\(fix: ") as refused:
        api.create(PODS.format(namespace), body)
    assert refused.value.status == 403


# A minimum or maximum of a Container is its default as well: without the webhook such a pod has cpu, too.
WITHOUT_DEFAULTS = {name: item for name, item in BOUNDS.items() if item["type"] == "Pod" or "Ratio" in name}


@pytest.mark.parametrize("item", WITHOUT_DEFAULTS.values(), ids=WITHOUT_DEFAULTS)
def test_the_api_server_itself_refuses_what_the_webhook_refuses(
    api: Api, webhook: WebhookService, item: dict[str, Any]
) -> None:
    ranges = "/api/v1/namespaces/cotenant/limitranges"  # pods of our own namespace are not sent to the webhook
    api.create(ranges, {"metadata": {"name": "range"}, "spec": {"limits": [item]}})
    batch = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi"}
    body = pod("p", {}, {"serviceAccountName": "cotenant-webhook"}, requests=batch, limits=batch)

    def refusal() -> str:
        try:
            api.create(PODS.format("cotenant"), body, dryRun="All")
        except ApiError as error:
            return str(error)
        return ""

    try:
        assert wait_for("it is refused", lambda: f"per {item['type']} is" in refusal())
    finally:
        api.delete(f"{ranges}/range")


def test_volumes_bound_by_a_limit_range_bound_no_pod(api: Api, profiled: None, limited: Any, namespace: str) -> None:
    limited(type="PersistentVolumeClaim", max={"storage": "10Gi"})
    live = api.create(PODS.format(namespace), pod("p", requests=AMOUNTS, limits=AMOUNTS))
    assert plain_amounts(live) == []


QUOTA_KEYS = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


@pytest.mark.parametrize("key", QUOTA_KEYS)
@pytest.mark.parametrize("scope", ["", "NotBestEffort", "NotTerminating", "Terminating"])
def test_a_quota_that_demands_cpu_is_named_exactly_where_the_api_server_refuses(
    api: Api, webhook: WebhookService, profiled: None, namespace: str, key: str, scope: str
) -> None:
    spec = {"hard": {key: "100Gi" if "memory" in key else "100"}, **({"scopes": [scope]} if scope else {})}
    api.create(f"/api/v1/namespaces/{namespace}/resourcequotas", {"metadata": {"name": "team"}, "spec": spec})
    wait_for("the quota is known", lambda: webhook.state.view().demands.get(namespace))
    batch = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi"}
    warnings = list(quota_warnings(pod("p", requests=batch, limits=batch), webhook.state.view().demands[namespace]))

    def refused() -> bool:
        try:
            api.create(PODS.format(namespace), pod("p", requests=AMOUNTS, limits=AMOUNTS), dryRun="All")
        except ApiError as error:
            return "must specify" in str(error)
        return False

    # scope NotBestEffort does not count pods without cpu and memory, Terminating only those with a deadline
    expected = scope in ("", "NotTerminating")
    wait_for("the API server applies the quota", lambda: refused() is expected)
    assert bool(warnings) is expected
    assert all(key in line and "NotBestEffort" in line and len(line) <= 120 for line in warnings)
