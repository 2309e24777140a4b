"""Karpenter on a test cluster, with the provider of its own tests: it consolidates nodes that were there before it.

    install(plane)                       # its definitions; once a control plane
    adopt(plane)                         # every node gets a NodeClaim, as if Karpenter had launched it
    with running(plane, folder, types): ...

The NodePool lets any number of nodes leave at once, as soon as they could; it may add others of the same types,
which are named after their cores.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster import binaries
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import CRDS
from tests.cluster.fake_nodes import each
from tests.cluster.process import Server, free_port
from tests.cluster.waiting import wait_for

Json = dict[str, Any]
POOL: Final = "default"
KARPENTER: Final = {"apiVersion": "karpenter.sh/v1"}
CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
POOLS: Final = "/apis/karpenter.sh/v1/nodepools"
CLASSES: Final = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
CLASS: Final = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": POOL}
TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
PRICE_PER_CORE: Final = 0.04


def sources() -> Path:
    """Karpenter's files, of the version that the program is built from."""
    return binaries.sources("karpenter", "sigs.k8s.io/karpenter")


def type_name(cores: str) -> str:
    """The name of a machine type."""
    return f"m-{cores}x-amd64-linux"


def machine_type(cores: str, memory: str, zones: Sequence[str]) -> Json:
    """A machine type of the provider, at the same price per core in each zone."""
    resources = {"cpu": cores, "memory": memory, "pods": "110", "ephemeral-storage": "20Gi"}
    offering: list[Json] = [
        {
            "Price": PRICE_PER_CORE * int(cores),
            "Available": True,
            "Requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                {"key": ZONE_LABEL, "operator": "In", "values": [zone]},
            ],
        }
        for zone in zones
    ]
    return {
        "name": type_name(cores),
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": resources,
        "offerings": offering,
    }


def install(plane: ControlPlane) -> None:
    """Karpenter's definitions, its class of nodes and a NodePool that consolidates at once."""
    api, folder = plane.api(), sources()
    bodies = [
        yaml.safe_load(file.read_text())
        for part in ("kwok/apis/crds", "pkg/apis/crds")
        for file in sorted((folder / part).glob("*.yaml"))
    ]
    for body in bodies:
        api.create(CRDS, body)
    names = [body["metadata"]["name"] for body in bodies]
    wait_for("Karpenter's definitions", lambda: all(_established(api.get(f"{CRDS}/{name}")) for name in names))
    wait_for("its class of nodes", lambda: api.exists(CLASSES) and api.exists(CLAIMS))
    api.create(CLASSES, {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": CLASS["kind"], "metadata": {"name": POOL}})
    requirements = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
    template = {"spec": {"requirements": requirements, "nodeClassRef": CLASS, "expireAfter": "Never"}}
    disruption = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "0s",
        "budgets": [{"nodes": "100%"}],
    }
    spec = {"template": template, "disruption": disruption}
    api.create(POOLS, {**KARPENTER, "kind": "NodePool", "metadata": {"name": POOL}, "spec": spec})


def adopt(plane: ControlPlane) -> None:
    """Give every node its NodeClaim, launched and not registered yet: Karpenter does the rest when it begins."""
    api = plane.api()
    pool = api.get(f"{POOLS}/{POOL}")["metadata"]
    now = pool["creationTimestamp"]
    owner = {**KARPENTER, "kind": "NodePool", "name": POOL, "uid": pool["uid"]}

    def claim(own_api: Any, node: Json) -> None:
        name, status = node["metadata"]["name"], node["status"]
        own = {
            TYPE_LABEL: type_name(status["allocatable"]["cpu"]),
            "karpenter.sh/capacity-type": "on-demand",
            "karpenter.sh/nodepool": POOL,
        }
        provider = f"kwok://{name}"
        own_api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": own}, "spec": {"providerID": provider}})
        labels = {ZONE_LABEL: node["metadata"]["labels"][ZONE_LABEL], **own}
        meta = {
            "name": name,
            "labels": labels,
            "finalizers": ["karpenter.sh/termination"],
            "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
        }
        spec = {
            "nodeClassRef": CLASS,
            "expireAfter": "Never",
            "requirements": [{"key": TYPE_LABEL, "operator": "In", "values": [own[TYPE_LABEL]]}],
            "resources": {"requests": {"cpu": "1"}},
        }
        own_api.create(CLAIMS, {**KARPENTER, "kind": "NodeClaim", "metadata": meta, "spec": spec})
        launched = {
            "type": "Launched",
            "status": "True",
            "reason": "Launched",
            "message": "",
            "lastTransitionTime": now,
        }
        amounts = {amount: status[amount] for amount in ("capacity", "allocatable")}
        claim_status = {"providerID": provider, "conditions": [launched], **amounts}
        own_api.patch(f"{CLAIMS}/{name}/status", {"status": claim_status})

    each(plane.api, api.items("/api/v1/nodes"), claim)


@contextmanager
def running(plane: ControlPlane, folder: Path, types: Sequence[Json]) -> Iterator[Server]:
    """Karpenter until the end, with the rights of an administrator; every node is known to it on entry."""
    listed, port = folder / "machine-types.json", free_port()
    listed.write_text(json.dumps(types))
    variables = {
        "KUBECONFIG": str(plane.admin_kubeconfig),
        "SYSTEM_NAMESPACE": "kube-system",
        "INSTANCE_TYPES_FILE_PATH": str(listed),
        "DISABLE_LEADER_ELECTION": "true",
        "METRICS_PORT": "0",
        "HEALTH_PROBE_PORT": str(port),
    }
    assignments = [f"{key}={value}" for key, value in variables.items()]
    server = Server(
        "karpenter", ["/usr/bin/env", *assignments, str(binaries.find("karpenter"))], folder / "karpenter.log"
    )
    server.start()
    try:
        server.wait_until(lambda: _registered(plane), 300)
        yield server
    finally:
        server.kill()


def _registered(plane: ControlPlane) -> bool:
    claims = plane.api().items(CLAIMS)
    return all(_has(claim, "Initialized") for claim in claims)


def _established(definition: Json) -> bool:
    return _has(definition, "Established")


def _has(body: Json, condition: str) -> bool:
    conditions = body.get("status", {}).get("conditions") or ()
    return any(c["type"] == condition and c["status"] == "True" for c in conditions)
