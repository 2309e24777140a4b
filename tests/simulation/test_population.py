"""The demo's inventory as a running cluster on the embedded server: every object fits its kind, pods are ready."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from cotenant.base.cluster import ContainerRole, Inventory
from cotenant.base.kubernetes.pod_wire import requests_of
from cotenant.base.process.clock import FixedClock
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Signal
from cotenant_lab.simulation.api_server import ADMINISTRATOR
from cotenant_lab.simulation.api_server.kinds import built_in
from cotenant_lab.simulation.api_server.routes import Api, EmbeddedRequest
from cotenant_lab.simulation.api_server.schema import unknown_fields
from cotenant_lab.simulation.api_server.state import ObjectState
from cotenant_lab.simulation.api_server.validation import violations, wrong_types
from cotenant_lab.simulation.population import KINDS, initial_objects, template_hash, template_of
from cotenant_lab.synthetic import SyntheticSpec, generate


@pytest.fixture(scope="module")
def inventory() -> Inventory:
    return generate(SyntheticSpec(nodes=6, workloads=120, days=1)).inventory


@pytest.fixture(scope="module")
def objects(inventory: Inventory) -> list[Any]:
    return list(initial_objects(inventory, inventory.time_seconds))


def test_every_object_is_what_its_kind_declares(objects: list[Any]) -> None:
    kinds = {kind.collection: kind for kind in built_in()}
    for collection, item in objects:
        schema = kinds[collection].schema
        assert not list(unknown_fields(schema, item)), item["metadata"]
        assert not [*wrong_types(schema, item), *violations(schema, item)], item["metadata"]
    assert len({o["metadata"]["uid"] for _, o in objects}) == len(objects)


def test_what_runs_in_the_inventory_runs_there(inventory: Inventory, objects: list[Any]) -> None:
    pods = [item for collection, item in objects if collection == ("", "pods")]
    assert len(pods) == sum(p.running for p in inventory.pods)
    assert {p["status"]["phase"] for p in pods} == {"Running"}
    by_node = Counter(p["spec"]["nodeName"] for p in pods)
    assert by_node == Counter(p.node for p in inventory.pods if p.running)
    expected = [w for w in inventory.workloads if w.ref.kind in KINDS]
    controllers = [i for (group, plural), i in objects if group in ("apps", "batch") and plural != "replicasets"]
    assert len(controllers) == len(expected)


def test_whoever_counts_requests_counts_the_same() -> None:
    cluster = generate(SyntheticSpec(nodes=6, workloads=120, days=1))
    live = [
        i for place, i in initial_objects(cluster.inventory, cluster.inventory.time_seconds) if place == ("", "pods")
    ]
    running = {(pod.namespace, pod.name) for pod in cluster.inventory.pods if pod.running}
    for resource, signal in ((Resource.CPU, Signal.CPU_REQUEST), (Resource.MEMORY, Signal.MEMORY_REQUEST)):
        # Templates, pods as the inventory has them, the hourly series and the API server: one number.
        expected = sum(w.total(resource) for w in cluster.inventory.workloads)
        assert sum(p.requests.get(resource, 0) for p in cluster.inventory.pods if p.running) == expected
        assert sum(requests_of(pod["spec"]).get(resource, 0) for pod in live) == expected
        hourly = zip(cluster.usage[signal].refs, cluster.usage[signal].values, strict=True)
        last = [float(row[-1]) for ref, row in hourly if (ref.namespace, ref.pod) in running]
        assert sum(last) == pytest.approx(expected, rel=1e-6)  # float32


def test_a_request_that_nobody_wrote_is_the_limit_of_the_pod_and_stays_unset_in_the_template(
    inventory: Inventory,
) -> None:
    chosen = next(
        w for w in inventory.workloads if w.replicas and w.ref.kind == "Deployment" and w.containers[0].limits
    )
    bare = replace(chosen, containers=tuple(replace(c, requests={}) for c in chosen.containers))
    others = tuple(w for w in inventory.workloads if w.ref != bare.ref)
    bare_objects = list(initial_objects(replace(inventory, workloads=(*others, bare)), inventory.time_seconds))
    owned = {p.name for p in inventory.pods if p.workload == bare.ref}
    pods = [i for place, i in bare_objects if place == ("", "pods") and i["metadata"]["name"] in owned]
    assert pods
    for pod in pods:
        for container in pod["spec"]["containers"]:
            assert container["resources"]["requests"] == container["resources"]["limits"]
    (template,) = (
        i["spec"]["template"] for place, i in bare_objects
        if place == ("apps", "deployments") and i["metadata"]["name"] == bare.ref.name
    )  # fmt: skip
    assert all("requests" not in c["resources"] for c in template["spec"]["containers"])


def test_pods_carry_the_digest_of_the_template_they_were_made_from(inventory: Inventory, objects: list[Any]) -> None:
    digests = {(w.ref.kind, w.ref.name): template_hash(template_of(w)) for w in inventory.workloads}
    pods = [item for collection, item in objects if collection == ("", "pods")]
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences", ()):
            kind, name, digest = owner["kind"], owner["name"], pod["metadata"]["labels"]["pod-template-hash"]
            if kind == "ReplicaSet":
                assert name.endswith(digest)
                kind, name = "Deployment", name.removesuffix(f"-{digest}")
            assert digest == digests[kind, name]
    assert any(p["metadata"].get("ownerReferences") for p in pods)


def test_containers_stand_where_their_role_puts_them(inventory: Inventory) -> None:
    for workload in inventory.workloads:
        spec = template_of(workload)["spec"]
        main = [c["name"] for c in spec["containers"]]
        init = {c["name"]: c.get("restartPolicy") for c in spec.get("initContainers", ())}
        roles = {c.name: c.role for c in workload.containers}
        assert main == [n for n, role in roles.items() if role is ContainerRole.MAIN]
        assert {n for n, policy in init.items() if policy} == {
            n for n, r in roles.items() if r is ContainerRole.SIDECAR
        }


def test_the_server_takes_and_serves_it(objects: list[Any]) -> None:
    state = ObjectState()
    for collection, item in objects:
        state.put(collection, (item["metadata"].get("namespace", ""), item["metadata"]["name"]), item)
    api = Api(state, FixedClock(1_795_089_600.0))
    listed: Any = api.answer(EmbeddedRequest("GET", "/api/v1/nodes", ADMINISTRATOR)).body
    assert len(listed["items"]) == 6
    deployment = next(i for (_, plural), i in objects if plural == "deployments")
    path = (
        f"/apis/apps/v1/namespaces/{deployment['metadata']['namespace']}/deployments/{deployment['metadata']['name']}"
    )
    step = [{"op": "replace", "path": "/spec/replicas", "value": 9}]
    patched = EmbeddedRequest("PATCH", path, ADMINISTRATOR, content_type="application/json-patch+json", body=step)
    changed: Any = api.answer(patched).body
    assert (changed["spec"]["replicas"], changed["metadata"]["generation"]) == (9, 2)
